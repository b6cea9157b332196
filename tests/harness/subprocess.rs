//! This test binary, started again as a process of its own that follows orders, line by line.
//!
//! It runs one test, which finds its task here. So it is always built, always of the same build, and no helper program
//! has to be found or shipped; and it can be stopped, killed and cut off. It ends with its standard input, however the
//! test that started it ends.

use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::child::stop;

/// Has the task; set only for such a process.
const TASK: &str = "TEST_TASK";
/// Our lines among those of the test runner.
const MARK: &str = "@ ";
/// How many answers may wait to be read; a process with more to say waits.
const ANSWERS: usize = 1_024;
/// How long an answer may take. Longer than any order takes on a busy machine: a test that reaches it has failed.
const LONGEST: Duration = Duration::from_secs(300);

/// Such a process, as its parent sees it. Ends on drop.
#[derive(Debug)]
pub struct Subprocess {
    process: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Subprocess {
    /// Starts the test of this name with a task.
    pub fn start(test: &str, task: &str) -> Self {
        Self::start_by(Command::new(own()), test, task)
    }

    /// The same by a command that makes its surroundings and ends with the path of this binary.
    pub fn start_by(mut command: Command, test: &str, task: &str) -> Self {
        let mut process = command
            .args([
                "--exact",
                test,
                "--quiet",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(TASK, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary starts again");
        let (sender, answers) = sync_channel(ANSWERS);
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(answer) = line.strip_prefix(MARK)
                    && sender.send(answer.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self {
            orders: process.stdin.take(),
            answers,
            process,
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Gives an order.
    pub fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("it was not told to finish");
        writeln!(orders, "{order}").expect("it listens");
    }

    /// Waits for the next answer.
    pub fn answer(&self) -> String {
        self.next_answer().expect("it did not end")
    }

    /// The same for one that may end: `None` if it has said everything.
    pub fn next_answer(&self) -> Option<String> {
        match self.answers.recv_timeout(LONGEST) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no answer within {LONGEST:?}"),
        }
    }

    /// The next answer, if it is there already.
    pub fn answered(&self) -> Option<String> {
        self.answers.try_recv().ok()
    }

    /// Gives no more orders.
    pub fn end_orders(&mut self) {
        drop(self.orders.take());
    }

    /// Lets it end by itself.
    pub fn finish(&mut self) {
        self.end_orders();
        assert!(self.process.wait().expect("it is our child").success());
    }

    /// Stops it where it stands.
    pub fn pause(&self) {
        stop(Pid::from_child(&self.process));
    }

    /// Lets it go on.
    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.process), Signal::CONT).expect("it is our child");
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is our child");
        self.process.wait().expect("it is our child");
    }
}

impl Drop for Subprocess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the path of this binary.
pub fn own() -> std::path::PathBuf {
    std::env::current_exe().expect("the test binary")
}

/// Returns the task, in a process that was started with one.
pub fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// Says a line to the parent.
pub fn say(answer: impl Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{answer}").expect("the parent listens");
    out.flush().expect("the parent listens");
}

/// Returns the orders of the parent, for a process that has other things to wait for. They end with the parent.
pub fn orders() -> tokio::sync::mpsc::Receiver<String> {
    let (sender, orders) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        for order in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(order).is_err() {
                return;
            }
        }
    });
    orders
}
