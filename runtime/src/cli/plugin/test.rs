//! `weir plugin test`: every check of the conformance test, and a report that a person likes to read.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::super::output::{bytes, count, print, print_json, time};
use super::subject::{Prepared, SubjectArgs};
use crate::conformance::{Check, Checked, Finding, Outcome, Report, Settings, ShownRecord, Used, test};
use crate::error::{Error, ErrorKind};
use crate::model::KEY_GROUPS_DEFAULT;
use crate::plan::LimitsSpec;

/// `weir plugin test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Over how many subtasks its state is split in the rescale check
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=i64::from(KEY_GROUPS_DEFAULT)))]
    parallelism: u32,
    /// At how many places it is cut, restored and continued
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    cuts: u32,
    /// Decides where these places are, how batches are cut, and when time moves
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// It is meant to look at the processing time: do not run it at another time
    #[arg(long)]
    processing_time: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    path: String,
    digest: &'a str,
    input: &'a str,
    #[serde(flatten)]
    report: &'a Report,
}

impl TestArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        super::super::run::block_on(self.test())
    }

    async fn test(self) -> Result<(), Error> {
        let Prepared { subject, input, path, digest, .. } = self.subject.prepare(false).await?;
        let settings = Settings {
            cuts: self.cuts as usize,
            seed: self.seed,
            parallelism: self.parallelism,
            processing_time: self.processing_time,
        };
        let is_terminal = std::io::stderr().is_terminal();
        let about = |check: Check| {
            if is_terminal {
                eprintln!("checking: {} …", check.title());
            }
        };
        let report = test(&subject, input, &settings, &LimitsSpec::default(), &about).await;
        let input = self.subject.described_input();
        if self.subject.json {
            print_json(&Shown { path: path.display().to_string(), digest: &digest, input, report: &report })?;
        } else {
            print(render(&report, &path.display().to_string(), &digest, input))?;
        }
        if report.passed {
            return Ok(());
        }
        let failed: Vec<&str> = report
            .checks
            .iter()
            .filter(|checked| checked.outcome == Outcome::Failed)
            .map(|checked| checked.check.title())
            .collect();
        Err(Error::new(ErrorKind::Plugin, format!("{} does not pass: {}", report.plugin, failed.join(", ")))
            .help("each finding says what usually causes it; the same seed and input find the same again"))
    }
}

/// The report for people.
fn render(report: &Report, path: &str, digest: &str, input: &str) -> String {
    let mut text = String::new();
    let Settings { cuts, seed, parallelism, .. } = report.settings;
    let short = digest.get(..12).unwrap_or(digest);
    line(&mut text, "plugin", &format!("{} ({path}, {short}…)", report.plugin));
    let cut = if report.input_is_cut { "; there are more, which were not used" } else { "" };
    line(
        &mut text,
        "input",
        &format!(
            "{input}: {} records, {} with a key, {} with an event time{cut}",
            count(report.records as u64),
            count(report.records_with_key as u64),
            count(report.records_with_time as u64)
        ),
    );
    line(
        &mut text,
        "plan",
        &format!("seed {seed}, {cuts} cuts, {} stops, parallelism {parallelism}", count(report.stops as u64)),
    );
    text.push('\n');
    for checked in &report.checks {
        outcome(&mut text, checked);
    }
    if let Some(used) = &report.used {
        text.push('\n');
        usage(&mut text, used);
    }
    for checked in &report.checks {
        for finding in &checked.findings {
            text.push('\n');
            explain(&mut text, checked.check, finding);
        }
    }
    text
}

/// A label and a text, which goes on below itself.
fn line(text: &mut String, label: &str, value: &str) {
    wrapped(text, label, 10, value);
}

/// The same with labels of this width.
fn wrapped(text: &mut String, label: &str, label_width: usize, value: &str) {
    const WIDTH: usize = 100;
    let mut rest = String::new();
    let mut lines = Vec::new();
    for word in value.split([' ', '\n']) {
        if !rest.is_empty() && rest.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::take(&mut rest));
        }
        if !rest.is_empty() {
            rest.push(' ');
        }
        rest.push_str(word);
    }
    lines.push(rest);
    for (number, part) in lines.iter().enumerate() {
        let label = if number == 0 { label } else { "" };
        // A string grows.
        let _ = writeln!(text, "{label:<label_width$}{part}");
    }
}

fn outcome(text: &mut String, checked: &Checked) {
    let word = match checked.outcome {
        Outcome::Passed => "ok",
        Outcome::Failed => "FAILED",
        Outcome::Skipped => "skipped",
    };
    line(text, word, &format!("{}: {}", checked.check.title(), checked.summary));
    checked.notes.iter().for_each(|note| line(text, "", &format!("note: {note}")));
}

fn usage(text: &mut String, used: &Used) {
    let of = |value: u64, limit: u64| format!("{} of {}", bytes(value), bytes(limit));
    line(text, "memory", &of(used.memory_bytes, used.memory_bytes_limit));
    let nanos = |nanos: f64| format!("{:?}", Duration::from_nanos(nanos as u64));
    line(
        text,
        "time",
        &format!(
            "{} a record; the longest call is {}, {:?} of {:?}",
            nanos(used.record_nanos),
            used.longest_call,
            Duration::from_micros(used.longest_call_micros),
            Duration::from_micros(used.call_micros_limit)
        ),
    );
    line(
        text,
        "output",
        &format!(
            "{:.3} records for each that came in, {:.2} bytes for each byte; the most of one call {}",
            used.output_ratio,
            used.output_bytes_ratio,
            of(used.call_output_bytes, used.call_output_bytes_limit)
        ),
    );
    let state = of(used.state_bytes, used.state_bytes_limit);
    line(text, "state", &format!("{state}, in pieces of up to {}", bytes(used.chunk_bytes)));
}

fn explain(text: &mut String, check: Check, finding: &Finding) {
    let _ = writeln!(text, "{}: {}", check.title(), finding.message);
    let mut part = |label: &str, value: &str| wrapped(text, &format!("  {label}"), 12, value);
    if let Some(setting) = &finding.setting {
        part("when", setting);
    }
    if let (Some(port), Some(record)) = (&finding.port, finding.record) {
        let during = match (finding.input, &finding.call) {
            (Some((from, to)), Some(call)) if call == "process" && from == to => {
                format!(", while record {} of the input was processed", count(from as u64))
            }
            (Some((from, to)), Some(call)) if call == "process" => {
                format!(", while records {} to {} of the input were processed", count(from as u64), count(to as u64))
            }
            (Some((_, to)), Some(call)) => format!(", in {call} after record {} of the input", count(to as u64)),
            _ => String::new(),
        };
        part("where", &format!("record {} of port {port}{during}", count(record as u64)));
        part("expected", &finding.expected.as_ref().map_or_else(|| "nothing more up to here".to_owned(), record_line));
        part("found", &finding.found.as_ref().map_or_else(|| "nothing more up to here".to_owned(), record_line));
    }
    if let Some(state) = &finding.state {
        part("state", &state.to_string());
    }
    if let Some(given) = &finding.given {
        part("record", &record_line(given));
    }
    if let Some(error) = &finding.error {
        part("error", error);
    }
    let frames = finding.backtrace.iter().flat_map(|frames| frames.lines()).filter(|frame| !is_of_panic(frame));
    for (number, frame) in frames.take(FRAMES_MAX).enumerate() {
        part(if number == 0 { "frames" } else { "" }, frame.trim());
    }
    part("hint", &finding.hint);
}

/// How many frames of a guest are shown.
const FRAMES_MAX: usize = 6;

/// Whether a frame is how a language panics, and says nothing of where.
fn is_of_panic(frame: &str) -> bool {
    [
        "rust_panic",
        "std::panicking",
        "core::panicking",
        "rust_begin_unwind",
        "short_backtrace",
        "unwrap_failed",
        "expect_failed",
    ]
    .iter()
    .any(|part| frame.contains(part))
}

/// A record in one line.
fn record_line(record: &ShownRecord) -> String {
    let mut parts = vec![record.event_time.map_or_else(|| "no time".to_owned(), exact_time)];
    let mut column = |name: &str, bytes: &Option<crate::model::ShownBytes>| {
        parts.push(match bytes {
            None => format!("no {name}"),
            Some(bytes) => format!("{name} {}", bytes.short()),
        });
    };
    column("key", &record.key);
    column("value", &record.value);
    if record.headers.is_some() {
        column("headers", &record.headers);
    }
    if let Some(reason) = &record.reason {
        parts.push(format!("because: {}", crate::model::ShownBytes::new(reason.as_bytes()).short()));
    }
    parts.join(" | ")
}

/// A time to the microsecond where it has any below the second.
fn exact_time(at: i64) -> String {
    if at % 1_000_000 == 0 {
        time(at)
    } else {
        jiff::Timestamp::from_microsecond(at).map_or_else(|_| format!("{at} µs"), |at| at.to_string())
    }
}
