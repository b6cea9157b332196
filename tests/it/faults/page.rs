//! The page of `leasehold export` in a real browser, which is slow to start.

use crate::tool::browser;

#[test]
fn a_browser_shows_the_page_wide_and_narrow_light_and_dark_and_runs_no_markup() {
    browser::shows_the_page();
}
