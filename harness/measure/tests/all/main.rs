//! What a sweep leaves behind.

mod rows;
