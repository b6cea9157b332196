//! One run: workers on one store, a nemesis among them, and the verdict on their history.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use leasehold::store::HeldState;

use crate::checker::{self, Rule, Verdict};
use crate::crew::Crew;
use crate::ear::note_stalls;
use crate::fault::Fault;
use crate::grounds::Site;
use crate::harness::wait::pause;
use crate::harness::wait::{now, until};
use crate::history::{self, Event, Facts, Operation, Phase, Scribe};
use crate::nemesis::{Pack, Scene, operator};
use crate::register::{Register, Storage};
use crate::worker::{Kind, Role};

/// What is run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Tells its history from those of other runs.
    pub(crate) title: String,
    pub(crate) site: Site,
    pub(crate) seed: u64,
    /// How many faults.
    pub(crate) faults: usize,
    /// Only these faults; none: all that the site can have.
    pub(crate) only: Vec<Fault>,
    pub(crate) kind: Kind,
    /// Whether the workers take permits and shares as well.
    pub(crate) has_pools: bool,
    /// Ends as soon as this rule is broken.
    pub(crate) until: Option<Rule>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    pub(crate) events: Vec<Event>,
    pub(crate) verdict: Verdict,
    /// Where the history is.
    pub(crate) file: PathBuf,
}

const WORKERS: usize = 3;
const NAMES: usize = 3;
/// How long everything may take to end by itself once all is healed.
const END: Duration = Duration::from_secs(120);
/// The longest ttl of a run, the tool's, and some more.
const OVER: Duration = Duration::from_secs(5);

impl Plan {
    /// Sound workers, and all faults that the site can have.
    pub(crate) fn sound(site: Site, seed: u64, faults: usize) -> Self {
        Self {
            title: format!("{site:?}").to_lowercase(),
            site,
            seed,
            faults,
            only: Vec::new(),
            kind: Kind::Sound,
            has_pools: true,
            until: None,
        }
    }

    fn folder(&self) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("campaign");
        folder.join(format!("{}-{:x}", self.title, self.seed))
    }
}

impl Run {
    /// Fails with what the history shows broken.
    pub(crate) fn assert_sound(&self) {
        let (broken, figures) = (&self.verdict.broken, &self.verdict.figures);
        let title = &self.plan.title;
        assert!(
            broken.is_empty(),
            "{title}: {broken:#?} {}",
            self.file.display()
        );
        assert!(
            figures.grants > 0 && figures.acknowledged > 0,
            "{title}: {figures:?}"
        );
    }
}

/// Runs all of them at once, each on threads of its own: some faults block the thread that makes them happen.
///
/// A run that comes to no end, because a server did not start in time on a busy machine for example, is begun once more.
/// That says nothing about a lease: what is judged is the history of a run that came to its end. One that fails twice is not
/// among the results.
pub(crate) fn run_at_once(plans: Vec<Plan>) -> Vec<Run> {
    let begin = |plan: &Plan| {
        let plan = plan.clone();
        std::thread::spawn(|| run_on_this_thread(plan))
    };
    let threads: Vec<_> = plans.iter().map(begin).collect();
    let runs = threads.into_iter().zip(plans);
    runs.filter_map(|(thread, plan)| {
        let run = thread.join();
        run.or_else(|_| begin(&plan).join()).ok()
    })
    .collect()
}

fn run_on_this_thread(plan: Plan) -> Run {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("threads").block_on(run_plan(plan))
}

async fn run_plan(plan: Plan) -> Run {
    let folder = plan.folder();
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is ours");
    eprintln!("campaign: {plan:?}");
    let mut scene = set_scene(&plan, &folder).await;
    // The runner is never stopped: when it stands still, the machine does, and no store and no lease is blamed for it.
    let watched = tokio::spawn(note_stalls(scene.scribe.clone()));
    let mut random = Rng::with_seed(plan.seed);
    let kinds = match plan.only.is_empty() {
        true => scene.faults(),
        false => plan.only.clone(),
    };
    let mut pack = Pack::of(kinds);
    for _ in 0..plan.faults {
        let quiet = Duration::from_millis(random.u64(100..600));
        pause(quiet).await;
        let fault = pack.draw(&mut random);
        scene.strike(fault, &mut random).await;
        let is_over = |rule| checker::judge(&history_so_far(&folder)).breaks(rule);
        if plan.until.is_some_and(is_over) {
            break;
        }
    }
    scene.crew.finish(END).await;
    if plan.kind == Kind::Sound {
        note_what_is_left(&scene).await;
    }
    note_registers(&scene.storage, &scene.names, &scene.scribe).await;
    drop(scene);
    watched.abort();
    conclude(plan, &folder)
}

async fn set_scene(plan: &Plan, folder: &Path) -> Scene {
    // A name may be at two sites at a time, and its register is the run's own.
    let names: Vec<String> = (1..=NAMES).map(|number| format!("name-{number}")).collect();
    let names = match plan.kind {
        Kind::Sound => names,
        // One: more rivals for it.
        _ => names[..1].to_vec(),
    };
    let ground = plan.site.start(&names, plan.seed).await;
    let ttl = ground.ttl();
    let storage = Storage::start(plan.site).await;
    let role = Role {
        process: String::new(),
        folder: folder.into(),
        store: ground.url(),
        storage: storage.url(),
        names: names.clone(),
        ttl,
        seed: plan.seed,
        kind: plan.kind,
        has_pools: plan.has_pools,
        environment: ground.environment(),
    };
    let crew = Crew::start(&role, WORKERS, true);
    Scene {
        ground,
        storage,
        crew,
        names,
        ttl,
        scribe: Scribe::in_folder(folder, "nemesis"),
    }
}

/// The history so far, as if it ended with the last read of each register: what was acknowledged before that read began must
/// be in its past.
fn history_so_far(folder: &Path) -> Vec<Event> {
    let mut events = history::gather(folder);
    for last in last_reads(&events) {
        events.retain(|event| {
            event.operation != Operation::Write
                || event.facts.name != last.answer.facts.name
                || event.at_us < last.begun_us
                || event.phase == Phase::Invoke && event.at_us < last.answer.at_us
        });
        events.push(Event {
            operation: Operation::Final,
            ..last.answer
        });
    }
    events
}

struct LastRead {
    begun_us: u64,
    answer: Event,
}

fn last_reads(events: &[Event]) -> Vec<LastRead> {
    let mut begun = BTreeMap::new();
    let mut last = BTreeMap::new();
    for event in events
        .iter()
        .filter(|event| event.operation == Operation::Read)
    {
        let key = (event.process.as_str(), event.call);
        match event.phase {
            Phase::Invoke => {
                begun.insert(key, event.at_us);
            }
            Phase::Answer => {
                let read = LastRead {
                    begun_us: begun[&key],
                    answer: event.clone(),
                };
                last.insert(event.facts.name.as_str(), read);
            }
            _ => {}
        }
    }
    last.into_values().collect()
}

async fn note_what_is_left(scene: &Scene) {
    pause(OVER).await;
    let operator = operator(&*scene.ground).await;
    let end = now().after(END);
    let mut left = Vec::new();
    loop {
        match operator.list("", OVER).await {
            Ok(held) if held.iter().all(|held| held.state != HeldState::Leased) => break,
            Ok(held) => left = held,
            // It may not have come back to itself.
            Err(error) => eprintln!("campaign: list failed: {error}"),
        }
        if now() > end {
            for held in &left {
                let facts = Facts::named(held.name.as_str()).with_detail(format!("{held:?}"));
                scene.scribe.note(Operation::Left, Phase::Answer, facts);
            }
            break;
        }
        pause(Duration::from_millis(200)).await;
    }
    for key in scene.ground.left_for_ever().await {
        let facts = Facts::named(key).with_detail("has no expiry");
        scene.scribe.note(Operation::Left, Phase::Answer, facts);
    }
}

async fn note_registers(storage: &Storage, names: &[String], scribe: &Scribe) {
    for name in names {
        let value = until("the register", async || {
            let mut register = Register::new(&storage.url(), name);
            register.read(None).await.ok()
        })
        .await;
        let facts = Facts {
            value,
            ..Facts::named(name)
        };
        scribe.note(Operation::Final, Phase::Answer, facts);
    }
}

fn conclude(plan: Plan, folder: &Path) -> Run {
    let events = history::gather(folder);
    let file = folder.with_extension("jsonl");
    history::write_events(&events, &file);
    let verdict = checker::judge(&events);
    fs::remove_dir_all(folder).expect("the folder is ours");
    let figures = &verdict.figures;
    eprintln!(
        "campaign: {} seed={:#x} {figures:?} broken={:?} history={}",
        plan.title,
        plan.seed,
        verdict.broken,
        file.display()
    );
    Run {
        plan,
        events,
        verdict,
        file,
    }
}
