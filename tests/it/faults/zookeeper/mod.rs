//! What becomes of leases in ZooKeeper when servers of an ensemble die, stand still, or lose their leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::store::{Answer, Purpose, Release, Topic};
use leasehold::{Client, Lease, LossReason, OutagePolicy};

use crate::conformance::check_at;
use crate::harness::asking::{asked, claim, granted, held, released};
use crate::harness::leases::{client_at, take_waiting};
use crate::harness::relay::{Passing, Relay};
use crate::harness::times::LIMIT;
use crate::harness::wait::{at, lost, now, soon, until};
use crate::harness::zookeeper_server::peers::PeerNetwork;
use crate::harness::zookeeper_server::{ZookeeperEnsemble, ZookeeperServer};
use crate::zookeeper::open;

mod clients;
mod clocks;
mod full_disk;
mod load;
mod partitions;
mod storm;

const TICK: Duration = Duration::from_millis(500);
const TTL: Duration = Duration::from_secs(4);

async fn ensemble() -> ZookeeperEnsemble {
    ZookeeperEnsemble::start(TICK).await
}

/// With sessions of which a silent server is given up soon.
fn quick(url: &str) -> String {
    format!("{url}?session=8s")
}

#[tokio::test]
async fn the_contract_is_kept_on_three_servers() {
    let ensemble = ensemble().await;
    check_at(ensemble.url("")).await;
}

/// Takes a name in turns with others until told to stop, and asserts that no other client has it.
struct Contest {
    grants: Arc<AtomicUsize>,
    losses: Arc<AtomicUsize>,
    longest_gap: Arc<std::sync::Mutex<(Instant, Duration)>>,
    stop: tokio::sync::watch::Sender<bool>,
    tasks: tokio::task::JoinSet<()>,
}

impl Contest {
    async fn begin(url: &str, clients: usize) -> Self {
        Self::begin_at((0..clients).map(|_| url.to_owned())).await
    }

    /// The same, with one client at each of these URLs.
    async fn begin_at(urls: impl Iterator<Item = String>) -> Self {
        let mut contest = Self {
            grants: Arc::default(),
            losses: Arc::default(),
            longest_gap: Arc::new(std::sync::Mutex::new((now(), Duration::ZERO))),
            stop: tokio::sync::watch::Sender::new(false),
            tasks: tokio::task::JoinSet::new(),
        };
        let holding = Arc::new(tokio::sync::Mutex::new(None));
        for url in urls {
            let client = client_at(&url, TTL).await;
            let holding = holding.clone();
            let (grants, losses) = (contest.grants.clone(), contest.losses.clone());
            let (gap, mut stop) = (contest.longest_gap.clone(), contest.stop.subscribe());
            contest.tasks.spawn(async move {
                let turns = async {
                    loop {
                        let request = client.request("a");
                        let request = request.on_outage(OutagePolicy::WaitOut);
                        let lease = request.acquire().await.expect("outages are waited out");
                        let mut last = holding.try_lock().expect("one holder at a time");
                        assert!(*last < Some(lease.token()), "{last:?}");
                        *last = Some(lease.token());
                        {
                            let mut gap = gap.lock().unwrap();
                            gap.1 = gap.1.max(now().since(gap.0));
                            gap.0 = now();
                        }
                        at(now().after(Duration::from_millis(20))).await;
                        if lease.check().is_err() {
                            losses.fetch_add(1, Ordering::Relaxed);
                        }
                        drop(last);
                        let _ = lease.release().await;
                        grants.fetch_add(1, Ordering::Relaxed);
                    }
                };
                tokio::select! {
                    () = turns => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
                client.shutdown(LIMIT).await;
            });
        }
        contest
    }

    fn grants(&self) -> usize {
        self.grants.load(Ordering::Relaxed)
    }

    /// Waits until there were so many more grants.
    async fn advance(&mut self, by: usize) {
        let goal = self.grants() + by;
        let end = now().after(Duration::from_secs(60));
        while self.grants() < goal {
            assert!(now() < end, "{} of {goal} grants", self.grants());
            if let Some(ended) = self.tasks.try_join_next() {
                ended.expect("no holder beside another");
            }
            at(now().after(Duration::from_millis(20))).await;
        }
    }

    async fn end(mut self, what: &str) -> Duration {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no holder beside another");
        }
        let (grants, losses) = (self.grants(), self.losses.load(Ordering::Relaxed));
        let (_, gap) = *self.longest_gap.lock().unwrap();
        eprintln!("case={what} grants={grants} losses={losses} longest_gap={gap:.1?}");
        gap
    }
}

#[tokio::test]
async fn a_leader_that_is_killed_costs_an_election_and_no_lease() {
    let ensemble = ensemble().await;
    let url = ensemble.url("");
    // Long enough for an election on a busy machine, and renewed several times before the end.
    let holder = client_at(&url, 3 * TTL).await;
    let held = take_waiting(&holder, "held").await;
    let mut contest = Contest::begin(&quick(&url), 4).await;
    contest.advance(30).await;
    for _ in 0..2 {
        let leader = ensemble.leader();
        leader.kill();
        contest.advance(20).await;
        leader.run();
        ensemble.serving().await;
        contest.advance(20).await;
    }
    contest.end("leader killed").await;
    held.check().expect("it was renewed through both elections");
    holder.shutdown(LIMIT).await;
}

#[tokio::test]
async fn a_leader_that_stands_still_is_replaced() {
    let ensemble = ensemble().await;
    let mut contest = Contest::begin(&quick(&ensemble.url("")), 4).await;
    contest.advance(30).await;
    let leader = ensemble.leader();
    leader.pause();
    at(now().after(Duration::from_secs(4))).await;
    contest.advance(20).await;
    leader.resume();
    contest.advance(20).await;
    contest.end("leader stopped for 4 s").await;
}

/// Its clients go on with another one, however long their sessions are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_hangs_costs_no_lease() {
    let ensemble = ensemble().await;
    let url = ensemble.url("");
    for ttl in [TTL / 2, TTL] {
        let mut held = Vec::new();
        for index in 0..8 {
            let client = client_at(&url, ttl).await;
            let lease = take_waiting(&client, &format!("{ttl:?}-{index}")).await;
            held.push((client, lease));
        }
        let leader = ensemble.leader().port();
        for follower in ensemble.servers.iter().filter(|it| it.port() != leader) {
            follower.pause();
            at(now().after(Duration::from_secs(6))).await;
            follower.resume();
            ensemble.serving().await;
        }
        let is_lost = |(_, lease): &&(Client, Lease)| lease.check().is_err();
        let lost = held.iter().filter(is_lost).count();
        eprintln!(
            "case=follower hung: ttl={ttl:?} lost={lost} of {}",
            held.len()
        );
        assert_eq!(lost, 0, "ttl {ttl:?}");
        for (client, lease) in held {
            drop(lease);
            client.shutdown(LIMIT).await;
        }
    }
}

/// The notice came from a server that is ahead of the one that the claim goes to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_is_followed_by_a_read_of_what_it_told() {
    let (ensemble, between) = PeerNetwork::start(TICK).await;
    let leader = ensemble.leader();
    let servers = || ensemble.servers.iter().enumerate();
    let followers = servers().filter(|(_, it)| it.port() != leader.port());
    let followers: Vec<usize> = followers.map(|(index, _)| index).collect();
    let direct = open(&leader.url(""));
    let lease = claim("a", 10 * TTL);
    granted(&*direct, &lease).await;
    // A client's two connections lead to any of the servers.
    let (lagging, store, notices, _relays) = loop {
        let mut relays = Vec::new();
        for follower in &followers {
            relays.push(Relay::before_port(ensemble.servers[*follower].port()).await);
        }
        let ports = relays.iter().map(|it| format!("127.0.0.1:{}", it.port()));
        let store = open(&format!(
            "zookeeper://{}",
            ports.collect::<Vec<_>>().join(",")
        ));
        let claims = store
            .on_own_connection(Purpose::Watchdog)
            .await
            .expect("made");
        held(&*claims, &claim("a", TTL)).await;
        let of_claims = relays.iter().position(|it| it.connections() == 1);
        let notices = store
            .notices()
            .await
            .expect("answered")
            .expect("it has notices");
        if relays.iter().all(|it| it.connections() == 1) {
            let lagging = followers[of_claims.expect("it is connected")];
            break (lagging, claims, notices, (relays, store));
        }
    };
    let freed = Topic::Freed(lease.name.clone());
    notices.follow(&freed);
    assert_eq!(soon(notices.next()).await, freed.first_notice());
    between.pass(&[lagging], Passing::Nothing);
    assert_eq!(released(&*direct, &lease).await, Release::Released);
    assert_eq!(soon(notices.next()).await, freed.first_notice());
    let next = claim("a", TTL);
    let healing = async {
        at(now().after(2 * TICK)).await;
        between.pass(&[lagging], Passing::All);
    };
    let (answer, ()) = tokio::join!(asked(&*store, &next, LIMIT), healing);
    assert!(!matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
}

/// Their sessions are unknown, and the writes are numbered anew.
#[tokio::test]
async fn clients_are_back_within_seconds_after_all_three_servers_lost_their_data() {
    let ensemble = ensemble().await;
    let client = client_at(&ensemble.url(""), 15 * TTL).await;
    let lease = take_waiting(&client, "a").await;
    ensemble.servers.iter().for_each(ZookeeperServer::kill);
    for server in &ensemble.servers {
        server.empty();
        server.run();
    }
    ensemble.serving().await;
    let serving_at = now();
    let next = until("a grant", async || client.acquire("b").await.ok()).await;
    let back_after = now().since(serving_at);
    eprintln!("case=data of all three lost: back_after={back_after:.1?}");
    assert!(back_after < LIMIT, "{back_after:?}");
    drop((lease, next));
    client.shutdown(LIMIT).await;
}

#[tokio::test]
async fn a_rolling_restart_loses_nothing() {
    let ensemble = ensemble().await;
    let url = ensemble.url("");
    // Long enough for an election on a busy machine, and renewed several times before the end.
    let holder = client_at(&url, 3 * TTL).await;
    let held = take_waiting(&holder, "held").await;
    let mut contest = Contest::begin(&quick(&url), 4).await;
    for server in &ensemble.servers {
        contest.advance(20).await;
        server.kill();
        contest.advance(10).await;
        server.run();
        ensemble.serving().await;
    }
    contest.advance(20).await;
    contest.end("rolling restart").await;
    held.check().expect("it was renewed all the time");
    holder.shutdown(LIMIT).await;
}

/// Two of three servers stand still: pings may be answered, but no renewal is confirmed.
#[tokio::test]
async fn without_a_majority_the_holder_is_told_at_its_deadline_and_nothing_is_granted() {
    let ensemble = ensemble().await;
    let holder = client_at(&ensemble.url(""), TTL).await;
    let lease = take_waiting(&holder, "a").await;
    let still = &ensemble.servers[..2];
    still.iter().for_each(|server| server.pause());
    let paused_at = now();
    assert_eq!(lost(&lease).await, LossReason::Deadline);
    let told_after = now().since(paused_at);
    assert!(told_after <= TTL, "{told_after:?}");
    let rival = open(&ensemble.url(""));
    let next = claim("a", TTL);
    let refused = rival.acquire(&next, next.ask, TTL / 2).await;
    assert!(!matches!(refused, Ok(Answer::Granted(_))), "{refused:?}");
    still.iter().for_each(|server| server.resume());
    let mut granted_after = None;
    while granted_after.is_none() {
        let answer = rival.acquire(&next, next.ask, LIMIT).await;
        if matches!(answer, Ok(Answer::Granted(_))) {
            granted_after = Some(now().since(paused_at));
        }
        assert!(
            now().since(paused_at) < Duration::from_secs(60),
            "{answer:?}"
        );
    }
    eprintln!("case=no majority told_after={told_after:.1?} granted_after={granted_after:.1?}");
    drop(lease);
    holder.shutdown(LIMIT).await;
}

/// A notice and the claim that follows it go to different servers.
#[tokio::test]
async fn no_notice_is_lost_between_servers() {
    let ensemble = ensemble().await;
    // A lost notice costs a look by time: a second. Were notices lost, one in seventy would be, so that both of these
    // runs had one. A single pause may be one of a busy machine.
    let mut gaps = Vec::new();
    while gaps.iter().all(|gap| *gap >= Duration::from_millis(900)) {
        assert!(gaps.len() < 2, "{gaps:?}");
        let mut contest = Contest::begin(&quick(&ensemble.url("")), 6).await;
        contest.advance(250).await;
        gaps.push(contest.end("hand-offs").await);
    }
}
