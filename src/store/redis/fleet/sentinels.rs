//! Learns from the Sentinels which server is the master: all are asked at once, and the newest epoch wins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use deadpool_redis::redis::Value;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use super::super::failure::Failure;
use super::super::protocol::reply::{odd, parsed};
use super::super::target::SentinelGroup;
use super::Fleet;
use super::map::Map;
use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::kit::budget::Budget;
use crate::store::kit::server_url::HostPort;

/// How long to wait for the others after the first answer or, if no master is known yet, after a majority: they may
/// know of a newer master.
const FOR_THE_OTHERS: Duration = Duration::from_millis(20);

/// The master that a Sentinel names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opinion {
    master: HostPort,
    epoch: u64,
    /// The Sentinel that has it, if it says which it is: several addresses may lead to one.
    sentinel: Option<String>,
}

/// Asks all Sentinels for the master. A client that knows a master waits only a moment for the others after the first
/// answer, because it believes no older epoch. A client that knows none waits for most of them, or the end of the
/// budget, because the first to answer may have missed a failover.
pub(super) async fn ask_all(
    fleet: &Fleet,
    group: &SentinelGroup,
    budget: Budget,
) -> (Vec<Opinion>, Vec<Failure>) {
    let endpoints = group.endpoints.iter();
    let asked = endpoints.map(|endpoint| ask(fleet, group, endpoint, budget));
    let mut asked: FuturesUnordered<_> = asked.collect();
    let (mut opinions, mut failures) = (Vec::new(), Vec::new());
    let knows_one = fleet.map.borrow().is_known();
    let mut left = budget;
    while let Ok(Some(answer)) = timeout(left.left(), asked.next()).await {
        match answer {
            Ok(opinion) => opinions.push(opinion),
            Err(failure) => failures.push(failure),
        }
        if !opinions.is_empty() && (knows_one || are_most(&opinions, group.endpoints.len())) {
            left = left.at_most(FOR_THE_OTHERS);
        }
    }
    (opinions, failures)
}

/// Records in the map the master that these opinions name. Returns whether any of them is believed.
pub(super) fn settle(opinions: &[Opinion], sentinels: usize, map: &mut Map) -> bool {
    let chosen = choose(opinions, sentinels, map);
    if let Some(opinion) = chosen {
        map.set_master(opinion.master.clone(), opinion.epoch);
    }
    chosen.is_some()
}

/// Asks one. Its address command names the promoted server as soon as the failover is decided, before the master's own
/// entry does; only that entry has the epoch.
async fn ask(
    fleet: &Fleet,
    group: &SentinelGroup,
    endpoint: &HostPort,
    budget: Budget,
) -> Result<Opinion, Failure> {
    let name = &*group.name;
    let questions: [&[&str]; 3] = [
        &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name],
        &["SENTINEL", "MASTER", name],
        &["SENTINEL", "MYID"],
    ];
    let sentinel = fleet.sentinel(group, endpoint)?;
    let [address, master, id] = sentinel.ask_each(questions, budget).await?;
    let mut opinion = read(&address?, master, id.ok(), name)?;
    let HostPort { host, port } = &opinion.master;
    if let Some(master) = fleet.address_map.reached(host, *port, endpoint) {
        opinion.master = master;
    }
    Ok(opinion)
}

fn read(
    address: &Value,
    master: Result<Value, Failure>,
    sentinel: Option<Value>,
    name: &str,
) -> Result<Opinion, Failure> {
    let Some((host, port)) = parsed::<Option<(String, String)>>(address)? else {
        let words = format!("the Sentinels know no master named {name:?}");
        return Err(Failure::other(ErrorKind::Misconfigured, Sent::Never, words));
    };
    let port = port.parse().map_err(|_| odd(address))?;
    let fields: BTreeMap<String, String> = parsed(&master?)?;
    let epoch = fields.get("config-epoch");
    let epoch = epoch.and_then(|epoch| epoch.parse().ok());
    Ok(Opinion {
        master: HostPort::new(&host, port),
        epoch: epoch.ok_or_else(|| Failure::odd("no config-epoch"))?,
        sentinel: sentinel.and_then(|id| parsed(&id).ok()),
    })
}

/// Chooses the newest opinion; of equally new ones the most frequent, and in doubt the known master.
///
/// An epoch below the known one is believed only from a majority of at least two: Sentinels that were set up anew count
/// from the start, but a single old one may have missed a failover. One address may lead to any of several Sentinels,
/// and several addresses to one: so each Sentinel counts once, by its id, and one without an id does not count.
fn choose<'a>(opinions: &'a [Opinion], sentinels: usize, known: &Map) -> Option<&'a Opinion> {
    let most = (sentinels / 2 + 1).max(2);
    let is_believed = |opinion: &&Opinion| {
        let ids = sharing(opinions, opinion).filter_map(|other| other.sentinel.as_ref());
        opinion.epoch >= known.epoch || ids.collect::<BTreeSet<_>>().len() >= most
    };
    opinions.iter().filter(is_believed).max_by_key(|opinion| {
        (
            opinion.epoch,
            sharing(opinions, opinion).count(),
            known.serves(&opinion.master),
        )
    })
}

/// Returns whether these are the opinions of most of the Sentinels. Each counts once, as in [`choose`].
fn are_most(opinions: &[Opinion], sentinels: usize) -> bool {
    let ids = opinions
        .iter()
        .filter_map(|opinion| opinion.sentinel.as_ref());
    ids.collect::<BTreeSet<_>>().len() > sentinels / 2
}

fn sharing<'o>(opinions: &'o [Opinion], one: &'o Opinion) -> impl Iterator<Item = &'o Opinion> {
    let is_same = move |other: &&Opinion| (&other.master, other.epoch) == (&one.master, one.epoch);
    opinions.iter().filter(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opinion(port: u16, epoch: u64, sentinel: usize) -> Opinion {
        Opinion {
            master: HostPort::new("db", port),
            epoch,
            sentinel: Some(sentinel.to_string()),
        }
    }

    fn chosen(opinions: &[(u16, u64)], known: Option<(u16, u64)>) -> Option<u16> {
        let mut map = Map::default();
        if let Some((port, epoch)) = known {
            map.set_master(HostPort::new("db", port), epoch);
        }
        let opinions = opinions.iter().enumerate();
        let opinions = opinions.map(|(sentinel, &(port, epoch))| opinion(port, epoch, sentinel));
        let opinions: Vec<_> = opinions.collect();
        choose(&opinions, 3, &map).map(|opinion| opinion.master.port)
    }

    #[test]
    fn the_newest_opinion_wins_wherever_it_stands() {
        assert_eq!(chosen(&[(1, 4), (2, 5), (1, 4)], None), Some(2));
        assert_eq!(chosen(&[(2, 5), (1, 4)], Some((1, 4))), Some(2));
    }

    #[test]
    fn an_old_opinion_is_believed_only_from_a_majority() {
        assert_eq!(chosen(&[(1, 4)], Some((2, 5))), None);
        assert_eq!(chosen(&[(1, 4), (2, 5)], Some((2, 5))), Some(2));
        assert_eq!(chosen(&[(3, 0), (3, 0)], Some((2, 5))), Some(3));
        assert_eq!(chosen(&[(3, 0), (4, 0)], Some((2, 5))), None);
    }

    #[test]
    fn an_old_opinion_of_one_is_not_believed_although_no_other_was_named() {
        let mut known = Map::default();
        known.set_master(HostPort::new("db", 2), 5);
        assert_eq!(choose(&[opinion(1, 4, 0)], 1, &known), None);
        let newer = [opinion(1, 6, 0)];
        assert_eq!(choose(&newer, 1, &known), Some(&newer[0]));
        let both = [opinion(1, 4, 0), opinion(1, 4, 1)];
        assert_eq!(choose(&both, 2, &known), Some(&both[1]));
    }

    #[test]
    fn a_sentinel_of_two_names_or_without_an_id_confirms_no_old_opinion() {
        let mut known = Map::default();
        known.set_master(HostPort::new("db", 2), 5);
        let twice = [opinion(1, 4, 7), opinion(1, 4, 7)];
        assert_eq!(choose(&twice, 2, &known), None);
        let nameless = twice.map(|opinion| Opinion {
            sentinel: None,
            ..opinion
        });
        assert_eq!(choose(&nameless, 2, &known), None);
    }

    #[test]
    fn the_known_master_stays_while_the_opinions_are_equal() {
        assert_eq!(chosen(&[(1, 4), (2, 4)], Some((1, 4))), Some(1));
        assert_eq!(chosen(&[(1, 4), (2, 4)], Some((2, 4))), Some(2));
        assert_eq!(chosen(&[(1, 4), (2, 4), (2, 4)], Some((1, 4))), Some(2));
    }

    #[test]
    fn the_replies_of_a_sentinel_are_read() {
        let word = |text: &str| Value::BulkString(text.into());
        let address = Value::Array(vec![word("10.0.0.2"), word("6379")]);
        let master = ["name", "main", "ip", "10.0.0.1", "config-epoch", "7"];
        let master = Value::Array(master.map(word).to_vec());
        let id = word("5d2b");
        let read_all = read(&address, Ok(master), Some(id), "main").expect("an opinion");
        let expected = Opinion {
            master: HostPort::new("10.0.0.2", 6_379),
            epoch: 7,
            sentinel: Some("5d2b".into()),
        };
        assert_eq!(read_all, expected);
        let failure = read(&Value::Nil, Err(Failure::odd("")), None, "main");
        let failure = failure.expect_err("unknown");
        assert!(failure.to_string().contains("no master named"), "{failure}");
        assert!(read(&address, Ok(Value::Array(vec![])), None, "main").is_err());
    }
}
