//! A certificate authority for tests: certificates and keys as PEM files in a directory of its own.
//! Law: every file is gone when the authority is dropped. Compiled for tests only.
//! Next: `net/tls.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::config::resolved::TlsFiles;

/// How a test certificate stands to the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Term {
    Valid,
    Expired,
    NotYet,
}

/// An authority whose own certificate is `authority.pem`.
pub(crate) struct TestAuthority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl TestAuthority {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("throughline-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two authorities of one name would look like one with a broken signature.
        params
            .distinguished_name
            .push(DnType::CommonName, format!("test authority {number}"));
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(directory.join("authority.pem"), certificate.pem()).unwrap();
        Self {
            directory,
            issuer: Issuer::new(params, key),
        }
    }

    /// The file of the authority's own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join("authority.pem")
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Issues a certificate for this name, in files of this name.
    pub(crate) fn issue(&self, name: &str, term: Term) -> TlsFiles {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = match term {
            Term::Valid => (date_time_ymd(2020, 1, 1), date_time_ymd(2120, 1, 1)),
            Term::Expired => (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1)),
            Term::NotYet => (date_time_ymd(2110, 1, 1), date_time_ymd(2120, 1, 1)),
        };
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        TlsFiles {
            certificate: self.write(&format!("{name}.{term:?}.pem"), certificate.pem()),
            key: self.write(&format!("{name}.{term:?}.key"), key.serialize_pem()),
        }
    }

    pub(crate) fn write(&self, file: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory.join(file);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for TestAuthority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
