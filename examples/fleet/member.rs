//! A member of the fleet: a process with a role, which serves its metrics and takes orders.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::Client;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::{Result, scrape, work};

/// Tells a process that it is a member; the text of its role.
pub(crate) const ROLE: &str = "FLEET_ROLE";

/// How long leases last. Short, so that faults show soon.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// Where the writers' fence is.
pub(crate) const FENCE_KEY: &str = "leasehold:fence:{ledger}";

/// What a member is and needs.
#[derive(Debug, Clone)]
pub(crate) struct Role {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) seed: u64,
    pub(crate) folder: PathBuf,
    pub(crate) tool: PathBuf,
}

impl Role {
    pub(crate) fn text(&self) -> String {
        let (folder, tool) = (self.folder.display(), self.tool.display());
        format!(
            "{}\n{}\n{}\n{folder}\n{tool}",
            self.name, self.url, self.seed
        )
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::to_owned);
        Some(Self {
            name: lines.next()?,
            url: lines.next()?,
            seed: lines.next()?.parse().ok()?,
            folder: lines.next()?.into(),
            tool: lines.next()?.into(),
        })
    }
}

/// The role of this process, if it is a member.
pub(crate) fn role() -> Option<Role> {
    Role::read(&std::env::var(ROLE).ok()?)
}

/// Plays this role for as long as the fleet lives.
pub(crate) fn run(role: &Role) -> Result<()> {
    let order = listen();
    let kind = role.name.split('-').next().unwrap_or_default().to_owned();
    if kind == "jobs" {
        let folder = role.folder.join("jobs");
        std::fs::create_dir_all(&folder)?;
        let address = scrape::serve(move || text_files(&folder))?;
        scrape::announce(&role.folder, &role.name, &address.to_string())?;
        return work::jobs(role, &order);
    }
    let exporter = install()?;
    let address = scrape::serve(move || {
        leasehold::metrics::update();
        exporter.run_upkeep();
        exporter.render()
    })?;
    scrape::announce(&role.folder, &role.name, &address.to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match kind.as_str() {
            "holder" => work::hold(&client(role, "shards").await?, role).await,
            "waiter" => work::wait(&client(role, "turnstile").await?, role).await,
            "writer" => work::write(&client(role, "ledger").await?, role, &order).await,
            _ => Err(format!("{} is no role", role.name).into()),
        }
    })
}

/// Ends this process when the fleet does, and remembers that an order came.
fn listen() -> Arc<AtomicBool> {
    let order = Arc::new(AtomicBool::new(false));
    let heard = order.clone();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(|line| line.ok()) {
            heard.store(true, Ordering::Relaxed);
        }
        exit(0);
    });
    order
}

async fn client(role: &Role, group: &str) -> Result<Client> {
    let builder = Client::builder().store_url(&role.url).ttl(TTL);
    let builder = builder.group(group).label(&role.name).names_in_metrics(20);
    Ok(builder.build().await?)
}

fn install() -> Result<PrometheusHandle> {
    let mut builder = PrometheusBuilder::new();
    for (name, bounds) in leasehold::metrics::buckets() {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.into()), bounds)?;
    }
    Ok(builder.install_recorder()?)
}

/// The metrics of all jobs, as node_exporter's textfile collector shows them: one family after the other.
fn text_files(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = files.map(|file| file.path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "prom"));
    let mut families: BTreeMap<String, (String, String)> = BTreeMap::new();
    for text in files.filter_map(|path| std::fs::read_to_string(path).ok()) {
        let mut family = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# ") {
                family = rest.split(' ').nth(1).unwrap_or_default().into();
                let head = &mut families.entry(family.clone()).or_default().0;
                if !head.contains(line) {
                    *head += &format!("{line}\n");
                }
            } else {
                families.entry(family.clone()).or_default().1 += &format!("{line}\n");
            }
        }
    }
    // What is not of one job is in each file.
    let own = families.into_iter();
    let own = own.filter(|(family, _)| family.starts_with("leasehold_run_"));
    own.map(|(_, (head, series))| head + &series).collect()
}
