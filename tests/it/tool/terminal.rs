//! A job that is started from a shell on a terminal, and the keys that are pressed there.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{Sandbox, wait_until};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// A shell with job control on a terminal of its own.
pub(super) struct Shell {
    child: Child,
    keys: File,
    screen: Arc<Mutex<String>>,
}

impl Shell {
    pub(super) fn on(sandbox: &Sandbox) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let slave = || {
            let mut options = File::options();
            let path = name.to_str().expect("a path");
            options.read(true).write(true).open(path).expect("opened")
        };
        let mut shell = sandbox.program("setsid", &["--ctty", "sh", "-i"]);
        shell
            .env("PS1", "ready> ")
            .stdin(slave())
            .stdout(slave())
            .stderr(slave());
        let child = shell.spawn().expect("util-linux is installed");
        let keys = File::from(master);
        let screen = Arc::<Mutex<String>>::default();
        let (mut output, target) = (keys.try_clone().expect("a copy"), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is the end: no process has the other side open any more.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]);
                target.lock().expect("whole").push_str(&text);
            }
        });
        let shell = Self {
            child,
            keys,
            screen,
        };
        shell.sees("ready> ");
        shell
    }

    pub(super) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("pressed");
    }

    /// Makes the terminal this wide.
    pub(super) fn resize(&self, width: u16) {
        let size = Winsize {
            ws_row: 24,
            ws_col: width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.keys, size).expect("resized");
    }

    /// The rest of the line up to its end, or up to where the cursor goes back.
    fn line(&self) -> String {
        let mut line = String::new();
        wait_until("the end of the line", || {
            let screen = self.screen.lock().expect("whole");
            let end = screen.find('\r');
            line = screen[..end.unwrap_or_default()].to_owned();
            end.is_some()
        });
        line
    }

    /// Waits until the screen shows this, and wipes it up to there.
    pub(super) fn sees(&self, text: &str) {
        wait_until(&format!("{text:?} on the screen"), || {
            let mut screen = self.screen.lock().expect("whole");
            let seen = screen.find(text).map(|start| start + text.len());
            if let Some(end) = seen {
                screen.drain(..end);
            }
            seen.is_some()
        });
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the screen: {}", self.screen.lock().expect("whole"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job that says what it reads.
const READER: &str =
    "$TOOL run x -- sh -c 'echo is-$((1+1)); while read line; do echo got-$line; done'\n";

#[test]
fn a_job_can_read_the_terminal() {
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    shell.press(READER);
    shell.sees("is-2");
    shell.press("hello\n");
    shell.sees("got-hello");
    shell.press("\x04");
    shell.sees("ready> ");
}

#[test]
fn a_word_from_the_background_does_not_stop_the_tool() {
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    shell.press("stty tostop\n");
    shell.sees("ready> ");
    shell.press("$TOOL run -v x -- sh -c 'echo is-$((1+1)); read line; exit 7'\n");
    shell.sees("is-2");
    shell.press("go on\n");
    shell.sees("released");
    shell.sees("ready> ");
    shell.press("echo code-$?\n");
    shell.sees("code-7");
}

#[test]
fn a_command_under_timeout_has_the_terminal() {
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    let reader = "sh -c 'echo is-$((1+1)); read line; echo got-$line; exit 7'";
    shell.press(&format!("$TOOL run x -- timeout 60 {reader}\n"));
    shell.sees("is-2");
    shell.press(CTRL_Z);
    shell.sees("ready> ");
    shell.press("fg\n");
    shell.press("hello\n");
    shell.sees("got-hello");
    shell.sees("ready> ");
    shell.press("echo code-$?\n");
    shell.sees("code-7");
}

#[test]
fn ctrl_c_ends_the_job_and_the_code_says_so() {
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    shell.press(READER);
    shell.sees("is-2");
    shell.press(CTRL_C);
    shell.sees("ready> ");
    shell.press("echo code-$?\n");
    shell.sees("code-130");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_gives_it_the_terminal_again() {
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    shell.press(READER);
    shell.sees("is-2");
    shell.press(CTRL_Z);
    shell.sees("ready> ");
    shell.press("jobs\n");
    shell.sees("Stopped");
    shell.press("fg\n");
    shell.press("again\n");
    shell.sees("got-again");
    shell.press(CTRL_C);
    shell.sees("ready> ");
}

#[test]
fn a_job_in_a_pipe_gets_the_terminal_when_it_asks_for_it() {
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    shell.press("$TOOL run x -- sh -c 'read line; echo got-$line' | cat\n");
    shell.press("piped\n");
    shell.sees("got-piped");
    shell.sees("ready> ");
}

#[test]
fn a_background_job_is_stopped_when_it_reads_and_continues_in_the_foreground() {
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    shell.press("$TOOL run x -- sh -c 'echo up > up; read line; echo got-$line' &\n");
    sandbox.mark("up");
    wait_until("the job to be stopped", || {
        shell.press("jobs\n");
        let screen = shell.screen.lock().expect("whole");
        screen.contains("Stopped")
    });
    shell.press("fg\n");
    shell.press("late\n");
    shell.sees("got-late");
}

// By exec: a shell that is stopped in the midst of vfork does not show as stopped, to no shell above it either.
#[test]
fn a_job_that_is_stopped_for_longer_than_its_lease_is_ended() {
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    shell.press("$TOOL run --ttl 3s x -- sh -c 'echo is-$((1+1)); echo $$ > pid; exec sleep 20'\n");
    shell.sees("is-2");
    let pid = sandbox.numbers("pid")[0];
    shell.press(CTRL_Z);
    shell.sees("ready> ");
    wait_until("the job's end", || !super::is_alive(pid));
    shell.press("fg\n");
    shell.sees("ready> ");
    shell.press("echo code-$?\n");
    shell.sees("code-79");
}

#[test]
fn a_wait_at_a_terminal_shows_the_holder() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&["--label", "the first"], "echo up > first; sleep 20");
    sandbox.mark("first");
    let mut shell = Shell::on(&sandbox);
    shell.press("$TOOL run x -- true\n");
    shell.sees("waiting 1s for x: ");
    shell.sees("waiting 2s for x: ");
    shell.press(CTRL_C);
    shell.sees("ready> ");
}

#[test]
fn the_line_of_a_wait_is_cut_to_the_terminal_and_to_its_new_size() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(&["--label", &"long ".repeat(30)], super::HOLDER);
    sandbox.mark("first");
    let mut shell = Shell::on(&sandbox);
    shell.press("$TOOL run x true\n");
    for width in [200, 80, 30] {
        shell.resize(width);
        // One line may be under way in the old width.
        shell.sees("waiting ");
        shell.sees("waiting ");
        let line = shell.line();
        let shown = "waiting ".len() + line.chars().count();
        let least = usize::from(width).min(150) / 2;
        assert!(
            (least..usize::from(width)).contains(&shown),
            "{width} {shown} {line}"
        );
    }
    shell.press(CTRL_C);
    shell.sees("ready> ");
}

#[test]
fn a_status_on_a_terminal_is_a_table_with_one_line_for_a_lease() {
    let sandbox = Sandbox::new();
    let name = "team-a/nightly-report-of-everything-and-more-of-it-";
    let runs = ["1", "2"].map(|end| {
        let name = format!("{name}{end}");
        let script = format!("echo up > {end}; sleep 20");
        let arguments = [
            "run",
            "--label",
            "the monthly report",
            &name,
            "sh",
            "-c",
            &script,
        ];
        let run = sandbox.start(sandbox.tool(&arguments));
        sandbox.mark(end);
        run
    });
    let mut shell = Shell::on(&sandbox);
    shell.press("stty cols 80; export NO_COLOR=1; $TOOL status > /dev/tty\n");
    shell.sees("NAME");
    shell.sees("LEFT");
    for end in ["1", "2"] {
        shell.sees("\nteam-a/");
        let line = shell.line();
        assert!(line.contains('…') && line.contains(" held "), "{line}");
        assert!(
            line.split(' ')
                .next()
                .is_some_and(|name| name.ends_with(end)),
            "{line}"
        );
        assert!(line.chars().count() + "team-a/".len() <= 80, "{line}");
    }
    drop(runs);
}

#[test]
fn a_wait_can_be_stopped_and_goes_on() {
    let sandbox = Sandbox::new();
    let _first = sandbox.run(
        &[],
        "echo up > first; while ! test -s go; do sleep 0.05; done",
    );
    sandbox.mark("first");
    let mut shell = Shell::on(&sandbox);
    shell.press("$TOOL run x -- echo is-$((1+1))\n");
    shell.sees("waiting 1s for x: ");
    shell.press(CTRL_Z);
    shell.sees("ready> ");
    shell.press("jobs\n");
    shell.sees("Stopped");
    shell.press("fg\n");
    std::fs::write(sandbox.path("go"), "now").expect("written");
    shell.sees("is-2");
}
