//! On the crate's store in memory, and on stores that cannot be fenced.

use std::sync::Arc;
use std::time::Duration;

use leasehold::fence::Refusal;
use leasehold::fence::object_store::Fence;
use leasehold::store::memory::Memory;
use leasehold::{Client, ErrorKind};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::time::timeout;

use super::faulty::{Fault, Faulty};
use super::registers::Registers;
use super::{fence, one_more};
use crate::fence::{keeps_the_contract, pass, pass_for};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_that_remembers_its_writes_keeps_the_contract() {
    keeps_the_contract(Registers::of_one_process(Arc::new(InMemory::new()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_keep_the_contract() {
    keeps_the_contract(Registers::of_many_processes(Arc::new(InMemory::new()))).await;
}

/// The paused writer goes on from the version that it wrote last.
#[tokio::test]
async fn a_writer_that_wakes_after_a_raise_is_refused_whatever_the_successor_wrote() {
    for successor_writes in [&[][..], &["the same"], &["another"], &["many"; 20]] {
        let store = Arc::new(InMemory::new());
        let (paused, successor) = (fence(&store), fence(&store));
        paused
            .commit(&pass(1, 1), |_| "the same")
            .await
            .expect("written");
        successor.raise(&pass(2, 2)).await.expect("raised");
        for content in successor_writes {
            let written = successor.commit(&pass(2, 2), |_| *content).await;
            written.expect("written");
        }
        let before = successor.read().await.expect("read");
        let error = paused.commit(&pass(1, 1), |_| "late").await;
        let error = error.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Stale, "{error:#}");
        let stored = pass(2, 2).token;
        assert_eq!(Refusal::of(&error), Some(&Refusal::Stale { stored }));
        assert_eq!(successor.read().await.expect("read"), before);
    }
}

#[tokio::test]
async fn a_refusal_lifts_the_next_grant_over_what_the_object_has() {
    let client = Client::builder()
        .store(Memory::new())
        .build()
        .await
        .unwrap();
    let lease = client.acquire("nightly").await.unwrap();
    let mut ahead = lease.pass().unwrap();
    ahead.token = leasehold::Token::new(lease.token().get() + 3_600_000_000).unwrap();
    let fence = fence(&Arc::default());
    fence.raise(&ahead).await.unwrap();
    let error = fence.commit(&lease, |_| "late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error:#}");
    lease.release().await;
    let lease = client.acquire("nightly").await.unwrap();
    assert!(lease.token() > ahead.token);
    fence.commit(&lease, |_| "mine").await.unwrap();
}

#[tokio::test]
async fn a_read_gives_content_pass_and_number_to_any_reader() {
    let store = Arc::new(InMemory::new());
    assert_eq!(fence(&store).read().await.expect("read"), None);
    let raised = fence(&store).raise(&pass(1, 1)).await.expect("raised");
    assert_eq!((&raised.content[..], raised.number), (&b""[..], 2));
    let written = fence(&store).commit(&pass(1, 1), one_more).await;
    let written = written.expect("written");
    let read = fence(&store).read().await.expect("read").expect("there");
    assert_eq!(read, written);
    assert_eq!((&read.content[..], &read.pass), (&b"1"[..], &pass(1, 1)));
    assert!(read.number > raised.number);
}

/// How many requests each call takes is on the guard's page.
#[tokio::test]
async fn each_call_takes_as_many_requests_as_its_page_says() {
    let store = Faulty::with(Fault::None);
    let fence = || Fence::new(store.clone(), "ledger").expect("valid");
    let first = fence();
    first.raise(&pass(1, 1)).await.expect("raised");
    assert_eq!(
        store.requests(),
        (4, 1),
        "the raise that creates the object"
    );
    let second = fence();
    second.raise(&pass(1, 1)).await.expect("raised");
    assert_eq!(store.requests(), (2, 1), "the first raise of a process");
    second.raise(&pass(1, 1)).await.expect("raised");
    assert_eq!(store.requests(), (0, 1), "a later raise");
    for _ in 0..3 {
        second.commit(&pass(1, 1), one_more).await.expect("written");
        assert_eq!(store.requests(), (1, 0), "a commit");
    }
    first.commit(&pass(1, 1), one_more).await.expect("written");
    assert_eq!(store.requests(), (2, 1), "a commit after another's");
}

/// Before one version in sixteen a writer lets successors in. It measures how long they need by its last request, which
/// the client may have sent again for minutes.
#[tokio::test(start_paused = true)]
async fn after_a_request_that_took_long_a_commit_waits_for_a_second_at_most() {
    let store = Faulty::with(Fault::None);
    let fence = Fence::new(store.clone(), "ledger").expect("valid");
    let mut last = fence.raise(&pass(1, 1)).await.expect("raised");
    while last.number % 16 != 0 {
        if last.number % 16 == 15 {
            store.delay(Duration::from_millis(700));
        }
        let written = fence.commit(&pass(1, 1), one_more).await;
        last = written.expect("written");
    }
    let pass = pass(1, 1);
    let next = fence.commit(&pass, one_more);
    let next = timeout(Duration::from_millis(1_200), next).await;
    next.expect("a second at most").expect("written");
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_refused_by_the_first_raise_and_by_the_trial() {
    let store = Faulty::with(Fault::IgnoresConditions);
    let fence = Fence::new(store.clone(), "ledger").expect("valid");
    for error in [
        fence.raise(&pass(1, 1)).await.expect_err("no fence"),
        fence
            .commit(&pass(1, 1), one_more)
            .await
            .expect_err("no fence"),
        Fence::try_out(&*store).await.expect_err("unfit"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    }
}

#[tokio::test]
async fn a_store_without_versions_is_refused() {
    let store = Faulty::with(Fault::HasNoVersions);
    let fence = Fence::new(store.clone(), "ledger").expect("valid");
    let error = fence.raise(&pass(1, 1)).await.expect_err("no fence");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("no version"), "{error}");
    Fence::try_out(&*store).await.expect_err("unfit");
}

#[tokio::test]
async fn the_trial_refuses_a_store_on_which_an_outdated_put_undoes_a_delete() {
    let store = Faulty::with(Fault::CreatesByUpdate);
    let error = Fence::try_out(&*store).await.expect_err("unfit");
    assert!(error.to_string().contains("after a delete"), "{error}");
}

#[tokio::test]
async fn the_trial_passes_a_sound_store_and_leaves_nothing() {
    let store = Arc::new(InMemory::new());
    Fence::try_out(&*store).await.expect("fit");
    let left = store.list_with_delimiter(None).await.expect("listed");
    assert_eq!((left.objects.len(), left.common_prefixes.len()), (0, 0));
}

#[tokio::test]
async fn a_local_folder_is_refused_and_the_fence_in_sqlite_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let fence = Fence::new(store.clone(), "ledger").expect("valid");
    for error in [
        fence.raise(&pass(1, 1)).await.expect_err("no fence"),
        fence.raise(&pass(1, 1)).await.expect_err("still none"),
        Fence::try_out(&*store).await.expect_err("unfit"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("SQLite"), "{error}");
    }
}

#[tokio::test]
async fn a_path_of_no_object_is_refused() {
    for path in ["", "/"] {
        let error = Fence::new(Arc::new(InMemory::new()), path).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[tokio::test]
async fn an_object_that_is_not_a_fenced_one_is_left_alone() {
    let store = Arc::new(InMemory::new());
    let path = Path::from("ledger/total");
    store.put(&path, "7".into()).await.unwrap();
    let error = fence(&store).raise(&pass(1, 1)).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("not a fenced one"), "{error}");
    let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes, "7");
}

#[tokio::test]
async fn a_holder_whose_object_was_deleted_is_told() {
    let store = Arc::new(InMemory::new());
    let fence = fence(&store);
    fence.commit(&pass(1, 1), one_more).await.expect("written");
    store.delete(fence.path()).await.unwrap();
    let error = fence.commit(&pass(1, 1), one_more).await;
    let error = error.expect_err("the fence was deleted");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("deleted"), "{error}");
}

#[tokio::test]
async fn another_lease_name_is_in_conflict() {
    let store = Arc::new(InMemory::new());
    fence(&store).raise(&pass(1, 1)).await.expect("raised");
    let other = pass_for("weekly", 2, 9);
    let error = fence(&store).raise(&other).await.expect_err("refused");
    let known = Refusal::of(&error).expect("a refusal");
    assert!(matches!(known, Refusal::Conflict { stored } if **stored == pass(1, 1)));
}

#[tokio::test]
async fn a_conflict_at_the_first_raise_is_tried_again() {
    let store: Arc<dyn ObjectStore> = Faulty::with(Fault::IsBusyAtFirst);
    let fence = Fence::new(store, "report").expect("valid");
    fence.raise(&pass(1, 1)).await.expect("raised");
    let stored = fence.read().await.expect("read").expect("there");
    assert_eq!(stored.pass, pass(1, 1));
}
