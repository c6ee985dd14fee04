//! What control planes send: requests ("I am ready") and responses ("all go"), in a compact binary
//! form of our own.
//!
//! ```text
//! message   = version kind flags count item*           one byte each; count as varint
//! request   = name dtype op scaled [prescale postscale] dims dim*
//! response  = names name* error                        an empty error means: reduce
//! name      = length bytes                             UTF-8; error likewise
//! ```
//! Integers are unsigned LEB128 varints, floating-point factors 8 bytes little-endian and present
//! only if `scaled` is 1. Horovod sends the same contents as FlatBuffers.

use std::fmt;

use super::{DataType, ReduceOp, Tensor};

const VERSION: u8 = 1;
const REQUESTS: u8 = 1;
const RESPONSES: u8 = 2;
/// No flag is defined yet.
const NO_FLAGS: u8 = 0;

/// "These tensors may be reduced" of one rank in one cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests(pub Vec<Tensor>);

/// One entry of the coordinator's answer, with names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedResponse {
    /// The tensors to reduce as one message.
    pub names: Vec<String>,
    /// Why they cannot be.
    pub error: Option<String>,
}

/// The coordinator's answer, in the order in which all ranks carry it out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Responses(pub Vec<NamedResponse>);

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Position of the first byte that makes no sense.
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

/// Writes requests for the given tensors.
pub fn encode_requests<'a>(tensors: impl ExactSizeIterator<Item = &'a Tensor>) -> Vec<u8> {
    let mut bytes = vec![VERSION, REQUESTS, NO_FLAGS];
    varint(&mut bytes, tensors.len() as u64);
    for tensor in tensors {
        text(&mut bytes, &tensor.name);
        let scaled = tensor.prescale != 1.0 || tensor.postscale != 1.0;
        bytes.extend([tensor.dtype.code(), tensor.op.code(), scaled.into()]);
        if scaled {
            bytes.extend(tensor.prescale.to_le_bytes());
            bytes.extend(tensor.postscale.to_le_bytes());
        }
        varint(&mut bytes, tensor.shape.len() as u64);
        for &dim in &tensor.shape {
            varint(&mut bytes, dim);
        }
    }
    bytes
}

/// Writes responses; each is the names of its tensors and its error.
pub fn encode_responses<'a, N>(
    responses: impl ExactSizeIterator<Item = (N, Option<&'a str>)>,
) -> Vec<u8>
where
    N: ExactSizeIterator<Item = &'a str>,
{
    let mut bytes = vec![VERSION, RESPONSES, NO_FLAGS];
    varint(&mut bytes, responses.len() as u64);
    for (names, error) in responses {
        varint(&mut bytes, names.len() as u64);
        names.for_each(|name| text(&mut bytes, name));
        text(&mut bytes, error.unwrap_or(""));
    }
    bytes
}

impl Requests {
    /// Reads what [`encode_requests`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Requests, Malformed> {
        let mut reader = Reader::open(bytes, REQUESTS)?;
        let count = reader.count()?;
        let mut tensors = Vec::with_capacity(count);
        for _ in 0..count {
            let name = reader.text()?;
            let dtype = reader.byte("an element type").and_then(|code| {
                DataType::from_code(code).ok_or(reader.malformed(1, "a known element type"))
            })?;
            let op = reader.byte("a reduction").and_then(|code| {
                ReduceOp::from_code(code).ok_or(reader.malformed(1, "a known reduction"))
            })?;
            let (prescale, postscale) = match reader.byte("0 or 1 (scaled)")? {
                0 => (1.0, 1.0),
                1 => (reader.float()?, reader.float()?),
                _ => return Err(reader.malformed(1, "0 or 1 (scaled)")),
            };
            let dims = reader.count()?;
            let shape = (0..dims).map(|_| reader.varint()).collect::<Result<Vec<_>, _>>()?;
            tensors.push(Tensor { name, dtype, op, shape, prescale, postscale });
        }
        reader.close()?;
        Ok(Requests(tensors))
    }
}

impl Responses {
    /// Reads what [`encode_responses`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Responses, Malformed> {
        let mut reader = Reader::open(bytes, RESPONSES)?;
        let count = reader.count()?;
        let mut responses = Vec::with_capacity(count);
        for _ in 0..count {
            let names = reader.count()?;
            let names = (0..names).map(|_| reader.text()).collect::<Result<Vec<_>, _>>()?;
            let error = Some(reader.text()?).filter(|error| !error.is_empty());
            responses.push(NamedResponse { names, error });
        }
        reader.close()?;
        Ok(Responses(responses))
    }
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    varint(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn open(bytes: &'a [u8], kind: u8) -> Result<Reader<'a>, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.byte("format version 1")? != VERSION {
            return Err(reader.malformed(1, "format version 1"));
        }
        let expected = if kind == REQUESTS { "a list of requests" } else { "a list of responses" };
        if reader.byte(expected)? != kind {
            return Err(reader.malformed(1, expected));
        }
        if reader.byte("flags")? != NO_FLAGS {
            return Err(reader.malformed(1, "no flags"));
        }
        Ok(reader)
    }

    fn close(&self) -> Result<(), Malformed> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.malformed(0, "the end")) }
    }

    /// What was expected `back` bytes before here.
    fn malformed(&self, back: usize, expected: &'static str) -> Malformed {
        Malformed { at: self.at - back, expected }
    }

    fn take(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..length).ok_or(self.malformed(0, expected))?;
        self.at += length;
        Ok(taken)
    }

    fn byte(&mut self, expected: &'static str) -> Result<u8, Malformed> {
        Ok(self.take(1, expected)?[0])
    }

    fn float(&mut self) -> Result<f64, Malformed> {
        let bytes = self.take(8, "a factor of 8 bytes")?;
        Ok(f64::from_le_bytes(bytes.try_into().expect("8 bytes were taken")))
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte("an integer")?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.malformed(1, "an integer below 2^64"))
    }

    /// A number of things that take at least a byte each, so that a few bytes cannot ask for
    /// gigabytes.
    fn count(&mut self) -> Result<usize, Malformed> {
        let before = self.at;
        let count = self.varint()?;
        let left = self.bytes.len() - self.at;
        if count > left as u64 {
            return Err(Malformed { at: before, expected: "a count that the message can hold" });
        }
        Ok(count as usize)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let length = self.count()?;
        let bytes = self.take(length, "text")?;
        let text = std::str::from_utf8(bytes);
        Ok(text.map_err(|_| self.malformed(length, "text in UTF-8"))?.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tensor() -> impl Strategy<Value = Tensor> {
        let dtype = proptest::sample::select(DataType::ALL.to_vec());
        let op = proptest::sample::select(ReduceOp::ALL.to_vec());
        let shape = proptest::collection::vec(any::<u64>(), 0..5);
        let scales = prop_oneof![Just((1.0, 1.0)), (-1e9..1e9, -1e9..1e9)];
        ("\\PC{0,40}", dtype, op, shape, scales).prop_map(|(name, dtype, op, shape, scales)| {
            Tensor { name, dtype, op, shape, prescale: scales.0, postscale: scales.1 }
        })
    }

    proptest! {
        #[test]
        fn requests_survive_the_wire(tensors in proptest::collection::vec(tensor(), 0..20)) {
            let bytes = encode_requests(tensors.iter());
            prop_assert_eq!(Requests::decode(&bytes), Ok(Requests(tensors)));
        }

        #[test]
        fn responses_survive_the_wire(
            list in proptest::collection::vec(
                (proptest::collection::vec("\\PC{0,30}", 0..9), proptest::option::of("\\PC{1,30}")),
                0..9,
            )
        ) {
            let bytes = encode_responses(list.iter().map(|(names, error)| {
                (names.iter().map(String::as_str), error.as_deref())
            }));
            let list = list.into_iter().map(|(names, error)| NamedResponse { names, error });
            prop_assert_eq!(Responses::decode(&bytes), Ok(Responses(list.collect())));
        }

        #[test]
        fn a_cut_or_changed_message_is_an_error_or_another_message_but_no_panic(
            tensors in proptest::collection::vec(tensor(), 1..6),
            cut in any::<prop::sample::Index>(),
            flip in any::<(prop::sample::Index, u8)>(),
        ) {
            let bytes = encode_requests(tensors.iter());
            prop_assert!(Requests::decode(&bytes[..cut.index(bytes.len())]).is_err());
            let mut bytes = bytes;
            let at = flip.0.index(bytes.len());
            bytes[at] ^= flip.1;
            let _ = (Requests::decode(&bytes), Responses::decode(&bytes));
        }

        #[test]
        fn noise_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Requests::decode(&bytes), Responses::decode(&bytes));
        }
    }

    #[test]
    fn errors_say_where_and_what() {
        let bytes = encode_responses(std::iter::empty::<(std::iter::Empty<&str>, _)>());
        let error = Requests::decode(&bytes).unwrap_err().to_string();
        assert_eq!(error, "byte 1: expected a list of requests; do all ranks run the same build?");
        let error = Requests::decode(&[1, 1, 0, 200, 1]).unwrap_err();
        assert_eq!(error, Malformed { at: 3, expected: "a count that the message can hold" });
    }
}
