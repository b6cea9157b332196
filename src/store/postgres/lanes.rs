//! The connections of a store. A server connection carries out one statement at a time, including its disk flush, so a
//! single one would allow one grant for each flush; another one is opened when all are busy.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::address::Address;
use super::failure::Failure;
use super::lane::{Lane, Query, left};
use crate::clock::Instant;
use crate::driver::Driver;
use crate::telemetry::LaneUse;

/// How many requests each connection carries before another is opened.
const BUSY: usize = 8;
/// After how long an unused connection is closed, because each costs the server a process.
const IDLE: Duration = Duration::from_secs(10);
/// The longest pause before a request that conflicted with another transaction is sent again.
const AGAIN: Duration = Duration::from_millis(5);

/// Several connections to the same servers.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
}

impl Lanes {
    /// Connections for requests: at most `count` of them, each closed when it is no longer used.
    pub(super) fn new(address: &Arc<Address>, count: usize, connect_timeout: Duration) -> Self {
        let driver = Arc::<Driver>::default();
        let lane = |_| {
            let driver = Some(driver.clone());
            let gauge = super::counts().connection(Some(LaneUse::Requests));
            Lane::new(address.clone(), driver, connect_timeout, Some(IDLE), gauge)
        };
        Self {
            lanes: (0..count).map(lane).collect(),
        }
    }

    /// Makes one connection now, on the calling runtime, and keeps it.
    pub(super) async fn connected(
        address: &Arc<Address>,
        connect_timeout: Duration,
        purpose: Option<LaneUse>,
    ) -> Result<Self, Failure> {
        let gauge = super::counts().connection(purpose);
        let lane = Lane::new(address.clone(), None, connect_timeout, None, gauge);
        lane.connect().await?;
        Ok(Self { lanes: vec![lane] })
    }

    /// Sends one statement and awaits its answer. Retries it within the limit if the server reports that it conflicted
    /// with another transaction and nothing was done.
    ///
    /// # Cancel safety
    /// The same as for [`Lane::request`].
    pub(super) async fn request(
        &self,
        call: Query<'_>,
        until: Instant,
        replace_every: Duration,
    ) -> Result<Vec<Row>, Failure> {
        loop {
            let lane = self.lane();
            let mut outcome = lane.request(call, until, replace_every).await;
            // The server may refuse another connection while the first one works.
            if matches!(&outcome, Err(failure) if failure.is_unconnected()) && !self.is_first(lane)
            {
                outcome = self.lanes[0].request(call, until, replace_every).await;
            }
            match outcome {
                Err(failure) if failure.is_to_be_repeated() && left(until) > AGAIN => {
                    tokio::time::sleep(AGAIN.mul_f64(fastrand::f64())).await;
                }
                outcome => return outcome,
            }
        }
    }

    pub(super) fn close(&self) {
        self.lanes.iter().for_each(Lane::close);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lanes.iter().all(Lane::is_closed)
    }

    fn is_first(&self, lane: &Lane) -> bool {
        std::ptr::eq(lane, &self.lanes[0])
    }

    /// Returns the open connection with the fewest requests; another one if all are busy.
    fn lane(&self) -> &Lane {
        let open = self
            .lanes
            .iter()
            .filter_map(|lane| Some((lane.load()?, lane)));
        let closed = || self.lanes.iter().find(|lane| lane.load().is_none());
        match open.min_by_key(|(load, _)| *load) {
            Some((load, lane)) if load < BUSY => lane,
            Some((_, lane)) => closed().unwrap_or(lane),
            None => &self.lanes[0],
        }
    }
}
