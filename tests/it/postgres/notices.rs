//! Notices: sent only where a client waits, and no client misses one for long.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::store::{HeldState, Notice, Release, TableSettings, Topic, init_script};
use tokio_postgres::AsyncMessage;

use super::store;
use crate::harness::asking::{claim, granted, held, next_token, queued, released};
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{next_notice, until};

/// How many notices of this name's channel are heard while this is done.
async fn heard(database: &Database, name: &str, what: impl Future<Output = ()>) -> usize {
    let url = database.url();
    let (client, mut connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .expect("it answers");
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let channel = format!("SELECT leasehold.channel_1('{name}')");
    let channel: String = client
        .query_one(&channel, &[])
        .await
        .expect("answered")
        .get(0);
    client
        .batch_execute(&format!("LISTEN {channel}"))
        .await
        .expect("listens");
    what.await;
    // What was sent before is delivered by now.
    for _ in 0..2 {
        client.batch_execute("SELECT 1").await.expect("answered");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    heard.load(Ordering::Relaxed)
}

#[tokio::test]
async fn releases_without_a_waiting_client_send_no_notice() {
    let (database, store) = store().await;
    let sent = heard(&database, "a", async {
        for _ in 0..100 {
            next_token(&*store, "a").await;
        }
    });
    assert_eq!(sent.await, 0);
}

#[tokio::test]
async fn a_listener_that_lost_its_connection_says_so_and_listens_again() {
    let (database, store) = store().await;
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    let notices = store
        .notices()
        .await
        .expect("answered")
        .expect("there are notices");
    notices.follow(&Topic::Freed(claim.name.clone()));
    assert_eq!(
        next_notice(&*notices).await,
        Notice::Freed(claim.name.clone())
    );
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'leasehold'";
    database
        .connect()
        .await
        .query(end, &[])
        .await
        .expect("ended");
    assert_eq!(next_notice(&*notices).await, Notice::Reconnected);
    // The connection for requests was ended too, and a request may be the first to find out.
    until("the release", async || {
        let released = store.release(&claim.name, claim.holder, None, LIMIT);
        released.await.ok()
    })
    .await;
    assert_eq!(
        next_notice(&*notices).await,
        Notice::Freed(claim.name.clone())
    );
}

#[tokio::test]
async fn a_client_that_begins_to_follow_misses_no_release() {
    let (_database, store) = store().await;
    let notices = store
        .notices()
        .await
        .expect("answered")
        .expect("there are notices");
    for round in 0..20 {
        let claim = claim(&format!("n{round}"), LONG);
        granted(&*store, &claim).await;
        notices.follow(&Topic::Freed(claim.name.clone()));
        // Its notice comes after it listens; a client that looks then finds the name free, or gets a notice.
        tokio::join!(released(&*store, &claim), async {
            assert_eq!(
                next_notice(&*notices).await,
                Notice::Freed(claim.name.clone())
            );
        });
        notices.unfollow(&Topic::Freed(claim.name.clone()));
        let is_free = store
            .inspect(&claim.name, LIMIT)
            .await
            .expect("answered")
            .is_none();
        assert!(is_free, "round {round}");
        while tokio::time::timeout(Duration::from_millis(20), notices.next())
            .await
            .is_ok()
        {}
    }
}

#[tokio::test]
async fn a_release_succeeds_though_the_servers_queue_of_notices_is_full() {
    let (database, store) = store().await;
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    let notices = store.notices().await.expect("answered");
    let notices = notices.expect("there are notices");
    notices.follow(&Topic::Freed(claim.name.clone()));
    assert_eq!(
        next_notice(&*notices).await,
        Notice::Freed(claim.name.clone())
    );
    // What the server answers then. Its queue takes eight gigabytes, too many to be filled here.
    let full = "CREATE OR REPLACE FUNCTION leasehold.tell_1(p_names text[]) RETURNS void
        LANGUAGE plpgsql
        AS $$
        BEGIN
          RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
        END
        $$";
    let administrator = database.connect().await;
    administrator.batch_execute(full).await.expect("full");
    assert_eq!(released(&*store, &claim).await, Release::Released);
    let held = store.inspect(&claim.name, LIMIT).await.expect("answered");
    assert!(held.is_none(), "{held:?}");
}

/// Its queue takes eight gigabytes, too many to be filled here: the functions are told that it is full.
#[tokio::test]
async fn a_release_grants_though_the_servers_queue_of_notices_is_full() {
    let database = PostgresServer::database().await;
    let setup = init_script(&database.url(), TableSettings::default());
    let setup = setup.expect("a URL in order");
    let full = setup.replace("pg_notification_queue_usage() <", "0.95 <");
    assert_ne!(setup, full);
    let administrator = database.connect().await;
    administrator.batch_execute(&full).await.expect("made");
    let store = super::open(&database.url());
    let (first, next) = (claim("a", LONG), queued("a", LONG));
    granted(&*store, &first).await;
    held(&*store, &next).await;
    let follow = "SELECT leasehold.await_1(ARRAY['a'])";
    administrator.query(follow, &[]).await.expect("marked");
    let sent = heard(&database, "a", async {
        assert_eq!(released(&*store, &first).await, Release::Released);
    });
    assert_eq!(sent.await, 0);
    let held = store.inspect(&first.name, LIMIT).await.expect("answered");
    assert_eq!(held.expect("granted").by, Some(next.holder));
    // And where it is not full.
    administrator.batch_execute(&setup).await.expect("made");
    let other = queued("a", LONG);
    self::held(&*store, &other).await;
    let sent = heard(&database, "a", async {
        assert_eq!(released(&*store, &next).await, Release::Released);
    });
    assert_eq!(sent.await, 1, "of the grant alone");
}

/// As after a failover, or in the quiet time: nothing is granted, and the first client is told to look.
#[tokio::test]
async fn the_first_that_waits_gets_a_notice_of_a_name_that_is_freed_in_the_quiet_time() {
    let (database, store) = store().await;
    let (first, next) = (claim("a", LONG), queued("a", LONG));
    granted(&*store, &first).await;
    held(&*store, &next).await;
    let notices = store.notices().await.expect("answered");
    let notices = notices.expect("there are notices");
    let freed = Notice::Freed(first.name.clone());
    notices.follow(&Topic::Queue(first.name.clone(), next.holder.client()));
    assert_eq!(next_notice(&*notices).await, freed);
    let quiet = "UPDATE leasehold.lineage SET quiet_until = clock_timestamp() + interval '60 s'";
    let administrator = database.connect().await;
    administrator.batch_execute(quiet).await.expect("quiet");
    assert_eq!(released(&*store, &first).await, Release::Released);
    assert_eq!(next_notice(&*notices).await, freed);
    assert_eq!(held(&*store, &next).await.state, HeldState::KeepOut);
}

#[tokio::test]
async fn a_row_that_a_stranger_locks_silences_no_other_names_notices() {
    let (database, store) = store().await;
    let claims = ["locked", "a", "b"].map(|name| claim(name, LONG));
    for claim in &claims {
        granted(&*store, claim).await;
    }
    let stranger = database.connect().await;
    stranger
        .batch_execute("BEGIN; SELECT FROM leasehold.lease WHERE name = 'locked' FOR UPDATE")
        .await
        .expect("locked");
    let notices = store.notices().await.expect("answered");
    let notices = notices.expect("there are notices");
    for claim in &claims {
        notices.follow(&Topic::Freed(claim.name.clone()));
    }
    let freed = |name: &str| Notice::Freed(claim(name, LONG).name.clone());
    // Both are listened to.
    let first = [next_notice(&*notices).await, next_notice(&*notices).await];
    assert!(
        first.contains(&freed("a")) && first.contains(&freed("b")),
        "{first:?}"
    );
    for claim in &claims[1..] {
        released(&*store, claim).await;
        assert_eq!(
            next_notice(&*notices).await,
            Notice::Freed(claim.name.clone())
        );
    }
    // And the locked one from when it is not locked any more.
    stranger.batch_execute("COMMIT").await.expect("let go");
    let soon = tokio::time::timeout(Duration::from_secs(1), notices.next());
    assert_eq!(soon.await.expect("soon"), freed("locked"));
    released(&*store, &claims[0]).await;
    assert_eq!(next_notice(&*notices).await, freed("locked"));
}
