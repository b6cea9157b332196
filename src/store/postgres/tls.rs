//! TLS for connections. The server's certificate chain and name are always checked. The certificates are files, read
//! again for each connection, because they are replaced while the process runs.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

use crate::error::Error;

/// The files of certificates. Without any: the usual web roots, and no client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CertificateFiles {
    ca: Option<PathBuf>,
    /// The client's certificate and its key.
    client: Option<(PathBuf, PathBuf)>,
}

/// How one connection is encrypted; `None` inside means not at all.
#[derive(Clone)]
pub(super) struct Tls(Option<Arc<ClientConfig>>);

/// TLS to one host.
pub(super) struct ToHost {
    config: Option<Arc<ClientConfig>>,
    host: ServerName<'static>,
}

/// An encrypted connection.
pub(super) struct Encrypted<S>(client::TlsStream<S>);

impl CertificateFiles {
    /// Returns the files that a URL names. `Err` says what is wrong.
    pub(super) fn named(
        ca: Option<&str>,
        certificate: Option<&str>,
        key: Option<&str>,
    ) -> Result<Self, &'static str> {
        let client = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            _ => return Err("it has one of cert and key; a client's certificate needs both"),
        };
        Ok(Self {
            ca: ca.map(PathBuf::from),
            client,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the files, for one connection. It may block.
    ///
    /// # Errors
    /// `Invalid`, with the file that cannot be used; never with its content.
    pub(super) fn read(&self) -> Result<Tls, Error> {
        // Named here, because the program may have chosen another provider, or none.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_root_certificates(self.roots()?);
        let config = match &self.client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("cert", certificate)?;
                let pair = config.with_client_auth_cert(chain, private_key(key)?);
                pair.map_err(|error| {
                    let why = "the certificate and the key cannot be used together";
                    refused(why, "key", key).with_source(error)
                })?
            }
        };
        Ok(Tls(Some(Arc::new(config))))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.ca else {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            return Ok(roots);
        };
        for certificate in certificates("ca", path)? {
            roots.add(certificate).map_err(|error| {
                refused("the certificates cannot be used", "ca", path).with_source(error)
            })?;
        }
        Ok(roots)
    }
}

fn certificates(parameter: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>());
    let certificates = certificates.map_err(|error| {
        refused("the certificate file cannot be read", parameter, path)
            .with_source(error.to_string())
    })?;
    if certificates.is_empty() {
        let why = "the file has no certificate in PEM form";
        return Err(refused(why, parameter, path));
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::Io(error) => {
            refused("the key's file cannot be read", "key", path).with_source(error)
        }
        _ => refused(
            "the file has no private key in PEM form without a passphrase",
            "key",
            path,
        ),
    })
}

fn refused(why: &str, parameter: &str, path: &Path) -> Error {
    Error::invalid(format!("store URL refused: {why} {parameter}={path:?}"))
}

impl Tls {
    pub(super) fn none() -> Self {
        Self(None)
    }
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = ToHost;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<ToHost, InvalidDnsNameError> {
        // A socket has no name, and uses no TLS.
        let host = if host.is_empty() || self.0.is_none() {
            "localhost"
        } else {
            host
        };
        Ok(ToHost {
            config: self.0.clone(),
            host: ServerName::try_from(host)?.to_owned(),
        })
    }
}

impl<S> TlsConnect<S> for ToHost
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let config = self.config.ok_or_else(|| io::Error::other("TLS is off"))?;
            let connected = TlsConnector::from(config)
                .connect(self.host, stream)
                .await?;
            Ok(Encrypted(connected))
        })
    }
}

impl<S> TlsStream for Encrypted<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn channel_binding(&self) -> ChannelBinding {
        // It guards against a server that shows another server's certificate, and so does the check of the name.
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
