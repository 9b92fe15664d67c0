//! Certificates and keys: named together, read, and tried before anything is bound.
//! Law: a file that TLS will refuse is refused here, with the key that named it.
//! Absent on purpose: reading PEM; that is the TLS library's, behind `net/tls.rs`.
//! Next: `server.rs`.

use std::path::{Path, PathBuf};

use super::bounds::PEM_BYTES_MAX;
use super::fields::Fields;
use super::files::{self, Around};
use super::resolved::{TlsFiles, UpstreamTls};
use crate::net::tls::{self, TlsFlaw, TlsProblem};

const CERTIFICATE: &str = "certificate";
const KEY: &str = "key";
const AUTHORITIES: &str = "authorities";
const SERVER_NAME: &str = "server_name";
const CLIENT_CERTIFICATE: &str = "client_certificate";
const CLIENT_KEY: &str = "client_key";

/// What a listener shows, if its table says it.
pub(super) fn listener(fields: &mut Fields<'_, '_>, around: &Around<'_>) -> Option<TlsFiles> {
    let files = pair(fields, around, CERTIFICATE, KEY)?;
    match tls::server_config(&files) {
        Ok(_) => Some(files),
        Err(problem) => {
            report(
                fields,
                &problem,
                &[(CERTIFICATE, &files.certificate), (KEY, &files.key)],
            );
            None
        }
    }
}

/// What is used towards replicas. The files can be read; whether TLS takes them is tried by [`try_upstream`].
pub(super) fn upstream(fields: &mut Fields<'_, '_>, around: &Around<'_>) -> UpstreamTls {
    UpstreamTls {
        authorities: file(fields, around, AUTHORITIES),
        server_name: fields.text(SERVER_NAME).map(Box::from),
        client: pair(fields, around, CLIENT_CERTIFICATE, CLIENT_KEY),
    }
}

/// Tries what is used towards `https` replicas.
pub(super) fn try_upstream(fields: &mut Fields<'_, '_>, settings: &UpstreamTls) {
    if let Err(problem) = tls::client_config(settings) {
        let mut places: Vec<(&'static str, &Path)> = Vec::with_capacity(3);
        places.extend(settings.authorities.as_deref().map(|path| (AUTHORITIES, path)));
        if let Some(client) = &settings.client {
            places.extend([
                (CLIENT_CERTIFICATE, &*client.certificate),
                (CLIENT_KEY, &*client.key),
            ]);
        }
        report(fields, &problem, &places);
    }
}

/// A certificate and its key: both or neither.
fn pair(
    fields: &mut Fields<'_, '_>,
    around: &Around<'_>,
    certificate: &'static str,
    key: &'static str,
) -> Option<TlsFiles> {
    let said = [certificate, key].map(|name| fields.raw(name).is_some());
    let files = [certificate, key].map(|name| file(fields, around, name));
    let missing = match said {
        [true, false] => Some((key, "a certificate needs its private key (PEM)")),
        [false, true] => Some((certificate, "a private key needs its certificate (PEM)")),
        [true, true] | [false, false] => None,
    };
    if let Some((name, advice)) = missing {
        let at = fields.at_any(&[certificate, key]);
        fields.problem(&at, name, "is missing", advice);
    }
    let [certificate, key] = files;
    Some(TlsFiles {
        certificate: certificate?,
        key: key?,
    })
}

/// A file that can be read.
fn file(fields: &mut Fields<'_, '_>, around: &Around<'_>, name: &'static str) -> Option<PathBuf> {
    let text = fields.text(name)?;
    let at = fields.at(name);
    let path = around.path(text, &at);
    match files::bytes(&path, PEM_BYTES_MAX) {
        Ok(_) => Some(path),
        Err(error) => {
            fields.problem(
                &at,
                name,
                format!("{} {error}", path.display()),
                "name a PEM file that can be read",
            );
            None
        }
    }
}

fn report(fields: &mut Fields<'_, '_>, problem: &TlsProblem, places: &[(&'static str, &Path)]) {
    let by_file = |file: &Path| {
        places
            .iter()
            .find(|(_, path)| *path == file)
            .map(|(name, _)| *name)
    };
    let name = match &problem.what {
        TlsFlaw::BadServerName(_) => SERVER_NAME,
        TlsFlaw::NoSystemAuthorities => AUTHORITIES,
        TlsFlaw::Missing
        | TlsFlaw::Expired
        | TlsFlaw::Unreadable(_)
        | TlsFlaw::NotPem(_)
        | TlsFlaw::NoCertificate
        | TlsFlaw::NoKey
        | TlsFlaw::BadCertificate(_)
        | TlsFlaw::BadKey(_)
        | TlsFlaw::KeyMismatch { .. } => problem.file.as_deref().and_then(by_file).unwrap_or_default(),
    };
    let advice = match &problem.what {
        TlsFlaw::Missing | TlsFlaw::Unreadable(_) => "name a PEM file that can be read",
        TlsFlaw::NotPem(_) => "convert it with openssl: a PEM file has lines that begin with -----BEGIN",
        TlsFlaw::NoCertificate => "name the file with the certificate, leaf first, then its chain",
        TlsFlaw::NoKey => {
            "name the file with the private key; take its password off with: openssl pkey -in OLD -out NEW"
        }
        TlsFlaw::BadCertificate(_) => {
            "make the certificate anew: X.509 version 3, with a subject alternative name"
        }
        TlsFlaw::BadKey(_) => "make the key anew: RSA of 2048 bits or more, ECDSA P-256 or P-384, or Ed25519",
        TlsFlaw::Expired => "renew the certificate",
        TlsFlaw::KeyMismatch { .. } => "name the key that this certificate was made for",
        TlsFlaw::BadServerName(_) => "write the name in the replicas' certificate",
        TlsFlaw::NoSystemAuthorities => {
            "install the system's certificate authorities, or name a file of them"
        }
    };
    let at = fields.at(name);
    fields.problem(&at, name, problem.to_string(), advice);
}
