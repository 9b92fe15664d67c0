//! Credentials in a world: none, words that only their backend understands, or signed ones that name their person.
//! Law: whoever shows one is who it says; nobody forges. Whether a backend asks whose session it is, is the world's.
//! Next: `client.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::chance::Chance;

/// What clients show, and what their backends make of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Papers {
    pub(crate) kind: Kind,
    pub(crate) binding: Binding,
    /// Of a hundred requests, before so many a client gets itself a new credential.
    pub(crate) renewed: u64,
}

/// What a credential is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    None,
    Opaque,
    /// A JWT.
    Signed,
}

/// Whether a backend lets anybody whom it knows use any session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binding {
    Bound,
    /// Then it is the proxy that must see whose session it is, and one that was begun anew can't.
    Loose,
}

impl Papers {
    /// Those of a world with such a proxy.
    pub(crate) fn draw(chance: &mut Chance, proxy: Proxy) -> Self {
        let kind = *chance.pick(&[Kind::None, Kind::None, Kind::Opaque, Kind::Signed]);
        let binding = match proxy {
            Proxy::Lasting if chance.percent(50) => Binding::Loose,
            Proxy::Lasting | Proxy::Changing => Binding::Bound,
        };
        let renewed = match (kind, binding) {
            (Kind::None, _) | (Kind::Opaque, Binding::Loose) => 0,
            (Kind::Opaque, Binding::Bound) | (Kind::Signed, _) => {
                if chance.percent(50) {
                    chance.between(1, 30)
                } else {
                    0
                }
            }
        };
        Self {
            kind,
            binding,
            renewed,
        }
    }

    /// The setting that the proxy needs so that no stranger is answered from a log.
    pub(crate) fn setting(&self) -> Option<String> {
        match (self.kind, self.binding) {
            (Kind::Opaque, Binding::Loose) => Some("upstream.session.resume_principal=same".to_owned()),
            (Kind::None | Kind::Signed, _) | (Kind::Opaque, Binding::Bound) => None,
        }
    }

    /// The credential of this person, the nth of its own.
    pub(crate) fn of(&self, whose: &str, nth: u64) -> Option<String> {
        match self.kind {
            Kind::None => None,
            Kind::Opaque => Some(format!("Bearer {whose}/{nth}")),
            Kind::Signed => {
                let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
                let head = part(json!({"alg": "none"}));
                let body = part(json!({"iss": "world", "sub": whose, "exp": 1_900_000_000_u64, "jti": nth}));
                Some(format!("Bearer {head}.{body}.c2lnbmVk"))
            }
        }
    }

    /// Whose credential this is, if it is one.
    pub(crate) fn whose(&self, shown: Option<&str>) -> Option<String> {
        let shown = shown?.strip_prefix("Bearer ")?;
        match self.kind {
            Kind::None => None,
            Kind::Opaque => Some(shown.split_once('/')?.0.to_owned()),
            Kind::Signed => {
                let body = URL_SAFE_NO_PAD.decode(shown.split('.').nth(1)?).ok()?;
                let body: Value = serde_json::from_slice(&body).ok()?;
                Some(body["sub"].as_str()?.to_owned())
            }
        }
    }
}

/// Whether a world's proxy is one that lives as long as the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proxy {
    Lasting,
    Changing,
}
