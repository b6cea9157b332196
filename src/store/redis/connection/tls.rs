//! TLS to a Redis server, under the settings that all stores share.
//!
//! A connection for requests is made by the Redis crate, which takes certificates in PEM form and checks the name of
//! the host that it was given. So it is given the expected name, and a resolver of ours returns the address that is
//! meant. For subscriptions the crate takes a stream, which is made here.

use std::io;
use std::sync::Arc;

use deadpool_redis::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates,
};
use rustls::ClientConfig;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::failure::Failure;
use crate::store::tls::Certificates;

/// Returns a client for connections to a server whose certificate has this name. They need a resolver, because the name
/// takes the place of the host.
pub(super) fn client(
    info: ConnectionInfo,
    name: &str,
    certificates: &Certificates,
) -> Result<Client, Failure> {
    let mut addr = info.addr().clone();
    if let ConnectionAddr::TcpTls { host, .. } = &mut addr {
        *host = name.into();
    }
    let roots = certificates.roots.as_ref();
    let client = certificates.client.as_ref();
    let pem = TlsCertificates {
        root_cert: roots.map(|roots| roots.iter().flat_map(|root| certificate(root)).collect()),
        client_tls: client.map(|(chain, key)| ClientTlsConfig {
            client_cert: chain.iter().flat_map(|one| certificate(one)).collect(),
            client_key: private_key(key),
        }),
    };
    Ok(Client::build_with_tls(info.set_addr(addr), pem)?)
}

/// Encrypts a connection to a server whose certificate has this name.
pub(super) async fn over(
    stream: TcpStream,
    name: &str,
    config: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let connector = TlsConnector::from(config);
    connector.connect(name.to_owned(), stream).await
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
