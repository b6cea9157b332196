//! Passwords that change on the server and in the file that has the store's URL, while runs hold leases and wait.

use std::fs;
use std::time::Duration;

use super::{HOLDER, Process, Sandbox};
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::redis_server::RedisServer;
use crate::harness::wait::{now, pause, until_so};

/// A renewal is due every third of it, and a job is ended when its lease has a tenth left.
const TTL: Duration = Duration::from_secs(6);

/// A server with a user whose password changes.
enum Server {
    Redis(RedisServer),
    Postgres {
        database: Database,
        /// Ends with this.
        _server: PostgresServer,
    },
}

impl Server {
    async fn redis() -> Self {
        let server = RedisServer::start().await;
        let () = server
            .told("ACL SETUSER app on >old-s3cret ~* &* +@all")
            .await;
        Self::Redis(server)
    }

    async fn postgres() -> Self {
        let server = PostgresServer::start(&["fsync=off"]).await;
        let database = server.database_named("postgres");
        crate::postgres::set_up(&database.url()).await;
        let administrator = database.connect().await;
        for sql in [
            "CREATE ROLE app LOGIN SUPERUSER PASSWORD 'old-s3cret'",
            "COPY (SELECT unnest(ARRAY['local all app scram-sha-256', 'local all all trust']))
                TO PROGRAM 'cat > pg_hba.conf'",
            "SELECT pg_reload_conf()",
        ] {
            administrator.batch_execute(sql).await.expect(sql);
        }
        Self::Postgres {
            database,
            _server: server,
        }
    }

    fn url(&self, password: &str) -> String {
        match self {
            Self::Redis(server) => format!("{}?user=app&pass={password}", server.url()),
            Self::Postgres { database, .. } => {
                format!("{}&password={password}", database.url_as("app"))
            }
        }
    }

    /// Changes the password, and ends all connections that were made with the old one.
    async fn change_password(&self) {
        match self {
            Self::Redis(server) => {
                let () = server.told("ACL SETUSER app resetpass >new-s3cret").await;
                let _: u64 = server.told("CLIENT KILL USER app").await;
            }
            Self::Postgres { database, .. } => {
                let change = "ALTER ROLE app PASSWORD 'new-s3cret'";
                let end =
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'";
                let administrator = database.connect().await;
                administrator.batch_execute(change).await.expect(change);
                administrator.batch_execute(end).await.expect(end);
            }
        }
    }

    /// Returns once a client of it listens for notices again.
    async fn is_listened_to(&self) {
        // In Postgres a subscription is one statement among others.
        if let Self::Redis(server) = self {
            until_so("the subscription", async || {
                let channels: Vec<String> = server.told("PUBSUB CHANNELS").await;
                !channels.is_empty()
            })
            .await;
        }
    }
}

fn run_from_file(sandbox: &Sandbox, options: &[&str], script: &str) -> Process {
    let ttl = format!("{TTL:?}");
    let times = ["--ttl", &ttl, "--kill-after", "100ms"];
    let options = [&["--store-file", "url"], &times[..], options].concat();
    sandbox.run(&options, script)
}

fn write_url(sandbox: &Sandbox, url: &str) {
    fs::write(sandbox.path("url"), format!("{url}\n")).expect("written");
}

/// The password of the server changes before that in the file: the login is refused meanwhile.
async fn holds_through_a_new_password(server: Server) {
    let sandbox = Sandbox::new();
    write_url(&sandbox, &server.url("old-s3cret"));
    let mut holder = run_from_file(&sandbox, &[], HOLDER);
    sandbox.mark("first");
    server.change_password().await;
    // A renewal has been refused by then.
    pause(TTL * 2 / 5).await;
    write_url(&sandbox, &server.url("new-s3cret"));
    pause(TTL * 3 / 2).await;
    let rival = run_from_file(&sandbox, &["-n"], "true").end();
    assert_eq!(rival.code, Some(75), "{rival:?}");
    sandbox.let_go();
    let ended = holder.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("s3cret"), "{ended:?}");
    let after = run_from_file(&sandbox, &["-n"], "true").end();
    assert_eq!(after.code, Some(0), "it was released: {after:?}");
}

#[tokio::test]
async fn a_lease_on_redis_is_held_through_a_new_password() {
    holds_through_a_new_password(Server::redis().await).await;
}

#[tokio::test]
async fn a_lease_on_postgres_is_held_through_a_new_password() {
    holds_through_a_new_password(Server::postgres().await).await;
}

/// The file has the new password first, as a waiting run that is refused ends.
async fn waits_through_a_new_password(server: Server) {
    let sandbox = Sandbox::new();
    write_url(&sandbox, &server.url("old-s3cret"));
    let mut holder = run_from_file(&sandbox, &[], HOLDER);
    sandbox.mark("first");
    let mut waiting = run_from_file(&sandbox, &["-v"], "echo up > second");
    waiting.wait_to_say("waiting for");
    // Else it may listen for the first time after the change.
    server.is_listened_to().await;
    write_url(&sandbox, &server.url("new-s3cret"));
    server.change_password().await;
    waiting.wait_to_say("has another one by now");
    server.is_listened_to().await;
    pause(TTL / 2).await;
    sandbox.let_go();
    assert_eq!(holder.end().code, Some(0));
    let freed = now();
    sandbox.mark("second");
    // By a notice: without one it would look every five seconds.
    let took = now().since(freed);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let ended = waiting.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("s3cret"), "{ended:?}");
}

#[tokio::test]
async fn a_run_that_waits_on_redis_gets_its_turn_after_a_new_password() {
    waits_through_a_new_password(Server::redis().await).await;
}

#[tokio::test]
async fn a_run_that_waits_on_postgres_gets_its_turn_after_a_new_password() {
    waits_through_a_new_password(Server::postgres().await).await;
}

/// A control for the others, too: the server does refuse the old password.
#[tokio::test]
async fn a_lease_does_not_move_to_another_store_that_the_file_names() {
    let (server, other) = (Server::redis().await, Server::redis().await);
    let sandbox = Sandbox::new();
    write_url(&sandbox, &server.url("old-s3cret"));
    let mut holder = run_from_file(&sandbox, &[], "echo up > first; sleep 20");
    sandbox.mark("first");
    write_url(&sandbox, &other.url("old-s3cret"));
    server.change_password().await;
    let ended = holder.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("names another store"), "{ended:?}");
    assert!(!ended.stderr.contains("s3cret"), "{ended:?}");
    let Server::Redis(other) = other else {
        unreachable!("it was made as one");
    };
    assert_eq!(other.keys().await, [""; 0]);
}
