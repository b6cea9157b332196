//! The address of the leases: a bucket, the prefix of their keys, and where the bucket is.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::store::kit::server_url::{Reason, ServerUrl};
use crate::store::record::SKEW;

/// Interval between polls of a waiting client. One that waits for a month costs a dollar at the list prices of S3.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The prefix of the keys by default.
const PREFIX: &str = "leasehold";

const PARAMETERS: &[&str] = &[
    "credentials",
    "endpoint",
    "poll",
    "profile",
    "region",
    "skew",
];

/// A bucket of S3 or of a server like it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) bucket: String,
    pub(super) prefix: String,
    /// The URL of the server; `None` for that of the environment, or Amazon's.
    pub(super) endpoint: Option<String>,
    pub(super) region: Option<String>,
    /// The file of the credentials; `None` for those of the environment.
    pub(super) credentials: Option<PathBuf>,
    /// Their section in it.
    pub(super) profile: String,
    pub(super) skew: Duration,
    pub(super) look_every: Duration,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// `Invalid`; the message has no part of the URL that could be a secret.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        Self::read(url).map_err(|why| {
            Error::invalid(format!(
                "store URL refused: {why}; expected s3://BUCKET/PREFIX, with parameters among {}",
                PARAMETERS.join(", ")
            ))
        })
    }

    fn read(url: &str) -> Result<Self, Reason> {
        let read = ServerUrl::read(url)?;
        read.expect_only(PARAMETERS)?;
        if read.user.is_some() || read.password.is_some() {
            return Err(
                "it has a login; credentials are read from AWS_ACCESS_KEY_ID and its like, or from the file that credentials= names".into(),
            );
        }
        let [(bucket, None)] = &read.hosts[..] else {
            return Err("it names more than a bucket".into());
        };
        let prefix = match read.path.trim_matches('/') {
            "" => PREFIX,
            prefix => prefix,
        };
        check_prefix(prefix)?;
        let endpoint = read.text("endpoint");
        if endpoint.as_ref().is_some_and(|at| !at.starts_with("http")) {
            return Err("its endpoint begins neither with http:// nor with https://".into());
        }
        if bucket.is_empty() {
            return Err("it names no bucket".into());
        }
        Ok(Self {
            bucket: bucket.clone(),
            prefix: prefix.into(),
            endpoint,
            region: read.text("region"),
            credentials: read.text("credentials").map(Into::into),
            profile: read.text("profile").unwrap_or_else(|| "default".into()),
            skew: read.seconds("skew", SKEW)?,
            look_every: read.seconds("poll", LOOK_EVERY)?,
        })
    }
}

/// Refuses a prefix with a part that would be dropped or lead upwards.
pub(super) fn check_prefix(prefix: &str) -> Result<(), Reason> {
    let is_bad = |part: &str| part.is_empty() || part == "." || part == "..";
    match prefix.split('/').any(is_bad) || prefix.chars().any(char::is_control) {
        true => Err("its prefix has an empty part, or one of dots".into()),
        false => Ok(()),
    }
}

/// The leases of a bucket, for people to read.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)?;
        match &self.endpoint {
            Some(endpoint) => write!(f, "?endpoint={endpoint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_and_its_parameters_are_read() {
        let address = Address::parse("s3://jobs").expect("in order");
        assert_eq!(
            (address.bucket.as_str(), address.prefix.as_str()),
            ("jobs", PREFIX)
        );
        assert_eq!((address.skew, address.look_every), (SKEW, LOOK_EVERY));
        let all = "s3://jobs/a/b/?endpoint=http://127.0.0.1:9000&region=eu-west-1&skew=2s&poll=5s";
        let address = Address::parse(all).expect("in order");
        assert_eq!(address.prefix, "a/b");
        assert_eq!(address.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!(address.region.as_deref(), Some("eu-west-1"));
        assert_eq!(address.look_every, Duration::from_secs(5));
        assert_eq!(
            address.to_string(),
            "s3://jobs/a/b?endpoint=http://127.0.0.1:9000"
        );
    }

    #[test]
    fn another_form_is_refused_without_a_word_of_it() {
        for (url, said) in [
            ("s3://", "no bucket"),
            ("s3://a,b", "more than a bucket"),
            ("s3://key:s3cret@a", "it has a login"),
            ("s3://a?secret=s3cret", "expected s3://BUCKET/PREFIX"),
            ("s3://a/b//c", "an empty part"),
            ("s3://a/../c", "one of dots"),
            ("s3://a?endpoint=127.0.0.1", "its endpoint"),
            ("s3://a?poll=0s", "its poll"),
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(error.contains(said), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
