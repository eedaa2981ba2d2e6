//! Determinism: the same input leads to the same output, whatever must not matter.
//!
//! What must not matter is varied one at a time: nothing at all, then how batches are cut, then what time it is.

use super::course::{Course, Cutting};
use super::finding::{Check, Checked, Finding};
use super::session::{Session, Share};
use super::trial::{Strictness, Trial, Verdict, call};

/// How batches are cut besides.
const CUTTINGS: [Cutting; 3] = [Cutting::Every(1), Cutting::Every(7), Cutting::Every(1000)];

/// How much later the input comes: no whole number of any unit of time, and another weekday.
const LATER_MICROS: i64 = ((37 * 24 + 5) * 60 + 7) * 60_000_000 + 11_000_013;

/// See the module. With `uses_time` the operator is meant to look at the processing time.
pub(super) async fn determinism(trial: &Trial<'_>, uses_time: bool) -> Checked {
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let strict = Strictness { any_order_across_keys: false, state: true };
    let again = run(trial, trial.course, Cutting::Mixed, strict).await;
    if let Some(finding) = judge(again, "run a second time, with the same calls at the same times", trial, |finding| {
        Finding {
        kind: "not-deterministic",
        message: "two runs with the same calls say different things".to_owned(),
        ..finding.hint(
            "something reaches the output that is not in the calls: real randomness or a real clock, or whether a log level is \
             enabled",
        )
    }
    }) {
        findings.push(finding);
    }
    if !findings.is_empty() {
        return Checked::new(Check::Determinism, "the second run already differs", findings, notes);
    }
    let loose = Strictness { any_order_across_keys: true, state: false };
    for cutting in CUTTINGS {
        let verdict = run(trial, trial.course, cutting, loose).await;
        if let Verdict::Same { order, state } = &verdict {
            if let Some(order) = order
                && notes.is_empty()
            {
                let port = order.port.clone().unwrap_or_default();
                notes.push(format!(
                    "with {cutting} records of different keys come in another order on port {port}: allowed, and a replay keeps it"
                ));
            }
            if state.is_some()
                && trial.subject.code.image.is_none()
                && !notes.iter().any(|note| note.contains("snapshot"))
            {
                notes.push(format!(
                    "with {cutting} the output is the same and the snapshot is not: the state holds something of how batches were cut"
                ));
            }
        }
        let setting = format!("{cutting} instead of {}", Cutting::Mixed);
        let finding = judge(verdict, &setting, trial, |finding| {
            Finding {
            kind: "batch-boundaries",
            message: "what it says depends on where batches are cut".to_owned(),
            ..finding.hint(
                "batches are cut by chance: look for what is done once a batch (a sum, the last record, a flush, the time of the \
                 first record) and should be done once a record, or in `advance`",
            )
        }
        });
        if let Some(finding) = finding {
            findings.push(finding);
            break;
        }
    }
    if uses_time {
        notes.push("--processing-time: it was not run at another time".to_owned());
    } else {
        let later = trial.course.later(LATER_MICROS);
        let verdict =
            run(trial, &later, Cutting::Mixed, Strictness { any_order_across_keys: false, state: false }).await;
        let finding = judge(verdict, "run 37 days, 5 hours, 7 minutes and 11.000013 seconds later", trial, |finding| {
            Finding {
            kind: "processing-time",
            message: "what it says depends on the time at which it runs".to_owned(),
            ..finding.hint(
                "a clock reaches the output (`timers.now` or a WASI clock): take the event time of records instead, or, if it is \
                 meant to, give --processing-time",
            )
        }
        });
        findings.extend(finding);
    }
    let summary = match findings.is_empty() {
        false => "the same again with the same calls",
        true if uses_time => "the same again, in batches of 1, of 7 and of 1,000",
        true => "the same again, in batches of 1, of 7 and of 1,000, and at another time",
    };
    Checked::new(Check::Determinism, summary, findings, notes)
}

async fn run(trial: &Trial<'_>, course: &Course, cutting: Cutting, strictness: Strictness) -> Verdict {
    let steps = course.steps(trial.input, cutting);
    match Session::open(trial.subject, Share::ALL, course.begin()).await {
        Ok(mut session) => trial.follow(&mut session, &steps, 0, strictness).await,
        Err(error) => Verdict::Failed(0, error),
    }
}

/// `name` says what is wrong if the output differs.
fn judge(verdict: Verdict, setting: &str, trial: &Trial<'_>, name: impl Fn(Finding) -> Finding) -> Option<Finding> {
    let finding = match verdict {
        Verdict::Same { .. } => return None,
        Verdict::Said(finding) => name(*finding),
        Verdict::State(difference) => {
            let finding = name(Finding::default());
            let message = "two runs with the same calls say the same and write different snapshots".to_owned();
            Finding { state: Some(difference), message, ..finding }
        }
        Verdict::Failed(step, error) => {
            let steps = &trial.baseline.steps.steps;
            let message = match steps.get(step) {
                Some(&step) if setting.starts_with("run") => format!("it fails in {}, and did not before", call(step)),
                _ => "it fails, and did not before".to_owned(),
            };
            Finding::failed("fails", message, &error)
        }
    };
    Some(finding.setting(setting))
}
