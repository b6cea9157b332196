//! TLS of the connections to servers: what they trust, what they show, and which name they check. The stores that speak
//! TLS share this, so that the settings and their errors are the same for all of them.
//!
//! The files are read again for each connection, because certificates are replaced while the process runs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use crate::error::Error;

/// The TLS settings of a store: which authorities it trusts, which certificate it shows, and which name it expects the
/// server to have.
///
/// The server's certificate and its name are always checked; no setting turns that off. Each setting is taken from the
/// first of these that has it:
///
/// | | the URL | the builder | the environment |
/// |---|---|---|---|
/// | trusted authorities | `ca=FILE` | [`ca`](Self::ca) | `LEASEHOLD_TLS_CA=FILE` |
/// | the system's own roots | `ca=system` | [`system_roots`](Self::system_roots) | `LEASEHOLD_TLS_CA=system` |
/// | client certificate | `cert=FILE` | [`client_certificate`](Self::client_certificate) | `LEASEHOLD_TLS_CERT=FILE` |
/// | its key | `key=FILE` | the same | `LEASEHOLD_TLS_KEY=FILE` |
/// | name of the server | `server_name=NAME` | [`server_name`](Self::server_name) | `LEASEHOLD_TLS_SERVER_NAME=NAME` |
///
/// A certificate and its key are one setting and come from the same source. Without any setting a store trusts the
/// usual web roots, shows no certificate, and expects the name of the host that it connects to.
///
/// The variables are read when a store is made, by the library as well as by the tool, so that an operator can set them
/// for every program of a machine. Like libpq's `PGSSLROOTCERT` they only say how TLS is done: whether it is used, the
/// URL decides, and a store without TLS ignores them. One that is set and empty is refused. In a URL without TLS, or
/// for one in a builder, these settings are an error.
///
/// All files are in PEM form. They are read when the store is made, so that a bad file is found then, and again for
/// each connection, so that files that are replaced in time need no restart. The key must not be encrypted. `ca=system`
/// reads the certificates that OpenSSL would use, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`; a file of the name
/// `system` is `./system`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "settings do nothing until a builder gets them"]
pub struct Tls {
    roots: Option<Setting>,
    /// The certificate and its key.
    client: Option<[Setting; 2]>,
    server_name: Option<Setting>,
}

/// A value, and its name where it was set, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    label: &'static str,
    value: OsString,
}

type Chain = Vec<CertificateDer<'static>>;

impl Tls {
    /// The parameters of a URL that are settings of TLS.
    pub(crate) const PARAMETERS: [&str; 4] = ["ca", "cert", "key", "server_name"];
    const VARIABLES: [&str; 4] = [
        "LEASEHOLD_TLS_CA",
        "LEASEHOLD_TLS_CERT",
        "LEASEHOLD_TLS_KEY",
        "LEASEHOLD_TLS_SERVER_NAME",
    ];
    /// The value that stands for the roots of the operating system.
    const SYSTEM: &str = "system";

    /// Returns settings that leave everything to the environment and the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificates in this PEM file, and no others.
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        let mut file = file.into();
        // Only a URL or a variable means the operating system by this word.
        if file == Path::new(Self::SYSTEM) {
            file = Path::new(".").join(file);
        }
        self.roots = Some(Setting::new("ca", file));
        self
    }

    /// Trusts the roots of the operating system instead of the usual web roots.
    pub fn system_roots(mut self) -> Self {
        self.roots = Some(Setting::new("ca", Self::SYSTEM));
        self
    }

    /// Shows this certificate to a server that asks for one. The PEM file has the certificate first, and then the
    /// certificates of the authorities in between, if there are any; the key must not be encrypted.
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let certificate = Setting::new("cert", certificate.into());
        self.client = Some([certificate, Setting::new("key", key.into())]);
        self
    }

    /// Expects this name in the server's certificate, and sends it to the server (SNI), instead of the name of the host
    /// that the store connects to.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(Setting::new("server_name", name.into()));
        self
    }

    /// Returns the settings that a URL has.
    ///
    /// # Errors
    /// `Invalid` for half of a client certificate.
    pub(crate) fn of_url(find: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        Self::of(Self::PARAMETERS, |label| find(label).map(OsString::from))
    }

    /// Returns the settings of the environment.
    ///
    /// # Errors
    /// `Invalid` for half of a client certificate, and for a variable that is set and empty: it may be meant for
    /// another authority than the usual ones.
    pub(crate) fn of_environment() -> Result<Self, Error> {
        let is_empty = |variable| std::env::var_os(variable).is_some_and(|value| value.is_empty());
        if let Some(empty) = Self::VARIABLES
            .into_iter()
            .find(|variable| is_empty(*variable))
        {
            return Err(refused(format_args!("{empty} is set and empty: unset it")));
        }
        Self::of(Self::VARIABLES, |variable| std::env::var_os(variable))
    }

    fn of(
        labels: [&'static str; 4],
        find: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Error> {
        let find = |label| find(label).map(|value| Setting { label, value });
        let [roots, certificate, key, server_name] = labels.map(find);
        let client = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some([certificate, key]),
            _ => {
                let [_, certificate, key, _] = labels;
                return Err(refused(format_args!(
                    "a client certificate needs both {certificate} and {key}"
                )));
            }
        };
        Ok(Self {
            roots,
            client,
            server_name,
        })
    }

    /// Fills the absent settings with these.
    pub(crate) fn or(self, others: Self) -> Self {
        Self {
            roots: self.roots.or(others.roots),
            client: self.client.or(others.client),
            server_name: self.server_name.or(others.server_name),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the name that is expected of a server at this host.
    pub(crate) fn name_of<'a>(&'a self, host: &'a str) -> &'a str {
        let named = self.server_name.as_ref();
        named.and_then(|named| named.value.to_str()).unwrap_or(host)
    }

    /// Returns the certificates of the trusted authorities, for a driver that makes its TLS itself; `None` for the usual
    /// ones. It may block.
    ///
    /// # Errors
    /// Those of [`config`](Self::config), which also checks each of them.
    #[cfg(feature = "mysql")]
    pub(crate) fn authorities(&self) -> Result<Option<Chain>, Error> {
        let is_usable = |certificate: &CertificateDer<'static>| {
            RootCertStore::empty().add(certificate.clone()).is_ok()
        };
        let system = || rustls_native_certs::load_native_certs().certs.into_iter();
        match &self.roots {
            None => Ok(None),
            Some(file) if file.value == Self::SYSTEM => {
                Ok(Some(system().filter(is_usable).collect()))
            }
            Some(file) => read_certificates(file).map(Some),
        }
    }

    /// Returns the files of the client certificate and of its key.
    #[cfg(feature = "mysql")]
    pub(crate) fn client_files(&self) -> Option<[&Path; 2]> {
        let files = self.client.as_ref();
        files.map(|files| files.each_ref().map(|file| Path::new(&file.value)))
    }

    /// Checks everything, reads the files, and returns the settings of a connection. It may block.
    ///
    /// # Errors
    /// `Invalid`, with the setting that cannot be used, also by the program's own cryptography; never with the content
    /// of a file.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        if let Some(Setting { label, value }) = &self.server_name {
            let name =
                (value.to_str()).ok_or_else(|| refused(format_args!("{label} is not UTF-8")))?;
            ServerName::try_from(name).map_err(|error| {
                let expected = "expected the name of a host or an IP address";
                refused(format_args!("{expected} {label}={value:?}")).with_source(error)
            })?;
        }
        let roots = match &self.roots {
            Some(file) => read_roots(file)?,
            None => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
        };
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| {
                refused("the process's cryptography cannot be used").with_source(error)
            })?
            .with_root_certificates(roots);
        Ok(Arc::new(match &self.client {
            Some(files) => show(files, config)?,
            None => config.with_no_client_auth(),
        }))
    }

    /// Does the same on a thread that may block, with the files as they are now.
    ///
    /// # Errors
    /// The reason. The files could be read when the store was made, so one is probably being replaced.
    pub(crate) async fn config_now(&self) -> Result<Arc<ClientConfig>, String> {
        let tls = self.clone();
        match tokio::task::spawn_blocking(move || tls.config()).await {
            Ok(config) => config.map_err(|error| format!("{error:#}")),
            Err(_) => Err("the runtime that was connecting ended".into()),
        }
    }
}

impl Setting {
    fn new(label: &'static str, value: impl Into<OsString>) -> Self {
        let value = value.into();
        Self { label, value }
    }

    /// Makes the error for this file: what is wrong, and what was expected.
    fn refused(&self, why: &str) -> Error {
        let Self { label, value } = self;
        refused(format_args!("{why} {label}={value:?}"))
    }
}

/// Returns the cryptography that the program has chosen, or our own if it has chosen none.
fn provider() -> Arc<CryptoProvider> {
    match CryptoProvider::get_default() {
        Some(chosen) => chosen.clone(),
        None => Arc::new(ring::default_provider()),
    }
}

/// Shows the certificate in the first of these files, under the key in the second.
fn show(
    files: &[Setting; 2],
    config: ConfigBuilder<ClientConfig, WantsClientCert>,
) -> Result<ClientConfig, Error> {
    let [certificate, key] = files;
    let (chain, private) = (read_certificates(certificate)?, read_key(key)?);
    config.with_client_auth_cert(chain, private).map_err(|error| {
        refused(format_args!(
            "the certificate and the key cannot be used together; expected the key of this certificate \
             {}={:?} {}={:?}",
            certificate.label, certificate.value, key.label, key.value
        ))
        .with_source(error)
    })
}

fn read_roots(file: &Setting) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    if file.value != Tls::SYSTEM {
        for certificate in read_certificates(file)? {
            roots.add(certificate).map_err(|_| {
                file.refused(
                    "a certificate of an authority cannot be used; expected X.509 version 3 certificates",
                )
            })?;
        }
        return Ok(roots);
    }
    // A certificate that cannot be read is left out, as everywhere on such a system; one is enough.
    let found = rustls_native_certs::load_native_certs();
    if let (1.., _) = roots.add_parsable_certificates(found.certs) {
        return Ok(roots);
    }
    let error = file.refused(
        "the operating system has no certificates; expected them where OpenSSL looks, or in SSL_CERT_FILE or \
         SSL_CERT_DIR",
    );
    Err(match found.errors.into_iter().next() {
        Some(cause) => error.with_source(cause),
        None => error,
    })
}

fn read_certificates(file: &Setting) -> Result<Chain, Error> {
    const EXPECTED: &str = "expected a file with certificates in PEM form";
    let bytes = read(file, EXPECTED)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(file.refused(&format!("the file has no certificate; {EXPECTED}")))
        }
        Ok(certificates) => Ok(certificates),
        // The parser's own error would repeat parts of the file.
        Err(_) => Err(file.refused(&format!("the file cannot be parsed; {EXPECTED}"))),
    }
}

fn read_key(file: &Setting) -> Result<PrivateKeyDer<'static>, Error> {
    const EXPECTED: &str = "expected a file with a key in PEM form, without a passphrase";
    let bytes = read(file, EXPECTED)?;
    let has = |text: &str| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    if has("BEGIN ENCRYPTED PRIVATE KEY") || has("Proc-Type: 4,ENCRYPTED") {
        return Err(file.refused(&format!("the key is encrypted; {EXPECTED}")));
    }
    let key = PrivateKeyDer::from_pem_slice(&bytes);
    key.map_err(|_| file.refused(&format!("the file has no key; {EXPECTED}")))
}

fn read(file: &Setting, expected: &str) -> Result<Vec<u8>, Error> {
    fs::read(&file.value).map_err(|error| {
        file.refused(&format!("the file cannot be read; {expected}"))
            .with_source(error)
    })
}

fn refused(why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("TLS settings refused: {why}"))
}
