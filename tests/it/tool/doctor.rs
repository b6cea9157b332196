//! `leasehold doctor` on sound stores, and on set-ups that are broken on purpose.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::{Ended, Sandbox};
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::redis_server::{RedisServer, Setup};

/// What the doctor says of this store.
struct Diagnosis {
    code: Option<i32>,
    json: Value,
}

impl Diagnosis {
    fn of(url: &str, options: &[&str]) -> Self {
        let mut arguments = vec!["doctor", "--json", "--store", url];
        arguments.extend(options);
        let sandbox = Sandbox::new();
        Self::read(&sandbox.start(sandbox.tool(&arguments)).end())
    }

    fn read(ended: &Ended) -> Self {
        let json = serde_json::from_str(&ended.stdout);
        Self {
            code: ended.code,
            json: json.unwrap_or_else(|error| panic!("no JSON: {error} {ended:?}")),
        }
    }

    /// The verdict of this finding, and all that it says.
    fn finding(&self, id: &str) -> (String, String) {
        let findings = self.json["findings"].as_array().expect("a list");
        let found = findings.iter().find(|finding| finding["id"] == id);
        let found = found.unwrap_or_else(|| panic!("no {id} in {}", self.json));
        let verdict = found["verdict"].as_str().expect("a word");
        (verdict.into(), found.to_string())
    }

    /// Fails unless this finding has this verdict and these words.
    fn says(&self, id: &str, verdict: &str, words: &[&str]) {
        let (found, text) = self.finding(id);
        assert_eq!(found, verdict, "{text}");
        for word in words {
            assert!(text.contains(word), "{id} lacks {word:?}: {text}");
        }
        assert_eq!(verdict != "ok", text.contains("\"fix\""), "{text}");
    }
}

#[test]
fn a_sound_file_is_0_and_every_step_was_tried() {
    let sandbox = Sandbox::new();
    let url = format!("sqlite:{}", sandbox.store().display());
    let diagnosis = Diagnosis::of(&url, &[]);
    assert_eq!(diagnosis.code, Some(0), "{}", diagnosis.json);
    for id in ["store", "trial", "turns", "file-rights", "file-room"] {
        diagnosis.says(id, "ok", &[]);
    }
    diagnosis.says("store", "ok", &["SQLite 3."]);
    // What depends on the machine that the tests run on is there, whatever it says.
    for id in ["notice", "latency", "file-system", "cpu", "timers"] {
        diagnosis.finding(id);
    }
}

#[tokio::test]
async fn a_sound_server_is_0_and_nothing_stays_but_what_a_released_name_leaves() {
    let server = Setup::default().with(["--appendonly", "yes"]).start().await;
    let released = server_after_a_release().await.keys().await;
    let diagnosis = Diagnosis::of(&server.url(), &[]);
    assert_eq!(diagnosis.code, Some(0), "{}", diagnosis.json);
    // Each is asked for by name: the fair turn, and the server's clock, its offset and its rate.
    for id in ["store", "trial", "turns", "clock-offset", "clock-rate"] {
        diagnosis.says(id, "ok", &[]);
    }
    // The names of such keys have the number of a slot in them.
    let kinds = |keys: Vec<String>| {
        let kinds = keys.into_iter();
        kinds.map(|key| key.replace(|c: char| c.is_ascii_digit(), ""))
    };
    assert!(kinds(server.keys().await).eq(kinds(released)));
}

/// A server on which one name was acquired and released.
async fn server_after_a_release() -> RedisServer {
    let server = RedisServer::start().await;
    let sandbox = Sandbox::new();
    let run = sandbox.tool(&["run", "--store", &server.url(), "x", "--", "true"]);
    assert_eq!(sandbox.start(run).end().code, Some(0));
    server
}

#[tokio::test]
async fn a_warning_is_0_and_with_strict_1_and_each_finding_is_a_line() {
    let server = RedisServer::start().await;
    let sandbox = Sandbox::new();
    let url = server.url();
    let plain = sandbox
        .start(sandbox.tool(&["doctor", "--store", &url]))
        .end();
    assert_eq!(plain.code, Some(0), "{plain:?}");
    let line = plain
        .stdout
        .lines()
        .find(|line| line.starts_with("warning  redis-forgets: "));
    let line = line.unwrap_or_else(|| panic!("{plain:?}"));
    assert!(line.ends_with(". Set appendonly yes."), "{line}");
    let strict = sandbox.tool(&["doctor", "--strict", "--store", &url]);
    assert_eq!(sandbox.start(strict).end().code, Some(1));
}

#[tokio::test]
async fn a_server_that_evicts_is_a_failure() {
    let setup = Setup::default().with(["--maxmemory-policy", "allkeys-lru"]);
    let server = setup.start().await;
    let diagnosis = Diagnosis::of(&server.url(), &[]);
    assert_eq!(diagnosis.code, Some(2), "{}", diagnosis.json);
    diagnosis.says(
        "redis-drops-keys",
        "failure",
        &["allkeys-lru", "noeviction"],
    );
}

#[tokio::test]
async fn a_replica_given_as_the_store_is_a_failure() {
    let master = Setup::default().with_port().start().await;
    let replica = RedisServer::start().await;
    replica.follow(&master).await;
    let diagnosis = Diagnosis::of(&replica.url(), &[]);
    assert_eq!(diagnosis.code, Some(2), "{}", diagnosis.json);
    diagnosis.says("redis-replica", "failure", &["master"]);
    diagnosis.says("trial", "failure", &["READONLY"]);
}

#[tokio::test]
async fn a_server_whose_clock_is_two_seconds_off_is_a_warning() {
    let server = Setup::default().with_clock().start().await;
    server.step_clock(-2_000).await;
    let diagnosis = Diagnosis::of(&server.url(), &["--strict"]);
    assert_eq!(diagnosis.code, Some(1), "{}", diagnosis.json);
    let words = ["behind this machine", "time daemon"];
    diagnosis.says("redis-clock-apart", "warning", &words);
}

#[tokio::test]
async fn a_user_without_the_channels_is_a_failure_that_names_them() {
    let server = RedisServer::start().await;
    let user = "ACL SETUSER deaf on >secret resetchannels ~* +@all";
    let () = server.told(user).await;
    let url = format!("{}?user=deaf&pass=secret", server.url());
    let diagnosis = Diagnosis::of(&url, &[]);
    assert_eq!(diagnosis.code, Some(2), "{}", diagnosis.json);
    diagnosis.says("notice", "failure", &["channels", "only check again"]);
    diagnosis.says("turns", "ok", &[]);
}

#[tokio::test]
async fn a_user_without_a_permission_of_the_scripts_is_a_failure() {
    let server = RedisServer::start().await;
    let user = "ACL SETUSER weak on >secret allchannels ~* +@all -pexpire";
    let () = server.told(user).await;
    let url = format!("{}?user=weak&pass=secret", server.url());
    let diagnosis = Diagnosis::of(&url, &[]);
    assert_eq!(diagnosis.code, Some(2), "{}", diagnosis.json);
    diagnosis.says(
        "trial",
        "failure",
        &["permission is missing", "permissions"],
    );
}

#[test]
fn a_file_in_memory_is_a_warning() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("Linux has shared memory");
    let url = format!("sqlite:{}", folder.path().join("leases.sqlite").display());
    let diagnosis = Diagnosis::of(&url, &["--strict"]);
    assert_eq!(diagnosis.code, Some(1), "{}", diagnosis.json);
    diagnosis.says("file-system", "warning", &["tmpfs", "reboot"]);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_a_failure() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("closed");
    std::fs::create_dir(&folder).expect("made");
    std::fs::set_permissions(&folder, Permissions::from_mode(0o555)).expect("set");
    let url = format!("sqlite:{}", folder.join("leases.sqlite").display());
    let diagnosis = without_rights(&sandbox, &url);
    assert_eq!(diagnosis.code, Some(2), "{}", diagnosis.json);
    diagnosis.says("file-rights", "failure", &["cannot be written", "Grant"]);
    diagnosis.says("store", "failure", &[]);
}

/// The diagnosis for a user who has no rights but those of a file's owner.
fn without_rights(sandbox: &Sandbox, url: &str) -> Diagnosis {
    // Permissions do not bind root.
    let user = match rustix::process::geteuid().is_root() {
        true => "unshare --user",
        false => "env",
    };
    let script = format!("exec {user} $TOOL doctor --json --store {url}");
    let ended = sandbox.start(sandbox.program("sh", &["-c", &script])).end();
    Diagnosis::read(&ended)
}

#[test]
fn a_waiting_client_that_can_have_no_bell_is_a_warning() {
    let sandbox = Sandbox::new();
    let bells = sandbox.store().with_extension("sqlite-bells");
    std::fs::write(&bells, "").expect("written");
    let url = format!("sqlite:{}", sandbox.store().display());
    let diagnosis = Diagnosis::of(&url, &[]);
    let path = bells.to_str().expect("UTF-8");
    diagnosis.says("sqlite-no-bell", "warning", &[path, "late", "remove it"]);
    // There is one of those who watch names, but a client makes one of its own.
    std::fs::remove_file(&bells).expect("removed");
    Diagnosis::of(&url, &[]);
    assert!(bells.join("00").exists());
    std::fs::set_permissions(&bells, Permissions::from_mode(0o500)).expect("set");
    let diagnosis = without_rights(&sandbox, &url);
    diagnosis.says("sqlite-no-bell", "warning", &[path, "Permission denied"]);
}

#[test]
fn a_store_that_cannot_be_reached_is_2() {
    let url = "redis://localhost:1";
    let diagnosis = Diagnosis::of(url, &["--connect-timeout", "500ms"]);
    assert_eq!(diagnosis.code, Some(2), "{}", diagnosis.json);
    diagnosis.says("store", "failure", &["address"]);
}

#[test]
fn a_url_that_says_nothing_is_a_bad_argument_and_no_finding() {
    let sandbox = Sandbox::new();
    let tool = sandbox.tool(&["doctor", "--store", "nonsense"]);
    let ended = sandbox.start(tool).end();
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert_eq!(ended.stdout, "");
}

#[tokio::test]
async fn the_members_of_a_quorum_are_shown_up_away_and_down() {
    let mut quorum = RedisQuorum::start_with_ports(3).await;
    let diagnosis = Diagnosis::of(&quorum.url(), &[]);
    diagnosis.says("store", "ok", &["Redis"]);
    diagnosis.says("trial", "ok", &[]);
    quorum.servers[1].restart_empty().await;
    let port = quorum.servers[1].port().to_string();
    let diagnosis = Diagnosis::of(&quorum.url(), &[]);
    let words = [&*port, "keeps out", "for another", "one more server"];
    diagnosis.says("store", "warning", &words);
    let (_, told) = diagnosis.finding("store");
    assert!(!told.contains("init"), "{told}");
    diagnosis.says("trial", "ok", &[]);
    quorum.servers[1].kill();
    let diagnosis = Diagnosis::of(&quorum.url(), &[]);
    let words = [&*port, "no answer", "one more server"];
    // One fact, told once, and no failure: names are granted.
    diagnosis.says("store", "warning", &words);
    diagnosis.says("turns", "ok", &[]);
    assert!(!diagnosis.json.to_string().contains("quorum-members-down"));
    assert_eq!(diagnosis.code, Some(0), "{}", diagnosis.json);
}

#[tokio::test]
async fn with_one_member_dead_and_one_away_nothing_is_granted_for_a_known_time() {
    let mut quorum = RedisQuorum::start_with_ports(3).await;
    quorum.servers[1].restart_empty().await;
    quorum.servers[2].kill();
    let [away, dead] = [1, 2].map(|member| quorum.servers[member].port().to_string());
    let diagnosis = Diagnosis::of(&quorum.url(), &[]);
    let words = [&dead, "no answer", &away, "for another", "nothing can be"];
    diagnosis.says("store", "failure", &words);
}
