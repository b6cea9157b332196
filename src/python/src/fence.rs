//! What the fences of `leasehold/fence.py` take from the library: the script of Redis, the rule of resources, and the
//! meaning of a refusal.

use leasehold::fence::redis::Fence;
use leasehold::fence::{Pass, judge};
use leasehold::{Error, Name, Token};
use pyo3::prelude::*;

use crate::error::{Misconfigured, raised, result};
use crate::lease::Lease;

/// Returns the key of a resource's fence in Redis. Fails for a resource that breaks the rule.
#[pyfunction]
pub fn fence_key(resource: &str) -> PyResult<String> {
    result(Fence::new(resource).map(|fence| fence.key().to_owned()))
}

/// Returns the script of the fence in Redis.
#[pyfunction]
pub fn fence_script() -> &'static str {
    include_str!("../../fence/fence.lua")
}

/// Returns the exception of a refused pass, where this is the row of the fence. The client's next grant of the name is
/// above it.
#[pyfunction]
pub fn refused(
    lease: &Lease,
    resource: &str,
    shown: (u64, String, String),
    stored: (u64, String, String),
) -> PyErr {
    let refusal = pass(shown).and_then(|shown| {
        let stored = pass(stored)?;
        Ok(match judge(Some(&stored), &shown) {
            Err(refusal) => raised(&leasehold::fence::refused(
                &lease.handle,
                resource,
                &shown,
                refusal,
            )),
            Ok(_) => Misconfigured::new_err(format!(
                "write failed: the fence refused what the rule admits resource={resource:?}"
            )),
        })
    });
    refusal.unwrap_or_else(|error| {
        Misconfigured::new_err(format!(
            "write failed: the fence is damaged resource={resource:?}: {error:#}"
        ))
    })
}

fn pass((token, holder, name): (u64, String, String)) -> Result<Pass, Error> {
    Ok(Pass::new(
        Name::new(name)?,
        holder.parse()?,
        Token::new(token)?,
    ))
}
