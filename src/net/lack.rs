//! What this machine may lack when a connection is to be opened: nothing that the other side did or could mend.
//! Law: told by the system's error number only. An error that has lost its number says nothing of us.
//! Why `EADDRNOTAVAIL` is judged where the address is known (`tcp.rs`): it also means that no way leads there.
//! Next: `tcp.rs`.

use std::fmt;
use std::io;

/// What this machine lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// This process may have no more files and sockets open.
    Descriptors,
    /// The whole machine may have no more files and sockets open.
    Files,
    /// No local port is free for a connection to that address.
    Ports,
    /// The kernel has no memory for a connection.
    Memory,
}

impl Lack {
    /// What an error says that this machine lacks; `None`: it speaks of something else.
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.raw_os_error()? {
            libc::EMFILE => Some(Self::Descriptors),
            libc::ENFILE => Some(Self::Files),
            libc::EADDRNOTAVAIL => Some(Self::Ports),
            libc::ENOBUFS | libc::ENOMEM => Some(Self::Memory),
            _ => None,
        }
    }

    /// The word for it in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Files => "files",
            Self::Ports => "ports",
            Self::Memory => "memory",
        }
    }

    /// What the operator can do.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Descriptors => "raise the limit on open files of this process (ulimit -n, LimitNOFILE)",
            Self::Files => "raise the machine's limit on open files (fs.file-max)",
            Self::Ports => {
                "widen net.ipv4.ip_local_port_range, or give the replica another address beside this one"
            }
            Self::Memory => "free memory of the kernel's, or raise net.ipv4.tcp_mem",
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Descriptors => "this process has no file descriptor left",
            Self::Files => "this machine has no file descriptor left",
            Self::Ports => "this machine has no local port left",
            Self::Memory => "this machine's kernel has no memory left",
        })
    }
}

#[cfg(test)]
impl Lack {
    /// An error of the system's that says so.
    pub(crate) fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::Descriptors => libc::EMFILE,
            Self::Files => libc::ENFILE,
            Self::Ports => libc::EADDRNOTAVAIL,
            Self::Memory => libc::ENOBUFS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_speak_of_this_machine() {
        #[track_caller]
        fn check(number: i32, expected: Option<Lack>) {
            assert_eq!(Lack::of(&io::Error::from_raw_os_error(number)), expected);
        }
        check(libc::EMFILE, Some(Lack::Descriptors));
        check(libc::ENFILE, Some(Lack::Files));
        check(libc::EADDRNOTAVAIL, Some(Lack::Ports));
        check(libc::ENOBUFS, Some(Lack::Memory));
        check(libc::ENOMEM, Some(Lack::Memory));
        check(libc::ECONNREFUSED, None);
        check(libc::EHOSTUNREACH, None);
        check(libc::ENETUNREACH, None);
        check(libc::ETIMEDOUT, None);
        // Without its number it is somebody's word only.
        assert_eq!(Lack::of(&io::ErrorKind::AddrNotAvailable.into()), None);
    }
}
