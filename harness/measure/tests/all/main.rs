//! What a sweep leaves behind.

mod back_end;
mod rows;
