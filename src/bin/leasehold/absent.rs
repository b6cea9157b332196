//! What a part of the tool answers that was not compiled in: the name of its feature.

use crate::exit::Failure;

#[cfg_attr(feature = "top", expect(dead_code, reason = "the live view is there"))]
pub mod top {
    use super::absent;
    use crate::args;
    use crate::config::StoreSetting;
    use crate::exit::{Exit, Failure};

    pub fn main(_: args::TopOptions, _: Option<StoreSetting>) -> Result<Exit, Failure> {
        Err(absent("top"))
    }
}

#[cfg_attr(
    feature = "export",
    expect(dead_code, reason = "the exporters are there")
)]
pub mod export {
    use std::path::PathBuf;

    use super::absent;
    use crate::args;
    use crate::config::StoreSetting;
    use crate::exit::{Exit, Failure};

    pub fn main(_: args::ExportOptions, _: Option<StoreSetting>) -> Result<Exit, Failure> {
        Err(absent("export"))
    }

    /// Where the metrics of a job would go.
    #[derive(Debug, Clone, Default)]
    pub struct Places {
        pub file: Option<PathBuf>,
        pub address: Option<String>,
    }

    /// There are none.
    pub enum JobMetrics {}

    impl JobMetrics {
        /// Refuses a place that the user named.
        pub fn start(places: &Places, _: &str, _: Option<&str>) -> Result<Option<Self>, Failure> {
            match places.file.is_some() || places.address.is_some() {
                true => Err(absent("export")),
                false => Ok(None),
            }
        }

        pub const fn acquired(&mut self) {
            match *self {}
        }

        pub const fn ended(&self) {
            match *self {}
        }

        pub const fn finish(self, _: &Result<Exit, Failure>) {
            match self {}
        }
    }
}

fn absent(feature: &str) -> Failure {
    Failure::usage(format!(
        "refused: this build has no such part; expected the feature {feature:?} to be on"
    ))
}
