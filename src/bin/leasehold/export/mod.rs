//! Metrics for Prometheus: of a job while it runs, and of a whole store with `leasehold export`.

mod http;
mod job;
mod page;
mod recorder;
mod scan;
mod textfile;

use std::sync::Arc;

pub use self::job::JobMetrics;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::say;

use http::Pages;
#[cfg(test)]
pub use job::JobStatus;
use recorder::Recorder;
#[cfg(test)]
pub use scan::Scanned;

/// Serves the metrics of a store until a signal ends it.
pub fn main(arguments: args::ExportOptions) -> Result<Exit, Failure> {
    let address = http::address(&arguments.listen)?;
    let recorder = Recorder::install()?;
    crate::block_on(async {
        let limit = arguments.store.connect_timeout.time;
        let client = arguments.store.connect(None, None).await?.client;
        let first = scan::unscanned(client.store().location());
        let pages = Arc::new(Pages::new(recorder, first));
        let listener = http::bind(address).map_err(|error| http::refused(address, &error))?;
        let address = http::serve(listener, pages.clone())?;
        say::note(
            "listening",
            format_args!(
                "a page is served at http://{address}/, and metrics at http://{address}/metrics"
            ),
        );
        scan::watch(&client, &pages, limit).await
    })
}
