//! Whether each server answers and takes part in grants.

use futures_util::future::try_join_all;

use super::Redis;
use super::connection::server::Server;
use super::failure::Failure;
use super::hazards::{Fields, lines, quiet};
use crate::store::kit::budget::Budget;
use crate::store::kit::connection::is_transient;
use crate::store::{Member, MemberState};

/// Returns whether each server answers and takes part, and its version if it shows it.
pub(super) async fn ask_each(redis: &Redis, budget: Budget) -> Result<Vec<Member>, Failure> {
    let servers = redis.fleet.servers(budget).await?;
    let node = redis.keys.node().to_string();
    let seen = servers.iter().map(|server| ask(server, &node, budget));
    try_join_all(seen).await
}

async fn ask(server: &Server, node: &str, budget: Budget) -> Result<Member, Failure> {
    let read = async {
        let commands: [&[&str]; 3] = [&["INFO"], &["HGET", node, "ready"], &["TIME"]];
        let [info, ready, clock] = server.ask_each(commands, budget).await?;
        let info = info.map(|reply| lines(&reply)).unwrap_or_default();
        let state = match info.get("role").map(String::as_str) {
            Some("slave") => MemberState::Standby,
            _ => match quiet(ready, &clock?)? {
                Some(remaining) if !remaining.is_zero() => MemberState::Away { remaining },
                _ => MemberState::Up,
            },
        };
        Ok::<_, Failure>((state, version(&info)))
    };
    let (state, version) = match read.await {
        Err(failure) if is_transient(&failure) => (MemberState::Down, None),
        read => read?,
    };
    let location = server.connector().address.to_string();
    Ok(Member::new(location, state).with_version(version))
}

/// Returns the server's name and version. Valkey shows the version of Redis with its own.
fn version(info: &Fields) -> Option<String> {
    let [valkey, redis] = ["valkey_version", "redis_version"].map(|key| info.get(key));
    let valkey = valkey.map(|version| format!("Valkey {version}"));
    valkey.or_else(|| redis.map(|version| format!("Redis {version}")))
}
