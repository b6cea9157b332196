//! The answer of a part of the tool that was not compiled in: the name of its feature.

use crate::exit::Failure;

#[cfg_attr(
    all(feature = "top", not(test)),
    expect(dead_code, reason = "the live view is there")
)]
pub mod top {
    use super::absent;
    use crate::args;
    use crate::exit::{Exit, Failure};

    pub fn main(_: args::TopOptions) -> Result<Exit, Failure> {
        Err(absent("top", "top"))
    }
}

#[cfg_attr(
    feature = "export",
    expect(dead_code, reason = "the exporters are there")
)]
pub mod export {
    use std::time::Duration;

    use super::absent;
    use crate::args;
    use crate::exit::{Exit, Failure};

    pub fn main(_: args::ExportOptions) -> Result<Exit, Failure> {
        Err(absent("export", "export"))
    }

    /// Never made.
    pub struct JobMetrics;

    impl JobMetrics {
        /// Refuses the destination that the user named.
        pub async fn start(
            _: &args::LeaseOptions,
            options: &args::MetricsOptions,
        ) -> Result<Option<Self>, Failure> {
            match (&options.metrics_file, &options.metrics) {
                (Some(_), _) => Err(absent("--metrics-file", "export")),
                (None, Some(_)) => Err(absent("--metrics", "export")),
                (None, None) => Ok(None),
            }
        }

        pub const fn waits(&self, _: bool) {}
        pub const fn acquired(&self) {}
        pub const fn ended(&self, _: Duration) {}
        pub async fn finish(self, _: &Result<Exit, Failure>) {}
    }
}

fn absent(part: &str, feature: &str) -> Failure {
    Failure::usage(format!(
        "{part} refused: it is not compiled in; expected a build with the feature {feature:?}, which is on by default"
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    /// Fails unless the user gets exit code 64, what was refused, and the feature to build with.
    fn refuses(failure: Failure, part: &str, feature: &str) {
        assert_eq!(failure.exit.code(), 64);
        let message = failure.to_string();
        assert!(message.starts_with(part), "{message}");
        let feature = format!("the feature {feature:?}");
        assert!(message.contains(&feature), "{message}");
    }

    fn command(words: &[&str]) -> Command {
        let words = [&["leasehold"], words].concat();
        Arguments::try_parse_from(words).expect("known").command
    }

    #[test]
    fn a_command_that_is_not_compiled_in_names_its_feature() {
        let Command::Top(arguments) = command(&["top"]) else {
            panic!("another command");
        };
        let failure = top::main(arguments).expect_err("refused");
        refuses(failure, "top refused", "top");
        let Command::Export(arguments) = command(&["export"]) else {
            panic!("another command");
        };
        let failure = export::main(arguments).expect_err("refused");
        refuses(failure, "export refused", "export");
    }

    #[tokio::test]
    async fn an_option_that_is_not_compiled_in_names_its_feature_and_no_other_does() {
        let started = async |options: &[&str]| {
            let words = [&["run"], options, &["x", "true"]].concat();
            let Command::Run(options) = command(&words) else {
                panic!("another command");
            };
            export::JobMetrics::start(&options.lease, &options.job.metrics)
                .await
                .err()
        };
        let failure = started(&["--metrics-file", "job.prom"])
            .await
            .expect("refused");
        refuses(failure, "--metrics-file refused", "export");
        let failure = started(&["--metrics", "9464"]).await.expect("refused");
        refuses(failure, "--metrics refused", "export");
        assert!(started(&[]).await.is_none());
    }
}
