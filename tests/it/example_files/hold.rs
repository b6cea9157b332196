//! The recipes for `leasehold hold`, in each language whose interpreter is on this machine.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock};
use rustix::process::{Pid, Signal, kill_process};

use super::{Machine, example_path, stderr};
use crate::harness::wait::until_so;

const TTL: Duration = Duration::from_secs(2);

/// The recipes, each with the program that it needs.
const RECIPES: [(&str, &str); 4] = [
    ("sh", "hold.sh"),
    ("python3", "hold.py"),
    ("node", "hold.mjs"),
    ("go", "hold.go"),
];

/// What starts each recipe that can be started here.
fn started_here(machine: &Machine) -> Vec<Command> {
    let recipes = RECIPES.iter().filter_map(|(program, file)| {
        let path = example_path("hold").join(file);
        let which = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        let which = String::from_utf8(which.unwrap().stdout).unwrap();
        let program = which.trim_end();
        if program.is_empty() {
            eprintln!("not run, for lack of its language: {file}");
            return None;
        }
        if file.ends_with(".go") {
            return Some(machine.program(built(machine, program, &path)));
        }
        let mut command = machine.program(program);
        command.arg(path);
        Some(command)
    });
    let recipes: Vec<_> = recipes.collect();
    // The shell is always there.
    assert!(!recipes.is_empty());
    recipes
}

fn built(machine: &Machine, go: &str, source: &Path) -> std::path::PathBuf {
    let program = machine.0.path().join("recipe");
    let built = Command::new(go)
        .args(["build", "-o"])
        .arg(&program)
        .arg(source)
        .output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    program
}

/// The step, the token and the moment of each line.
fn steps(said: &str) -> Vec<(u64, u64, u64)> {
    let lines = said.lines().map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let ["step", step, "token", token, "at", ms] = words[..] else {
            panic!("{said}");
        };
        let [step, token, ms] = [step, token, ms].map(|number| number.parse().unwrap());
        (step, token, ms)
    });
    lines.collect()
}

fn now_ms() -> u64 {
    Boottime.now().as_nanos() / 1_000_000
}

#[test]
fn each_recipe_takes_its_steps_under_one_token_and_releases() {
    let machine = Machine::new();
    let mut last_token = 0;
    for mut recipe in started_here(&machine) {
        let ended = recipe.args(["nightly", "3"]).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success(), "{recipe:?}: {}", stderr(&ended));
        let steps = steps(&said);
        let token = steps[0].1;
        assert!(token > last_token, "{recipe:?}: {said}");
        assert!(
            steps.iter().all(|step| step.1 == token),
            "{recipe:?}: {said}"
        );
        let numbers: Vec<_> = steps.iter().map(|step| step.0).collect();
        assert_eq!(numbers, [1, 2, 3], "{recipe:?}");
        let status = machine.program(machine.0.path().join("leasehold"));
        let status = { status }.args(["status", "--quiet", "nightly"]).output();
        assert_eq!(
            status.unwrap().status.code(),
            Some(1),
            "{recipe:?}: not released"
        );
        last_token = token;
    }
}

#[test]
fn each_recipe_gives_up_when_the_name_is_held() {
    let machine = Machine::new();
    let tool = machine.0.path().join("leasehold");
    let mut holder = machine.program(&tool);
    let holder = holder.args(["run", "nightly", "sh", "-c"]);
    let mut all = String::new();
    for recipe in started_here(&machine) {
        let words: Vec<_> = [recipe.get_program()]
            .into_iter()
            .chain(recipe.get_args())
            .collect();
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        all += &format!("if {} nightly 1; then echo taken; fi\n", words.join(" "));
    }
    // In the job of the holder nobody waits for the name.
    let ended = holder.arg(all).output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "");
}

/// A `hold`, which is resumed at the end.
struct Stopped(Pid);

impl Stopped {
    fn begin(machine: &Machine) -> Self {
        let asked = machine.program(machine.0.path().join("leasehold"));
        let asked = { asked }
            .args(["status", "--json", "nightly"])
            .output()
            .unwrap();
        let status: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
        let pid = status["leases"][0]["pid"].as_i64().unwrap();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

struct Recipe(Child);

impl Drop for Recipe {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn each_recipe_stops_itself_when_its_hold_was_stopped() {
    let machine = Machine::new();
    for mut recipe in started_here(&machine) {
        let said = machine.0.path().join("said");
        recipe
            .args(["nightly", "600"])
            .env("LEASEHOLD_TTL", format!("{}s", TTL.as_secs()))
            .stdout(fs::File::create(&said).unwrap())
            .stderr(Stdio::null());
        let mut running = Recipe(recipe.spawn().unwrap());
        let read = || steps(&fs::read_to_string(&said).unwrap());
        until_so("steps", async || read().len() > 3).await;
        let stopped = Stopped::begin(&machine);
        // No renewal is sent later than this.
        let deadline = now_ms() + u64::try_from(TTL.as_millis()).unwrap();
        let mut ended = None;
        until_so("its end", async || {
            ended = running.0.try_wait().unwrap();
            ended.is_some()
        })
        .await;
        assert_eq!(ended.unwrap().code(), Some(1), "{recipe:?}");
        let steps = read();
        let (_, _, last) = steps.last().unwrap();
        assert!(*last < deadline, "{recipe:?}: {steps:?}");
        // Nor without need: it went on while the lease was held.
        assert!(deadline - *last < 1_500, "{recipe:?}: {steps:?}");
        drop(stopped);
    }
}
