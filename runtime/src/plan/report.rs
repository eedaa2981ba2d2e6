//! What `weir check` says of a pipeline that is sound: the nodes, how they are wired, and what each path promises.
//!
//! [`CheckReport`] is what `--json` prints; [`render_check`] is the same for people. Warnings are part of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::diagnostic::{Diagnostic, SourceText};
use super::guarantee::Guarantees;
use super::parse::values::show_duration;
use super::physical::{Edge, NodeKind, OutPort, Plan};
use super::{
    ExchangeKind, Grants, OperatorSpec, PipelineSpec, SinkConnector, SinkFormat, SourceConnector, SourceFormat,
};
use crate::model::{Descriptor, NodeName, StateKind};

/// A checked pipeline.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The name of the job.
    pub pipeline: String,
    /// How many key groups it has.
    pub key_groups: u32,
    /// The URL of the store, as it is written.
    pub store: String,
    /// From one checkpoint to the next, such as `1s`.
    pub checkpoint_interval: String,
    /// In topological order.
    pub nodes: Vec<NodeReport>,
    /// By receiver.
    pub edges: Vec<EdgeReport>,
    /// What each path promises.
    pub guarantees: Guarantees,
    /// What may not be meant.
    pub warnings: Vec<Diagnostic>,
    #[serde(skip)]
    text: SourceText,
}

/// A node, as people see it.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// `source`, `operator` or `sink`.
    pub kind: &'static str,
    /// How many subtasks.
    pub parallelism: u32,
    /// The connector or the plugin, and what it works on.
    pub what: String,
    /// What an operator may see of the world outside, so that a replay of it may differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
}

/// An edge, as people see it.
#[derive(Clone, Debug, Serialize)]
pub struct EdgeReport {
    /// The sender; `node:port` if the port is not the first.
    pub from: String,
    /// The receiver; `node:port` if the port is not the first.
    pub to: String,
    /// `forward`, `keyed`, `broadcast` or `rebalance`.
    pub exchange: &'static str,
    /// Where the key is, if one is taken.
    pub key: Option<String>,
    /// Sender and receiver are one task.
    pub chained: bool,
}

impl CheckReport {
    /// Puts together what is known of a sound pipeline.
    pub fn new(
        spec: &PipelineSpec,
        plan: &Plan,
        descriptors: &BTreeMap<NodeName, Descriptor>,
        has_snapshot_code: &BTreeMap<NodeName, bool>,
        guarantees: Guarantees,
    ) -> Self {
        let nodes = plan.nodes.iter().map(|node| {
            let (kind, what) = match node.kind {
                NodeKind::Source(index) => ("source", source(&spec.sources[index].connector)),
                NodeKind::Operator(index) => {
                    let snapshots = has_snapshot_code.get(&node.name).copied().unwrap_or(false);
                    ("operator", operator(&spec.operators[index], descriptors.get(&node.name), snapshots))
                }
                NodeKind::Sink(index) => ("sink", sink(&spec.sinks[index].connector)),
            };
            let grants = match node.kind {
                NodeKind::Operator(index) => spec.operators[index].grants.words(),
                NodeKind::Source(_) | NodeKind::Sink(_) => Vec::new(),
            };
            NodeReport { name: node.name.to_string(), kind, parallelism: node.parallelism, what, grants }
        });
        Self {
            pipeline: spec.name.clone(),
            key_groups: spec.key_groups,
            store: spec.checkpoint.store.clone(),
            checkpoint_interval: show_duration(spec.checkpoint.interval),
            nodes: nodes.collect(),
            edges: plan.edges.iter().map(|e| edge(plan, e, descriptors)).collect(),
            guarantees,
            warnings: plan.warnings.clone(),
            text: spec.text.clone(),
        }
    }
}

fn source(connector: &SourceConnector) -> String {
    match connector {
        SourceConnector::File(file) => {
            let format = match file.format {
                SourceFormat::Lines => "lines",
                SourceFormat::Json => "json",
                SourceFormat::Csv(_) => "csv",
            };
            format!("file {}, {format}{}", file.path, if file.follow { ", followed" } else { "" })
        }
        SourceConnector::Generator(generator) => match generator.records {
            Some(records) => format!("generator, {records} records of {} keys", generator.keys),
            None => format!("generator, without end, of {} keys", generator.keys),
        },
    }
}

fn operator(spec: &OperatorSpec, descriptor: Option<&Descriptor>, snapshots: bool) -> String {
    let Some(descriptor) = descriptor else { return spec.plugin.to_string() };
    let state = match descriptor.state {
        StateKind::Stateless => "stateless",
        StateKind::Whole => "state of a subtask",
        StateKind::Keyed => "keyed state",
    };
    let image = if descriptor.state == StateKind::Stateless || snapshots {
        String::new()
    } else {
        format!(": image of memory (bound to this exact plugin and parallelism {})", spec.parallelism)
    };
    format!("{}: {} {}, {state}{image}", spec.plugin, descriptor.name, descriptor.version)
}

fn sink(connector: &SinkConnector) -> String {
    let word = |format: &SinkFormat| match format {
        SinkFormat::Lines => "lines",
        SinkFormat::Json => "json",
        SinkFormat::Csv => "csv",
    };
    match connector {
        SinkConnector::File(file) => format!("file {}, {}", file.path.display(), word(&file.format)),
        SinkConnector::Object(object) => format!("object {}, {}", object.url, word(&object.format)),
        SinkConnector::Stdout(format) => format!("stdout, {}", word(format)),
        SinkConnector::Blackhole => "blackhole".into(),
    }
}

fn edge(plan: &Plan, edge: &Edge, descriptors: &BTreeMap<NodeName, Descriptor>) -> EdgeReport {
    let (from, to) = (&plan.nodes[edge.from], &plan.nodes[edge.to]);
    let input = descriptors.get(&to.name).and_then(|d| d.inputs.get(edge.to_port as usize));
    EdgeReport {
        from: match edge.port {
            OutPort::Data(0) => from.name.to_string(),
            _ => format!("{}:{}", from.name, plan.port_name(edge)),
        },
        to: match input {
            Some(input) if edge.to_port > 0 => format!("{}:{}", to.name, input.name),
            _ => to.name.to_string(),
        },
        exchange: edge.exchange.word(),
        key: edge.key.as_ref().map(ToString::to_string),
        chained: edge.chained,
    }
}

/// The report as plain text, in columns, with a newline at the end.
pub fn render_check(report: &CheckReport) -> String {
    let mut text = format!(
        "pipeline {}: {} key groups, a checkpoint every {} into {}\n\nnodes\n",
        report.pipeline, report.key_groups, report.checkpoint_interval, report.store
    );
    // Writing to text cannot fail.
    let width = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
    let name = width(&mut report.nodes.iter().map(|node| node.name.len()));
    let subtasks = width(&mut report.nodes.iter().map(|node| node.parallelism.to_string().len()));
    for NodeReport { name: node, kind, parallelism, what, grants } in &report.nodes {
        let _ = writeln!(text, "  {kind:<8}  {node:<name$}  x {parallelism:<subtasks$}  {what}");
        if !grants.is_empty() {
            let real = Grants::in_words(grants);
            let _ = writeln!(text, "            {:name$}    {:subtasks$}  granted {real}: a replay may differ", "", "");
        }
    }
    text.push_str("\nedges\n");
    let from = width(&mut report.edges.iter().map(|edge| edge.from.len()));
    let to = width(&mut report.edges.iter().map(|edge| edge.to.len()));
    for EdgeReport { from: sender, to: receiver, exchange, key, chained } in &report.edges {
        let how = match key {
            Some(key) if *exchange == ExchangeKind::Keyed.word() => format!("keyed by {key}"),
            Some(key) => format!("{exchange}, the key from {key}"),
            None if *exchange == ExchangeKind::Keyed.word() => "keyed by the keys that records have".into(),
            None => (*exchange).to_owned(),
        };
        let chained = if *chained { ", chained" } else { "" };
        let _ = writeln!(text, "  {sender:<from$} -> {receiver:<to$}  {how}{chained}");
    }
    text.push_str("\nguarantees\n");
    for path in &report.guarantees.paths {
        let _ = writeln!(text, "  {}\n    {}: {}", path.path.join(" -> "), path.guarantee, path.reason);
    }
    if report.guarantees.left_out > 0 {
        let _ = writeln!(text, "  {} more paths are not shown", report.guarantees.left_out);
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "\n{}", report.text.render(warning));
    }
    text
}
