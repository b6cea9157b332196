//! A job of the tool: this test binary once more, under `leasehold run`. It reads the register of its name, works, and
//! writes through the fence with the pass that it finds in its environment.

use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use leasehold::fence::{Bearer, Pass};

use crate::crew::arguments;
use crate::harness::wait::{at, now};
use crate::history::{Facts, Operation, Phase, Scribe};
use crate::register::Register;
use crate::worker::{ROLE, Role};

/// How often it notes that it lives.
const STEP: Duration = Duration::from_millis(20);
/// What a job had read, for the process that it leaves behind.
const PREVIOUS: &str = "CAMPAIGN_PREVIOUS";

#[test]
fn a_job_writes_under_the_tool() {
    // In the suite itself there is no role: the campaign starts it with one.
    let Some(role) = Role::of_this_process() else {
        return;
    };
    let pass = Pass::from_environment().unwrap().expect("the tool's");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work(&role, &pass));
}

async fn work(role: &Role, pass: &Pass) {
    let scribe = Scribe::in_folder(&role.folder, &role.process);
    let facts = Facts::held(pass.name.as_str(), pass.holder, pass.token.get());
    let mut random = Rng::with_seed(role.seed);
    scribe.note(Operation::Beat, Phase::Answer, facts.clone());
    let mut register = Register::new(&role.storage, pass.name.as_str());
    let fence: &dyn Bearer = pass;
    let Ok(previous) = register.read(Some(fence)).await else {
        return;
    };
    let end = now().after(Duration::from_millis(random.u64(20..1_500)));
    while now() < end {
        scribe.note(Operation::Beat, Phase::Answer, facts.clone());
        at(now().after(STEP)).await;
    }
    if std::fs::rename(role.fork_order(), role.fork_note()).is_ok() {
        return leave_a_process_behind(role, previous);
    }
    write_once(&scribe, register, fence, facts, previous).await;
}

/// Writes over what was read.
async fn write_once(
    scribe: &Scribe,
    mut register: Register,
    fence: &dyn Bearer,
    facts: Facts,
    previous: Option<String>,
) {
    let facts = Facts {
        value: Some(format!("{}-1", scribe.process())),
        previous,
        ..facts
    };
    register.write_noted(scribe, Some(fence), facts).await;
}

/// Starts this program once more in a session of its own, where the tool does not end it, with the pass and with what was
/// read. The job has ended, and its name may be another one's, when that process writes.
fn leave_a_process_behind(role: &Role, previous: Option<String>) {
    let mut left = role.clone();
    left.process = format!("{}.left", role.process);
    let mut command = Command::new("setsid");
    command
        .arg("--fork")
        .arg(std::env::current_exe().expect("the test binary"))
        .args(arguments("job::a_process_that_a_job_left_behind_writes"))
        .env(ROLE, left.to_text())
        .env(PREVIOUS, previous.unwrap_or_default());
    let left = command.status().expect("setsid starts");
    assert!(left.success(), "setsid: {left}");
}

#[test]
fn a_process_that_a_job_left_behind_writes() {
    // In the suite itself there is no role: a job starts it with one.
    let Some(role) = Role::of_this_process() else {
        return;
    };
    let pass = Pass::from_environment().unwrap().expect("the tool's");
    let previous = std::env::var(PREVIOUS).ok().filter(|text| !text.is_empty());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let scribe = Scribe::in_folder(&role.folder, &role.process);
        let facts = Facts::held(pass.name.as_str(), pass.holder, pass.token.get());
        // Long enough for others to have had the name.
        at(now().after(2 * role.ttl)).await;
        let register = Register::new(&role.storage, pass.name.as_str());
        write_once(&scribe, register, &pass, facts, previous).await;
    });
    std::fs::remove_file(role.fork_note()).unwrap();
}
