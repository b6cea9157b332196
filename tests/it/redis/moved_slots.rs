//! Tokens and leases travel with their slot when an operator moves it to another server of a cluster.
//!
//! Each end of the move is a store of its own. What a client does when the map changes under it is tested in `cluster`.

use leasehold::Token;
use leasehold::store::{Outcome, Release};

use super::open;
use super::wire::mark;
use crate::harness::asking::{claim, granted, next_token, released, renewed};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::LONG;
use crate::harness::wait::until;

const HOUR_US: i64 = 3_600_000_000;

/// Two servers of one cluster. The first has the slot of `name`.
struct Pair {
    from: RedisServer,
    to: RedisServer,
    slots: Vec<u16>,
}

fn cluster_url(node: &RedisServer) -> String {
    format!("redis+cluster://127.0.0.1:{}", node.port())
}

impl Pair {
    async fn of(name: &str) -> Self {
        let (from, to) = (
            Setup::default().with_cluster_bus().start().await,
            Setup::default().with_cluster_bus().start().await,
        );
        let slots = vec![from.told(&format!("CLUSTER KEYSLOT {name}")).await];
        // One more stays behind: a server that lost its last slot would follow the other as its replica.
        let stays = (0..).find(|slot| !slots.contains(slot));
        for slot in slots.iter().copied().chain(stays) {
            let () = from.told(&format!("CLUSTER ADDSLOTS {slot}")).await;
        }
        let () = from
            .told(&format!("CLUSTER MEET 127.0.0.1 {}", to.port()))
            .await;
        for server in [&from, &to] {
            until("both know each other, and who has the slots", async || {
                let info: String = server.told("CLUSTER INFO").await;
                let is_known = info.contains("cluster_known_nodes:2")
                    && info.contains("cluster_slots_assigned:2")
                    && info.contains("cluster_state:ok");
                is_known.then_some(())
            })
            .await;
        }
        Self { from, to, slots }
    }

    /// As `redis-cli --cluster reshard` does it.
    async fn move_slots(&self) {
        let (from, to) = (&self.from, &self.to);
        let from_id: String = from.told("CLUSTER MYID").await;
        let to_id: String = to.told("CLUSTER MYID").await;
        for slot in &self.slots {
            let () = to
                .told(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"))
                .await;
            let () = from
                .told(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"))
                .await;
            let keys: Vec<String> = from
                .told(&format!("CLUSTER GETKEYSINSLOT {slot} 100"))
                .await;
            for key in keys {
                let () = from
                    .told(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port()))
                    .await;
            }
            for server in [to, from] {
                let () = server
                    .told(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"))
                    .await;
            }
        }
    }
}

#[tokio::test]
async fn tokens_rise_while_a_slot_moves_with_its_mark_ahead_of_the_clock() {
    let pair = Pair::of("a").await;
    let before = open(&cluster_url(&pair.from)).await;
    let hour_ahead = pair.from.time_ms().await * 1_000 + HOUR_US;
    let floor = Token::new(hour_ahead.cast_unsigned()).expect("a token");
    let lifted = claim("a", LONG).with_floor(floor);
    let token = granted(&*before, &lifted).await;
    assert_eq!(released(&*before, &lifted).await, Release::Released);
    pair.move_slots().await;
    assert_eq!(pair.to.keys().await, [mark("a")]);
    let after = next_token(&*open(&cluster_url(&pair.to)).await, "a").await;
    assert!(after > token, "{after} after {token}");
}

#[tokio::test]
async fn a_held_lease_moves_with_its_slot_and_is_renewed_there() {
    let pair = Pair::of("a").await;
    let held = claim("a", LONG);
    granted(&*open(&cluster_url(&pair.from)).await, &held).await;
    pair.move_slots().await;
    let after = open(&cluster_url(&pair.to)).await;
    assert!(matches!(renewed(&*after, &held).await, Outcome::Renewed));
    assert_eq!(released(&*after, &held).await, Release::Released);
    pair.to.assert_all_keys_run_out().await;
}
