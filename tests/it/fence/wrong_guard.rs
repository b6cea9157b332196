//! Guards with one known bug each, which the checks must find.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold::fence::{Admission, Pass, Refusal, judge, refused};
use leasehold::{ClientId, Error, Token};

use super::Guard;

/// A bug that people write when they build a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardBug {
    /// No bug. It shows that the checks pass for a correct guard.
    None,
    /// `>` for `>=`: a holder writes once, then never again.
    OnlyGreater,
    /// `=`: the first holder keeps the resource for ever.
    OnlyEqual,
    /// The holder is not compared, so two grants with the same number admit each other.
    HolderIgnored,
    /// The lease name is not compared, so unrelated tokens are compared with each other.
    NameIgnored,
    /// The fence is raised by the first write only: what was read before it can still be overwritten.
    RaisedByTheFirstWrite,
    /// Check and write are two steps, between which a rival can write.
    TwoSteps,
    /// The token is read once for each process, and used for all its leases.
    TokenPerProcess,
    /// A write without a pass is taken for that of an old client, and admitted.
    MissingWavedThrough,
    /// The raise is kept in memory and made durable after the first write under it.
    KeptAfterTheWrite,
}

/// A fence in memory with this bug. What survives a restart is in `kept`.
pub(super) struct WrongGuard {
    bug: GuardBug,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rows: HashMap<String, Pass>,
    kept: HashMap<String, Pass>,
    registers: HashMap<String, String>,
    tokens: HashMap<ClientId, Token>,
}

impl fmt::Debug for WrongGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with the bug {:?}", self.bug)
    }
}

impl WrongGuard {
    /// Makes a fence with this bug.
    pub(super) fn new(bug: GuardBug) -> Self {
        Self {
            bug,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, stored: Option<&Pass>, shown: &Pass) -> Result<Admission, Refusal> {
        let mut shown = shown.clone();
        match (self.bug, stored) {
            (GuardBug::OnlyGreater, Some(stored)) if stored == &shown => {
                return Err(Refusal::Stale {
                    stored: stored.token,
                });
            }
            (GuardBug::OnlyEqual, Some(stored)) if stored.token < shown.token => {
                return Err(Refusal::Stale {
                    stored: stored.token,
                });
            }
            (GuardBug::HolderIgnored, Some(stored)) => shown.holder = stored.holder,
            (GuardBug::NameIgnored, Some(stored)) => shown.name = stored.name.clone(),
            _ => {}
        }
        judge(stored, &shown)
    }

    /// Returns the pass that this process shows, whatever it was given.
    fn shown(&self, pass: &Pass) -> Pass {
        let mut pass = pass.clone();
        if self.bug == GuardBug::TokenPerProcess {
            let client = pass.holder.client();
            pass.token = *self.state().tokens.entry(client).or_insert(pass.token);
        }
        pass
    }

    fn admit(&self, resource: &str, pass: &Pass) -> Result<(), Error> {
        let mut state = self.state();
        match self.judge(state.rows.get(resource), pass) {
            Ok(Admission::Raise) => {
                state.rows.insert(resource.into(), pass.clone());
                if self.bug != GuardBug::KeptAfterTheWrite {
                    state.kept.insert(resource.into(), pass.clone());
                }
                Ok(())
            }
            Ok(Admission::Again) => Ok(()),
            Err(refusal) => Err(refused(pass, resource, pass, refusal)),
        }
    }
}

impl Guard for WrongGuard {
    async fn raise(&self, resource: &str, shown: Option<&Pass>) -> Result<(), Error> {
        let pass = self.shown(Pass::required(shown)?);
        if self.bug == GuardBug::RaisedByTheFirstWrite {
            return Ok(());
        }
        self.admit(resource, &pass)?;
        let mut state = self.state();
        state.kept.insert(resource.into(), pass);
        Ok(())
    }

    async fn write(&self, resource: &str, shown: Option<&Pass>, value: &str) -> Result<(), Error> {
        if shown.is_none() && self.bug == GuardBug::MissingWavedThrough {
            self.state().registers.insert(resource.into(), value.into());
            return Ok(());
        }
        let pass = self.shown(Pass::required(shown)?);
        self.admit(resource, &pass)?;
        if self.bug == GuardBug::TwoSteps {
            tokio::task::yield_now().await;
        }
        self.state().registers.insert(resource.into(), value.into());
        if self.bug == GuardBug::KeptAfterTheWrite {
            tokio::task::yield_now().await;
            self.state().kept.insert(resource.into(), pass);
        } else {
            // Yields as a real guard does, so that writers and raises interleave.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn read(&self, resource: &str) -> Option<String> {
        self.state().registers.get(resource).cloned()
    }

    async fn row(&self, resource: &str) -> Option<Pass> {
        self.state().rows.get(resource).cloned()
    }

    async fn restart(&self) {
        let mut state = self.state();
        state.rows = state.kept.clone();
    }
}
