//! The servers of the ensemble that answer.

use std::io;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::store::kit::budget::Budget;
use crate::store::{Member, MemberState};

/// Asks each server about itself. One that does not answer in time is down.
pub(super) async fn ask_each(servers: &[String], budget: Budget) -> Vec<Member> {
    let asked = servers.iter().map(|server| async move {
        let answer = timeout(budget.left(), ask(server)).await.ok();
        let answer = answer.and_then(Result::ok).unwrap_or_default();
        let (state, version) = read_answer(&answer);
        Member::new(server.clone(), state).with_version(version)
    });
    join_all(asked).await
}

/// Returns a server's report about itself.
async fn ask(server: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(server).await?;
    connection.write_all(b"srvr").await?;
    let mut answer = String::new();
    let mut connection = connection.take(64 * 1024);
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Returns whether the server serves, and its version. One that forbids the question at least answers; the answer of
/// one that does not is empty.
fn read_answer(answer: &str) -> (MemberState, Option<String>) {
    if answer.is_empty() || answer.contains("not currently serving") {
        return (MemberState::Down, None);
    }
    let mut lines = answer.lines();
    let version = lines.find_map(|line| line.strip_prefix("Zookeeper version: "));
    let number = version.and_then(|version| version.split(['-', ',']).next());
    (
        MemberState::Up,
        number.map(|number| format!("ZooKeeper {number}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_whether_it_serves_and_what_it_is() {
        let up = "Zookeeper version: 3.8.0-5a02, built on 2022\nMode: leader\n";
        let (state, version) = read_answer(up);
        assert_eq!(state, MemberState::Up);
        assert_eq!(version.as_deref(), Some("ZooKeeper 3.8.0"));
        let forbidden = "srvr is not executed because it is not in the whitelist.\n";
        assert_eq!(read_answer(forbidden), (MemberState::Up, None));
        let electing = "This ZooKeeper instance is not currently serving requests\n";
        for answer in ["", electing] {
            assert_eq!(read_answer(answer), (MemberState::Down, None));
        }
    }
}
