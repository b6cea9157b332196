//! The connections of a store. A server connection does one statement at a time, its flush included, so a single one would
//! cap grants at one a flush; a further one is opened when all are busy.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::address::Address;
use super::failure::Failure;
use super::lane::{Lane, Query, left};
use crate::clock::Instant;
use crate::driver::Driver;

/// How many requests each connection has under way before another is opened.
const BUSY: usize = 8;
/// After how long an unused connection is closed: they are dear to the server.
const IDLE: Duration = Duration::from_secs(10);
/// How long to wait before a request that lost to another transaction is sent again, at most.
const AGAIN: Duration = Duration::from_millis(5);

/// Some connections to the same servers.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
}

impl Lanes {
    /// For requests: so many connections at most, none of them longer than it is used.
    pub(super) fn new(address: &Arc<Address>, count: usize, connect_timeout: Duration) -> Self {
        let driver = Arc::<Driver>::default();
        let lane = |_| {
            let driver = Some(driver.clone());
            Lane::new(address.clone(), driver, connect_timeout, Some(IDLE))
        };
        Self {
            lanes: (0..count).map(lane).collect(),
        }
    }

    /// One connection, made now, on the calling runtime, and kept.
    pub(super) async fn connected(
        address: &Arc<Address>,
        connect_timeout: Duration,
    ) -> Result<Self, Failure> {
        let lane = Lane::new(address.clone(), None, connect_timeout, None);
        lane.connect().await?;
        Ok(Self { lanes: vec![lane] })
    }

    /// Sends one statement and awaits its answer; again, within the limit, where the server says that another transaction
    /// was in the way and nothing was done.
    ///
    /// # Cancel safety
    /// As [`Lane::request`].
    pub(super) async fn request(
        &self,
        call: Query<'_>,
        until: Instant,
        replace_every: Duration,
    ) -> Result<Vec<Row>, Failure> {
        loop {
            let lane = self.lane();
            let mut outcome = lane.request(call, until, replace_every).await;
            // The server may refuse a further connection where the first one works.
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

    /// The emptiest that is open; a further one where all are busy.
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
