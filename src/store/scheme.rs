//! The schemes of stores on Redis or Valkey, some of which name several servers.

/// Returns the scheme of one server and the kind of several, `sentinel`, `cluster` or `quorum`, where a scheme of Redis
/// names several.
pub(super) fn several_servers(scheme: &str) -> Option<(&str, &str)> {
    let (of_one, several) = scheme.split_once('+')?;
    let is_known = ["redis", "rediss", "valkey", "valkeys"].contains(&of_one)
        && ["sentinel", "cluster", "quorum"].contains(&several);
    is_known.then_some((of_one, several))
}

/// Returns whether a scheme is that of a store on Redis or Valkey: on one server, or on several that are no quorum.
pub(super) fn is_of_redis(scheme: &str) -> bool {
    let of_one = [
        "redis",
        "rediss",
        "redis+unix",
        "valkey",
        "valkeys",
        "valkey+unix",
    ];
    let of_several = several_servers(scheme).is_some_and(|(_, kind)| kind != "quorum");
    of_one.contains(&scheme) || of_several
}
