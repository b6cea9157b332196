//! What the members do, for as long as they live.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_redis::redis;
use leasehold::clock::{Boottime, Clock};
use leasehold::fence::redis::Fence;
use leasehold::{Client, Lease, OutagePolicy};
use rustix::process::{Signal, getpid, kill_process};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Result;
use super::member::{Role, TTL};
use super::tool;

/// Holds one of several names at a time, and the leader's name for as long as it can.
pub(crate) async fn hold(client: &Client, role: &Role) -> Result<()> {
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        let (client, mut random) = (client.clone(), random(role, task));
        tasks.spawn(async move {
            loop {
                let name = format!("shard-{}", random.u8(1..=6));
                let request = client.request(&name).on_outage(OutagePolicy::WaitOut);
                if let Ok(lease) = request.acquire_within(Duration::from_secs(5)).await {
                    work(lease, between(&mut random, 2_000, 8_000)).await;
                }
                sleep(between(&mut random, 100, 1_000)).await;
            }
        });
    }
    loop {
        let request = client.request("leader").on_outage(OutagePolicy::WaitOut);
        if let Ok(lease) = request.acquire().await {
            lease.lost().await;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Takes turns at one name.
pub(crate) async fn wait(client: &Client, role: &Role) -> Result<()> {
    let mut tasks = JoinSet::new();
    for task in 0..3 {
        let (client, mut random) = (client.clone(), random(role, task));
        tasks.spawn(async move {
            loop {
                let request = client.request("turnstile");
                if let Ok(lease) = request.on_outage(OutagePolicy::WaitOut).acquire().await {
                    work(lease, between(&mut random, 200, 800)).await;
                }
                sleep(between(&mut random, 100, 500)).await;
            }
        });
    }
    tasks.join_all().await;
    Ok(())
}

/// Adds to a total behind a fence. When it is ordered to, it is stopped between its check and its write.
pub(crate) async fn write(client: &Client, role: &Role, order: &AtomicBool) -> Result<()> {
    let redis = redis::Client::open(role.url.as_str())?;
    let fence = Fence::new("ledger")?;
    let mut random = random(role, 0);
    loop {
        let request = client.request("ledger");
        if let Ok(lease) = request.on_outage(OutagePolicy::WaitOut).acquire().await {
            // A server that is away, and a fence that refuses, fail this turn.
            let _ = add(&redis, &fence, &lease, order).await;
            work(lease, between(&mut random, 200, 600)).await;
        }
        sleep(between(&mut random, 100, 300)).await;
    }
}

async fn add(
    redis: &redis::Client,
    fence: &Fence,
    lease: &Lease,
    order: &AtomicBool,
) -> Result<()> {
    let mut connection = redis.get_multiplexed_async_connection().await?;
    fence.raise(&mut connection, lease).await?;
    let get = redis::cmd("GET").arg("total:{ledger}").to_owned();
    let total: Option<u64> = get.query_async(&mut connection).await?;
    let pass = lease.pass()?; // The last check: it is held.
    if order.swap(false, Ordering::Relaxed) {
        stand_still()?;
    }
    let mut commands = redis::pipe();
    commands.set("total:{ledger}", total.unwrap_or(0) + 1);
    loop {
        let written = fence.write::<(String,)>(&mut connection, &pass, &commands);
        match written.await {
            // Without an answer: with the same pass, and the same total, it can be written again.
            Err(error) if error.is_transient() => {
                connection = redis.get_multiplexed_async_connection().await?;
            }
            written => return Ok(written.map(drop)?),
        }
    }
}

/// Stops this process, and returns once it was resumed, which is much later. The signal takes effect some time after it
/// was sent, and until then nothing may be written.
fn stand_still() -> Result<()> {
    let sent = Boottime.now();
    kill_process(getpid(), Signal::STOP)?;
    while Boottime.now().since(sent) < TTL {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Runs jobs under the tool, one after the other, beside a service that serves its own metrics. When it is ordered to,
/// the next job fails.
pub(crate) fn jobs(role: &Role, order: &AtomicBool) -> Result<()> {
    let worker = Role {
        name: "worker".into(),
        ..role.clone()
    };
    std::thread::spawn(move || {
        loop {
            // It ends when it loses its lease, and is started again.
            let _ = serve(&worker);
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let mut random = random(role, 0);
    loop {
        for (name, longest) in [("backup", 1_500), ("report", 500)] {
            let length = between(&mut random, 100, longest).as_secs_f64();
            let end = if order.swap(false, Ordering::Relaxed) {
                3
            } else {
                0
            };
            run(role, name, &format!("sleep {length}; exit {end}"))?;
            std::thread::sleep(between(&mut random, 500, 2_000));
        }
    }
}

fn serve(role: &Role) -> Result<()> {
    let mut options = vec!["run", "--verbose", "--metrics", "0", "--group", "jobs"];
    options.extend(["worker", "--", "sleep", "86400"]);
    let mut process = tool::start(role, &options)?;
    while !process.has_ended()? {
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn run(role: &Role, name: &str, script: &str) -> Result<()> {
    let file = Path::new("jobs").join(format!("{name}.prom"));
    let ttl = format!("{}s", TTL.as_secs());
    Command::new(&role.tool)
        .current_dir(&role.folder)
        .args(["run", "--quiet", "--group", "jobs", "--ttl", &ttl])
        .arg("--metrics-file")
        .arg(file)
        .args([name, "--", "sh", "-c", script])
        .env("LEASEHOLD_STORE", &role.url)
        .env("XDG_RUNTIME_DIR", &role.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(())
}

/// Works for this long, or until the lease is lost.
async fn work(lease: Lease, length: Duration) {
    tokio::select! {
        () = sleep(length) => drop(lease.release().await),
        _ = lease.lost() => {}
    }
}

fn random(role: &Role, task: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(role.seed.wrapping_mul(100) + task)
}

/// A span of so many milliseconds.
fn between(random: &mut fastrand::Rng, least: u64, most: u64) -> Duration {
    Duration::from_millis(random.u64(least..=most))
}
