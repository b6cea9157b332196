//! Files of an older schema are brought up to date, even while other processes have them open.

use std::path::{Path, PathBuf};

use leasehold::store::Store;
use tempfile::TempDir;

use super::child::Child;
use super::{LIMIT, LONG, claim, granted, held, integrity, name, open, raw};

/// A file as the first schema left it: with one lease of another boot, and a token far ahead of the clock.
fn old_file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let old = raw(&file);
    let set_up = "PRAGMA journal_mode = WAL; PRAGMA application_id = 0x6c73686f;
        PRAGMA user_version = 1;";
    old.execute_batch(set_up).expect("an empty file");
    let schema = include_str!("../../../src/store/sqlite/protocol/schema.sql");
    old.execute_batch(schema).expect("the first schema");
    let rows = "UPDATE counter SET token = 9007199254740000;
        INSERT INTO lease VALUES ('old', '?', 7, '{}', 0, 0, 'a boot', 0, 60000000000, 0, NULL, NULL, NULL);";
    old.execute_batch(rows).expect("a lease");
    (folder, file)
}

fn version(file: &Path) -> i32 {
    let version = raw(file).query_row("PRAGMA user_version", (), |row| row.get(0));
    version.expect("a version")
}

#[tokio::test]
async fn an_older_file_opens_with_all_that_is_in_it() {
    let (_folder, file) = old_file();
    let store = open(&file).await;
    assert_eq!(version(&file), 5);
    assert_eq!(integrity(&file), "ok");
    let token = granted(&store, &claim("a", LONG)).await;
    assert_eq!(token.get(), 9_007_199_254_740_001);
    held(&store, &claim("old", LONG)).await;
}

#[tokio::test]
async fn an_older_file_that_many_open_at_once_is_refused_to_none() {
    for _ in 0..30 {
        let (_folder, file) = old_file();
        let opening: Vec<_> = (0..8)
            .map(|_| tokio::spawn(leasehold::store::sqlite::Sqlite::open(file.clone())))
            .collect();
        for store in opening {
            let store = store.await.expect("no panic").expect("the file opens");
            store.list("", LIMIT).await.expect("answered");
            store.close().await;
        }
        assert_eq!((version(&file), integrity(&file).as_str()), (5, "ok"));
    }
}

#[test]
fn an_older_file_that_many_processes_open_at_once_is_refused_to_none() {
    let (_folder, file) = old_file();
    let mut children: Vec<_> = (0..8).map(|_| Child::start(&file)).collect();
    for (index, child) in children.iter_mut().enumerate() {
        let answer = child.ask(&format!("acquire {index} 60000"));
        assert!(answer.starts_with("granted "), "{answer}");
    }
    assert_eq!((version(&file), integrity(&file).as_str()), (5, "ok"));
}

/// A process of an older leasehold has prepared its statements, and looks at the schema no more.
#[tokio::test]
async fn a_process_that_has_an_older_file_open_works_on() {
    let (_folder, file) = old_file();
    let old = raw(&file);
    let mut renew = old
        .prepare_cached("UPDATE lease SET renewals = renewals + 1 WHERE name = 'old'")
        .expect("the first schema");
    assert_eq!(renew.execute(()), Ok(1));
    let store = open(&file).await;
    assert_eq!(renew.execute(()), Ok(1));
    let found = store.inspect(&name("old"), LIMIT).await;
    assert!(found.expect("answered").is_some());
}
