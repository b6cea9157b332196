//! Changes a server's snapshot by hand, to have the effect of two thousand million changes.

use std::fs;

use super::ZookeeperServer;

/// At the end of a snapshot: a sum of all before it and the path `/`; what describes the whole; and such a sum again.
const SUM: usize = 8 + 5;
const DESCRIPTION: usize = 8 + 4 + 8;

impl ZookeeperServer {
    /// Has this node's children as having changed so often. It is started again for it, twice.
    pub async fn count_changes(&self, path: &str, changes: i32) {
        self.kill();
        self.run();
        // It writes a snapshot as it starts.
        self.serving().await;
        self.kill();
        let mut changed = 0;
        for file in fs::read_dir(self.data()).expect("it had data") {
            let file = file.expect("readable").path();
            let name = file.file_name().expect("a name").to_string_lossy();
            if name.starts_with("snapshot.") {
                let mut bytes = fs::read(&file).expect("readable");
                if change(&mut bytes, path, changes).is_some() {
                    fs::write(&file, bytes).expect("writable");
                    changed += 1;
                }
            }
        }
        assert!(changed > 0, "no snapshot has {path}");
        self.run();
        self.serving().await;
    }
}

fn change(bytes: &mut [u8], path: &str, changes: i32) -> Option<()> {
    let length = u32::try_from(path.len()).ok()?.to_be_bytes();
    let node = [&length, path.as_bytes()].concat();
    let at = bytes.windows(node.len()).position(|part| part == node)?;
    let data = at + node.len();
    let data_length = bytes[data..]
        .first_chunk()
        .copied()
        .map(i32::from_be_bytes)?;
    let access = data + 4 + usize::try_from(data_length.max(0)).ok()?;
    // Its access list, four numbers of eight bytes, and its version.
    let count = access + 8 + 4 * 8 + 4;
    bytes[count..count + 4].copy_from_slice(&changes.to_be_bytes());
    let second = bytes.len() - SUM;
    for sum in [second - DESCRIPTION - SUM, second] {
        let value = u64::from(adler32(&bytes[..sum]));
        bytes[sum..sum + 8].copy_from_slice(&value.to_be_bytes());
    }
    Some(())
}

fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}
