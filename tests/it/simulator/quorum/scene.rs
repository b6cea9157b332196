//! One run: members with clocks of their own, users, the network between them, and everything that happens to them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::clock::Instant;
use leasehold::store::quorum::planted::QuorumBug;
use leasehold::store::quorum::{Extension, LocalNode, Proposal, TakenBack, Vote};
use leasehold::store::{Info, Renewal};
use leasehold::{Holder, Name};

use super::history::{History, QuorumPromise};
use super::plan::Plan;
use super::user::{Act, User};
use crate::simulator::time::{Agenda, Drifting, Real, nanos};

/// The members' wall clocks begin in 2025.
const WALL: u64 = 1_735_689_600_000_000_000;
/// So many events are far more than any run needs.
const MOST_EVENTS: u64 = 1_000_000;

/// A member, and what a snapshot of its data once had.
struct Server {
    node: LocalNode,
    clock: Drifting,
    copy: Option<LocalNode>,
    down_until: Real,
}

/// What a user sends to a member.
#[derive(Debug, Clone)]
pub(super) enum Question {
    Hold(Proposal),
    TakeBack(Holder, TakenBack),
    Release(Holder),
    Renew(Renewal),
}

/// What a member answers, with its clock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Said {
    Vote(Vote, u64),
    Extension(Extension),
    Freed,
}

/// A message on its way: from which call of which life of a user.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) user: usize,
    pub(super) life: u32,
    pub(super) call: u32,
    pub(super) holder: Holder,
    pub(super) question: Question,
}

#[derive(Debug, Clone)]
pub(super) enum Event {
    Arrive(usize, Rc<Message>),
    To(usize, u32, Happening),
    Disturb,
    Resume(usize),
}

/// What happens to a user.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    Reply(usize, Rc<Message>, Said),
    /// The time of a call is over.
    Close(u32),
    /// Meant for this holder; stale if the user has another.
    Act(Holder, Act),
}

pub(super) struct Scene {
    pub(super) now: Real,
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) history: History,
    pub(super) users: Vec<User>,
    pub(super) has_lost_data: bool,
    agenda: Agenda<Event>,
    servers: Vec<Server>,
    name: Name,
}

impl Scene {
    pub(super) fn new(seed: u64, bug: Option<QuorumBug>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plan = Plan::draw(bug, &mut rng);
        let servers = (0..plan.members).map(|_| Server {
            node: LocalNode::settled(plan.rules()),
            clock: Drifting::new(WALL + rng.u64(..5_000_000), plan.draw_rate(&mut rng)),
            copy: None,
            down_until: 0,
        });
        let servers = servers.collect();
        let users = (0..plan.users).map(|id| User::new(id, &plan, &mut rng));
        let users = users.collect();
        let mut scene = Self {
            now: 0,
            plan,
            history: History::default(),
            users,
            has_lost_data: false,
            agenda: Agenda::new(),
            servers,
            name: Name::new("n").expect("a valid name"),
            rng,
        };
        for user in 0..scene.users.len() {
            scene.act_within(user, scene.plan.timing.ttl() / 3, Act::Ask);
        }
        for _ in 0..scene.plan.disturbances {
            let at = scene.rng.u64(..scene.plan.horizon);
            scene.agenda.add(at, Event::Disturb);
        }
        scene
    }

    /// Lets everything happen, and returns what was told.
    pub(super) fn run(mut self) -> History {
        let mut events = 0;
        while let Some((at, event)) = self.agenda.next() {
            self.now = self.now.max(at);
            self.happen(event);
            events += 1;
            assert!(events < MOST_EVENTS, "the run does not end");
            if self.history.breach.is_some() {
                return self.history;
            }
        }
        self.now += 2 * nanos(self.plan.timing.ttl());
        for server in &self.servers {
            let now_us = server.now_us(self.now);
            let left = server.node.inspect(&self.name, now_us);
            let is_kept = left.is_none() || self.plan.is_wild;
            self.history.check(QuorumPromise::F, is_kept, || {
                format!("a member has {left:?} two ttls after the last request")
            });
        }
        self.history
    }

    /// What the clock of this user shows.
    pub(super) fn shown(&self, user: usize) -> Instant {
        self.users[user].clock.at(self.now)
    }

    pub(super) fn is_ending(&self) -> bool {
        self.now >= self.plan.horizon
    }

    /// Plans what a user does, after a random part of this time.
    pub(super) fn act_within(&mut self, user: usize, within: Duration, act: Act) {
        let after = Duration::from_nanos(self.rng.u64(..=nanos(within)) + 1_000);
        self.act_after(user, after, act);
    }

    /// Plans what a user does after this time.
    pub(super) fn act_after(&mut self, user: usize, after: Duration, act: Act) {
        let holder = self.users[user].holder;
        self.tell_later(user, after, Happening::Act(holder, act));
    }

    pub(super) fn tell_later(&mut self, user: usize, after: Duration, happening: Happening) {
        let life = self.users[user].life;
        let at = self.now + nanos(after);
        self.agenda.add(at, Event::To(user, life, happening));
    }

    /// Sends a question to these members.
    pub(super) fn send(&mut self, to: &[usize], message: Message) {
        let message = Rc::new(message);
        for server in to {
            for delay in self.delays() {
                let arrive = Event::Arrive(*server, message.clone());
                self.agenda.add(self.now + delay, arrive);
            }
        }
    }

    /// When the copies of a message arrive, if it is not lost.
    fn delays(&mut self) -> Vec<Real> {
        let Plan {
            lost,
            late,
            doubled,
            ..
        } = self.plan;
        let latest = nanos(self.plan.timing.ttl()) * 2;
        let quick = self.rng.u64(100_000..3_000_000);
        let mut delays = Vec::new();
        if !self.chance(lost) {
            let is_late = self.chance(late);
            delays.push(if is_late {
                self.rng.u64(..latest)
            } else {
                quick
            });
        }
        if self.chance(doubled) {
            delays.push(self.rng.u64(..latest));
        }
        delays
    }

    fn chance(&mut self, of_a_thousand: u32) -> bool {
        of_a_thousand > 0 && self.rng.u32(..1_000) < of_a_thousand
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(server, message) => self.arrive(server, &message),
            Event::To(user, life, happening) => self.tell(user, life, happening),
            Event::Disturb => self.disturb(),
            Event::Resume(user) => {
                let happened = self.users[user].inbox.take().unwrap_or_default();
                let life = self.users[user].life;
                for happening in happened {
                    self.tell(user, life, happening);
                }
            }
        }
    }

    fn arrive(&mut self, place: usize, message: &Rc<Message>) {
        let server = &mut self.servers[place];
        if self.now < server.down_until {
            return;
        }
        let now_us = server.now_us(self.now);
        let node = &mut server.node;
        let said = match &message.question {
            Question::Hold(proposal) => {
                let info = Arc::new(Info::default());
                Said::Vote(node.hold(&self.name, proposal, &info, now_us), now_us)
            }
            Question::TakeBack(holder, taken) => {
                node.take_back(&self.name, *holder, *taken, now_us);
                Said::Freed
            }
            Question::Release(holder) => {
                node.release(&self.name, *holder, None, now_us);
                Said::Freed
            }
            Question::Renew(renewal) => {
                Said::Extension(node.renew(std::slice::from_ref(renewal), now_us)[0])
            }
        };
        let ttl_us = nanos(self.plan.timing.ttl()) / 1_000;
        let tenure = node.inspect(&self.name, now_us).map(|(tenure, _)| tenure);
        let is_kept =
            self.plan.is_wild || tenure.is_none_or(|tenure| tenure.ends_at_us <= now_us + ttl_us);
        self.history.check(QuorumPromise::F, is_kept, || {
            format!("a member keeps {tenure:?} for more than a ttl from {now_us}")
        });
        for delay in self.delays() {
            let reply = Happening::Reply(place, message.clone(), said);
            let event = Event::To(message.user, message.life, reply);
            self.agenda.add(self.now + delay, event);
        }
    }

    /// Something goes wrong.
    fn disturb(&mut self) {
        let ttl = self.plan.timing.ttl();
        let lasts = self.rng.u64(..nanos(ttl) * 3 / 2);
        let server = self.rng.usize(..self.servers.len());
        let user = self.rng.usize(..self.users.len());
        let at = &mut self.servers[server];
        match self.rng.u8(..8) {
            0 | 1 => {
                at.node.restart_empty();
                self.has_lost_data = true;
            }
            2 | 3 => {
                // The first time a copy is made, the second time it is what the member comes back with.
                match at.copy.take() {
                    None => {
                        at.copy = Some(at.node.clone());
                        self.agenda.add(self.now + lasts, Event::Disturb);
                    }
                    Some(copy) if self.plan.has(QuorumBug::OldCopyTrusted) => at.node = copy,
                    Some(copy) => {
                        at.node.restart_with(copy);
                        self.has_lost_data = true;
                    }
                }
            }
            4 => at.down_until = self.now + lasts,
            5 if self.plan.is_wild => {
                let by = Duration::from_millis(self.rng.u64(..600_000));
                at.clock.step(self.now, self.rng.bool(), by);
            }
            5 | 6 if self.users[user].inbox.is_none() => {
                self.users[user].inbox = Some(Vec::new());
                self.agenda.add(self.now + lasts, Event::Resume(user));
            }
            7 => self.crash(user),
            _ => {}
        }
    }

    /// The members, by their numbers.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.servers.len()).collect()
    }

    pub(super) fn renewal(&self, holder: Holder, token: leasehold::Token) -> Renewal {
        Renewal::new(self.name.clone(), holder, token, self.plan.timing.ttl())
    }
}

impl Server {
    fn now_us(&self, now: Real) -> u64 {
        self.clock.at(now).as_nanos() / 1_000
    }
}
