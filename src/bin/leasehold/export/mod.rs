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
use page::Snapshot;
use recorder::Recorder;

/// Serves the metrics of a store until a signal ends it.
pub fn main(arguments: args::ExportOptions) -> Result<Exit, Failure> {
    let address = http::address(&arguments.listen)?;
    let recorder = Recorder::install()?;
    let pages = Arc::new(Pages::new(recorder));
    crate::block_on(async {
        let limit = arguments.store.connect_timeout.time;
        let client = arguments.store.connect(None, None).await?.client;
        let first = Snapshot {
            store: client.store().location(),
            ..Snapshot::default()
        };
        pages
            .content
            .send_modify(|content| content.snapshot = Some(first));
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
