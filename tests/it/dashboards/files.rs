//! The files of the boards, held to their source.

use super::boards::all;
use super::path;

/// The files are written anew with `LEASEHOLD_WRITE_PAGES=1`.
#[test]
fn the_files_of_the_boards_are_those_of_their_source() {
    for board in all() {
        let path = path(&format!("{}.json", board.uid));
        if std::env::var_os("LEASEHOLD_WRITE_PAGES").is_some() {
            std::fs::write(&path, board.text()).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).is_ok_and(|text| text == board.text()),
            "write {} anew: LEASEHOLD_WRITE_PAGES=1 cargo test --all-features --test it dashboards::files",
            path.display()
        );
    }
}
