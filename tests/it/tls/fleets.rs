//! The store over Sentinels and on a cluster that accept only TLS, also among themselves.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::redis::Redis;
use leasehold::store::{Store, Tls};

use super::{connects, patient};
use crate::conformance::check_at;
use crate::harness::asking::{asked, chain, claim};
use crate::harness::leases::{client_at, take};
use crate::harness::redis_cluster::RedisCluster;
use crate::harness::redis_group::RedisGroup;
use crate::harness::redis_server::Setup;
use crate::harness::times::{LIMIT, LONG, PATIENCE};
use crate::harness::tls::{Authority, Certificate};

/// Servers and Sentinels name one another by this address.
const ADDRESS: &str = "127.0.0.1";

/// Longer than a failover takes.
const TTL: Duration = Duration::from_secs(6);

/// A cluster whose nodes show this certificate. If they are asking, clients must show one, too.
async fn cluster_behind_tls(certificate: &Certificate, is_asking: bool) -> RedisCluster {
    let setup = || Setup::default().with_tls(certificate, is_asking);
    RedisCluster::with(setup, false).await
}

/// The store refuses these servers for a reason that names the certificate.
async fn refuses(store: &Redis, word: &str) {
    let answer = asked(store, &claim("refused", LONG), LIMIT).await;
    let error = answer.expect_err("it is not trusted");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(chain(&error).contains(word), "{}", chain(&error));
    store.notices().await.expect_err("it is not trusted");
}

#[tokio::test]
async fn a_cluster_behind_tls_whose_certificate_names_no_address_keeps_the_contract() {
    let authority = Authority::new();
    let certificate = authority.issue("db.example");
    let cluster = cluster_behind_tls(&certificate, false).await;
    let trusted = format!("{}?ca={}", cluster.url(), authority.path().display());
    check_at(format!("{trusted}&server_name=db.example")).await;
    refuses(&patient(&trusted, Tls::new()), "db.example").await;
}

#[tokio::test]
async fn a_cluster_that_asks_for_a_certificate_is_shown_it_on_every_connection() {
    let authority = Authority::new();
    let certificate = authority.issue(ADDRESS);
    let cluster = cluster_behind_tls(&certificate, true).await;
    let trusting = || Tls::new().ca(authority.path());
    let known = trusting().client_certificate(certificate.path(), certificate.key());
    let store = patient(&cluster.url(), known);
    connects(&store).await;
    // Each node has connections of its own.
    for node in 0..3 {
        let name = cluster.name_on(node).await;
        asked(&store, &claim(&name, LONG), PATIENCE)
            .await
            .expect("answered");
    }
    refuses(&patient(&cluster.url(), trusting()), "CertificateRequired").await;
    let stranger = Authority::new();
    let other = Tls::new().ca(stranger.path());
    let other = other.client_certificate(certificate.path(), certificate.key());
    refuses(&patient(&cluster.url(), other), "invalid peer certificate").await;
}

#[tokio::test]
async fn sentinels_that_ask_for_a_certificate_are_shown_it_and_keep_the_contract() {
    let authority = Authority::new();
    let certificate = authority.issue(ADDRESS);
    let group = RedisGroup::behind_tls(&certificate).await;
    let trusted = format!("{}?ca={}", group.url(), authority.path().display());
    check_at(format!("{trusted}&{}", certificate.shown())).await;
    refuses(&patient(&trusted, Tls::new()), "CertificateRequired").await;
}

#[tokio::test]
async fn a_failover_behind_tls_is_followed_under_the_expected_name() {
    let authority = Authority::new();
    let certificate = authority.issue("db.example");
    let mut group = RedisGroup::behind_tls(&certificate).await;
    let parameters = format!(
        "?ca={}&{}&server_name=db.example",
        authority.path().display(),
        certificate.shown()
    );
    let url = format!("{}{parameters}", group.url());
    let client = client_at(&url, TTL).await;
    let lease = take(&client, "a").await;
    group.servers[0].kill();
    group.master_after(0).await;
    let term = lease.term().expect("it is held");
    lease.renewed_past(term.deadline()).await.expect("renewed");
    let stranger = Authority::new();
    let other = url.replace(
        &authority.path().display().to_string(),
        &stranger.path().display().to_string(),
    );
    refuses(&patient(&other, Tls::new()), "invalid peer certificate").await;
}
