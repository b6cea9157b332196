//! The fence over HTTP: a header that carries the pass of a request, and the responses to a refused pass.
//!
//! ```text
//! Fencing-Token: 1795166773611100;holder=3f0c...-5a71...;name=orders/eu
//! ```
//!
//! The token is decimal. The name is UTF-8 with everything but letters, digits and `-._~/:` percent-encoded. A stale or
//! conflicting pass gets the status 412, a missing one 428, a malformed one 400, each with a JSON body in the form of
//! RFC 9457:
//!
//! ```json
//! {"type": "urn:leasehold:fence:stale", "title": "...", "status": 412, "detail": "...", "stored": 1795166773611100}
//! ```
//!
//! A `conflict` has the whole pass in `stored`: `{"name": "...", "holder": "...", "token": 1795166773611100}`. A retry
//! of such a request cannot succeed, and the responses forbid caching.
//!
//! The writer's side and the service's side, with any client and server that have the types of the crate `http`:
//!
//! ```
//! # use leasehold::{Holder, Name, Token, fence::Pass};
//! use leasehold::fence::http::{http::HeaderMap, insert_pass, pass_from_headers};
//!
//! # let holder = Holder::draw(leasehold::ClientId::draw())?;
//! # let lease = Pass::new(Name::new("orders/eu")?, holder, Token::new(41)?);
//! let mut headers = HeaderMap::new(); // of a request
//! let pass = insert_pass(&mut headers, &lease)?; // a lease, or a pass
//!
//! assert_eq!(pass_from_headers(&headers)?, Some(pass)); // to be shown to a gate, a database or Redis
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! # Guarantees
//! A pass that is formatted here is parsed here to the same pass. A malformed header is refused; it is never treated as
//! a missing one.
//!
//! # Assumptions
//! Requests are authenticated elsewhere. A fence stops late writers, not hostile ones: a client that may write can show
//! any pass.
//!
//! # Errors
//! `Invalid` for a malformed header; otherwise the errors of the guard behind it.
//!
//! # Cancel safety
//! Nothing here is async.

use std::fmt;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::refusal::refuse;
use super::{Bearer, Blocked, Pass, Refusal};
use crate::error::Error;
use crate::percent;
use crate::telemetry::{self, FenceKind};
use crate::token::Token;

/// The crate whose types this module takes, in the version with which leasehold was built.
#[doc(no_inline)]
pub use ::http;

/// The header that carries a pass.
pub const HEADER: HeaderName = HeaderName::from_static("fencing-token");

/// Inserts the bearer's pass into the headers of a request and returns it, for [`check_response`].
///
/// # Errors
/// `Lost` if the lease's own deadline has passed: then do not send the request.
pub fn insert_pass(headers: &mut HeaderMap, bearer: &dyn Bearer) -> Result<Pass, Error> {
    let shown = bearer.pass()?;
    headers.insert(HEADER, header_value(&shown));
    Ok(shown)
}

/// Returns the header value for this pass.
pub fn header_value(pass: &Pass) -> HeaderValue {
    let name = percent::encode(pass.name.as_str());
    let text = format!("{};holder={};name={name}", pass.token, pass.holder);
    HeaderValue::try_from(text).expect("all of it is ASCII")
}

/// Returns the pass in these headers, or `None` if they have none.
///
/// # Errors
/// `Invalid` if the header is malformed or appears more than once.
pub fn pass_from_headers(headers: &HeaderMap) -> Result<Option<Pass>, Error> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(malformed("the header appears twice"));
    }
    let text = value.to_str().map_err(malformed)?;
    pass(text).map(Some)
}

/// Makes the response to a request whose write failed with this error.
pub fn response_for<B: From<String>>(error: &Error) -> Response<B> {
    let problem = Problem::of(error);
    let body = serde_json::to_string(&problem).expect("text and numbers become JSON");
    let mut response = Response::builder()
        .status(problem.status)
        .header(CONTENT_TYPE, "application/problem+json")
        .header(CACHE_CONTROL, "no-store");
    if problem.status == StatusCode::SERVICE_UNAVAILABLE.as_u16() {
        response = response.header(RETRY_AFTER, "1");
    }
    let response = response.body(B::from(body));
    response.expect("a status and headers of ours")
}

/// Checks a response on the client's side: a refusal by a fence becomes the error that the fence itself returned, and
/// the refusal is reported to the bearer. A response that says nothing about a pass is `Ok`.
///
/// # Errors
/// `Stale`, `Misconfigured` (a token far ahead of the clock) or `Invalid` with the [`Refusal`]; `TimedOut` with
/// [`Blocked`].
pub fn check_response(
    bearer: &dyn Bearer,
    resource: &str,
    shown: &Pass,
    status: StatusCode,
    body: &[u8],
) -> Result<(), Error> {
    if !status.is_client_error() && !status.is_server_error() {
        return Ok(());
    }
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        return Ok(());
    };
    let refusal = match problem.kind {
        ProblemKind::Stale { stored } => Refusal::Stale { stored },
        ProblemKind::Conflict { stored } => Refusal::Conflict { stored },
        ProblemKind::Missing => return Pass::required(None).map(drop),
        ProblemKind::Blocked => return Err(Blocked::error(resource)),
        ProblemKind::Malformed | ProblemKind::Failed => return Ok(()),
    };
    telemetry::count_refusal(FenceKind::Http, refusal.outcome());
    Err(refuse(bearer, resource, shown, refusal))
}

/// The JSON body of a response.
#[derive(Debug, Serialize, Deserialize)]
struct Problem {
    #[serde(flatten)]
    kind: ProblemKind,
    title: String,
    status: u16,
    detail: String,
}

/// The problem, as RFC 9457 has it in `type`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type")]
enum ProblemKind {
    #[serde(rename = "urn:leasehold:fence:stale")]
    Stale { stored: Token },
    #[serde(rename = "urn:leasehold:fence:conflict")]
    Conflict { stored: Box<Pass> },
    #[serde(rename = "urn:leasehold:fence:missing")]
    Missing,
    #[serde(rename = "urn:leasehold:fence:malformed")]
    Malformed,
    #[serde(rename = "urn:leasehold:fence:blocked")]
    Blocked,
    #[serde(rename = "about:blank")]
    Failed,
}

impl Problem {
    fn of(error: &Error) -> Self {
        let kind = match Refusal::of(error) {
            Some(Refusal::Stale { stored }) => ProblemKind::Stale { stored: *stored },
            Some(Refusal::Conflict { stored }) => {
                let stored = stored.clone();
                ProblemKind::Conflict { stored }
            }
            Some(Refusal::Missing) => ProblemKind::Missing,
            None if is_malformed(error) => ProblemKind::Malformed,
            None if Blocked::of(error).is_some() => ProblemKind::Blocked,
            None => ProblemKind::Failed,
        };
        let failed = if error.is_transient() { 503 } else { 500 };
        let (status, title) = match &kind {
            ProblemKind::Stale { .. } => (412, "a newer fencing token has been seen"),
            ProblemKind::Conflict { .. } => (412, "the resource belongs to another fencing token"),
            ProblemKind::Missing => (428, "this request needs the header Fencing-Token"),
            ProblemKind::Malformed => (400, "the header Fencing-Token is malformed"),
            ProblemKind::Blocked => (503, "an older write is still in progress"),
            ProblemKind::Failed => (failed, "the fence could not be checked"),
        };
        Self {
            title: title.into(),
            status,
            // No sources, and no details of internal failures: a client should not learn paths of this machine.
            detail: match kind {
                ProblemKind::Failed => title.into(),
                _ => error.to_string(),
            },
            kind,
        }
    }
}

fn pass(text: &str) -> Result<Pass, Error> {
    let mut parts = text.split(';').map(str::trim);
    let token = parts.next().unwrap_or_default();
    let (mut holder, mut name) = (None, None);
    for part in parts {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| malformed("a parameter has no value"))?;
        let field = match key {
            "holder" => &mut holder,
            "name" => &mut name,
            // Later versions may add parameters.
            _ => continue,
        };
        if field.replace(value).is_some() {
            return Err(malformed("a parameter appears twice"));
        }
    }
    // A proxy that joins two headers, or a sender that pads a number, shows what no sender of a pass writes.
    if token.starts_with('0') || !token.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed(
            "its token is no decimal number without a leading zero",
        ));
    }
    let holder = holder.ok_or_else(|| malformed("it has no holder"))?;
    let name = name.ok_or_else(|| malformed("it has no name"))?;
    if !percent::is_encoded(name) {
        return Err(malformed(
            "its name has a character that is not percent-encoded",
        ));
    }
    let why = "its name has a percent sign without two hex digits, or is not UTF-8";
    let name = percent::decode(name).ok_or_else(|| malformed(why))?;
    Pass::parse(token, holder, name).map_err(malformed)
}

/// Why a header was refused: a fault of its sender.
#[derive(Debug)]
struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

fn malformed(why: impl ToString) -> Error {
    Error::invalid("fencing token refused: expected TOKEN;holder=HOLDER;name=NAME")
        .with_source(Malformed(why.to_string()))
}

fn is_malformed(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Malformed>())
}

#[cfg(test)]
mod tests {
    use crate::error::ErrorKind;
    use crate::holder::ClientId;
    use proptest::prelude::*;

    use super::*;
    use crate::{Holder, Name};

    fn pass_of(name: &str, token: u64) -> Pass {
        Pass::new(
            Name::new(name).expect("valid"),
            Holder::new(ClientId::from_u128(7), 9),
            Token::new(token).expect("valid"),
        )
    }

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(
            HEADER,
            HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
        );
        headers
    }

    #[test]
    fn the_form_is_the_documented_one() {
        let value = header_value(&pass_of("orders/eu 1;é", 41));
        assert_eq!(
            value.to_str().expect("ASCII"),
            "41;holder=00000000000000000000000000000007-0000000000000009;name=orders/eu%201%3B%C3%A9"
        );
    }

    #[test]
    fn no_header_is_no_pass() {
        assert_eq!(pass_from_headers(&HeaderMap::new()).expect("well"), None);
    }

    #[test]
    fn what_is_wrong_on_the_services_side_is_no_malformed_header() {
        let refused = Error::invalid("write refused: the server refused command 2");
        let response = response_for::<String>(&refused);
        assert_eq!(response.status(), 500);
        assert!(!response.body().contains("command 2"));
    }

    #[test]
    fn a_malformed_header_is_refused_and_not_taken_for_missing() {
        let good = "41;holder=00000000000000000000000000000007-0000000000000009;name=a";
        assert!(pass_from_headers(&headers(good)).expect("well").is_some());
        let spaced = good.replace(';', " ; ");
        assert!(
            pass_from_headers(&headers(&spaced))
                .expect("well")
                .is_some()
        );
        let later = format!("{good};since=7");
        assert!(pass_from_headers(&headers(&later)).expect("well").is_some());
        for bad in [
            String::new(),
            "41".into(),
            good.replace("41;", "+41;"),
            good.replace("41;", "00041;"),
            format!("{good}, 42"),
            good.replace("41", "0"),
            good.replace("41", "x"),
            good.replace("holder", "owner"),
            good.replace("name=a", "name="),
            good.replace("name=a", "name=%7B"),
            good.replace("name=a", "name=%F"),
            good.replace("name=a", "name=%FF"),
            good.replace("name=a", "name"),
            format!("{good};name=b"),
            format!("{good};holder=x"),
            good.replace("name=a", "name=é"),
        ] {
            let error = pass_from_headers(&headers(&bad)).expect_err(&bad);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
            assert_eq!(response_for::<String>(&error).status(), 400);
        }
        let mut twice = headers(good);
        twice.append(HEADER, HeaderValue::from_static("41"));
        assert!(pass_from_headers(&twice).is_err());
    }

    #[test]
    fn a_refusal_survives_its_answer() {
        let (shown, stored) = (pass_of("a", 1), pass_of("é", 2));
        let stale = Refusal::Stale {
            stored: stored.token,
        };
        for refusal in [stale, Refusal::conflict(&stored)] {
            let error = refuse(&shown, "ledger", &shown, refusal.clone());
            let answer = response_for::<String>(&error);
            assert_eq!(answer.status(), 412);
            let heard = check_response(
                &shown,
                "ledger",
                &shown,
                answer.status(),
                answer.body().as_bytes(),
            );
            let error = heard.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Stale);
            assert_eq!(Refusal::of(&error), Some(&refusal));
        }
        let missing = response_for::<String>(&Pass::required(None).expect_err("missing"));
        assert_eq!(missing.status(), 428);
        let heard = check_response(
            &shown,
            "ledger",
            &shown,
            missing.status(),
            missing.body().as_bytes(),
        );
        assert_eq!(
            Refusal::of(&heard.expect_err("refused")),
            Some(&Refusal::Missing)
        );
    }

    #[test]
    fn a_failure_of_the_fence_shows_nothing_of_its_machine() {
        for (kind, status) in [
            (ErrorKind::Unavailable, 503),
            (ErrorKind::Misconfigured, 500),
        ] {
            let error = Error::new(
                kind,
                "raise failed: the gate's file failed path=/srv/fences",
            );
            let answer = response_for::<String>(&error);
            assert_eq!(answer.status(), status);
            assert!(!answer.body().contains("/srv"), "{}", answer.body());
        }
    }

    #[test]
    fn a_response_of_another_service_says_nothing_about_the_pass() {
        let shown = pass_of("a", 1);
        for body in [
            "",
            "not found",
            "{}",
            r#"{"type":"urn:other","status":412}"#,
        ] {
            let status = StatusCode::PRECONDITION_FAILED;
            assert!(
                check_response(&shown, "ledger", &shown, status, body.as_bytes()).is_ok(),
                "{body}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_formatted_is_parsed_to_the_same_pass(
            name in "[^\\p{Cc}{}\\s]([^\\p{Cc}{}]{0,98}[^\\p{Cc}{}\\s])?",
            token in 1_u64..(1 << 53),
        ) {
            let pass = pass_of(&name, token);
            let mut headers = HeaderMap::new();
            insert_pass(&mut headers, &pass).expect("a pass is no lease");
            prop_assert_eq!(pass_from_headers(&headers).expect("well"), Some(pass));
        }
    }
}
