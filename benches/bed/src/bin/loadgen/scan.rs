//! Lines of an SSE body: counts events, and says which were missing, repeated, or answered by an error.
//! Law: a stream may start over only after a reset was told on it; anything else that is out of order is a fault.
//! Next: `cost.rs`.

use bed::{MARK, get_digits};
/// Line scanner over an SSE body.
#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) carry: Vec<u8>,
    pub(crate) last_id: String,
    pub(crate) last_seq: u64,
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) gaps: u64,
    pub(crate) dups: u64,
    pub(crate) comments: u64,
    pub(crate) finals: u64,
    /// JSON-RPC errors: a request's outcome, told aloud
    pub(crate) told: u64,
    /// resets told on the stream: it starts over
    pub(crate) resets: u64,
}
impl Scan {
    pub(crate) fn feed(&mut self, mut d: &[u8], mut on: impl FnMut(u64)) {
        self.bytes += d.len() as u64;
        if !self.carry.is_empty() {
            match memchr::memchr(b'\n', d) {
                None => {
                    self.carry.extend_from_slice(d);
                    return;
                }
                Some(p) => {
                    let mut c = std::mem::take(&mut self.carry);
                    c.extend_from_slice(&d[..p]);
                    self.line(&c, &mut on);
                    c.clear();
                    self.carry = c;
                    d = &d[p + 1..];
                }
            }
        }
        while let Some(p) = memchr::memchr(b'\n', d) {
            self.line(&d[..p], &mut on);
            d = &d[p + 1..];
        }
        self.carry.extend_from_slice(d);
    }
    pub(crate) fn line(&mut self, l: &[u8], on: &mut impl FnMut(u64)) {
        if l.starts_with(b"data:") {
            match memchr::memmem::find(l, MARK) {
                Some(p) if l.len() >= p + 2 + 31 => {
                    let ts = get_digits(&l[p + 2..p + 22]).unwrap_or(0);
                    let seq = get_digits(&l[p + 23..p + 33]).unwrap_or(0);
                    self.events += 1;
                    if seq > self.last_seq + 1 {
                        self.gaps += 1;
                    } else if seq <= self.last_seq {
                        self.dups += 1;
                    }
                    self.last_seq = seq;
                    on(ts);
                }
                _ => {
                    if memchr::memmem::find(l, b"notifications/throughline/reset").is_some() {
                        self.resets += 1;
                        self.last_seq = 0;
                    } else if memchr::memmem::find(l, b"\"result\"").is_some() {
                        self.finals += 1;
                    } else if memchr::memmem::find(l, b"\"error\"").is_some() {
                        self.told += 1;
                    }
                }
            }
        } else if l.starts_with(b"id:") {
            self.last_id.clear();
            self.last_id.push_str(std::str::from_utf8(&l[3..]).unwrap_or("").trim());
        } else if l.starts_with(b":") {
            self.comments += 1;
        }
    }
}
