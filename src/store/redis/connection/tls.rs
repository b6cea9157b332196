//! TLS to a Redis server, under the settings that all stores share.
//!
//! A connection for requests is made by the Redis crate, which takes certificates in PEM form and checks the name of the
//! host that it was told. So it is told the expected name, and a resolver of ours returns the addresses of the host that
//! is meant. For subscriptions the crate takes no resolver, but a stream, which is made here.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use deadpool_redis::redis::aio::PubSub;
use deadpool_redis::redis::io::AsyncDNSResolver;
use deadpool_redis::redis::io::tcp::{TcpSettings, socket2::SockRef};
use deadpool_redis::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisFuture,
    TlsCertificates,
};
use futures_util::future::select_ok;
use rustls::ClientConfig;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::failure::Failure;
use crate::store::tls::Certificates;

/// A server behind TLS: where it is, and the name that its certificate must have.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Secured<'a> {
    pub(in super::super) host: &'a str,
    pub(in super::super) port: u16,
    pub(in super::super) name: &'a str,
}

/// Finds the addresses of this host, whichever it is asked for.
struct HostResolver(String);

impl Secured<'_> {
    /// Returns a client for connections to the name, which need [`resolver`](Self::resolver).
    pub(in super::super) fn client(
        self,
        info: ConnectionInfo,
        certificates: Certificates,
    ) -> Result<Client, Failure> {
        let info = info.set_addr(ConnectionAddr::TcpTls {
            host: self.name.into(),
            port: self.port,
            insecure: false,
            tls_params: None,
        });
        let roots = certificates.roots.as_ref();
        let pem = TlsCertificates {
            root_cert: roots.map(|roots| roots.iter().flat_map(|root| certificate(root)).collect()),
            client_tls: certificates
                .client
                .as_ref()
                .map(|(chain, key)| ClientTlsConfig {
                    client_cert: chain.iter().flat_map(|one| certificate(one)).collect(),
                    client_key: private_key(key),
                }),
        };
        Ok(Client::build_with_tls(info, pem)?)
    }

    pub(in super::super) fn resolver(self) -> impl AsyncDNSResolver {
        HostResolver(self.host.into())
    }

    /// Connects for subscriptions.
    pub(in super::super) async fn subscribe(
        self,
        settings: &RedisConnectionInfo,
        tcp: &TcpSettings,
        config: Arc<ClientConfig>,
    ) -> Result<PubSub, Failure> {
        let stream = self.dial(tcp, config).await.map_err(Failure::unmade)?;
        Ok(PubSub::new(settings, stream).await?)
    }

    async fn dial(
        self,
        tcp: &TcpSettings,
        config: Arc<ClientConfig>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(self.name).map_err(io::Error::other)?;
        let addresses: Vec<_> = lookup_host((self.host, self.port)).await?.collect();
        if addresses.is_empty() {
            return Err(io::Error::other("the host has no address"));
        }
        let attempts = addresses.into_iter();
        let attempts = attempts.map(|address| Box::pin(TcpStream::connect(address)));
        let (stream, _) = select_ok(attempts).await?;
        stream.set_nodelay(tcp.nodelay())?;
        let socket = SockRef::from(&stream);
        if let Some(keepalive) = tcp.keepalive() {
            socket.set_tcp_keepalive(keepalive)?;
        }
        socket.set_tcp_user_timeout(tcp.user_timeout())?;
        TlsConnector::from(config)
            .connect(name.to_owned(), stream)
            .await
    }
}

impl AsyncDNSResolver for HostResolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let addresses = lookup_host((&*self.0, port)).await?;
            Ok(Box::new(addresses) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

fn certificate(der: &[u8]) -> Vec<u8> {
    pem("CERTIFICATE", der)
}

fn private_key(key: &PrivateKeyDer<'_>) -> Vec<u8> {
    let item = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    pem(item, key.secret_der())
}

/// Writes an item in PEM form.
fn pem(item: &str, der: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {item}-----\n").into_bytes();
    // 48 bytes become a line of 64 digits.
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for digit in 0..4 {
                text.push(match digit <= three.len() {
                    true => DIGITS[(bits >> (18 - 6 * digit) & 63) as usize],
                    false => b'=',
                });
            }
        }
        text.push(b'\n');
    }
    text.extend(format!("-----END {item}-----\n").into_bytes());
    text
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn what_is_written_as_pem_is_read_again_whatever_its_length() {
        for length in 1..200_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            let read = CertificateDer::from_pem_slice(&certificate(&bytes)).expect("PEM");
            assert_eq!(&*read, &*bytes);
        }
    }
}
