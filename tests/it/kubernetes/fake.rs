//! Objects in the memory of this process, with the answers of an API server as far as the store asks for them. Nobody may
//! watch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::{Api, Asked};
use crate::harness::kubernetes_server::Answered;

/// The objects by their names, and the number of changes so far.
#[derive(Debug, Default)]
struct Objects {
    all: BTreeMap<String, Value>,
    changes: u64,
}

/// Starts a server that has these objects.
pub(crate) async fn with(objects: Vec<Value>) -> Api {
    let mut has = Objects::default();
    for object in objects {
        has.write(object);
    }
    let has = Arc::new(Mutex::new(has));
    Api::answering(move |asked| {
        let (code, body) = has.lock().unwrap().answer(&asked);
        let answer = Answered {
            code,
            date: time("%a, %d %b %Y %H:%M:%S GMT"),
            body: body.to_string(),
        };
        Box::pin(async { answer })
    })
    .await
}

fn time(form: &str) -> String {
    Timestamp::now().strftime(form).to_string()
}

fn missing() -> (StatusCode, Value) {
    let status = json!({ "reason": "NotFound", "details": { "kind": "leases" } });
    (StatusCode::NOT_FOUND, status)
}

fn conflict() -> (StatusCode, Value) {
    (StatusCode::CONFLICT, json!({ "reason": "Conflict" }))
}

impl Objects {
    fn answer(&mut self, asked: &Asked) -> (StatusCode, Value) {
        let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let path = asked.path.split('?').next().unwrap_or_default();
        let name = path.rsplit_once("/leases/").map(|(_, name)| name);
        let known = name.and_then(|name| self.all.get(name));
        let version = known.map(|known| &known["metadata"]["resourceVersion"]);
        match (&asked.method, name) {
            _ if path == "/version" => (StatusCode::OK, json!({ "gitVersion": "v1.0.0" })),
            _ if path.ends_with("reviews") => {
                let verb = &body["spec"]["resourceAttributes"]["verb"];
                let status = json!({ "allowed": verb != "watch" });
                (StatusCode::CREATED, json!({ "status": status }))
            }
            (&Method::GET, None) => {
                let items: Vec<_> = self.all.values().collect();
                (StatusCode::OK, json!({ "metadata": {}, "items": items }))
            }
            (&Method::POST, None) => match self
                .all
                .contains_key(body["metadata"]["name"].as_str().unwrap())
            {
                true => conflict(),
                false => (StatusCode::CREATED, self.write(body)),
            },
            (_, Some(_)) if known.is_none() => missing(),
            (&Method::GET, _) => (StatusCode::OK, known.cloned().unwrap_or_default()),
            (&Method::PATCH, _) if version != Some(&body["metadata"]["resourceVersion"]) => {
                conflict()
            }
            (&Method::PATCH, _) => (StatusCode::OK, self.write(body)),
            (&Method::DELETE, _) if version != Some(&body["preconditions"]["resourceVersion"]) => {
                conflict()
            }
            (_, name) => {
                self.all.remove(name.unwrap_or_default());
                (StatusCode::OK, json!({}))
            }
        }
    }

    /// The store writes each field that it reads, so a patch is a whole object.
    fn write(&mut self, mut object: Value) -> Value {
        self.changes += 1;
        object["metadata"]["resourceVersion"] = self.changes.to_string().into();
        object["metadata"]["managedFields"] = json!([{ "time": time("%Y-%m-%dT%H:%M:%SZ") }]);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.all.insert(name, object.clone());
        object
    }
}
