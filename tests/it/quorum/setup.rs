//! How a quorum is set up, what `init` refuses, and how its members are exchanged.

use std::time::Duration;

use leasehold::store::quorum::Quorum;
use leasehold::store::{self, Answer, MemberState, Release, Store as _};
use leasehold::{Error, ErrorKind, Token};

use crate::harness::asking::{asked, chain, claim, granted, released, renewed};
use crate::harness::redis_quorum::{self, MAX_TTL, RedisQuorum, end_keep_out};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG, STORED_TTL};
use crate::harness::wait::{now, until, until_so};

const SHORT: Duration = Duration::from_secs(1);

fn quorum_of(servers: &[&RedisServer], max_ttl: Duration) -> Quorum {
    redis_quorum::on(servers.iter().map(|server| server.url()), max_ttl)
}

/// Takes a name and releases it.
async fn token_of(store: &Quorum) -> Token {
    let claim = claim("a", SHORT);
    let token = granted(store, &claim).await;
    released(store, &claim).await;
    token
}

/// Returns the error of an `init` that is refused, which changes nothing.
async fn refused_init(store: &Quorum, kind: ErrorKind, what: &str) -> Error {
    let error = store.init(LIMIT).await.expect_err("refused");
    assert_eq!(error.kind(), kind, "{error:#}");
    assert!(chain(&error).contains(what), "{}", chain(&error));
    error
}

#[tokio::test]
async fn a_member_that_was_a_replica_of_another_is_named_and_comes_in() {
    let quorum = RedisQuorum::with(3, Setup::default, STORED_TTL).await;
    let store = quorum.open();
    granted(&store, &claim("held", STORED_TTL)).await;
    let displaced = async || {
        let hazards = store.hazards(LIMIT).await.expect("answered");
        hazards.iter().any(|hazard| hazard.id == "quorum-displaced")
    };
    assert!(!displaced().await);
    quorum.servers[2].follow(&quorum.servers[0]).await;
    quorum.servers[2].promote().await;
    until_so("it is named", displaced).await;
    refused_init(&quorum.open(), ErrorKind::Misconfigured, "remove the keys").await;
    // Each claim cares for the members.
    until_so("it is in", async || {
        token_of(&store).await;
        super::rivals::states(&store).await == [MemberState::Up; 3]
    })
    .await;
    assert!(!displaced().await);
    let of = |index: usize| quorum.servers[index].told::<String>("HGET leasehold:node member");
    assert_ne!(of(2).await, of(0).await);
    assert!(of(2).await.ends_with(" 2 3"));
}

#[tokio::test]
async fn two_members_that_have_each_others_data_are_not_taken_in() {
    let mut quorum = RedisQuorum::with(5, Setup::default, STORED_TTL).await;
    let store = quorum.open();
    token_of(&store).await;
    let first = quorum.servers[0].snapshot().await;
    let last = quorum.servers[2].snapshot().await;
    quorum.servers[0].restart_from(&last).await;
    quorum.servers[2].restart_from(&first).await;
    let before = nodes(&quorum).await;
    // Far longer than the keep-out of members that are away. The three others grant.
    let end = now().after(STORED_TTL * 3);
    while now() < end {
        token_of(&store).await;
        tokio::time::sleep(STORED_TTL / 8).await;
    }
    assert_eq!(nodes(&quorum).await, before);
}

async fn nodes(quorum: &RedisQuorum) -> Vec<String> {
    let mut nodes = Vec::new();
    for server in &quorum.servers {
        nodes.push(server.told("HGET leasehold:node member").await);
    }
    nodes
}

#[tokio::test]
async fn a_dead_holders_name_is_free_in_time_though_the_members_clocks_were_set_back() {
    let quorum = RedisQuorum::with(3, || Setup::default().with_clock(), STORED_TTL).await;
    let store = quorum.open();
    granted(&store, &claim("a", STORED_TTL)).await;
    for server in &quorum.servers {
        server.step_clock(-600_000).await;
    }
    let stepped_at = now();
    let rival = claim("a", STORED_TTL);
    until_so("the dead holder's name", async || {
        matches!(asked(&store, &rival, LIMIT).await, Ok(Answer::Granted(_)))
    })
    .await;
    let took = now().since(stepped_at);
    assert!(took < STORED_TTL * 3, "{took:?}");
}

/// The members' clocks are ten years behind this one, so it is as far ahead of theirs.
#[tokio::test]
async fn a_client_whose_clock_is_years_ahead_lifts_no_tokens() {
    let quorum = RedisQuorum::with(3, || Setup::default().with_clock(), STORED_TTL).await;
    for server in &quorum.servers {
        server.step_clock(-10 * 365 * 24 * 3_600_000).await;
    }
    // It was set up with tokens of the right clock.
    for server in &quorum.servers {
        let () = server.told("FLUSHALL").await;
    }
    tokio::time::sleep(STORED_TTL + Duration::from_millis(500)).await;
    let quorum = quorum.set_up(STORED_TTL).await;
    let store = quorum.open();
    let token = granted(&store, &claim("a", STORED_TTL)).await;
    let clock_us = quorum.servers[0].time_ms().await.unsigned_abs() * 1_000;
    let day_us = 24 * 3_600_000_000;
    assert!(token.get() <= clock_us + day_us, "{token} and {clock_us}");
}

#[tokio::test]
async fn init_says_which_server_it_refuses_and_what_to_do() {
    let mut quorum = RedisQuorum::start_new(3).await;
    let spare = Setup::default().with_port().start().await;
    let [a, b, c] = &mut quorum.servers[..] else {
        panic!("three servers");
    };
    // One server under two names.
    let two = Setup::default().with_port().start().await;
    let other_name = format!("redis://127.0.0.1:{}", two.port());
    let named = redis_quorum::on([two.url(), b.url(), other_name], MAX_TTL);
    refused_init(&named, ErrorKind::Misconfigured, "same server").await;
    // One server with two databases.
    let database = |number: u8| format!("redis://127.0.0.1:{}/{number}", two.port());
    let databases = redis_quorum::on([database(0), b.url(), database(1)], MAX_TTL);
    refused_init(&databases, ErrorKind::Misconfigured, "same server").await;
    let _: () = b.told("SET leasehold:{a} theirs").await;
    let store = quorum_of(&[a, b, c], MAX_TTL);
    let error = refused_init(&store, ErrorKind::Misconfigured, "not new").await;
    assert!(error.to_string().contains("another prefix"), "{error}");
    let _: i64 = b.told("DEL leasehold:{a}").await;
    // A member of the first kind of quorum.
    let _: i64 = b
        .told("HSET leasehold:node run 1 ready 0 floor 0 keep_out 60000")
        .await;
    refused_init(&store, ErrorKind::Misconfigured, "earlier version").await;
    let _: i64 = b.told("DEL leasehold:node").await;
    // One that keeps out alone.
    let _: i64 = b.told("HSET leasehold:node keep_out 60000 ready 0").await;
    refused_init(&store, ErrorKind::Misconfigured, "on its own").await;
    let _: i64 = b.told("DEL leasehold:node").await;
    c.follow(&spare).await;
    let fresh = quorum_of(&[a, b, c], MAX_TTL);
    refused_init(&fresh, ErrorKind::Misconfigured, "replica").await;
    c.kill();
    let error = store
        .init(Duration::from_millis(500))
        .await
        .expect_err("one is down");
    assert!(error.is_transient(), "{error:#}");
    assert!(
        error.to_string().contains("all members have to answer"),
        "{error}"
    );
    c.restart_empty().await;
    store.init(LIMIT).await.expect("now they are in order");
}

#[tokio::test]
async fn init_runs_again_unharmed_and_refuses_members_of_another_quorum() {
    let quorum = RedisQuorum::start(3).await;
    let spare = RedisServer::start().await;
    let store = quorum.open();
    let lease = claim("a", LONG);
    granted(&store, &lease).await;
    store.init(LIMIT).await.expect("set up already");
    assert_eq!(released(&store, &lease).await, Release::Released);
    let [a, b, _] = &quorum.servers[..] else {
        panic!("three servers");
    };
    let other = quorum_of(&[a, b, &spare], MAX_TTL);
    let error = refused_init(&other, ErrorKind::Misconfigured, "--replace").await;
    assert!(error.to_string().contains("member="), "{error}");
    let longer = quorum.open_with(LONG * 2);
    refused_init(&longer, ErrorKind::Misconfigured, "another longest ttl").await;
}

#[tokio::test]
async fn init_is_refused_until_the_leases_of_a_lost_quorum_have_ended() {
    let mut quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let lease = claim("a", LONG);
    granted(&store, &lease).await;
    for server in &mut quorum.servers {
        server.restart_empty().await;
    }
    until_so("its holder has asked again", async || {
        renewed(&store, &lease).await;
        let ask = "HGET leasehold:node asked_for";
        let asked_for: Option<String> = quorum.servers[0].told(ask).await;
        asked_for.is_some()
    })
    .await;
    let new = quorum.open();
    refused_init(&new, ErrorKind::Misconfigured, "wait for").await;
    for server in &quorum.servers {
        end_keep_out(server).await;
    }
    new.init(LIMIT).await.expect("the lease has ended");
}

#[tokio::test]
async fn other_members_take_over_with_rising_tokens_and_the_old_clients_are_told() {
    let old = RedisQuorum::start_new(3).await.set_up(SHORT).await;
    let new = RedisQuorum::start_new(2).await;
    let before = old.open();
    let token = token_of(&before).await;
    // One stays.
    let [a, b] = &new.servers[..] else {
        panic!("two servers");
    };
    let store = quorum_of(&[a, b, &old.servers[1]], SHORT);
    store
        .replace(&before, false, LIMIT)
        .await
        .expect("replaced");
    assert!(token_of(&store).await > token);
    let error = asked(&before, &claim("a", SHORT), LIMIT).await;
    let error = error.expect_err("it was closed");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    refused_init(&before, ErrorKind::Misconfigured, "was closed by").await;
    // Run again, it changes nothing.
    store
        .replace(&before, false, LIMIT)
        .await
        .expect("replaced already");
    token_of(&store).await;
}

#[tokio::test]
async fn a_replacement_closes_no_member_of_a_third_quorum() {
    let old = RedisQuorum::start_new(3).await.set_up(SHORT).await;
    let other = RedisQuorum::start_new(3).await.set_up(SHORT).await;
    let new = RedisQuorum::start_new(3).await;
    let [a, b, _] = &old.servers[..] else {
        panic!("three servers");
    };
    // Its address leads to a member of the other one by now.
    let before = quorum_of(&[a, b, &other.servers[0]], SHORT);
    let after = new.open_with(SHORT);
    after
        .replace(&before, false, LIMIT)
        .await
        .expect("a majority of the old members is closed");
    let ask = "HGET leasehold:node closed_for";
    let closed_for: Option<String> = other.servers[0].told(ask).await;
    assert_eq!(closed_for, None);
}

/// A majority of the members that it names is none of those that there are.
#[tokio::test]
async fn a_replacement_that_names_fewer_members_than_there_are_is_refused() {
    let old = RedisQuorum::start_new(5).await.set_up(SHORT).await;
    let new = RedisQuorum::start_new(3).await;
    let [a, b, c, ..] = &old.servers[..] else {
        panic!("five servers");
    };
    let fewer = quorum_of(&[a, b, c], SHORT);
    let after = new.open_with(SHORT);
    for from_clock in [false, true] {
        let refused = after.replace(&fewer, from_clock, LIMIT).await;
        let error = refused.expect_err("three of five");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("members="), "{error}");
    }
    token_of(&old.open()).await;
}

/// Those in another order would not be closed, and go on beside the new ones.
#[tokio::test]
async fn a_replacement_that_names_the_members_in_another_order_is_refused() {
    let old = RedisQuorum::start_new(3).await.set_up(SHORT).await;
    let new = RedisQuorum::start_new(3).await;
    let [a, b, c] = &old.servers[..] else {
        panic!("three servers");
    };
    let displaced = quorum_of(&[a, c, b], SHORT);
    let after = new.open_with(SHORT);
    for from_clock in [false, true] {
        let refused = after.replace(&displaced, from_clock, LIMIT).await;
        let error = refused.expect_err("another order");
        assert!(error.to_string().contains("members="), "{error}");
    }
    token_of(&old.open()).await;
}

/// Replaces one of three members, by a command whose writes these servers refuse. Returns its outcome, the list of the
/// new members, and the highest token before.
async fn replaced_by_a_torn_command(
    old: &RedisQuorum,
    spare: &RedisServer,
    refusing: &[&RedisServer],
) -> (Result<(), Error>, Quorum, Token) {
    let [a, b, _] = &old.servers[..] else {
        panic!("three servers");
    };
    let before = old.open();
    let token = token_of(&before).await;
    let store = quorum_of(&[a, b, spare], STORED_TTL);
    let (replaced, ()) = tokio::join!(store.replace(&before, false, LIMIT), async {
        for server in &old.servers {
            until_so("the closing", async || {
                let closed: Option<String> = server.told("HGET leasehold:node closed_for").await;
                closed.is_some()
            })
            .await;
        }
        // The keep-out has begun.
        for server in refusing {
            let () = server.told("ACL SETUSER default -evalsha").await;
        }
    });
    for server in refusing {
        let () = server.told("ACL SETUSER default +evalsha").await;
    }
    (replaced, store, token)
}

/// Waits until a name is granted with a higher token, and all members are in.
async fn is_whole(store: &Quorum, above: Token) {
    let token = until("a grant", async || {
        let claim = claim("a", SHORT);
        match asked(store, &claim, LIMIT).await {
            Ok(Answer::Granted(grant)) => Some(grant.token),
            _ => None,
        }
    });
    assert!(token.await > above);
    until_so("all are in", async || {
        let members = store.members(LIMIT).await.expect("answered");
        members.iter().all(|member| member.state == MemberState::Up)
    })
    .await;
}

#[tokio::test]
async fn a_replacement_that_stopped_after_its_first_write_is_finished_by_running_it_again() {
    let old = RedisQuorum::start_new(3).await.set_up(STORED_TTL).await;
    let spare = RedisServer::start().await;
    let refusing = [&old.servers[1], &spare];
    let (stopped, store, token) = replaced_by_a_torn_command(&old, &spare, &refusing).await;
    stopped.expect_err("one was written");
    store
        .replace(&old.open(), false, LIMIT)
        .await
        .expect("run again");
    is_whole(&store, token).await;
}

#[tokio::test]
async fn a_member_that_a_replacement_could_not_write_comes_in_later() {
    let old = RedisQuorum::start_new(3).await.set_up(STORED_TTL).await;
    let spare = RedisServer::start().await;
    let refusing = [&old.servers[1]];
    let (replaced, store, token) = replaced_by_a_torn_command(&old, &spare, &refusing).await;
    replaced.expect("two were written");
    is_whole(&store, token).await;
}

/// Of two operators with different plans the one that closed a majority of the old members goes on.
#[tokio::test]
async fn an_old_member_that_another_plan_closed_first_stops_no_replacement() {
    let old = RedisQuorum::start_new(3).await.set_up(SHORT).await;
    let new = RedisQuorum::start_new(3).await;
    let before = old.open();
    let token = token_of(&before).await;
    let close = "HSET leasehold:node closed_for 4711";
    let _: i64 = old.servers[0].told(close).await;
    let after = new.open_with(SHORT);
    after
        .replace(&before, false, LIMIT)
        .await
        .expect("the others are closed for this one");
    assert!(token_of(&after).await > token);
}

#[tokio::test]
async fn a_replacement_is_refused_while_another_plan_has_closed_a_majority() {
    let old = RedisQuorum::start_new(3).await.set_up(SHORT).await;
    let new = RedisQuorum::start_new(3).await;
    for server in &old.servers[..2] {
        let close = "HSET leasehold:node closed_for 4711";
        let _: i64 = server.told(close).await;
    }
    let after = new.open_with(SHORT);
    let refused = after.replace(&old.open(), false, LIMIT).await;
    let error = refused.expect_err("the other plan has a majority");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(
        error.to_string().contains("finish that change first"),
        "{error:#}"
    );
}

#[tokio::test]
async fn without_a_majority_of_the_old_members_only_the_clock_helps() {
    let mut old = RedisQuorum::start_new(3).await.set_up(SHORT).await;
    let new = RedisQuorum::start_new(3).await;
    let before = old.open();
    let token = token_of(&before).await;
    old.servers[0].kill();
    old.servers[1].kill();
    let after = new.open_with(SHORT);
    let limit = Duration::from_millis(500);
    let error = after
        .replace(&before, false, limit)
        .await
        .expect_err("too few");
    assert!(error.to_string().contains("--from-clock"), "{error:#}");
    after.replace(&before, true, LIMIT).await.expect("replaced");
    assert!(token_of(&after).await > token);
}

#[tokio::test]
async fn a_client_with_another_list_takes_no_server_in_that_is_blank() {
    let quorum = RedisQuorum::start_new(3).await.set_up(SHORT).await;
    let spare = RedisServer::start().await;
    let [a, b, _] = &quorum.servers[..] else {
        panic!("three servers");
    };
    let other = quorum_of(&[a, b, &spare], SHORT);
    for _ in 0..5 {
        token_of(&other).await;
        tokio::time::sleep(SHORT / 2).await;
    }
    let states = other.members(LIMIT).await.expect("answered");
    assert!(
        matches!(states[2].state, MemberState::Away { .. }),
        "{states:?}"
    );
    assert!(
        other
            .hazards(LIMIT)
            .await
            .expect("answered")
            .iter()
            .any(|hazard| hazard.id == "quorum-other-list")
    );
}

#[tokio::test]
async fn init_prints_what_it_would_do() {
    let plan = store::init_script(
        "redis+quorum://a,b,c?max_ttl=30s",
        store::TableSettings::default(),
    );
    let plan = plan.expect("a URL in order");
    for part in ["redis://a:6379/0", "30s", "leasehold:node"] {
        assert!(plan.contains(part), "{plan}");
    }
}
