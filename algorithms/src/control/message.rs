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

use std::fmt;

use super::stop::Stop;
use super::tensor::{DataType, Device, Operation, ReduceOp, Tensor};
use crate::topology::Rank;

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

const SCALED: u8 = 1;
const ALL_GATHER: u8 = 2;
const GPU: u8 = 4;

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

/// Writes the body of a request.
pub(super) fn encode_request(bytes: &mut Vec<u8>, tensor: &Tensor) {
    text(bytes, &tensor.name);
    let scaled = tensor.prescale != 1.0 || tensor.postscale != 1.0;
    let bit = |condition: bool, bit: u8| if condition { bit } else { 0 };
    let bits = bit(scaled, SCALED)
        | bit(tensor.operation == Operation::AllGather, ALL_GATHER)
        | bit(tensor.device == Device::Gpu, GPU);
    bytes.extend([tensor.dtype.code(), tensor.op.code(), bits]);
    if scaled {
        bytes.extend(tensor.prescale.to_le_bytes());
        bytes.extend(tensor.postscale.to_le_bytes());
    }
    varint(bytes, tensor.shape.len() as u64);
    tensor.shape.iter().for_each(|&dim| varint(bytes, dim));
}

/// Reads the body of a request, which is all of the bytes.
///
/// # Errors
/// When the bytes are no request.
pub fn decode_request(body: &[u8]) -> Result<Tensor, Malformed> {
    let mut reader = Reader { bytes: body, at: 0 };
    let name = reader.text()?.to_string();
    let dtype = reader.byte("an element type")?;
    let dtype =
        DataType::from_code(dtype).ok_or_else(|| reader.malformed(1, "a known element type"))?;
    let op = reader.byte("a reduction")?;
    let op = ReduceOp::from_code(op).ok_or_else(|| reader.malformed(1, "a known reduction"))?;
    let bits = reader.byte("bits of a request")?;
    if bits & !(SCALED | ALL_GATHER | GPU) != 0 {
        return Err(reader.malformed(1, "known bits of a request"));
    }
    let (mut prescale, mut postscale) = (1.0, 1.0);
    if bits & SCALED != 0 {
        (prescale, postscale) = (reader.float()?, reader.float()?);
    }
    let dims = reader.count()?;
    let shape = (0..dims).map(|_| reader.varint()).collect::<Result<Vec<_>, _>>()?;
    let elements = shape.iter().try_fold(8_u64, |bytes, &dim| bytes.checked_mul(dim));
    if elements.is_none_or(|bytes| bytes > i64::MAX as u64) {
        return Err(reader.malformed(0, "a shape that fits into memory"));
    }
    reader.close()?;
    Ok(Tensor {
        name,
        operation: if bits & ALL_GATHER != 0 { Operation::AllGather } else { Operation::AllReduce },
        dtype,
        op,
        shape,
        prescale,
        postscale,
        device: if bits & GPU != 0 { Device::Gpu } else { Device::Cpu },
    })
}

/// The name in the body of a request.
pub(super) fn request_name(body: &[u8]) -> Result<&str, Malformed> {
    Reader { bytes: body, at: 0 }.text()
}

/// Bytes that Horovod would send for these requests (FlatBuffers, and the byte that ends an MPI
/// message); fields are names' lengths and numbers of dimensions. Measured with Horovod's serialiser:
/// exact but for small differences at one request.
pub fn requests_horovod(requests: impl Iterator<Item = (usize, usize)>) -> usize {
    let each = requests.map(|(name, dims)| 60 + 8 * dims + 8 * ((name + 4) / 8));
    match each.sum() {
        0 => 24 + 1,
        sum => 48 + sum + 1,
    }
}

/// Bytes that Horovod would send to each rank for responses, given as lengths of the names in each.
/// About right: the constant varies by a few bytes.
pub fn responses_horovod(ranks: usize, responses: impl Iterator<Item = usize>) -> usize {
    24 + 1 + responses.map(|names| 124 + 4 * ranks + names).sum::<usize>()
}

/// Part of [`responses_horovod`] for one tensor in a response.
pub fn name_horovod(length: usize) -> usize {
    12 + 4 * (length + 5).div_ceil(4)
}

/// A list of items that is being written.
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn new(kind: Kind, shut_down: bool, count: usize) -> Writer {
        let mut bytes = vec![VERSION, kind as u8, if shut_down { SHUT_DOWN } else { 0 }];
        varint(&mut bytes, count as u64);
        Writer { bytes }
    }

    /// A list of so many requests.
    pub fn requests(shut_down: bool, count: usize) -> Writer {
        Writer::new(Kind::Requests, shut_down, count)
    }

    /// A list of so many tensors that are ready in a subtree.
    pub fn ready(shut_down: bool, count: usize) -> Writer {
        Writer::new(Kind::Ready, shut_down, count)
    }

    /// A list of so many responses.
    pub fn responses(shut_down: bool, count: usize) -> Writer {
        Writer::new(Kind::Responses, shut_down, count)
    }

    /// An order of so many tensors.
    pub fn order(count: usize) -> Writer {
        Writer::new(Kind::Order, false, count)
    }

    /// Adds a request, given as its body.
    pub fn request(&mut self, body: &[u8]) {
        varint(&mut self.bytes, body.len() as u64);
        self.bytes.extend(body);
    }

    /// Adds what is ready in a subtree: a rank's request, and what is wrong with another's.
    pub fn subtree(&mut self, rank: Rank, error: Option<&str>, body: &[u8]) {
        varint(&mut self.bytes, rank as u64);
        text(&mut self.bytes, error.unwrap_or(""));
        self.request(body);
    }

    /// Adds a response.
    pub fn response<'a>(
        &mut self,
        names: impl ExactSizeIterator<Item = &'a str>,
        error: Option<&str>,
        stop: Stop,
    ) {
        self.bytes.push(stop as u8);
        varint(&mut self.bytes, names.len() as u64);
        names.for_each(|name| text(&mut self.bytes, name));
        text(&mut self.bytes, error.unwrap_or(""));
    }

    /// Adds a tensor to an order.
    pub fn name(&mut self, name: &str) {
        text(&mut self.bytes, name);
    }

    /// The message.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// A message that is being read, item by item.
pub struct Items<'a> {
    reader: Reader<'a>,
    left: usize,
    /// The sender wants all to shut down.
    pub shut_down: bool,
}

/// One response, with names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedResponse<'a> {
    /// The tensors, as one message.
    pub names: Vec<&'a str>,
    /// Why they cannot be reduced.
    pub error: Option<&'a str>,
    /// Why no more were fused.
    pub stop: Stop,
}

/// What is ready in a subtree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subtree<'a> {
    /// Whose request it is.
    pub rank: Rank,
    /// In what another rank of the subtree differs.
    pub error: Option<&'a str>,
    /// The request.
    pub body: &'a [u8],
}

impl<'a> Items<'a> {
    fn open(bytes: &'a [u8], kind: Kind) -> Result<Items<'a>, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.byte("format version 2")? != VERSION {
            return Err(reader.malformed(1, "format version 2"));
        }
        if reader.byte(kind.name())? != kind as u8 {
            return Err(reader.malformed(1, kind.name()));
        }
        let flags = reader.byte("flags")?;
        if flags & !SHUT_DOWN != 0 {
            return Err(reader.malformed(1, "known flags"));
        }
        let left = reader.count()?;
        Ok(Items { reader, left, shut_down: flags & SHUT_DOWN != 0 })
    }

    /// Reads a list of requests.
    ///
    /// # Errors
    /// When the bytes do not begin with the header of such a message.
    pub fn requests(bytes: &'a [u8]) -> Result<Items<'a>, Malformed> {
        Items::open(bytes, Kind::Requests)
    }

    /// Reads a list of what is ready in a subtree.
    ///
    /// # Errors
    /// When the bytes do not begin with the header of such a message.
    pub fn ready(bytes: &'a [u8]) -> Result<Items<'a>, Malformed> {
        Items::open(bytes, Kind::Ready)
    }

    /// Reads a list of responses.
    ///
    /// # Errors
    /// When the bytes do not begin with the header of such a message.
    pub fn responses(bytes: &'a [u8]) -> Result<Items<'a>, Malformed> {
        Items::open(bytes, Kind::Responses)
    }

    /// Reads an order of tensors.
    ///
    /// # Errors
    /// When the bytes do not begin with the header of such a message.
    pub fn order(bytes: &'a [u8]) -> Result<Items<'a>, Malformed> {
        Items::open(bytes, Kind::Order)
    }

    /// Reads the next item; none at the end of the list, which is the end of the message.
    fn next<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        match self.left.checked_sub(1) {
            None => self.reader.close().map(|()| None),
            Some(left) => {
                self.left = left;
                read(&mut self.reader).map(Some)
            }
        }
    }

    /// The next request: the position of its body, and the body, not decoded. `None` at the end.
    ///
    /// # Errors
    /// When the bytes are no request, or when more follow after the last one.
    pub fn next_request(&mut self) -> Result<Option<(usize, &'a [u8])>, Malformed> {
        self.next(|reader| {
            let body = reader.block("a request")?;
            Ok((reader.at - body.len(), body))
        })
    }

    /// The next tensor that is ready in a subtree. `None` at the end.
    ///
    /// # Errors
    /// When the bytes are no such item, or when more follow after the last one.
    pub fn next_subtree(&mut self) -> Result<Option<Subtree<'a>>, Malformed> {
        self.next(|reader| {
            let rank = reader.varint()? as Rank;
            let error = Some(reader.text()?).filter(|error| !error.is_empty());
            Ok(Subtree { rank, error, body: reader.block("a request")? })
        })
    }

    /// The next response. `None` at the end.
    ///
    /// # Errors
    /// When the bytes are no response, or when more follow after the last one.
    pub fn next_response(&mut self) -> Result<Option<NamedResponse<'a>>, Malformed> {
        self.next(|reader| {
            let stop = reader.byte("why fusion stopped")?;
            let stop = Stop::from_code(stop)
                .ok_or_else(|| reader.malformed(1, "a known reason why fusion stopped"))?;
            let names = reader.count()?;
            let names = (0..names).map(|_| reader.text()).collect::<Result<Vec<_>, _>>()?;
            let error = Some(reader.text()?).filter(|error| !error.is_empty());
            Ok(NamedResponse { names, error, stop })
        })
    }

    /// The next name of an order. `None` at the end.
    ///
    /// # Errors
    /// When the bytes are no name, or when more follow after the last one.
    pub fn next_name(&mut self) -> Result<Option<&'a str>, Malformed> {
        self.next(Reader::text)
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
    fn close(&self) -> Result<(), Malformed> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.malformed(0, "the end")) }
    }

    /// What was expected `back` bytes before here.
    #[cold]
    fn malformed(&self, back: usize, expected: &'static str) -> Malformed {
        Malformed { at: self.at - back, expected }
    }

    fn take(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..length).ok_or_else(|| self.malformed(0, expected))?;
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

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let first = self.byte("an integer")?;
        if first < 0x80 {
            return Ok(first.into());
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
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

    /// A length, and so many bytes.
    fn block(&mut self, expected: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.count()?;
        self.take(length, expected)
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.block("text")?;
        std::str::from_utf8(bytes).map_err(|_| self.malformed(bytes.len(), "text in UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
