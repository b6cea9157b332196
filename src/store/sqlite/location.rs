//! The default path of the file, and the file systems on which it is not safe.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::process::geteuid;

use super::failure::Failure;

const FILE: &str = "leases.sqlite";

/// File systems on which other machines may write, by the number that `statfs` gives.
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0102_1997, "9P"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x6573_5546, "FUSE"),
];

/// The default path: for this user on this file system; for root, one path of the machine.
pub(super) fn default_path() -> Result<PathBuf, Failure> {
    let folder = if geteuid().is_root() {
        PathBuf::from("/var/lib")
    } else {
        let state = absolute("XDG_STATE_HOME");
        let home = || absolute("HOME").map(|home| home.join(".local/state"));
        state.or_else(home).ok_or_else(|| {
            Failure::unfit(
                "neither XDG_STATE_HOME nor HOME names an absolute folder for the leases",
            )
        })?
    };
    Ok(folder.join("leasehold").join(FILE))
}

/// The XDG rules say that a relative path counts as unset.
fn absolute(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env::var_os(variable)?);
    path.is_absolute().then_some(path)
}

/// The kind of file system, where it may be shared with other machines.
pub(super) fn network_file_system(path: &Path) -> Result<Option<&'static str>, Failure> {
    let found =
        statfs(path).map_err(|error| Failure::io("examine the file system", error.into()))?;
    Ok(network_name(i128::from(found.f_type)))
}

/// The kernel's numbers have 32 bits; some platforms sign-extend them.
fn network_name(number: i128) -> Option<&'static str> {
    let number = u64::try_from(number & 0xffff_ffff).unwrap_or_default();
    let known = NETWORK.iter().find(|(network, _)| *network == number);
    known.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_number_on_every_platform() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xfe53_4d42), Some("SMB2"));
        assert_eq!(
            network_name(i128::from(0xfe53_4d42_u32 as i32)),
            Some("SMB2")
        );
        assert_eq!(network_name(0xef53), None);
    }
}
