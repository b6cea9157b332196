//! A job of the tool: this test binary once more, under `leasehold run`. It reads the register of its name, works, and
//! writes through the fence with the pass that it finds in its environment.

use std::time::Duration;

use fastrand::Rng;
use leasehold::fence::{Bearer, Pass};

use crate::harness::wait::{at, now};
use crate::history::{Facts, Operation, Phase, Scribe};
use crate::register::Register;
use crate::worker::Role;

/// How often it notes that it lives.
const STEP: Duration = Duration::from_millis(20);

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
    let value = format!("{}-1", role.process);
    let facts = Facts {
        value: Some(value.clone()),
        previous,
        ..facts
    };
    let call = scribe.invoke(Operation::Write, facts.clone());
    let phase = match register.write(&value, Some(fence)).await {
        Ok(()) => Phase::Answer,
        Err(failed) => failed.phase,
    };
    scribe.end(Operation::Write, phase, call, facts);
}
