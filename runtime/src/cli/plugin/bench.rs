//! `weir plugin bench`: how fast an operator is by itself, by batch size.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::super::output::{Table, count, print, print_json};
use super::subject::{Prepared, SubjectArgs, empty};
use crate::conformance::{Bench, BenchSettings, bench};
use crate::error::{Error, ErrorKind};

/// `weir plugin bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Records of a batch, one line of the answer each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 10, 100, 1_000, 10_000])]
    batches: Vec<usize>,
    /// How long each batch size is measured
    #[arg(long, value_name = "N", default_value_t = 1)]
    seconds: u64,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    path: String,
    digest: &'a str,
    input: &'a str,
    #[serde(flatten)]
    bench: &'a Bench,
}

impl BenchArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        super::super::run::block_on(self.bench())
    }

    async fn bench(self) -> Result<(), Error> {
        if self.batches.contains(&0) || self.batches.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "--batches has a batch of no records")
                .help("such as --batches 1,100,1000"));
        }
        let Prepared { subject, input, path, digest, host } = self.subject.prepare(true).await?;
        let empty = empty(&host).await?;
        let settings = BenchSettings { batches: self.batches.clone(), time: Duration::from_secs(self.seconds) };
        let measured = bench(&subject, &empty, &input, &settings).await.map_err(|error| {
            Error::new(ErrorKind::Plugin, "the plugin fails on the input")
                .help("weir plugin test, with the same arguments, says on which record")
                .caused_by(error)
        })?;
        let input = self.subject.described_input();
        if self.subject.json {
            return print_json(&Shown { path: path.display().to_string(), digest: &digest, input, bench: &measured });
        }
        let cut = if measured.input_is_cut { " (there are more, which were not used)" } else { "" };
        let mut table = Table::new(&[">batch", ">records/s", ">ns/record", ">hand-over", ">guest", ">emit"]);
        for size in &measured.sizes {
            let nanos = |nanos: f64| format!("{nanos:.1}");
            table.row(vec![
                count(size.batch as u64),
                count(size.records_per_second as u64),
                nanos(size.record_nanos),
                nanos(size.hand_over_nanos),
                nanos(size.guest_nanos),
                nanos(size.emit_nanos),
            ]);
        }
        print(format_args!(
            "{} on {} records of {input}{cut}, {:.3} records out for each in\n\n{table}",
            measured.plugin,
            count(measured.records as u64),
            measured.output_ratio
        ))
    }
}
