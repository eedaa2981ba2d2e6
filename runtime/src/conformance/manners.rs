//! Manners: what the contract allows and an input rarely has.
//!
//! Each case runs on an instance of its own, among records of the input, and ends with a snapshot, a restore (unless restores are known to fail) and
//! the end of time. No call may fail:
//! a record that cannot be processed is rejected. What is said is not looked at.

use super::course::Step;
use super::fidelity::relay;
use super::finding::{Check, Checked, Finding};
use super::said::{Said, ShownRecord};
use super::session::{Call, Session, Share};
use super::trial::Trial;
use crate::model::{Batch, END_OF_TIME, NO_TIME, RECORD_BYTES_MAX, SnapshotMode, Timestamp};
use crate::plugin::OperatorError;

/// How many records of the input go before and after what is odd.
const AROUND: usize = 20;

/// How many records of the input are told backwards.
const BACKWARDS: usize = 1_000;

/// Event time, key and value of a record.
type Plain<'a> = (Timestamp, Option<&'a [u8]>, Option<&'a [u8]>);

/// Something that is done to an instance.
enum Act {
    Process(Box<Batch>),
    Advance(Timestamp),
    Wake,
    /// Another instance goes on.
    Restore,
}

/// What is tried, and on what.
struct Case {
    name: &'static str,
    acts: Vec<Act>,
    hint: &'static str,
}

/// See the module. `cuts` are those of the fidelity check, none if that has failed.
pub(super) async fn manners(trial: &Trial<'_>, cuts: Option<&[usize]>) -> Checked {
    let (mut findings, mut names) = (Vec::<Finding>::new(), Vec::new());
    let (mut tried, mut failed) = (0, 0);
    for case in cases(trial, cuts.is_some()) {
        names.push(case.name);
        tried += 1;
        if let Err(finding) = behave(trial, case).await {
            failed += 1;
            // The same fault shows in several cases.
            match findings.iter_mut().find(|known| known.error == finding.error) {
                Some(known) => {
                    let setting = known.setting.take().unwrap_or_default();
                    known.setting = Some(format!("{setting}; also {}", finding.setting.unwrap_or_default()));
                }
                None => findings.push(*finding),
            }
        }
    }
    if let Some(cuts) = cuts {
        names.push("a watermark told again after a restore");
        let again = relay(trial, cuts, true).await.err();
        names.push("a snapshot given up");
        let given_up = given_up(trial, cuts).await.err().map(|finding| *finding);
        tried += 2;
        failed += usize::from(again.is_some()) + usize::from(given_up.is_some());
        findings.extend(again.into_iter().chain(given_up));
    }
    let summary = if findings.is_empty() { names.join(", ") } else { format!("{failed} of {tried} cases fail") };
    let notes = vec!["empty batches are not tried: the contract says that a batch has at least one record".to_owned()];
    Checked::new(Check::Manners, summary, findings, notes)
}

fn cases(trial: &Trial<'_>, restores: bool) -> Vec<Case> {
    const REJECT: &str =
        "reject what cannot be processed, with a reason, and go on: one odd record must not end an instance";
    let input = trial.input;
    let records = &input.records;
    // A record of the input that has both.
    let whole = (0..records.len()).find(|&row| records.keys.get(row).is_some() && records.values.get(row).is_some());
    let row = whole.unwrap_or(0);
    let (key, value) = (records.keys.get(row).unwrap_or(b"key"), records.values.get(row).unwrap_or(b"{}"));
    let time = records.timestamps[row];
    let newest = input.watermark(input.len());
    let batch = |rows: &[Plain<'_>]| {
        let mut batch = Batch::default();
        rows.iter().for_each(|(time, key, value)| batch.push(*time, *key, *value));
        batch
    };
    let case = |name, acts, hint| Case { name, acts, hint };
    let each = |batch: &Batch| -> Vec<Act> {
        let one = |row| {
            let mut one = Batch::default();
            one.push_row(batch, row);
            Act::Process(Box::new(one))
        };
        (0..batch.len()).map(one).collect()
    };
    let mut cases = Vec::new();

    let later = |n: i64| newest.unwrap_or(0).saturating_add(n);
    let silent = vec![
        Act::Restore,
        Act::Advance(later(-1_000_000)),
        Act::Wake,
        Act::Advance(later(0)),
        Act::Restore,
        Act::Advance(later(1)),
    ];
    cases.push(case(
        "advance without data",
        silent,
        "an instance may be told of time, be saved and end before it has had any record",
    ));

    let parts: [Option<&[u8]>; 3] = [None, Some(b""), Some(key)];
    let values: [Option<&[u8]>; 3] = [None, Some(b""), Some(value)];
    let pairs: Vec<_> = parts.iter().flat_map(|&key| values.iter().map(move |&value| (time, key, value))).collect();
    let nulls = batch(&pairs);
    // Alone, so that a column that nobody has is there as well; then together.
    let mut acts = each(&nulls);
    acts.push(Act::Process(Box::new(nulls)));
    cases.push(case(
        "null and empty keys and values",
        acts,
        "a record may have no key and no value (a tombstone), and an empty key is a key: reject what cannot be processed, and go on",
    ));

    let odd: [&[u8]; 12] = [
        b"\xff\xfe\x00\x80",
        b"{",
        b"{\"a\":",
        b"null",
        b"true",
        b"-0",
        b"1e999999",
        b"\"text\"",
        b"[]",
        b"{}",
        b"{\"a\":1}{\"a\":2}",
        b"\0",
    ];
    let mut rows: Vec<Plain<'_>> = odd.iter().map(|&value| (time, Some(key), Some(value))).collect();
    let deep = b"[".repeat(100_000);
    rows.push((time, Some(key), Some(&deep)));
    rows.push((time, Some(b"\xff\xfe\x00\x80"), Some(value)));
    cases.push(case("values and keys that nobody expects", each(&batch(&rows)), REJECT));

    let times = [NO_TIME, NO_TIME + 1, -1, 0, 1, END_OF_TIME - 1, END_OF_TIME];
    let rows: Vec<_> = times.iter().map(|&time| (time, Some(key), Some(value))).collect();
    cases.push(case(
        "event times at both ends, and none",
        each(&batch(&rows)),
        "a record may have no event time (-2^63), or one so far away that adding to it overflows: reject it, and go on",
    ));

    let mut backwards = Batch::default();
    (0..input.len().min(BACKWARDS)).rev().for_each(|row| backwards.push_row(records, row));
    let mut acts: Vec<Act> = newest.map(Act::Advance).into_iter().collect();
    for from in (0..backwards.len()).step_by(7) {
        let mut seven = Batch::default();
        (from..(from + 7).min(backwards.len())).for_each(|row| seven.push_row(&backwards, row));
        acts.push(Act::Process(Box::new(seven)));
    }
    cases.push(case("time running backwards", acts, "records may be out of order, and behind the watermark"));

    let mut headers = batch(&[(time, Some(key), Some(value)), (time, Some(key), Some(value))]);
    headers.headers.push(0, Some(b"\x01\x00a\x02\x00\x00\x00bc"));
    headers.headers.push(1, Some(b""));
    cases.push(case(
        "headers",
        vec![Act::Process(Box::new(headers))],
        "a record may have headers: what hands columns on has to hand on all of a batch",
    ));

    let largest = vec![b'x'; RECORD_BYTES_MAX];
    let acts = vec![
        Act::Process(Box::new(batch(&[(time, Some(key), Some(&largest))]))),
        Act::Process(Box::new(batch(&[(time, Some(&largest), Some(value))]))),
    ];
    cases.push(case(
        "a key and a value of 16 MiB",
        acts,
        "a key and a value have at most 16 MiB each, which a node with default limits has to stand: do not copy them more often than needed, \
         reject what is too large to keep, and write state in pieces of at most 1 MiB",
    ));
    for case in &mut cases {
        surround(trial, case);
        case.acts.retain(|act| restores || !matches!(act, Act::Restore));
    }
    cases
}

/// Puts records of the input around what is odd, so that there is state; and a restore behind it.
fn surround(trial: &Trial<'_>, case: &mut Case) {
    let input = trial.input;
    let some = || input.slice(0, input.len().min(AROUND), |_| true);
    if !matches!(case.acts.first(), Some(Act::Restore)) {
        case.acts.insert(0, Act::Process(Box::new(some())));
    }
    case.acts.extend([Act::Restore, Act::Process(Box::new(some()))]);
}

async fn behave(trial: &Trial<'_>, case: Case) -> Result<(), Box<Finding>> {
    let subject = trial.subject;
    let begin = trial.course.begin();
    let Case { name, mut acts, hint } = case;
    let failed = |what: String, error: &OperatorError, given: Option<ShownRecord>| {
        let finding = Finding::failed("manners", what, error).setting(name).hint(hint);
        Box::new(Finding { given, ..finding })
    };
    let mut session = Session::open(subject, Share::ALL, begin)
        .await
        .map_err(|error| failed("it does not open again".to_owned(), &error, None))?;
    let outputs = subject.outputs();
    for act in &mut acts {
        let mut said = Said::new(outputs);
        let (result, what, given) = match act {
            Act::Process(batch) => {
                batch.hashes.clear();
                if subject.is_keyed() {
                    batch.hash_keys();
                }
                let result = session.call(Call::Process(subject.port, batch), 0, &mut said).await;
                let given = (batch.len() == 1).then(|| ShownRecord::new(batch, 0));
                (result, "it fails in process".to_owned(), given)
            }
            Act::Advance(watermark) => {
                let result = session.call(Call::Advance(*watermark), 0, &mut said).await;
                (result, "it fails in advance".to_owned(), None)
            }
            Act::Wake => {
                session.set_now(begin + 1);
                let result = session.call(Call::Wake, 0, &mut said).await;
                (result, "it fails in wake, which may come when nothing is due".to_owned(), None)
            }
            Act::Restore => match session.full_cut().await {
                Err(error) => (Err(error), "it does not write its state afterwards".to_owned(), None),
                Ok(cut) => match Session::restored(subject, Share::ALL, &cut).await {
                    Ok(restored) => {
                        session = restored;
                        (Ok(()), String::new(), None)
                    }
                    Err(error) => (Err(error), "it does not take its own state over afterwards".to_owned(), None),
                },
            },
        };
        result.map_err(|error| failed(what, &error, given))?;
    }
    let ends = (0..subject.inputs()).map(Call::Finish).chain([Call::Advance(END_OF_TIME)]);
    for call in ends {
        let mut said = Said::new(outputs);
        let result = session.call(call, 0, &mut said).await;
        result.map_err(|error| failed("it fails at the end of its input".to_owned(), &error, None))?;
    }
    Ok(())
}

/// A snapshot that is written in steps is given up for another one, which has to be whole. In one go there is nothing to give up.
async fn given_up(trial: &Trial<'_>, cuts: &[usize]) -> Result<(), Box<Finding>> {
    const HINT: &str = "a call of `snapshot` with another epoch begins a new snapshot, which is full: forget what the one before was \
                        about to write";
    let (subject, baseline) = (trial.subject, trial.baseline);
    let steps = &baseline.steps;
    let Some(&at) = cuts.get(cuts.len() / 2) else { return Ok(()) };
    let fault = |error: OperatorError| {
        Box::new(Finding::failed("snapshot-given-up", "it fails when a snapshot is given up", &error).hint(HINT))
    };
    let mut session = Session::open(subject, Share::ALL, trial.course.begin()).await.map_err(fault)?;
    let mut said = Said::new(subject.outputs());
    for (number, &step) in steps.steps.iter().enumerate().take(at) {
        session.step(number, step, trial.input, &mut said).await.map_err(fault)?;
        if step == Step::Stop {
            said = Said::new(subject.outputs());
        }
    }
    session.begin_snapshot();
    let mut written = super::state::Written { in_steps: true, ..Default::default() };
    if session.snapshot_step(SnapshotMode::Full, &mut written).await.map_err(fault)? || at >= steps.last {
        return Ok(());
    }
    session.step(at, steps.steps[at], trial.input, &mut said).await.map_err(fault)?;
    let cut = session.full_cut().await.map_err(fault)?;
    let mut restored = Session::restored(subject, Share::ALL, &cut).await.map_err(fault)?;
    let strictness = super::trial::Strictness { any_order_across_keys: false, state: true };
    let records = steps.records_before(at + 1);
    let finding = match trial.follow(&mut restored, steps, at + 1, strictness).await {
        super::trial::Verdict::Same { .. } => return Ok(()),
        super::trial::Verdict::Said(finding) => *finding,
        super::trial::Verdict::State(difference) => Finding { state: Some(difference), ..Finding::default() },
        super::trial::Verdict::Failed(_, error) => return Err(fault(error)),
    };
    let message = "after a snapshot was given up, the next one is not whole".to_owned();
    let finding = Finding { kind: "snapshot-given-up", message, cut_after: Some(records), ..finding.hint(HINT) };
    Err(Box::new(finding))
}
