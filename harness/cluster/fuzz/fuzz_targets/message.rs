//! `cargo fuzz run message`, in the folder of the crate `cluster`: no bytes make the parser of messages panic, and what it
//! accepts is written and read back unchanged.

#![no_main]

use cluster::job_channel::message::{HEADER_BYTES, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((message, length))) = parse(bytes) {
        assert!((HEADER_BYTES..=bytes.len()).contains(&length));
        let again = message.to_bytes();
        assert_eq!(parse(&again), Ok(Some((message, again.len()))));
    }
});
