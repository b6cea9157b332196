//! TLS for connections. The server's certificate chain and name are always checked.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

use crate::error::Error;

/// How connections are encrypted; `None` inside means not at all.
#[derive(Clone)]
pub(super) struct Tls(Option<Arc<ClientConfig>>);

/// TLS to one host.
pub(super) struct ToHost {
    config: Option<Arc<ClientConfig>>,
    host: ServerName<'static>,
}

/// An encrypted connection.
pub(super) struct Encrypted<S>(client::TlsStream<S>);

impl Tls {
    pub(super) fn none() -> Self {
        Self(None)
    }
}

/// Returns TLS settings that trust the usual web roots, or the certificates of this file alone.
///
/// # Errors
/// `Invalid` for a file without certificates.
pub(super) fn trusting(ca: Option<&Path>) -> Result<Tls, Error> {
    let mut roots = RootCertStore::empty();
    match ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let failed =
                |why: &str| Error::invalid(format!("store URL refused: {why} ca={path:?}"));
            let certificates = CertificateDer::pem_file_iter(path)
                .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>());
            let certificates = certificates.map_err(|error| {
                failed("the certificate file cannot be read").with_source(error.to_string())
            })?;
            if certificates.is_empty() {
                return Err(failed("the file has no certificate in PEM form"));
            }
            for certificate in certificates {
                roots.add(certificate).map_err(|error| {
                    failed("the certificates cannot be used").with_source(error)
                })?;
            }
        }
    }
    // Named here, because the program may have chosen another provider, or none.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Tls(Some(Arc::new(config))))
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
