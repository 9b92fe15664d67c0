//! What a JWT says of itself: whose it is, and when it ends (wire contract, section 9).
//! Law: it is read and never trusted: what it says may narrow whom the backend's word reaches, not widen it.
//! Absent on purpose: signatures, which are the backend's to check.
//! Next: `ledger.rs`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::pure::limits::JWT_BYTES_MAX;
use crate::pure::rpc;

/// When a credential says that it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expires {
    /// It does not say.
    Unsaid,
    /// At this second since 1970.
    At(u64),
}

/// What a JWT says of itself. Nobody vouches for it here.
pub(super) struct Claims {
    pub(super) issuer: Option<String>,
    pub(super) subject: String,
    pub(super) expires: Expires,
}

impl Claims {
    /// Reads an `Authorization` of one scheme and one JWT. `None` is anything else, a JWT without a subject too.
    pub(super) fn of(authorization: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(authorization).ok()?;
        let (_scheme, token) = text.trim().split_once(' ')?;
        let mut parts = token.trim().split('.');
        let (Some(_), Some(payload), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        if payload.len() > JWT_BYTES_MAX {
            return None;
        }
        let payload = Zeroizing::new(URL_SAFE_NO_PAD.decode(payload).ok()?);
        let member = |name: &str| rpc::lookup(&payload, &[name]);
        let words = |name: &str| member(name).and_then(rpc::text).map(std::borrow::Cow::into_owned);
        let expires = match member("exp") {
            None => Expires::Unsaid,
            Some(raw) => Expires::At(seconds(raw)),
        };
        Some(Self {
            issuer: words("iss"),
            subject: words("sub")?,
            expires,
        })
    }
}

/// A NumericDate, rounded down. What is none has passed: such a token is accepted for one request at a time.
fn seconds(raw: &[u8]) -> u64 {
    let number = std::str::from_utf8(raw)
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    // The cast saturates: negative and unordered numbers are 0.
    number.map_or(0, |number| number as u64)
}
