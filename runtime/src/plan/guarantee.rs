//! What each path from a source to a sink promises, and why.
//!
//! Sources can be replayed and operators are restored from checkpoints, by their own code or as images of their memory, so the sink
//! decides.

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
/// A soft ceiling on the memory of an operator whose state is an image of that memory: it cannot help.
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
        let is_image = descriptor.state != StateKind::Stateless && !snapshots;
        if is_image && operator.limits.soft_memory_bytes.is_some() {
            let message = format!(
                "`soft_memory` cannot help {}: the state of plugin {} is an image of its memory",
                quote(operator.name.as_str()),
                quote(&descriptor.name)
            );
            let help = "leave it out: what a plugin without snapshot code has leaked is in the image too. To be put into a \
                        fresh memory it has to write its state itself (world `stateful-operator`)";
            errors.push(spec.text.error_at(&operator.limits_span, message, help));
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
    for (at, node) in plan.nodes.iter().enumerate() {
        if matches!(node.kind, NodeKind::Source(_)) {
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
        SinkConnector::Object(_) => (
            Guarantee::ExactlyOnce,
            "an object sink's output is staged and named by a commit record when the checkpoint is complete",
        ),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::Port;
    use crate::plan::parse;

    fn descriptor(outputs: usize, state: StateKind) -> Descriptor {
        let port = |name: String| Port { name, summary: String::new(), keyed: false };
        Descriptor {
            name: "plugin".into(),
            version: "1.0.0".into(),
            summary: String::new(),
            inputs: vec![port("in".into())],
            outputs: (0..outputs).map(|at| port(format!("out{at}"))).collect(),
            state,
            state_version: 1,
            oldest_state_version: 1,
            config_schema: None,
        }
    }

    /// `layers` of two operators, each reading both of the layer before: twice as many paths with each.
    fn layered(layers: usize) -> PipelineSpec {
        let mut text = "name = \"p\"\n[source.s]\nconnector = \"generator\"\n".to_owned();
        let mut inputs = "\"s\"".to_owned();
        for layer in 0..layers {
            for side in ["a", "b"] {
                text += &format!("[operator.{side}{layer}]\nplugin = \"x\"\ninputs = [{inputs}]\n");
            }
            inputs = format!("\"a{layer}\", \"b{layer}\"");
        }
        text += &format!("[sink.k]\nconnector = \"blackhole\"\ninputs = [{inputs}]\n");
        parse(&text, Path::new("p.toml")).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
    }

    fn of(spec: &PipelineSpec, state: StateKind, snapshots: bool) -> Result<Guarantees, Diagnostics> {
        let descriptors = spec.operators.iter().map(|o| (o.name.clone(), descriptor(1, state))).collect();
        let snapshots = spec.operators.iter().map(|o| (o.name.clone(), snapshots)).collect();
        let plan = Plan::build(spec, &descriptors)?;
        guarantees(spec, &plan, &descriptors, &snapshots)
    }

    #[test]
    fn paths_without_number_are_counted_and_told_in_part() {
        let few = of(&layered(3), StateKind::Stateless, true).expect("it is sound");
        assert_eq!((few.paths.len(), few.left_out), (8, 0));
        assert_eq!(few.paths[0].path, ["s", "a0", "a1", "a2", "k"]);
        let many = of(&layered(40), StateKind::Stateless, true).expect("it is sound");
        assert_eq!((many.paths.len(), many.left_out), (PATHS_MAX, (1 << 40) - PATHS_MAX as u64));
        let most = of(&layered(100), StateKind::Stateless, true).expect("it is sound");
        assert_eq!(most.left_out, u64::MAX - PATHS_MAX as u64);
    }

    #[test]
    fn state_without_snapshot_code_is_accepted_but_not_with_a_soft_ceiling() {
        for (state, snapshots, errors) in [
            (StateKind::Stateless, false, 0),
            (StateKind::Keyed, true, 0),
            (StateKind::Keyed, false, 2),
            (StateKind::Whole, false, 2),
        ] {
            let mut spec = layered(1);
            let count = |spec: &_| of(spec, state, snapshots).map_or_else(|found| found.list().len(), |_| 0);
            assert_eq!(count(&spec), 0, "{state:?} {snapshots}");
            for operator in &mut spec.operators {
                operator.limits.soft_memory_bytes = Some(64 << 20);
            }
            assert_eq!(count(&spec), errors, "{state:?} {snapshots}");
        }
    }
}
