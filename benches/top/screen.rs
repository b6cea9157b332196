//! A terminal that a program draws on, and what is to be seen there.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const LINES: usize = 24;
const COLUMNS: usize = 120;
/// A key that is answered later than this is a failure of the bench.
const LIMIT: Duration = Duration::from_secs(20);

/// The cells, as far as the program has drawn them.
#[derive(Debug)]
pub(crate) struct Screen {
    cells: Vec<Vec<char>>,
    line: usize,
    column: usize,
    /// The bytes of an escape sequence or a character that has not ended.
    pending: Vec<u8>,
}

impl Screen {
    fn new() -> Self {
        Self {
            cells: vec![vec![' '; COLUMNS]; LINES],
            line: 0,
            column: 0,
            pending: Vec::new(),
        }
    }

    /// The text of a line, counted from 0.
    pub(crate) fn text(&self, line: usize) -> String {
        let text: String = self.cells[line].iter().collect();
        text.trim_end().into()
    }

    /// The line that is selected.
    pub(crate) fn selected(&self) -> Option<String> {
        let mut lines = (0..LINES).map(|line| self.text(line));
        lines.find(|text| text.starts_with('>'))
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        (0..LINES).map(|line| self.text(line))
    }

    fn draw(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.pending.push(*byte);
            match self.pending[0] {
                0x1b => self.escape(),
                b'\r' | b'\n' | 0x08 | 0x07 => self.pending.clear(),
                _ => self.character(),
            }
        }
    }

    fn character(&mut self) {
        let Ok(text) = std::str::from_utf8(&self.pending) else {
            return;
        };
        if let Some(character) = text.chars().next()
            && let Some(cell) = self.cells[self.line].get_mut(self.column)
        {
            *cell = character;
            self.column += 1;
        }
        self.pending.clear();
    }

    /// Knows moves of the cursor and the wiping of the screen; colours and modes change no text.
    fn escape(&mut self) {
        let is_ended = match self.pending[..] {
            [_] | [_, b'['] => false,
            [_, b'[', .., last] => (0x40..=0x7e).contains(&last),
            _ => true,
        };
        if !is_ended {
            return;
        }
        let sequence = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        let position = sequence.strip_prefix("\x1b[");
        if let Some(position) = position.and_then(|rest| rest.strip_suffix('H')) {
            let (line, column) = position.split_once(';').unwrap_or(("1", "1"));
            let number = |text: &str| text.parse::<usize>().unwrap_or(1) - 1;
            self.line = number(line).min(LINES - 1);
            self.column = number(column);
        } else if sequence.ends_with('J') {
            self.cells = vec![vec![' '; COLUMNS]; LINES];
        }
    }
}

/// A program on a terminal of its own.
#[derive(Debug)]
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<(Mutex<Screen>, Condvar)>,
}

impl Terminal {
    pub(crate) fn run(program: &str, arguments: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let size = Winsize {
            ws_row: LINES as u16,
            ws_col: COLUMNS as u16,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).expect("resized");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let slave = || {
            let path = name.to_str().expect("a path");
            let mut options = File::options();
            options.read(true).write(true).open(path).expect("opened")
        };
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", program])
            .args(arguments)
            .stdin(slave())
            .stdout(slave())
            .stderr(slave());
        let child = command.spawn().expect("util-linux is installed");
        drop(command);
        let keys = File::from(master);
        let screen = Arc::new((Mutex::new(Screen::new()), Condvar::new()));
        let (mut output, target) = (keys.try_clone().expect("a copy"), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 65_536];
            // An error is the end: the program has closed the other side.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                target.0.lock().expect("whole").draw(&bytes[..length]);
                target.1.notify_all();
            }
        });
        Self {
            child,
            keys,
            screen,
        }
    }

    /// The number of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Presses these keys, and returns how long it takes until the screen is so.
    pub(crate) fn press(&mut self, keys: &str, is_so: impl Fn(&Screen) -> bool) -> Duration {
        let pressed = Instant::now();
        self.keys.write_all(keys.as_bytes()).expect("pressed");
        self.shows(is_so);
        pressed.elapsed()
    }

    /// Waits until the screen is so.
    pub(crate) fn shows(&self, is_so: impl Fn(&Screen) -> bool) {
        let (screen, drawn) = &*self.screen;
        let screen = screen.lock().expect("whole");
        let waiting = drawn.wait_timeout_while(screen, LIMIT, |screen| !is_so(screen));
        let (screen, outcome) = waiting.expect("whole");
        assert!(
            !outcome.timed_out(),
            "not shown within {LIMIT:?}: {screen:?}"
        );
    }

    /// What can be seen now.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Screen) -> T) -> T {
        look(&self.screen.0.lock().expect("whole"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
