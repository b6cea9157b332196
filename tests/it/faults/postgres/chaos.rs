//! Many contend for few names over a bad network, and a journal by the server's clock is checked afterwards.

use std::time::Duration;

use leasehold::store::{Answer, Queued, Store};
use leasehold::{ClientId, Holder};
use tokio::task::JoinSet;

use crate::harness::asking::{Asking, asked, claim};
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::relay::{Passing, Relay};
use crate::harness::wait::now;
use crate::postgres::{open, set_up};

const CONTENDERS: u64 = 8;
const NAMES: u64 = 3;
const FOR: Duration = Duration::from_secs(40);
const LIMIT: Duration = Duration::from_millis(500);

#[tokio::test]
async fn no_two_hold_at_once_and_tokens_rise_whatever_is_cut_and_killed() {
    let server = PostgresServer::start(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    set_up(&database.url()).await;
    let journal = "CREATE TABLE journal (
        name text, token bigint, begun timestamptz DEFAULT clock_timestamp(), ended timestamptz)";
    database
        .connect()
        .await
        .batch_execute(journal)
        .await
        .expect("made");
    let seed = fastrand::u64(..);
    println!("seed={seed}");
    let mut contenders = JoinSet::new();
    for index in 0..CONTENDERS {
        let database = database.clone();
        contenders.spawn(contend(database, fastrand::Rng::with_seed(seed ^ index)));
    }
    contenders.join_all().await;
    let client = database.connect().await;
    let count = async |sql: &str| {
        client
            .query_one(sql, &[])
            .await
            .expect(sql)
            .get::<_, i64>(0)
    };
    let grants = count("SELECT count(*) FROM journal").await;
    let overlaps =
        "SELECT count(*) FROM journal a JOIN journal b ON a.name = b.name AND a.token < b.token
        WHERE b.begun < a.ended";
    assert_eq!(count(overlaps).await, 0, "overlaps of {grants} grants");
    let falls = "SELECT count(*) FROM journal a JOIN journal b ON a.name = b.name
        WHERE a.begun < b.begun AND a.token >= b.token";
    assert_eq!(
        count(falls).await,
        0,
        "tokens that did not rise of {grants} grants"
    );
    assert!(grants > 30, "only {grants} grants");
    println!("grants={grants}");
}

/// Claims, holds, and releases or forgets, each time on a connection that may break.
async fn contend(database: Database, mut dice: fastrand::Rng) {
    let journal = database.connect().await;
    let client = ClientId::draw();
    let end = now().after(FOR);
    while now() < end {
        let relay = Relay::before(&database.socket()).await;
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", relay.port());
        let store = open(&url);
        for _ in 0..dice.u32(1..20) {
            let ttl = Duration::from_millis(dice.u64(1_000..1_500));
            let mut claim = claim(&format!("n{}", dice.u64(..NAMES)), ttl);
            claim.claim.holder = Holder::draw(client).expect("random bits");
            if dice.bool() {
                claim.ask.queued = Some(Queued::new(dice.u32(..2)));
            }
            hold(&*store, &journal, &claim, &mut dice).await;
            match dice.u32(..20) {
                0 => relay.cut(),
                1 => relay.pass(Passing::Requests),
                2 => relay.pass(Passing::Nothing),
                _ => relay.pass(Passing::All),
            }
        }
    }
}

async fn hold(
    store: &dyn Store,
    journal: &tokio_postgres::Client,
    claim: &Asking,
    dice: &mut fastrand::Rng,
) {
    let deadline = now().after(claim.ttl);
    let Ok(Answer::Granted(grant)) = asked(store, claim, LIMIT).await else {
        tokio::time::sleep(Duration::from_millis(dice.u64(1..30))).await;
        return;
    };
    // Where the grant came too late it is not counted on.
    if deadline.since(now()) < Duration::from_millis(400) {
        return;
    }
    let token = i64::try_from(grant.token.get()).expect("below 2^53");
    let begin = "INSERT INTO journal (name, token) VALUES ($1, $2)";
    journal
        .execute(begin, &[&claim.name.as_str(), &token])
        .await
        .expect("written");
    tokio::time::sleep(Duration::from_millis(dice.u64(..60))).await;
    // Who is late itself does not count on it to the end.
    if now() < deadline {
        let end = "UPDATE journal SET ended = clock_timestamp() WHERE name = $1 AND token = $2";
        journal
            .execute(end, &[&claim.name.as_str(), &token])
            .await
            .expect("written");
    }
    if dice.u32(..4) > 0 {
        let _ = store.release(&claim.name, claim.holder, None, LIMIT).await;
    }
}
