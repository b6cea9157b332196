//! The kinds of stores: the word, the feature, the schemes and the form of the URL of each, in one table from which
//! every list of them is made. A store's text is read here, for options, variables, files and the library alike.

use crate::error::Error;

/// One kind of store.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreKind {
    /// The word for it, which is the name of its feature and the label `store` of its metrics.
    pub word: &'static str,
    /// The forms of its URLs, each with what it names.
    pub forms: &'static [(&'static str, &'static str)],
    /// Whether the store is compiled in.
    pub is_compiled: bool,
    pub(crate) schemes: &'static [&'static str],
    pub(crate) home: StoreHome,
    /// Whether something has to be made before the first lease, at least with some of its settings.
    pub(crate) has_set_up: bool,
}

/// Where the leases of a kind of store are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreHome {
    /// In the process, so that no other can reach them.
    InProcess,
    /// In a file, whose path is all that its URL has.
    InFile,
    OnServers,
}

/// All kinds, in the order of messages.
pub(crate) static KINDS: [StoreKind; 10] = [
    StoreKind {
        word: "redis",
        schemes: &[
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
            "valkey",
            "valkeys",
            "valkey+unix",
            "valkey+sentinel",
            "valkeys+sentinel",
            "valkey+cluster",
            "valkeys+cluster",
        ],
        forms: &[
            ("redis://HOST", "one server of Redis or Valkey"),
            ("rediss://HOST", "the same with TLS"),
            ("redis+unix:PATH", "the same by its socket"),
            (
                "redis+sentinel://HOST,HOST/NAME",
                "the primary that Sentinels name",
            ),
            ("redis+cluster://HOST,HOST", "a cluster"),
        ],
        is_compiled: cfg!(feature = "redis"),
        home: StoreHome::OnServers,
        has_set_up: true,
    },
    StoreKind {
        word: "quorum",
        schemes: &[
            "redis+quorum",
            "rediss+quorum",
            "valkey+quorum",
            "valkeys+quorum",
        ],
        forms: &[(
            "redis+quorum://HOST,HOST,HOST",
            "servers that know nothing of each other",
        )],
        is_compiled: cfg!(feature = "quorum"),
        home: StoreHome::OnServers,
        has_set_up: true,
    },
    StoreKind {
        word: "postgres",
        schemes: &["postgres", "postgresql"],
        forms: &[(
            "postgres://HOST/DATABASE",
            "a database, set up once by `leasehold init`",
        )],
        is_compiled: cfg!(feature = "postgres"),
        home: StoreHome::OnServers,
        has_set_up: true,
    },
    StoreKind {
        word: "mysql",
        schemes: &["mysql", "mariadb"],
        forms: &[(
            "mysql://HOST/DATABASE",
            "a database of MySQL or MariaDB, set up once by `leasehold init`",
        )],
        is_compiled: cfg!(feature = "mysql"),
        home: StoreHome::OnServers,
        has_set_up: true,
    },
    StoreKind {
        word: "zookeeper",
        schemes: &["zookeeper"],
        forms: &[("zookeeper://HOST,HOST/CHROOT", "an ensemble")],
        is_compiled: cfg!(feature = "zookeeper"),
        home: StoreHome::OnServers,
        has_set_up: false,
    },
    StoreKind {
        word: "etcd",
        schemes: &["etcd", "etcds"],
        forms: &[
            ("etcd://HOST,HOST", "a cluster of etcd"),
            ("etcds://HOST,HOST", "the same with TLS"),
        ],
        is_compiled: cfg!(feature = "etcd"),
        home: StoreHome::OnServers,
        has_set_up: false,
    },
    StoreKind {
        word: "kubernetes",
        schemes: &["kubernetes"],
        forms: &[("kubernetes:NAMESPACE", "the Lease objects of a namespace")],
        is_compiled: cfg!(feature = "kubernetes"),
        home: StoreHome::OnServers,
        has_set_up: false,
    },
    StoreKind {
        word: "bucket",
        schemes: &["s3"],
        forms: &[(
            "s3://BUCKET/PREFIX",
            "a bucket of S3 or of a server like it",
        )],
        is_compiled: cfg!(feature = "bucket"),
        home: StoreHome::OnServers,
        has_set_up: true,
    },
    StoreKind {
        word: "sqlite",
        schemes: &["sqlite"],
        forms: &[(
            "sqlite:PATH",
            "a file of this machine (sqlite:///PATH is an absolute path too)",
        )],
        is_compiled: cfg!(feature = "sqlite"),
        home: StoreHome::InFile,
        has_set_up: false,
    },
    StoreKind {
        word: "memory",
        schemes: &["memory"],
        forms: &[("memory:", "this process alone")],
        is_compiled: true,
        home: StoreHome::InProcess,
        has_set_up: false,
    },
];

/// Forms of server addresses in other programs, or a part that they all have, and the form here. A form that is sought
/// in the middle of a text is in lower case.
const FOREIGN: [(Sign, &str, &str); 12] = [
    (Sign::Begins, "jdbc:postgresql", POSTGRES),
    (Sign::Begins, "postgresql+", POSTGRES),
    (Sign::Begins, "postgres+", POSTGRES),
    (Sign::Begins, "jdbc:mysql", MYSQL),
    (Sign::Begins, "jdbc:mariadb", MYSQL),
    (Sign::Begins, "mysql+", MYSQL),
    (Sign::Begins, "host=", POSTGRES),
    (Sign::Begins, "server=", POSTGRES),
    (Sign::Begins, "dbname=", POSTGRES),
    (Sign::Has, ",password=", REDIS),
    (Sign::Has, ",ssl=", REDIS),
    (Sign::Begins, ":memory:", "memory:"),
];
const POSTGRES: &str = "postgres://USER:PASSWORD@HOST/DATABASE";
const MYSQL: &str = "mysql://USER:PASSWORD@HOST/DATABASE";
const REDIS: &str =
    "redis://:PASSWORD@HOST:PORT, or rediss://:PASSWORD@HOST:PORT for a server with TLS";

enum Sign {
    Begins,
    Has,
}

impl StoreKind {
    /// Returns the kind of the store at this URL, and the URL without white space around it.
    ///
    /// # Errors
    /// `Invalid`: no store has this scheme, or a control character is in it. The message shows nothing of the text.
    pub(crate) fn of(text: &str) -> Result<(&'static Self, &str), Error> {
        let url = text.trim();
        if url.chars().any(char::is_control) {
            return Err(refused(
                "it has a control character, such as the end of a line",
            ));
        }
        let scheme = scheme(url);
        let kind = KINDS.iter().find(|kind| kind.schemes.contains(&scheme));
        match (kind, advice(url)) {
            (Some(kind), None) => Ok((kind, url)),
            (_, Some(form)) => Err(Error::invalid(format!(
                "store URL refused: it has the form of another program; here it is written {form}, with special characters \
                 as %XX"
            ))),
            (None, None) => {
                let shown = unknown(url).map(|scheme| format!(" {scheme:?}"));
                let near = nearest(scheme, schemes());
                let near = near.map(|near| format!(", perhaps {near} was meant"));
                let [shown, near] = [shown, near].map(Option::unwrap_or_default);
                Err(refused(&format!("unknown scheme{shown}{near}")))
            }
        }
    }

    /// Makes the error for the URL of a store that is not compiled in.
    pub(crate) fn absent(&self) -> Error {
        let word = self.word;
        Error::invalid(format!(
            "store URL refused: this store is not compiled in; expected the feature {word:?}: cargo add leasehold --features \
             {word}, or for the tool cargo install leasehold-cli --features {word}"
        ))
    }
}

/// Returns the path of the file in the URL of an embedded store.
///
/// # Errors
/// `Invalid` for what would silently name another file than is meant.
pub(crate) fn path_of(url: &str) -> Result<&str, Error> {
    let (_, rest) = url.split_once(':').unwrap_or_default();
    let path = rest.strip_prefix("//").unwrap_or(rest);
    let why = match path {
        "" => "it names no file",
        ":memory:" => "that is another program's form; a store in memory is memory:",
        _ if path.contains('?') => "a file has no parameters, so there can be no '?' in its path",
        _ => return Ok(path),
    };
    Err(Error::invalid(format!(
        "store URL refused: {why}; expected sqlite:PATH"
    )))
}

/// Returns a store's text for messages, as long as the store is not open and has no
/// [`location`](crate::store::Store::location): its scheme, and the path of a file. A text that is no URL, or one that
/// is refused, can have a password anywhere.
pub fn shown(text: &str) -> String {
    let shown = match StoreKind::of(text) {
        Ok((kind, url)) if kind.home == StoreHome::InFile && path_of(url).is_ok() => url.to_owned(),
        Ok((_, url)) => format!("{}:***", scheme(url)),
        Err(_) => match unknown(text.trim()) {
            Some(scheme) => format!("{scheme}:***"),
            None => "***".into(),
        },
    };
    format!("{shown:?}")
}

/// Returns the forms of the URLs of these kinds, as a list for messages.
pub(crate) fn forms(is_meant: impl Fn(&StoreKind) -> bool) -> String {
    let kinds = KINDS.iter().filter(|kind| is_meant(kind));
    let forms = kinds.flat_map(|kind| kind.forms);
    let forms: Vec<_> = forms.map(|(form, _)| short(form)).collect();
    match forms.join(", ").rsplit_once(", ") {
        Some((most, last)) => format!("{most} or {last}"),
        None => forms.concat(),
    }
}

/// Returns as much of a form as a message needs.
fn short(form: &str) -> &str {
    form.find("//").map_or(form, |slashes| &form[..slashes + 2])
}

/// Returns all kinds of stores, also those that are not compiled in.
pub fn kinds() -> &'static [StoreKind] {
    &KINDS
}

/// Returns the word of this list that is nearest to a text, if they differ in at most two letters.
pub(crate) fn nearest(
    text: &str,
    known: impl IntoIterator<Item = &'static str>,
) -> Option<&'static str> {
    let plain = |word: &str| word.to_ascii_lowercase().replace(['-', '_'], "");
    let distance = |word: &str| strsim::osa_distance(&plain(text), &plain(word));
    let (distance, word) = known.into_iter().map(|word| (distance(word), word)).min()?;
    (distance <= 2 && 2 * distance < word.len()).then_some(word)
}

pub(crate) fn schemes() -> impl Iterator<Item = &'static str> {
    KINDS.iter().flat_map(|kind| kind.schemes).copied()
}

/// Returns the scheme of a text that has one. Where it was forgotten, the text may begin with a password.
fn unknown(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once("://")?;
    let is_of_schemes = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    scheme.chars().all(is_of_schemes).then_some(scheme)
}

fn scheme(url: &str) -> &str {
    url.split(':').next().unwrap_or_default()
}

/// Returns the form here of a text in another program's form.
fn advice(url: &str) -> Option<&'static str> {
    let lower = url.to_ascii_lowercase().replace(' ', "").replace(';', ",");
    let mut known = FOREIGN.iter();
    let found = known.find(|(sign, form, _)| match sign {
        Sign::Begins => lower.starts_with(form),
        // A password in front of the hosts may look like anything.
        Sign::Has => scheme(url) != "sqlite" && !lower.contains('@') && lower.contains(form),
    });
    found.map(|(_, _, written)| *written)
}

fn refused(why: &str) -> Error {
    let forms = forms(|_| true);
    Error::invalid(format!("store URL refused: {why}; expected {forms}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn told(text: &str) -> String {
        let error = StoreKind::of(text).map(|_| ()).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    }

    #[test]
    fn each_scheme_has_one_kind_whose_form_begins_with_it() {
        for kind in &KINDS {
            for scheme in kind.schemes {
                let (found, _) = StoreKind::of(&format!("{scheme}:x")).expect("known");
                assert_eq!(found, kind, "{scheme}");
            }
            for (form, _) in kind.forms {
                let (found, _) = StoreKind::of(form).expect("known");
                assert_eq!(found, kind, "{form}");
            }
        }
    }

    #[test]
    fn a_store_that_is_not_compiled_in_names_its_feature() {
        for (url, feature) in [
            ("sqlite:/a", "sqlite"),
            ("rediss+cluster://a", "redis"),
            ("redis+quorum://a,b,c", "quorum"),
            ("postgresql://a/b", "postgres"),
            ("zookeeper://a", "zookeeper"),
            ("etcds://a", "etcd"),
            ("mariadb://a/b", "mysql"),
            ("kubernetes:a", "kubernetes"),
        ] {
            let (kind, _) = StoreKind::of(url).expect("known");
            let error = kind.absent();
            // The tool exits with 64.
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let feature = format!("expected the feature {feature:?}");
            assert!(error.to_string().contains(&feature), "{error}");
            let install = format!("cargo install leasehold-cli --features {}", kind.word);
            assert!(error.to_string().contains(&install), "{error}");
        }
    }

    #[test]
    fn white_space_around_a_url_is_no_part_of_it() {
        for text in [" sqlite:/a", "sqlite:/a\r", "sqlite:/a\r\n", "sqlite:/a \t"] {
            assert_eq!(StoreKind::of(text).expect("good").1, "sqlite:/a");
        }
        assert!(told("sqlite:/a\nb").contains("control character"));
    }

    #[test]
    fn a_file_that_another_was_meant_by_is_refused() {
        for url in ["sqlite:", "sqlite:///a?mode=rwc", "sqlite::memory:"] {
            assert!(path_of(url).is_err(), "{url}");
        }
        assert_eq!(path_of("sqlite:///a b;c=d").expect("good"), "/a b;c=d");
    }

    #[test]
    fn a_misspelt_scheme_gets_the_nearest_one() {
        for (text, near) in [
            ("redsi://a", "redis"),
            ("REDIS://a", "redis"),
            ("sqllite:a", "sqlite"),
            ("postgre://a", "postgres"),
            ("redis-cluster://a", "redis+cluster"),
        ] {
            let told = told(text);
            assert!(
                told.contains(&format!("perhaps {near} was meant")),
                "{told}"
            );
        }
        assert!(!told("mongodb://a").contains("perhaps"));
    }

    #[test]
    fn the_forms_of_other_programs_get_ours() {
        for (text, form) in [
            ("h:6379,password=s3cret,ssl=True", "rediss://:PASSWORD@"),
            ("redis://h:6379,password=s3cret", "redis://:PASSWORD@"),
            ("redis://h:6379; Password=s3cret", "redis://:PASSWORD@"),
            (
                "jdbc:postgresql://h/db?password=s3cret",
                "postgres://USER:PASSWORD@",
            ),
            ("host=h password=s3cret", "postgres://USER:PASSWORD@"),
            ("Host = h; Password=s3cret", "postgres://USER:PASSWORD@"),
            ("Server=h;Password=s3cret", "postgres://USER:PASSWORD@"),
            (
                "jdbc:mysql://h/db?password=s3cret",
                "mysql://USER:PASSWORD@",
            ),
            ("mysql+pymysql://me:s3cret@h/db", "mysql://USER:PASSWORD@"),
            (
                "postgresql+psycopg2://me:s3cret@h/db",
                "postgres://USER:PASSWORD@",
            ),
            (":memory:", "memory:"),
        ] {
            let told = told(text);
            assert!(told.contains(form), "{text}: {told}");
            assert!(!told.contains("s3cret"), "{told}");
        }
    }

    #[test]
    fn what_is_not_open_is_shown_by_its_scheme_alone() {
        for (text, expected) in [
            ("redis://user:se@cret@host/0", "\"redis:***\""),
            ("redis+unix:///a.sock?pass=x", "\"redis+unix:***\""),
            ("redis://h:6379,password=secret", "\"redis:***\""),
            ("sqlite:/a@b", "\"sqlite:/a@b\""),
            ("sqlite:/a?key=secret", "\"sqlite:***\""),
            ("user:secret@host", "\"***\""),
            ("host=db password=secret", "\"***\""),
            ("etcd://me:secret@db", "\"etcd:***\""),
            ("db.internal", "\"***\""),
            ("", "\"***\""),
        ] {
            assert_eq!(shown(text), expected);
        }
    }
}
