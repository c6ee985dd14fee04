//! The messages of control planes, in a compact binary format: requests (tensors that are ready on a
//! rank), readiness (tensors that are ready in a subtree), responses (tensors to reduce), and an order of
//! tensors.
//!
//! ```text
//! message   = version kind flags count item*      one byte each; count as varint; flags: 1 shut down
//! request   = length body                         body: name dtype op bits [prescale postscale] dims dim*
//! ready     = rank error length body              the request of one rank of the subtree; a mismatch, if any
//! response  = stop names name* error              an empty error: reduce the tensors
//! order     = name
//! name      = length bytes                        UTF-8; error likewise
//! ```
//! Integers are unsigned LEB128 varints, floating-point factors 8 bytes little-endian and present
//! only if the bits say so (1: scaled, 2: allgather, 4: GPU). Horovod sends the same contents as
//! FlatBuffers; the functions `*_horovod` give their size.

mod horovod;
mod items;
mod reader;
mod request;
mod writer;

use std::fmt;

pub use horovod::{name_horovod, requests_horovod, responses_horovod};
pub use items::{Items, NamedResponse, Subtree};
pub use request::decode_request;
pub(super) use request::{encode_request, request_name};
pub use writer::Writer;

const VERSION: u8 = 2;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Requests = 1,
    Responses = 2,
    Ready = 3,
    Order = 4,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Requests => "a list of requests",
            Kind::Responses => "a list of responses",
            Kind::Ready => "a list of what is ready in a subtree",
            Kind::Order => "an order of tensors",
        }
    }
}

const SHUT_DOWN: u8 = 1;

/// Why bytes cannot be read as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The position of the first byte that is wrong.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: expected {}; do all ranks run the same build?", self.at, self.expected)
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::stop::Stop;
    use crate::control::tensor::{DataType, Device, Operation, ReduceOp, Tensor};
    use proptest::prelude::*;

    fn tensor() -> impl Strategy<Value = Tensor> {
        let dtype = proptest::sample::select(DataType::ALL.to_vec());
        let op = proptest::sample::select(ReduceOp::ALL.to_vec());
        let shape = proptest::collection::vec(0_u64..10_000, 0..5);
        let scales = prop_oneof![Just((1.0, 1.0)), (-1e9..1e9, -1e9..1e9)];
        let bits = any::<(bool, bool)>();
        ("\\PC{0,40}", dtype, op, shape, scales, bits).prop_map(
            |(name, dtype, op, shape, (prescale, postscale), (gathers, gpu))| Tensor {
                name,
                operation: if gathers { Operation::AllGather } else { Operation::AllReduce },
                dtype,
                op,
                shape,
                prescale,
                postscale,
                device: if gpu { Device::Gpu } else { Device::Cpu },
            },
        )
    }

    fn body(tensor: &Tensor) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, tensor);
        bytes
    }

    /// Reads a message as everything that it could be.
    fn read(bytes: &[u8]) {
        let _ = decode_request(bytes);
        if let Ok(mut items) = Items::requests(bytes) {
            while let Ok(Some((_, body))) = items.next_request() {
                let _ = decode_request(body);
            }
        }
        if let Ok(mut items) = Items::ready(bytes) {
            while let Ok(Some(_)) = items.next_subtree() {}
        }
        if let Ok(mut items) = Items::responses(bytes) {
            while let Ok(Some(_)) = items.next_response() {}
        }
        if let Ok(mut items) = Items::order(bytes) {
            while let Ok(Some(_)) = items.next_name() {}
        }
    }

    /// Small messages of every kind, and broken ones: where fuzzing begins.
    #[test]
    fn the_corpus_is_read_without_panic() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/message");
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
        assert!(files.len() >= 8, "{folder}");
        for file in files {
            read(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    proptest! {
        #[test]
        fn requests_survive_the_wire(
            tensors in proptest::collection::vec(tensor(), 0..20),
            shut_down in any::<bool>(),
        ) {
            let mut list = Writer::requests(shut_down, tensors.len());
            let mut ready = Writer::ready(shut_down, tensors.len());
            for (rank, tensor) in tensors.iter().enumerate() {
                list.request(&body(tensor));
                ready.subtree(rank, Some("no").filter(|_| rank % 2 == 0), &body(tensor));
            }
            let (list, ready) = (list.finish(), ready.finish());
            let mut items = Items::requests(&list).unwrap();
            let mut subtrees = Items::ready(&ready).unwrap();
            prop_assert_eq!((items.shut_down, subtrees.shut_down), (shut_down, shut_down));
            for (rank, tensor) in tensors.iter().enumerate() {
                let (at, bytes) = items.next_request().unwrap().unwrap();
                prop_assert_eq!(&list[at..at + bytes.len()], bytes);
                prop_assert_eq!(&decode_request(bytes).unwrap(), tensor);
                let error = Some("no").filter(|_| rank % 2 == 0);
                let expected = Subtree { rank, error, body: bytes };
                prop_assert_eq!(subtrees.next_subtree().unwrap(), Some(expected));
            }
            prop_assert_eq!(items.next_request(), Ok(None));
            prop_assert_eq!(subtrees.next_subtree(), Ok(None));
        }

        #[test]
        fn responses_survive_the_wire(
            list in proptest::collection::vec(
                (proptest::collection::vec("\\PC{0,30}", 0..9), proptest::option::of("\\PC{1,30}")),
                0..9,
            )
        ) {
            let mut message = Writer::responses(true, list.len());
            for (at, (names, error)) in list.iter().enumerate() {
                let names = names.iter().map(String::as_str);
                message.response(names, error.as_deref(), Stop::ALL[at % Stop::ALL.len()]);
            }
            let bytes = message.finish();
            let mut items = Items::responses(&bytes).unwrap();
            for (at, (names, error)) in list.iter().enumerate() {
                let expected = NamedResponse {
                    names: names.iter().map(String::as_str).collect(),
                    error: error.as_deref(),
                    stop: Stop::ALL[at % Stop::ALL.len()],
                };
                prop_assert_eq!(items.next_response(), Ok(Some(expected)));
            }
            prop_assert_eq!(items.next_response(), Ok(None));
        }

        #[test]
        fn a_cut_or_changed_message_is_an_error_or_another_message_but_no_panic(
            tensors in proptest::collection::vec(tensor(), 1..6),
            cut in any::<prop::sample::Index>(),
            flip in any::<(prop::sample::Index, u8)>(),
        ) {
            let mut list = Writer::requests(false, tensors.len());
            tensors.iter().for_each(|tensor| list.request(&body(tensor)));
            let mut bytes = list.finish();
            let end = cut.index(bytes.len());
            let all = Items::requests(&bytes[..end]).and_then(|mut items| {
                while items.next_request()?.is_some() {}
                Ok(())
            });
            prop_assert!(all.is_err());
            let at = flip.0.index(bytes.len());
            bytes[at] ^= flip.1;
            read(&bytes);
        }

        #[test]
        fn noise_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
        }
    }

    #[test]
    fn errors_have_the_place_and_the_problem() {
        let bytes = Writer::responses(false, 0).finish();
        let error = Items::requests(&bytes).err().unwrap().to_string();
        assert_eq!(error, "byte 1: expected a list of requests; do all ranks run the same build?");
        let error = Items::requests(&[2, 1, 0, 200, 1]).err().unwrap();
        assert_eq!(error, Malformed { at: 3, expected: "a count that the message can hold" });
        let huge = Tensor::new("huge", DataType::F32, ReduceOp::Sum, &[u64::MAX, 2]);
        let error = decode_request(&body(&huge)).unwrap_err();
        assert_eq!(error.expected, "a shape that fits into memory");
    }
}
