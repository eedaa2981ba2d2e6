//! How a plan is made: order the nodes, resolve each entry of `inputs` to an edge, then look at what is left over.

use std::collections::{BTreeMap, BTreeSet};

use super::{CHANNELS_MAX, Edge, NodeKind, OutPort, Plan, PlanNode, REJECTED, SOURCE_PORT};
use crate::model::{Descriptor, NodeName, Port};
use crate::plan::diagnostic::{Diagnostic, Diagnostics, listed, nearest, quote};
use crate::plan::{ExchangeKind, InputSpec, OnError, PipelineSpec, SourceConnector, Span};

struct Builder<'a> {
    spec: &'a PipelineSpec,
    descriptors: &'a BTreeMap<NodeName, Descriptor>,
    plan: Plan,
    errors: Vec<Diagnostic>,
    /// Operators of whose plugin nothing is known.
    unknown: BTreeSet<usize>,
    /// Edges that could not be resolved lead from these nodes and to these: nothing is called unread or unfed for them.
    unclear: BTreeSet<usize>,
}

pub(super) fn build(spec: &PipelineSpec, descriptors: &BTreeMap<NodeName, Descriptor>) -> Result<Plan, Diagnostics> {
    let plan = Plan { nodes: ordered(spec, descriptors), edges: Vec::new(), warnings: Vec::new() };
    let mut builder =
        Builder { spec, descriptors, plan, errors: Vec::new(), unknown: BTreeSet::new(), unclear: BTreeSet::new() };
    builder.plugins();
    builder.edges();
    builder.left_over();
    builder.chain();
    builder.count_channels();
    Diagnostics::collect(&spec.text, builder.errors)?;
    builder.plan.warnings.sort_by_key(|warning| warning.span.start);
    Ok(builder.plan)
}

/// How many channels an edge needs.
pub(super) fn channels(from: &PlanNode, to: &PlanNode, exchange: ExchangeKind) -> u64 {
    match exchange {
        ExchangeKind::Forward => u64::from(to.parallelism),
        _ => u64::from(from.parallelism) * u64::from(to.parallelism),
    }
}

/// What a node reads; nothing for a source.
fn inputs(spec: &PipelineSpec, kind: NodeKind) -> &[InputSpec] {
    match kind {
        NodeKind::Source(_) => &[],
        NodeKind::Operator(index) => &spec.operators[index].inputs,
        NodeKind::Sink(index) => &spec.sinks[index].inputs,
    }
}

/// All nodes in topological order, otherwise in the order of the file. The parser has refused cycles and unknown names; of a
/// specification that it did not make, nodes in a cycle are left out, which P2 shows.
fn ordered(spec: &PipelineSpec, descriptors: &BTreeMap<NodeName, Descriptor>) -> Vec<PlanNode> {
    let source = spec.sources.iter().enumerate().map(|(at, node)| PlanNode {
        name: node.name.clone(),
        kind: NodeKind::Source(at),
        parallelism: node.parallelism,
        input_ports: 0,
        output_ports: vec![SOURCE_PORT.to_owned()],
    });
    let operator = spec.operators.iter().enumerate().map(|(at, node)| {
        let descriptor = descriptors.get(&node.name);
        PlanNode {
            name: node.name.clone(),
            kind: NodeKind::Operator(at),
            parallelism: node.parallelism,
            input_ports: descriptor.map_or(0, |d| u32::try_from(d.inputs.len()).unwrap_or(u32::MAX)),
            output_ports: descriptor.map_or(Vec::new(), |d| d.outputs.iter().map(|port| port.name.clone()).collect()),
        }
    });
    let sink = spec.sinks.iter().enumerate().map(|(at, node)| PlanNode {
        name: node.name.clone(),
        kind: NodeKind::Sink(at),
        parallelism: node.parallelism,
        input_ports: 1,
        output_ports: Vec::new(),
    });
    let mut waiting: Vec<PlanNode> = source.chain(operator).chain(sink).collect();
    let known: BTreeSet<NodeName> = waiting.iter().map(|node| node.name.clone()).collect();
    let mut placed: BTreeSet<NodeName> = BTreeSet::new();
    let mut nodes = Vec::with_capacity(waiting.len());
    loop {
        let before = nodes.len();
        // In one pass each node that reads only placed ones is placed; as many passes as the graph is deep.
        waiting.retain(|node| {
            let ready = inputs(spec, node.kind)
                .iter()
                .all(|input| placed.contains(&input.from) || !known.contains(&input.from));
            if ready {
                placed.insert(node.name.clone());
                nodes.push(node.clone());
            }
            !ready
        });
        if nodes.len() == before {
            return nodes;
        }
    }
}

impl Builder<'_> {
    fn error(&mut self, span: &Span, message: String, help: impl Into<String>) {
        self.errors.push(self.spec.text.error_at(span, message, help));
    }

    fn warn(&mut self, span: &Span, message: String, help: impl Into<String>) {
        self.plan.warnings.push(self.spec.text.warning_at(span, message, help));
    }

    fn plugins(&mut self) {
        for (index, operator) in self.spec.operators.iter().enumerate() {
            let Some(descriptor) = self.descriptors.get(&operator.name) else {
                let message = format!("nothing is known of the plugin of operator {}", quote(operator.name.as_str()));
                self.error(&operator.plugin_span, message, "look at it with `weir plugin inspect`");
                self.unknown.extend(self.plan.nodes.iter().position(|n| n.kind == NodeKind::Operator(index)));
                continue;
            };
            if descriptor.outputs.iter().any(|port| port.name == REJECTED) {
                let message = format!("plugin {} has an output port called \"{REJECTED}\"", quote(&descriptor.name));
                let help = "rename the port in the plugin: the host gives this name to records that are rejected";
                self.error(&operator.plugin_span, message, help);
            }
        }
    }

    fn edges(&mut self) {
        let by_name: BTreeMap<NodeName, usize> =
            self.plan.nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
        let mut seen: BTreeMap<(usize, OutPort, usize, u32), Span> = BTreeMap::new();
        for to in 0..self.plan.nodes.len() {
            for input in inputs(self.spec, self.plan.nodes[to].kind) {
                let Some(&from) = by_name.get(&input.from) else {
                    let message = format!("node {} does not exist", quote(input.from.as_str()));
                    self.error(&input.span, message, "read a node of this pipeline");
                    self.unclear.insert(to);
                    continue;
                };
                let (Some(port), Some(to_port)) = (self.out_port(from, input), self.in_port(to, input)) else {
                    self.unclear.extend([from, to]);
                    continue;
                };
                let Some(exchange) = self.exchange(from, to, to_port, input) else {
                    self.unclear.extend([from, to]);
                    continue;
                };
                if exchange == ExchangeKind::Keyed && input.key.is_none() {
                    self.check_keys(from, port, to, input);
                }
                if let Some(first) = seen.insert((from, port, to, to_port), input.span.clone()) {
                    let lines = [&first, &input.span].map(|span| self.spec.text.position(span.start).0);
                    let first =
                        if lines[0] == lines[1] { String::new() } else { format!(", first in line {}", lines[0]) };
                    let (reader, read) = (self.quoted(to), self.quoted(from));
                    let message = format!("{reader} reads {read} twice{first}: each record would come twice");
                    self.error(&input.span, message, "remove one of the two, or name another port");
                    continue;
                }
                let (key, on_error) = (input.key.clone(), input.on_error);
                self.plan.edges.push(Edge { from, port, to, to_port, exchange, key, on_error, chained: false });
            }
        }
    }

    fn quoted(&self, node: usize) -> String {
        quote(self.plan.nodes[node].name.as_str())
    }

    fn out_port(&mut self, from: usize, input: &InputSpec) -> Option<OutPort> {
        let node = &self.plan.nodes[from];
        let ports: Vec<&str> = node.output_ports.iter().map(String::as_str).collect();
        let who = self.quoted(from);
        let (message, help) = match input.port.as_deref() {
            Some(REJECTED) if !matches!(node.kind, NodeKind::Sink(_)) => {
                self.check_rejected(from, input);
                return Some(OutPort::Rejected);
            }
            Some(name) => match ports.iter().position(|port| *port == name) {
                Some(port) => return Some(OutPort::Data(u32::try_from(port).ok()?)),
                None => (format!("{who} has no output port {}", quote(name)), port_help(name, &ports, true)),
            },
            None if ports.is_empty() => {
                // Of an unknown plugin all has been said.
                if self.unknown.contains(&from) {
                    return None;
                }
                (format!("{who} has no output"), format!("read another node, or its port \"{REJECTED}\""))
            }
            None => return Some(OutPort::Data(0)),
        };
        if !self.unknown.contains(&from) {
            self.error(&input.port_span, message, help);
        }
        None
    }

    /// Warns if nothing will ever come out.
    fn check_rejected(&mut self, from: usize, input: &InputSpec) {
        let (setting, value) = match self.plan.nodes[from].kind {
            NodeKind::Source(index) => ("on_error", self.spec.sources[index].on_error),
            NodeKind::Operator(index) => ("on_reject", self.spec.operators[index].on_reject),
            NodeKind::Sink(_) => return,
        };
        if value != OnError::DeadLetter {
            let value = if value == OnError::Skip { "skip" } else { "fail" };
            let who = self.quoted(from);
            let message = format!("nothing comes out of port \"{REJECTED}\" of {who}: its {setting} is \"{value}\"");
            self.warn(&input.port_span, message, format!("write {setting} = \"dead-letter\" in {who}"));
        }
    }

    fn in_port(&mut self, to: usize, input: &InputSpec) -> Option<u32> {
        let name = input.to.as_deref();
        let descriptor = match self.plan.nodes[to].kind {
            NodeKind::Operator(_) => self.descriptors.get(&self.plan.nodes[to].name)?,
            // The parser refuses `to` on a sink.
            _ => return (name.is_none() || name == Some("in")).then_some(0),
        };
        let Some(name) = name else { return (!descriptor.inputs.is_empty()).then_some(0) };
        let ports: Vec<&str> = descriptor.inputs.iter().map(|port| port.name.as_str()).collect();
        let found = ports.iter().position(|port| *port == name);
        if found.is_none() {
            let message = format!("{} has no input port {}", self.quoted(to), quote(name));
            self.error(&input.to_span, message, port_help(name, &ports, false));
        }
        found.and_then(|port| u32::try_from(port).ok())
    }

    fn input_port(&self, to: usize, to_port: u32) -> Option<&Port> {
        self.descriptors.get(&self.plan.nodes[to].name)?.inputs.get(to_port as usize)
    }

    fn exchange(&mut self, from: usize, to: usize, to_port: u32, input: &InputSpec) -> Option<ExchangeKind> {
        let keyed_port = self.input_port(to, to_port).filter(|port| port.keyed).map(|port| port.name.clone());
        let same = self.plan.nodes[from].parallelism == self.plan.nodes[to].parallelism;
        match (input.exchange, keyed_port) {
            (Some(ExchangeKind::Keyed), _) => Some(ExchangeKind::Keyed),
            (Some(other), Some(port)) => {
                let message = format!(
                    "input {} of {} is keyed, but exchange = \"{}\" does not bring equal keys together",
                    quote(&port),
                    self.quoted(to),
                    other.word()
                );
                let help = if input.key.is_some() {
                    "remove `exchange`, or write exchange = \"keyed\""
                } else {
                    "write key = \"/...\" in its place, or exchange = \"keyed\" for records that have keys already"
                };
                self.error(&input.span, message, help);
                None
            }
            (Some(ExchangeKind::Forward), None) if !same => {
                let (one, other) = (self.quoted(from), self.quoted(to));
                let message = format!("exchange \"forward\" between {one} and {other} of different parallelism");
                self.error(&input.span, message, "give both the same parallelism, or write exchange = \"rebalance\"");
                None
            }
            (Some(other), None) => Some(other),
            (None, Some(_)) => Some(ExchangeKind::Keyed),
            (None, None) if input.key.is_some() => Some(ExchangeKind::Keyed),
            (None, None) if same => Some(ExchangeKind::Forward),
            (None, None) => Some(ExchangeKind::Rebalance),
        }
    }

    /// A keyed edge takes the keys that records have. Without any, all of them go to one subtask.
    fn check_keys(&mut self, from: usize, port: OutPort, to: usize, input: &InputSpec) {
        let node = &self.plan.nodes[from];
        let (who, reader) = (self.quoted(from), self.quoted(to));
        let help = format!("write where the key is: {{ from = {who}, key = \"/...\" }}");
        match (node.kind, port) {
            (NodeKind::Source(index), port) => {
                let file = matches!(self.spec.sources[index].connector, SourceConnector::File(_));
                if file || port == OutPort::Rejected {
                    let message = format!("{reader} needs keys, but records of source {who} have none");
                    self.error(&input.span, message, help);
                }
            }
            (NodeKind::Operator(_), OutPort::Data(port)) => {
                let output = self.descriptors.get(&node.name).and_then(|d| d.outputs.get(port as usize));
                if let Some(output) = output.filter(|output| !output.keyed) {
                    let message = format!(
                        "{reader} needs keys, and output {} of {who} does not promise any",
                        quote(&output.name)
                    );
                    self.warn(&input.span, message, help);
                }
            }
            (NodeKind::Operator(_), OutPort::Rejected) | (NodeKind::Sink(_), _) => {}
        }
    }

    /// Inputs that nothing feeds, and outputs that nobody reads.
    fn left_over(&mut self) {
        for at in 0..self.plan.nodes.len() {
            let NodeKind::Operator(index) = self.plan.nodes[at].kind else { continue };
            let operator = &self.spec.operators[index];
            let Some(descriptor) = self.descriptors.get(&operator.name) else { continue };
            let who = self.quoted(at);
            if self.unclear.contains(&at) {
                continue;
            }
            for (port, input) in descriptor.inputs.iter().enumerate() {
                if !self.plan.inputs_of(at).any(|edge| edge.to_port as usize == port) {
                    let message = format!("nothing comes to input {} of {who}", quote(&input.name));
                    let help = format!("add to its `inputs`: {{ from = \"NODE\", to = {} }}", quote(&input.name));
                    self.error(&operator.span, message, help);
                }
            }
            for (port, output) in descriptor.outputs.iter().enumerate() {
                if self.plan.outputs_of(at).any(|edge| edge.port == OutPort::Data(u32::try_from(port).unwrap_or(0))) {
                    continue;
                }
                let message = format!("nobody reads output {} of {who}", quote(&output.name));
                if port == 0 {
                    let help = format!("read it: inputs = [{who}] in another node, or remove {who}");
                    self.error(&operator.span, message, help);
                } else {
                    let help = format!(
                        "what comes out there is dropped; to keep it, read {{ from = {who}, port = {} }}",
                        quote(&output.name)
                    );
                    self.warn(&operator.span, message, help);
                }
            }
        }
    }

    fn chain(&mut self) {
        let mut count: BTreeMap<usize, usize> = BTreeMap::new();
        for edge in &self.plan.edges {
            *count.entry(edge.to).or_default() += 1;
        }
        for edge in &mut self.plan.edges {
            let single = self.plan.nodes[edge.from].parallelism == 1 && self.plan.nodes[edge.to].parallelism == 1;
            edge.chained = count[&edge.to] == 1
                && (edge.exchange == ExchangeKind::Forward || (edge.exchange == ExchangeKind::Keyed && single));
        }
    }

    fn count_channels(&mut self) {
        let mut total: u64 = 0;
        for at in 0..self.plan.edges.len() {
            let edge = &self.plan.edges[at];
            let (from, to) = (&self.plan.nodes[edge.from], &self.plan.nodes[edge.to]);
            total += channels(from, to, edge.exchange);
            if total > CHANNELS_MAX {
                let span = match to.kind {
                    NodeKind::Sink(index) => self.spec.sinks[index].span.clone(),
                    NodeKind::Operator(index) => self.spec.operators[index].span.clone(),
                    NodeKind::Source(index) => self.spec.sources[index].span.clone(),
                };
                let message = format!(
                    "with {} of parallelism {} and {} of {} the pipeline needs {total} channels, more than {CHANNELS_MAX}",
                    self.quoted(edge.from),
                    from.parallelism,
                    self.quoted(edge.to),
                    to.parallelism
                );
                self.error(&span, message, "lower the parallelism of one of them");
                return;
            }
        }
    }
}

/// The ports that exist, and the one that was probably meant.
fn port_help(written: &str, ports: &[&str], output: bool) -> String {
    let mut all: Vec<&str> = ports.to_vec();
    if output {
        all.push(REJECTED);
    }
    let hint = nearest(written, all.iter().copied())
        .map_or_else(String::new, |meant| format!("did you mean {}? ", quote(meant)));
    let shown: Vec<String> = all.iter().map(|port| quote(port)).collect();
    match shown.as_slice() {
        [one] => format!("{hint}its only port is {one}"),
        _ => format!("{hint}its ports are {}", listed(&shown, "and")),
    }
}
