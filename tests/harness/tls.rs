//! A server that accepts only TLS.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::redis_server::{RedisServer, Setup};

/// A running server with a self-signed certificate. It ends on drop.
pub struct TlsServer {
    server: RedisServer,
    certificate: Certificate,
}

/// A certificate with its key and the certificate of its authority, which may be itself.
pub struct Certificate {
    folder: TempDir,
}

/// An authority that signs certificates, as a company has one.
pub struct Authority {
    folder: TempDir,
}

impl Authority {
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        make(
            folder.path(),
            "authority",
            &["basicConstraints=critical,CA:TRUE"],
            &[],
        );
        Self { folder }
    }

    /// Signs a new certificate for a server or a client of this name or address.
    pub fn issue(&self, name: &str) -> Certificate {
        let folder = TempDir::new().expect("a temporary folder");
        let own = |file: &str| self.folder.path().join(file).display().to_string();
        let (certificate, key) = (own("certificate.pem"), own("key.pem"));
        let signed = ["-CA", &certificate, "-CAkey", &key];
        make(folder.path(), name, &extensions(name), &signed);
        fs::copy(certificate, folder.path().join("authority.pem")).expect("the folder is ours");
        Certificate { folder }
    }

    /// The file that those trust who trust this authority.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }
}

impl Certificate {
    /// Makes a self-signed certificate for `localhost`.
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        make_certificate(folder.path());
        let files = ["certificate.pem", "authority.pem"].map(|file| folder.path().join(file));
        fs::copy(&files[0], &files[1]).expect("the folder is ours");
        Self { folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// The certificate of the authority that signed it.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// The parameters of a URL whose client shows it.
    pub fn shown(&self) -> String {
        format!(
            "cert={}&key={}",
            self.path().display(),
            self.key().display()
        )
    }

    /// Returns the settings of a server that shows it, also to other servers. If it is asking, clients must show a
    /// certificate of the same authority.
    pub fn settings(&self, is_asking: bool) -> Vec<String> {
        let shown = |path: PathBuf| path.display().to_string();
        let settings = [
            ("--tls-key-file", shown(self.key())),
            ("--tls-cert-file", shown(self.path())),
            ("--tls-ca-cert-file", shown(self.authority())),
            (
                "--tls-auth-clients",
                if is_asking { "yes" } else { "no" }.into(),
            ),
            ("--tls-replication", "yes".into()),
            ("--tls-cluster", "yes".into()),
        ];
        let settings = settings.into_iter();
        settings
            .flat_map(|(name, value)| [name.into(), value])
            .collect()
    }

    /// Copies certificate and key to this folder.
    pub fn hand_out(&self, folder: &Path) {
        for file in ["certificate.pem", "key.pem"] {
            fs::copy(self.folder.path().join(file), folder.join(file)).expect("the folder is ours");
        }
    }

    /// Gives the files to the user that a server runs as.
    pub fn give_to(&self, user: (u32, u32)) {
        for path in [
            self.folder.path(),
            &self.path(),
            &self.key(),
            &self.authority(),
        ] {
            chown(path, Some(user.0), Some(user.1)).expect("root gives it away");
        }
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.folder.path(), mode).expect("root may");
    }
}

impl TlsServer {
    pub async fn start() -> Self {
        Self::with(Certificate::new(), false).await
    }

    /// Starts a server that accepts only clients that show its own certificate.
    pub async fn of_known_clients() -> Self {
        Self::with(Certificate::new(), true).await
    }

    /// Starts a server with this certificate, which accepts only clients of the same authority if `is_asking`.
    pub async fn with(made: Certificate, is_asking: bool) -> Self {
        Self {
            server: Setup::default().with_tls(&made, is_asking).start().await,
            certificate: made,
        }
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Returns the URL for a client that trusts only the usual web roots.
    pub fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port())
    }

    /// Returns the URL for a client that was given the certificate.
    pub fn trusting_url(&self) -> String {
        format!("{}?ca={}", self.url(), self.certificate().display())
    }

    /// Returns the URL for a client that shows the certificate in this folder: `certificate.pem` and `key.pem`.
    pub fn url_showing(&self, folder: &Path) -> String {
        let file = |name: &str| folder.join(name).display().to_string();
        let (certificate, key) = (file("certificate.pem"), file("key.pem"));
        format!("{}&cert={certificate}&key={key}", self.trusting_url())
    }

    /// Copies its own certificate and key to this folder.
    pub fn hand_out(&self, folder: &Path) {
        self.certificate.hand_out(folder);
    }

    pub fn certificate(&self) -> PathBuf {
        self.certificate.path()
    }
}

/// Makes a self-signed certificate for `localhost`.
pub fn make_certificate(folder: &Path) {
    make(folder, "localhost", &extensions("localhost"), &[]);
}

fn extensions(name: &str) -> [String; 2] {
    [
        match name.parse::<IpAddr>() {
            Ok(address) => format!("subjectAltName=IP:{address}"),
            Err(_) => format!("subjectAltName=DNS:{name}"),
        },
        "basicConstraints=critical,CA:FALSE".into(),
    ]
}

fn make(folder: &Path, name: &str, extensions: &[impl AsRef<str>], signed: &[&str]) {
    let mut command = Command::new("openssl");
    command
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"])
        .args(["-subj", &format!("/CN={name}")])
        .args(signed);
    for extension in extensions {
        command.args(["-addext", extension.as_ref()]);
    }
    let made = command
        .arg("-keyout")
        .arg(folder.join("key.pem"))
        .arg("-out")
        .arg(folder.join("certificate.pem"))
        .output()
        .expect("missing openssl: apt-get install -y openssl");
    assert!(made.status.success(), "{made:?}");
    assert!(fs::exists(folder.join("certificate.pem")).expect("the folder is ours"));
}
