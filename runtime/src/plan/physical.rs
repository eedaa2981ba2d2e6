//! The plan: nodes in the order of the data, and edges with their ports, exchanges and keys resolved.
//!
//! A specification and the descriptors of its plugins go in; names of ports become numbers, and every default is decided. What
//! comes out holds these invariants, so that nothing behind it has to check them ([`Plan::check`] does, in tests):
//!
//! - **P1** Nodes are in topological order: an edge goes from a lower index to a higher one.
//! - **P2** Each source, operator and sink of the specification is one node, and no two nodes have one name.
//! - **P3** Ports exist: `Data(p)` is below the number of outputs of `from`, `to_port` below that of inputs of `to`. A source has one
//!   output and no input, a sink one input and no output. `Rejected` is of a source or an operator.
//! - **P4** Both ends of a forward edge have the same parallelism.
//! - **P5** Each input port is fed by at least one edge.
//! - **P6** Each edge into a keyed input port is keyed.
//! - **P7** An edge is chained if and only if it is the only one into its receiver, and is forward, or keyed between two
//!   single subtasks.
//! - **P8** The first output port of each node that has one is read, and `Rejected` of each that sends dead letters.
//! - **P9** No two edges have the same ends and ports: nothing is read twice.
//! - **P10** The edges need at most [`CHANNELS_MAX`] channels.

mod build;

use std::collections::{BTreeMap, BTreeSet};

use super::diagnostic::{Diagnostic, Diagnostics};
use super::{ExchangeKind, OnError, PipelineSpec};
use crate::model::{Descriptor, NodeName};
use crate::pointer::Pointer;

/// The name of the output port of a source.
pub const SOURCE_PORT: &str = "out";

/// The name of the port through which a source or an operator gives what it put aside.
pub const REJECTED: &str = "rejected";

/// How many channels between subtasks a plan may need: each edge between `n` and `m` subtasks needs `n * m`, or `n` if it is
/// forward.
pub const CHANNELS_MAX: u64 = 1 << 20;

/// What runs, and how it is wired.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In topological order.
    pub nodes: Vec<PlanNode>,
    /// By receiver, in the order of `nodes`; those of one receiver in the order of its `inputs`.
    pub edges: Vec<Edge>,
    /// What may not be meant.
    pub warnings: Vec<Diagnostic>,
}

/// A source, an operator or a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanNode {
    /// Its name.
    pub name: NodeName,
    /// Which one of the specification.
    pub kind: NodeKind,
    /// How many subtasks, at least 1.
    pub parallelism: u32,
    /// How many input ports.
    pub input_ports: u32,
    /// The names of its output ports. `rejected` is not among them.
    pub output_ports: Vec<String>,
}

/// An index into the lists of a [`PipelineSpec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Into `sources`.
    Source(usize),
    /// Into `operators`.
    Operator(usize),
    /// Into `sinks`.
    Sink(usize),
}

/// Where an edge begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutPort {
    /// An output port, by number.
    Data(u32),
    /// What the node put aside.
    Rejected,
}

/// A stream from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Index of the sender.
    pub from: usize,
    /// Which of its outputs.
    pub port: OutPort,
    /// Index of the receiver.
    pub to: usize,
    /// Which of its inputs.
    pub to_port: u32,
    /// How records are spread over the receiver's subtasks.
    pub exchange: ExchangeKind,
    /// Where the key is; none leaves the key that a record has.
    pub key: Option<Pointer>,
    /// What is done about a record in which the key cannot be looked for: fail or skip.
    pub on_error: OnError,
    /// Sender and receiver are one task: there is no channel.
    pub chained: bool,
}

impl Plan {
    /// Makes the plan. `descriptors` has what each operator's plugin says about itself, by the operator's name.
    ///
    /// # Errors
    ///
    /// Everything in which the pipeline does not fit its plugins.
    pub fn build(spec: &PipelineSpec, descriptors: &BTreeMap<NodeName, Descriptor>) -> Result<Self, Diagnostics> {
        let plan = build::build(spec, descriptors)?;
        debug_assert_eq!(plan.check(spec, descriptors), Ok(()));
        Ok(plan)
    }

    /// The edges into a node.
    pub fn inputs_of(&self, node: usize) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.to == node)
    }

    /// The edges out of a node.
    pub fn outputs_of(&self, node: usize) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.from == node)
    }

    /// The name of the port at which an edge begins.
    pub fn port_name(&self, edge: &Edge) -> &str {
        match edge.port {
            OutPort::Data(port) => {
                self.nodes[edge.from].output_ports.get(port as usize).map_or(SOURCE_PORT, String::as_str)
            }
            OutPort::Rejected => REJECTED,
        }
    }

    /// Checks the invariants.
    ///
    /// # Errors
    ///
    /// The first one that does not hold, by its number.
    pub fn check(&self, spec: &PipelineSpec, descriptors: &BTreeMap<NodeName, Descriptor>) -> Result<(), String> {
        let ensure = |holds: bool, what: String| if holds { Ok(()) } else { Err(what) };
        let total = spec.sources.len() + spec.operators.len() + spec.sinks.len();
        let names: BTreeSet<&NodeName> = self.nodes.iter().map(|node| &node.name).collect();
        ensure(self.nodes.len() == total && names.len() == total, format!("P2: {} nodes of {total}", names.len()))?;
        let mut ends = BTreeSet::new();
        let mut channels: u64 = 0;
        for edge in &self.edges {
            let (from, to) = (&self.nodes[edge.from], &self.nodes[edge.to]);
            let what = |rule: &str| format!("{rule}: {} -> {}", from.name, to.name);
            ensure(edge.from < edge.to, what("P1"))?;
            let port = match edge.port {
                OutPort::Data(port) => (port as usize) < from.output_ports.len(),
                OutPort::Rejected => !matches!(from.kind, NodeKind::Sink(_)),
            };
            ensure(port && edge.to_port < to.input_ports, what("P3"))?;
            let forward = edge.exchange == ExchangeKind::Forward;
            ensure(!forward || from.parallelism == to.parallelism, what("P4"))?;
            let keyed = descriptors.get(&to.name).is_some_and(|d| d.inputs[edge.to_port as usize].keyed);
            ensure(!keyed || edge.exchange == ExchangeKind::Keyed, what("P6"))?;
            let single = edge.exchange == ExchangeKind::Keyed && (from.parallelism, to.parallelism) == (1, 1);
            let chained = self.inputs_of(edge.to).count() == 1 && (forward || single);
            ensure(edge.chained == chained, what("P7"))?;
            ensure(ends.insert((edge.from, edge.port, edge.to, edge.to_port)), what("P9"))?;
            channels += build::channels(from, to, edge.exchange);
        }
        ensure(channels <= CHANNELS_MAX, format!("P10: {channels} channels"))?;
        for (at, node) in self.nodes.iter().enumerate() {
            let fed = (0..node.input_ports).all(|port| self.inputs_of(at).any(|edge| edge.to_port == port));
            ensure(fed, format!("P5: {}", node.name))?;
            let reads = |port: OutPort| self.outputs_of(at).any(|edge| edge.port == port);
            let put_aside = match node.kind {
                NodeKind::Source(index) => spec.sources[index].on_error,
                NodeKind::Operator(index) => spec.operators[index].on_reject,
                NodeKind::Sink(_) => OnError::Fail,
            };
            let read = (node.output_ports.is_empty() || reads(OutPort::Data(0)))
                && (put_aside != OnError::DeadLetter || reads(OutPort::Rejected));
            ensure(read, format!("P8: {}", node.name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
