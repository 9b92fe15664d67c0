//! The spans of a body put together.
//! Law: a single span of what came with the head stays where it is; only the second one copies.
//! Absent on purpose: sockets and framing.
//! Next: `upstream/event_body.rs`.

use bytes::Bytes;

/// Spans put together: a single span of what came with the head stays where it is.
pub(super) struct Gathered {
    max: usize,
    expected: usize,
    held: Spans,
    fits: Fits,
}

enum Spans {
    None,
    One(Bytes),
    Copied(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fits {
    Yes,
    No,
}

impl Gathered {
    pub(super) const fn new(max: usize, expected: usize) -> Self {
        Self {
            max,
            expected,
            held: Spans::None,
            fits: Fits::Yes,
        }
    }

    pub(super) const fn fits(&self) -> Fits {
        self.fits
    }

    fn len(&self) -> usize {
        match &self.held {
            Spans::None => 0,
            Spans::One(span) => span.len(),
            Spans::Copied(copied) => copied.len(),
        }
    }

    /// Takes one span; `ahead`, unless it is empty, is what the span lies in.
    pub(super) fn take(&mut self, span: &[u8], ahead: &Bytes) {
        if span.is_empty() {
            return;
        }
        if self.fits == Fits::No || span.len() > self.max - self.len() {
            self.fits = Fits::No;
            return;
        }
        let first = match std::mem::replace(&mut self.held, Spans::None) {
            Spans::None if !ahead.is_empty() => {
                self.held = Spans::One(ahead.slice_ref(span));
                return;
            }
            Spans::None => Bytes::new(),
            Spans::One(first) => first,
            Spans::Copied(mut copied) => {
                copied.extend_from_slice(span);
                self.held = Spans::Copied(copied);
                return;
            }
        };
        let mut copied = Vec::with_capacity(self.expected.max(first.len() + span.len()));
        copied.extend_from_slice(&first);
        copied.extend_from_slice(span);
        self.held = Spans::Copied(copied);
    }

    pub(super) fn finish(self) -> Bytes {
        match self.held {
            Spans::None => Bytes::new(),
            Spans::One(span) => span,
            Spans::Copied(copied) => copied.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_span_is_kept_in_place_and_several_are_copied() {
        let ahead = Bytes::from_static(b"3\r\nabc\r\n2\r\nde\r\n");
        let check = |spans: &[&[u8]], within: &Bytes, expected: &[u8], in_place: InPlace| {
            let mut gathered = Gathered::new(100, 0);
            for span in spans {
                gathered.take(span, within);
            }
            assert!(gathered.fits() == Fits::Yes);
            let whole = gathered.finish();
            assert_eq!(whole, expected);
            let lies_within = within.as_ptr_range().contains(&whole.as_ptr());
            assert_eq!(lies_within, in_place == InPlace::Yes);
        };
        check(&[&ahead[3..6]], &ahead, b"abc", InPlace::Yes);
        check(&[&ahead[3..6], b""], &ahead, b"abc", InPlace::Yes);
        check(&[&ahead[3..6], &ahead[11..13]], &ahead, b"abcde", InPlace::No);
        check(&[b"abc", b"de", b"f"], &Bytes::new(), b"abcdef", InPlace::No);
        check(&[], &Bytes::new(), b"", InPlace::No);
    }

    #[derive(PartialEq)]
    enum InPlace {
        Yes,
        No,
    }

    #[test]
    fn what_is_too_much_is_not_kept() {
        let mut gathered = Gathered::new(4, 0);
        gathered.take(b"abcd", &Bytes::new());
        assert!(gathered.fits() == Fits::Yes);
        gathered.take(b"e", &Bytes::new());
        assert!(gathered.fits() == Fits::No);
        assert_eq!(gathered.finish(), "abcd");
    }
}
