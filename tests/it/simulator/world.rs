//! One run, from its seed to its end: processes over one store, and everything that happens to them.

use leasehold::internals::schedule::Limits;

use super::ledger::{Ledger, Promise};
use super::network::Outage;
use super::plan::{Shape, Weather};
use super::planted::Bug;
use super::process::Process;
use super::slot::Slot;
use super::stage::{Act, Disturbance, Event, Stage};
use super::time::nanos;

/// So many events are far more than any run needs: beyond, something goes round in circles.
const MOST_EVENTS: u64 = 5_000_000;
/// The server that stands still where one does.
pub(super) const HUNG: usize = 0;

pub(super) struct World {
    stage: Stage,
    processes: Vec<Process>,
    /// When one server begins to stand still.
    hangs_at: Option<u64>,
}

impl World {
    pub(super) fn new(seed: u64, shape: Shape, bug: Option<Bug>, is_trace: bool) -> Self {
        // The pauses of those that wait have jitter.
        fastrand::seed(seed);
        let mut stage = Stage::new(seed, shape, bug, is_trace);
        let processes =
            (0..stage.plan.processes).map(|id| Process::new(id, 0, Vec::new(), &mut stage));
        let processes: Vec<Process> = processes.collect();
        let mut world = Self {
            stage,
            processes,
            hangs_at: None,
        };
        world.people();
        world.draw_disturbances();
        if world.stage.stores.len() > 1 {
            world.draw_moves(seed);
        }
        if world.stage.plan.waits && world.stage.plan.weather == Weather::Calm {
            world.draw_deaths(seed);
        }
        if world.stage.plan.fails_over {
            world.draw_failovers(seed);
        }
        world
    }

    /// Lets everything happen, and answers what was seen.
    pub(super) fn run(mut self) -> Ledger {
        self.stage.note(|| format!("{:#?}", self.stage.plan));
        while let Some((at, event)) = self.stage.agenda.next() {
            self.stage.now = at;
            self.stage.ledger.events += 1;
            self.happen(event);
            if self.stage.ledger.violation.is_some() {
                break;
            }
            assert!(
                self.stage.ledger.events < MOST_EVENTS,
                "the run does not end"
            );
        }
        self.check_end();
        self.stage.ledger
    }

    fn people(&mut self) {
        for slot in 0..self.stage.plan.slots {
            let process = slot % self.processes.len();
            let name = self.stage.names[slot % self.stage.names.len()].clone();
            let plan = &self.stage.plan;
            let (timing, longer) = (plan.timing, plan.longer);
            let rng = &mut self.stage.rng;
            let timing = if rng.bool() { timing } else { longer };
            let mut limit = || (rng.u8(..8) == 0).then(|| timing.ttl().mul_f64(0.2 + rng.f64()));
            let limits = Limits {
                max_hold: limit(),
                progress_within: limit(),
            };
            self.processes[process]
                .slots
                .push(Slot::new(name, timing, limits));
            let index = self.processes[process].slots.len() - 1;
            let soon = timing.ttl() / 4;
            self.processes[process].plan(&mut self.stage, index, soon, Act::Claim);
        }
    }

    fn draw_disturbances(&mut self) {
        let horizon = self.stage.plan.horizon;
        self.stage
            .agenda
            .add(horizon, Event::Disturb(Disturbance::EndOfFaults));
        match self.stage.plan.weather {
            Weather::Calm => {}
            Weather::Gusts => self.draw_gusts(),
            Weather::OneServerHangs => self.draw_hang(),
            Weather::Storm | Weather::WildClock => {
                for _ in 0..self.stage.rng.usize(..8) {
                    let at = self.stage.rng.u64(..horizon);
                    let disturbance = self.draw_disturbance();
                    self.stage.agenda.add(at, Event::Disturb(disturbance));
                }
                self.draw_steps();
            }
        }
    }

    /// Outages and pauses that every lease outlives, with time to recover between them.
    fn draw_gusts(&mut self) {
        let (ttl, longest) = (self.stage.plan.longer.ttl(), self.stage.plan.longest_gust());
        let mut at = self.stage.within(ttl);
        while at < self.stage.plan.horizon {
            let lasts = self.stage.within(longest);
            let lasts = std::time::Duration::from_nanos(lasts);
            let server = self.stage.draw_server();
            let gust = match self.stage.rng.u8(..4) {
                0 => Disturbance::OutageBegins(server, Outage::BlackHole, lasts),
                1 => Disturbance::OutageBegins(server, Outage::Failing, lasts),
                2 => Disturbance::OutageBegins(server, Outage::Hanging, lasts),
                _ => Disturbance::Pause(self.stage.rng.usize(..self.processes.len()), lasts),
            };
            self.stage.agenda.add(at, Event::Disturb(gust));
            at += nanos(lasts) + nanos(ttl) + self.stage.within(ttl);
        }
        if self.stage.rng.u8(..3) == 0 {
            self.stage.poison();
        }
    }

    /// Processes that die, and nothing else: so whoever waits behind them waits for no longer than they are kept. Drawn
    /// apart too.
    fn draw_deaths(&mut self, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed.rotate_left(16));
        for _ in 0..rng.usize(..3) {
            let at = rng.u64(..self.stage.plan.horizon);
            let dies = Disturbance::Crash(rng.usize(..self.processes.len()));
            self.stage.agenda.add(at, Event::Disturb(dies));
        }
    }

    /// Failovers to replicas that missed the last writes, some while a holder stands still. They are drawn apart, so that
    /// the seeds without any make the same runs as ever.
    fn draw_failovers(&mut self, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(!seed);
        let (horizon, ttl) = (self.stage.plan.horizon, self.stage.plan.timing.ttl());
        for _ in 0..rng.usize(1..=3) {
            let server = rng.usize(..self.stage.stores.len());
            let stops = rng.u64(..horizon);
            let fails_over = (stops + rng.u64(..=nanos(ttl / 2))).min(horizon - 1);
            let mut add = |at, disturbance| {
                self.stage.agenda.add(at, Event::Disturb(disturbance));
            };
            if rng.u8(..4) == 0 {
                add(fails_over, Disturbance::RestartEmpty(server));
            } else {
                add(stops, Disturbance::ReplicaStops(server));
                add(fails_over, Disturbance::FailOver(server));
            }
            if rng.u8(..4) > 0 {
                let process = rng.usize(..self.processes.len());
                let lasts = rng.u64(nanos(ttl / 2)..=nanos(ttl * 3 / 2));
                let lasts = std::time::Duration::from_nanos(lasts);
                add(fails_over, Disturbance::Pause(process, lasts));
            }
        }
    }

    /// Names that move from server to server, also while requests are under way; to and from one that stands still none do.
    /// They are drawn apart too.
    fn draw_moves(&mut self, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed.rotate_left(32));
        let until = match self.stage.plan.weather {
            Weather::Storm | Weather::WildClock => return,
            _ => self.hangs_at.unwrap_or(self.stage.plan.horizon),
        };
        for _ in 0..rng.usize(..=self.stage.names.len()) {
            let name = rng.usize(..self.stage.names.len());
            let to = rng.usize(..self.stage.stores.len());
            let moves = Event::Disturb(Disturbance::Move(name, to));
            self.stage.agenda.add(rng.u64(..=until), moves);
        }
    }

    /// One server stands still, from soon on until the faults end.
    fn draw_hang(&mut self) {
        let at = self.stage.within(self.stage.plan.timing.ttl() * 3 / 4);
        self.hangs_at = Some(at);
        let lasts = self.stage.plan.horizon - at;
        let lasts = std::time::Duration::from_nanos(lasts);
        let hang = Disturbance::OutageBegins(HUNG, Outage::Hanging, lasts);
        self.stage.agenda.add(at, Event::Disturb(hang));
    }

    fn draw_disturbance(&mut self) -> Disturbance {
        let ttl = self.stage.plan.timing.ttl();
        let lasts = std::time::Duration::from_nanos(self.stage.within(ttl * 3 / 2));
        let process = self.stage.rng.usize(..self.processes.len());
        let server = self.stage.draw_server();
        match self.stage.rng.u8(..15) {
            0 | 1 => Disturbance::OutageBegins(server, Outage::BlackHole, lasts),
            2 => Disturbance::OutageBegins(server, Outage::Failing, lasts),
            3 | 4 => Disturbance::OutageBegins(server, Outage::Hanging, lasts),
            5..=7 => Disturbance::Pause(process, lasts),
            8 => Disturbance::Crash(process),
            9 => Disturbance::Shutdown(process),
            10 => Disturbance::RestartEmpty(server),
            11 => Disturbance::EvictNow,
            12 => Disturbance::EvictMarked,
            13 => Disturbance::Poison(lasts),
            _ => Disturbance::StepClient(process, lasts),
        }
    }

    /// Steps of the server's clock: back by anything, forward by what the margin allows within one ttl, or by far more.
    fn draw_steps(&mut self) {
        let ttl = self.stage.plan.longer.ttl();
        let mut at = self.stage.within(ttl);
        while at < self.stage.plan.horizon {
            let forward = self.stage.rng.bool();
            let most = match forward {
                true if !self.stage.is_wild() => self.stage.plan.step_within_margin,
                _ => ttl,
            };
            let by = std::time::Duration::from_nanos(self.stage.within(most));
            let server = self.stage.draw_server();
            let step = Disturbance::StepServer {
                server,
                forward,
                by,
            };
            self.stage.agenda.add(at, Event::Disturb(step));
            at += nanos(ttl) * 11 / 10 + self.stage.within(ttl);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::To(process, life, happening) => {
                let process = &mut self.processes[process];
                if process.life == life {
                    process.happen(&mut self.stage, happening);
                }
            }
            Event::Arrive(request) => self.stage.arrive(&request),
            Event::Expire(name) => self.stage.expire(&name),
            Event::Clean(name, holder, landed_at) => {
                self.stage.check_clean(&name, holder, landed_at)
            }
            Event::Idle(name, since) => self.stage.check_idle(&name, since),
            Event::GrantsAgain(server) => self.stage.grants_again(server),
            Event::Disturb(disturbance) => self.disturb(disturbance),
        }
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        self.stage.note(|| format!("{disturbance:?}"));
        let stage = &mut self.stage;
        match disturbance {
            Disturbance::OutageBegins(server, outage, lasts) => {
                stage.ledger.fault(match outage {
                    Outage::BlackHole => "black hole",
                    Outage::Failing => "outage with errors",
                    Outage::Hanging => "server stands still",
                });
                stage.outage_begins(server, outage, lasts);
            }
            Disturbance::Pause(process, lasts) => self.pause(process, lasts),
            Disturbance::Resume(process) => self.processes[process].resume(stage),
            Disturbance::Crash(process) => self.crash(process),
            Disturbance::Shutdown(process) if self.processes[process].inbox.is_none() => {
                stage.ledger.fault("shutdown");
                self.processes[process].shut_down(stage);
            }
            Disturbance::Shutdown(_) => {}
            Disturbance::RestartEmpty(server) => stage.restart_empty(server),
            Disturbance::ReplicaStops(server) => stage.stores[server].stop_replica(),
            Disturbance::FailOver(server) => stage.fail_over(server),
            Disturbance::EvictNow => stage.evict(true),
            Disturbance::EvictMarked => stage.evict(false),
            Disturbance::Poison(lasts) => {
                stage.poison();
                stage.in_nanos(nanos(lasts), Event::Disturb(Disturbance::Heal));
            }
            Disturbance::Heal => {
                let stores = stage.stores.iter_mut();
                stores.for_each(|store| store.poisoned.clear());
            }
            Disturbance::StepServer {
                server,
                forward,
                by,
            } => stage.step_server(server, forward, by),
            Disturbance::StepClient(process, by) => {
                stage.ledger.fault("client clock forward");
                stage.clocks[process].step(stage.now, true, by);
                self.woken_by_step(process);
            }
            Disturbance::Move(name, to) => stage.move_name(name, to),
            Disturbance::EndOfFaults => {
                stage.faults_end();
                for process in &mut self.processes {
                    process.resume(stage);
                    process.go_home(stage);
                }
            }
        }
    }

    fn pause(&mut self, process: usize, lasts: std::time::Duration) {
        let stage = &mut self.stage;
        if stage.is_ending() || self.processes[process].inbox.is_some() {
            return;
        }
        stage.ledger.fault("pause of a process");
        stage.ledger.paused(process);
        stage.turns.pauses(self.processes[process].client);
        self.processes[process].inbox = Some(Vec::new());
        stage.in_nanos(nanos(lasts), Event::Disturb(Disturbance::Resume(process)));
    }

    /// Timers on a clock that was moved forward end earlier.
    fn woken_by_step(&mut self, process: usize) {
        let stage = &mut self.stage;
        stage.ledger.paused(process);
        let client = self.processes[process].client;
        stage.ledger.hurried(client, stage.now);
        let servers = 0..stage.stores.len();
        let shown = stage.shown(process);
        (stage.ledger.hiding).extend(servers.map(|server| ((client, server), shown)));
        let process = &mut self.processes[process];
        let is_running = process.inbox.is_none();
        process.inbox.get_or_insert_default();
        process.awoken();
        if is_running {
            process.resume(stage);
        }
    }

    /// The process is gone, and a new one takes its place.
    fn crash(&mut self, process: usize) {
        let stage = &mut self.stage;
        if stage.is_ending() {
            return;
        }
        stage.ledger.fault("crash");
        let old = &self.processes[process];
        let (life, slots) = (old.life + 1, old.slots.iter());
        let slots = slots
            .map(|slot| Slot::new(slot.name.clone(), slot.timing, slot.limits))
            .collect();
        stage.ledger.crashed(process, old.client);
        stage.turns.dies(old.client);
        self.processes[process] = Process::new(process, life, slots, stage);
        for slot in 0..self.processes[process].slots.len() {
            let soon = stage.plan.timing.ttl();
            self.processes[process].plan(stage, slot, soon, Act::Claim);
        }
    }

    fn check_end(&mut self) {
        if self.stage.ledger.violation.is_some() {
            return;
        }
        let Stage { ledger, now, .. } = &mut self.stage;
        for process in &self.processes {
            ledger.check(
                Promise::EveryEnrollmentEndsOnce,
                *now,
                process.schedule.is_empty(),
                || format!("something is left: {:?}", process.schedule),
            );
        }
        let left = ledger.guards.len();
        ledger.check(Promise::NoLeaseForgotten, *now, left == 0, || {
            format!("{left} guards are left")
        });
    }
}
