//! The schemes of stores on Redis or Valkey that name several servers.

use crate::kinds;

/// Returns the scheme of one server and the kind of several, `sentinel`, `cluster` or `quorum`, where a scheme of Redis
/// names several.
pub(super) fn several_servers(scheme: &str) -> Option<(&str, &str)> {
    let (of_one, several) = scheme.split_once('+')?;
    let is_known = kinds::schemes().any(|known| known == scheme);
    (is_known && several != "unix").then_some((of_one, several))
}
