//! The next version of an operator, put in place of the one that runs: compared, restored beside it, swapped at a
//! barrier, watched, and taken back if it fails.
//!
//! ```text
//! asked ─► recording ─► shadowing ─► swapping ─► watched ─► confirmed
//!          from cut n   restored     at cut m    until a checkpoint after m is complete
//!                       from n       (the pause)     │
//!   └──────────┴────────────┴──► given up            └──► taken back: the job starts over from its newest
//!                                nothing happened         checkpoint with the old code; nothing later is published
//! ```
//!
//! This file holds what is known of one upgrade and decides; the coordinator gives its barriers and tells it what came
//! of them, the supervisor takes it back. It outlives a run: what has swapped is settled by the run that comes after a
//! failure, from what the log holds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::control::{Answer, Call, Refusal};
use crate::checkpoint::{Manifest, Refused};
use crate::error::ErrorKind;
use crate::flow::{CAUGHT_UP, Compared, OperatorCode, Shadow, ShadowPhase, ShadowStatus, ShadowTask, UpgradeHandle};
use crate::model::{Epoch, NodeName, Port, StateKind, TaskId, Timestamp};
use crate::plan::{PipelineSpec, show_duration};

/// How long opening and restoring the new version may take.
const RESTORE_MAX: Duration = Duration::from_secs(600);
/// How long it may take to catch up with the stream after that, if nothing else is said.
const CATCH_UP: Duration = Duration::from_secs(60);
/// How often an upgrade that has swapped may make a job start over that would have given up.
const TAKEN_BACK_MAX: u32 = 3;

/// The next version of an operator.
#[derive(Debug)]
pub struct Upgrade {
    /// Which operator.
    pub node: NodeName,
    /// Its next version: other code, or the same with another configuration.
    pub code: OperatorCode,
    /// How long it runs beside the old one at least, and its output is compared, before it takes over.
    pub shadow: Option<Duration>,
    /// On how many of the subtasks first. Not yet possible.
    pub canary: Option<u32>,
    /// How long it may be behind the old one before it is given up as too slow. Default one minute.
    pub catch_up: Option<Duration>,
}

/// The same as a plain value: what a front is asked, before it has loaded the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Which operator.
    pub node: String,
    /// Its next plugin, as a pipeline file names one; none: the one that it runs.
    #[serde(default)]
    pub plugin: Option<String>,
    /// Its next configuration, a JSON object; none: the one that it has.
    #[serde(default)]
    pub config: Option<serde_json::Value>,
    /// How long it runs beside the old one at least, in microseconds.
    #[serde(default)]
    pub shadow_us: Option<u64>,
    /// On how many of the subtasks first.
    #[serde(default)]
    pub canary: Option<u32>,
    /// How long it may be behind the old one before it is given up as too slow, in microseconds.
    #[serde(default)]
    pub catch_up_us: Option<u64>,
}

/// Some code, as it calls itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CodeVersion {
    /// Its version.
    pub version: String,
    /// The blake3 hash of its bytes, in hexadecimal digits.
    pub digest: String,
    /// The version of the state that it writes.
    pub state_version: u32,
}

impl CodeVersion {
    fn of(code: &OperatorCode) -> Self {
        Self {
            version: code.descriptor.version.clone(),
            digest: blake3::Hash::from_bytes(code.digest).to_hex().to_string(),
            state_version: code.descriptor.state_version,
        }
    }
}

/// An upgrade that is done: the new version is in a complete checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UpgradeReport {
    /// Which operator.
    pub node: String,
    /// What it ran.
    pub from: CodeVersion,
    /// What it runs.
    pub to: CodeVersion,
    /// The checkpoint that the new version was restored from.
    #[schema(value_type = u64)]
    pub restored: Epoch,
    /// The one at whose barrier it took over.
    #[schema(value_type = u64)]
    pub swapped: Epoch,
    /// The first complete one that holds its state.
    #[schema(value_type = u64)]
    pub confirmed: Epoch,
    /// How long each subtask stood still at the swap, in microseconds.
    pub pauses_us: Vec<u64>,
    /// What both versions said to the same calls.
    pub compared: Compared,
    /// From the request until it was confirmed, in microseconds.
    pub took_us: u64,
}

/// How far an upgrade is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UpgradeStatus {
    /// Which operator.
    pub node: String,
    /// The version that is to take over.
    pub version: String,
    /// `asked`, `recording`, `restoring`, `shadowing`, `swapping` or `watched`.
    pub phase: String,
    /// How far the subtask that is most behind is behind, in microseconds.
    pub lag_us: u64,
    /// Bytes of calls that wait to be done again, in all subtasks.
    pub waiting_bytes: u64,
    /// Records that both versions have worked on.
    pub records: u64,
    /// Calls to which they said something different.
    pub differing_calls: u64,
}

/// What becomes of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A checkpoint is to be taken from which recording begins.
    Asked,
    /// Its barrier is on its way.
    Recording { from: Epoch },
    /// Every subtask has a shadow.
    Shadowing { from: Epoch, since: Duration },
    /// A checkpoint is to be taken at which they take over.
    Ready { from: Epoch },
    /// Its barrier is on its way, or behind.
    Swapping { from: Epoch, at: Epoch },
}

/// What there is to do about an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing now.
    Wait,
    /// It cannot be done.
    GiveUp(String),
}

/// An upgrade under way.
#[derive(Debug)]
pub(super) struct Upgrading {
    wish: Upgrade,
    was: CodeVersion,
    call: Call,
    began: Duration,
    phase: Phase,
    shadows: BTreeMap<TaskId, Shadow>,
    /// Ended when this is dropped.
    at_work: Vec<ShadowTask>,
    /// All of them have been restored.
    restored_at: Option<Duration>,
    /// Why the run ended in which it had swapped, and whether the new version was the cause.
    failure: Option<(String, bool)>,
    taken_back: u32,
}

impl Upgrading {
    /// Begins one, if the new code can take the place of the old. Else `call` is answered.
    pub(super) fn begin(
        wish: Upgrade,
        call: Call,
        (code, spec): (&BTreeMap<NodeName, OperatorCode>, &PipelineSpec),
        now: Duration,
    ) -> Option<Self> {
        let compared = compare(&wish, code).and_then(|old| check_grants(&wish, spec).map(|()| old));
        let old = match compared {
            Ok(old) => old,
            Err(refusal) => {
                call.answer(Err(refusal));
                return None;
            }
        };
        let was = CodeVersion::of(old);
        tracing::info!(
            node = %wish.node,
            from = was.version,
            to = wish.code.descriptor.version,
            "an upgrade begins"
        );
        Some(Self {
            wish,
            was,
            call,
            began: now,
            phase: Phase::Asked,
            shadows: BTreeMap::new(),
            at_work: Vec::new(),
            restored_at: None,
            failure: None,
            taken_back: 0,
        })
    }

    pub(super) fn node(&self) -> &NodeName {
        &self.wish.node
    }

    /// Whether a checkpoint is to be taken for it now.
    pub(super) fn wants_checkpoint(&self) -> bool {
        matches!(self.phase, Phase::Asked | Phase::Ready { .. })
    }

    /// Whether somebody has to look how its shadows are getting on.
    pub(super) fn wants_look(&self) -> bool {
        matches!(self.phase, Phase::Shadowing { .. })
    }

    /// Whether the packs of an older checkpoint are still read.
    pub(super) fn needs_packs(&self) -> bool {
        match self.phase {
            Phase::Recording { .. } => true,
            Phase::Shadowing { .. } => self.restored_at.is_none(),
            Phase::Asked | Phase::Ready { .. } | Phase::Swapping { .. } => false,
        }
    }

    /// Whether the new version has taken over, or is about to, and no checkpoint holds it: only going back to one
    /// undoes that.
    pub(super) fn has_swapped(&self) -> bool {
        matches!(self.phase, Phase::Swapping { .. })
    }

    /// An attempt begins. Gives its orders, which have to be there before the barrier is.
    pub(super) fn attempt_begins(
        &mut self,
        epoch: Epoch,
        last: bool,
        handles: &BTreeMap<TaskId, UpgradeHandle>,
    ) -> Verdict {
        if last && !self.has_swapped() {
            return Verdict::GiveUp("the job ends".into());
        }
        let of_node = handles.iter().filter(|(task, _)| task.node == self.wish.node);
        match self.phase {
            Phase::Asked => {
                self.shadows = of_node.map(|(task, handle)| (task.clone(), handle.record(epoch))).collect();
                self.phase = Phase::Recording { from: epoch };
            }
            Phase::Ready { from } => {
                of_node.for_each(|(_, handle)| handle.swap(epoch));
                self.phase = Phase::Swapping { from, at: epoch };
            }
            Phase::Recording { .. } | Phase::Shadowing { .. } | Phase::Swapping { .. } => {}
        }
        Verdict::Wait
    }

    /// An attempt failed.
    pub(super) fn attempt_failed(&self, epoch: Epoch, reason: &str) -> Verdict {
        match self.phase {
            Phase::Recording { from } if from == epoch => Verdict::GiveUp(format!(
                "checkpoint {epoch}, which the new version was to begin with, failed: {reason}"
            )),
            // A barrier that is on its way comes to its end, and the swap with it: the next complete checkpoint is
            // watched for.
            _ => Verdict::Wait,
        }
    }

    /// A checkpoint is complete and committed. True: it is the one that confirms the upgrade.
    pub(super) fn completed(
        &mut self,
        manifest: &Manifest,
        handles: &BTreeMap<TaskId, UpgradeHandle>,
        now: Duration,
    ) -> bool {
        match self.phase {
            Phase::Recording { from } if from == manifest.epoch => {
                let node = manifest.node(self.wish.node.as_str());
                for (task, shadow) in &self.shadows {
                    let entry = node.and_then(|node| node.subtasks.get(task.subtask as usize));
                    if let (Some(handle), Some(entry)) = (handles.get(task), entry) {
                        self.at_work.push(handle.start(shadow, &self.wish.code, entry, self.was.state_version));
                    }
                }
                self.phase = Phase::Shadowing { from, since: now };
                false
            }
            Phase::Swapping { at, .. } => manifest.epoch > at,
            _ => false,
        }
    }

    /// Looks how the shadows are getting on.
    pub(super) fn look(&mut self, now: Duration) -> Verdict {
        let Phase::Shadowing { from, since } = self.phase else { return Verdict::Wait };
        let statuses: Vec<(&TaskId, ShadowStatus)> =
            self.shadows.iter().map(|(task, shadow)| (task, shadow.status())).collect();
        let failed = statuses.iter().find_map(|(task, status)| Some((task, status.fault.as_ref()?)));
        if let Some((task, fault)) = failed {
            return Verdict::GiveUp(format!("the new version failed beside the old one, in {task}: {fault}"));
        }
        if self.restored_at.is_none() {
            if statuses.iter().all(|(_, status)| status.phase == ShadowPhase::Working) {
                self.restored_at = Some(now);
            } else if now.saturating_sub(since) > RESTORE_MAX {
                let limit = show_duration(RESTORE_MAX);
                return Verdict::GiveUp(format!("the new version was not restored within {limit}"));
            }
        }
        let Some(restored_at) = self.restored_at else { return Verdict::Wait };
        let beside = now.saturating_sub(restored_at);
        let shadow = self.wish.shadow.unwrap_or_default();
        if beside < shadow {
            return Verdict::Wait;
        }
        let behind = statuses.iter().map(|(_, status)| status.lag).max().unwrap_or_default();
        if behind <= CAUGHT_UP {
            self.phase = Phase::Ready { from };
        } else if beside - shadow > self.wish.catch_up.unwrap_or(CATCH_UP) {
            let (limit, behind) = (show_duration(self.wish.catch_up.unwrap_or(CATCH_UP)), behind.as_secs_f64());
            return Verdict::GiveUp(format!(
                "the new version is too slow: it did not catch up within {limit}, and is {behind:.1} s behind"
            ));
        }
        Verdict::Wait
    }

    /// The code of a node in the checkpoint with this number, if it is that of the new version.
    pub(super) fn code_of(&self, node: &NodeName, epoch: Epoch) -> Option<&OperatorCode> {
        match self.phase {
            Phase::Swapping { at, .. } if epoch > at && *node == self.wish.node => Some(&self.wish.code),
            _ => None,
        }
    }

    /// Ends it: nothing happened, for this reason.
    pub(super) fn give_up(self, reason: &str) {
        for shadow in self.shadows.values() {
            shadow.cancel();
        }
        let node = self.wish.node.as_str();
        tracing::warn!(node, reason, "the upgrade is given up; the old version goes on");
        let reason = reason.lines().next().unwrap_or_default();
        let message = format!("node {node:?} was not upgraded: {reason}");
        let help = "the old version goes on, and nothing was lost or repeated; mend the cause and ask again";
        self.call.answer(Err(refusal(ErrorKind::Plugin, message, help)));
    }

    /// Ends it well. Gives what the node runs from now on.
    pub(super) fn confirm(self, confirmed: Epoch, now: Duration) -> (NodeName, OperatorCode) {
        let mut compared = Compared::default();
        let mut pauses_us = Vec::new();
        for shadow in self.shadows.values() {
            let status = shadow.status();
            compared.merge(&status.compared);
            pauses_us.push(micros(status.pause.unwrap_or_default()));
        }
        let (restored, swapped) = match self.phase {
            Phase::Swapping { from, at } => (from, at),
            _ => (confirmed, confirmed),
        };
        let report = UpgradeReport {
            node: self.wish.node.to_string(),
            from: self.was,
            to: CodeVersion::of(&self.wish.code),
            restored,
            swapped,
            confirmed,
            pauses_us,
            compared,
            took_us: micros(now.saturating_sub(self.began)),
        };
        tracing::info!(
            node = report.node,
            version = report.to.version,
            %confirmed,
            pauses_us = ?report.pauses_us,
            differing_calls = report.compared.differing_calls,
            "the upgrade is confirmed"
        );
        self.call.answer(Ok(Answer::Upgraded(Box::new(report))));
        (self.wish.node, self.wish.code)
    }

    /// A run ended badly, and this is what there is to say about it.
    pub(super) fn note_failure(&mut self, task: Option<&TaskId>, reason: String) {
        let is_own = task.is_some_and(|task| task.node == self.wish.node);
        self.failure.get_or_insert((reason, is_own));
    }

    /// Whether the job may start over because of it, though it would have been given up. Not for ever.
    pub(super) fn may_take_back(&mut self) -> bool {
        self.taken_back += 1;
        self.has_swapped() && self.taken_back <= TAKEN_BACK_MAX
    }

    /// What the newest complete checkpoint of the run that has failed says: it holds the new version, or it does not.
    pub(super) fn is_in(&self, tip: Option<Epoch>) -> bool {
        matches!(self.phase, Phase::Swapping { at, .. } if tip > Some(at))
    }

    /// What goes into the log, if the new version was the cause of the failure.
    pub(super) fn refused(&self, created_at: Timestamp) -> Option<Refused> {
        let (Phase::Swapping { at, .. }, Some((reason, true))) = (self.phase, &self.failure) else { return None };
        Some(Refused {
            node: self.wish.node.clone(),
            digest: self.wish.code.digest,
            version: self.wish.code.descriptor.version.clone(),
            epoch: at,
            reason: reason.clone(),
            created_at,
        })
    }

    /// Ends it: the job starts over with the old version.
    pub(super) fn taken_back(self, tip: Option<Epoch>) {
        let node = self.wish.node.as_str();
        let (reason, is_own) = self.failure.unwrap_or_else(|| ("the job failed".into(), false));
        let whose = if is_own { "it failed" } else { "the job failed for another reason" };
        let from = tip.map_or_else(|| "the beginning".to_owned(), |tip| format!("checkpoint {tip}"));
        let (new, old) = (&self.wish.code.descriptor.version, &self.was.version);
        tracing::warn!(node, new, old, reason, "the upgrade is taken back: the job starts over from {from}");
        // A backtrace is for the log.
        let reason = reason.lines().next().unwrap_or_default();
        let message = format!(
            "node {node:?} was upgraded to version {new} and {whose} before a checkpoint was complete: {reason}; it is \
             taken back, and the job starts over from {from} with version {old}"
        );
        let help = "nothing that the new version emitted is published; mend the cause and ask again";
        self.call.answer(Err(refusal(ErrorKind::Plugin, message, help)));
    }

    /// How far it is.
    pub(super) fn status(&self) -> UpgradeStatus {
        let statuses: Vec<ShadowStatus> = self.shadows.values().map(Shadow::status).collect();
        let phase = match self.phase {
            Phase::Asked => "asked",
            Phase::Recording { .. } => "recording",
            Phase::Shadowing { .. } if self.restored_at.is_none() => "restoring",
            Phase::Shadowing { .. } | Phase::Ready { .. } => "shadowing",
            Phase::Swapping { .. } if statuses.iter().all(|status| status.phase == ShadowPhase::Taken) => "watched",
            Phase::Swapping { .. } => "swapping",
        };
        UpgradeStatus {
            node: self.wish.node.to_string(),
            version: self.wish.code.descriptor.version.clone(),
            phase: phase.into(),
            lag_us: micros(statuses.iter().map(|status| status.lag).max().unwrap_or_default()),
            waiting_bytes: statuses.iter().map(|status| status.waiting_bytes).sum(),
            records: statuses.iter().map(|status| status.compared.records).sum(),
            differing_calls: statuses.iter().map(|status| status.compared.differing_calls).sum(),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn refusal(kind: ErrorKind, message: String, help: &str) -> Refusal {
    Refusal { code: kind.exit_code(), message, help: Some(help.into()) }
}

/// Whether the new code can take the place of the old, which it gives; why not.
fn compare<'a>(wish: &Upgrade, code: &'a BTreeMap<NodeName, OperatorCode>) -> Result<&'a OperatorCode, Refusal> {
    let name = wish.node.as_str();
    let refuse = |why: String, help: &str| {
        let message = format!("node {name:?} cannot be upgraded: {why}");
        Err(refusal(ErrorKind::Plugin, message, help))
    };
    let Some(old) = code.get(&wish.node) else {
        let operators = code.keys().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
        let message = format!("the job has no operator {name:?}; its operators are: {operators}");
        return Err(refusal(ErrorKind::Usage, message, "name one of them"));
    };
    if wish.canary.is_some() {
        let message = "an upgrade of some of the subtasks first is not possible yet".to_owned();
        return Err(refusal(ErrorKind::Usage, message, "leave the canary out; a shadow compares before it takes over"));
    }
    let (was, is) = (&old.descriptor, &wish.code.descriptor);
    if was.name != is.name {
        return refuse(
            format!("it runs plugin {:?}, and the new one is plugin {:?}", was.name, is.name),
            "stop the job, and give the node another plugin and another name",
        );
    }
    for (what, was, is) in [("input", &was.inputs, &is.inputs), ("output", &was.outputs, &is.outputs)] {
        if let Some(difference) = ports_differ(was, is) {
            return refuse(
                format!("its {what} ports differ: {difference}"),
                "the edges of a running job are fixed: stop it, change the pipeline, and run it again",
            );
        }
    }
    if old.image.is_some() || wish.code.image.is_some() {
        let which = if old.image.is_some() { "the version that runs" } else { "the new version" };
        return refuse(
            format!("the state of {which} is an image of its memory, which only the same code can read"),
            "write snapshot and restore in the plugin; until then drop its state: `weir run --drop-state`",
        );
    }
    if was.state != is.state {
        let word = |state| match state {
            StateKind::Stateless => "no state",
            StateKind::Whole => "one state for each subtask",
            StateKind::Keyed => "state by key",
        };
        return refuse(
            format!("it keeps {}, and the new version keeps {}", word(was.state), word(is.state)),
            "stop the job, and run it with --drop-state or under another name of the node",
        );
    }
    let readable = is.oldest_state_version..=is.state_version;
    if was.state != StateKind::Stateless && !readable.contains(&was.state_version) {
        return refuse(
            format!(
                "its state has version {}, and version {} of the plugin reads versions {} to {}",
                was.state_version,
                is.version,
                readable.start(),
                readable.end()
            ),
            "use a version of the plugin that reads it",
        );
    }
    Ok(old)
}

/// Whether a version that is not live comes to the same state as one that is.
fn check_grants(wish: &Upgrade, spec: &PipelineSpec) -> Result<(), Refusal> {
    let operator = spec.operators.iter().find(|operator| operator.name == wish.node);
    if operator.is_none_or(|operator| operator.grants.http.is_empty()) {
        return Ok(());
    }
    let message = format!(
        "node {:?} cannot be upgraded while it runs: it may send requests over HTTP, which a version that is \
         tried beside it must not, so it would not have the answers",
        wish.node.as_str()
    );
    let help = "stop the job, change the pipeline, and run it again: the state is taken over from the last checkpoint";
    Err(refusal(ErrorKind::Plugin, message, help))
}

/// The first difference between two lists of ports.
fn ports_differ(was: &[Port], is: &[Port]) -> Option<String> {
    if was.len() != is.len() {
        let names = |ports: &[Port]| ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        return Some(format!("{} are {} now", names(was), names(is)));
    }
    was.iter().zip(is).find_map(|(was, is)| {
        let keyed = |port: &Port| if port.keyed { "keyed" } else { "not keyed" };
        if was.name != is.name {
            return Some(format!("{:?} is {:?} now", was.name, is.name));
        }
        (was.keyed != is.keyed).then(|| format!("{:?} was {} and is {} now", was.name, keyed(was), keyed(is)))
    })
}
