//! A server that is recovered from an archive to a point in time before some leases were granted.

use std::fs;

use leasehold::store::{self, HeldState, Outcome};

use crate::harness::asking::{claim, granted, held, renewed};
use crate::harness::postgres_server::{PostgresServer, unprivileged_user};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::until;
use crate::postgres::{open, with_max_ttl};

#[tokio::test]
async fn what_was_granted_after_the_point_of_a_recovery_is_not_granted_again_too_early() {
    let archive = tempfile::tempdir().expect("a folder");
    if let Some((uid, gid)) = unprivileged_user() {
        std::os::unix::fs::chown(archive.path(), Some(uid), Some(gid)).expect("root may");
    }
    let folder = archive.path().display();
    let primary = PostgresServer::start(&[
        "fsync=off",
        "wal_level=replica",
        "archive_mode=on",
        &format!("archive_command=cp %p {folder}/%f"),
    ])
    .await;
    let database = primary.database_named("postgres");
    let made = store::init(&database.url(), with_max_ttl(LONG), LIMIT).await;
    made.expect("made");
    let store = open(&database.url());
    let backup = primary.backup(&[]);
    let known = claim("known", LONG);
    granted(&*store, &known).await;
    let administrator = database.connect().await;
    let run = async |sql: &str| administrator.query_one(sql, &[]).await.expect(sql);
    run("SELECT pg_create_restore_point('then')").await;
    let missed = claim("missed", LONG);
    let token = granted(&*store, &missed).await;
    let file: String = run("SELECT pg_walfile_name(pg_switch_wal())").await.get(0);
    until("the archive of the log", async || {
        fs::exists(archive.path().join(&file)).ok()?.then_some(())
    })
    .await;
    primary.end("INT").await;

    let recovered = PostgresServer::recover(
        backup,
        &[
            "fsync=off",
            &format!("restore_command=cp {folder}/%f %p"),
            "recovery_target_name=then",
            "recovery_target_action=promote",
        ],
    )
    .await;
    let database = recovered.database_named("postgres");
    let administrator = database.connect().await;
    until("the end of the recovery", async || {
        let row = administrator
            .query_one("SELECT pg_is_in_recovery()", &[])
            .await;
        (!row.ok()?.get::<_, bool>(0)).then_some(())
    })
    .await;
    let store = open(&database.url());
    let rival = claim("missed", LONG);
    let kept_out = held(&*store, &rival).await;
    assert_eq!(kept_out.state, HeldState::KeepOut, "{kept_out:?}");
    let left = kept_out.remaining;
    assert!(left.is_some_and(|left| left <= LONG), "{left:?}");
    let renewal = renewed(&*store, &missed).await;
    assert!(matches!(renewal, Outcome::Refused), "{renewal:?}");
    assert!(matches!(renewed(&*store, &known).await, Outcome::Renewed));
    administrator
        .batch_execute("UPDATE leasehold.lineage SET quiet_until = clock_timestamp()")
        .await
        .expect("over");
    let next = granted(&*store, &rival).await;
    assert!(next > token, "{next} after {token}");
}
