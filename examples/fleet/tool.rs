//! The tool, which runs the jobs.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::member::Role;
use super::process::Process;
use super::{Result, scrape, wait_for};

/// Returns the path of the tool beside this program, which cargo builds first if cargo started us.
pub(crate) fn built() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(|examples| examples.parent());
    let folder = folder.ok_or("the program is not where cargo puts examples")?;
    let tool = folder.join("leasehold");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        // With the example, so that all dependencies have the features that they are built with already.
        build.args(["build", "--quiet", "--package", "leasehold-cli"]);
        build.args(["--bin", "leasehold", "--example", "fleet"]);
        // What cargo told us of ourselves would have it build dependencies again whose build scripts look at that.
        let told = |name: &str| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| told(&name.to_string_lossy())) {
            build.env_remove(name);
        }
        if folder.ends_with("release") {
            build.arg("--release");
        }
        if !build.status()?.success() {
            return Err("the tool was not built".into());
        }
    }
    match tool.exists() {
        true => Ok(tool),
        false => Err("build the tool first: cargo build --package leasehold-cli".into()),
    }
}

/// Starts the tool with these arguments, and announces the address at which it says that it serves metrics.
pub(crate) fn start(role: &Role, arguments: &[&str]) -> Result<Process> {
    let name = &role.name;
    let said = role.folder.join(format!("{name}.log"));
    let mut command = Command::new(&role.tool);
    command
        .args(arguments)
        .env("LEASEHOLD_STORE", &role.url)
        .env("XDG_RUNTIME_DIR", &role.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&said)?);
    let mut process = Process::start(&mut command)?;
    let address = || {
        let said = fs::read_to_string(&said).ok()?;
        let (before, _) = said.split_once("/metrics")?;
        Some(before.rsplit_once("http://")?.1.to_owned())
    };
    wait_for(name, || Ok(process.has_ended()? || address().is_some()))?;
    let address = address().ok_or_else(|| fs::read_to_string(&said).unwrap_or_default())?;
    scrape::announce(&role.folder, name, &address)?;
    Ok(process)
}
