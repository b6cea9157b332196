//! Everything that needs more than a pure function: real stores, real processes, real time.

mod conformance;
mod fence;
mod harness;
mod redis;
