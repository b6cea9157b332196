//! What contenders said of their leases, and what is wrong with it. Their moments are of one clock of this machine.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::harness::subprocess::Subprocess;

/// Grants and holds of all names.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) grants: usize,
    pub(super) losses: usize,
    /// How many grants had a token that was granted before.
    doubles: usize,
    names: BTreeMap<String, BTreeMap<u64, Option<Hold>>>,
}

/// The first and the last moment when a lease was certainly held.
#[derive(Debug, Clone, Copy)]
struct Hold {
    first: u64,
    last: u64,
}

/// What is wrong with a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wrongs {
    /// How many leases were held while one with a lower token was held as well.
    overlaps: usize,
    /// How many leases ended before one with a lower token began.
    falls: usize,
    /// How many tokens came again.
    doubles: usize,
}

impl Journal {
    /// Ends this contender, and notes what it has said and is still to be heard.
    pub(super) fn finish(&mut self, contender: &mut Subprocess) {
        contender.kill();
        while let Some(said) = contender.next_answer() {
            self.note(&said);
        }
    }

    /// Notes `granted NAME TOKEN`, `held NAME TOKEN MOMENT` or `lost NAME TOKEN`.
    pub(super) fn note(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().expect("a number");
        let token = number(2);
        let holds = self.names.entry(words[1].into()).or_default();
        match words[0] {
            "granted" => {
                self.grants += 1;
                self.doubles += usize::from(holds.insert(token, None).is_some());
            }
            "held" => {
                let moment = number(3);
                let hold = holds.get_mut(&token).expect("it was granted");
                let first = hold.map_or(moment, |hold| hold.first);
                *hold = Some(Hold {
                    first,
                    last: moment,
                });
            }
            "lost" => self.losses += 1,
            _ => panic!("{line}"),
        }
    }

    /// Returns the longest time without the beginning of a lease of any name.
    pub(super) fn longest_gap(&self) -> Duration {
        let holds = self.names.values().flat_map(BTreeMap::values).flatten();
        let mut begun: Vec<u64> = holds.map(|hold| hold.first).collect();
        begun.sort_unstable();
        let gaps = begun.windows(2).map(|pair| pair[1] - pair[0]);
        Duration::from_nanos(gaps.max().unwrap_or_default())
    }

    pub(super) fn wrongs(&self) -> Wrongs {
        let mut wrongs = Wrongs {
            doubles: self.doubles,
            ..Wrongs::default()
        };
        for holds in self.names.values() {
            // In the order of their tokens.
            let mut holds = holds.values().flatten();
            let Some(mut latest) = holds.next() else {
                continue;
            };
            for hold in holds {
                if hold.last < latest.first {
                    wrongs.falls += 1;
                } else if hold.first <= latest.last {
                    wrongs.overlaps += 1;
                }
                if hold.last > latest.last {
                    latest = hold;
                }
            }
        }
        wrongs
    }
}

impl fmt::Display for Wrongs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            overlaps,
            falls,
            doubles,
        } = self;
        write!(
            f,
            "overlaps={overlaps} tokens_that_fell={falls} tokens_twice={doubles}"
        )
    }
}

fn wrongs(lines: &[&str]) -> Wrongs {
    let mut journal = Journal::default();
    lines.iter().for_each(|line| journal.note(line));
    journal.wrongs()
}

#[test]
fn leases_one_after_the_other_with_rising_tokens_are_right() {
    let said = [
        "granted a 1",
        "held a 1 10",
        "held a 1 20",
        "lost a 1",
        "granted a 2",
        "granted a 3",
        "held a 3 21",
        "granted b 2",
        "held b 2 15",
    ];
    assert_eq!(wrongs(&said), Wrongs::default());
}

#[test]
fn an_overlap_a_fall_and_a_token_that_comes_twice_are_seen() {
    let overlap = ["granted a 1", "held a 1 10", "granted a 2", "held a 2 15"];
    let overlap = [&overlap[..], &["held a 1 20"]].concat();
    assert_eq!(wrongs(&overlap).overlaps, 1);
    let fall = ["granted a 2", "held a 2 10", "granted a 1", "held a 1 20"];
    assert_eq!(wrongs(&fall).falls, 1);
    assert_eq!(wrongs(&["granted a 1", "granted a 1"]).doubles, 1);
}
