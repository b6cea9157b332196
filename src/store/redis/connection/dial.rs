//! Opens connections to the server of an address: to the first of its host's addresses that completes the handshake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::aio::{MultiplexedConnection, PubSub};
use deadpool_redis::redis::io::AsyncDNSResolver;
use deadpool_redis::redis::io::tcp::socket2::SockRef;
use deadpool_redis::redis::{AsyncConnectionConfig, Client, RedisFuture};
use rustls::ClientConfig;
use tokio::net::{TcpStream, lookup_host};

use super::super::address::Address;
use super::super::failure::Failure;
use super::tls;
use crate::store::connection::{best, first_of, is_transient};
use crate::store::tls::Certificates;

/// How many requests may wait for their turn on the connection. Further callers wait within their limits.
const WAITING: usize = 512;

/// Finds this address, whatever name is looked up.
struct OneAddress(SocketAddr);

impl Address {
    /// Opens one connection for requests, with the certificates as they are now.
    pub(in super::super) async fn connect(
        &self,
        limit: Duration,
    ) -> Result<MultiplexedConnection, Failure> {
        let certificates = self.certificates().await?;
        self.reach(|at| self.open(at, certificates.as_ref(), limit))
            .await
    }

    /// Opens one connection for subscriptions, with the certificates as they are now.
    pub(in super::super) async fn subscribe(&self) -> Result<PubSub, Failure> {
        let certificates = self.certificates().await?;
        let config = certificates.map(Certificates::config).transpose();
        let config = config.map_err(|error| Failure::Certificates(format!("{error:#}")))?;
        self.reach(|at| self.listen(at, config.clone())).await
    }

    /// Tries the addresses of the host, or the socket.
    async fn reach<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        open: impl Fn(Option<SocketAddr>) -> F,
    ) -> Result<T, Failure> {
        let Some((host, port)) = self.host_port() else {
            return open(None).await;
        };
        let addresses = lookup_host((host, port)).await.map_err(Failure::unmade)?;
        let opened = first_of(addresses.map(|address| open(Some(address)))).await;
        // What a server says counts for more than that nothing answers at its other address.
        opened.map_err(|failures| {
            let best = best(failures, |failure| !is_transient(failure));
            best.unwrap_or(Failure::Silent)
        })
    }

    async fn open(
        &self,
        at: Option<SocketAddr>,
        certificates: Option<&Certificates>,
        limit: Duration,
    ) -> Result<MultiplexedConnection, Failure> {
        // Each request brings a limit of its own.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WAITING);
        if let Some(at) = at {
            config = config.set_dns_resolver(OneAddress(at));
        }
        let client = match certificates {
            None => Client::open(self.info())?,
            Some(certificates) => tls::client(self.info(), self.server_name(), certificates)?,
        };
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(connection.await?)
    }

    async fn listen(
        &self,
        at: Option<SocketAddr>,
        config: Option<Arc<ClientConfig>>,
    ) -> Result<PubSub, Failure> {
        let info = self.info();
        let Some(at) = at else {
            return Ok(Client::open(info)?.get_async_pubsub().await?);
        };
        let stream = self.dial(at).await.map_err(Failure::unmade)?;
        let Some(config) = config else {
            return Ok(PubSub::new(info.redis_settings(), stream).await?);
        };
        let stream = tls::over(stream, self.server_name(), config).await;
        let stream = stream.map_err(Failure::unmade)?;
        Ok(PubSub::new(info.redis_settings(), stream).await?)
    }

    async fn dial(&self, at: SocketAddr) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(at).await?;
        let info = self.info();
        let settings = info.tcp_settings();
        stream.set_nodelay(settings.nodelay())?;
        let socket = SockRef::from(&stream);
        if let Some(keepalive) = settings.keepalive() {
            socket.set_tcp_keepalive(keepalive)?;
        }
        socket.set_tcp_user_timeout(settings.user_timeout())?;
        Ok(stream)
    }
}

impl AsyncDNSResolver for OneAddress {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        _: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let Self(address) = *self;
        Box::pin(async move {
            let address: Box<dyn Iterator<Item = SocketAddr> + Send> =
                Box::new(std::iter::once(address));
            Ok(address)
        })
    }
}
