//! A network interface whose other end is a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;

const DEVICE: &str = "/dev/net/tun";

nix::ioctl_write_ptr_bad!(set_interface, libc::TUNSETIFF, libc::ifreq);
nix::ioctl_write_int_bad!(set_offload, libc::TUNSETOFFLOAD);

/// A TAP could not be had.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The device is missing or closed to this user.
    #[error("{DEVICE} cannot be opened: {0}; it needs root, and the kernel's module tun")]
    Device(io::Error),
    /// The interface is refused.
    #[error("interface {name} cannot be created: {error}; it needs root, and a name that is free")]
    Interface {
        /// As asked for.
        name: String,
        /// What the kernel said.
        error: nix::Error,
    },
}

/// An interface that carries Ethernet frames; it is gone when this is dropped.
pub struct Tap(File);

impl Tap {
    /// Creates the interface `name` in the network namespace of this process.
    ///
    /// # Errors
    /// When the system refuses, as without the capability to administer networks.
    pub fn create(name: &str) -> Result<Tap, TapError> {
        let open =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
        let file = open.map_err(TapError::Device)?;
        let refused = |error| TapError::Interface { name: name.into(), error };
        let mut ifr_name = [0; libc::IFNAMSIZ];
        if name.len() >= ifr_name.len() {
            return Err(refused(nix::Error::ENAMETOOLONG));
        }
        for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags };
        let interface = libc::ifreq { ifr_name, ifr_ifru };
        // SAFETY: the file is open, and the kernel reads one ifreq.
        unsafe { set_interface(file.as_raw_fd(), &interface) }.map_err(refused)?;
        let offload = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        // SAFETY: the file is open, and the argument is a number.
        unsafe { set_offload(file.as_raw_fd(), offload as libc::c_int) }.map_err(refused)?;
        Ok(Tap(file))
    }

    /// Reads one frame; `WouldBlock` if there is none, another error if the interface is gone.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(frame)
    }

    /// Hands one frame to the interface.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
