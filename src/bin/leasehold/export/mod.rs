//! Metrics for Prometheus: of a job while it runs, and of a whole store with `leasehold export`.

mod address;
mod earlier;
mod http;
mod job;
mod page;
mod pages;
mod recorder;
mod store;
mod textfile;

use std::sync::Arc;

pub use self::job::{JobMetrics, Places};

use crate::args;
use crate::config::StoreSetting;
use crate::exit::{Exit, Failure};
use crate::say;
use crate::store::Choice;

use page::Snapshot;
use pages::Pages;
use recorder::Recorder;

/// Serves the metrics of a store until a signal ends it.
pub fn main(
    arguments: args::ExportOptions,
    configured: Option<StoreSetting>,
) -> Result<Exit, Failure> {
    let address = address::parse(&arguments.listen).map_err(|expected| {
        Failure::usage(format!("listen {:?} refused: {expected}", arguments.listen))
    })?;
    let choice = Choice::of(&arguments.store, configured)?;
    let recorder = Recorder::install()?;
    let (text, tidied) = (recorder.clone(), recorder);
    let pages = Pages::new(move || text.text()).with_tidy(move || tidied.tidy());
    let pages = Arc::new(pages);
    crate::block_on(async {
        let limit = arguments.store.connect_timeout;
        let client = choice.connect(None, limit, |builder| builder).await?.client;
        pages.show(Snapshot::first(client.store().location()));
        let address = http::serve(address, pages.clone())?;
        say::note(
            "listening",
            format_args!(
                "a page is served at http://{address}/, and metrics at http://{address}/metrics"
            ),
        );
        store::watch(&client, &pages, limit).await
    })
}
