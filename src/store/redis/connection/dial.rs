//! Opens connections to the server of an address: to the first of its host's addresses that completes the handshake.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::aio::{AsyncStream, MultiplexedConnection, PubSub};
use deadpool_redis::redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use deadpool_redis::redis::{AsyncConnectionConfig, RedisConnectionInfo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::super::address::Address;
use super::super::failure::Failure;
use crate::future::BoxFuture;
use crate::store::kit::connection::{HEAD_START, first_of, most_telling};

/// Maximum number of requests that wait for their turn on the connection. Further callers wait within their limits.
const WAITING: usize = 512;
/// Time without traffic before the connection is probed, so that no router on the way forgets it.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Number of further probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long the kernel waits for an acknowledgement before it closes the connection.
#[cfg(not(target_os = "macos"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// A stream to a server, encrypted or not.
pub(crate) type Stream = Pin<Box<dyn AsyncStream + Send>>;

/// A connection, made by a handshake over a stream.
pub(crate) trait OverStream: Sized + Send + 'static {
    fn over(
        stream: Stream,
        login: &RedisConnectionInfo,
    ) -> impl Future<Output = Result<Self, Failure>> + Send;
}

/// A connection for requests, and what drives it.
impl OverStream for (MultiplexedConnection, BoxFuture<'static, ()>) {
    async fn over(stream: Stream, login: &RedisConnectionInfo) -> Result<Self, Failure> {
        // Each request brings a limit of its own.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WAITING);
        let made = MultiplexedConnection::new_with_config(login, stream, config);
        let (connection, driver) = made.await?;
        Ok((connection, Box::pin(driver)))
    }
}

/// A connection for subscriptions.
impl OverStream for PubSub {
    async fn over(stream: Stream, login: &RedisConnectionInfo) -> Result<Self, Failure> {
        Ok(Self::new(login, stream).await?)
    }
}

impl Address {
    /// Opens a connection over the socket, or at the first of the host's addresses where that succeeds, with the
    /// certificates as they are now.
    // Boxed, because the compiler would have to find out in each caller that the future is `Send`, and cannot.
    pub(crate) fn open<T: OverStream>(&self) -> BoxFuture<'_, Result<T, Failure>> {
        Box::pin(async move {
            if let Some(path) = self.socket() {
                let stream = UnixStream::connect(path).await?;
                return T::over(Box::pin(stream), &self.login).await;
            }
            let (host, port) = (&*self.endpoint.host, self.endpoint.port);
            let encryption = self.encryption().await?;
            let found = lookup_host((host, port)).await?;
            let attempts = found.map(|at| self.open_at(host, at, encryption.clone()));
            let first = first_of(HEAD_START, attempts).await;
            first.map_err(most_telling)
        })
    }

    async fn open_at<T: OverStream>(
        &self,
        host: &str,
        at: SocketAddr,
        encryption: Option<Arc<ClientConfig>>,
    ) -> Result<T, Failure> {
        let stream = self.stream(host, at, encryption).await?;
        T::over(stream, &self.login)
            .await
            .map_err(Failure::without_answer)
    }

    async fn stream(
        &self,
        host: &str,
        at: SocketAddr,
        encryption: Option<Arc<ClientConfig>>,
    ) -> io::Result<Stream> {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL);
        socket.set_tcp_keepalive(&keepalive)?;
        // macOS has no such limit: there a silent connection ends by the time limits of its requests, or by the probes.
        #[cfg(not(target_os = "macos"))]
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        let Some(config) = encryption else {
            return Ok(Box::pin(stream));
        };
        let name = ServerName::try_from(self.server_name(host).to_owned());
        let name = name.map_err(io::Error::other)?;
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        Ok(Box::pin(stream))
    }
}
