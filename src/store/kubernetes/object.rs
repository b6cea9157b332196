//! The `Lease` object of a name, and its content for other clients, for people, and for other programs. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::ErrorKind;
use crate::store::record::{Failure, MARK, Record, Versioned};

/// The kind of the objects, as it is written in paths and in answers.
pub(super) const RESOURCE: &str = "leases";
/// The label by which the objects are listed.
pub(super) const LABEL: &str = "app.kubernetes.io/managed-by=leasehold";
const LABEL_KEY: &str = "app.kubernetes.io/managed-by";
/// Begins the names of objects that are not those of their leases.
const HASHED: &str = "leasehold-";
const MARK_OBJECT: &str = "leasehold-mark";

const KEY: &str = "leasehold/name";
const RECORD: &str = "leasehold/record";
/// The spec that was written with the record. Another program that takes the object changes the spec, and may leave the
/// annotations unchanged.
const SPEC: &str = "leasehold/spec";

/// Returns the name of the object of this key: the key itself where that can be a name of an object, so that other
/// programs can share it, and a hash of it otherwise.
pub(super) fn object_name(key: &str) -> String {
    let is_plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().last()];
        ends.iter().all(|end| end.is_some_and(is_plain))
            && label
                .bytes()
                .all(|letter| is_plain(letter) || letter == b'-')
    };
    match key {
        MARK => MARK_OBJECT.into(),
        _ if key.len() <= 253 && !key.starts_with(HASHED) && key.split('.').all(is_label) => {
            key.into()
        }
        _ => format!(
            "{HASHED}{}",
            Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()).simple()
        ),
    }
}

/// An object as the API server shows it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LeaseObject {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    managed_fields: Vec<ManagedField>,
}

#[derive(Debug, Clone, Deserialize)]
struct ManagedField {
    time: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    renew_time: Option<String>,
}

impl Spec {
    /// Returns a text that distinguishes this spec from that of another program.
    fn shown(&self) -> String {
        let holder = self.holder_identity.as_deref().unwrap_or_default();
        let renewed = self.renew_time.as_deref().unwrap_or_default();
        format!("{renewed} {holder}")
    }
}

impl LeaseObject {
    /// Returns the key of this object: that of its annotation, or its name where another program made it.
    pub(super) fn key(&self) -> &str {
        let key = self.metadata.annotations.get(KEY);
        key.unwrap_or(&self.metadata.name)
    }

    /// Returns whether this object is the one of its key. A copy that somebody made of one is not.
    pub(super) fn is_of_its_key(&self) -> bool {
        object_name(self.key()) == self.metadata.name
    }

    /// Returns the version, the record, and when it was written, in whole seconds of the server's clock.
    ///
    /// # Errors
    /// `Misconfigured` for an object that has another key, or what is no record.
    pub(super) fn versioned(&self, key: &str) -> Result<Versioned, Failure> {
        if self.key() != key {
            return Err(self.refused(&format!(
                "is not that of this name, but of {:?}",
                self.key()
            )));
        }
        let times = self.metadata.managed_fields.iter();
        let written_at = times.filter_map(|field| field.time).max().map(since_1970);
        let version = self.metadata.resource_version.clone();
        Ok(Versioned::new(version, self.record()?, written_at))
    }

    fn refused(&self, why: &str) -> Failure {
        let what = format!("the object {} {why}", self.metadata.name);
        Failure::answered(ErrorKind::Misconfigured, what)
    }

    fn record(&self) -> Result<Record, Failure> {
        let record = self.metadata.annotations.get(RECORD);
        let record = record.map(|text| Record::from_text(text.as_bytes()));
        let record = record.transpose();
        let record = record.map_err(|why| self.refused(&format!("is refused: {why}")))?;
        let written = self.metadata.annotations.get(SPEC);
        if let Some(record) = &record
            && written.is_some_and(|written| *written == self.spec.shown())
        {
            return Ok(record.clone());
        }
        let holder = self.spec.holder_identity.as_deref().unwrap_or_default();
        let ttl = self.spec.lease_duration_seconds.unwrap_or_default();
        let mut foreign = Record::foreign(Duration::from_secs(ttl), holder.into());
        if holder.is_empty() {
            // It was released, as client-go does it.
            foreign.state = None;
        }
        foreign.token = record.and_then(|record| record.token);
        Ok(foreign)
    }
}

/// Returns the body to write for a record: a patch, which leaves what others wrote in the object, or a whole object.
/// `on` is the version that it must have; `now` is the time since 1970 to show to people.
pub(super) fn written(key: &str, on: Option<&str>, record: &Record, now: Duration) -> Value {
    let is_taken = record.state.is_some();
    let holder = is_taken.then(|| holder_identity(record));
    let seconds = record.ttl_ms.div_ceil(1_000).clamp(1, i32::MAX as u64);
    let renewed = micro_time(now);
    let spec = Spec {
        holder_identity: holder,
        lease_duration_seconds: is_taken.then_some(seconds),
        renew_time: Some(renewed),
    };
    let acquired = Duration::from_micros(record.since_us);
    let metadata = json!({
        "name": object_name(key),
        "labels": { LABEL_KEY: "leasehold" },
        "annotations": {
            KEY: key,
            RECORD: record.to_text(),
            SPEC: spec.shown(),
        },
    });
    let mut object = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": spec.holder_identity,
            "leaseDurationSeconds": spec.lease_duration_seconds,
            "renewTime": spec.renew_time,
            "acquireTime": is_taken.then(|| micro_time(acquired)),
        },
    });
    if let Some(on) = on {
        object["metadata"]["resourceVersion"] = on.into();
    }
    object
}

/// Returns what `kubectl get lease` shows as the holder.
fn holder_identity(record: &Record) -> String {
    let info = &record.info;
    match &info.label {
        Some(label) => format!("{}/{} {label}", info.host, info.pid),
        None => format!("{}/{}", info.host, info.pid),
    }
}

fn micro_time(time: Duration) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or_default();
    let time = Timestamp::from_microsecond(micros).unwrap_or_default();
    format!("{time:.6}")
}

fn since_1970(time: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default())
}

/// Reads the `Date` of an answer.
pub(super) fn date(text: &str) -> Option<Duration> {
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(since_1970(date.timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::HeldState;

    const NOW: Duration = Duration::from_micros(1_795_900_000_000_001);

    /// The form that the API server gives a written object.
    fn stored(mut written: Value, version: &str) -> LeaseObject {
        written["metadata"]["resourceVersion"] = version.into();
        written["metadata"]["managedFields"] = json!([
            { "time": "2026-11-28T21:45:46Z" },
            { "time": "2026-11-28T21:45:48Z", "manager": "kubectl" },
            {},
        ]);
        serde_json::from_value(written).expect("an object")
    }

    fn leased() -> Record {
        let mut record = Record::foreign(Duration::from_millis(2_500), "host".into());
        record.token = Some(crate::Token::new(7).expect("a token"));
        record.info.pid = 12;
        record.info.label = Some("report 7".into());
        record
    }

    #[test]
    fn a_record_is_read_as_it_was_written_with_its_time_and_version() {
        let record = leased();
        let written = written("nightly", None, &record, NOW);
        assert_eq!(written["spec"]["holderIdentity"], "host/12 report 7");
        assert_eq!(written["spec"]["leaseDurationSeconds"], 3);
        let renewed = written["spec"]["renewTime"].as_str().expect("a time");
        assert!(renewed.ends_with(".000001Z"), "{renewed}");
        let read = stored(written, "41")
            .versioned("nightly")
            .expect("it is ours");
        assert_eq!((read.version.as_str(), &read.record), ("41", &record));
        let written_at = date("Sat, 28 Nov 2026 21:45:48 GMT");
        assert_eq!(read.written_at, written_at);
        assert!(written_at.is_some());
    }

    #[test]
    fn a_free_name_shows_no_holder() {
        let mut record = leased();
        record.state = None;
        let written = written("a", Some("41"), &record, NOW);
        assert_eq!(written["spec"]["holderIdentity"], Value::Null);
        assert_eq!(written["metadata"]["resourceVersion"], "41");
        let read = stored(written, "42").versioned("a").expect("it is ours");
        assert_eq!(read.record, record);
    }

    #[test]
    fn an_object_that_another_program_took_is_its_own_and_keeps_our_token() {
        let record = leased();
        for (holder, duration, state, ttl_s) in [
            (json!("pod-1_x"), json!(15), Some(HeldState::Leased), 15),
            (json!(""), json!(1), None, 1),
        ] {
            let mut taken = written("a", None, &record, NOW);
            taken["spec"]["holderIdentity"] = holder;
            taken["spec"]["leaseDurationSeconds"] = duration;
            taken["spec"]["renewTime"] = "2026-11-28T21:45:49.000000Z".into();
            let read = stored(taken, "43").versioned("a").expect("readable").record;
            assert_eq!((read.state, read.ttl().as_secs()), (state, ttl_s));
            assert_eq!((read.by, read.token), (None, record.token));
        }
        let foreign = json!({
            "metadata": { "name": "a" },
            "spec": { "holderIdentity": "x", "leaseDurationSeconds": 15 },
        });
        let read = stored(foreign, "1")
            .versioned("a")
            .expect("readable")
            .record;
        assert_eq!((read.ttl().as_secs(), read.token), (15, None));
    }

    #[test]
    fn an_object_of_another_name_is_refused() {
        let object = stored(written("b", None, &leased(), NOW), "1");
        let failure = object.versioned("a").expect_err("it is that of b");
        assert!(
            failure.to_string().contains("not that of this name"),
            "{failure}"
        );
        assert!(object.is_of_its_key());
        let mut copy = written("b", None, &leased(), NOW);
        copy["metadata"]["name"] = "a".into();
        assert!(!stored(copy, "1").is_of_its_key());
    }

    #[test]
    fn names_that_can_be_those_of_objects_are_and_no_two_are_alike() {
        for name in ["a", "my-app.leader", "0"] {
            assert_eq!(object_name(name), name);
        }
        let long = "a".repeat(254);
        let odd = [
            "A",
            "a/b",
            "a_b",
            "-a",
            "a.",
            "",
            "leasehold-mark",
            "\u{e9}",
            &long,
        ];
        let mut objects: Vec<_> = odd.iter().map(|name| object_name(name)).collect();
        for object in &objects {
            assert!(object.len() == HASHED.len() + 32, "{object}");
            assert!(object.starts_with(HASHED), "{object}");
        }
        objects.push(object_name(MARK));
        objects.sort();
        objects.dedup();
        assert_eq!(objects.len(), odd.len() + 1);
    }
}
