//! Snapshot fidelity: a run that is cut, restored into a fresh instance and continued says what an undisturbed run says, and
//! writes the same next snapshot.
//!
//! In this order, so that the first that fails says the most:
//!
//! 1. snapshots are taken, and nothing is restored: taking one changes nothing;
//! 2. full snapshots, each restored and run to the end;
//! 3. incremental snapshots on top of one another, each restored and run to the end;
//! 4. the same written in steps, with the stream going on between them;
//! 5. a relay: at each cut a fresh instance takes over from the last, by incremental snapshots.

use super::course::Step;
use super::finding::{Check, Checked, Finding};
use super::said::Said;
use super::session::{Cut, Session, Share};
use super::state::{State, Written};
use super::trial::{Strictness, Trial, Verdict, call};
use crate::model::{SnapshotMode, StateKind};
use crate::plugin::{IDLE_STEPS_MAX, OperatorError};

/// What usually makes the order differ.
const ORDER: &str = "the order of a hash map or of memory addresses reaches the output, and it changes with whatever else takes memory, and \
                     when state is read back: sort by what the records hold, or keep state in collections whose order depends on \
                     their content alone";

/// How much memory an instance has that ran up to a cut, and one that was restored there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) records: usize,
    pub(super) grown: u64,
    pub(super) fresh: u64,
}

/// How snapshots are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Full,
    Incremental,
    Stepped,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Full => "full snapshot",
            Self::Incremental => "incremental snapshots",
            Self::Stepped => "incremental snapshots, written in steps while the stream goes on",
        }
    }

    /// What usually makes the output differ.
    fn hint(self) -> &'static str {
        match self {
            Self::Full => {
                "a field that decides over the output is forgotten: compare the fields of the operator with what `snapshot` \
                 writes and what `restore` reads"
            }
            Self::Incremental => {
                "full snapshots are right, so an incremental one leaves out something that has changed since the last one: \
                 look for a change that is not noted, removals too (an empty base clears a segment)"
            }
            Self::Stepped => {
                "in one go it is right, so a later step writes what has changed after the cut: keep the old value of \
                 what changes before it is written, or write everything in the first call"
            }
        }
    }
}

/// What came of it so far.
#[derive(Debug, Default)]
struct Tally {
    restores: usize,
    /// Restores that failed, in the way that is being tried.
    failed: usize,
    first: Option<Finding>,
    state_bytes: u64,
    chunk_bytes: u64,
    memory: Vec<Memory>,
    /// Of the full snapshot at each cut.
    hashes: Vec<blake3::Hash>,
    /// Snapshots that were written in more than one step.
    stepped: usize,
}

/// What the other checks want to know of it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) state_bytes: u64,
    pub(super) chunk_bytes: u64,
    pub(super) memory: Vec<Memory>,
}

/// See the module. `cuts` are numbers of steps.
pub(super) async fn fidelity(trial: &Trial<'_>, cuts: &[usize]) -> (Checked, Seen) {
    let mut tally = Tally::default();
    let code = &trial.subject.code;
    let found = 'found: {
        if let Err(finding) = walk(trial, cuts, Way::Full, false, &mut tally).await {
            break 'found Some(finding);
        }
        let ways: &[Way] = match code.descriptor.state {
            StateKind::Stateless => &[Way::Full],
            _ => &[Way::Full, Way::Incremental, Way::Stepped],
        };
        for &way in ways {
            if let Err(finding) = walk(trial, cuts, way, true, &mut tally).await {
                break 'found Some(finding);
            }
            if let Some(mut finding) = tally.first.take() {
                finding.message = format!("{} ({} of {} cuts)", finding.message, tally.failed, cuts.len());
                break 'found Some(finding);
            }
        }
        relay(trial, cuts, false).await.err()
    };
    let restored = match code.descriptor.state {
        StateKind::Stateless => format!("it says that it has no state, and {} fresh instances agree", tally.restores),
        _ => format!(
            "{} restores at {} cuts and a relay over all of them: same output, same next snapshot",
            tally.restores,
            cuts.len()
        ),
    };
    let mut notes = Vec::new();
    if code.image.is_some() {
        notes.push("its state is an image of its memory, which the host takes".to_owned());
    } else if code.descriptor.state != StateKind::Stateless && tally.stepped == 0 && found.is_none() {
        notes.push("every snapshot was written in one call: a large state will make the stream wait".to_owned());
    }
    let summary = match &found {
        None => restored,
        Some(_) => format!("{} restores were made", tally.restores),
    };
    let seen = Seen { state_bytes: tally.state_bytes, chunk_bytes: tally.chunk_bytes, memory: tally.memory };
    (Checked::new(Check::Fidelity, summary, found.into_iter().collect(), notes), seen)
}

/// A snapshot that is being written.
struct Open {
    at: usize,
    cut: Cut,
    mode: SnapshotMode,
    written: Written,
    steps: u32,
}

/// Runs a donor through the input and cuts it; with `restore`, a fresh instance goes on from each cut.
async fn walk(trial: &Trial<'_>, cuts: &[usize], way: Way, restore: bool, tally: &mut Tally) -> Result<(), Finding> {
    let (subject, baseline) = (trial.subject, trial.baseline);
    let (steps, outputs) = (&baseline.steps, subject.outputs());
    tally.failed = 0;
    let opened = Session::open(subject, Share::ALL, trial.course.begin()).await;
    let mut donor = opened.map_err(|error| Finding::failed("open", "it does not open again", &error))?;
    let (mut said, mut stop) = (Said::new(outputs), 0);
    let (mut held, mut open, mut taken) = (State::default(), None::<Open>, 0_usize);
    for (number, &step) in steps.steps.iter().enumerate() {
        let is_cut = cuts.binary_search(&number).is_ok();
        // A cut that comes before the end of a snapshot drives it to its end.
        if is_cut {
            while let Some(writing) = open.take() {
                open = go_on(trial, cuts, &mut donor, writing, &mut held, tally).await?;
            }
        }
        if is_cut {
            let mode = if taken == 0 || way == Way::Full { SnapshotMode::Full } else { SnapshotMode::Incremental };
            donor.begin_snapshot();
            let written = Written { in_steps: way == Way::Stepped, ..Written::default() };
            let begun = Open { at: number, cut: donor.cut(), mode, written, steps: 0 };
            match way {
                Way::Stepped => open = go_on(trial, cuts, &mut donor, begun, &mut held, tally).await?,
                Way::Full | Way::Incremental => {
                    let mut writing = Some(begun);
                    while let Some(begun) = writing.take() {
                        writing = step_of(trial, &mut donor, begun, &mut held).await?;
                    }
                    let cut = Cut { state: held.clone(), ..donor.cut() };
                    tally.state_bytes = tally.state_bytes.max(held.bytes());
                    tally.chunk_bytes = tally.chunk_bytes.max(held.chunk_bytes_max());
                    if way == Way::Full && !restore {
                        tally.hashes.push(held.hash());
                    }
                    // What was restored already needs no second look.
                    let is_new = way == Way::Full || tally.hashes.get(taken) != Some(&held.hash());
                    if restore && is_new {
                        try_cut(trial, cuts, number, way, &cut, tally).await;
                    }
                }
            }
            taken += 1;
        }
        if number == steps.last {
            while let Some(writing) = open.take() {
                open = go_on(trial, cuts, &mut donor, writing, &mut held, tally).await?;
            }
            let state = donor.full_state().await;
            let state = state.map_err(|error| Finding::failed("snapshot", "it does not write its state", &error))?;
            if let Some(difference) = baseline.state.difference(&state) {
                let message = "taking snapshots changes what a later snapshot holds";
                let hint =
                    "`snapshot` must not change the state that it writes: look for what it drains, clears or resets";
                let finding = Finding::new("snapshot-disturbs", message, hint).setting(way.name());
                return Err(Finding { state: Some(difference), ..finding });
            }
        }
        if let Err(error) = donor.step(number, step, trial.input, &mut said).await {
            let message = format!("after a snapshot was taken it fails in {}", call(step));
            return Err(Finding::failed("snapshot-disturbs", message, &error).setting(way.name()));
        }
        if let Some(writing) = open.take() {
            open = go_on(trial, cuts, &mut donor, writing, &mut held, tally).await?;
        }
        if step == Step::Stop {
            if let Some(difference) = baseline.said(stop).and_then(|with| with.difference(0, &said)) {
                let finding = trial.describe(stop, difference).setting(way.name());
                let (message, hint) = match finding.kind {
                    "order" => ("after a snapshot was taken it says the same in another order", ORDER),
                    _ => (
                        "taking snapshots changes what the operator says afterwards",
                        "`snapshot` must not change what the operator does: look for what it drains, clears or resets",
                    ),
                };
                return Err(Finding { kind: "snapshot-disturbs", message: message.to_owned(), ..finding.hint(hint) });
            }
            said = Said::new(outputs);
            stop += 1;
        }
    }
    Ok(())
}

/// One call of `snapshot`. What was begun is given back while it is not done; then it is in `held`.
async fn step_of(
    trial: &Trial<'_>,
    donor: &mut Session,
    mut open: Open,
    held: &mut State,
) -> Result<Option<Open>, Finding> {
    let before = open.written.chunks.len();
    let done = donor.snapshot_step(open.mode, &mut open.written).await;
    open.steps = if open.written.chunks.len() == before { open.steps + 1 } else { open.steps };
    match done {
        Ok(false) if open.steps <= IDLE_STEPS_MAX => Ok(Some(open)),
        Ok(true) => {
            held.apply(open.mode, 0, std::mem::take(&mut open.written));
            Ok(None)
        }
        Ok(false) => Err(snapshot_failed(trial, open.at, open.mode, &OperatorError::says_nothing("snapshot"))),
        Err(error) => Err(snapshot_failed(trial, open.at, open.mode, &error)),
    }
}

fn snapshot_failed(trial: &Trial<'_>, at: usize, mode: SnapshotMode, error: &OperatorError) -> Finding {
    let mode = if mode == SnapshotMode::Full { "a full" } else { "an incremental" };
    let records = trial.baseline.steps.records_before(at);
    let finding = Finding::failed("snapshot", format!("it does not write its state in {mode} snapshot"), error);
    Finding { cut_after: Some(records), ..finding }
}

/// A step of a snapshot while the stream goes on, and what follows when it was the last.
async fn go_on(
    trial: &Trial<'_>,
    cuts: &[usize],
    donor: &mut Session,
    open: Open,
    held: &mut State,
    tally: &mut Tally,
) -> Result<Option<Open>, Finding> {
    let (at, cut, began) = (open.at, open.cut.clone(), open.written.chunks.is_empty() && open.steps == 0);
    let open = step_of(trial, donor, open, held).await?;
    if open.is_none() && !began {
        tally.stepped += 1;
        let cut = Cut { state: held.clone(), ..cut };
        try_cut(trial, cuts, at, Way::Stepped, &cut, tally).await;
    }
    Ok(open)
}

/// Goes on from a cut in a fresh instance, to the end.
async fn try_cut(trial: &Trial<'_>, cuts: &[usize], number: usize, way: Way, cut: &Cut, tally: &mut Tally) {
    tally.restores += 1;
    let steps = &trial.baseline.steps;
    let records = steps.records_before(number);
    let at = cuts.binary_search(&number).unwrap_or_default();
    let found = match Session::restored(trial.subject, Share::ALL, cut).await {
        Err(error) => Some(Finding::failed("restore", "it does not take its own state over", &error)),
        Ok(mut session) => {
            if way == Way::Full
                && let Some(&grown) = trial.baseline.memory.get(at)
            {
                tally.memory.push(Memory { records, grown, fresh: session.memory_bytes() });
            }
            let strictness = Strictness { any_order_across_keys: false, state: true };
            judge(trial.follow(&mut session, steps, number, strictness).await, way, trial)
        }
    };
    let Some(finding) = found else { return };
    tally.failed += 1;
    if tally.first.is_none() {
        let setting = format!("cut {} of {}, after {records} records; {}", at + 1, cuts.len(), way.name());
        tally.first = Some(Finding { cut_after: Some(records), ..finding.setting(setting) });
    }
}

/// What a verdict on a restored instance means.
fn judge(verdict: Verdict, way: Way, trial: &Trial<'_>) -> Option<Finding> {
    match verdict {
        Verdict::Same { .. } => None,
        Verdict::Said(finding) if finding.kind == "order" => {
            let message = "a restored instance says the same in another order".to_owned();
            Some(Finding { message, ..finding.hint(ORDER) })
        }
        Verdict::Said(finding) => {
            let message = "a restored instance says something else".to_owned();
            let hint = match trial.subject.code.descriptor.state {
                StateKind::Stateless => {
                    "it describes itself as stateless and remembers something: say so in `describe`, and write it in `snapshot`"
                }
                _ => way.hint(),
            };
            Some(Finding { message, ..finding.hint(hint) })
        }
        Verdict::State(difference) => {
            let message = "a restored instance says the same and writes another snapshot";
            let hint = "`restore` does not take over all that `snapshot` wrote, or what `snapshot` writes depends on the order of a \
                        map, or on what was written before: equal states should be equal to the byte";
            let finding = Finding::new("state", message, hint);
            Some(Finding { state: Some(difference), ..finding })
        }
        Verdict::Failed(step, error) => {
            let steps = &trial.baseline.steps;
            let message = format!(
                "a restored instance fails in {}",
                steps.steps.get(step).copied().map(call).unwrap_or_default()
            );
            let records = steps.records_before(step);
            let finding = Finding::failed("restored-fails", message, &error);
            Some(Finding { input: Some((records, records)), ..finding })
        }
    }
}

/// A fresh instance takes over at every cut; with `again`, the last watermark is told again first.
pub(super) async fn relay(trial: &Trial<'_>, cuts: &[usize], again: bool) -> Result<(), Finding> {
    let (subject, baseline) = (trial.subject, trial.baseline);
    let (steps, outputs) = (&baseline.steps, subject.outputs());
    let opened = Session::open(subject, Share::ALL, trial.course.begin()).await;
    let mut session = opened.map_err(|error| Finding::failed("open", "it does not open again", &error))?;
    let (mut said, mut stop, mut held) = (Said::new(outputs), 0, State::default());
    let (mut last_cut, mut taken) = (None, 0);
    for (number, &step) in steps.steps.iter().enumerate() {
        if cuts.binary_search(&number).is_ok() {
            let mode = if taken == 0 { SnapshotMode::Full } else { SnapshotMode::Incremental };
            let cut = session.cut();
            let written = session.snapshot(mode).await;
            held.apply(mode, 0, written.map_err(|error| snapshot_failed(trial, number, mode, &error))?);
            taken += 1;
            let cut = Cut { state: held.clone(), ..cut };
            let records = steps.records_before(number);
            session = Session::restored(subject, Share::ALL, &cut).await.map_err(|error| {
                let finding = Finding::failed(
                    "restore",
                    "it does not take over from an instance that was restored itself",
                    &error,
                );
                Finding { cut_after: Some(records), ..finding }
            })?;
            last_cut = Some(records);
            if let Some(watermark) = steps.watermark_before(number).filter(|_| again) {
                let repeated = session.step(number, Step::Advance(watermark), trial.input, &mut said).await;
                repeated.map_err(|error| {
                    let finding = Finding::failed(
                        "watermark-again",
                        "after a restore it fails when a watermark is told again",
                        &error,
                    );
                    Finding { cut_after: Some(records), ..finding }
                })?;
            }
        }
        let setting = || {
            let records = last_cut.unwrap_or_default();
            let what = if again { "and told the last watermark again" } else { "by incremental snapshots" };
            format!("replaced at each of {} cuts {what}, the last time after {records} records", cuts.len())
        };
        if let Err(error) = session.step(number, step, trial.input, &mut said).await {
            let finding =
                Finding::failed("relay", format!("after several restores it fails in {}", call(step)), &error);
            return Err(Finding { cut_after: last_cut, ..finding.setting(setting()) });
        }
        if step == Step::Stop {
            if let Some(difference) = baseline.said(stop).and_then(|with| with.difference(0, &said)) {
                let finding = trial.describe(stop, difference).setting(setting());
                let (kind, message, hint) = match again {
                    true => (
                        "watermark-again",
                        "after a restore it says something else when the last watermark is told again",
                        "the first watermark after a restore may be one that the state has seen: keep in the state what was \
                         emitted already, or how far the watermark had come",
                    ),
                    false => (
                        "relay",
                        "an instance that takes over from a restored one says something else",
                        "after `restore` state counts as stored as it was read: look for what a restored instance does not \
                         note as changed, so that its next incremental snapshot leaves it out",
                    ),
                };
                return Err(Finding { kind, message: message.to_owned(), cut_after: last_cut, ..finding.hint(hint) });
            }
            said = Said::new(outputs);
            stop += 1;
        }
    }
    Ok(())
}
