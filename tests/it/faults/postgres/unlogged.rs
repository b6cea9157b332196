//! Tables without a log: faster, and empty after a crash.

use std::time::Duration;

use leasehold::store::postgres::Setup;
use leasehold::store::{Answer, HeldState, Outcome};

use crate::harness::asking::{asked, claim, granted, held, renewed};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::times::LIMIT;
use crate::harness::wait::{now, until};
use crate::postgres::open;

/// The longest ttl: for so long nothing is granted after the crash.
const MAX_TTL: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_crash_that_empties_the_tables_grants_nothing_before_the_lost_leases_are_over() {
    let server = PostgresServer::start(&["fsync=off"]).await;
    let database = server.database_named("postgres");
    let setup = Setup::new(&database.url()).and_then(|setup| setup.max_ttl(MAX_TTL));
    let setup = setup.expect("a URL in order");
    // Those that are there are changed as well.
    setup.run(LIMIT).await.expect("made");
    setup.unlogged().run(LIMIT).await.expect("made UNLOGGED");
    let store = open(&database.url());
    // A restart in order keeps the rows.
    let kept = claim("kept", MAX_TTL);
    granted(&*store, &kept).await;
    server.end("INT").await;
    server.start_again().await;
    until("the first answer", async || {
        asked(&*store, &kept, LIMIT).await.ok()
    })
    .await;
    assert!(matches!(renewed(&*store, &kept).await, Outcome::Renewed));

    let lost = claim("lost", MAX_TTL);
    let sent_at = now();
    let token = granted(&*store, &lost).await;
    server.end("QUIT").await;
    server.start_again().await;
    let rival = claim("lost", MAX_TTL);
    let answer = until("the first answer", async || {
        asked(&*store, &rival, LIMIT).await.ok()
    })
    .await;
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    assert_eq!(held(&*store, &rival).await.state, HeldState::KeepOut);
    let renewal = renewed(&*store, &lost).await;
    assert!(matches!(renewal, Outcome::Refused), "{renewal:?}");
    let next = until("the end of the quiet time", async || {
        match asked(&*store, &rival, LIMIT).await.expect("answered") {
            Answer::Granted(grant) => Some(grant.token),
            _ => None,
        }
    })
    .await;
    assert!(
        now() >= sent_at.after(MAX_TTL),
        "granted before the lost lease was over"
    );
    assert!(next > token, "{next} after {token}");
    let hazards = store.hazards(LIMIT).await.expect("answered");
    assert!(
        hazards
            .iter()
            .any(|hazard| hazard.id == "postgres-unlogged"),
        "{hazards:?}"
    );
}
