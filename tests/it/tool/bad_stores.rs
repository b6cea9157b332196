//! A store that cannot be reached, or cannot do its work.

use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};

use super::{Place, loss};

/// Runs a job on this store, which must fail so without starting it.
fn fails(place: &Place, options: &[&str], code: i32) -> String {
    let ended = place.run(options, "echo up > started").end();
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(!place.has("started"));
    ended.stderr
}

#[test]
fn a_damaged_file_is_78_and_left_alone() {
    let place = Place::new();
    std::fs::write(
        place.store(),
        b"not a database, but long enough to be read as one".repeat(200),
    )
    .expect("written");
    let before = std::fs::read(place.store()).expect("read");
    let said = fails(&place, &[], 78);
    assert!(said.contains("leases.sqlite"), "{said}");
    assert!(std::fs::read(place.store()).expect("read") == before);
}

#[test]
fn another_programs_file_is_78_and_left_alone() {
    let place = Place::new();
    let other = rusqlite::Connection::open(place.store()).expect("opened");
    other
        .execute_batch("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)")
        .expect("made");
    drop(other);
    let before = std::fs::read(place.store()).expect("read");
    fails(&place, &[], 78);
    assert!(std::fs::read(place.store()).expect("read") == before);
}

#[test]
fn a_file_of_a_newer_version_is_78_and_left_alone() {
    let place = Place::new();
    assert_eq!(place.run(&[], "true").end().code, Some(0));
    let file = rusqlite::Connection::open(place.store()).expect("opened");
    let version: i64 = file
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("read");
    file.pragma_update(None, "user_version", version + 1)
        .expect("written");
    drop(file);
    fails(&place, &[], 78);
}

#[test]
fn a_folder_that_is_not_there_is_78() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.path("nowhere/leases.sqlite").display());
    let said = fails(&place, &["--store", &url], 78);
    assert!(said.contains("nowhere"), "{said}");
}

#[test]
fn a_server_that_is_not_there_is_69_soon() {
    let place = Place::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = nobody.local_addr().expect("an address");
    drop(nobody);
    let began = Monotonic.now();
    fails(&place, &["--store", &format!("redis://{address}")], 69);
    assert!(Monotonic.now().since(began) < Duration::from_secs(8));
}

#[test]
fn a_server_that_does_not_answer_is_69_after_the_connect_timeout() {
    let place = Place::new();
    let mute = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("redis://{}", mute.local_addr().expect("an address"));
    let began = Monotonic.now();
    fails(&place, &["--store", &url, "--connect-timeout", "500ms"], 69);
    assert!(Monotonic.now().since(began) < Duration::from_secs(5));
}

#[test]
fn a_store_that_stays_busy_is_69() {
    let place = Place::new();
    assert_eq!(place.run(&[], "true").end().code, Some(0));
    loss::block(&place, || {
        fails(&place, &["--connect-timeout", "500ms"], 69);
    });
}

#[test]
fn the_embedded_file_is_named_when_nobody_chose_it() {
    let place = Place::new();
    // Root's file is the machine's own, so not as root.
    let user = match rustix::process::geteuid().is_root() {
        true => "unshare --user",
        false => "env",
    };
    let script = format!("exec {user} $TOOL run x -- true");
    let mut command = place.program("sh", &["-c", &script]);
    command
        .env_remove("LEASEHOLD_STORE")
        .env("XDG_STATE_HOME", place.path("state"));
    let ended = place.start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr.matches(".sqlite").count(), 1, "{ended:?}");
    assert!(place.has("state/leasehold/leases.sqlite"));
}
