//! Eight processes contend for a few names over bad networks, while they are killed and stopped and their server crashes.

use std::time::Duration;

use leasehold::clock::Instant;

use crate::faults::contender::take_turns_behind;
use crate::faults::journal::{Journal, Wrongs};
use crate::harness::wait::{at, now};
use crate::postgres::own_server;

const CONTENDERS: usize = 8;
const TTL: Duration = Duration::from_millis(1_500);
const FOR: Duration = Duration::from_secs(150);
/// Maximum time that a process stands still: more than two ttls.
const LONGEST_STOP: u64 = 4_000;

#[tokio::test]
async fn no_two_hold_at_once_and_tokens_rise_whatever_is_cut_stopped_and_killed() {
    let (server, database) = own_server().await;
    let seed = fastrand::u64(..);
    println!("seed={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let socket = database.socket();
    let mut start = || take_turns_behind(&socket, TTL, dice.u64(..));
    let mut contenders: Vec<_> = (0..CONTENDERS).map(|_| start()).collect();
    let mut stopped: Vec<Option<Instant>> = vec![None; CONTENDERS];
    let (mut journal, mut faults) = (Journal::default(), Faults::default());
    let mut dice = fastrand::Rng::with_seed(!seed);
    let (end, mut next_fault) = (now().after(FOR), now());
    while now() < end {
        at(now().after(Duration::from_millis(20))).await;
        for (contender, until) in contenders.iter().zip(&mut stopped) {
            while let Some(said) = contender.answered() {
                journal.note(&said);
            }
            if until.take_if(|until| now() >= *until).is_some() {
                contender.resume();
            }
        }
        if now() < next_fault {
            continue;
        }
        next_fault = now().after(Duration::from_millis(dice.u64(200..1_500)));
        let which = dice.usize(..CONTENDERS);
        match dice.u32(..40) {
            0 => {
                faults.crashes += 1;
                server.end("QUIT").await;
                server.start_again().await;
            }
            1..16 => {
                faults.kills += 1;
                journal.finish(&mut contenders[which]);
                contenders[which] = start();
                stopped[which] = None;
            }
            _ if stopped[which].is_none() => {
                faults.stops += 1;
                contenders[which].pause();
                let rest = Duration::from_millis(dice.u64(100..LONGEST_STOP));
                stopped[which] = Some(now().after(rest));
            }
            _ => {}
        }
    }
    for contender in &mut contenders {
        journal.finish(contender);
    }
    let (grants, wrongs) = (journal.grants, journal.wrongs());
    let losses = journal.losses;
    println!(
        "{CONTENDERS} processes for {FOR:?}: grants={grants} losses={losses} {faults:?} {wrongs}"
    );
    assert_eq!(wrongs, Wrongs::default());
    assert!(grants > 100, "only {grants} grants");
}

/// What was done to the processes and to the server.
#[derive(Debug, Default)]
struct Faults {
    kills: usize,
    stops: usize,
    crashes: usize,
}
