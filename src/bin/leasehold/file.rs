//! Files that are replaced as a whole: a reader sees the old content or the new one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces a file. Its new content is written beside it, under a name that ends in `.new`.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(true).mode(mode);
    options.open(&new)?.write_all(content)?;
    fs::rename(&new, path)
}
