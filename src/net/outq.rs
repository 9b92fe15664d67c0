//! How many bytes of a socket the peer has not acknowledged: `SIOCOUTQ`.
//! Law: asked once when a connection ends, never per event; an answer that can't be had is `Unknown`, never a guess.
//! Why unsafe: neither the standard library nor socket2, rustix or nix offers this request behind a safe function.
//! Absent on purpose: any other `ioctl`.
//! Next: `net/tls.rs`.

use std::os::fd::BorrowedFd;

use crate::net::Unacked;

/// Bytes written to this TCP socket that the peer did not acknowledge yet.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) fn unacked(socket: BorrowedFd<'_>) -> Unacked {
    use std::os::fd::AsRawFd;

    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed, so it is open for the whole call; SIOCOUTQ (the same number as TIOCOUTQ)
    // writes exactly one C int through its argument, which is a live, aligned, exclusive one.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match (outcome, u32::try_from(bytes)) {
        (0, Ok(bytes)) => Unacked::Bytes(bytes),
        _ => Unacked::Unknown,
    }
}

/// Bytes written to this TCP socket that the peer did not acknowledge yet: not to be had on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn unacked(_socket: BorrowedFd<'_>) -> Unacked {
    Unacked::Unknown
}
