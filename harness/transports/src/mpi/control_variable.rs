//! Settings of the MPI library, which MPI's tool interface tells.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use mpi::ffi;

/// The value of an integer or a switch of the library; none if it has no such setting.
pub fn control_variable(name: &CStr) -> Option<c_int> {
    let (mut provided, mut index, mut count) = (0, 0, 0);
    // Room for more values than a switch has.
    let mut values = [0; 16];
    let mut handle: ffi::MPI_T_cvar_handle = null_mut();
    let done = |code: c_int| (code == 0).then_some(());
    // SAFETY: plain out parameters; the handle belongs to no object, and is freed. The interface counts how often it is
    // initialized.
    unsafe {
        done(ffi::MPI_T_init_thread(ffi::RSMPI_THREAD_SINGLE, &raw mut provided))?;
        let value = (|| {
            done(ffi::MPI_T_cvar_get_index(name.as_ptr(), &raw mut index))?;
            let object = null_mut::<c_void>();
            let code = ffi::MPI_T_cvar_handle_alloc(index, object, &raw mut handle, &raw mut count);
            done(code)?;
            let fits = (1..=values.len()).contains(&(count as usize));
            let code = fits.then(|| ffi::MPI_T_cvar_read(handle, values.as_mut_ptr().cast()));
            ffi::MPI_T_cvar_handle_free(&raw mut handle);
            done(code?)?;
            Some(values[0])
        })();
        ffi::MPI_T_finalize();
        value
    }
}
