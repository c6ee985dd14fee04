//! Tests of the results of a sweep.

mod back_end;
mod rows;
