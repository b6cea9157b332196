//! Shared by all benches: a Redis server of its own, alternating blocks, and one line of output for each case.
#![expect(
    missing_docs,
    missing_debug_implementations,
    clippy::disallowed_methods,
    reason = "read beside its users, and never published; it times whole programs"
)]

pub mod alternating;
pub mod contender;
pub mod leases;
pub mod many;
pub mod postgres;
pub mod stores;
pub mod throughput;
pub mod zookeeper;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use deadpool_redis::redis::Client;
use deadpool_redis::redis::aio::MultiplexedConnection;
use tempfile::TempDir;

/// A server on a unix socket, ended on drop.
pub struct Server {
    process: Child,
    folder: TempDir,
}

impl Server {
    /// Starts the server and waits until it answers.
    pub async fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(folder.path().join("socket"))
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is missing: apt-get install -y redis-server");
        let server = Self { process, folder };
        for _ in 0..500 {
            if server.try_connect().await.is_some() {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("redis-server did not answer within five seconds");
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("redis+unix://{}/socket", self.folder.path().display())
    }

    /// Returns its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Opens a bare connection.
    pub async fn connect(&self) -> MultiplexedConnection {
        self.try_connect().await.expect("the server answers")
    }

    async fn try_connect(&self) -> Option<MultiplexedConnection> {
        let client = Client::open(self.url()).expect("a valid URL");
        client.get_multiplexed_async_connection().await.ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the median of the values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the seconds since then.
pub fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// Prints one case from its runs, each a pair of ours and the other: the medians, the median ratio and its spread.
pub fn case(name: &str, unit: &str, runs: &[(f64, f64)]) {
    let ours = median(runs.iter().map(|(ours, _)| *ours).collect());
    let other = median(runs.iter().map(|(_, other)| *other).collect());
    let ratios: Vec<f64> = runs.iter().map(|(ours, other)| ours / other).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    println!(
        "case={name} ours={ours:.3} other={other:.3} unit={unit} ratio={:.3} least={least:.3} most={most:.3} runs={}",
        median(ratios),
        runs.len()
    );
}

/// Prints one case that is not compared with anything.
pub fn figure(name: &str, unit: &str, runs: &[f64]) {
    let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = runs.iter().copied().fold(0.0, f64::max);
    println!(
        "case={name} ours={:.3} unit={unit} least={least:.3} most={most:.3} runs={}",
        median(runs.to_vec()),
        runs.len()
    );
}
