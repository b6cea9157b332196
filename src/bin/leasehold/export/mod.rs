//! Metrics for Prometheus: of a job while it runs, and of a whole store with `leasehold export`.

mod address;
mod earlier;
mod http;
mod job;
mod page;
mod recorder;
mod site;
mod store;
mod textfile;

use std::sync::Arc;

pub use self::job::{JobMetrics, Places};

use crate::args;
use crate::config::StoreSetting;
use crate::exit::{Exit, Failure};
use crate::say;
use crate::store::Choice;

use recorder::Recorder;
use site::Site;

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
    let site = Site::new(move || text.text()).with_tidy(move || tidied.tidy());
    let site = Arc::new(site);
    crate::block_on(async {
        let limit = arguments.store.connect_timeout;
        let client = choice.connect(None, limit, |builder| builder).await?.client;
        let address = http::serve(address, site.clone())?;
        say::note(
            "listening",
            format_args!(
                "a page is served at http://{address}/, and metrics at http://{address}/metrics"
            ),
        );
        store::watch(&client, &site, limit).await
    })
}
