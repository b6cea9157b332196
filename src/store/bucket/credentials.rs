//! Credentials from a file, as `aws configure` writes it.

use std::path::Path;

use crate::error::{Error, ErrorKind};

/// The credentials that sign requests.
pub(super) struct Credentials {
    pub(super) key_id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

impl Credentials {
    /// Reads the section of this name.
    ///
    /// # Errors
    /// `Misconfigured` for a file that cannot be read, or lacks the section or its keys; nothing of it is in the
    /// message.
    pub(super) async fn read(path: &Path, profile: &str) -> Result<Self, Error> {
        let refused = |why: String| {
            let shown = path.display();
            let what = format!("open failed: the file of credentials {why} path={shown}");
            Error::new(ErrorKind::Misconfigured, what)
        };
        let read = tokio::fs::read_to_string(path).await;
        let text = read.map_err(|error| refused("cannot be read".into()).with_source(error))?;
        let of = |key| value(&text, profile, key);
        match (of("aws_access_key_id"), of("aws_secret_access_key")) {
            (Some(key_id), Some(secret)) => Ok(Self {
                key_id,
                secret,
                token: of("aws_session_token"),
            }),
            _ => Err(refused(format!(
                "has no section [{profile}] with aws_access_key_id and aws_secret_access_key"
            ))),
        }
    }
}

/// Returns the value of this key in this section.
fn value(text: &str, section: &str, key: &str) -> Option<String> {
    let lines = text.lines().map(str::trim);
    let from = lines.skip_while(|line| {
        let name = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'));
        name.map(str::trim) != Some(section)
    });
    let of_section = from.skip(1).take_while(|line| !line.starts_with('['));
    let mut pairs = of_section.filter_map(|line| line.split_once('='));
    let (_, value) = pairs.find(|(known, _)| known.trim() == key)?;
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_section_are_read() {
        let text = "# two\n[default]\naws_access_key_id = A\naws_secret_access_key=s=1\n\n[ other ]\naws_access_key_id=B\n";
        assert_eq!(
            value(text, "default", "aws_access_key_id").as_deref(),
            Some("A")
        );
        assert_eq!(
            value(text, "default", "aws_secret_access_key").as_deref(),
            Some("s=1")
        );
        assert_eq!(
            value(text, "other", "aws_access_key_id").as_deref(),
            Some("B")
        );
        assert_eq!(value(text, "other", "aws_secret_access_key"), None);
        assert_eq!(value(text, "default", "aws_session_token"), None);
        assert_eq!(value(text, "third", "aws_access_key_id"), None);
    }
}
