//! The meanings of the error codes of Redis and Valkey servers, for the store and the fence.
//!
//! The two differ only in what a meaning becomes for their callers, because the store owns its connection and the
//! fence uses the caller's.

/// The meaning of an error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The server refuses the command now, and may accept it later without a change to the set-up.
    Passing,
    /// This server is a replica and takes no writes. The command was not carried out.
    Replica,
    /// The key belongs to another node of a cluster.
    Elsewhere,
    /// Authentication failed, or the user lacks a permission.
    Denied,
    /// An operator has to change something at the server.
    Unusable,
}

use Meaning::{Denied, Elsewhere, Passing, Replica, Unusable};

const TABLE: &[(&str, Meaning)] = &[
    ("READONLY", Replica),
    // A replica that has lost its master and is configured to refuse reads as well.
    ("MASTERDOWN", Replica),
    ("LOADING", Passing),
    ("CLUSTERDOWN", Passing),
    ("BUSY", Passing),
    ("UNKILLABLE", Passing),
    ("TRYAGAIN", Passing),
    // Fewer replicas are connected than `min-replicas-to-write` requires. They may come back.
    ("NOREPLICAS", Passing),
    ("NOSCRIPT", Passing),
    ("MOVED", Elsewhere),
    ("ASK", Elsewhere),
    ("WRONGPASS", Denied),
    ("NOAUTH", Denied),
    ("NOPERM", Denied),
    // Out of memory, or unable to save to its disk: an operator makes room, and the clients that wait go on.
    ("OOM", Passing),
    ("MISCONF", Passing),
    ("CROSSSLOT", Unusable),
];

/// Errors that are known by their text, because their code is `ERR` or differs between servers.
const TEXTS: &[(&str, Meaning)] = &[
    ("max number of clients", Passing),
    ("ACL failure", Denied),
    ("executing the script can't", Denied),
    ("Authentication required", Denied),
    // A long request before the password was given is refused with this text.
    ("unauthenticated", Denied),
];

/// Returns the meaning of an error, or `None` if the table does not name it: then it depends on the command.
pub(crate) fn meaning(code: &str, text: &str) -> Option<Meaning> {
    let known = |word: &str| TABLE.iter().find(|(code, _)| *code == word);
    let mut found = known(code);
    if code == "ERR" {
        // Redis 6.2 puts the code of an error within a script into the middle of the text.
        found = text.split([' ', ':', '-']).find_map(known);
    }
    let found = found.or_else(|| TEXTS.iter().find(|(words, _)| text.contains(words)));
    found.map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_speaks_for_itself() {
        assert_eq!(meaning("READONLY", ""), Some(Replica));
        assert_eq!(
            meaning("MASTERDOWN", "Link with MASTER is down"),
            Some(Replica)
        );
        assert_eq!(meaning("NOREPLICAS", ""), Some(Passing));
        assert_eq!(meaning("NOPERM", "BUSY"), Some(Denied));
        assert_eq!(meaning("WRONGTYPE", "NOAUTH"), None);
        assert_eq!(meaning("ERR", "syntax error"), None);
    }

    #[test]
    fn a_code_within_the_text_of_an_old_server_counts() {
        let script = "Error running script (call to f_0): @user_script:1: ";
        for (text, expected) in [
            ("-OOM command not allowed", Some(Passing)),
            (
                "-READONLY You can't write against a read only replica.",
                Some(Replica),
            ),
            ("-LOADING Redis is loading", Some(Passing)),
            ("attempt to call a nil value", None),
        ] {
            assert_eq!(
                meaning("ERR", &format!("{script}{text}")),
                expected,
                "{text}"
            );
        }
        let text = "Error running script: The user executing the script can't run this command";
        assert_eq!(meaning("ERR", text), Some(Denied));
        assert_eq!(
            meaning("ERR", "max number of clients reached"),
            Some(Passing)
        );
    }
}
