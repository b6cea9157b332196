//! A hundred thousand leases renewed for a while: what they write to the log, and how the table grows.

use std::time::{Duration, Instant};

use leasehold::store::postgres::Postgres;
use leasehold::{Attempt, Client};
use tokio_postgres::NoTls;

use super::many::take_many;
use super::server::Server;
use super::yardstick::{figure, seconds};

const LEASES: usize = 100_000;
const TTL: Duration = Duration::from_secs(30);

/// How long they are held, and with how full pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seconds: u64,
    /// `None`: as `leasehold init` makes the table.
    pub(crate) fillfactor: Option<u32>,
}

/// Holds them as planned.
pub(crate) async fn measure(server: &Server, plan: Plan) {
    let (database, connection) = tokio_postgres::connect(&server.url(), NoTls)
        .await
        .expect("it is up");
    tokio::spawn(connection);
    if let Some(fillfactor) = plan.fillfactor {
        let sql = format!("ALTER TABLE leasehold.lease SET (fillfactor = {fillfactor})");
        database.batch_execute(&sql).await.expect("set");
        println!("# fillfactor {fillfactor}");
    }
    let store = Postgres::open(&server.url()).expect("a URL in order");
    let client = Client::builder().store(store).ttl(TTL).build().await;
    let client = client.expect("the store opens");
    let started = Instant::now();
    let leases = take(&client).await;
    println!("# {LEASES} leases taken in {:.1} s", seconds(started));
    let before = Sizes::read(&database).await;
    tokio::time::sleep(Duration::from_secs(plan.seconds)).await;
    let after = Sizes::read(&database).await;
    let lost = leases.iter().filter(|lease| lease.check().is_err()).count();
    let renewals = after.updates - before.updates;
    for (what, unit, value) in [
        ("renewals_per_s", "1/s", renewals / plan.seconds as f64),
        (
            "log_bytes_per_renewal",
            "bytes",
            (after.log - before.log) / renewals,
        ),
        (
            "full_pages_in_log_percent",
            "%",
            100.0 * 8_192.0 * (after.full_pages - before.full_pages) / (after.log - before.log),
        ),
        ("table_bytes_before", "bytes", before.table),
        ("table_bytes_after", "bytes", after.table),
        ("index_bytes_before", "bytes", before.index),
        ("index_bytes_after", "bytes", after.index),
        ("dead_rows_after", "rows", after.dead),
        ("vacuums", "runs", after.vacuums - before.vacuums),
        (
            "hot_percent",
            "%",
            100.0 * (after.hot - before.hot) / renewals,
        ),
        ("lost", "leases", lost as f64),
    ] {
        figure(&format!("postgres_held_100k_{what}"), unit, &[value]);
    }
    // The server goes with them: a hundred thousand releases, each with its flush, would take minutes.
    std::mem::forget(leases);
}

async fn take(client: &Client) -> Vec<leasehold::Lease> {
    take_many(client, LEASES, |client, index| async move {
        let name = format!("held-{index:011}");
        match client.try_acquire(&name).await.expect("answered") {
            Attempt::Acquired(lease) => lease,
            other => panic!("{other:?}"),
        }
    })
    .await
}

/// What the server counts.
#[derive(Debug)]
struct Sizes {
    log: f64,
    /// Pages that the log has in full, because each page's first change after a checkpoint is written so.
    full_pages: f64,
    table: f64,
    index: f64,
    dead: f64,
    vacuums: f64,
    updates: f64,
    hot: f64,
}

impl Sizes {
    async fn read(database: &tokio_postgres::Client) -> Self {
        // The statistics of a connection arrive with a delay of up to ten seconds.
        let row = database
            .query_one(
                "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
                   (SELECT w.wal_fpi FROM pg_stat_wal w)::float8, pg_table_size(relid)::float8,
                   pg_indexes_size(relid)::float8, n_dead_tup::float8, autovacuum_count::float8,
                   n_tup_upd::float8, n_tup_hot_upd::float8
                 FROM pg_stat_user_tables WHERE relid = 'leasehold.lease'::regclass",
                &[],
            )
            .await
            .expect("answered");
        Self {
            log: row.get(0),
            full_pages: row.get(1),
            table: row.get(2),
            index: row.get(3),
            dead: row.get(4),
            vacuums: row.get(5),
            updates: row.get(6),
            hot: row.get(7),
        }
    }
}
