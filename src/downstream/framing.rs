//! What stands around the payload of a taken-over HTTP/1 answer: its head, chunk sizes, line ends, the final chunk.
//! Law: one call of the sink is one chunk; what of a chunk was not written is remembered as numbers, never as bytes.
//! A chunk of which no byte was written does not exist: it is forgotten, so that the answer may end there instead.
//! Absent on purpose: the socket. `plan` says what to write, `wrote` is told how much was.
//! Next: `sink_http1.rs`.

use std::io::IoSlice;

use crate::pure::http1::chunk::{self, END_OF_DATA, HEAD_BYTES_MAX};
use crate::pure::log::SLICES_MAX;

/// Most parts of one write: rest of the head, chunk size, payload, line end.
pub(crate) const PARTS_MAX: usize = SLICES_MAX + 3;

/// How the client learns where the body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BodyEnd {
    /// By the final chunk (HTTP/1.1).
    Chunked,
    /// By the end of the connection (HTTP/1.0).
    Closed,
}

/// What to write.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    parts: [IoSlice<'a>; PARTS_MAX],
    len: usize,
}

impl<'a> Plan<'a> {
    /// The parts, in order; none is empty.
    pub(crate) fn parts(&self) -> &[IoSlice<'a>] {
        &self.parts[..self.len]
    }

    fn push(&mut self, part: &'a [u8]) {
        if !part.is_empty() {
            self.parts[self.len] = IoSlice::new(part);
            self.len += 1;
        }
    }
}

/// Where an answer cannot be ended: a chunk was begun whose payload is not here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InsideChunk;

/// The framing of one answer.
#[derive(Debug)]
pub(crate) struct Framing {
    head: Box<[u8]>,
    head_sent: usize,
    /// The head of a chunk, or what ends the answer; that is shorter.
    line: [u8; HEAD_BYTES_MAX],
    line_sent: u8,
    line_len: u8,
    /// Bytes of the current chunk's CRLF still to be sent.
    crlf: u8,
    body_end: BodyEnd,
    /// Payload bytes of the current chunk.
    size: usize,
    /// Those of them still to be sent.
    payload: usize,
}

impl Framing {
    /// An answer of which nothing was written.
    pub(crate) fn new(head: Box<[u8]>, body_end: BodyEnd) -> Self {
        Self {
            head,
            head_sent: 0,
            line: [0; HEAD_BYTES_MAX],
            line_sent: 0,
            line_len: 0,
            crlf: 0,
            body_end,
            size: 0,
            payload: 0,
        }
    }

    /// Begins a chunk for `bytes` of payload if none is under way.
    pub(crate) fn begin(&mut self, bytes: usize) {
        if bytes == 0 || self.payload > 0 || self.crlf > 0 {
            return;
        }
        (self.size, self.payload) = (bytes, bytes);
        match self.body_end {
            BodyEnd::Chunked => {
                self.line_len = chunk::write_head(&mut self.line, bytes) as u8;
                (self.line_sent, self.crlf) = (0, END_OF_DATA.len() as u8);
            }
            BodyEnd::Closed => {}
        }
    }

    /// What to write next of `payload`, which is what the current chunk still lacks, or a beginning of it.
    pub(crate) fn plan<'a>(&'a self, payload: &'a [IoSlice<'_>]) -> Plan<'a> {
        let mut plan = Plan {
            parts: [IoSlice::new(&[]); PARTS_MAX],
            len: 0,
        };
        plan.push(&self.head[self.head_sent..]);
        plan.push(&self.line[usize::from(self.line_sent)..usize::from(self.line_len)]);
        let mut lacking = self.payload;
        for part in payload.iter().take(SLICES_MAX) {
            let part = &part[..part.len().min(lacking)];
            plan.push(part);
            lacking -= part.len();
        }
        if lacking == 0 {
            plan.push(&END_OF_DATA[END_OF_DATA.len() - usize::from(self.crlf)..]);
        }
        plan
    }

    /// Takes note that `n` bytes of the plan for `offered` bytes of payload were written; answers how many of them
    /// were payload.
    pub(crate) fn wrote(&mut self, mut n: usize, offered: usize) -> usize {
        let head = n.min(self.head.len() - self.head_sent);
        self.head_sent += head;
        n -= head;
        if self.head_sent == self.head.len() && self.head_sent > 0 {
            // An idle stream keeps no head.
            (self.head, self.head_sent) = (Box::default(), 0);
        }
        let line = n.min(usize::from(self.line_len - self.line_sent));
        self.line_sent += line as u8;
        n -= line;
        let payload = n.min(self.payload).min(offered);
        self.payload -= payload;
        n -= payload;
        if self.payload == 0 {
            self.crlf -= n.min(usize::from(self.crlf)) as u8;
        }
        payload
    }

    /// Forgets the current chunk if no byte of it was written.
    pub(crate) fn forget_unwritten(&mut self) {
        if self.payload > 0 && self.payload == self.size && self.line_sent == 0 {
            (self.payload, self.crlf, self.line_len) = (0, 0, 0);
        }
    }

    /// Bytes that fill the current chunk up without saying anything, as far as they fit `out`: a comment and a blank
    /// line. A chunk can't be taken back once its size is written, but at an event's boundary it can end in silence.
    pub(crate) fn filler<'a>(&self, out: &'a mut [u8]) -> &'a [u8] {
        let len = self.payload.min(out.len());
        let colons = self.payload.saturating_sub(2).min(len);
        out[..colons].fill(b':');
        out[colons..len].fill(b'\n');
        &out[..len]
    }

    /// Adds the final chunk.
    ///
    /// # Errors
    /// A chunk was begun and its payload is not written: the answer can't be completed.
    pub(crate) fn finish(&mut self) -> Result<(), InsideChunk> {
        if self.payload > 0 {
            return Err(InsideChunk);
        }
        match self.body_end {
            BodyEnd::Chunked => {
                let rest = usize::from(self.crlf);
                self.line[..rest].copy_from_slice(&END_OF_DATA[END_OF_DATA.len() - rest..]);
                self.line[rest..rest + chunk::LAST.len()].copy_from_slice(chunk::LAST);
                (self.line_sent, self.line_len, self.crlf) = (0, (rest + chunk::LAST.len()) as u8, 0);
            }
            BodyEnd::Closed => {}
        }
        Ok(())
    }

    /// Whether something was begun that needs no more payload.
    pub(crate) fn has_rest(&self) -> bool {
        self.head_sent > 0 || (self.payload == 0 && self.crlf > 0)
    }

    /// Whether everything begun is written.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        self.head.is_empty() && self.line_sent == self.line_len && self.payload == 0 && self.crlf == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_that_was_begun_ends_in_a_comment() {
        for (lacking, room, expected) in [
            (0, 8, ""),
            (1, 8, "\n"),
            (2, 8, "\n\n"),
            (3, 8, ":\n\n"),
            (8, 8, "::::::\n\n"),
            (9, 8, ":::::::\n"),
            (10, 8, "::::::::"),
        ] {
            let mut framing = Framing::new(HEAD.into(), BodyEnd::Chunked);
            framing.begin(lacking);
            let mut out = vec![0; room];
            assert_eq!(framing.filler(&mut out), expected.as_bytes(), "{lacking}");
        }
    }

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

    /// Writes `chunks` (each a list of slices) with at most `grant` bytes a write, and ends.
    fn run(body_end: BodyEnd, chunks: &[&[&[u8]]], grant: usize) -> Vec<u8> {
        let mut framing = Framing::new(HEAD.into(), body_end);
        let mut out = Vec::new();
        let mut write = |framing: &mut Framing, payload: &[IoSlice<'_>]| -> usize {
            let all: Vec<u8> = framing
                .plan(payload)
                .parts()
                .iter()
                .flat_map(|part| part.to_vec())
                .collect();
            let n = all.len().min(grant);
            out.extend_from_slice(&all[..n]);
            framing.wrote(n, payload.iter().map(|part| part.len()).sum())
        };
        for chunk in chunks {
            let whole: Vec<u8> = chunk.concat();
            let mut taken = 0;
            while taken < whole.len() {
                // Offered again first, unchanged: in the same slices if nothing was taken, as one slice otherwise.
                let again = [IoSlice::new(&whole[taken..])];
                let first: Vec<IoSlice<'_>> = chunk.iter().map(|part| IoSlice::new(part)).collect();
                let offered = if taken == 0 { &first[..] } else { &again[..] };
                framing.begin(whole.len() - taken);
                taken += write(&mut framing, offered);
            }
        }
        framing.finish().unwrap();
        while !framing.is_settled() {
            write(&mut framing, &[]);
        }
        out
    }

    #[track_caller]
    fn check(body_end: BodyEnd, chunks: &[&[&[u8]]], expected: &str) {
        for grant in 1..=expected.len() {
            let out = run(body_end, chunks, grant);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{grant} bytes a write");
        }
    }

    #[test]
    fn every_partial_write_gives_the_same_bytes() {
        let head = "HTTP/1.1 200 OK\r\n\r\n";
        check(BodyEnd::Chunked, &[], &format!("{head}0\r\n\r\n"));
        check(
            BodyEnd::Chunked,
            &[&[b"id: 1\n", b"data: 0123456789\n\n"], &[b"x"]],
            &format!("{head}18\r\nid: 1\ndata: 0123456789\n\n\r\n1\r\nx\r\n0\r\n\r\n"),
        );
        check(
            BodyEnd::Closed,
            &[&[b"id: 1\n", b"\n"], &[b"x"]],
            &format!("{head}id: 1\n\nx"),
        );
    }

    #[test]
    fn sizes_are_hexadecimal() {
        for n in [1, 9, 10, 15, 16, 255, 256, 4_095, 4_096, 65_535, usize::MAX] {
            let mut framing = Framing::new(Box::default(), BodyEnd::Chunked);
            framing.begin(n);
            let plan = framing.plan(&[]);
            assert_eq!(&*plan.parts()[0], format!("{n:x}\r\n").as_bytes());
        }
    }

    #[test]
    fn a_chunk_that_was_not_begun_on_the_wire_is_forgotten() {
        for body_end in [BodyEnd::Chunked, BodyEnd::Closed] {
            let mut framing = Framing::new(HEAD.into(), body_end);
            framing.begin(5);
            framing.wrote(HEAD.len(), 5);
            framing.forget_unwritten();
            assert!(framing.is_settled(), "{body_end:?}");
            assert_eq!(framing.finish(), Ok(()));
        }
    }

    #[test]
    fn an_answer_does_not_end_inside_a_chunk() {
        for (body_end, written) in [(BodyEnd::Chunked, 1), (BodyEnd::Chunked, 4), (BodyEnd::Closed, 1)] {
            let mut framing = Framing::new(Box::default(), body_end);
            framing.begin(5);
            framing.wrote(written, 5);
            framing.forget_unwritten();
            assert_eq!(framing.finish(), Err(InsideChunk), "{body_end:?} after {written}");
        }
    }
}
