//! `weir replay`, and `weir checkpoint verify --replay`: a past epoch done again at one's desk.
//!
//! Both run beside the job if it runs: nothing is claimed, written to its store or published.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use serde::Serialize;
use tokio::sync::watch;

use super::output::{bytes, count, print, print_json, time};
use super::pipeline::{Pipeline, open_store, read_spec};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::flow::{OperatorCall, Seen, Tap};
use crate::job::{Difference, Job, Pair, Verdict, replay_pair};
use crate::metrics::JobMetrics;
use crate::model::{Batch, Epoch, NO_TIME, NodeName, ShownBytes, TaskId, Timestamp};
use crate::plan::{Grants, NodeKind, OutPort, REJECTED, SOURCE_PORT};

/// `weir replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The pipeline file
    pipeline: PathBuf,
    /// The checkpoint to begin at: the epoch after it is done again. 0 begins where the job began
    #[arg(long, value_name = "EPOCH")]
    from: u64,
    /// The node to watch
    #[arg(long)]
    node: String,
    /// Only this subtask of it
    #[arg(long)]
    subtask: Option<u32>,
    /// Stop after this many lines
    #[arg(long)]
    limit: Option<u64>,
    /// Print a JSON object on each line
    #[arg(long)]
    json: bool,
}

/// The pair of checkpoints, and a job with the plugins that ran between them.
async fn open(pipeline: &Path, from: u64) -> Result<(Job, Pair), Error> {
    let (_, spec) = read_spec(pipeline)?;
    let store = open_store(&spec)?;
    let from = (from > 0).then_some(Epoch(from));
    let pair = replay_pair(&store, &spec.name, from).await?;
    let plugins = pair.to.nodes.iter().filter_map(|node| Some((node.name.clone(), node.plugin.as_ref()?.digest)));
    let mut pipeline = Pipeline::load_with(pipeline, &plugins.collect()).await?;
    for operator in &mut pipeline.spec.operators {
        // When an instance is recycled depends on how long it has lived, and changes nothing that can be seen.
        operator.limits.soft_memory_bytes = None;
    }
    let metrics = Arc::new(JobMetrics::new(pipeline.plan.nodes.iter().map(|node| node.name.clone())));
    let code = pipeline.code();
    let clock = Clock::system();
    let job = Job { spec: pipeline.spec, plan: pipeline.plan, code, text: pipeline.text, store, clock, metrics };
    Ok((job, pair))
}

/// `weir checkpoint verify --replay`.
pub(super) async fn verify_replay(pipeline: &Path, from: u64, json: bool) -> Result<(), Error> {
    let (job, pair) = open(pipeline, from).await?;
    let verdict = job.verify_replay(&pair).await?;
    if json {
        print_json(&verdict)?;
    } else {
        print(describe(&verdict))?;
    }
    let Some(first) = verdict.culprit() else { return Ok(()) };
    let error = Error::new(
        ErrorKind::Differs,
        format!(
            "checkpoint {} of job {} does not come out again: node {} is the first that differs",
            verdict.to, verdict.job, first.node
        ),
    );
    Err(error.help(if !first.grants.is_empty() {
        "nothing to mend: what the node was granted is different each time"
    } else if verdict.pipeline_changed {
        "the pipeline file is not the one that the job ran with, which may be the reason: put it back and try again"
    } else {
        "if its data was changed, put it back; else the node does not do the same with the same input, \
         and what it holds after a recovery may differ too. `weir replay` shows what it received and emitted"
    }))
}

fn describe(verdict: &Verdict) -> String {
    let begin = match verdict.from {
        Some(from) => format!("from checkpoint {from}"),
        None => "from the beginning".to_owned(),
    };
    let Verdict { job, to, .. } = verdict;
    let mut text = if verdict.same {
        format!(
            "checkpoint {to} of job {job} comes out again {begin}: {} records read again, {} subtasks, {} chunks of state ({}), {} parts \
             of output ({}); schedules of {}\n",
            count(verdict.records),
            count(verdict.subtasks),
            count(verdict.chunks),
            bytes(verdict.state_bytes),
            count(verdict.parts),
            bytes(verdict.output_bytes),
            bytes(verdict.schedule_bytes)
        )
    } else {
        format!("checkpoint {to} of job {job} does not come out again {begin}\n")
    };
    for difference in &verdict.differences {
        let Difference { node, grants, details, left_out, .. } = difference;
        let why = match (difference.is_consequence, grants.is_empty()) {
            (true, _) => ", after a node that differs".to_owned(),
            (false, true) => String::new(),
            (false, false) => format!(", which was granted {}: not reproducible", Grants::in_words(grants)),
        };
        text.push_str(&format!("node {node}{why}\n"));
        for detail in details {
            let place = detail.subtask.map_or_else(String::new, |subtask| format!("[{subtask}] "));
            text.push_str(&format!("  {place}{}\n", detail.what));
        }
        if *left_out > 0 {
            text.push_str(&format!("  and {left_out} more\n"));
        }
    }
    for granted in verdict.granted.iter().filter(|_| verdict.same) {
        text.push_str(&format!(
            "node {} was granted {}, and made no difference\n",
            granted.node,
            Grants::in_words(&granted.grants)
        ));
    }
    text
}

impl ReplayArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        super::run::block_on(self.show())
    }

    async fn show(self) -> Result<(), Error> {
        let (job, pair) = open(&self.pipeline, self.from).await?;
        let name = NodeName::new(self.node.as_str());
        let Some(planned) = job.plan.nodes.iter().find(|node| node.name == name) else {
            let names: Vec<&str> = job.plan.nodes.iter().map(|node| node.name.as_str()).collect();
            return Err(Error::new(ErrorKind::Usage, format!("the pipeline has no node {:?}", self.node))
                .help(format!("its nodes are {}", names.join(", "))));
        };
        if let Some(subtask) = self.subtask.filter(|subtask| *subtask >= planned.parallelism) {
            let most = planned.parallelism - 1;
            return Err(Error::new(ErrorKind::Usage, format!("node {:?} has no subtask {subtask}", self.node))
                .help(format!("its subtasks are 0 to {most}")));
        }
        let inputs = match planned.kind {
            NodeKind::Operator(_) => {
                let code = job.code.get(&name);
                code.map(|code| code.descriptor.inputs.iter().map(|port| port.name.clone()).collect())
                    .unwrap_or_default()
            }
            _ => vec!["in".to_owned()],
        };
        let (stop, mut stopped) = watch::channel(false);
        let printer = Arc::new(Printer {
            node: name.clone(),
            subtask: self.subtask,
            json: self.json,
            inputs,
            outputs: planned.output_ports.clone(),
            state: Mutex::new(State { left: self.limit, calls: BTreeMap::new() }),
            stop,
        });
        tokio::select! {
            watched = job.watch_replay(&pair, printer) => {
                for reason in watched? {
                    eprintln!("not to the end: {reason}");
                }
                Ok(())
            }
            _ = stopped.wait_for(|stop| *stop) => Ok(()),
        }
    }
}

/// Prints what a node received and emitted.
#[derive(Debug)]
struct Printer {
    node: NodeName,
    subtask: Option<u32>,
    json: bool,
    inputs: Vec<String>,
    outputs: Vec<String>,
    state: Mutex<State>,
    /// Told when nothing more is to be printed.
    stop: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    left: Option<u64>,
    /// How many calls each subtask has had.
    calls: BTreeMap<u32, u64>,
}

/// A line.
#[derive(Debug, Serialize)]
struct Line<'a> {
    node: &'a str,
    subtask: u32,
    /// Which call of the subtask, from 1.
    call: u64,
    /// `poll`, `process`, `advance`, `wake`, `finish`, `resume` or `write`.
    kind: &'static str,
    /// `call`, `in`, `out` or `rejected`.
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<&'a str>,
    /// The processing time of a call that looked at it, in microseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<Timestamp>,
    /// Of `advance`, in microseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    watermark: Option<Timestamp>,
    /// Of a record, in microseconds since the Unix epoch; none if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<ShownBytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<ShownBytes>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl Line<'_> {
    fn print(&self, json: bool) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            serde_json::to_writer(&mut out, self)?;
            return out.write_all(b"\n");
        }
        let Self { node, subtask, call, kind, what, .. } = self;
        let mut text = format!("{node}[{subtask}] {call:>6} {kind:<7} {what:<8}");
        let mut add = |part: &str| {
            text.push(' ');
            text.push_str(part);
        };
        self.port.iter().for_each(|port| add(port));
        self.now.iter().for_each(|now| add(&format!("at {}", time(*now))));
        self.watermark.iter().for_each(|watermark| add(&format!("watermark {}", time(*watermark))));
        if *what != "call" {
            add(&self.event_time.map_or_else(|| "-".into(), time));
            let column = |bytes: &Option<ShownBytes>| bytes.as_ref().map_or_else(|| "-".into(), ShownBytes::short);
            add(&column(&self.key));
            add(&column(&self.value));
        }
        self.reason.iter().for_each(|reason| add(&format!("because: {reason}")));
        writeln!(out, "{}", text.trim_end())
    }
}

impl Printer {
    /// Prints a line, unless there were enough. False: that was the last one.
    fn print(&self, state: &mut State, line: &Line<'_>) -> bool {
        if state.left == Some(0) {
            return false;
        }
        if let Some(left) = &mut state.left {
            *left -= 1;
        }
        if line.print(self.json).is_err() || state.left == Some(0) {
            // Whoever read has gone, or has got what was asked for.
            state.left = Some(0);
            self.stop.send_replace(true);
            return false;
        }
        true
    }

    fn records(&self, state: &mut State, line: &mut Line<'_>, batch: &Batch, reasons: &[String]) -> bool {
        for row in 0..batch.len() {
            let one = Line {
                event_time: Some(batch.timestamps[row]).filter(|&time| time != NO_TIME),
                key: batch.keys.get(row).map(ShownBytes::new),
                value: batch.values.get(row).map(ShownBytes::new),
                reason: reasons.get(row).map(String::as_str),
                now: None,
                watermark: None,
                ..*line
            };
            if !self.print(state, &one) {
                return false;
            }
        }
        true
    }

    fn input(&self, port: u32) -> Option<&str> {
        self.inputs.get(port as usize).map(String::as_str)
    }

    fn output(&self, port: OutPort) -> Option<&str> {
        match port {
            OutPort::Rejected => Some(REJECTED),
            OutPort::Data(port) => Some(self.outputs.get(port as usize).map_or(SOURCE_PORT, String::as_str)),
        }
    }

    fn called<'a>(&'a self, state: &mut State, mut line: Line<'a>, seen: Seen<'a>) {
        match seen {
            Seen::Gave(port, batch) => {
                line.port = self.output(port);
                (line.kind, line.what) = ("poll", "out");
                self.records(state, &mut line, batch, &[]);
            }
            Seen::Received(port, batch) => {
                line.port = self.input(port);
                (line.kind, line.what) = ("write", "in");
                self.records(state, &mut line, batch, &[]);
            }
            Seen::Called(call, now, out) => {
                (line.kind, line.now) = (kind(call), now);
                match call {
                    OperatorCall::Process(port, _) | OperatorCall::Finish(port) => line.port = self.input(port),
                    OperatorCall::Advance(watermark) => line.watermark = Some(watermark),
                    OperatorCall::Wake | OperatorCall::Resume => {}
                }
                if !self.print(state, &line) {
                    return;
                }
                line.what = "in";
                if let OperatorCall::Process(_, batch) = call
                    && !self.records(state, &mut line, batch, &[])
                {
                    return;
                }
                line.what = "out";
                for (port, batch) in &out.emitted {
                    line.port = self.output(OutPort::Data(*port));
                    if !self.records(state, &mut line, batch, &[]) {
                        return;
                    }
                }
                (line.what, line.port) = ("rejected", Some(REJECTED));
                let (records, reasons) = &out.rejected;
                self.records(state, &mut line, records, reasons);
            }
        }
    }
}

fn kind(call: OperatorCall<'_>) -> &'static str {
    match call {
        OperatorCall::Process(..) => "process",
        OperatorCall::Advance(_) => "advance",
        OperatorCall::Wake => "wake",
        OperatorCall::Finish(_) => "finish",
        OperatorCall::Resume => "resume",
    }
}

impl Tap for Printer {
    fn note(&self, task: &TaskId, seen: Seen<'_>) {
        if task.node != self.node || self.subtask.is_some_and(|subtask| subtask != task.subtask) {
            return;
        }
        if let Seen::Gave(_, batch) = seen
            && batch.is_empty()
        {
            return;
        }
        // Held while it prints: lines of one call stay together.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let call = state.calls.entry(task.subtask).or_default();
        *call += 1;
        let line = Line {
            node: self.node.as_str(),
            subtask: task.subtask,
            call: *call,
            kind: "",
            what: "call",
            port: None,
            now: None,
            watermark: None,
            event_time: None,
            key: None,
            value: None,
            reason: None,
        };
        self.called(&mut state, line, seen);
    }
}
