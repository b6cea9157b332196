//! Processes that take part in a bench, such as the bench itself, started again: each reads one order a line, and answers it.
//! Those that take turns answer with their turns.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use leasehold::clock::{Clock as _, Monotonic};

use crate::median;

/// One turn: when it was granted, and when its release was called, in nanoseconds.
pub type Turn = (u64, u64);

/// The moment of a turn, on a clock that all processes read.
pub fn now() -> u64 {
    Monotonic.now().as_nanos()
}

/// Answers an order with these turns.
pub fn tell(turns: &[Turn]) {
    let turns = turns.iter();
    let told = turns.map(|(granted, released)| format!("{granted},{released}"));
    println!("{}", told.collect::<Vec<_>>().join(" "));
}

/// A process that takes part, as the bench sees it. It ends when this is dropped.
pub struct Contender {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Contender {
    /// Starts this bench again with these variables, by which it knows that it takes part.
    pub fn start<V: AsRef<OsStr>>(variables: impl IntoIterator<Item = (&'static str, V)>) -> Self {
        let own = std::env::current_exe().expect("this bench");
        let mut command = Command::new(own);
        command.envs(variables);
        Self::of(command)
    }

    /// Starts a program that takes part.
    pub fn of(mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        Self {
            orders: process.stdin.take().expect("it is piped"),
            answers: BufReader::new(process.stdout.take().expect("it is piped")),
            process,
        }
    }

    /// Returns the id of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("it listens");
    }

    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line
    }

    fn turns(&mut self) -> Vec<Turn> {
        let line = self.answer();
        let turns = line.split_whitespace().map(|turn| {
            let (granted, released) = turn.split_once(',').expect("two moments");
            let read = |moment: &str| moment.parse().expect("a moment");
            (read(granted), read(released))
        });
        turns.collect()
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes all contenders contend, and returns all turns in the order of their grants, each with its contender.
pub fn contend(contenders: &mut [Contender], order: &str) -> Vec<(Turn, usize)> {
    for contender in contenders.iter_mut() {
        contender.order(order);
    }
    let mut all = Vec::new();
    for (index, contender) in contenders.iter_mut().enumerate() {
        all.extend(contender.turns().into_iter().map(|turn| (turn, index)));
    }
    all.sort_unstable();
    all
}

/// Returns the median hand-off from one contender to another, in microseconds.
pub fn hand_off(contenders: &mut [Contender], order: &str) -> f64 {
    let turns = contend(contenders, order);
    let pairs = turns.windows(2).filter(|pair| pair[0].1 != pair[1].1);
    #[expect(clippy::cast_precision_loss, reason = "less than a minute")]
    let took = pairs.map(|pair| pair[1].0.0.saturating_sub(pair[0].0.1) as f64 / 1e3);
    median(took.collect())
}
