//! Does an operator keep the contract, and how fast is it: `weir plugin test` and `weir plugin bench`.
//!
//! ```text
//!                  ┌─► undisturbed run ──── what it said, stop by stop; its state; what it used
//! input ─► course ─┤                                 ║ compared
//!                  └─► runs that are cut and restored, batched otherwise, later, on several subtasks
//! ```
//!
//! An operator is called here as a task of a job calls it, one call at a time, but in a time that is virtual. Two runs that may differ
//! in nothing that can be seen are compared record by record, and what differs first is told with what usually causes it. Read `course`, then
//! `session`, then `trial`; after that each check is a file.
//!
//! Nothing here knows a job, a store or a channel; nothing depends on how fast the machine is, but for what is measured and told.

mod bench;
mod course;
mod determinism;
mod fidelity;
mod finding;
mod input;
mod limits;
mod manners;
mod rescale;
mod said;
mod session;
mod state;
mod trial;

pub use bench::{Bench, BenchSettings, Measured, Start, bench, start};
pub use finding::{Check, Checked, Finding, Outcome};
pub use input::{INPUT_BYTES_MAX, Input};
pub use limits::Used;
pub use said::ShownRecord;
pub use session::Subject;
pub use state::StateDifference;

use serde::Serialize;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use self::course::{Course, Cutting};
use self::trial::{Baseline, Trial, Unfinished};
use crate::plan::LimitsSpec;

/// How an operator is tried.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// At how many places it is cut.
    pub cuts: usize,
    /// Decides where.
    pub seed: u64,
    /// Over how many subtasks its state is split.
    pub parallelism: u32,
    /// It is meant to look at the processing time.
    pub processing_time: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { cuts: 20, seed: 1, parallelism: 3, processing_time: false }
    }
}

/// What came of all checks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Nothing is wrong.
    pub passed: bool,
    /// Name and version of the plugin.
    pub plugin: String,
    /// How it was tried.
    pub settings: Settings,
    /// Records that were used.
    pub records: usize,
    /// Those of them that have a key.
    pub records_with_key: usize,
    /// Those that have an event time.
    pub records_with_time: usize,
    /// The input has more records than were used.
    pub input_is_cut: bool,
    /// How many stops there are at which time moves and watermarks are told.
    pub stops: usize,
    /// What it used in the undisturbed run; none if that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
    /// In the order in which they were made.
    pub checks: Vec<Checked>,
}

/// Makes all checks. `limits` are those that the instances of the subject have, `about` is told which check begins.
///
/// What the operator logs is seen in the undisturbed run only.
pub async fn test(
    subject: &Subject,
    mut input: Input,
    settings: &Settings,
    limits: &LimitsSpec,
    about: &(dyn Fn(Check) + Sync),
) -> Report {
    let descriptor = &subject.code.descriptor;
    about(Check::Run);
    let (course, baseline, cuts) = loop {
        let course = Course::new(&input, settings.seed, subject.inputs());
        let steps = course.steps(&input, Cutting::Mixed);
        let cuts = steps.cuts(settings.cuts, settings.seed);
        match Baseline::run(subject, &input, &course, steps, &cuts).await {
            Ok(baseline) => break (course, Ok(baseline), cuts),
            // It says so much that the input is made shorter.
            Err(Unfinished::TooMuch(records)) if input.len() > 1 => {
                input.keep((records - records / 10).clamp(1, input.len() - 1));
            }
            Err(unfinished) => break (course, Err(unfinished), cuts),
        }
    };
    let mut report = Report {
        passed: false,
        plugin: format!("{} {}", descriptor.name, descriptor.version),
        settings: settings.clone(),
        records: input.len(),
        records_with_key: input.keyed(),
        records_with_time: input.timed(),
        input_is_cut: input.is_cut,
        stops: course.len(),
        used: None,
        checks: Vec::new(),
    };
    let baseline = match baseline {
        Ok(baseline) => baseline,
        Err(unfinished) => {
            let finding = match unfinished {
                Unfinished::Failed(finding) => *finding,
                Unfinished::TooMuch(_) => {
                    let message = "a single record leads to more output than is kept for comparing";
                    Finding::new("output", message, "find out why it says so much")
                }
            };
            report.checks.push(Checked::new(
                Check::Run,
                "it does not get through the input",
                vec![finding],
                Vec::new(),
            ));
            let others = Check::ALL.into_iter().filter(|check| *check != Check::Run);
            report
                .checks
                .extend(others.map(|check| Checked::skipped(check, "there is no undisturbed run to compare with")));
            return report;
        }
    };
    let trial = Trial { subject, input: &input, course: &course, baseline: &baseline };
    report.checks.push(ran(&trial));
    let quiet = async {
        let mut checks = Vec::new();
        about(Check::Fidelity);
        let (checked, seen) = fidelity::fidelity(&trial, &cuts).await;
        let is_faithful = checked.outcome == Outcome::Passed;
        checks.push(checked);
        about(Check::Determinism);
        checks.push(determinism::determinism(&trial, settings.processing_time).await);
        about(Check::Rescale);
        checks.push(match is_faithful {
            true => rescale::rescale(&trial, settings.parallelism, settings.seed).await,
            false => Checked::skipped(Check::Rescale, "its snapshots have to be right first"),
        });
        about(Check::Limits);
        let used = Used::new(&baseline.usage, &seen, limits);
        checks.push(limits::limits(&trial, &seen, &used));
        about(Check::Manners);
        checks.push(manners::manners(&trial, is_faithful.then_some(&cuts[..])).await);
        (checks, used)
    };
    let (checks, used) = quiet.with_subscriber(NoSubscriber::default()).await;
    report.checks.extend(checks);
    report.used = Some(used);
    report.passed = report.checks.iter().all(|checked| checked.outcome != Outcome::Failed);
    report
}

/// What the undisturbed run says about the input itself.
fn ran(trial: &Trial<'_>) -> Checked {
    let usage = &trial.baseline.usage;
    let mut notes = Vec::new();
    if usage.rejected > 0 && usage.records_out == 0 {
        notes.push(
            "every record was rejected, so hardly anything was tried: see --format, --key and --config".to_owned(),
        );
    }
    if trial.subject.is_keyed() && trial.input.keyed() == 0 {
        notes.push("the input port is keyed and no record has a key: give --key".to_owned());
    }
    if trial.input.timed() == 0 {
        notes
            .push("no record has an event time, so no watermark was told before the end: give --event-time".to_owned());
    }
    let summary = format!(
        "{} calls, {} records in, {} out, {} rejected",
        usage.calls, usage.records_in, usage.records_out, usage.rejected
    );
    Checked::new(Check::Run, summary, Vec::new(), notes)
}
