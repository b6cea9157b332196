//! The least rights that the wire's description asks for are enough, and are the least.

use leasehold::store::{Answer, Eviction, Outcome, Queued, Release, Store};

use super::open;
use crate::conformance::check_at;
use crate::harness::asking::{Asking, asked, claim, granted, held, released, renewed};
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::redis_group::RedisGroup;
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::until_so;

pub(super) const DESCRIPTION: &str = include_str!("../../../src/store/redis/README.md");

/// The command that makes the user, as it stands in the description, with a password.
pub(super) fn least_rights() -> String {
    let section = DESCRIPTION
        .split("## The least permissions")
        .nth(1)
        .expect("the section");
    let lines = section
        .lines()
        .skip_while(|line| !line.starts_with("    ACL SETUSER "));
    let lines: Vec<_> = lines.take_while(|line| line.starts_with("    ")).collect();
    lines.join(" ").replace("PASSWORD", "secret")
}

/// The commands in that line that the scripts use.
fn rights_of_scripts(line: &str) -> Vec<&str> {
    let rights = line.split_whitespace().filter(|word| word.starts_with('+'));
    let of_scripts = rights.skip_while(|right| *right != "+time");
    let of_scripts: Vec<_> = of_scripts
        .take_while(|right| *right != "+publish")
        .collect();
    assert!(of_scripts.len() > 8, "{of_scripts:?}");
    of_scripts
}

/// A server with that user, less one of the rights.
async fn server_without(right: &str) -> (RedisServer, std::sync::Arc<dyn Store>) {
    let server = RedisServer::start().await;
    let line = least_rights();
    let without: Vec<_> = line
        .split_whitespace()
        .filter(|word| *word != right)
        .collect();
    let () = server.told(&without.join(" ")).await;
    let store = open(&format!("{}?{LEASEHOLD}", server.url())).await;
    (server, store)
}

/// The user of the line that the description has.
const LEASEHOLD: &str = "user=leasehold&pass=secret";

#[tokio::test]
async fn the_least_rights_are_enough_for_the_whole_contract() {
    let (server, _) = server_without("").await;
    check_at(format!("{}?{LEASEHOLD}", server.url())).await;
    server.assert_all_keys_run_out().await;
}

/// The rights that the description asks for in addition.
const FOR_CLUSTERS: &str = "+cluster|slots +asking";
const FOR_SENTINELS: &str = "+sentinel|get-master-addr-by-name +sentinel|master +sentinel|myid";
const FOR_REPLICAS: &str = "+wait";

#[tokio::test]
async fn in_a_cluster_the_least_rights_are_enough_for_the_whole_contract() {
    assert!(DESCRIPTION.contains(FOR_CLUSTERS));
    let cluster = RedisCluster::start().await;
    for node in &cluster.nodes {
        let () = node
            .told(&format!("{} {FOR_CLUSTERS}", least_rights()))
            .await;
    }
    let url = cluster.url().replace("://", "://leasehold:secret@");
    check_at(url).await;
}

#[tokio::test]
async fn with_sentinels_the_least_rights_of_both_users_are_enough_for_the_whole_contract() {
    assert!(DESCRIPTION.contains(FOR_SENTINELS) && DESCRIPTION.contains(FOR_REPLICAS));
    let group = RedisGroup::start().await;
    for server in &group.servers {
        let () = server
            .told(&format!("{} {FOR_REPLICAS}", least_rights()))
            .await;
    }
    for sentinel in &group.sentinels {
        let user = format!("ACL SETUSER watcher on >hidden -@all {FOR_SENTINELS}");
        let () = sentinel.told(&user).await;
    }
    let url = group.url().replace("://", "://leasehold:secret@");
    let url = format!("{url}?sentinel_username=watcher&sentinel_password=hidden");
    let acknowledged = open(&format!("{url}&acknowledged_by=1")).await;
    until_so("a grant that a replica has", async || {
        asked(&*acknowledged, &claim("acknowledged", LONG), LIMIT)
            .await
            .is_ok()
    })
    .await;
    check_at(url).await;
}

#[tokio::test]
async fn each_of_the_scripts_rights_is_needed() {
    for right in rights_of_scripts(&least_rights()) {
        let (server, store) = server_without(right).await;
        assert!(!does_everything(&*store).await, "{right} is not needed");
        println!("without {right}");
        server.assert_all_keys_run_out().await;
    }
}

/// Whatever fails for want of a right, at the first write or in the midst of them, leaves no key without an expiry.
#[tokio::test]
async fn no_key_is_without_an_expiry_where_a_right_is_missing() {
    for right in rights_of_scripts(&least_rights()) {
        let (server, store) = server_without(right).await;
        let all = open(&server.url()).await;
        for step in STEPS {
            println!("without {right}: {step}");
            let line = in_line(&*all, step).await;
            attempt(step, &*store, &*all, line).await;
            server.assert_all_keys_run_out().await;
        }
    }
}

/// A holder of this name and two clients behind it in line, all with every right.
async fn in_line(all: &dyn Store, name: &str) -> [Asking; 3] {
    let [holder, mut next, mut last] = [(); 3].map(|()| claim(name, LONG));
    granted(all, &holder).await;
    for waiter in [&mut next, &mut last] {
        waiter.ask.queued = Some(Queued::new(LONG));
        held(all, waiter).await;
    }
    [holder, next, last]
}

const STEPS: [&str; 7] = ["take", "join", "free", "keep", "evict", "leave", "accept"];

/// What one without the right attempts. One answer is as good as another.
async fn attempt(step: &str, store: &dyn Store, all: &dyn Store, line: [Asking; 3]) {
    let [holder, next, last] = line;
    let name = &holder.name;
    match step {
        "take" | "join" => {
            let of_nobody = format!("{step} nobody's");
            let mut comes = claim(if step == "take" { &of_nobody } else { step }, LONG);
            comes.ask.queued = Some(Queued::new(LONG));
            drop(asked(store, &comes, LIMIT).await);
        }
        "free" => drop(store.release(name, holder.holder, None, LIMIT).await),
        "keep" => drop(store.release(name, holder.holder, Some(LONG), LIMIT).await),
        "evict" => drop(store.evict(name, Eviction::Now, LIMIT).await),
        "leave" => {
            drop(store.release(name, next.holder, None, LIMIT).await);
            drop(asked(store, &last, LIMIT).await);
        }
        "accept" => {
            released(all, &holder).await;
            for waiter in [next, last] {
                drop(asked(store, &waiter, LIMIT).await);
            }
        }
        _ => panic!("unknown step {step}"),
    }
}

/// Whether everything that the scripts do is done.
async fn does_everything(store: &dyn Store) -> bool {
    let (first, second) = (claim("a", LONG), claim("b", LONG));
    for claim in [&first, &second] {
        if asked(store, claim, LIMIT).await.is_err() {
            return false;
        }
    }
    let renewed = matches!(renewed(store, &first).await, Outcome::Renewed);
    let keep = Some(LONG);
    let kept = store
        .release(&first.name, first.holder, keep, LIMIT)
        .await
        .is_ok();
    let marked = leasehold::store::Eviction::Marked;
    let evicted = store.evict(&second.name, marked, LIMIT).await.is_ok();
    let freed = store
        .release(&second.name, second.holder, None, LIMIT)
        .await
        .is_ok();
    let seen = store.inspect(&first.name, LIMIT).await.is_ok();
    renewed && kept && evicted && freed && seen && does_the_line(store).await
}

/// Two clients join the queue, one of them leaves it, and the other is granted the name.
async fn does_the_line(store: &dyn Store) -> bool {
    let [holder, mut leaver, mut waiter] = [(); 3].map(|()| claim("c", LONG));
    for claim in [&mut leaver, &mut waiter] {
        claim.ask.queued = Some(Queued::new(LONG));
    }
    for claim in [&holder, &leaver, &waiter] {
        if asked(store, claim, LIMIT).await.is_err() {
            return false;
        }
    }
    for claim in [&leaver, &holder] {
        let release = store.release(&claim.name, claim.holder, None, LIMIT);
        if release.await.is_err() {
            return false;
        }
    }
    let granted = asked(store, &waiter, LIMIT).await;
    matches!(granted, Ok(Answer::Granted(_)))
}

#[tokio::test]
async fn without_the_rights_to_channels_everything_works_but_notices() {
    let (_server, store) = server_without("&leasehold:*").await;
    let first = claim("a", LONG);
    granted(&*store, &first).await;
    held(&*store, &claim("a", LONG)).await;
    assert_eq!(released(&*store, &first).await, Release::Released);
    granted(&*store, &claim("a", LONG)).await;
}
