//! The page of everything that the tool prints for programs, made from the types that are printed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// The text between these lines is generated from the types.
const BEGIN: &str = "<!-- made from the types: see fields.rs -->\n";
const END: &str = "<!-- end of what is made -->\n";

/// The events of a run, and what each of them is.
const EVENTS: [(&str, &str); 27] = [
    (
        "store",
        "the file that is used, or that the store was not reached at first",
    ),
    (
        "store_file",
        "about the file that names the store: others can read its password, it names another store by now, or its new login is used",
    ),
    (
        "waiting",
        "another holder has the name; again once a minute, with who has it then",
    ),
    (
        "store_unreachable",
        "the run waits, and its store cannot be reached",
    ),
    ("store_back", "the store is back"),
    ("acquired", "the lease was granted"),
    (
        "metrics",
        "the address at which metrics are served, or why they are not",
    ),
    ("metrics_file", "the metrics file was not written"),
    ("status_file", "the job runs without a status file"),
    ("started", "the command was started"),
    (
        "denied",
        "processes of the job that the tool may not signal, and so cannot end in time",
    ),
    (
        "at_risk",
        "renewals fail, and the job is ended unless one succeeds",
    ),
    ("renewed", "a renewal succeeded after that"),
    ("lost", "the lease was lost"),
    ("stopping", "the job is being ended"),
    ("suspended", "the job is stopped, and holds the name"),
    ("ended", "the command ended"),
    ("stuck", "processes of the job were killed and still exist"),
    (
        "killed",
        "the tool kills the job, because the guardian did not",
    ),
    (
        "left",
        "processes outside the session of the job run on without the lease",
    ),
    (
        "left_alive",
        "processes of the job could not be ended, and run on without the lease",
    ),
    ("released", "the name was released"),
    ("release_unanswered", "the store did not answer the release"),
    (
        "not_kept",
        "the name is not known to be kept for `--hold-at-least`",
    ),
    ("again", "the command is run again, with `--again`"),
    ("failed", "why the run failed"),
    (
        "dropped",
        "the number of messages that were not printed, because nothing read them in time",
    ),
];

/// Files of messages that no run prints.
const OF_OTHER_COMMANDS: [&str; 6] = [
    "status.rs",
    "evict.rs",
    "init.rs",
    "export/mod.rs",
    "export/scan.rs",
    "hold/input.rs",
];

/// Returns the section of one output.
fn section<T: JsonSchema>(title: &str) -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    let schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    let schema = schema.as_value();
    format!("## {title}\n\n{}\n\n{}", described(schema), tables(schema))
}

/// Returns the table of an object's fields, and those of the objects in its lists.
fn tables(object: &Value) -> String {
    let none = Map::new();
    let fields = object["properties"].as_object().unwrap_or(&none);
    let required = object["required"].as_array().into_iter().flatten();
    let required: Vec<_> = required.filter_map(Value::as_str).collect();
    let absent = fields.keys().map(String::as_str);
    let absent = absent.filter(|name| !required.contains(name));
    let mut table = "| field | type | what it is |\n|---|---|---|\n".to_owned();
    let mut below = String::new();
    // In the order of the type; those that may be absent come last.
    for name in required.iter().copied().chain(absent) {
        let field = &fields[name];
        let (inner, is_nullable) = without_null(field);
        // An absent field is left out, and not null.
        let may_be = match (is_nullable, required.contains(&name)) {
            (_, false) => " or absent",
            (true, true) => " or null",
            (false, true) => "",
        };
        let kind = kind(name, inner);
        let what = [described(field), words(inner)].join(" ");
        let what = what.trim();
        writeln!(table, "| `{name}` | {kind}{may_be} | {what} |").expect("text");
        if let Some(items) = inner.get("items").filter(|items| items["type"] == "object") {
            below += &format!("Each of `{name}`:\n\n{}", tables(items));
        }
    }
    table + "\n" + &below
}

/// Returns the schema of a value that is there, and whether it may be null instead.
fn without_null(schema: &Value) -> (&Value, bool) {
    let is_null = |one: &Value| one["type"] == "null";
    if let Some(choices) = schema["anyOf"].as_array() {
        let there = choices.iter().find(|one| !is_null(one)).expect("a value");
        return (there, choices.iter().any(is_null));
    }
    let is_nullable = schema["type"].as_array();
    (
        schema,
        is_nullable.is_some_and(|types| types.contains(&"null".into())),
    )
}

/// Returns the type in a word, which for a duration is its unit.
fn kind(name: &str, schema: &Value) -> &'static str {
    let one = match &schema["type"] {
        Value::Array(types) => types.iter().find(|one| *one != "null").unwrap_or(&types[0]),
        one => one,
    };
    match one.as_str() {
        Some("integer") if name.ends_with("_ms") => "ms",
        Some("integer") => "number",
        Some("array") => "list",
        _ if schema.get("oneOf").is_some() => "word",
        Some("string") => "text",
        other => panic!("{name} has a type without a word: {other:?}"),
    }
}

/// Returns the words of an enum, each with its meaning.
fn words(schema: &Value) -> String {
    let words = schema["oneOf"].as_array().into_iter().flatten();
    let words = words.map(|one| {
        let word = one["const"].as_str().expect("a word");
        format!("`{word}`: {}", described(one))
    });
    words.collect::<Vec<_>>().join("; ")
}

/// Returns the doc comment in one line.
fn described(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn made() -> String {
    let mut page = [
        section::<crate::status::Leases>("`status --json`"),
        section::<crate::status::Servers>("`status --members --json`"),
        section::<crate::doctor::Diagnosis>("`doctor --json`"),
        section::<crate::run::Report>("`run --report FILE`"),
        section::<crate::status_file::Status>("The status file"),
        section::<crate::export::JobStatus>("`/status` of `run --metrics`"),
        section::<crate::export::Scanned>("`/status` of `export`"),
        section::<crate::hold::Event>("`hold`"),
        section::<crate::say::Event<'_>>("`run --json`"),
    ]
    .concat();
    page.push_str("| event | what happened |\n|---|---|\n");
    for (event, what) in EVENTS {
        writeln!(page, "| `{event}` | {what} |").expect("text");
    }
    page
}

/// The page is written anew with `LEASEHOLD_WRITE_PAGES=1`.
#[test]
fn the_page_of_fields_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fields.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("a begin");
    let (_, after) = rest.split_once(END).expect("an end");
    let expected = format!("{before}{BEGIN}{}{END}{after}", made());
    if std::env::var_os("LEASEHOLD_WRITE_PAGES").is_some() {
        std::fs::write(&path, &expected).expect("written");
    }
    assert!(
        page == expected,
        "write src/bin/leasehold/fields.md anew: LEASEHOLD_WRITE_PAGES=1 cargo test --all-features -p leasehold-cli --bin leasehold fields"
    );
}

#[test]
fn the_page_has_each_event_that_a_run_prints() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut printed = BTreeSet::new();
    for source in sources(folder) {
        let is_of_other = OF_OTHER_COMMANDS
            .iter()
            .any(|other| source.ends_with(other));
        let text = std::fs::read_to_string(&source).expect("a source");
        let calls = [
            "note(",
            "fault(",
            "detail(",
            "killed(",
            "line(self.loudness,",
        ];
        let events = calls.iter().flat_map(|call| text.split(call).skip(1));
        let events =
            events.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
        printed.extend(events.filter(|_| !is_of_other).map(str::to_owned));
    }
    let listed: BTreeSet<_> = EVENTS
        .iter()
        .map(|(event, _)| (*event).to_owned())
        .collect();
    assert_eq!(printed, listed);
}

/// Returns the sources below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let paths = paths.flat_map(|path| match path.is_dir() {
        true => sources(&path),
        false => vec![path],
    });
    paths
        .filter(|path| {
            path.extension().is_some_and(|it| it == "rs") && !path.ends_with("fields.rs")
        })
        .collect()
}

#[test]
fn every_field_is_described_and_says_when_it_is_null_or_absent() {
    let page = made();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let silent = rows.filter(|row| {
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        let [_, kind, what] = cells[..] else {
            // A row of the table of events.
            return cells.len() != 2;
        };
        let may_be = kind.split_once(" or ").map_or("", |(_, may_be)| may_be);
        what.is_empty() || !what.contains(may_be)
    });
    let silent: Vec<_> = silent.collect();
    assert!(silent.is_empty(), "{silent:#?}");
}
