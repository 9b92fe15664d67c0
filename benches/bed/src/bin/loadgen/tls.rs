//! Connections to `https://` targets: one certificate is believed, that of the run.
//! Law: no session is resumed: each connection makes its keys anew, as if it came from another client.
//! Next: `client.rs`.

use crate::client::{BoxErr, Protocol, Target};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub(crate) struct Tls {
    connector: TlsConnector,
    pub(crate) protocol: Protocol,
}

impl Tls {
    /// Believes the certificate in this file and speaks this protocol.
    pub(crate) fn new(certificate: &Path, protocol: Protocol) -> Result<Self, BoxErr> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate)?)?;
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![match protocol {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::Http2 => b"h2".to_vec(),
        }];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), protocol })
    }

    pub(crate) async fn over(&self, t: &Target, s: TcpStream) -> Result<TlsStream<TcpStream>, BoxErr> {
        Ok(self.connector.connect(ServerName::IpAddress(t.addr.ip().into()), s).await?)
    }
}
