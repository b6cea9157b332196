//! The configuration file: options that would otherwise be repeated on every command line.
//!
//! Its keys are long options. Values are taken from the option, else the environment, else the file, else the default.
//! The user's file is read before the machine's, key by key: a user who sets a ttl keeps the machine's store. With
//! `--config` only that file is read. An unknown key is refused, because with a misspelt `store` each machine would use
//! a store of its own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Arg;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::Arguments;
use crate::choice::{Choice, StoreOptions, warn_if_others_read};
use crate::exit::{Exit, Failure};
use crate::file;
use crate::span::Span;

/// The configuration file of the machine.
const SHARED: &str = "/etc/leasehold.toml";

/// The configuration files that exist, the most important first.
#[derive(Debug, Default)]
pub struct Files(Vec<File>);

#[derive(Debug)]
struct File {
    path: PathBuf,
    settings: Settings,
}

/// The keys of a file. Those about the store are not defaults of options, because environment variables take
/// precedence.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    #[serde(skip_serializing)]
    store: Option<String>,
    #[serde(skip_serializing)]
    store_file: Option<PathBuf>,
    #[serde(skip_serializing)]
    require_store: Option<bool>,
    connect_timeout: Option<Span>,
    wait: Option<Span>,
    fair: Option<bool>,
    on_outage: Option<String>,
    conflict_exit_code: Option<u8>,
    ttl: Option<Span>,
    margin: Option<Span>,
    kill_after: Option<Span>,
    max_runtime: Option<Span>,
    max_hold: Option<Span>,
    progress_within: Option<Span>,
    hold_at_least: Option<Span>,
    label: Option<String>,
    group: Option<String>,
}

impl Files {
    /// Reads the files, for a command that uses a store.
    pub fn read(arguments: &mut Arguments) -> Result<Self, Failure> {
        let Some(store) = arguments.command.store_mut() else {
            return Ok(Self::default());
        };
        check_variables()?;
        if let Some(path) = store.config.take() {
            return Ok(Self(vec![File::read(&path)?]));
        }
        let paths = own().into_iter().chain([PathBuf::from(SHARED)]);
        let files = paths.filter(|path| is_there(path));
        let files = files.map(|path| File::read(&path));
        files.collect::<Result<_, _>>().map(Self)
    }

    /// Reads the command line again, with the values of the files instead of the defaults.
    pub fn fill(&self, mut arguments: Arguments) -> Result<Arguments, Failure> {
        if !self.0.is_empty() {
            arguments = Arguments::with_defaults(|option| self.default_of(option))
                .map_err(|error| Failure::usage(error.to_string().trim_end()))?;
        }
        if let Some(store) = arguments.command.store_mut() {
            store.take_variables()?;
            self.name(store);
        }
        Ok(arguments)
    }

    /// Names the store as the files do, unless it is already named.
    fn name(&self, store: &mut StoreOptions) {
        for File { settings, .. } in &self.0 {
            store.name(settings.store.clone(), settings.store_file.clone());
            // A user's file cannot undo what the machine's file requires.
            store.is_required |= settings.require_store == Some(true);
        }
    }

    /// Adds the files to a usage error, because a bad value may come from one of them.
    pub fn named_in(&self, failure: Failure) -> Failure {
        match failure.exit {
            Exit::Usage => self.0.iter().fold(failure, |failure, file| {
                failure.about(format_args!("config={}", file.path.display()))
            }),
            _ => failure,
        }
    }

    fn default_of(&self, option: &Arg) -> Option<String> {
        let key = option.get_long()?;
        self.0.iter().find_map(|file| file.settings.value(key))
    }
}

impl File {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = file::read(path).map_err(|error| {
            // As after `su` without a dash.
            let uid = rustix::process::geteuid().as_raw();
            let home = std::env::var_os("HOME").map(PathBuf::from);
            let hint = match home.is_some_and(|home| is_foreign(&home, uid)) {
                true => " (HOME is the folder of another user)",
                false => "",
            };
            Failure::usage(format!(
                "configuration refused: {error}{hint}; expected a file in TOML config={}",
                path.display()
            ))
        })?;
        let settings =
            parse(&text).map_err(|error| error.about(format_args!("config={}", path.display())))?;
        if settings.store.as_deref().is_some_and(Choice::is_secret) {
            warn_if_others_read(path);
        }
        let path = path.into();
        Ok(Self { path, settings })
    }
}

/// Returns whether the file exists, or may exist where this user has no permission to check.
fn is_there(path: &Path) -> bool {
    let looked = std::fs::metadata(path).map_err(|error| error.kind());
    !matches!(looked, Err(ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// Returns whether the folder belongs to another user.
fn is_foreign(home: &Path, uid: u32) -> bool {
    std::fs::metadata(home).is_ok_and(|home| home.uid() != uid)
}

/// Parses a file's text. The long form of the parser's own error would repeat the line, and with it a password.
fn parse(text: &str) -> Result<Settings, Failure> {
    let settings: Settings = toml::from_str(text).map_err(|error| {
        let message = error.message();
        let message = message.replace("expected a string", "expected a text such as \"30s\"");
        let failure = Failure::usage(format!("configuration refused: {message}"));
        match error.span() {
            Some(span) => at(failure, text, span.start),
            None => failure,
        }
    })?;
    if settings.store.is_some() && settings.store_file.is_some() {
        return Err(Failure::usage(
            "configuration refused: both store and store-file; expected one of them",
        ));
    }
    Ok(settings)
}

/// Adds the line number of an error, and the key of that line if it has one.
fn at(failure: Failure, text: &str, offset: usize) -> Failure {
    let before = text.get(..offset).unwrap_or(text);
    let number = before.matches('\n').count();
    let line = text.lines().nth(number).unwrap_or_default();
    let failure = failure.about(format_args!("line={}", number + 1));
    let is_bare = |key: &&str| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    match line
        .split_once('=')
        .map(|(key, _)| key.trim())
        .filter(is_bare)
    {
        Some(key) => failure.about(format_args!("key={key}")),
        None => failure,
    }
}

/// Returns the user's own file. By the XDG rules a relative path counts as unset.
fn own() -> Option<PathBuf> {
    let absolute = |variable| {
        let path = PathBuf::from(std::env::var_os(variable)?);
        path.is_absolute().then_some(path)
    };
    let folder =
        absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    folder.map(|folder| folder.join("leasehold/config.toml"))
}

impl Settings {
    /// Returns the value for this long option, as it would be typed.
    fn value(&self, option: &str) -> Option<String> {
        match serde_json::to_value(self).ok()?.get(option)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

/// Variables that are no option's own: those of the store, of TLS and of the log.
const VARIABLES: [&str; 8] = [
    "LEASEHOLD_STORE",
    "LEASEHOLD_STORE_FILE",
    "LEASEHOLD_TLS_CA",
    "LEASEHOLD_TLS_CERT",
    "LEASEHOLD_TLS_KEY",
    "LEASEHOLD_TLS_SERVER_NAME",
    "LEASEHOLD_LOG",
    "LEASEHOLD_LOG_FORMAT",
];

/// Variables that a job finds, which are no settings.
const OF_JOBS: [&str; 6] = [
    "LEASEHOLD_NAME",
    "LEASEHOLD_TOKEN",
    "LEASEHOLD_HOLDER",
    "LEASEHOLD_PERMIT",
    "LEASEHOLD_TTL_MS",
    "LEASEHOLD_STATUS_FILE",
];

/// Refuses a variable that is set and empty, for example because a secret is missing: it would select the default, such
/// as a file that other machines do not see.
pub fn check_values() -> Result<(), Failure> {
    // The arguments are described only if there is a variable to check: this runs at each start.
    let is_ours = |name: &OsStr| name.as_encoded_bytes().starts_with(b"LEASEHOLD_");
    if !std::env::vars_os().any(|(name, value)| value.is_empty() && is_ours(&name)) {
        return Ok(());
    }
    let is_empty = |name: &&str| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = Arguments::definition();
    match settings(&command).find(is_empty) {
        Some(name) => Err(Failure::usage(format!(
            "variable {name} refused: it is set and empty; unset it for the default"
        ))),
        None => Ok(()),
    }
}

/// Refuses a variable that is no setting, for the same reason as an unknown key.
fn check_variables() -> Result<(), Failure> {
    let command = Arguments::definition();
    let known: BTreeSet<_> = settings(&command).chain(OF_JOBS).collect();
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("LEASEHOLD_")) else {
            continue;
        };
        if !known.contains(name) && !is_of_kubernetes(name) {
            let known: Vec<_> = known.into_iter().collect();
            return Err(Failure::usage(format!(
                "variable {name} refused: it is no setting; expected one of {}",
                known.join(", ")
            )));
        }
    }
    Ok(())
}

/// Returns the variables that are settings.
fn settings(command: &clap::Command) -> impl Iterator<Item = &str> {
    let options = command
        .get_subcommands()
        .flat_map(clap::Command::get_arguments);
    let options = options.filter_map(|option| option.get_env()?.to_str());
    options.chain(VARIABLES)
}

/// Returns whether Kubernetes sets such a variable in every pod for a Service, whose name may begin with `leasehold`.
fn is_of_kubernetes(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn refused(text: &str) -> String {
        parse(text).expect_err("refused").to_string()
    }

    #[test]
    fn a_bad_key_or_value_is_named_with_its_line_and_what_was_expected() {
        let text = refused("ttl = \"30s\"\nmax-hold = \"soon\"\n");
        for word in ["\"soon\"", "such as 500ms", "line=2", "key=max-hold"] {
            assert!(text.contains(word), "{word} {text}");
        }
        let text = refused("tll = \"30s\"");
        for word in ["`tll`", "`ttl`", "line=1", "key=tll"] {
            assert!(text.contains(word), "{word} {text}");
        }
        let text = refused("conflict-exit-code = 256");
        assert!(text.contains("256") && text.contains("u8"), "{text}");
        let text = refused("ttl = 30");
        assert!(text.contains("30") && text.contains("\"30s\""), "{text}");
        assert!(refused("store = \"a\"\nstore-file = \"b\"").contains("both"));
    }

    #[test]
    fn a_password_is_not_repeated() {
        for line in [
            "store = redis://user:hush@host",
            "store = \"redis://user:hush@host",
            "store = [\"redis://user:hush@host\"]",
            "redis://user:hush@host/?a=b",
        ] {
            let text = refused(line);
            assert!(!text.contains("hush"), "{line} {text}");
        }
    }

    #[test]
    fn the_first_file_counts_before_the_second_key_by_key() {
        let file = |text| File {
            path: "config.toml".into(),
            settings: parse(text).expect("good"),
        };
        let files = Files(vec![
            file("ttl = \"1min\""),
            file("ttl = \"2min\"\nlabel = \"b\"\nstore = \"sqlite:b\""),
        ]);
        let value = |key: &'static str| files.default_of(&Arg::new(key).long(key));
        assert_eq!(value("ttl").as_deref(), Some("1min"));
        assert_eq!(value("label").as_deref(), Some("b"));
        assert_eq!(value("margin"), None);
    }

    #[test]
    fn a_home_of_another_user_is_told_from_the_own() {
        let home = std::env::temp_dir();
        let owner = std::fs::metadata(&home).expect("there").uid();
        assert!(!is_foreign(&home, owner));
        assert!(is_foreign(&home, owner + 1));
        assert!(!is_foreign(Path::new("/no/such/folder"), owner));
    }

    #[test]
    fn any_file_can_require_that_a_store_is_named() {
        let choice = |texts: [&str; 2]| {
            let files = texts.map(|text| File {
                path: "config.toml".into(),
                settings: parse(text).expect("good"),
            });
            let command = StoreOptions::augment_args(clap::Command::new("x"));
            let matches = command.get_matches_from(["x"]);
            let mut store = StoreOptions::from_arg_matches(&matches).expect("good");
            Files(files.into()).name(&mut store);
            Choice::of(&store).map_err(|failure| failure.message)
        };
        let (user, machine) = ("require-store = false", "require-store = true");
        for texts in [[user, machine], [machine, user], ["", machine]] {
            let refused = choice(texts).expect_err("refused");
            assert!(refused.contains("require-store"), "{refused}");
        }
        assert_eq!(choice([user, ""]), Ok(Choice::Default));
        let named = ["store = \"sqlite:a\"", machine];
        assert_eq!(choice(named), Ok(Choice::Url("sqlite:a".into(), None)));
    }

    #[test]
    fn what_kubernetes_sets_for_a_service_is_no_misspelt_setting() {
        for name in [
            "LEASEHOLD_SERVICE_HOST",
            "LEASEHOLD_STORE_SERVICE_PORT_REDIS",
            "LEASEHOLD_PORT",
            "LEASEHOLD_PORT_6379_TCP_ADDR",
        ] {
            assert!(is_of_kubernetes(name), "{name}");
        }
        assert!(!is_of_kubernetes("LEASEHOLD_STOR"));
    }

    #[test]
    fn every_key_is_an_option_of_run() {
        let keys = refused("none = 1");
        let keys: Vec<_> = keys.split('`').skip(3).step_by(2).collect();
        assert!(keys.len() > 10, "{keys:?}");
        let command = Arguments::definition();
        let run = command.find_subcommand("run").expect("there");
        // The one key that no option can undo.
        for key in keys.into_iter().filter(|key| *key != "require-store") {
            let options = || run.get_arguments().filter_map(Arg::get_long);
            assert!(options().any(|option| option == key), "{key}");
        }
    }
}
