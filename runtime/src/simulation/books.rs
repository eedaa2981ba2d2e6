//! What the auditor knows of the simulated job: what its state and output have to be at every cut, and what the destination
//! holds, staged and visible.
//!
//! Exactly once is checked when a manifest appears: what was published along its line of parents, with what it names itself, is exactly
//! what comes of the records before its positions, neither more nor less, but for windows that its state still has open. Then it only has
//! to become visible as it is named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::connectors::offset;
use super::model::{Model, Out, Published};
use super::mutants::{Mutant, mutant};
use super::operator::{OpState, Slot};
use crate::checkpoint::auditor::{Audited, Content, ensure};
use crate::checkpoint::testing::run;
use crate::checkpoint::{JobStore, Manifest, NodeEntry, read_segments};
use crate::connector::{Abandoned, Committed, Looked, TaskContext};
use crate::flow::Progress;
use crate::model::{CommitIdentity, Committable, Epoch, Generation, JobId, NodeName};

/// The books of the simulated job.
pub(crate) type Books = crate::checkpoint::auditor::Books<JobContent>;

/// The names of its nodes.
pub(crate) const SOURCE: &str = "read";
pub(crate) const OPERATOR: &str = "count";

/// What the job's output and state are, and have to be.
pub(crate) struct JobContent {
    model: Arc<Model>,
    staged: BTreeMap<String, Staged>,
    visible: BTreeMap<CommitKey, (Vec<Committable>, Vec<Out>)>,
    given_up: BTreeSet<CommitKey>,
    /// Up to each checkpoint, along its line.
    published: BTreeMap<(JobId, Epoch), Published>,
}

type CommitKey = (JobId, NodeName, Epoch);

struct Staged {
    job: JobId,
    generation: Generation,
    outs: Vec<Out>,
}

fn name(committable: &Committable) -> String {
    String::from_utf8_lossy(&committable.data).into_owned()
}

impl JobContent {
    pub(crate) fn new(model: Arc<Model>) -> Self {
        Self {
            model,
            staged: BTreeMap::new(),
            visible: BTreeMap::new(),
            given_up: BTreeSet::new(),
            published: BTreeMap::new(),
        }
    }

    /// A sink makes something durable under a name.
    pub(crate) fn stage(&mut self, name: &str, job: JobId, generation: Generation, outs: Vec<Out>) {
        self.staged.insert(name.to_owned(), Staged { job, generation, outs });
    }

    /// Makes what is staged visible, once for each identity.
    pub(crate) fn commit(
        &mut self,
        identity: &CommitIdentity,
        committables: &[Committable],
    ) -> Result<Committed, String> {
        let key = (identity.job, identity.node.clone(), identity.epoch);
        let is_forgetful = mutant(Mutant::ForgetfulDestination);
        if let (Some((before, _)), false) = (self.visible.get(&key), is_forgetful) {
            ensure!(before == committables, "I4: a second commit of {key:?} names {committables:?} and not {before:?}");
            return Ok(Committed::AlreadyApplied);
        }
        ensure!(!self.given_up.contains(&key), "I5: {key:?} was given up, and is committed");
        let mut outs = Vec::new();
        for committable in committables {
            let staged = self.staged.get(&name(committable));
            let staged = staged.ok_or_else(|| format!("I9: {} is committed, and is gone", name(committable)))?;
            outs.extend_from_slice(&staged.outs);
        }
        if is_forgetful {
            ensure!(!self.visible.contains_key(&key), "I4: a second commit of {key:?} publishes everything again");
        } else {
            committables.iter().for_each(|committable| drop(self.staged.remove(&name(committable))));
        }
        self.visible.insert(key, (committables.to_vec(), outs));
        Ok(Committed::Applied)
    }

    /// Makes sure that something never becomes visible, if it is not yet.
    pub(crate) fn abandon(&mut self, identity: &CommitIdentity) -> Abandoned {
        let key = (identity.job, identity.node.clone(), identity.epoch);
        if self.visible.contains_key(&key) {
            return Abandoned::AlreadyPublished;
        }
        self.given_up.insert(key);
        Abandoned::Done
    }

    /// What a commit would find.
    pub(crate) fn look(&self, identity: &CommitIdentity) -> Looked {
        let key = (identity.job, identity.node.clone(), identity.epoch);
        let (published, given_up) = (self.visible.contains_key(&key), self.given_up.contains(&key));
        Looked { destination: "simulated".into(), published, given_up, staged: Vec::new() }
    }

    /// The content of what a node of a manifest names, staged or visible.
    fn named(&self, manifest: &Manifest, node: &NodeEntry) -> Result<Vec<Out>, String> {
        let key = (manifest.job_id, node.name.clone(), manifest.epoch);
        if let Some((_, outs)) = self.visible.get(&key) {
            return Ok(outs.clone());
        }
        let mut outs = Vec::new();
        for committable in &node.committables {
            let staged = self.staged.get(&name(committable));
            let staged = staged.ok_or_else(|| {
                format!("I5: checkpoint {} names {}, which is not staged", manifest.epoch, name(committable))
            })?;
            outs.extend_from_slice(&staged.outs);
        }
        Ok(outs)
    }
}

/// Where each split stands.
fn positions(manifest: &Manifest) -> Result<BTreeMap<u32, u32>, String> {
    let node = manifest.node(SOURCE).ok_or("I2: a manifest without the source")?;
    let mut positions = BTreeMap::new();
    for position in node.subtasks.iter().flat_map(|subtask| &subtask.positions) {
        let split = position.split.parse().map_err(|e| format!("split {:?}: {e}", position.split))?;
        ensure!(positions.insert(split, offset(&position.offset)).is_none(), "I2: split {split} has two positions");
    }
    Ok(positions)
}

impl Content for JobContent {
    fn completed(&mut self, manifest: &Manifest, parent: Option<&Manifest>, store: &JobStore) -> Audited {
        let positions = positions(manifest)?;
        let expected = self.model.at(&positions);
        let (mut counts, mut windows, mut ticks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let node = manifest.node(OPERATOR).ok_or("I2: a manifest without the operator")?;
        for (number, subtask) in node.subtasks.iter().enumerate() {
            let what = format!("{OPERATOR}[{number}] in checkpoint {}", manifest.epoch);
            let chunks = run(read_segments(store, &subtask.segments)).map_err(|e| format!("I1: {what}: {e}"))?;
            let state = OpState::read(&chunks)?;
            for (slot, count) in state.slots {
                let before = match slot {
                    Slot::Count { key, split } => counts.insert((key, split), count),
                    Slot::Window { key, start } => windows.insert((key, start), count),
                };
                ensure!(before.is_none(), "I2: {slot:?} is in the state of two subtasks");
            }
            ticks.insert(number as u32, state.own.ticks);
            ensure!(
                subtask.watermark == state.own.watermark,
                "I11: {what} was told watermark {}, and the manifest says {}",
                state.own.watermark,
                subtask.watermark
            );
            let Progress::Inbox { state: inbox, wake_at, .. } = Progress::decode(&subtask.progress)? else {
                return Err(format!("I11: {what} has the progress of a source"));
            };
            let has_ended = inbox.inputs.iter().all(|input| input.ended);
            ensure!(
                has_ended || wake_at == state.own.wake_at,
                "I11: {what} asked to be woken at {:?}, and the manifest says {wake_at:?}",
                state.own.wake_at
            );
        }
        ensure!(
            counts == expected.counts,
            "I2: the counts in checkpoint {} are {counts:?}, and at {positions:?} they are {:?}",
            manifest.epoch,
            expected.counts
        );
        let before = parent.and_then(|parent| self.published.get(&(manifest.job_id, parent.epoch)));
        let mut published = before.cloned().unwrap_or_default();
        for node in &manifest.nodes {
            published.add(&self.named(manifest, node)?)?;
        }
        published.check(&expected, &windows, &ticks)?;
        let is_end =
            self.model.splits.iter().enumerate().all(|(split, end)| positions.get(&(split as u32)) == Some(end));
        ensure!(
            !manifest.finished || (is_end && windows.is_empty()),
            "I2: finished at {positions:?}, with {windows:?} open"
        );
        self.published.insert((manifest.job_id, manifest.epoch), published);
        Ok(())
    }

    fn is_visible(&self, manifest: &Manifest, sink: &NodeName) -> bool {
        self.visible.contains_key(&(manifest.job_id, sink.clone(), manifest.epoch))
    }
}

impl Books {
    /// A source was opened there. I2: where its run's claim says.
    pub(crate) fn opened(&mut self, context: &TaskContext, splits: &[(u32, u32)]) -> Audited {
        let history = self.histories.get(&context.job_id).ok_or("I2: a source of a job that has no history")?;
        let base = history.base_of(context.generation).map(positions).transpose()?.unwrap_or_default();
        // Below the boundary nothing of its run is left to compare with; it cannot complete anything any more.
        if history.newest_claim().is_none_or(|(claim, ..)| claim != context.generation.0) {
            return Ok(());
        }
        for (split, at) in splits {
            let claimed = base.get(split).copied().unwrap_or(0);
            ensure!(
                *at == claimed,
                "I2: split {split} is opened at {at}, and the run of generation {} starts at {claimed}",
                context.generation
            );
        }
        Ok(())
    }

    /// A run removes what runs before it staged. I9: nothing of it is waited for by an open commit.
    pub(crate) fn discard(&mut self, job: JobId, before: Generation) -> Audited {
        let open: Vec<String> = self.histories.get(&job).map_or(Vec::new(), |history| {
            let point = history.restore_point();
            let nodes = point.into_iter().flat_map(|point| point.nodes.iter().map(move |node| (point, node)));
            let is_open = |(point, node): &(&Manifest, &NodeEntry)| !self.content.is_visible(point, &node.name);
            nodes.filter(is_open).flat_map(|(_, node)| node.committables.iter().map(name)).collect()
        });
        let (mut gone, mut needed) = (0, None);
        self.content.staged.retain(|name, staged| {
            let goes = staged.job == job && staged.generation < before;
            gone += u64::from(goes);
            if goes && open.contains(name) {
                needed = Some(name.clone());
            }
            !goes
        });
        if gone > 0 {
            self.saw("staged output discarded by a restore");
        }
        match needed {
            Some(name) => Err(format!("I9: {name} is discarded, and waits to be committed")),
            None => Ok(()),
        }
    }
}
