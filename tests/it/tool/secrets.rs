//! No part of a password is shown, however wrong the URL is that it stands in.
//!
//! The URLs are drawn from a grammar of mistakes: special characters that were not written as %XX, a scheme that is
//! misspelt or missing, addresses in the forms of other programs with their separators. Each has the secret in one
//! part where one can stand. Some are accepted, so what is shown of an open store is looked at too.

use leasehold::Client;
use leasehold::store::{self, TableSettings};

use super::{Ended, Sandbox};

/// In every password, and nowhere else.
const SECRET: &str = "s3cret";
/// The schemes of all stores on servers, with the rest of a URL that is in order.
const SCHEMES: [(&str, &str); 12] = [
    ("redis", "/0"),
    ("rediss", "/0"),
    ("valkey", ""),
    ("redis+sentinel", "/main"),
    ("rediss+sentinel", "/main/0"),
    ("valkey+sentinel", "/main?max_ttl=60s"),
    ("redis+cluster", ""),
    ("redis+quorum", "?max_ttl=60s"),
    ("postgres", "/jobs?schema=leasehold"),
    ("postgresql", "/jobs?sslmode=disable"),
    ("zookeeper", "/app?prefix=leasehold"),
    ("redis+unix", "/run/redis.sock"),
];
/// What stands in a password between a number, which could be a port, and the secret.
const ODD: [&str; 20] = [
    "", "/", "?", "#", "@", ":", ",", "&", "=", "%", "+", ";", " ", "[", "]", "\\", "//", "/@",
    "?@", "://",
];
/// What stands between the parts of other programs' connection strings.
const SEPARATORS: [&str; 10] = [",", ";", " ", "#", "=", "; ", ", ", "&", "|", "\t"];
/// What stands before a secret behind a separator.
const KEYS: [&str; 5] = ["password=", "Password=", "auth=", "key=", ""];
/// The parameters that take a password in some scheme, or in another program.
const PARAMETERS: [&str; 6] = [
    "pass",
    "password",
    "sentinel_password",
    "auth",
    "PGPASSWORD",
    "key_password",
];

/// A password that was not written with %XX.
fn password(random: &mut fastrand::Rng) -> String {
    let odd = random.choice(ODD).expect("not empty");
    match random.u8(..4) {
        0 => format!("42{odd}{SECRET}"),
        1 => format!("{SECRET}{odd}42"),
        2 => format!("{odd}{SECRET}"),
        _ => format!("a{odd}{SECRET}{}b", random.choice(ODD).expect("not empty")),
    }
}

/// A URL with the secret where a password stands, most of them malformed. The host refuses connections at once.
fn draw(random: &mut fastrand::Rng) -> String {
    let (scheme, rest) = *random.choice(&SCHEMES).expect("not empty");
    let hosts = match scheme {
        "redis+quorum" => "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
        "redis+unix" => "",
        _ => "127.0.0.1:1",
    };
    let password = password(random);
    match random.u8(..17) {
        // Behind the hosts, a part of the path or a parameter's value, as in other programs' connection strings.
        13..=15 => {
            let separator = random.choice(SEPARATORS).expect("not empty");
            let key = random.choice(KEYS).expect("not empty");
            let before = random.choice([hosts.to_owned(), format!("{hosts}{rest}")]);
            let before = before.expect("not empty");
            format!("{scheme}://{before}{separator}{key}{SECRET}{separator}ssl=True")
        }
        // Behind a colon, or as a parameter of a file.
        16 => {
            let form = random.choice([
                "redis://me:",
                "redis://h:6379:",
                "sqlite:x.db?key=",
                "sqlite:?",
            ]);
            format!("{}{SECRET}", form.expect("not empty"))
        }
        // In front of the hosts.
        0..=5 => {
            let user = random
                .choice(["me", "", "me:you", "a@b", "9"])
                .expect("not empty");
            format!("{scheme}://{user}:{password}@{hosts}{rest}")
        }
        6 => format!("{scheme}://{password}@{hosts}{rest}"),
        // As a parameter.
        7 | 8 => {
            let parameter = random.choice(PARAMETERS).expect("not empty");
            let mark = if rest.contains('?') { '&' } else { '?' };
            format!("{scheme}://{hosts}{rest}{mark}{parameter}={SECRET}")
        }
        // As the only thing in front of the hosts, with no scheme.
        12 => format!("{SECRET}@{hosts}{rest}"),
        // With a scheme that is misspelt, missing, or half there.
        9 => {
            let scheme = random.choice([
                "redsi://",
                "REDIS://",
                "",
                "redis:",
                "redis:/",
                "jdbc:postgresql://",
                "http://",
                " redis://",
                "\"redis://",
            ]);
            format!("{}me:{password}@{hosts}{rest}", scheme.expect("not empty"))
        }
        // As other programs write it.
        10 => {
            let form = random.choice([
                "host=db password=",
                "host=db;Password=",
                "password = ",
                "db,password=",
                "jdbc:postgresql://db/jobs?user=me&password=",
                "db|",
            ]);
            format!("{}{SECRET}", form.expect("not empty"))
        }
        _ => format!("{scheme}://me:{password}@{hosts}{rest}@{hosts}{rest}"),
    }
}

fn random() -> fastrand::Rng {
    let seed = std::env::var("LEASEHOLD_TEST_SEED").ok();
    let seed = seed
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    eprintln!("LEASEHOLD_TEST_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// All that the library says of a URL before it connects.
async fn said_of(url: &str) -> String {
    let opened = match store::open(url).await {
        Ok(store) => format!("{} {store:?}", store.location()),
        Err(error) => format!("{error:#} {error:?}"),
    };
    let sql = store::init_script(url, TableSettings::default());
    let sql = sql.err().map(|error| format!("{error:#} {error:?}"));
    let builder = Client::builder().store_url(url);
    let shown = format!("{builder:?}");
    let built = builder.build().await;
    format!("{opened} {sql:?} {shown} {built:?}")
}

#[tokio::test]
async fn the_library_shows_no_part_of_a_password_of_any_url() {
    let mut random = random();
    for _ in 0..3_000 {
        let url = draw(&mut random);
        let said = said_of(&url).await;
        assert!(!said.contains(SECRET), "{url}: {said}");
    }
}

#[test]
fn the_tool_shows_no_part_of_a_password_of_any_url() {
    let mut random = random();
    for turn in 0..48 {
        let url = draw(&mut random);
        let ended = ran_with(&url, turn);
        assert_ne!(ended.code, Some(0), "{url}: {ended:?}");
        assert!(!format!("{ended:?}").contains(SECRET), "{url}: {ended:?}");
    }
}

/// Runs the tool with this URL by an option, a variable, a file, or a configuration file.
fn ran_with(url: &str, turn: usize) -> Ended {
    let sandbox = Sandbox::new();
    let write = |file: &str, text: String| {
        let path = sandbox.path(file);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let options = match turn % 4 {
        0 => ["--store".into(), url.into()],
        1 => ["--store-file".into(), write("url", url.into())],
        2 => [
            "--config".into(),
            write("a.toml", format!("store = {url:?}")),
        ],
        // Without the quote at its end.
        _ => [
            "--config".into(),
            write("a.toml", format!("store = \"{url}")),
        ],
    };
    let (command, rest) = match turn % 3 {
        0 => ("status", &[][..]),
        1 => ("run", &["-n", "x", "--", "true"][..]),
        _ => ("doctor", &[][..]),
    };
    let mut arguments = vec![
        command,
        "--connect-timeout",
        "300ms",
        &options[0],
        &options[1],
    ];
    arguments.extend(rest);
    let mut tool = sandbox.tool(&arguments);
    tool.env_remove("LEASEHOLD_STORE").env("RUST_LOG", "trace");
    sandbox.start(tool).end()
}
