//! The settings of a request beside the name: the keyword arguments that all calls have in common.

use std::time::Duration;

use leasehold::{LeaseRequest, OutagePolicy, Token};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Invalid, result};

/// Adds these options to a request. One that is `None` is as if it were not there.
pub fn add(mut request: LeaseRequest, options: &Bound<'_, PyDict>) -> PyResult<LeaseRequest> {
    let mut accesses = Vec::new();
    for (option, value) in options {
        let option: String = option.extract()?;
        if value.is_none() {
            continue;
        }
        request = match option.as_str() {
            "ttl" => request.ttl(seconds(&option, &value)?),
            "margin" => request.margin(seconds(&option, &value)?),
            "max_hold" => request.max_hold(seconds(&option, &value)?),
            "hold_at_least" => request.hold_at_least(seconds(&option, &value)?),
            "progress_within" => request.progress_within(seconds(&option, &value)?),
            "label" => request.label(of_type::<String>(&option, &value, "a text")?),
            "min_token" => {
                let token = of_type(&option, &value, "a token, a positive whole number")?;
                request.min_token(result(Token::new(token))?)
            }
            "on_outage" => request.on_outage(outage_policy(&value)?),
            "permits" => {
                accesses.push(option.clone());
                let count = of_type::<u16>(&option, &value, "a whole number, 1 to 256")?;
                request.permits(count)
            }
            "shared" | "shared_fenced" | "exclusive" => {
                if !of_type::<bool>(&option, &value, "True or False")? {
                    continue;
                }
                accesses.push(option.clone());
                match option.as_str() {
                    "shared" => request.shared(),
                    "shared_fenced" => request.shared_fenced(),
                    _ => request.exclusive(),
                }
            }
            _ => {
                let what = format!("got an unexpected keyword argument '{option}'");
                return Err(PyTypeError::new_err(what));
            }
        };
    }
    if accesses.len() > 1 {
        let given = accesses.join(" and ");
        let what = format!("acquire refused: {given} at once; expected one of them");
        return Err(Invalid::new_err(what));
    }
    Ok(request)
}

/// Reads a time in seconds.
pub fn seconds(option: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let expected = "seconds, a number from 0 on";
    let seconds = of_type::<f64>(option, value, expected)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| refused(option, value, expected))
}

fn of_type<'py, T: for<'a> FromPyObject<'a, 'py>>(
    option: &str,
    value: &Bound<'py, PyAny>,
    expected: &str,
) -> PyResult<T> {
    value
        .extract()
        .map_err(|_| refused(option, value, expected))
}

fn outage_policy(value: &Bound<'_, PyAny>) -> PyResult<OutagePolicy> {
    match value.extract::<String>().as_deref() {
        Ok("fail") => Ok(OutagePolicy::Fail),
        Ok("wait") => Ok(OutagePolicy::WaitOut),
        _ => Err(refused("on_outage", value, "'fail' or 'wait'")),
    }
}

fn refused(option: &str, value: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    Invalid::new_err(format!(
        "{option} of {value:?} refused: expected {expected}"
    ))
}
