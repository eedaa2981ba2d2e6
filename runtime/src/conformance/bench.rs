//! How fast an operator is by itself: records a second, and what of a record's time is hand-over, guest and emit.
//!
//! - *Hand-over* is what an operator costs that does nothing, for the very same batches: the call, and copying columns into a guest.
//! - *Emit* is measured by the host around each `output.emit`: reading the batch out, checking it, copying it.
//! - *Guest* is what is left.
//!
//! Each pass begins with a fresh instance and goes through the whole input, watermarks and the end included; the fastest counts, of each part by itself: whatever
//! else the machine does makes it slower and never faster.
//!
//! How long it takes to begin is measured apart: [`start`].

use std::time::Duration;

use serde::Serialize;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::course::{BEGIN, Course, Cutting};
use super::input::Input;
use super::said::Said;
use super::session::{Session, Share, Subject};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::plugin::OperatorError;

/// The fewest and the most passes for a batch size.
const PASSES_MIN: usize = 3;
const PASSES_MAX: usize = 1_000;

/// The fewest and the most starts.
const STARTS_MIN: usize = 3;
const STARTS_MAX: usize = 25;

/// How it is measured.
#[derive(Clone, Debug, Serialize)]
pub struct BenchSettings {
    /// Records of a batch, one line of the answer each.
    pub batches: Vec<usize>,
    /// How long each of them is measured, at least; for so long it is started again, at most.
    #[serde(skip)]
    pub time: Duration,
}

impl Default for BenchSettings {
    fn default() -> Self {
        Self { batches: vec![1, 10, 100, 1_000, 10_000], time: Duration::from_secs(1) }
    }
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Bench {
    /// Name and version of the plugin.
    pub plugin: String,
    /// Records of a pass.
    pub records: usize,
    /// The input has more records than were used.
    pub input_is_cut: bool,
    /// Records out for each that came in.
    pub output_ratio: f64,
    /// By batch size.
    pub sizes: Vec<Measured>,
}

/// What was measured with one batch size. Times are nanoseconds for each record that came in.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Records of a batch.
    pub batch: usize,
    /// How often the input was gone through.
    pub passes: usize,
    /// Records a second.
    pub records_per_second: f64,
    /// All of it.
    pub record_nanos: f64,
    /// To hand it over.
    pub hand_over_nanos: f64,
    /// In the guest.
    pub guest_nanos: f64,
    /// To take what it emits.
    pub emit_nanos: f64,
}

/// How long it takes until an instance can take records, in nanoseconds: the medians of several starts.
#[derive(Clone, Debug, Serialize)]
pub struct Start {
    /// How often it was started.
    pub starts: usize,
    /// All of it.
    pub start_nanos: f64,
    /// To make a plugin of the bytes of a component.
    pub load_nanos: f64,
    /// To open an instance of it.
    pub open_nanos: f64,
}

/// Measures how long it takes to begin. `load` makes a plugin of its component each time it is called, and nobody else may hold that plugin on the same host, which
/// would hand it out again at once.
///
/// # Errors
///
/// If it does not load, or does not open.
pub async fn start(
    load: impl AsyncFn() -> Result<Subject, Error>,
    clock: &Clock,
    settings: &BenchSettings,
) -> Result<Start, Error> {
    let measured = async {
        let (mut starts, mut spent) = (Vec::new(), Duration::ZERO);
        while starts.len() < STARTS_MIN || (spent < settings.time && starts.len() < STARTS_MAX) {
            let began = clock.elapsed();
            let subject = load().await?;
            let loaded = clock.elapsed();
            let opened = Session::open(&subject, Share::ALL, BEGIN).await;
            let ended = clock.elapsed();
            opened.map_err(|error| Error::new(ErrorKind::Plugin, "the plugin does not open").caused_by(error))?;
            spent += ended.saturating_sub(began);
            starts.push((ended.saturating_sub(began), loaded.saturating_sub(began), ended.saturating_sub(loaded)));
        }
        Ok::<_, Error>(starts)
    };
    let starts = measured.with_subscriber(NoSubscriber::default()).await?;
    let median = |of: fn(&(Duration, Duration, Duration)) -> Duration| {
        let mut times: Vec<Duration> = starts.iter().map(of).collect();
        times.sort_unstable();
        times.get(times.len() / 2).map_or(0.0, |time| time.as_nanos() as f64)
    };
    Ok(Start {
        starts: starts.len(),
        start_nanos: median(|start| start.0),
        load_nanos: median(|start| start.1),
        open_nanos: median(|start| start.2),
    })
}

/// Measures an operator whose instances have a stopwatch, beside one that does nothing.
///
/// # Errors
///
/// If it fails on the input.
pub async fn bench(
    subject: &Subject,
    empty: &Subject,
    input: &Input,
    settings: &BenchSettings,
) -> Result<Bench, OperatorError> {
    let measured = async {
        let (mut sizes, mut output_ratio) = (Vec::new(), 0.0);
        // The same stops for all sizes, and none within a batch.
        let longest = settings.batches.iter().copied().max().unwrap_or(1);
        for &batch in &settings.batches {
            let (mut passes, mut spent) = (Vec::new(), Duration::ZERO);
            while passes.len() < PASSES_MIN || (spent < settings.time && passes.len() < PASSES_MAX) {
                let idle = pass(empty, input, longest, batch).await?;
                let worked = pass(subject, input, longest, batch).await?;
                output_ratio = worked.output_ratio;
                spent += idle.time + worked.time;
                passes.push((worked.time, idle.process_time, worked.emitting));
            }
            let fastest = |of: fn(&(Duration, Duration, Duration)) -> Duration| {
                let time = passes.iter().map(of).min().unwrap_or_default();
                time.as_nanos() as f64 / input.len().max(1) as f64
            };
            let (all, hand_over, emit) = (fastest(|pass| pass.0), fastest(|pass| pass.1), fastest(|pass| pass.2));
            sizes.push(Measured {
                batch,
                passes: passes.len(),
                records_per_second: 1e9 / all.max(f64::MIN_POSITIVE),
                record_nanos: all,
                hand_over_nanos: hand_over,
                guest_nanos: (all - hand_over - emit).max(0.0),
                emit_nanos: emit,
            });
        }
        Ok((sizes, output_ratio))
    };
    let (sizes, output_ratio) = measured.with_subscriber(NoSubscriber::default()).await?;
    let descriptor = &subject.code.descriptor;
    Ok(Bench {
        plugin: format!("{} {}", descriptor.name, descriptor.version),
        records: input.len(),
        input_is_cut: input.is_cut,
        output_ratio,
        sizes,
    })
}

/// What a pass took.
struct Pass {
    time: Duration,
    process_time: Duration,
    emitting: Duration,
    output_ratio: f64,
}

async fn pass(subject: &Subject, input: &Input, stops: usize, batch: usize) -> Result<Pass, OperatorError> {
    let course = Course::every(input, stops, subject.inputs());
    let steps = course.steps(input, Cutting::Every(batch));
    let mut session = Session::open(subject, Share::ALL, course.begin()).await?;
    // Nobody listens.
    let mut said = Said::default();
    for (number, &step) in steps.steps.iter().enumerate() {
        session.step(number, step, input, &mut said).await?;
    }
    let usage = &session.usage;
    Ok(Pass {
        time: usage.time,
        process_time: usage.process_time,
        emitting: session.emitting(),
        output_ratio: usage.records_out as f64 / usage.records_in.max(1) as f64,
    })
}
