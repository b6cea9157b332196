//! What an earlier run left in the metrics file and a later one must go on from: when the job last ended well, and how
//! often it ended for which reason. Pure.

/// The values of an earlier file.
#[derive(Debug, Default, PartialEq)]
pub struct Earlier {
    pub last_success: Option<f64>,
    /// By reason.
    pub exits: Vec<(String, u64)>,
}

impl Earlier {
    /// Reads them for the job with these labels, as the exporter writes them. What cannot be read is left out.
    pub fn read(text: &str, labels: &str) -> Self {
        let mut earlier = Self::default();
        for line in text.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            if series == format!("leasehold_run_last_success_timestamp_seconds{{{labels}}}") {
                earlier.last_success = value.parse().ok();
            }
            let start = format!("leasehold_run_exits_total{{{labels},reason=\"");
            let reason = series.strip_prefix(&start);
            if let Some(reason) = reason.and_then(|rest| rest.strip_suffix("\"}"))
                && let Ok(count) = value.parse()
            {
                earlier.exits.push((reason.into(), count));
            }
        }
        earlier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_values_of_the_same_job_are_read() {
        let text = "\
# HELP leasehold_run_exits_total Jobs that ended
leasehold_run_exits_total{group=\"g\",name=\"a\",reason=\"success\"} 3
leasehold_run_exits_total{group=\"g\",name=\"a\",reason=\"lost\"} 1
leasehold_run_exits_total{group=\"g\",name=\"b\",reason=\"lost\"} 7
leasehold_run_last_success_timestamp_seconds{group=\"g\",name=\"a\"} 1800000000.5
nonsense
";
        let earlier = Earlier::read(text, "group=\"g\",name=\"a\"");
        assert_eq!(earlier.last_success, Some(1_800_000_000.5));
        assert_eq!(earlier.exits, [("success".into(), 3), ("lost".into(), 1)]);
        assert_eq!(
            Earlier::read(text, "group=\"g\",name=\"c\""),
            Earlier::default()
        );
    }
}
