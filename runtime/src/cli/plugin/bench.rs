//! `weir plugin bench`: how fast an operator is by itself, by batch size.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::super::output::{Table, count, print, print_json};
use super::super::pipeline::plugin_host;
use super::subject::{SubjectArgs, empty};
use crate::conformance::{Bench, BenchSettings, Start, bench, start};
use crate::error::{Error, ErrorKind};

/// `weir plugin bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
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
    start: &'a Start,
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
        let prepared = self.subject.prepare(true).await?;
        let empty = empty(&prepared.host).await?;
        let settings = BenchSettings { batches: self.batches.clone(), time: Duration::from_secs(self.seconds) };
        let measured = bench(&prepared.subject, &empty, &prepared.input, &settings).await.map_err(|error| {
            Error::new(ErrorKind::Plugin, "the plugin fails on the input")
                .help("weir plugin test, with the same arguments, says on which record")
                .caused_by(error)
        })?;
        // A host of its own: on the other one the plugin is there already. By now its code is in the cache, if there is one.
        let fresh = plugin_host()?;
        let started = start(|| prepared.load_on(&fresh), &prepared.subject.clock, &settings).await?;
        let input = self.subject.described_input();
        if self.subject.json {
            let (path, digest) = (prepared.path.display().to_string(), &prepared.digest);
            return print_json(&Shown { path, digest, input, bench: &measured, start: &started });
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
        let millis = |nanos: f64| nanos / 1e6;
        print(format_args!(
            "{} on {} records of {input}{cut}, {:.3} records out for each in\n\n{table}\n\
             start  {:.1} ms: {:.1} to load its compiled code, {:.1} to open an instance\n",
            measured.plugin,
            count(measured.records as u64),
            measured.output_ratio,
            millis(started.start_nanos),
            millis(started.load_nanos),
            millis(started.open_nanos),
        ))
    }
}
