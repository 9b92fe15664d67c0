//! The key ring: secrets from the environment or from files, never from the configuration itself.
//! Law: no secret, and no line that may hold one, is ever printed.
//! Absent on purpose: making keys of them (`pure/keys.rs`), and the random key where there is none (`app.rs`).
//! Next: `server.rs`.

use zeroize::Zeroizing;

use super::bounds::{SECRET_BYTES_MAX, SECRETS_MAX};
use super::fields::Fields;
use super::files::{self, Around};
use super::raw::Raw;
use super::report::Origin;
use super::resolved::Secret;
use crate::pure::limits::SECRET_BYTES_MIN;

/// The variable that is looked at where nothing else is said.
pub(super) const VARIABLE: &str = "THROUGHLINE_SECRET";

/// The kid where nothing else is said.
const KID_DEFAULT: u8 = b'a';

const NEVER_HERE: &str = "name an environment variable (env = \"THROUGHLINE_SECRET\") or a file (file = \"/run/secrets/throughline\")";

/// Where a key's bytes come from.
enum From<'t> {
    Nowhere,
    Variable(&'t str, Origin),
    File(&'t str, Origin),
}

/// What a key is for.
#[derive(Clone, Copy)]
enum Role {
    /// New tokens are made with it.
    InUse,
    /// Tokens made with it earlier are still opened.
    Older,
}

/// Reads the `secret` table: the key in use first, then the older ones. Empty = a random key for this process.
pub(super) fn read(root: &mut Fields<'_, '_>, around: &Around<'_>) -> Vec<Secret> {
    let node = root.raw("secret");
    if let Some(node) = node.filter(|node| !matches!(node.value, Raw::Table(_))) {
        root.problem(
            &node.at.hidden(),
            "secret",
            "a secret never stands in the configuration",
            NEVER_HERE,
        );
        return Vec::new();
    }
    root.inner("secret", |fields| {
        let newest = one(fields, around, Role::InUse);
        let older = fields.each("older", |fields| {
            let key = one(fields, around, Role::Older);
            refuse_literals(fields);
            key
        });
        refuse_literals(fields);
        if newest.is_none() && !older.is_empty() {
            let at = fields.at("older");
            fields.problem(
                &at,
                "older",
                "there are older keys but none in use",
                "say env or file in [secret]",
            );
        }
        let keys: Vec<(Secret, Origin)> = newest.into_iter().chain(older.into_iter().flatten()).collect();
        ring(fields, keys)
    })
}

/// Refuses two keys of one name, and too many.
fn ring(fields: &mut Fields<'_, '_>, keys: Vec<(Secret, Origin)>) -> Vec<Secret> {
    let mut secrets: Vec<Secret> = Vec::with_capacity(keys.len());
    for (secret, at) in keys {
        if secrets.iter().any(|earlier| earlier.kid == secret.kid) {
            let what = format!("two keys have the kid `{}`", secret.kid as char);
            fields.problem(&at, "kid", what, "give each key its own letter or digit");
        } else if secrets.iter().any(|earlier| earlier.bytes == secret.bytes) {
            fields.problem(
                &at,
                "",
                "two keys have the same secret",
                "leave out the older one, or make a new secret",
            );
        }
        secrets.push(secret);
    }
    if secrets.len() > SECRETS_MAX {
        let at = fields.at("older");
        fields.problem(
            &at,
            "older",
            format!("more than {SECRETS_MAX} keys"),
            "drop those whose tokens have expired",
        );
    }
    secrets
}

/// What is not a key of this table may be a secret that somebody wrote down.
fn refuse_literals(fields: &mut Fields<'_, '_>) {
    for entry in fields.rest() {
        fields.problem(
            &entry.key_at.hidden(),
            &entry.key,
            "unknown key; and a secret never stands in the configuration",
            NEVER_HERE,
        );
    }
}

/// Reads one key; the place is where its bytes were named.
fn one(fields: &mut Fields<'_, '_>, around: &Around<'_>, role: Role) -> Option<(Secret, Origin)> {
    let kid = read_kid(fields, role);
    let (bytes, at) = match (source(fields), role) {
        (From::Variable(name, at), _) => (variable(fields, around, name, &at)?, at),
        (From::File(name, at), _) => (file(fields, around, name, &at)?, at),
        (From::Nowhere, Role::InUse) => {
            let value = Zeroizing::new(around.variable(VARIABLE)?.into_encoded_bytes());
            (trimmed(&value), Origin::Flag(VARIABLE.into()))
        }
        (From::Nowhere, Role::Older) => {
            let at = fields.at("");
            fields.problem(&at, "", "an older key needs its secret", NEVER_HERE);
            return None;
        }
    };
    let length = bytes.len();
    let secret = Secret { kid: kid?, bytes };
    if length < SECRET_BYTES_MIN {
        let what = format!("the secret has {length} bytes, and {SECRET_BYTES_MIN} are the least");
        fields.problem(&at, "", what, "make one with: openssl rand -base64 32");
        return None;
    }
    Some((secret, at))
}

fn read_kid(fields: &mut Fields<'_, '_>, role: Role) -> Option<u8> {
    let said = fields.raw("kid").is_some();
    let at = fields.at("kid");
    match (fields.text("kid").map(str::as_bytes), role) {
        (Some([kid]), _) if kid.is_ascii_alphanumeric() => Some(*kid),
        (Some(_), _) => {
            fields.problem(
                &at,
                "kid",
                "is no kid",
                "write one letter or digit, e.g. kid = \"a\"",
            );
            None
        }
        (None, Role::InUse) => Some(KID_DEFAULT),
        (None, Role::Older) => {
            if !said {
                fields.problem(
                    &at,
                    "kid",
                    "an older key needs its kid",
                    "write the kid that it was used with",
                );
            }
            None
        }
    }
}

fn source<'t>(fields: &mut Fields<'t, '_>) -> From<'t> {
    let env = fields.text("env");
    let file = fields.text("file");
    match (env, file) {
        (Some(_), Some(name)) => {
            let at = fields.at("env");
            fields.problem(&at, "env", "env and file are both said", "say one of them");
            From::File(name, fields.at("file"))
        }
        (Some(name), None) => From::Variable(name, fields.at("env")),
        (None, Some(name)) => From::File(name, fields.at("file")),
        (None, None) => From::Nowhere,
    }
}

fn variable(fields: &mut Fields<'_, '_>, around: &Around<'_>, name: &str, at: &Origin) -> Option<Vec<u8>> {
    let letter = |c: u8| c.is_ascii_uppercase() || c == b'_';
    let plain =
        name.bytes().all(|c| letter(c) || c.is_ascii_digit()) && name.bytes().next().is_some_and(letter);
    if !plain {
        let advice = format!("write its name, not its value, e.g. env = \"{VARIABLE}\"");
        fields.problem(
            &at.hidden(),
            "env",
            "is not the name of an environment variable",
            advice,
        );
        return None;
    }
    let value = around.variable(name);
    if value.is_none() {
        fields.problem(
            at,
            "env",
            format!("the environment has no {name}"),
            "set it, or take the key out",
        );
    }
    Some(trimmed(&Zeroizing::new(value?.into_encoded_bytes())))
}

fn file(fields: &mut Fields<'_, '_>, around: &Around<'_>, name: &str, at: &Origin) -> Option<Vec<u8>> {
    let path = around.path(name, at);
    let bytes = match files::bytes(&path, SECRET_BYTES_MAX) {
        Ok(bytes) => Zeroizing::new(bytes),
        Err(error) => {
            fields.problem(
                at,
                "file",
                format!("{} {error}", path.display()),
                "make one with: openssl rand -base64 32",
            );
            return None;
        }
    };
    if let Some(mode) = files::open_to_others(&path) {
        let what = format!(
            "{} is open to others than its owner (mode {mode:03o})",
            path.display()
        );
        fields.warning(at, "file", what, "run: chmod 600 on it");
    }
    Some(trimmed(&bytes))
}

/// Without the newline that an editor or a shell leaves at the end; it is no part of the secret.
fn trimmed(bytes: &[u8]) -> Vec<u8> {
    let end = bytes
        .iter()
        .rposition(|byte| !matches!(byte, b'\n' | b'\r'))
        .map_or(0, |last| last + 1);
    bytes[..end].to_vec()
}
