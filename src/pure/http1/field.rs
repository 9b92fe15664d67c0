//! One field of a head, as it is written in either direction.
//! Law: `name: value`, CR LF; whoever gives a name and a value has them from a reader that lets no line end through.
//! Absent on purpose: which fields are written, and in which order.
//! Next: `head.rs`.

use http::header::CONTENT_LENGTH;

/// Most digits of a length.
const LENGTH_DIGITS_MAX: usize = 20;

/// What a field has beside its name and its value, in bytes.
const FIELD_BYTES: usize = 4;

/// Appends a `content-length`.
pub fn push_length(out: &mut Vec<u8>, length: u64) {
    let mut digits = [0; LENGTH_DIGITS_MAX];
    let (mut from, mut left) = (LENGTH_DIGITS_MAX, length);
    loop {
        from -= 1;
        digits[from] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    push_field(out, CONTENT_LENGTH.as_str(), &digits[from..]);
}

/// Appends one field, as it is.
pub fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + FIELD_BYTES + value.len());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
