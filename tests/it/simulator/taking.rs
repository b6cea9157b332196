//! Drives [`take`] step by step: the request that it asks for is the next step, and it goes on with the answer.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use leasehold::Error;
use leasehold::internals::taking::{Access, DoorAnswer, Pool, take};

/// The next request of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeStep {
    CheckDoor,
    Claim(u16),
    Survey,
    GiveBack,
    TakeDoor,
    AwaitFree,
    LeaveDoor,
    /// The end: what was taken counts.
    Done,
    /// The end: others have it, and the caller does not wait.
    Refused,
}

/// An answer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TakeAnswer {
    Door {
        is_free: bool,
        is_permit_held: bool,
    },
    Granted,
    Taken,
    Free(Vec<u16>),
    GaveBack,
    DoorGranted,
    DoorTaken,
    DoorLost,
    DoorLeft {
        was_held: bool,
        is_permit_held: bool,
    },
}

/// One acquisition, by the answers that it has.
pub(super) struct Taking {
    take: Pin<Box<dyn Future<Output = bool>>>,
    wire: Wire,
}

/// What goes to and fro.
#[derive(Clone)]
struct Wire(Arc<Mutex<OnTheWire>>);

struct OnTheWire {
    step: TakeStep,
    answer: Option<TakeAnswer>,
    is_door_taken: bool,
    is_permit_held: bool,
}

impl Taking {
    /// Begins an acquisition, with its first step.
    pub(super) fn begin(
        access: Access,
        waits: bool,
        is_door_taken: bool,
        guesses: Vec<u16>,
    ) -> (Self, TakeStep) {
        let wire = Wire(Arc::new(Mutex::new(OnTheWire {
            step: TakeStep::Refused,
            answer: None,
            is_door_taken,
            is_permit_held: false,
        })));
        let mut pool = wire.clone();
        let take = async move { take(&mut pool, access, waits, guesses).await };
        let mut taking = Self {
            take: Box::pin(async move { take.await.expect("no request of the model fails") }),
            wire,
        };
        let step = taking.goes_on();
        (taking, step)
    }

    /// Takes in the answer to the last step. Returns the next one.
    pub(super) fn hear(&mut self, heard: TakeAnswer) -> TakeStep {
        self.wire.lock().answer = Some(heard);
        let step = self.goes_on();
        assert_eq!(self.wire.lock().answer, None, "before {step:?}");
        step
    }

    fn goes_on(&mut self) -> TakeStep {
        let mut context = Context::from_waker(Waker::noop());
        match self.take.as_mut().poll(&mut context) {
            Poll::Ready(true) => TakeStep::Done,
            Poll::Ready(false) => TakeStep::Refused,
            Poll::Pending => self.wire.lock().step,
        }
    }
}

impl fmt::Debug for Taking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Taking({:?})", self.wire.lock().step)
    }
}

impl Wire {
    fn lock(&self) -> MutexGuard<'_, OnTheWire> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    async fn ask(&mut self, step: TakeStep) -> TakeAnswer {
        self.lock().step = step;
        poll_fn(|_| match self.lock().answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    async fn checks(&mut self, step: TakeStep) -> Result<Option<Vec<u16>>, Error> {
        match self.ask(step).await {
            TakeAnswer::Free(free) => Ok(Some(free)),
            TakeAnswer::DoorLost => Ok(None),
            other => panic!("{other:?} to {step:?}"),
        }
    }
}

impl Pool for Wire {
    fn is_door_taken(&self) -> bool {
        self.lock().is_door_taken
    }

    fn is_permit_held(&self) -> bool {
        self.lock().is_permit_held
    }

    async fn is_door_free(&mut self) -> Result<bool, Error> {
        match self.ask(TakeStep::CheckDoor).await {
            TakeAnswer::Door {
                is_free,
                is_permit_held,
            } => {
                self.lock().is_permit_held = is_permit_held;
                Ok(is_free)
            }
            other => panic!("{other:?} to a check of the door"),
        }
    }

    async fn claim(&mut self, permit: u16) -> Result<bool, Error> {
        match self.ask(TakeStep::Claim(permit)).await {
            TakeAnswer::Granted => Ok(true),
            TakeAnswer::Taken => Ok(false),
            other => panic!("{other:?} to a claim"),
        }
    }

    async fn give_back(&mut self) {
        assert_eq!(self.ask(TakeStep::GiveBack).await, TakeAnswer::GaveBack);
    }

    async fn take_door(&mut self) -> Result<DoorAnswer, Error> {
        match self.ask(TakeStep::TakeDoor).await {
            TakeAnswer::DoorGranted => Ok(DoorAnswer::Granted),
            TakeAnswer::DoorTaken => Ok(DoorAnswer::Taken),
            other => panic!("{other:?} to a claim of the door"),
        }
    }

    async fn survey(&mut self) -> Result<Option<Vec<u16>>, Error> {
        self.checks(TakeStep::Survey).await
    }

    async fn await_free(&mut self) -> Result<Option<Vec<u16>>, Error> {
        self.checks(TakeStep::AwaitFree).await
    }

    async fn leave_door(&mut self, _: &[u16]) -> bool {
        match self.ask(TakeStep::LeaveDoor).await {
            TakeAnswer::DoorLeft {
                was_held,
                is_permit_held,
            } => {
                self.lock().is_permit_held = is_permit_held;
                was_held
            }
            other => panic!("{other:?} to the release of the door"),
        }
    }
}
