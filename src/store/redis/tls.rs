//! The certificates of a connection: those that it trusts, and the one that it shows. They are files, read again for
//! each connection, because they are replaced while the process runs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use deadpool_redis::redis::{Client, ClientTlsConfig, ConnectionInfo, TlsCertificates};

use crate::error::Error;

/// The paths of the certificates. Without any: the usual web roots, and no client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Files {
    ca: Option<PathBuf>,
    /// The client's certificate and its key.
    client: Option<(PathBuf, PathBuf)>,
}

impl Files {
    /// The URL parameters that name them.
    pub(super) const PARAMETERS: [&str; 3] = ["ca", "cert", "key"];

    /// Returns the files that a URL names. `Err` says what is wrong.
    pub(super) fn named(find: impl Fn(&str) -> Option<String>) -> Result<Self, &'static str> {
        let [ca, certificate, key] = Self::PARAMETERS.map(|name| find(name).map(PathBuf::from));
        let client = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err("it has one of cert and key; a client's certificate needs both"),
        };
        Ok(Self { ca, client })
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads the files, for one connection to this server. It may block.
    ///
    /// # Errors
    /// `Invalid`, with the file that cannot be used; never with its content.
    pub(super) fn read(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        if self.is_empty() {
            return Ok(info);
        }
        let root_cert = match &self.ca {
            Some(path) => Some(pem("ca", path, "CERTIFICATE")?),
            None => None,
        };
        let client_tls = match &self.client {
            Some((certificate, key)) => Some(ClientTlsConfig {
                client_cert: pem("cert", certificate, "CERTIFICATE")?,
                client_key: pem("key", key, "PRIVATE KEY")?,
            }),
            None => None,
        };
        let certificates = TlsCertificates {
            client_tls,
            root_cert,
        };
        let client = Client::build_with_tls(info, certificates).map_err(|error| {
            Error::invalid(format!(
                "store URL refused: the certificates cannot be used {self}"
            ))
            .with_source(error)
        })?;
        Ok(client.get_connection_info().clone())
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client.as_ref();
        let paths = [
            self.ca.as_ref(),
            client.map(|(certificate, _)| certificate),
            client.map(|(_, key)| key),
        ];
        let named = Self::PARAMETERS.iter().zip(paths);
        let named = named.filter_map(|(name, path)| Some(format!("{name}={:?}", path?)));
        f.write_str(&named.collect::<Vec<_>>().join(" "))
    }
}

/// Reads a file that has an item of this kind in PEM form.
fn pem(parameter: &str, path: &Path, item: &str) -> Result<Vec<u8>, Error> {
    let failed =
        |why: &str| Error::invalid(format!("store URL refused: {why} {parameter}={path:?}"));
    let bytes = fs::read(path)
        .map_err(|error| failed("the certificate file cannot be read").with_source(error))?;
    let has = |text: &str| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    if has("BEGIN ENCRYPTED PRIVATE KEY") || has("Proc-Type: 4,ENCRYPTED") {
        return Err(failed(
            "the key is encrypted; expected a key without a passphrase",
        ));
    }
    // A PEM key may have the name of its algorithm before this.
    if !has(&format!("{item}-----")) {
        let item = item.to_lowercase();
        return Err(failed(&format!("the file has no {item} in PEM form")));
    }
    Ok(bytes)
}
