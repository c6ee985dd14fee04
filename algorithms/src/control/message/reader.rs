//! Integers, factors and text from the bytes of a message.

use super::Malformed;

/// Bytes that are being read from the front.
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// The position of the next byte.
    pub at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub fn close(&self) -> Result<(), Malformed> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.malformed(0, "the end")) }
    }

    /// What was expected `back` bytes before here.
    #[cold]
    pub fn malformed(&self, back: usize, expected: &'static str) -> Malformed {
        Malformed { at: self.at - back, expected }
    }

    pub fn take(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8], Malformed> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..length).ok_or_else(|| self.malformed(0, expected))?;
        self.at += length;
        Ok(taken)
    }

    pub fn byte(&mut self, expected: &'static str) -> Result<u8, Malformed> {
        Ok(self.take(1, expected)?[0])
    }

    pub fn float(&mut self) -> Result<f64, Malformed> {
        let bytes = self.take(8, "a factor of 8 bytes")?;
        Ok(f64::from_le_bytes(bytes.try_into().expect("8 bytes were taken")))
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
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
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let before = self.at;
        let count = self.varint()?;
        let left = self.bytes.len() - self.at;
        if count > left as u64 {
            return Err(Malformed { at: before, expected: "a count that the message can hold" });
        }
        Ok(count as usize)
    }

    /// A length, and so many bytes.
    pub fn block(&mut self, expected: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.count()?;
        self.take(length, expected)
    }

    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.block("text")?;
        std::str::from_utf8(bytes).map_err(|_| self.malformed(bytes.len(), "text in UTF-8"))
    }
}
