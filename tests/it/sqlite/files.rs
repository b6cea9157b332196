//! Files that cannot be used are refused, typed and untouched; the others are kept small and private.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{Outcome, Store};
use tempfile::TempDir;

use crate::harness::leases::{client_at, take};

use super::child::Child;
use super::{
    Asking, LIMIT, LONG, asked, claim, granted, held, name, open, pass_time, raw, refused_file,
    surroundings,
};

fn folder_and_file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    (folder, file)
}

/// A file of leases that no process has open.
async fn made(file: &Path) {
    open(file).await.close().await;
}

/// What is in the file's folder. A boot's FIFO may be there still: the last process with the file removes it, unless a child
/// of the tests, which has not begun its program yet, has it open.
fn beside(file: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(file.parent().expect("a folder")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.collect()
}

async fn refused_untouched(file: &Path, why: &str) {
    let (content, names) = (fs::read(file).expect("the file is there"), beside(file));
    let error = refused_file(file).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let message = error.to_string();
    assert!(
        message.starts_with("open failed: ") && message.contains(why),
        "{message}"
    );
    assert!(
        message.contains(&format!("path={}", file.display())),
        "{message}"
    );
    assert_eq!(fs::read(file).expect("the file is there"), content);
    assert_eq!(beside(file), names);
}

/// A process that looks while another one makes the file must not take it for the file of another program.
#[tokio::test]
async fn a_new_file_that_many_open_at_once_is_refused_to_none() {
    for _ in 0..50 {
        let (_folder, file) = folder_and_file();
        let opening: Vec<_> = (0..8)
            .map(|_| tokio::spawn(leasehold::store::sqlite::Sqlite::open(file.clone())))
            .collect();
        for store in opening {
            let store = store.await.expect("no panic");
            store.expect("the file opens").close().await;
        }
    }
}

/// NFS, most of FUSE, and ZFS before 2.2 lack it.
#[tokio::test]
async fn a_file_is_made_where_every_rename_may_replace_another() {
    let surroundings = surroundings::plain_rename();
    let surroundings = surroundings.each_ref().map(String::as_str);
    let (folder, file) = folder_and_file();
    let mut child = Child::start_under(&surroundings, &file);
    assert!(child.ask("acquire a 60000").starts_with("granted "));
    let control = child.ask(&format!("rename {}", file.display()));
    assert_eq!(
        control,
        "Err(Os { code: 22, kind: InvalidInput, message: \"Invalid argument\" })"
    );
    let mode = file.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // No descriptor was closed of a file that was open, or its locks would be gone.
    let many = folder.path().join("many");
    fs::create_dir(&many).expect("made");
    assert_eq!(child.ask(&format!("make 30 {}", many.display())), "0");
    // Of several that make it at the same moment, one has the name.
    for round in 0..20 {
        let file = folder.path().join(format!("round-{round}"));
        let mut rivals: Vec<_> = (0..3)
            .map(|_| Child::start_under(&surroundings, &file))
            .collect();
        rivals
            .iter_mut()
            .for_each(|rival| rival.order("acquire a 60000"));
        let answers = rivals
            .iter_mut()
            .map(|rival| rival.answer().expect("an answer"));
        let answers: Vec<_> = answers.collect();
        let granted = answers
            .iter()
            .filter(|answer| answer.starts_with("granted "));
        assert_eq!(granted.count(), 1, "{answers:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_not_sqlite_is_refused_untouched() {
    let (_folder, file) = folder_and_file();
    fs::write(&file, "these are no leases ".repeat(500)).expect("a file");
    refused_untouched(&file, "not an SQLite file").await;
}

#[tokio::test]
async fn a_file_of_another_program_is_refused_untouched() {
    let (_folder, file) = folder_and_file();
    raw(&file)
        .execute_batch("CREATE TABLE theirs (x)")
        .expect("theirs");
    refused_untouched(&file, "another program application_id=0x0").await;
    raw(&file)
        .execute_batch("PRAGMA application_id = 7")
        .expect("theirs");
    refused_untouched(&file, "another program application_id=0x7").await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_untouched() {
    let (_folder, file) = folder_and_file();
    made(&file).await;
    let newer = raw(&file);
    newer
        .execute_batch("PRAGMA user_version = 99")
        .expect("newer");
    drop(newer);
    refused_untouched(&file, "newer leasehold schema=99 expected=5").await;
}

#[tokio::test]
async fn damage_met_later_is_misconfigured() {
    let (_folder, file) = folder_and_file();
    let store = open(&file).await;
    for index in 0..200 {
        granted(&store, &claim(&index.to_string(), LONG)).await;
    }
    store.close().await;
    let mut bytes = fs::read(&file).expect("a file");
    // The pages with the rows themselves, which opening does not look at.
    let has_rows = |page: &[u8]| page.windows(6).any(|text| text == b"\"host\"");
    for page in bytes.chunks_mut(4_096).filter(|page| has_rows(page)) {
        page.fill(0xa5);
    }
    fs::write(&file, bytes).expect("a file");
    let store = open(&file).await;
    let error = store.list("", LIMIT).await.expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(
        error
            .to_string()
            .contains("list failed: the file is damaged"),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_cut_short_is_refused_untouched() {
    let (_folder, file) = folder_and_file();
    made(&file).await;
    let bytes = fs::read(&file).expect("a file");
    fs::write(&file, &bytes[..100]).expect("a file");
    refused_untouched(&file, "damaged").await;
}

#[tokio::test]
async fn a_file_with_two_names_is_refused() {
    let (folder, file) = folder_and_file();
    made(&file).await;
    fs::hard_link(&file, folder.path().join("second")).expect("a second name");
    let error = refused_file(&file).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("names=2"), "{error}");
}

/// The log and the locks lie beside the path: two paths of one file would have two of each, and grant one name twice.
#[tokio::test]
async fn a_file_that_is_mounted_by_itself_is_refused_untouched() {
    let (folder, file) = folder_and_file();
    let store = open(&file).await;
    granted(&store, &claim("a", LONG)).await;
    let inside = folder.path().join("container");
    fs::create_dir(&inside).expect("a folder");
    let bound = inside.join("leases.sqlite");
    fs::write(&bound, "").expect("a file to mount on");
    let link = inside.join("link");
    std::os::unix::fs::symlink(&bound, &link).expect("a link");
    for path in [&bound, &link] {
        let mut child = Child::start_under(&surroundings::bound_to(&file, &bound), path);
        let said = child.refusal().unwrap_or_default();
        assert!(
            said.starts_with("refused Misconfigured: open failed: ")
                && said.contains("mount the folder"),
            "{said:?}; if the file could not be mounted: run this as root, or allow user namespaces"
        );
    }
    let beside = fs::read_dir(&inside).expect("a folder").count();
    assert_eq!(beside, 2, "a log of its own was left beside it");
}

/// A folder is mounted with all that lies in it.
#[tokio::test]
async fn a_file_in_a_mounted_folder_is_shared_with_those_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    let [outside, inside] = ["outside", "inside"].map(|name| folder.path().join(name));
    for path in [&outside, &inside] {
        fs::create_dir(path).expect("a folder");
    }
    let store = open(&outside.join("leases.sqlite")).await;
    granted(&store, &claim("a", LONG)).await;
    let surroundings = surroundings::bound_to(&outside, &inside);
    let mut child = Child::start_under(&surroundings, &inside.join("leases.sqlite"));
    assert!(child.ask("acquire a 60000").starts_with("held "));
}

#[tokio::test]
async fn a_path_that_holds_no_file_is_misconfigured() {
    let (folder, file) = folder_and_file();
    made(&file).await;
    for path in [
        folder.path().into(),
        folder.path().join("none/x"),
        file.join("x"),
    ] {
        let error = refused_file(&path).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(
            error
                .to_string()
                .contains(&format!("path={}", path.display())),
            "{error}"
        );
    }
    assert!(!folder.path().join("none").exists());
}

#[tokio::test]
async fn a_deleted_or_replaced_file_grants_nothing_more_and_tells_its_holders() {
    for replace in [false, true] {
        let (_folder, file) = folder_and_file();
        let store = open(&file).await;
        let ours = claim("ours", LONG);
        granted(&store, &ours).await;
        fs::remove_file(&file).expect("it is there");
        if replace {
            fs::write(&file, "").expect("a file");
        }
        assert_nothing_is_held(&store, &ours).await;
    }
}

/// A second process would make a log of its own, without any lease.
#[tokio::test]
async fn a_deleted_or_replaced_log_grants_nothing_more_and_tells_its_holders() {
    for (gone, replace) in [
        (&["-wal", "-shm"][..], false),
        (&["-wal", "-shm"], true),
        (&["-wal"], false),
        (&["-shm"], false),
        (&["-shm"], true),
    ] {
        let (_folder, file) = folder_and_file();
        let store = open(&file).await;
        let ours = claim("ours", LONG);
        granted(&store, &ours).await;
        for ending in gone {
            fs::remove_file(format!("{}{ending}", file.display())).expect("it is there");
        }
        let rival = replace.then(|| {
            let mut rival = Child::start(&file);
            rival.ask("acquire ours 60000");
            rival
        });
        assert_nothing_is_held(&store, &ours).await;
        drop(rival);
    }
}

#[tokio::test]
async fn the_holder_hears_of_a_deleted_log_at_its_next_renewal() {
    let (_folder, file) = folder_and_file();
    let ttl = Duration::from_secs(6);
    let client = leasehold::Client::builder()
        .store(open(&file).await)
        .ttl(ttl);
    let client = client.build().await.expect("it is in order");
    let lease = client.acquire("job").await.expect("it is free");
    for ending in ["-wal", "-shm"] {
        fs::remove_file(format!("{}{ending}", file.display())).expect("it is there");
    }
    let heard = tokio::time::timeout(ttl / 2, lease.lost()).await;
    heard.expect("it hears before half of its time is over");
}

/// A file from which nothing more can be had: a rival at its path sees nothing of what was held there.
async fn assert_nothing_is_held(store: &dyn Store, ours: &Asking) {
    let error = asked(store, &claim("b", LONG), LIMIT).await;
    let error = error.expect_err("replaced");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let renewed = store.renew(&[ours.renewal()], LIMIT).await.outcomes;
    assert!(matches!(renewed[..], [Outcome::Refused]), "{renewed:?}");
}

#[tokio::test]
async fn a_read_only_disk_is_misconfigured() {
    if !surroundings::are_allowed() {
        return;
    }
    let (folder, file) = folder_and_file();
    let surroundings = surroundings::read_only(folder.path());
    let refusal = || Child::start_under(&surroundings, &file).answer();
    assert!(refusal().is_some_and(|said| said.starts_with("refused Misconfigured: open failed: ")));
    made(&file).await;
    assert!(refusal().is_some_and(|said| said.starts_with("refused Misconfigured: open failed: ")));
}

#[tokio::test]
async fn a_file_without_the_right_to_write_it_is_denied() {
    if !surroundings::are_allowed() {
        return;
    }
    let (_folder, file) = folder_and_file();
    made(&file).await;
    fs::set_permissions(&file, PermissionsExt::from_mode(0o444)).expect("it is ours");
    let said = Child::start_under(surroundings::not_root(), &file).answer();
    assert!(
        said.as_ref()
            .is_some_and(|said| said.starts_with("refused Denied: open failed: ")),
        "{said:?}"
    );
}

#[tokio::test]
async fn a_full_disk_refuses_new_leases_and_still_renews_releases_and_passes_on() {
    if !surroundings::are_allowed() {
        return;
    }
    let (folder, file) = folder_and_file();
    let mut child = Child::start_under(&surroundings::small_disk(folder.path()), &file);
    assert!(child.ask("acquire a 60000").starts_with("granted "));
    assert_eq!(child.ask("stand a"), "ahead 0");
    let filler = folder.path().join("filler");
    assert_eq!(child.ask(&format!("fill {}", filler.display())), "full");
    let answer = (0..1_000)
        .map(|index| child.ask(&format!("acquire {index} 60000")))
        .find(|answer| !answer.starts_with("granted "))
        .expect("the room ends");
    assert!(
        answer.starts_with("error Unavailable: acquire failed: the disk is full"),
        "{answer}"
    );
    // However often clients try, also once the last page is taken.
    for index in 0..1_000 {
        child.ask(&format!("acquire more/{index} 60000"));
        assert_eq!(child.ask("renew a"), "renewed", "after {index} more claims");
    }
    let full = child.ask("acquire last 60000");
    assert!(full.starts_with("error Unavailable"), "{full}");
    assert_eq!(child.ask("release a"), "Ok(Released)");
    let kept = child.ask("acquire a 60000");
    assert!(
        kept.starts_with("held "),
        "not for the next in line: {kept}"
    );
}

#[tokio::test]
async fn a_full_disk_ends_no_wait() {
    if !surroundings::are_allowed() {
        return;
    }
    let (folder, file) = folder_and_file();
    let mut child = Child::start_under(&surroundings::small_disk(folder.path()), &file);
    assert!(child.ask("acquire a 60000").starts_with("granted "));
    assert!(child.ask("acquire b 60000").starts_with("granted "));
    assert!(child.ask("acquire free 1000").starts_with("granted "));
    assert_eq!(child.ask("stand a"), "ahead 0");
    assert_eq!(child.ask("stand free"), "ahead 0");
    let filler = folder.path().join("filler");
    assert_eq!(child.ask(&format!("fill {}", filler.display())), "full");
    let grants = (0..1_000).take_while(|index| {
        let answer = child.ask(&format!("acquire {index} 60000"));
        answer.starts_with("granted ")
    });
    assert!(grants.count() < 1_000, "the room ends");
    for _ in 0..1_000 {
        assert_eq!(child.ask("stay a"), "ahead 0");
    }
    assert_eq!(child.ask("stand b"), "held", "there is no room for a place");
    // No client has it any more, but another one comes first.
    pass_time(Duration::from_secs(1)).await;
    assert_eq!(child.ask("stand free"), "held");
    assert_eq!(child.ask("release a"), "Ok(Released)");
    let turn = child.ask("stay a");
    assert!(turn.starts_with("Err"), "a lease needs room: {turn}");
}

#[tokio::test]
async fn a_new_file_is_for_its_user_only_and_nothing_else_is_left_beside_it() {
    let (folder, file) = folder_and_file();
    let store = open(&file).await;
    granted(&store, &claim("a", LONG)).await;
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("facts").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{entry:?}");
        names.push(entry.file_name());
    }
    names.sort();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read");
    let fifo = format!("leases.sqlite-boot-{}", boot.trim());
    assert_eq!(
        names,
        [
            "leases.sqlite",
            &fifo,
            "leases.sqlite-shm",
            "leases.sqlite-wal"
        ]
    );
    store.close().await;
    let left = fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 1, "after the last process");
    assert_eq!(store.location(), file.display().to_string());
}

#[tokio::test]
async fn the_default_file_is_in_a_folder_of_the_users_own() {
    if !surroundings::are_allowed() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    let other = at("other.sqlite");
    let default = |state: &str, home: &str| {
        let (state, home) = (format!("XDG_STATE_HOME={state}"), format!("HOME={home}"));
        let surroundings = [surroundings::not_root(), &["env", &state, &home]].concat();
        Child::start_under(&surroundings, &other).ask("default")
    };
    let (state, home) = (
        at("state").display().to_string(),
        at("home").display().to_string(),
    );
    assert_eq!(
        default(&state, &home),
        format!("{state}/leasehold/leases.sqlite")
    );
    let below_home = format!("{home}/.local/state/leasehold/leases.sqlite");
    assert_eq!(default("relative/is/unset", &home), below_home);
    assert!(default("", "").contains("neither XDG_STATE_HOME nor HOME"));
    let folder_of_its_own = at("state/leasehold").metadata().expect("it was made");
    assert_eq!(folder_of_its_own.permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn names_that_differ_in_case_or_quotes_are_apart() {
    let (_folder, file) = folder_and_file();
    let store = open(&file).await;
    let odd = [
        "job",
        "JOB",
        "job'",
        "job\"",
        "job%",
        "job_",
        "'; DROP TABLE lease; --",
        "jöb",
    ];
    let claims = odd.map(|text| claim(text, LONG));
    for claim in &claims {
        granted(&store, claim).await;
    }
    let released = store
        .release(&name("JOB"), claims[1].holder, None, LIMIT)
        .await;
    released.expect("answered");
    held(&store, &claim("job", LONG)).await;
    let listed = store.list("job", LIMIT).await.expect("answered");
    let listed: Vec<_> = listed.iter().map(|held| held.name.as_str()).collect();
    assert_eq!(listed, ["job", "job\"", "job%", "job'", "job_"]);
}

#[tokio::test]
async fn leases_that_ran_out_are_swept_as_new_ones_come() {
    let (_folder, file) = folder_and_file();
    let store = open(&file).await;
    for index in 0..100 {
        granted(&store, &claim(&index.to_string(), Duration::from_nanos(1))).await;
    }
    let left: i64 = raw(&file)
        .query_row("SELECT count(*) FROM lease", (), |row| row.get(0))
        .expect("a count");
    assert!(left <= 2, "{left}");
}

#[tokio::test]
async fn tokens_rise_though_the_wall_clock_went_back() {
    let (_folder, file) = folder_and_file();
    let store = open(&file).await;
    let now = granted(&store, &claim("a", LONG)).await.get();
    let ahead = now + 3_600_000_000;
    raw(&file)
        .execute("UPDATE counter SET token = ?1", [ahead.cast_signed()])
        .expect("ours");
    assert_eq!(granted(&store, &claim("b", LONG)).await.get(), ahead + 1);
}

#[tokio::test]
async fn a_client_that_saw_a_token_from_a_wrong_clock_can_have_the_name_again() {
    const TWO_DAYS_US: i64 = 48 * 3_600_000_000;
    let (_folder, file) = folder_and_file();
    let client = client_at(&format!("sqlite:{}", file.display()), LONG).await;
    let mut last = None;
    for round in 0..3 {
        let lease = take(&client, "a").await;
        assert!(Some(lease.token()) > last, "{round}: {}", lease.token());
        last = Some(lease.token());
        lease.release().await;
        if round == 0 {
            // As after a grant while the clock was two days ahead.
            raw(&file)
                .execute("UPDATE counter SET token = token + ?1", [TWO_DAYS_US])
                .expect("ours");
        }
    }
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_an_error_rather_than_a_grant() {
    let (_folder, file) = folder_and_file();
    let store = open(&file).await;
    granted(&store, &claim("a", LONG)).await;
    raw(&file)
        .execute("UPDATE counter SET token = -1", ())
        .expect("ours");
    let error = asked(&store, &claim("b", LONG), LIMIT)
        .await
        .expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    raw(&file)
        .execute(
            "UPDATE lease SET holder = '?', info = '?', standing = 9",
            (),
        )
        .expect("ours");
    let found = held(&store, &claim("a", LONG)).await;
    assert_eq!((found.by, found.info.pid), (None, 0));
}

#[tokio::test]
async fn a_renewal_that_failed_says_what_caused_it() {
    let (_folder, file) = folder_and_file();
    let store = open(&file).await;
    let claim = claim("a", LONG);
    granted(&store, &claim).await;
    raw(&file)
        .execute_batch("DROP TABLE lease")
        .expect("the table is dropped");
    let batch = [claim.renewal()];
    let outcome = store.renew(&batch, LIMIT).await.outcomes.pop();
    let Some(Outcome::Unknown(error)) = outcome else {
        panic!("expected an unknown outcome, got {outcome:?}");
    };
    assert!(format!("{error:#}").contains("no such table"), "{error:#}");
}

/// As in `/tmp`, where another user can be first.
#[tokio::test]
async fn a_file_that_a_stranger_put_into_a_shared_folder_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    std::fs::write(&file, "").expect("planted");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).expect("ours");
    // In a folder of our own it is our own doing.
    open(&file).await.close().await;
    for log in ["leases.sqlite-wal", "leases.sqlite-shm"] {
        let _ = std::fs::remove_file(folder.path().join(log));
    }
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).expect("ours");
    let refused = leasehold::store::sqlite::Sqlite::open(file.clone()).await;
    let error = refused.expect_err("everybody may write it");
    assert_eq!(error.kind(), leasehold::ErrorKind::Misconfigured, "{error}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("ours");
    drop(open(&file).await);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    chown(&file, Some(65_534), None).expect("root gives it away");
    let refused = leasehold::store::sqlite::Sqlite::open(file.clone()).await;
    refused.expect_err("it is another user's");
}

#[tokio::test]
async fn a_file_with_auto_vacuum_is_refused_by_name_and_not_asked_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = open(&file).await;
    granted(&store, &claim("a", LONG)).await;
    let change = "PRAGMA auto_vacuum = FULL; VACUUM";
    raw(&file).execute_batch(change).expect("an administrator");
    let refused = asked(&store, &claim("b", LONG), LIMIT).await;
    let error = refused.expect_err("no page is free");
    assert_eq!(error.kind(), leasehold::ErrorKind::Misconfigured, "{error}");
    store.close().await;
    let refused = leasehold::store::sqlite::Sqlite::open(file.clone()).await;
    refused.expect_err("it is on");
    let change = "PRAGMA auto_vacuum = NONE; VACUUM";
    raw(&file).execute_batch(change).expect("an administrator");
    granted(&open(&file).await, &claim("b", LONG)).await;
}
