//! Rescale: state that is split over several subtasks, over one more, and merged again gives the same output for each key.
//!
//! Every subtask gets the records of its key groups, in their order, and everything else at the same places. What the subtasks say is compared as
//! a downstream node with the same keys sees it: which records there are up to each stop, not how those of different subtasks are mixed.

use super::course::Step;
use super::finding::{Check, Checked, Finding};
use super::said::Said;
use super::session::{Cut, Session, Share};
use super::state::{State, StateDifference, Undealt};
use super::trial::{Trial, call};
use crate::model::{KEY_GROUPS_DEFAULT, StateKind};
use crate::plugin::HostCut;

/// How often the state goes from one subtask to several and back.
const ROUNDS: u64 = 3;

/// See the module.
pub(super) async fn rescale(trial: &Trial<'_>, parallelism: u32, seed: u64) -> Checked {
    let code = &trial.subject.code;
    let skipped = |why: &str| Checked::skipped(Check::Rescale, why);
    if code.image.is_some() {
        return skipped(
            "its state is an image of its memory, which fits one parallelism only: a job with state refuses another one",
        );
    }
    if code.descriptor.state == StateKind::Whole {
        return skipped("its state is that of the subtask as a whole, as it says itself: it does not follow keys");
    }
    if !trial.subject.is_keyed() {
        return skipped("its input is not keyed: any record may go to any subtask");
    }
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let mut rounds = 0;
    for round in 0..ROUNDS {
        let mut cuts = trial.baseline.steps.cuts(5, seed.wrapping_add(1 + round));
        // The first and the last of five are always the same.
        if let [_, a, b, c, _] = cuts[..] {
            cuts = vec![a, b, c];
        }
        let [a, b, c] = cuts[..] else { break };
        match ride(trial, [(a, parallelism), (b, (parallelism + 1).min(KEY_GROUPS_DEFAULT)), (c, 1)]).await {
            Ok(ridden) => {
                rounds += 1;
                if ridden.other_order && notes.is_empty() {
                    notes.push(
                        "records with one key come in another order where several subtasks say them: its output has other keys \
                         than its input"
                            .to_owned(),
                    );
                }
                if let Some(difference) = ridden.state
                    && !notes.iter().any(|note: &String| note.starts_with("merged"))
                {
                    notes.push(format!("merged again, the snapshot is not that of the undisturbed run: {difference}"));
                }
            }
            Err(finding) => {
                findings.push(*finding);
                break;
            }
        }
    }
    if rounds == 0 && findings.is_empty() {
        return skipped("the input has too few records to change the parallelism on the way");
    }
    let summary = format!(
        "{rounds} rides from 1 subtask to {parallelism}, to {} and back to 1: same output for each key",
        (parallelism + 1).min(KEY_GROUPS_DEFAULT)
    );
    let summary = if findings.is_empty() { summary } else { format!("from 1 subtask to {parallelism} and back") };
    Checked::new(Check::Rescale, summary, findings, notes)
}

/// What came of a ride that went well.
struct Ridden {
    other_order: bool,
    state: Option<StateDifference>,
}

/// Runs through the input and changes the parallelism at these steps.
async fn ride(trial: &Trial<'_>, changes: [(usize, u32); 3]) -> Result<Ridden, Box<Finding>> {
    let (subject, baseline) = (trial.subject, trial.baseline);
    let (steps, outputs) = (&baseline.steps, subject.outputs());
    let opened = Session::open(subject, Share::ALL, trial.course.begin()).await;
    let mut sessions = vec![opened.map_err(|error| Finding::failed("open", "it does not open again", &error))?];
    let (mut said, mut stop) = (Said::new(outputs), 0);
    let mut ridden = Ridden { other_order: false, state: None };
    let way = |number: usize| {
        let mut text = "1 subtask".to_owned();
        for (at, parallelism) in changes.iter().filter(|(at, _)| *at <= number) {
            text.push_str(&format!(", {parallelism} after {} records", steps.records_before(*at)));
        }
        text
    };
    for (number, &step) in steps.steps.iter().enumerate() {
        if let Some((_, parallelism)) = changes.iter().find(|(at, _)| *at == number) {
            let moved = reshape(trial, sessions, *parallelism).await;
            sessions = moved.map_err(|finding| {
                Box::new(Finding { cut_after: Some(steps.records_before(number)), ..finding.setting(way(number)) })
            })?;
        }
        if number == steps.last
            && let [session] = &mut sessions[..]
            && let Ok(state) = session.full_state().await
        {
            ridden.state = baseline.state.difference(&state);
        }
        for session in &mut sessions {
            if let Err(error) = session.step(number, step, trial.input, &mut said).await {
                let message = format!("with other subtasks it fails in {}", call(step));
                return Err(Box::new(Finding::failed("rescaled-fails", message, &error).setting(way(number))));
            }
        }
        if step == Step::Stop {
            if let Some(expected) = baseline.said(stop) {
                if let Some(difference) = expected.difference_in_any_order(&said) {
                    let finding = trial.describe(stop, difference).setting(way(number));
                    let finding = finding.hint(
                        "state did not follow its keys: each piece belongs into the segment of its key's group \
                         (`(((hash >> 32) & 0xffff) * key-groups) >> 16`), what is written as `shared` has to be equal in all \
                         subtasks, and nothing may be counted over all keys",
                    );
                    let message = "with its state on other subtasks it says something else for a key".to_owned();
                    return Err(Box::new(Finding { kind: "rescale", message, ..finding }));
                }
                ridden.other_order |= !expected.is_same_by_key(&said);
            }
            said = Said::new(outputs);
            stop += 1;
        }
    }
    Ok(ridden)
}

/// Takes the state of all subtasks and deals it out to so many others.
async fn reshape(trial: &Trial<'_>, sessions: Vec<Session>, parallelism: u32) -> Result<Vec<Session>, Finding> {
    let mut cuts = Vec::new();
    for mut session in sessions {
        let cut = session.full_cut().await;
        cuts.push(cut.map_err(|error| Finding::failed("snapshot", "a subtask does not write its state", &error))?);
    }
    let states: Vec<State> = cuts.iter().map(|cut| cut.state.clone()).collect();
    let dealt = State::deal(&states, parallelism).map_err(|undealt| match undealt {
        Undealt::Subtask(bytes) => Finding::new(
            "own-state",
            format!("it says that its state is by key, and writes {bytes} bytes that belong to one subtask alone"),
            "write them into the segments of key groups, or as `shared` if all subtasks have the same; or describe the state as \
             `whole`: a job refuses to start with another parallelism as it is",
        ),
        Undealt::Twice(group) => Finding::new(
            "group-twice",
            format!("two subtasks wrote key group {group}"),
            "a subtask may write only its own key groups: see task-info",
        ),
    })?;
    // As a job deals out what a task keeps: nobody draws again, time goes back for nobody, and nobody is woken too late.
    let seen = cuts.iter().map(|cut| cut.host);
    let host =
        seen.reduce(|a, b| HostCut { draws: a.draws.max(b.draws), seen: a.seen.max(b.seen) }).unwrap_or_default();
    let wake_at = cuts.iter().filter_map(|cut| cut.wake_at).min();
    let now = cuts.iter().map(|cut| cut.now).max().unwrap_or(trial.course.begin());
    let mut sessions = Vec::new();
    for (subtask, state) in (0..parallelism).zip(dealt) {
        let share = Share { subtask, parallelism };
        let cut = Cut { state, host, wake_at, now };
        let session = Session::restored(trial.subject, share, &cut).await;
        sessions.push(session.map_err(|error| {
            let message = format!("subtask {subtask} of {parallelism} does not take over the state that is dealt to it");
            let hint = "a subtask gets the key groups that are its own, what is shared, and perhaps items: each has to be \
                        readable alone";
            Finding::failed("restore", message, &error).hint(hint)
        })?);
    }
    Ok(sessions)
}
