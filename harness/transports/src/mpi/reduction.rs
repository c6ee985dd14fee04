//! MPI's names for the types and reductions of this project. The library calls this project's kernels for 16-bit
//! floats, which MPI does not have, and for unsigned bytes, which some versions compare as signed ones: MPICH 4.0.2
//! (its issue 6083) and Open MPI 4.1.2 to 4.1.4 (its issues 10525 and 10648).

use std::ffi::{c_int, c_void};

use algorithms::control::DataType;
use mpi::ffi;

use crate::kernel::{ElementOp, kernel};

/// Types for which the library calls this project's kernels.
const TYPES: [DataType; 3] = [DataType::F16, DataType::BF16, DataType::U8];
const COMBINES: [ElementOp; 4] =
    [ElementOp::Sum, ElementOp::Min, ElementOp::Max, ElementOp::Product];

/// Reductions of these types, created once.
pub struct Reductions([[ffi::MPI_Op; COMBINES.len()]; TYPES.len()]);

impl Reductions {
    /// Registers them with the library.
    ///
    /// # Errors
    /// The library's code.
    pub fn new() -> Result<Reductions, c_int> {
        let create = |functions: [ffi::MPI_User_function; COMBINES.len()]| {
            let mut ops = [null(); COMBINES.len()];
            for (op, function) in ops.iter_mut().zip(functions) {
                // SAFETY: MPI is initialized, and the function meets MPI's requirements.
                let code = unsafe { ffi::MPI_Op_create(function, 1, op) };
                if code != 0 {
                    return Err(code);
                }
            }
            Ok(ops)
        };
        Ok(Reductions([
            create([
                Some(call::<0, 0>),
                Some(call::<0, 1>),
                Some(call::<0, 2>),
                Some(call::<0, 3>),
            ])?,
            create([
                Some(call::<1, 0>),
                Some(call::<1, 1>),
                Some(call::<1, 2>),
                Some(call::<1, 3>),
            ])?,
            create([
                Some(call::<2, 0>),
                Some(call::<2, 1>),
                Some(call::<2, 2>),
                Some(call::<2, 3>),
            ])?,
        ]))
    }

    /// The reduction of a type.
    pub fn op(&self, dtype: DataType, combine: ElementOp) -> ffi::MPI_Op {
        let row = TYPES.iter().position(|own| *own == dtype);
        let column = COMBINES.iter().position(|own| *own == combine);
        if let (Some(row), Some(column)) = (row, column) {
            return self.0[row][column];
        }
        // SAFETY: constants of the library.
        unsafe {
            match combine {
                ElementOp::Sum => ffi::RSMPI_SUM,
                ElementOp::Min => ffi::RSMPI_MIN,
                ElementOp::Max => ffi::RSMPI_MAX,
                ElementOp::Product => ffi::RSMPI_PROD,
                ElementOp::And => ffi::RSMPI_BAND,
                ElementOp::Or => ffi::RSMPI_BOR,
            }
        }
    }
}

fn null() -> ffi::MPI_Op {
    // SAFETY: `MPI_Op` is a number or a pointer; zero is valid until it is written.
    unsafe { std::mem::zeroed() }
}

/// The library's type of that size; a numeric type, where the library itself reduces.
pub fn datatype(dtype: DataType) -> ffi::MPI_Datatype {
    // SAFETY: constants of the library.
    unsafe {
        match dtype {
            DataType::F16 | DataType::BF16 => ffi::RSMPI_UINT16_T,
            DataType::F32 => ffi::RSMPI_FLOAT,
            DataType::F64 => ffi::RSMPI_DOUBLE,
            DataType::U8 => ffi::RSMPI_UINT8_T,
            DataType::I32 => ffi::RSMPI_INT32_T,
            DataType::I64 => ffi::RSMPI_INT64_T,
        }
    }
}

/// Combines `*count` elements into those at `into`.
unsafe extern "C" fn call<const TYPE: usize, const COMBINE: usize>(
    from: *mut c_void,
    into: *mut c_void,
    count: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: that many elements of the type for which the reduction is used; they do not overlap.
    unsafe {
        let combine = kernel(TYPES[TYPE], COMBINES[COMBINE]);
        combine(into.cast(), &[from.cast_const().cast()], *count as usize);
    }
}
