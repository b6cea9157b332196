//! TLS to a Postgres server, under the settings that all stores share: the adapter between the driver and rustls.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

use crate::store::Tls;

/// The encryption of connections, if there is one.
#[derive(Clone)]
pub(in super::super) struct Handshake(Option<(Arc<ClientConfig>, Tls)>);

/// TLS to one host.
pub(in super::super) struct ToHost {
    config: Option<Arc<ClientConfig>>,
    host: ServerName<'static>,
}

/// An encrypted connection.
pub(in super::super) struct Encrypted<S>(client::TlsStream<S>);

impl Handshake {
    pub(in super::super) fn none() -> Self {
        Self(None)
    }

    /// Uses the certificates of this configuration, and the names of these settings.
    pub(in super::super) fn new(config: Arc<ClientConfig>, tls: Tls) -> Self {
        Self(Some((config, tls)))
    }
}

impl<S> MakeTlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = ToHost;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<ToHost, InvalidDnsNameError> {
        let (config, name) = match &self.0 {
            Some((config, tls)) => (Some(config.clone()), tls.name_of(host)),
            None => (None, host),
        };
        // A socket has no name, and uses no TLS.
        let name = match name.is_empty() || config.is_none() {
            true => "localhost",
            false => name,
        };
        let host = ServerName::try_from(name)?.to_owned();
        Ok(ToHost { config, host })
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
