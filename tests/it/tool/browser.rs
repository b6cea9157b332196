//! The page for people in a real browser, for the long tests.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::export::{address, page};
use super::{HOLDER, Sandbox, wait_until};

/// The browser without a window, on this page.
fn browser(sandbox: &Sandbox, arguments: &[&str], url: &str) -> Vec<u8> {
    let profile = format!("--user-data-dir={}", sandbox.path("browser").display());
    let output = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            &profile,
        ])
        .args(arguments)
        .arg(url)
        .output()
        .expect("apt-get install chromium");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// The width of a picture, from its head.
fn width(picture: &[u8]) -> u32 {
    u32::from_be_bytes(picture[16..20].try_into().expect("a PNG"))
}

/// The page in a frame of 400 pixels, which tells how wide it is and how far it could be scrolled to the side.
fn narrow(sandbox: &Sandbox, page: &str) -> String {
    let tell = "<script>onload = () => parent.postMessage(
        innerWidth + ' wide, ' + document.documentElement.scrollWidth + ' to scroll', '*')</script>";
    let frame = "<!doctype html><style>:root{color-scheme:light dark}body{margin:0}
        iframe{width:400px;height:680px;border:0;display:block}</style>
        <iframe src=page.html></iframe><p></p>
        <script>onmessage = told => document.querySelector('p').textContent = told.data</script>";
    let page = page.replace("http-equiv=refresh", "data-off");
    fs::write(sandbox.path("page.html"), page + tell).expect("written");
    fs::write(sandbox.path("frame.html"), frame).expect("written");
    format!("file://{}", sandbox.path("frame.html").display())
}

/// A browser shows the page wide and narrow, light and dark, and runs no markup.
pub(crate) fn shows_the_page() {
    let sandbox = Sandbox::new();
    let names = ["nightly", "<script>document.title=1</script>"];
    let _holders = names.map(|name| {
        let label = "<img src=x onerror=document.title=2>";
        let arguments = ["run", "--label", label, name, "sh", "-c", HOLDER];
        let holder = sandbox.start(sandbox.tool(&arguments));
        sandbox.mark("first");
        fs::remove_file(sandbox.path("first")).expect("there");
        holder
    });
    let mut export = sandbox.start(sandbox.tool(&["export", "--listen", ":0"]));
    let address = address(&export);
    wait_until("the first scan", || {
        page(&address, "/").1.contains("nightly")
    });
    let url = format!("http://{address}/?sort=name");
    let shown = browser(&sandbox, &["--dump-dom"], &url);
    let shown = String::from_utf8(shown).expect("text");
    assert!(shown.contains("&lt;script&gt;document.title=1"), "{shown}");
    assert!(shown.contains("<title>leasehold: "), "{shown}");
    let narrow = narrow(&sandbox, &page(&address, "/?sort=name").1);
    let told = browser(&sandbox, &["--dump-dom"], &narrow);
    let told = String::from_utf8(told).expect("text");
    assert!(told.contains(">400 wide, 400 to scroll<"), "{told}");
    let mut pictures = Vec::new();
    // No window of the browser is as narrow as a telephone, but a frame in it is.
    for (name, url, wide) in [("narrow", &narrow, 500), ("wide", &url, 1_400)] {
        // 0 is dark, and 1 is light.
        for scheme in [0, 1] {
            let file = format!("page-{name}-{scheme}.png");
            let picture = sandbox.path(&file);
            let to = format!("--screenshot={}", picture.display());
            let size = format!("--window-size={wide},700");
            let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
            browser(&sandbox, &[&to, &size, &scheme], url);
            pictures.push(fs::read(&picture).expect("drawn"));
            assert_eq!(pictures.last().map(|picture| width(picture)), Some(wide));
            if let Some(folder) = std::env::var_os("PICTURES") {
                fs::copy(&picture, Path::new(&folder).join(&file)).expect("kept");
            }
        }
    }
    assert!(pictures[0] != pictures[1] && pictures[2] != pictures[3]);
    export.signal(Signal::TERM);
    assert_eq!(export.end().signal, Some(Signal::TERM.as_raw()));
}
