//! Carries a checkpoint over to a plan of another shape: what each subtask of the new plan is restored from.
//!
//! A pure function: a manifest and a plan go in, a manifest with exactly the nodes, subtasks and inputs of the plan comes out, or
//! the reasons why a node cannot be carried over. A node whose parallelism and inputs are those of the checkpoint is not
//! touched. Of any other:
//!
//! - key groups move to the subtask that owns them now, each whole; what all subtasks share is copied from one to all; a
//!   list of items is dealt out anew; what belongs to a subtask alone cannot be split, and is refused;
//! - a source gets the positions of all its subtasks, and its connector deals the splits out;
//! - timers, watermarks and the newest event time are the least of what the subtasks had, so nothing becomes late that was not;
//! - an input is what its sender is: as far as it has told its receivers, idle or ended. So a receiver never waits for an
//!   end that was told before, and never gets one twice (I11);
//! - record counters are kept in sum.
//!
//! Between two manifests of one chain nothing is in a channel: the inputs of a node may change freely, but an input port
//! that has ended cannot begin again, and the end of a port must not be forgotten.

use std::collections::{BTreeMap, BTreeSet};

use super::inbox::{InboxState, InputState};
use super::inputs_of;
use super::report::Progress;
use crate::checkpoint::NodeKind as EntryKind;
use crate::checkpoint::{Manifest, NodeEntry, SegmentRef, SubtaskEntry};
use crate::model::{NO_TIME, NodeName, Scope, SegmentKind, Timestamp, subtask_of_group};
use crate::plan::{NodeKind, Plan};
use crate::plugin::HostCut;

/// A checkpoint in the shape of a plan.
#[derive(Clone, Debug)]
pub struct Carried {
    /// What to restore. Nodes that the plan does not have are not in it.
    pub manifest: Manifest,
    /// Nodes whose state is not just what the same subtask wrote: their next snapshots have to be full.
    pub moved: BTreeSet<NodeName>,
    /// Why nodes cannot be carried over. If there are any, `manifest` is of no use.
    pub faults: BTreeMap<NodeName, Vec<String>>,
}

/// How far a subtask has told its receivers.
#[derive(Clone, Copy, Debug)]
struct Told {
    watermark: Timestamp,
    idle: bool,
    ended: bool,
}

impl Told {
    const NOTHING: Self = Self { watermark: NO_TIME, idle: false, ended: false };

    fn as_input(self) -> InputState {
        InputState { watermark: self.watermark, idle: self.idle, ended: self.ended }
    }
}

/// What became of a node of the plan: what its subtasks have told, and whether they are those of the checkpoint, untouched.
struct Done {
    told: Vec<Told>,
    same: bool,
}

/// Carries a checkpoint over to a plan. Key groups must be as many as before: nothing can be moved otherwise.
pub fn carry_over(manifest: &Manifest, plan: &Plan) -> Carried {
    let mut carried = Carried {
        manifest: Manifest { nodes: Vec::new(), ..manifest.clone() },
        moved: BTreeSet::new(),
        faults: BTreeMap::new(),
    };
    let mut done: Vec<Done> = Vec::new();
    // Topological order (P1): the senders of a node come before it.
    for (index, planned) in plan.nodes.iter().enumerate() {
        let old = manifest.node(planned.name.as_str());
        let mut faults = Vec::new();
        let entry = match planned.kind {
            NodeKind::Source(_) => old.map(|old| source(old, planned.parallelism, &mut done, &mut faults)),
            _ => Some(reader(plan, index, old, manifest.key_groups, &mut done, &mut faults)),
        };
        match entry {
            None => done.push(Done { told: vec![Told::NOTHING; planned.parallelism as usize], same: false }),
            Some(entry) => {
                if old.is_some_and(|old| old.parallelism != planned.parallelism) {
                    carried.moved.insert(planned.name.clone());
                }
                carried.manifest.nodes.push(entry);
            }
        }
        if !faults.is_empty() {
            faults.dedup();
            carried.faults.insert(planned.name.clone(), faults);
        }
    }
    carried
}

/// Carries a source over.
fn source(old: &NodeEntry, parallelism: u32, done: &mut Vec<Done>, faults: &mut Vec<String>) -> NodeEntry {
    let told_by = |entry: &SubtaskEntry| match Progress::decode(&entry.progress) {
        Ok(Progress::Source { newest, watermark, idle, ended }) => Ok((newest, Told { watermark, idle, ended })),
        Ok(Progress::Inbox { .. }) => Err("the checkpoint holds the progress of an operator for it".to_owned()),
        Err(fault) => Err(fault),
    };
    let mut all = Vec::new();
    for entry in &old.subtasks {
        match told_by(entry) {
            Ok(told) => all.push(told),
            Err(fault) => faults.push(fault),
        }
    }
    if old.parallelism == parallelism {
        done.push(Done { told: all.into_iter().map(|(_, told)| told).collect(), same: true });
        done.last_mut().into_iter().for_each(|done| done.told.resize(parallelism as usize, Told::NOTHING));
        return old.clone();
    }
    // Whoever has ended holds nothing back.
    let told = least(all.iter().map(|(_, told)| *told));
    let newest = all.iter().filter(|(_, told)| told.ended == all.iter().all(|(_, told)| told.ended));
    let newest = newest.map(|(newest, _)| *newest).min().unwrap_or(NO_TIME);
    let Told { watermark, idle, ended } = told;
    let progress = Progress::Source { newest, watermark, idle, ended }.encode();
    let positions: Vec<_> = old.subtasks.iter().flat_map(|entry| entry.positions.iter().cloned()).collect();
    let records = deal_records(old, parallelism);
    let subtasks = records.into_iter().map(|records| SubtaskEntry {
        positions: positions.clone(),
        progress: progress.clone(),
        watermark,
        records,
        ..SubtaskEntry::default()
    });
    let subtasks = subtasks.collect();
    done.push(Done { told: vec![told; parallelism as usize], same: false });
    NodeEntry { parallelism, subtasks, ..old.clone() }
}

/// What several subtasks have told, as if they were one: the least watermark of those that count, idle if all that have
/// not ended are, ended if all have.
fn least(all: impl Iterator<Item = Told> + Clone) -> Told {
    let min = |of: &mut dyn Iterator<Item = Told>| of.map(|told| told.watermark).min();
    let open = all.clone().filter(|told| !told.ended);
    let active = open.clone().filter(|told| !told.idle);
    let watermark = min(&mut active.clone()).or_else(|| min(&mut open.clone())).or_else(|| min(&mut all.clone()));
    let (ended, idle) = (open.clone().next().is_none(), active.clone().next().is_none());
    Told { watermark: watermark.unwrap_or(NO_TIME), idle: idle && !ended, ended }
}

/// What a cut holds of the inbox of a subtask.
struct OldInbox {
    names: Vec<String>,
    state: InboxState,
    wake_at: Option<Timestamp>,
    host: HostCut,
}

impl OldInbox {
    fn read(entry: &SubtaskEntry) -> Result<Self, String> {
        match Progress::decode(&entry.progress)? {
            Progress::Inbox { inputs, state, wake_at, host } if inputs.len() == state.inputs.len() => {
                Ok(Self { names: inputs, state, wake_at, host })
            }
            Progress::Inbox { inputs, state, .. } => {
                Err(format!("the checkpoint names {} inputs and has the state of {}", inputs.len(), state.inputs.len()))
            }
            Progress::Source { .. } => Err("the checkpoint holds the progress of a source for it".into()),
        }
    }

    fn input(&self, name: &str) -> Option<InputState> {
        self.names.iter().position(|known| known == name).map(|at| self.state.inputs[at])
    }

    /// Whether all inputs of a port have ended; none if it has no such port.
    fn has_ended(&self, port: u32) -> Option<bool> {
        let suffix = format!(" -> {port}");
        let inputs = self.names.iter().zip(&self.state.inputs).filter(|(name, _)| name.ends_with(&suffix));
        inputs.map(|(_, input)| input.ended).reduce(|all, ended| all && ended)
    }
}

/// Carries an operator or a sink over, or begins one that is new.
fn reader(
    plan: &Plan,
    index: usize,
    old: Option<&NodeEntry>,
    key_groups: u32,
    done: &mut Vec<Done>,
    faults: &mut Vec<String>,
) -> NodeEntry {
    let planned = &plan.nodes[index];
    let parallelism = planned.parallelism;
    let is_operator = matches!(planned.kind, NodeKind::Operator(_));
    let mut inboxes = Vec::new();
    for entry in old.iter().flat_map(|old| &old.subtasks) {
        match OldInbox::read(entry) {
            Ok(inbox) => inboxes.push(inbox),
            Err(fault) => faults.push(fault),
        }
    }
    let alike = old.is_some_and(|old| old.parallelism == parallelism) && inboxes.len() == parallelism as usize;
    let watermark = inboxes.iter().map(|inbox| inbox.state.watermark).min().unwrap_or(NO_TIME);
    let wake_at = inboxes.iter().filter_map(|inbox| inbox.wake_at).min();
    // No subtask draws again what one of them has drawn, and time goes back for none.
    let host = inboxes
        .iter()
        .map(|inbox| inbox.host)
        .reduce(|a, b| HostCut { draws: a.draws.max(b.draws), seen: a.seen.max(b.seen) });
    let mut same = alike;
    let (mut states, mut told) = (Vec::new(), Vec::new());
    for subtask in 0..parallelism {
        let own = if alike { inboxes.get(subtask as usize) } else { None };
        let inputs = inputs_of(plan, index, subtask);
        let mut kept = own.is_some_and(|own| own.names.len() == inputs.len());
        let state_of = |(edge, sender, name): (usize, u32, &str), kept: &mut bool| {
            let from = &done[plan.edges[edge].from];
            match own.and_then(|own| own.input(name)) {
                Some(state) if from.same => state,
                _ => {
                    *kept = false;
                    from.told.get(sender as usize).copied().unwrap_or(Told::NOTHING).as_input()
                }
            }
        };
        let state: Vec<InputState> =
            inputs.iter().map(|input| state_of((input.edge, input.sender, &input.name), &mut kept)).collect();
        same &= kept;
        if is_operator && !kept && !inboxes.is_empty() {
            for port in 0..planned.input_ports {
                let now = inputs.iter().zip(&state).filter(|(input, _)| input.to_port == port);
                let now = now.map(|(_, input)| input.ended).reduce(|all, ended| all && ended);
                faults.extend(port_fault(&inboxes, port, now));
            }
        }
        let ended = state.iter().all(|input| input.ended);
        let idle = !ended && state.iter().all(|input| input.ended || input.idle);
        let watermark = own.map_or(watermark, |own| own.state.watermark);
        told.push(Told { watermark, idle, ended });
        let wake_at = if own.is_some() { own.and_then(|own| own.wake_at) } else { wake_at };
        let host = own.map(|own| own.host).or(host).unwrap_or_default();
        let names = inputs.into_iter().map(|input| input.name).collect();
        let progress = Progress::Inbox { inputs: names, state: InboxState { inputs: state, watermark }, wake_at, host };
        states.push((progress.encode(), watermark));
    }
    done.push(Done { told, same });
    let Some(old) = old else {
        let subtasks = states.into_iter().map(|(progress, watermark)| SubtaskEntry {
            progress,
            watermark,
            ..SubtaskEntry::default()
        });
        let kind = if is_operator { EntryKind::Operator } else { EntryKind::Sink };
        return NodeEntry {
            name: planned.name.clone(),
            kind,
            parallelism,
            plugin: None,
            subtasks: subtasks.collect(),
            grants: Vec::new(),
            committables: Vec::new(),
        };
    };
    if same {
        return old.clone();
    }
    let segments = if alike {
        old.subtasks.iter().map(|entry| entry.segments.clone()).collect()
    } else {
        deal_segments(&old.subtasks, parallelism, key_groups).unwrap_or_else(|fault| {
            faults.push(fault);
            vec![Vec::new(); parallelism as usize]
        })
    };
    let records =
        if alike { old.subtasks.iter().map(|entry| entry.records).collect() } else { deal_records(old, parallelism) };
    let subtasks = states.into_iter().zip(segments).zip(records).map(|(((progress, watermark), segments), records)| {
        SubtaskEntry { segments, progress, watermark, records, ..SubtaskEntry::default() }
    });
    let subtasks = subtasks.collect();
    NodeEntry { parallelism, subtasks, ..old.clone() }
}

/// What is wrong with a port of an operator whose end was told to some of its subtasks, or to all, or to none, and that `now` has
/// ended or not.
fn port_fault(inboxes: &[OldInbox], port: u32, now: Option<bool>) -> Option<String> {
    let before: Vec<bool> = inboxes.iter().filter_map(|inbox| inbox.has_ended(port)).collect();
    let (any, all) = (before.contains(&true), !before.contains(&false));
    match now? {
        _ if before.is_empty() => None,
        _ if any && !all => Some(format!("its input port {port} has ended in some of its subtasks and not in others")),
        false if all => Some(format!("its input port {port} has ended, and cannot get another input")),
        true if !any => Some(format!("all that is left of its input port {port} has ended before")),
        _ => None,
    }
}

/// Record counters, kept in sum.
fn deal_records(old: &NodeEntry, parallelism: u32) -> Vec<u64> {
    let mut records = vec![0_u64; parallelism as usize];
    for (subtask, entry) in old.subtasks.iter().enumerate() {
        let to = &mut records[subtask % parallelism as usize];
        *to = to.saturating_add(entry.records);
    }
    records
}

/// Deals the state of a node out to another number of subtasks.
///
/// # Errors
///
/// If some of it cannot be split, with the reason.
fn deal_segments(old: &[SubtaskEntry], parallelism: u32, groups: u32) -> Result<Vec<Vec<SegmentRef>>, String> {
    let mut dealt: Vec<Vec<SegmentRef>> = vec![Vec::new(); parallelism as usize];
    let mut owners: BTreeMap<u32, usize> = BTreeMap::new();
    let of = |subtask: usize, scope: Scope| old[subtask].segments.iter().filter(move |s| s.scope == scope);
    for (subtask, entry) in old.iter().enumerate() {
        let alone: u64 = of(subtask, Scope::Subtask).map(|segment| segment.bytes).sum();
        if of(subtask, Scope::Subtask).next().is_some() {
            return Err(format!("{alone} bytes of its state belong to subtask {subtask} alone and cannot be split"));
        }
        for segment in &entry.segments {
            let Scope::KeyGroup(group) = segment.scope else { continue };
            if *owners.entry(group).or_insert(subtask) != subtask {
                return Err(format!("key group {group} is in two of its subtasks"));
            }
            dealt[subtask_of_group(group, parallelism, groups) as usize].push(segment.clone());
        }
    }
    // All have the same: the copy of the first that has one.
    if let Some(from) = (0..old.len()).find(|&subtask| of(subtask, Scope::Shared).next().is_some()) {
        for to in &mut dealt {
            to.extend(of(from, Scope::Shared).cloned());
        }
    }
    let lists: Vec<Vec<&SegmentRef>> = (0..old.len()).map(|subtask| of(subtask, Scope::Item).collect()).collect();
    if lists.iter().flatten().any(|segment| segment.kind == SegmentKind::Delta) {
        // A delta is on top of its whole list.
        let full = lists.iter().filter(|list| !list.is_empty());
        if full.clone().count() > dealt.len() {
            return Err(format!(
                "it has {} lists of items that were added to since they were written, and a subtask takes one",
                full.count()
            ));
        }
        for (to, list) in dealt.iter_mut().zip(full) {
            to.extend(list.iter().map(|segment| (*segment).clone()));
        }
        return Ok(dealt);
    }
    let items: u64 = lists.iter().flatten().map(|segment| u64::from(segment.chunks)).sum();
    let first = |subtask: u64| subtask * items / u64::from(parallelism);
    let mut at = 0;
    for segment in lists.into_iter().flatten() {
        let (from, to) = (at, at + u64::from(segment.chunks));
        for subtask in 0..u64::from(parallelism) {
            let (begin, end) = (first(subtask).max(from), first(subtask + 1).min(to));
            if begin < end {
                dealt[subtask as usize].push(segment.part((begin - from) as u32, (end - begin) as u32));
            }
        }
        at = to;
    }
    Ok(dealt)
}

#[cfg(test)]
mod tests;
