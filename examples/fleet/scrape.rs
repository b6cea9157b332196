//! How the fleet is scraped: each process serves its metrics, and tells Prometheus where, in a file of its own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Result;
use super::process::Process;

/// The settings of a Prometheus that scrapes this fleet every so many seconds, with our rules.
pub(crate) fn config(folder: &Path, seconds: u32) -> String {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../dashboards/rules");
    format!(
        "global:\n  scrape_interval: {seconds}s\n  evaluation_interval: {seconds}s\n\
         rule_files:\n  - '{}/*.yml'\n\
         scrape_configs:\n  - job_name: fleet\n    file_sd_configs:\n      - files: ['{}/*.json']\n        refresh_interval: 5s\n",
        rules.display(),
        folder.join("targets").display(),
    )
}

/// Starts the machine's Prometheus on this port of this machine.
pub(crate) fn start_prometheus(folder: &Path, port: u16) -> Result<Process> {
    let mut command = Command::new("prometheus");
    command
        .arg(format!(
            "--config.file={}",
            folder.join("prometheus.yml").display()
        ))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--log.level=warn")
        .stdin(Stdio::null());
    let process = Process::start(&mut command)?;
    println!("Prometheus: http://127.0.0.1:{port}");
    Ok(process)
}

/// Has Prometheus scrape this address as this instance from now on.
pub(crate) fn announce(folder: &Path, instance: &str, address: &str) -> Result<()> {
    let targets = folder.join("targets");
    std::fs::create_dir_all(&targets)?;
    let text = format!(r#"[{{"targets": ["{address}"], "labels": {{"instance": "{instance}"}}}}]"#);
    let new = targets.join(format!("{instance}.new"));
    std::fs::write(&new, text)?;
    // As a whole: Prometheus reads it at once.
    Ok(std::fs::rename(
        new,
        targets.join(format!("{instance}.json")),
    )?)
}

/// Serves this text at a free port of this machine, and returns the address.
pub(crate) fn serve(text: impl Fn() -> String + Send + 'static) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        // A scraper that goes away gets no answer.
        for stream in listener.incoming().flatten() {
            let _ = answer(stream, &text());
        }
    });
    Ok(address)
}

/// One page, whatever is asked for.
fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 {
            return Ok(());
        }
        head.push(byte[0]);
    }
    let length = text.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
}
