//! A message that is being read.

use super::reader::Reader;
use super::{Kind, Malformed, SHUT_DOWN, VERSION};
use crate::control::stop::Stop;
use crate::topology::Rank;

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
        let mut reader = Reader::new(bytes);
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
