//! A server that accepts only TLS.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::redis_server::{RedisServer, Setup};

/// A running server with a self-signed certificate. It ends on drop.
pub(crate) struct TlsServer {
    pub(crate) port: u16,
    _server: RedisServer,
    certificate: Certificate,
}

/// A self-signed certificate for `localhost`, with its key.
pub(crate) struct Certificate {
    folder: TempDir,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        make_certificate(folder.path());
        Self { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// Gives both files to the user that a server runs as.
    pub(crate) fn give_to(&self, user: (u32, u32)) {
        for path in [self.folder.path(), &self.path(), &self.key()] {
            chown(path, Some(user.0), Some(user.1)).expect("root gives it away");
        }
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.folder.path(), mode).expect("root may");
    }
}

impl TlsServer {
    pub(crate) async fn start() -> Self {
        Self::asking_for_certificates(false).await
    }

    /// Starts a server that accepts only clients that show its own certificate.
    pub(crate) async fn of_known_clients() -> Self {
        Self::asking_for_certificates(true).await
    }

    async fn asking_for_certificates(is_asking: bool) -> Self {
        let made = Certificate::new();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let shown = |path: PathBuf| path.display().to_string();
        let (key, certificate) = (shown(made.key()), shown(made.path()));
        let setup = Setup::default()
            .with(["--tls-port", &port.to_string()])
            .with(["--tls-auth-clients", if is_asking { "yes" } else { "no" }])
            .with(["--tls-key-file", &key])
            .with(["--tls-cert-file", &certificate])
            .with(["--tls-ca-cert-file", &certificate]);
        Self {
            port,
            _server: setup.start().await,
            certificate: made,
        }
    }

    /// Returns the URL for a client that trusts only the usual web roots.
    pub(crate) fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }

    /// Returns the URL for a client that was given the certificate.
    pub(crate) fn trusting_url(&self) -> String {
        format!("{}?ca={}", self.url(), self.certificate().display())
    }

    /// Returns the URL for a client that shows the certificate in this folder: `certificate.pem` and `key.pem`.
    pub(crate) fn url_showing(&self, folder: &Path) -> String {
        let file = |name: &str| folder.join(name).display().to_string();
        let (certificate, key) = (file("certificate.pem"), file("key.pem"));
        format!("{}&cert={certificate}&key={key}", self.trusting_url())
    }

    /// Copies its own certificate and key to this folder.
    pub(crate) fn hand_out(&self, folder: &Path) {
        for file in ["certificate.pem", "key.pem"] {
            fs::copy(self.certificate.folder.path().join(file), folder.join(file))
                .expect("the folder is ours");
        }
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.certificate.path()
    }
}

/// Makes a self-signed certificate for `localhost`.
pub(crate) fn make_certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"])
        .args(["-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(folder.join("key.pem"))
        .arg("-out")
        .arg(folder.join("certificate.pem"))
        .output()
        .expect("missing openssl: apt-get install -y openssl");
    assert!(made.status.success(), "{made:?}");
    assert!(fs::exists(folder.join("certificate.pem")).expect("the folder is ours"));
}
