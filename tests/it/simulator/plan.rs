//! What one run will be like, drawn from its seed: how many leases, how long, under which weather.

use std::time::Duration;

use fastrand::Rng;
use leasehold::clock::Timing;
use leasehold::internals::{answer_limit, request_limit};

use super::planted::Bug;
use super::time::{Real, nanos};

/// How much is to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// Nothing.
    Calm,
    /// Outages and pauses, each short enough to be outlived, and names that the store chokes on: no other lease is lost.
    Gusts,
    /// Anything, but that the server's clock keeps within the margin.
    Storm,
    /// Anything, and the server's clock steps by more than the margin.
    WildClock,
    /// One of several servers stands still until the faults end: no lease of another is lost.
    OneServerHangs,
}

/// The size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// 1 to 5 leases.
    Small,
    /// 2,000 leases of one process.
    Large,
}

/// Faults of the network and the store, in so many of a thousand requests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Odds {
    pub(super) lost: u32,
    pub(super) late: u32,
    pub(super) duplicated: u32,
    pub(super) failed: u32,
    pub(super) short: u32,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) bug: Option<Bug>,
    pub(super) weather: Weather,
    pub(super) processes: usize,
    pub(super) slots: usize,
    pub(super) names: usize,
    /// The shorter of the ttls that are used.
    pub(super) timing: Timing,
    /// The other one; often the same.
    pub(super) longer: Timing,
    pub(super) odds: Odds,
    /// When the faults and the holding end, and everything has to become clean.
    pub(super) horizon: Real,
    /// Of each server.
    pub(super) server_rates: Vec<f64>,
    pub(super) client_rates: Vec<f64>,
    /// Whether replicas that missed the last writes replace servers.
    pub(super) fails_over: bool,
    /// How long a server grants nothing after it came back without its data, or was promoted.
    pub(super) keep_out: Option<Duration>,
    /// How far the server's clock may step forward within one ttl.
    pub(super) step_within_margin: Duration,
    /// Whether the store has a queue, and users wait in it.
    pub(super) waits: bool,
    /// Whether a notice of a grant is proof of it: not where a failover may have undone it.
    pub(super) trusts_notices: bool,
    /// By how much each reply is late: it comes after the limit of its attempt, and no lease is lost.
    pub(super) slow_line: Duration,
}

impl Plan {
    pub(super) fn draw(shape: Shape, bug: Option<Bug>, seed: u64, rng: &mut Rng) -> Self {
        let weather = match rng.u8(..20) {
            0 => Weather::Calm,
            1..=6 => Weather::Gusts,
            7..=17 => Weather::Storm,
            _ => Weather::WildClock,
        };
        let servers = servers(seed);
        let weather = match servers > 1 && seed.is_multiple_of(4) {
            true => Weather::OneServerHangs,
            false => weather,
        };
        let (processes, slots, names) = match shape {
            Shape::Small => {
                let slots = rng.usize(1..=5);
                let names = rng.usize(1..=slots);
                (rng.usize(1..=slots.min(3)), slots, names)
            }
            Shape::Large => (1, 2_000, 2_000),
        };
        let (processes, slots, names) = match weather {
            // So many that those of the server that hangs would fill all batches.
            Weather::OneServerHangs => (1, 16, 16),
            _ => (processes, slots, names),
        };
        let timing = draw_timing(rng);
        let is_uniform = rng.bool();
        let longer = if is_uniform { timing } else { doubled(timing) };
        let ttls = match shape {
            Shape::Small => 1.0 + rng.f64() * 2.0,
            Shape::Large => 0.8,
        };
        // Half of the margin for the rates of the clocks, and a good part of the other half for steps.
        let margin = timing.margin().as_secs_f64() / timing.ttl().as_secs_f64();
        let mut rate = || 1.0 + (rng.f64() - 0.5) * margin * 0.5;
        // By the seed itself, as the number of servers.
        let fails_over = matches!(seed % 6, 1 | 4)
            && matches!(weather, Weather::Storm | Weather::WildClock)
            && shape == Shape::Small;
        let keep_out = (fails_over && seed % 6 == 1).then(|| longer.ttl());
        // Time to see who is granted after it.
        let more = if fails_over {
            longer.ttl() * 2
        } else {
            Duration::ZERO
        };
        // By the seed itself, as well.
        let is_slow = weather == Weather::Calm && seed.is_multiple_of(2);
        Self {
            bug,
            // By the seed itself: none of those that are named in tests.
            waits: matches!(seed % 7, 0 | 2 | 4) && shape == Shape::Small,
            trusts_notices: !fails_over || keep_out.is_some(),
            slow_line: slow_line(timing.ttl()) * u32::from(is_slow),
            weather,
            processes,
            slots,
            names,
            timing,
            longer,
            horizon: nanos(timing.ttl().mul_f64(ttls) + more),
            fails_over,
            keep_out,
            server_rates: server_rates(rate(), servers),
            client_rates: (0..processes).map(|_| rate()).collect(),
            step_within_margin: timing.margin().mul_f64(0.4),
            odds: Self::draw_odds(weather, rng),
        }
    }

    fn draw_odds(weather: Weather, rng: &mut Rng) -> Odds {
        if !matches!(weather, Weather::Storm | Weather::WildClock) {
            return Odds::default();
        }
        let mut odds = |most| if rng.bool() { rng.u32(..most) } else { 0 };
        Odds {
            lost: odds(400),
            late: odds(300),
            duplicated: odds(300),
            failed: odds(300),
            short: odds(50),
        }
    }

    pub(super) fn is_fair(&self) -> bool {
        matches!(self.weather, Weather::Calm | Weather::Gusts)
    }

    /// The longest outage that every lease outlives: it may begin when a renewal is just due, and the last attempts that
    /// were sent into it may take all the time that they have.
    pub(super) fn longest_gust(&self) -> Duration {
        let (ttl, margin) = (self.timing.ttl(), self.timing.margin());
        let spent =
            margin + request_limit(self.longer.ttl()).mul_f64(1.5) + Duration::from_millis(25);
        (ttl * 2 / 3).saturating_sub(spent).min(ttl / 4)
    }

    /// How soon what no guard holds any more must be gone from a store that can be reached.
    pub(super) fn time_to_clean(&self) -> Duration {
        let ttl = self.longer.ttl();
        ttl.mul_f64(0.4) + answer_limit(ttl) * 3 + Duration::from_millis(200)
    }

    /// How long before the last release it may have been that the one before was sent, and lost.
    pub(super) fn last_release(&self) -> Duration {
        let ttl = self.longer.ttl();
        let is_lost = !self.is_fair();
        (ttl.mul_f64(0.4) + answer_limit(ttl) * 2) * u32::from(is_lost)
    }
}

/// A delay between the limit of an attempt and the longest wait for an answer.
fn slow_line(ttl: Duration) -> Duration {
    (request_limit(ttl) + answer_limit(ttl)) / 2
}

/// How many servers there are. By the seed itself, so that a seed of one server makes the same run as ever.
fn servers(seed: u64) -> usize {
    match seed % 5 {
        1 | 3 => 2,
        2 => 3,
        _ => 1,
    }
}

/// No two clocks go alike.
fn server_rates(first: f64, servers: usize) -> Vec<f64> {
    let rates = [first, 2.0 - first, 1.0];
    rates[..servers].to_vec()
}

fn draw_timing(rng: &mut Rng) -> Timing {
    let seconds = [0.2, 1.0, 3.0, 10.0, 30.0];
    let ttl = Duration::from_secs_f64(seconds[rng.usize(..seconds.len())]);
    let margin = (ttl < Timing::MIN_TTL).then_some(Duration::from_millis(20));
    Timing::new(ttl, margin).expect("within the limits")
}

fn doubled(timing: Timing) -> Timing {
    Timing::new(timing.ttl() * 2, Some(timing.margin() * 2)).expect("within the limits")
}
