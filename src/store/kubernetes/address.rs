//! The address of the leases: a namespace, and where the credentials for its cluster are.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use kube_client::Config;

use crate::error::{Error, ErrorKind};
use crate::store::kit::server_url::{Reason, ServerUrl};
use crate::store::record::SKEW;

const PARAMETERS: &[&str] = &["context", "kubeconfig", "skew"];

/// A namespace, and how its cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// `None`: that of the context, or of the pod.
    pub(super) namespace: Option<String>,
    /// The context of the kubeconfig; `None` for its current one.
    pub(super) context: Option<String>,
    /// `None`: `$KUBECONFIG` or `~/.kube/config`, and in a pod its service account.
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) skew: Duration,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// `Invalid`, with the reason and the form that was expected.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        Self::read(url).map_err(|why| {
            Error::invalid(format!(
                "store URL refused: {why}; expected kubernetes:NAMESPACE, with parameters among {}",
                PARAMETERS.join(", ")
            ))
        })
    }

    fn read(url: &str) -> Result<Self, Reason> {
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let read = ServerUrl::read(&format!("{scheme}://{rest}"))?;
        read.expect_only(PARAMETERS)?;
        if read.user.is_some() || read.password.is_some() {
            return Err("it has a login; the kubeconfig and the pod have the credentials".into());
        }
        let [(namespace, None)] = &read.hosts[..] else {
            return Err("it names more than a namespace".into());
        };
        if !read.path.is_empty() || !(namespace.is_empty() || is_label(namespace)) {
            return Err("its namespace has letters other than a-z, 0-9 and '-'".into());
        }
        Ok(Self {
            namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
            context: read.text("context"),
            kubeconfig: read.text("kubeconfig").map(Into::into),
            skew: read.seconds("skew", SKEW)?,
        })
    }
}

/// Returns whether a text can be the name of a namespace.
fn is_label(text: &str) -> bool {
    let is_plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= 63
        && ends.into_iter().flatten().all(is_plain)
        && text
            .bytes()
            .all(|letter| is_plain(letter) || letter == b'-')
}

/// The leases of a namespace, for people to read.
#[derive(Debug, Clone)]
pub(super) struct Location {
    pub(super) cluster: String,
    pub(super) namespace: String,
}

impl Location {
    /// # Errors
    /// `Misconfigured` if the namespace in the kubeconfig cannot be one.
    pub(super) fn new(address: &Address, config: &Config) -> Result<Self, Error> {
        let namespace = address.namespace.as_ref();
        let namespace = namespace.unwrap_or(&config.default_namespace).clone();
        if namespace.is_empty() || !is_label(&namespace) {
            let what =
                "open failed: the context's namespace can be that of nothing store=kubernetes";
            return Err(Error::new(ErrorKind::Misconfigured, what));
        }
        // Without a login that may stand before the host.
        let url = &config.cluster_url;
        let host = url.host().unwrap_or_default();
        let cluster = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Ok(Self { cluster, namespace })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kubernetes:{} at {}", self.namespace, self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_and_its_parameters_are_read() {
        for url in ["kubernetes:jobs", "kubernetes://jobs"] {
            let address = Address::parse(url).expect("in order");
            assert_eq!(address.namespace.as_deref(), Some("jobs"));
            assert_eq!((address.context, address.skew), (None, SKEW));
        }
        let all = "kubernetes:?context=test&kubeconfig=/etc/kube.conf&skew=3s";
        let address = Address::parse(all).expect("in order");
        assert_eq!(address.namespace, None);
        assert_eq!(address.context.as_deref(), Some("test"));
        assert_eq!(address.kubeconfig, Some("/etc/kube.conf".into()));
        assert_eq!(address.skew, Duration::from_secs(3));
    }

    #[test]
    fn another_form_is_refused_without_a_word_of_it() {
        for (url, said) in [
            ("kubernetes:Jobs", "letters other than"),
            ("kubernetes:-jobs", "letters other than"),
            ("kubernetes:a/b", "letters other than"),
            ("kubernetes:a,b", "more than a namespace"),
            ("kubernetes:a:443", "more than a namespace"),
            ("kubernetes:me:s3cret@a", "it has a login"),
            ("kubernetes:a?token=s3cret", "expected kubernetes:NAMESPACE"),
            ("kubernetes:a?skew=0s", "its skew"),
            ("kubernetes:a?skew=fast", "its skew"),
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(error.contains(said), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
