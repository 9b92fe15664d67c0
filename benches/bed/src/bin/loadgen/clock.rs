//! One timer of the kernel's high-resolution clock.
//! Why not tokio's: its wheel rounds to a millisecond, which an open loop at 2,000/s would feel.
//! Next: `json.rs`.

use bed::now_ns;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use tokio::io::unix::AsyncFd;

pub(crate) struct Timer(AsyncFd<OwnedFd>);
impl Timer {
    #[allow(deprecated)]
    pub(crate) fn new() -> Timer {
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        assert!(fd >= 0);
        Timer(AsyncFd::new(unsafe { OwnedFd::from_raw_fd(fd) }).unwrap())
    }
    pub(crate) async fn until(&self, ns: u64) {
        if now_ns() >= ns {
            return;
        }
        let it = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 },
        };
        unsafe { libc::timerfd_settime(self.0.get_ref().as_raw_fd(), libc::TFD_TIMER_ABSTIME, &it, std::ptr::null_mut()) };
        loop {
            let mut g = self.0.readable().await.unwrap();
            let mut b = [0u8; 8];
            let n = unsafe { libc::read(self.0.get_ref().as_raw_fd(), b.as_mut_ptr() as *mut _, 8) };
            g.clear_ready();
            if n == 8 || now_ns() >= ns {
                return;
            }
        }
    }
}
