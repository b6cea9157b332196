//! Judges the place of an embedded store.

use crate::doctor::facts::{FileSystem, Place};
use crate::doctor::finding::{Finding, Verdict};

/// Free space below which an embedded store soon grants nothing new.
const LITTLE_ROOM: u64 = 64 << 20;

/// Free space below which it cannot grow at all.
const NO_ROOM: u64 = 1 << 20;

/// Judges the file of an embedded store.
pub fn place(place: &Place) -> Vec<Finding> {
    let mut findings = vec![file_system(place), rights(place), room(place)];
    if !place.has_boot_id {
        findings.push(Finding::bad(
            "boot-id",
            Verdict::Failure,
            "the kernel's boot id cannot be read",
            "leases of another boot cannot be told from those of this one, so the file is not opened",
            "Make /proc/sys/kernel/random/boot_id readable",
        ));
    }
    findings
}

fn file_system(place: &Place) -> Finding {
    let folder = place.folder.display();
    match place.file_system {
        FileSystem::Other => Finding::ok(
            "file-system",
            format!("{folder} is not in memory, and is writable"),
        ),
        FileSystem::Memory => Finding::bad(
            "file-system",
            Verdict::Warning,
            format!("{folder} is in memory (tmpfs)"),
            "a reboot frees every name and forgets the last tokens, and a container may have a folder of its own there",
            "Move the file to a local disk",
        ),
        FileSystem::ReadOnly => Finding::bad(
            "file-system",
            Verdict::Failure,
            format!("{folder} is mounted read-only"),
            "nothing can be acquired",
            "Mount it read-write, or use another file",
        ),
    }
}

fn rights(place: &Place) -> Finding {
    let (path, folder) = (place.path.display(), place.folder.display());
    let refused = |what: String, fix| {
        let endangers = "nothing can be acquired";
        Finding::bad("file-rights", Verdict::Failure, what, endangers, fix)
    };
    if !place.has_folder {
        let what = format!("the folder of {path} does not exist; {folder} does");
        return refused(what, "Create the folder");
    }
    if !place.is_folder_writable {
        return refused(
            format!("{folder} cannot be written to by this user"),
            "Grant this user the permission to write there, because the log and the locks are beside the file",
        );
    }
    if !place.is_file_writable {
        let what = format!("{path} cannot be written to by this user");
        return refused(what, "Grant this user the permission to read and write it");
    }
    if place.is_open_to_others {
        return Finding::bad(
            "file-rights",
            Verdict::Warning,
            format!("every user can write to {path}"),
            "any of them can free a name that is held",
            "Remove that permission: chmod o-w",
        );
    }
    Finding::ok("file-rights", format!("{path} can be read and written"))
}

fn room(place: &Place) -> Finding {
    let mebibytes = place.free_bytes >> 20;
    let good = LITTLE_ROOM >> 20;
    let folder = place.folder.display();
    let what = format!("{mebibytes} MiB are free in {folder}, and {good} MiB or more is good");
    let verdict = match place.free_bytes {
        ..NO_ROOM => Verdict::Failure,
        NO_ROOM..LITTLE_ROOM => Verdict::Warning,
        _ => return Finding::ok("file-room", what),
    };
    Finding::bad(
        "file-room",
        verdict,
        what,
        "on a full disk new leases are refused; held leases are still renewed",
        "Free some space",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut Place);

    /// Returns the worst verdict about a sound place after this change.
    fn worst(change: Change) -> Verdict {
        let mut changed = Place {
            path: "/a/leases".into(),
            folder: "/a".into(),
            has_folder: true,
            file_system: FileSystem::Other,
            is_folder_writable: true,
            is_file_writable: true,
            is_open_to_others: false,
            free_bytes: 1 << 40,
            has_boot_id: true,
        };
        change(&mut changed);
        let verdicts = place(&changed).into_iter().map(|finding| finding.verdict);
        verdicts.max().expect("some findings")
    }

    #[test]
    fn each_fault_of_a_place_is_told() {
        assert_eq!(worst(|_| ()), Verdict::Ok);
        let faults: [(Verdict, Change); 9] = [
            (Verdict::Warning, |it| it.is_open_to_others = true),
            (Verdict::Warning, |it| it.free_bytes = 1 << 21),
            (Verdict::Warning, |it| it.file_system = FileSystem::Memory),
            (Verdict::Failure, |it| it.file_system = FileSystem::ReadOnly),
            (Verdict::Failure, |it| it.has_folder = false),
            (Verdict::Failure, |it| it.is_folder_writable = false),
            (Verdict::Failure, |it| it.is_file_writable = false),
            (Verdict::Failure, |it| it.free_bytes = 0),
            (Verdict::Failure, |it| it.has_boot_id = false),
        ];
        for (verdict, fault) in faults {
            assert_eq!(worst(fault), verdict);
        }
    }
}
