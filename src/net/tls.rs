//! TLS from files to a finished handshake; with `net/transport.rs` the only door of rustls.
//! Law: what is wrong with a file is said by name when it is loaded, never at the first handshake.
//! Absent on purpose: HTTP, and a way to switch verification off.
//! Why the provider is named: rustls must not depend on which features another crate switched on.
//! Next: `net/transport.rs`.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, Error as RustlsError, RootCertStore, ServerConfig,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::config::resolved::{TlsFiles, UpstreamTls};
use crate::net::Io;
use crate::net::transport::Transport;

/// Why TLS can't be set up: which file, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsProblem {
    /// The file, or nothing if the system's own authorities are the trouble.
    pub file: Option<PathBuf>,
    /// What is wrong with it.
    pub what: TlsFlaw,
}

/// What is wrong with a file that TLS needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TlsFlaw {
    /// It does not exist.
    Missing,
    /// It exists and can't be read.
    Unreadable(io::ErrorKind),
    /// It is no PEM.
    NotPem(String),
    /// It is PEM and holds no certificate.
    NoCertificate,
    /// It is PEM and holds no private key (or only an encrypted one).
    NoKey,
    /// A certificate in it can't be parsed.
    BadCertificate(String),
    /// The key in it can't be used.
    BadKey(String),
    /// The key in it is not the key of this certificate.
    KeyMismatch {
        /// The file with the certificate.
        certificate: PathBuf,
    },
    /// The certificate has expired: every client that verifies would refuse it.
    Expired,
    /// The name to verify is neither a DNS name nor an address.
    BadServerName(Box<str>),
    /// The system offers no certificate authority.
    NoSystemAuthorities,
}

impl TlsProblem {
    fn of(file: &Path, what: TlsFlaw) -> Self {
        Self {
            file: Some(file.to_owned()),
            what,
        }
    }
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        match &self.what {
            TlsFlaw::Missing => f.write_str("no such file"),
            TlsFlaw::Unreadable(kind) => write!(f, "can't be read: {kind}"),
            TlsFlaw::NotPem(why) => write!(f, "not a PEM file: {why}"),
            TlsFlaw::NoCertificate => f.write_str("no certificate in it"),
            TlsFlaw::NoKey => f.write_str("no unencrypted private key in it"),
            TlsFlaw::BadCertificate(why) => write!(f, "a certificate in it can't be used: {why}"),
            TlsFlaw::BadKey(why) => write!(f, "the private key in it can't be used: {why}"),
            TlsFlaw::KeyMismatch { certificate } => {
                write!(
                    f,
                    "the key in it does not match the certificate in {}",
                    certificate.display()
                )
            }
            TlsFlaw::Expired => f.write_str("the certificate in it has expired"),
            TlsFlaw::BadServerName(name) => write!(f, "`{name}` is neither a DNS name nor an address"),
            TlsFlaw::NoSystemAuthorities => {
                f.write_str("the system offers no certificate authorities; name a file of them")
            }
        }
    }
}

impl std::error::Error for TlsProblem {}

/// Why a handshake failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TlsFault {
    /// No trusted authority vouches for the peer's certificate.
    Untrusted,
    /// The peer's certificate is for another name.
    WrongName,
    /// The peer's certificate has expired.
    Expired,
    /// The peer's certificate is not valid yet.
    NotYetValid,
    /// Something else is wrong with the peer's certificate.
    Certificate(String),
    /// The peer does not speak TLS, or not a TLS that we speak.
    Protocol(String),
    /// The connection broke during the handshake.
    Broken(io::ErrorKind),
    /// The host of the replica is neither a DNS name nor an address.
    BadServerName(Box<str>),
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untrusted => f.write_str("certificate of an unknown authority"),
            Self::WrongName => f.write_str("certificate for another name"),
            Self::Expired => f.write_str("certificate expired"),
            Self::NotYetValid => f.write_str("certificate not valid yet"),
            Self::Certificate(why) => write!(f, "bad certificate: {why}"),
            Self::Protocol(why) => write!(f, "TLS failed: {why}"),
            Self::Broken(kind) => write!(f, "connection broke during the handshake: {kind}"),
            Self::BadServerName(name) => write!(f, "`{name}` is neither a DNS name nor an address"),
        }
    }
}

impl std::error::Error for TlsFault {}

impl From<io::Error> for TlsFault {
    fn from(error: io::Error) -> Self {
        let Some(cause) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<RustlsError>())
        else {
            return Self::Broken(error.kind());
        };
        // The outside enum grows with every release: what it may add is still a bad certificate or a failed protocol.
        match cause {
            RustlsError::InvalidCertificate(certificate) => match certificate {
                CertificateError::UnknownIssuer => Self::Untrusted,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    Self::WrongName
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    Self::NotYetValid
                }
                other => Self::Certificate(other.to_string()),
            },
            other => Self::Protocol(other.to_string()),
        }
    }
}

/// What a listener needs for TLS. Cheap to clone.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
}

impl ServerTls {
    /// Shakes hands with a client. The caller bounds its time.
    ///
    /// # Errors
    /// [`TlsFault`]; the connection is gone.
    pub async fn accept<I: Io>(&self, io: I) -> Result<Transport<I>, TlsFault> {
        let stream = self.acceptor.accept(io).await?;
        Ok(Transport::Tls(Box::new(TlsStream::Server(stream))))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

/// What a connection to an `https` replica needs. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Shakes hands with a backend; `host` is the name to verify unless the configuration names another.
    /// The caller bounds its time.
    ///
    /// # Errors
    /// [`TlsFault`]; the connection is gone and nothing of a request was sent.
    pub async fn connect<I: Io>(&self, io: I, host: &str) -> Result<Transport<I>, TlsFault> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => server_name(host).ok_or_else(|| TlsFault::BadServerName(host.into()))?,
        };
        let stream = self.connector.connect(name, io).await?;
        Ok(Transport::Tls(Box::new(TlsStream::Client(stream))))
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

/// Loads a listener's certificate and key. Offers `h2` and `http/1.1`.
///
/// # Errors
/// [`TlsProblem`] names the file and what is wrong with it.
pub fn server_config(files: &TlsFiles) -> Result<ServerTls, TlsProblem> {
    let chain = certificates(&files.certificate)?;
    let key = private_key(&files.key)?;
    if has_expired(&chain) {
        return Err(TlsProblem::of(&files.certificate, TlsFlaw::Expired));
    }
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsProblem::of(&files.key, TlsFlaw::BadKey(error.to_string())))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| pair_problem(files, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(ServerTls {
        acceptor: Arc::new(config).into(),
    })
}

/// Loads what is needed to connect to `https` replicas: authorities (the system's unless a file is named), and the
/// certificate to show if one is configured. Offers `http/1.1`.
///
/// # Errors
/// [`TlsProblem`] names the file and what is wrong with it.
pub fn client_config(settings: &UpstreamTls) -> Result<ClientTls, TlsProblem> {
    let server_name = match &settings.server_name {
        Some(name) => Some(server_name(name).ok_or_else(|| TlsProblem {
            file: None,
            what: TlsFlaw::BadServerName(name.clone()),
        })?),
        None => None,
    };
    let roots = match &settings.authorities {
        Some(file) => authorities(file)?,
        None => system_authorities()?,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsProblem {
            file: None,
            what: TlsFlaw::BadKey(error.to_string()),
        })?
        .with_root_certificates(roots);
    let mut config = match &settings.client {
        Some(files) => builder
            .with_client_auth_cert(certificates(&files.certificate)?, private_key(&files.key)?)
            .map_err(|error| pair_problem(files, error))?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(ClientTls {
        connector: Arc::new(config).into(),
        server_name,
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server_name(host: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).ok()
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| file_problem(file, error, TlsFlaw::NoCertificate))?;
    if chain.is_empty() {
        return Err(TlsProblem::of(file, TlsFlaw::NoCertificate));
    }
    Ok(chain)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsProblem> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| file_problem(file, error, TlsFlaw::NoKey))
}

/// Whether the leaf's time has passed. The verifier looks at a certificate's own time before it looks for who issued
/// it, so the leaf may stand in for its authority here, and any other verdict says nothing.
fn has_expired(chain: &[CertificateDer<'static>]) -> bool {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return false;
    };
    let mut roots = RootCertStore::empty();
    let Ok(()) = roots.add(leaf.clone()) else {
        return false;
    };
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(roots.into(), provider()).build() else {
        return false;
    };
    let name = ServerName::from(Ipv4Addr::LOCALHOST);
    let verdict = verifier.verify_server_cert(leaf, intermediates, &name, &[], UnixTime::now());
    matches!(
        verdict,
        Err(RustlsError::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. }
        ))
    )
}

fn authorities(file: &Path) -> Result<RootCertStore, TlsProblem> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| TlsProblem::of(file, TlsFlaw::BadCertificate(error.to_string())))?;
    }
    Ok(roots)
}

/// The system's store as a whole often holds a few certificates that can't be parsed; those are left out.
fn system_authorities() -> Result<RootCertStore, TlsProblem> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(TlsProblem {
            file: None,
            what: TlsFlaw::NoSystemAuthorities,
        });
    }
    Ok(roots)
}

fn file_problem(file: &Path, error: pem::Error, nothing_found: TlsFlaw) -> TlsProblem {
    let what = match error {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => TlsFlaw::Missing,
        pem::Error::Io(error) => TlsFlaw::Unreadable(error.kind()),
        pem::Error::NoItemsFound => nothing_found,
        other => TlsFlaw::NotPem(other.to_string()),
    };
    TlsProblem::of(file, what)
}

/// What rustls says of a certificate and key together, told of the file at fault.
fn pair_problem(files: &TlsFiles, error: RustlsError) -> TlsProblem {
    match error {
        RustlsError::InconsistentKeys(_) => TlsProblem::of(
            &files.key,
            TlsFlaw::KeyMismatch {
                certificate: files.certificate.clone(),
            },
        ),
        RustlsError::InvalidCertificate(why) => {
            TlsProblem::of(&files.certificate, TlsFlaw::BadCertificate(why.to_string()))
        }
        other => TlsProblem::of(&files.key, TlsFlaw::BadKey(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tcp::Tcp;
    use crate::net::test_authority::{Term, TestAuthority};
    use crate::net::transport::Alpn;
    use crate::net::{Authority, Net, Unacked};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn trusting(authority: &TestAuthority) -> UpstreamTls {
        UpstreamTls {
            authorities: Some(authority.file()),
            server_name: None,
            client: None,
        }
    }

    /// Shakes hands over loopback and carries a word each way.
    async fn talk(server: &ServerTls, client: &ClientTls, host: &str) -> Result<(), TlsFault> {
        let net = Tcp::new();
        let listener = net.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = Authority {
            host: "127.0.0.1".into(),
            port: net.local_addr(&listener).unwrap().port(),
        };
        let (dialled, accepted) = tokio::join!(net.dial(&to), net.accept(&listener));
        let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap());
        let (theirs, ours) = tokio::join!(server.accept(accepted), client.connect(dialled, host));
        let mut ours = ours?;
        let mut theirs = theirs?;
        assert_eq!((ours.alpn(), theirs.alpn()), (Alpn::Http11, Alpn::Http11));
        assert_eq!(
            ours.peer(),
            "127.0.0.1"
                .parse::<std::net::IpAddr>()
                .map(|ip| (ip, to.port).into())
                .unwrap()
        );
        ours.write_all(b"ping").await.unwrap();
        ours.flush().await.unwrap();
        let mut got = [0; 4];
        theirs.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"ping");
        if cfg!(target_os = "linux") {
            assert!(matches!(theirs.unacked(), Unacked::Bytes(_)));
        }
        drop(theirs);
        // An end without TLS's own goodbye is not an end: a truncated answer must not pass for a whole one.
        assert_eq!(
            ours.read(&mut got).await.unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        Ok(())
    }

    #[tokio::test]
    async fn a_handshake_verifies_name_issuer_and_time() {
        let (authority, stranger) = (TestAuthority::new(), TestAuthority::new());
        let check =
            async |name: &str, issuer: &TestAuthority, settings: UpstreamTls, host: &str, expected| {
                let server = server_config(&issuer.issue(name, Term::Valid)).unwrap();
                let client = client_config(&settings).unwrap();
                assert_eq!(talk(&server, &client, host).await, expected, "{name} as {host}");
            };
        let named = |name: &str| UpstreamTls {
            server_name: Some(name.into()),
            ..trusting(&authority)
        };
        check("a.example", &authority, trusting(&authority), "a.example", Ok(())).await;
        check("127.0.0.1", &authority, trusting(&authority), "127.0.0.1", Ok(())).await;
        check("a.example", &authority, named("a.example"), "127.0.0.1", Ok(())).await;
        check(
            "a.example",
            &authority,
            trusting(&authority),
            "b.example",
            Err(TlsFault::WrongName),
        )
        .await;
        check(
            "a.example",
            &authority,
            named("b.example"),
            "a.example",
            Err(TlsFault::WrongName),
        )
        .await;
        check(
            "a.example",
            &stranger,
            trusting(&authority),
            "a.example",
            Err(TlsFault::Untrusted),
        )
        .await;
        let odd = TlsFault::BadServerName("a b".into());
        check("a.example", &authority, trusting(&authority), "a b", Err(odd)).await;
        let shown = UpstreamTls {
            client: Some(authority.issue("proxy", Term::Valid)),
            ..trusting(&authority)
        };
        check("a.example", &authority, shown, "a.example", Ok(())).await;

        // Not yet valid may be loaded (the clock may be wrong at boot); a client still refuses it.
        let early = server_config(&authority.issue("a.example", Term::NotYet)).unwrap();
        let client = client_config(&trusting(&authority)).unwrap();
        assert_eq!(
            talk(&early, &client, "a.example").await,
            Err(TlsFault::NotYetValid)
        );
    }

    #[tokio::test]
    async fn a_peer_without_tls_is_told_apart() {
        let authority = TestAuthority::new();
        let client = client_config(&trusting(&authority)).unwrap();
        let net = Tcp::new();
        let listener = net.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = Authority {
            host: "127.0.0.1".into(),
            port: net.local_addr(&listener).unwrap().port(),
        };
        let (dialled, accepted) = tokio::join!(net.dial(&to), net.accept(&listener));
        let mut plain = accepted.unwrap();
        plain
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        let fault = client.connect(dialled.unwrap(), "a.example").await.unwrap_err();
        assert!(matches!(fault, TlsFault::Protocol(_)), "{fault}");

        let (dialled, accepted) = tokio::join!(net.dial(&to), net.accept(&listener));
        drop(accepted);
        let fault = client.connect(dialled.unwrap(), "a.example").await.unwrap_err();
        assert!(matches!(fault, TlsFault::Broken(_)), "{fault}");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_by_name() {
        let authority = TestAuthority::new();
        let good = authority.issue("a.example", Term::Valid);
        let other = authority.issue("b.example", Term::Valid);
        let expired = authority.issue("a.example", Term::Expired);
        let missing = authority.directory().join("missing.pem");
        let empty = authority.write("empty.pem", "");
        let cut = authority.write("cut.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n");
        let hollow = authority.write(
            "hollow.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        );
        let odd_key = authority.write(
            "odd.key",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        );
        let directory = authority.directory().to_owned();

        let check = |certificate: &PathBuf, key: &PathBuf, file: &PathBuf, expected: &str| {
            let files = TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            };
            let problem = server_config(&files).map(|_| ()).unwrap_err();
            assert_eq!(problem.file.as_ref(), Some(file), "{problem}");
            let said = problem.to_string();
            assert!(said.contains(expected), "{said} should contain {expected}");
        };
        check(&missing, &good.key, &missing, "no such file");
        check(&good.certificate, &missing, &missing, "no such file");
        check(&directory, &good.key, &directory, "can't be read");
        check(&empty, &good.key, &empty, "no certificate in it");
        check(&good.key, &good.key, &good.key, "no certificate in it");
        check(
            &good.certificate,
            &good.certificate,
            &good.certificate,
            "no unencrypted private key",
        );
        check(&cut, &good.key, &cut, "not a PEM file");
        check(&hollow, &good.key, &hollow, "can't be used");
        check(&good.certificate, &odd_key, &odd_key, "can't be used");
        check(
            &good.certificate,
            &other.key,
            &other.key,
            "does not match the certificate",
        );
        check(
            &expired.certificate,
            &expired.key,
            &expired.certificate,
            "has expired",
        );

        let check = |settings: UpstreamTls, expected: &str| {
            let said = client_config(&settings).map(|_| ()).unwrap_err().to_string();
            assert!(said.contains(expected), "{said} should contain {expected}");
        };
        let with = |file: &PathBuf| UpstreamTls {
            authorities: Some(file.clone()),
            ..UpstreamTls::default()
        };
        check(with(&missing), "missing.pem: no such file");
        check(with(&empty), "empty.pem: no certificate in it");
        check(with(&hollow), "hollow.pem: a certificate in it can't be used");
        check(
            UpstreamTls {
                server_name: Some("a b".into()),
                ..with(&authority.file())
            },
            "neither a DNS name",
        );
        let mismatched = TlsFiles {
            certificate: good.certificate.clone(),
            key: other.key.clone(),
        };
        check(
            UpstreamTls {
                client: Some(mismatched),
                ..with(&authority.file())
            },
            "does not match the certificate",
        );
    }
}
