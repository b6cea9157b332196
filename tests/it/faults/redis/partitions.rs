//! A master or a primary is cut off together with the holder of leases, while all other servers meet elsewhere, with a rival.
//!
//! A replica takes over. The old master goes on for as long as its settings let it, and renews what the rival is granted at
//! the new one. Only acknowledged grants end the leases before that.

use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::{Token, store};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, channel};

use super::holder::Holder;
use crate::harness::alone::test_of;
use crate::harness::network::{Host, in_own_network};
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::redis_group::RedisGroup;
use crate::harness::rivalry::ask_for_all;
use crate::harness::wait::{at, now};

const TTL: Duration = Duration::from_secs(6);
/// How long a failover and the end of what the replica has of the leases may take, on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// A holder and a rival, and the host that is cut off with the holder.
struct Sides<'a> {
    case: &'a str,
    runtime: &'a Runtime,
    host: &'a Host,
    names: Vec<String>,
    holder: Holder,
    grants: Receiver<(usize, Token, Instant)>,
    cut_off_at: Instant,
}

/// How long both had a name, and which it is.
type Overlap<'a> = (&'a str, Duration);

impl<'a> Sides<'a> {
    /// Lets the holder take these names, and the rival ask for them. Then cuts the holder off, just before the first of
    /// the names would be renewed.
    fn cut_off(
        case: &'a str,
        runtime: &'a Runtime,
        host: &'a Host,
        urls: [&str; 2],
        names: Vec<String>,
    ) -> Self {
        let mut holder = Holder::start_on(host, urls[0], TTL, &names);
        let (sender, grants) = channel(names.len());
        let rival = runtime.block_on(store::open(urls[1]));
        let (rival, asked) = (rival.expect("a URL in order"), names.clone());
        runtime.spawn(async move {
            let note = |index, token| {
                sender
                    .try_send((index, token, now()))
                    .expect("room for all")
            };
            ask_for_all(&*rival, &asked, TTL, note).await;
        });
        holder.renews(&names[0]);
        runtime.block_on(at(now().after(TTL / 4)));
        host.cut_off();
        Self {
            case,
            runtime,
            host,
            names,
            holder,
            grants,
            cut_off_at: now(),
        }
    }

    /// Waits until the rival has all names. Returns when it was granted each.
    fn granted(&mut self) -> Vec<Instant> {
        let mut granted = vec![self.cut_off_at; self.names.len()];
        let all = async {
            for _ in &self.names {
                let grant = tokio::time::timeout(LONGEST, self.grants.recv()).await;
                let (index, token, at) = grant.expect("granted in time").expect("the rival asks");
                let name = &self.names[index];
                assert!(
                    token.get() > self.holder.leases[name].token,
                    "the token of {name} fell"
                );
                granted[index] = at;
            }
        };
        self.runtime.block_on(all);
        granted
    }

    /// Returns the names that both have or had, according to what the holder has reported so far.
    fn overlaps(&mut self, granted: &[Instant]) -> Vec<Overlap<'_>> {
        self.holder.catch_up();
        let both = self
            .names
            .iter()
            .zip(granted)
            .filter_map(|(name, granted)| {
                let believed_until = self.holder.leases[name].believed_until();
                (believed_until > *granted).then(|| (name.as_str(), believed_until.since(*granted)))
            });
        both.collect()
    }

    /// Returns the overlaps, after the holder was told of every loss, and prints the times.
    fn judged(&mut self, granted: &[Instant]) -> Vec<Overlap<'_>> {
        self.holder.loses_all();
        let losses = self
            .holder
            .leases
            .values()
            .filter_map(|lease| lease.lost.as_ref());
        let told = self.span(losses.map(|(_, at)| *at));
        let granted_after = self.span(granted.iter().copied());
        let (case, of) = (self.case, self.names.len());
        let overlaps = self.overlaps(granted);
        let longest = overlaps
            .iter()
            .map(|(_, time)| *time)
            .max()
            .unwrap_or_default();
        eprintln!(
            "case={case}: told_after={told} granted_after={granted_after} overlaps={} of {of} longest={longest:.1?}",
            overlaps.len()
        );
        overlaps
    }

    fn span(&self, instants: impl Iterator<Item = Instant> + Clone) -> String {
        let after = |at: Option<Instant>| at.expect("not empty").since(self.cut_off_at);
        let [first, last] = [after(instants.clone().min()), after(instants.max())];
        format!("{first:.2?}..{last:.2?}")
    }

    /// Asserts that the holder was told by its own deadline, of every lease before the rival was granted it.
    fn assert_told_first(&mut self, granted: &[Instant]) {
        assert_eq!(self.judged(granted), [], "two holders");
        for (name, lease) in &self.holder.leases {
            let (reason, _) = lease.lost.as_ref().expect("it was told");
            assert_eq!(reason, "Deadline", "{name}");
        }
    }
}

/// Runs the test of which `judge` is the end with a master, two replicas and Sentinels, each server on a host of its own.
fn with_master_cut_off(
    max_lag: Option<u8>,
    holders_query: &str,
    judge: impl FnOnce(Sides<'_>, Vec<Instant>),
) {
    let test = test_of(&judge);
    in_own_network(test, |network| {
        let runtime = Runtime::new().expect("a runtime");
        let group = runtime.block_on(RedisGroup::on_hosts(network));
        let master = &group.servers[0];
        if let Some(max_lag) = max_lag {
            runtime.block_on(async {
                let lag = format!("CONFIG SET min-replicas-max-lag {max_lag}");
                let () = master.told(&lag).await;
                let () = master.told("CONFIG SET min-replicas-to-write 1").await;
            });
        }
        let url = group.url();
        let holders = format!("{url}{holders_query}");
        let names = (0..30).map(|index| format!("n-{index}")).collect();
        let host = master.host();
        let mut sides = Sides::cut_off(test, &runtime, host, [&holders, &url], names);
        let granted = sides.granted();
        judge(sides, granted);
    });
}

/// The control: what the promises leave to the fence.
#[test]
fn a_holder_cut_off_with_its_master_goes_on_beside_a_rival() {
    with_master_cut_off(None, "", |mut sides, granted| {
        sides.runtime.block_on(at(now().after(TTL)));
        assert_eq!(sides.overlaps(&granted).len(), 30, "the fault is too tame");
        let is_told = sides
            .holder
            .leases
            .values()
            .any(|lease| lease.lost.is_some());
        assert!(!is_told, "the fault is too tame");
        sides.host.reconnect();
        assert_eq!(sides.judged(&granted).len(), 30);
    });
}

#[test]
fn min_replicas_with_the_default_lag_end_cut_off_leases_after_a_rivals_grant() {
    with_master_cut_off(Some(10), "", |mut sides, granted| {
        assert_eq!(sides.judged(&granted).len(), 30, "the fault is too tame")
    });
}

#[test]
fn min_replicas_with_a_short_lag_shorten_the_time_of_two_holders() {
    with_master_cut_off(Some(2), "", |mut sides, granted| {
        let overlaps = sides.judged(&granted);
        assert!(!overlaps.is_empty(), "the fault is too tame");
        // Shorter than with the default.
        let is_short = overlaps.iter().all(|(_, time)| time.as_secs() < 10);
        assert!(is_short, "{overlaps:?}");
    });
}

#[test]
fn a_cut_off_masters_holder_with_acknowledged_grants_is_told_before_a_rival() {
    with_master_cut_off(None, "?acknowledged_by=1", |mut sides, granted| {
        sides.assert_told_first(&granted)
    });
}

/// Runs the test of which `judge` is the end with three primaries and a replica of each, each on a host of its own. The first of
/// the names are those of the primary that is cut off, and `judge` is given them.
fn with_primary_cut_off(
    node_timeout_ms: u32,
    holders_query: &str,
    judge: impl FnOnce(Sides<'_>, Vec<Instant>, &[String]),
) {
    let test = test_of(&judge);
    in_own_network(test, |network| {
        let runtime = Runtime::new().expect("a runtime");
        let cluster = runtime.block_on(RedisCluster::on_hosts(network));
        let names = runtime.block_on(async {
            for node in &cluster.nodes {
                let timeout = format!("CONFIG SET cluster-node-timeout {node_timeout_ms}");
                let () = node.told(&timeout).await;
            }
            let names = (0..60).map(|index| format!("n-{index}"));
            let mut names: Vec<_> = cluster
                .slots_of(names.collect())
                .await
                .into_iter()
                .collect();
            names.sort_by_key(|(_, slot)| *slot);
            names
        });
        let there = names.iter().take_while(|(_, slot)| *slot < 5_461).count();
        let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
        let url = cluster.url();
        let holders = format!("{url}{holders_query}");
        let host = cluster.nodes[0].host();
        let mut sides = Sides::cut_off(test, &runtime, host, [&holders, &url], names.clone());
        let granted = sides.granted();
        judge(sides, granted, &names[..there]);
    });
}

/// The controls: the old primary serves on until it misses the majority.
fn overlaps_where_it_is_cut_off(mut sides: Sides<'_>, granted: &[Instant], names_there: &[String]) {
    let overlaps = sides.judged(granted);
    assert!(!overlaps.is_empty(), "the fault is too tame");
    let is_there = |name: &str| names_there.iter().any(|there| there == name);
    assert!(
        overlaps.iter().all(|(name, _)| is_there(name)),
        "{overlaps:?}"
    );
}

#[test]
fn a_holder_cut_off_with_its_primary_overlaps_until_the_node_times_out() {
    with_primary_cut_off(1_000, "", |sides, granted, there| {
        overlaps_where_it_is_cut_off(sides, &granted, there)
    });
}

#[test]
fn a_longer_node_timeout_lets_a_cut_off_holder_overlap_for_longer() {
    with_primary_cut_off(5_000, "", |sides, granted, there| {
        overlaps_where_it_is_cut_off(sides, &granted, there)
    });
}

#[test]
fn a_cut_off_primarys_holder_with_acknowledged_grants_is_told_before_a_rival() {
    with_primary_cut_off(1_000, "?acknowledged_by=1", |mut sides, granted, _| {
        sides.assert_told_first(&granted)
    });
}

#[test]
fn acknowledged_grants_hold_with_a_longer_node_timeout_too() {
    with_primary_cut_off(5_000, "?acknowledged_by=1", |mut sides, granted, _| {
        sides.assert_told_first(&granted)
    });
}
