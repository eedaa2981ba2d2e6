//! What each path from a source to a sink promises, and why.
//!
//! Sources can be replayed and operators are restored from checkpoints, so the sink decides. A path through state that no
//! checkpoint can hold promises nothing and is refused.

use std::collections::BTreeMap;

use serde::Serialize;

use super::diagnostic::{Diagnostics, quote};
use super::physical::{NodeKind, OutPort, Plan};
use super::{PipelineSpec, SinkConnector};
use crate::model::{Descriptor, Guarantee, NodeName, StateKind};

/// How many paths are told; the others are counted.
pub const PATHS_MAX: usize = 256;

/// What the paths of a plan promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Guarantees {
    /// From each source, in the order of the plan; at most [`PATHS_MAX`].
    pub paths: Vec<PathGuarantee>,
    /// How many more there are.
    pub left_out: u64,
}

/// What one path promises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathGuarantee {
    /// From the source to the sink; `node:port` where a port other than the first is left.
    pub path: Vec<String>,
    /// What it promises.
    pub guarantee: Guarantee,
    /// Why.
    pub reason: String,
}

/// Finds the guarantee of each path.
///
/// `has_snapshot_code` says of each operator whether its plugin exports `checkpoint` (is a `stateful-operator`).
///
/// # Errors
///
/// Operators with state that no checkpoint can hold: a plugin of the world `simple-operator` that keeps state needs an
/// image of its memory, which this version does not take.
pub fn guarantees(
    spec: &PipelineSpec,
    plan: &Plan,
    descriptors: &BTreeMap<NodeName, Descriptor>,
    has_snapshot_code: &BTreeMap<NodeName, bool>,
) -> Result<Guarantees, Diagnostics> {
    let mut errors = Vec::new();
    for operator in &spec.operators {
        let Some(descriptor) = descriptors.get(&operator.name) else { continue };
        let snapshots = has_snapshot_code.get(&operator.name).copied().unwrap_or(false);
        if descriptor.state != StateKind::Stateless && !snapshots {
            let message = format!(
                "plugin {} of {} keeps state and has no code to snapshot it",
                quote(&descriptor.name),
                quote(operator.name.as_str())
            );
            let help = "build it for the world `stateful-operator`, or let it declare that it is stateless: this \
                        version cannot take images of memory yet";
            errors.push(spec.text.error_at(&operator.plugin_span, message, help));
        }
    }
    Diagnostics::collect(&spec.text, errors)?;

    // How many paths lead from each node to sinks. Nodes are in topological order, so backwards all is known.
    let mut counts = vec![0u64; plan.nodes.len()];
    for at in (0..plan.nodes.len()).rev() {
        counts[at] = match plan.nodes[at].kind {
            NodeKind::Sink(_) => 1,
            _ => plan.outputs_of(at).fold(0, |sum: u64, edge| sum.saturating_add(counts[edge.to])),
        };
    }
    let mut walk = Walk { spec, plan, counts: &counts, path: Vec::new(), found: Vec::new() };
    let mut total: u64 = 0;
    for at in 0..plan.nodes.len() {
        if matches!(plan.nodes[at].kind, NodeKind::Source(_)) {
            total = total.saturating_add(counts[at]);
            walk.from(at);
        }
    }
    let left_out = total.saturating_sub(walk.found.len() as u64);
    Ok(Guarantees { paths: walk.found, left_out })
}

struct Walk<'a> {
    spec: &'a PipelineSpec,
    plan: &'a Plan,
    counts: &'a [u64],
    path: Vec<String>,
    found: Vec<PathGuarantee>,
}

impl Walk<'_> {
    /// Goes on to every sink. Branches without one are not entered, so this ends after `PATHS_MAX` paths however many there are;
    /// it goes as deep as the plan has nodes.
    fn from(&mut self, at: usize) {
        let plan = self.plan;
        let node = &plan.nodes[at];
        if let NodeKind::Sink(index) = node.kind {
            let (guarantee, reason) = of_sink(&self.spec.sinks[index].connector);
            let mut path = self.path.clone();
            path.push(node.name.to_string());
            self.found.push(PathGuarantee { path, guarantee, reason: reason.into() });
            return;
        }
        for edge in plan.outputs_of(at) {
            if self.found.len() >= PATHS_MAX {
                return;
            }
            if self.counts[edge.to] == 0 {
                continue;
            }
            self.path.push(match edge.port {
                OutPort::Data(0) => node.name.to_string(),
                _ => format!("{}:{}", node.name, plan.port_name(edge)),
            });
            self.from(edge.to);
            self.path.pop();
        }
    }
}

fn of_sink(connector: &SinkConnector) -> (Guarantee, &'static str) {
    match connector {
        SinkConnector::File(_) => {
            (Guarantee::ExactlyOnce, "a file sink's output is staged and renamed when the checkpoint is complete")
        }
        SinkConnector::Stdout(_) => (
            Guarantee::AtLeastOnce,
            "stdout has no stage: what it wrote after the last checkpoint is written again after a failure",
        ),
        SinkConnector::Blackhole => (
            Guarantee::AtLeastOnce,
            "blackhole has no stage: what it counted after the last checkpoint is counted again after a failure",
        ),
    }
}
