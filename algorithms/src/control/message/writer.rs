//! A message that is being written.

use super::{Kind, SHUT_DOWN, VERSION};
use crate::control::stop::Stop;
use crate::topology::Rank;

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

/// Appends an integer.
pub fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a length and text.
pub fn text(bytes: &mut Vec<u8>, text: &str) {
    varint(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}
