//! The body of a request: one tensor.

use super::Malformed;
use super::reader::Reader;
use super::writer::{text, varint};
use crate::control::tensor::{DataType, Device, Operation, ReduceOp, Tensor};

const SCALED: u8 = 1;
const ALL_GATHER: u8 = 2;
const GPU: u8 = 4;

/// Writes the body of a request.
pub fn encode_request(bytes: &mut Vec<u8>, tensor: &Tensor) {
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
    let mut reader = Reader::new(body);
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
pub fn request_name(body: &[u8]) -> Result<&str, Malformed> {
    Reader::new(body).text()
}
