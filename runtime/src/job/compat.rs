//! Whether a checkpoint fits a pipeline, and what becomes of each node's state: decided in one place, before anything is touched.
//!
//! A pure function, [`fit`]: manifest × plan × code go in, a verdict on each node comes out, and with it the manifest in the
//! shape of the plan. `weir check --from` prints it, a run asks it before it claims the job, and restores what it gives. So
//! nobody is told one thing and gets another. It refuses by name and reason whatever cannot be carried over; nothing is
//! dropped that was not named in `drop_state`, and output that is not published yet is never dropped. An operator that stays and is named
//! begins with nothing, and goes on from the same place in the stream.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::image::image_fits;
use crate::checkpoint::{self, Manifest, NodeEntry, PluginEntry};
use crate::error::{Error, ErrorKind};
use crate::flow::{Carried, OperatorCode, carry_over};
use crate::model::{Epoch, NodeName, StateKind};
use crate::plan::{NodeKind, Plan, PlanNode};

/// What becomes of a node's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It goes on as it was.
    Kept,
    /// It goes on in another number of subtasks.
    Moved,
    /// Another version of its plugin takes over its state, in one or in another number of subtasks.
    Migrated,
    /// It starts empty.
    New,
    /// It is given up, as asked.
    Dropped,
    /// It cannot go on, and so the job cannot start.
    Refused,
}

impl Fate {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Moved => "moved",
            Self::Migrated => "migrated",
            Self::New => "new",
            Self::Dropped => "dropped",
            Self::Refused => "refused",
        }
    }
}

/// The verdict on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeFit {
    /// Which node.
    pub node: String,
    /// `source`, `operator` or `sink`.
    pub kind: &'static str,
    /// What becomes of its state.
    pub verdict: Fate,
    /// How many subtasks it had; none for a node that is new.
    pub was: Option<u32>,
    /// How many it has; none for one that the pipeline has no more.
    pub parallelism: Option<u32>,
    /// Bytes of live state in the checkpoint.
    pub state_bytes: u64,
    /// Why, as a clause.
    pub reason: String,
    /// What can be done about it, if it is refused.
    pub help: Option<String>,
}

/// How a checkpoint fits a pipeline.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// Which checkpoint.
    pub epoch: Epoch,
    /// Why nothing fits, if that is so.
    pub fault: Option<String>,
    /// Nodes of the pipeline in the order of the data, then those that it has no more.
    pub nodes: Vec<NodeFit>,
    /// What to restore, if nothing is refused.
    #[serde(skip)]
    pub(crate) restore: Manifest,
    /// Nodes whose next snapshot has to be full.
    #[serde(skip)]
    pub(crate) full: BTreeSet<NodeName>,
    /// Names for which the state was to be dropped and which the checkpoint does not have.
    #[serde(skip)]
    unknown: Vec<NodeName>,
}

/// What [`fit`] goes by.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The checkpoint.
    pub manifest: &'a Manifest,
    /// Not all of its output is known to be published.
    pub open: bool,
    /// What is to run.
    pub plan: &'a Plan,
    /// How many key groups the pipeline has.
    pub key_groups: u32,
    /// The code of its operators.
    pub code: &'a BTreeMap<NodeName, OperatorCode>,
    /// Nodes whose state is dropped: operators, and whatever the plan has no more.
    pub drop_state: &'a BTreeSet<NodeName>,
}

/// Decides what becomes of each node.
pub fn fit(facts: &Facts<'_>) -> Fit {
    let Facts { manifest, plan, .. } = *facts;
    let fault = (manifest.key_groups != facts.key_groups).then(|| {
        format!(
            "checkpoint {} has {} key groups, and the pipeline has {}: they are fixed for the life of a job",
            manifest.epoch, manifest.key_groups, facts.key_groups
        )
    });
    let emptied = emptied(facts);
    let manifest = &emptied;
    let Carried { manifest: restore, moved, faults } = carry_over(manifest, plan);
    let mut full = moved;
    let mut nodes = Vec::new();
    for planned in &plan.nodes {
        let fit = match manifest.node(planned.name.as_str()) {
            None => added(planned),
            Some(old) => {
                let code = facts.code.get(&planned.name);
                let mut fit = stayed(planned, old, code, faults.get(&planned.name).map(Vec::as_slice));
                if is_emptied(old, facts) && fit.verdict != Fate::Refused {
                    fit.state_bytes = facts.manifest.node(planned.name.as_str()).map_or(0, state_bytes);
                    (fit.verdict, fit.reason) = (Fate::Dropped, "it starts empty, as asked".to_owned());
                }
                if matches!(fit.verdict, Fate::Migrated | Fate::Dropped) {
                    full.insert(planned.name.clone());
                }
                fit
            }
        };
        nodes.push(fit);
    }
    let is_planned = |name: &NodeName| plan.nodes.iter().any(|planned| planned.name == *name);
    nodes.extend(manifest.nodes.iter().filter(|old| !is_planned(&old.name)).map(|old| removed(old, facts)));
    let unknown = facts.drop_state.iter().filter(|name| match manifest.node(name.as_str()) {
        Some(old) => is_planned(name) && !is_emptied(old, facts),
        None => true,
    });
    Fit { epoch: manifest.epoch, fault, nodes, restore, full, unknown: unknown.cloned().collect() }
}

/// Whether a node stays and its state does not.
fn is_emptied(old: &NodeEntry, facts: &Facts<'_>) -> bool {
    let is_operator = |planned: &&PlanNode| planned.name == old.name && matches!(planned.kind, NodeKind::Operator(_));
    old.kind == checkpoint::NodeKind::Operator
        && facts.drop_state.contains(&old.name)
        && facts.plan.nodes.iter().any(|planned| is_operator(&planned))
}

/// The checkpoint without the state of operators that stay and are to be empty. How far they are in time is not given up.
fn emptied(facts: &Facts<'_>) -> Manifest {
    let mut manifest = facts.manifest.clone();
    for node in manifest.nodes.iter_mut().filter(|node| is_emptied(node, facts)) {
        node.subtasks.iter_mut().for_each(|subtask| subtask.segments.clear());
    }
    manifest
}

impl Fit {
    /// Fails if the checkpoint does not fit.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::State`], with the first node that is refused.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(fault) = &self.fault {
            return Err(Error::new(ErrorKind::State, fault).help("set key_groups back, or start anew with --fresh"));
        }
        let mut refused = self.nodes.iter().filter(|node| node.verdict == Fate::Refused);
        let Some(first) = refused.next() else { return Ok(()) };
        let others = match refused.count() {
            0 => String::new(),
            n => format!(
                " (and {n} more of its nodes are refused: `weir check PIPELINE --from {}` lists them)",
                self.epoch
            ),
        };
        let message = format!("checkpoint {} does not fit node {:?}: {}{others}", self.epoch, first.node, first.reason);
        let error = Error::new(ErrorKind::State, message);
        Err(match &first.help {
            Some(help) => error.help(help),
            None => error,
        })
    }

    /// Fails if state was to be dropped that is not there to be dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`], with the first such name.
    pub fn check_dropped(&self) -> Result<(), Error> {
        let Some(name) = self.unknown.first() else { return Ok(()) };
        let planned = self.nodes.iter().any(|node| node.node == name.as_str());
        let (why, help) = if planned {
            (
                "which is no operator, and the pipeline still has it",
                "take the node out of the pipeline, or leave --drop-state out",
            )
        } else {
            ("which it does not have", "check the name; `weir checkpoint show` lists the nodes of a checkpoint")
        };
        let message = format!("--drop-state names node {:?} of checkpoint {}, {why}", name.as_str(), self.epoch);
        Err(Error::new(ErrorKind::Usage, message).help(help))
    }
}

fn state_bytes(old: &NodeEntry) -> u64 {
    old.subtasks.iter().flat_map(|entry| &entry.segments).map(|segment| segment.bytes).sum()
}

fn kind_of(planned: &PlanNode) -> &'static str {
    match planned.kind {
        NodeKind::Source(_) => "source",
        NodeKind::Operator(_) => "operator",
        NodeKind::Sink(_) => "sink",
    }
}

fn old_kind(old: &NodeEntry) -> &'static str {
    match old.kind {
        checkpoint::NodeKind::Source => "source",
        checkpoint::NodeKind::Operator => "operator",
        checkpoint::NodeKind::Sink => "sink",
    }
}

/// A node that the checkpoint does not know.
fn added(planned: &PlanNode) -> NodeFit {
    let reason = match planned.kind {
        NodeKind::Source(_) => "it reads from its beginning",
        _ => "it starts empty, with what comes from now on",
    };
    NodeFit {
        node: planned.name.to_string(),
        kind: kind_of(planned),
        verdict: Fate::New,
        was: None,
        parallelism: Some(planned.parallelism),
        state_bytes: 0,
        reason: reason.into(),
        help: None,
    }
}

/// A node that the pipeline does not have any more.
fn removed(old: &NodeEntry, facts: &Facts<'_>) -> NodeFit {
    let name = &old.name;
    let (verdict, reason, help) = if facts.open && !old.committables.is_empty() {
        let reason = "it has output that is not published yet, and the pipeline has it no more".to_owned();
        let help = "put the sink back and run once, so that its output is published; then remove it";
        (Fate::Refused, reason, Some(help.to_owned()))
    } else if facts.drop_state.contains(name) {
        (Fate::Dropped, "the pipeline has it no more, and --drop-state names it".to_owned(), None)
    } else {
        let help = format!("put the node back under that name, or give its state up with --drop-state {name}");
        (Fate::Refused, "the checkpoint holds its state, and the pipeline has it no more".to_owned(), Some(help))
    };
    NodeFit {
        node: name.to_string(),
        kind: old_kind(old),
        verdict,
        was: Some(old.parallelism),
        parallelism: None,
        state_bytes: state_bytes(old),
        reason,
        help,
    }
}

/// A node that is in both.
fn stayed(planned: &PlanNode, old: &NodeEntry, code: Option<&OperatorCode>, faults: Option<&[String]>) -> NodeFit {
    let (was, is) = (old.parallelism, planned.parallelism);
    let node = NodeFit {
        node: planned.name.to_string(),
        kind: kind_of(planned),
        verdict: Fate::Refused,
        was: Some(was),
        parallelism: Some(is),
        state_bytes: state_bytes(old),
        reason: String::new(),
        help: None,
    };
    let refused = |reason: String, help: &str| NodeFit { reason, help: Some(help.into()), ..node.clone() };
    if old_kind(old) != node.kind {
        return refused(
            format!("it was of kind {} and is of kind {} now", old_kind(old), node.kind),
            "give the node another name, and its old state up with --drop-state; or start anew with --fresh",
        );
    }
    let has_state = old.subtasks.iter().any(|entry| !entry.segments.is_empty());
    let mut migrated = None;
    if let (Some(plugin), Some(code), true) = (&old.plugin, code, has_state) {
        if let Err(reason) = image_fits(old, code, is) {
            let help = format!(
                "run the pipeline as it was when the checkpoint was taken, or let the node start empty with --drop-state {}",
                old.name
            );
            return refused(reason, &help);
        }
        match takes_over(plugin, code) {
            Ok(by) => migrated = by,
            Err((reason, help)) => return refused(reason, help),
        }
    }
    if let Some(faults) = faults {
        let help = if was == is {
            "leave its inputs as they were, or start anew with --fresh"
        } else {
            "set its parallelism back, or start anew with --fresh"
        };
        let what = if was == is { String::new() } else { format!("it had {was} subtasks and has {is} now: ") };
        return refused(format!("{what}{}", faults.join("; ")), help);
    }
    let moved = (was != is).then(|| {
        let what = match old.kind {
            checkpoint::NodeKind::Source => "its splits are dealt out anew",
            _ if has_state => "its state moves",
            _ => "nothing has to move",
        };
        format!("{what}, from {was} to {is} subtasks")
    });
    let (verdict, reason) = match (migrated, moved) {
        (Some(by), Some(moved)) => (Fate::Migrated, format!("{by}; {moved}")),
        (Some(by), None) => (Fate::Migrated, by),
        (None, Some(moved)) => (Fate::Moved, moved),
        (None, None) => (Fate::Kept, "as it was".to_owned()),
    };
    NodeFit { verdict, reason, ..node }
}

/// Whether code can take over state that was written by a plugin; how, if it is other code. Else why not, and what to do.
fn takes_over(plugin: &PluginEntry, code: &OperatorCode) -> Result<Option<String>, (String, &'static str)> {
    let now = &code.descriptor;
    let short = |digest: &[u8; 32]| blake3::Hash::from_bytes(*digest).to_hex()[..12].to_owned();
    if plugin.name != now.name {
        return Err((
            format!("its state is of plugin {:?}, and the pipeline has plugin {:?} there", plugin.name, now.name),
            "use the plugin that wrote the state, give the node another name, or start anew with --fresh",
        ));
    }
    if now.state == StateKind::Stateless {
        return Err((
            format!("it has state of {} {}, and version {} of it keeps none", plugin.name, plugin.version, now.version),
            "use the version that wrote the state, give the node another name, or start anew with --fresh",
        ));
    }
    let readable = now.oldest_state_version..=now.state_version;
    if !readable.contains(&plugin.state_version) {
        return Err((
            format!(
                "its state has version {}, and plugin {} {} reads versions {} to {}",
                plugin.state_version,
                now.name,
                now.version,
                readable.start(),
                readable.end()
            ),
            "use a version of the plugin that reads it, or start anew with --fresh",
        ));
    }
    if plugin.state_version != now.state_version {
        return Ok(Some(format!(
            "{} {} takes over the state of {}, from state version {} to {}",
            now.name, now.version, plugin.version, plugin.state_version, now.state_version
        )));
    }
    if (&plugin.version, plugin.digest) == (&now.version, code.digest) {
        return Ok(None);
    }
    Ok(Some(format!(
        "{} {} ({}…) takes over the state of {}",
        now.name,
        now.version,
        short(&code.digest),
        plugin.version
    )))
}

#[cfg(test)]
mod tests;
