//! The exceptions of the library's errors, which `leasehold/errors.py` defines.

use leasehold::{Error, ErrorKind};
use pyo3::import_exception;
use pyo3::prelude::*;

import_exception!(leasehold.errors, LeaseholdError);
import_exception!(leasehold.errors, Invalid);
import_exception!(leasehold.errors, Unavailable);
import_exception!(leasehold.errors, TimedOut);
import_exception!(leasehold.errors, Denied);
import_exception!(leasehold.errors, Misconfigured);
import_exception!(leasehold.errors, Lost);
import_exception!(leasehold.errors, Stale);
import_exception!(leasehold.errors, Closed);

/// Returns the exception of an error, with its sources in the text.
pub fn raised(error: &Error) -> PyErr {
    let text = format!("{error:#}");
    match error.kind() {
        ErrorKind::Invalid => Invalid::new_err(text),
        ErrorKind::Unavailable => Unavailable::new_err(text),
        ErrorKind::TimedOut => TimedOut::new_err(text),
        ErrorKind::Denied => Denied::new_err(text),
        ErrorKind::Misconfigured => Misconfigured::new_err(text),
        ErrorKind::Lost => Lost::new_err(text),
        ErrorKind::Stale => Stale::new_err(text),
        ErrorKind::Closed => Closed::new_err(text),
        _ => LeaseholdError::new_err(text),
    }
}

/// Returns the result of a call of the library, as Python raises it.
pub fn result<T>(result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| raised(&error))
}
