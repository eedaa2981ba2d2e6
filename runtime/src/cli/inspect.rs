//! `weir checkpoint`: what the store holds, read without running or claiming anything.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::control::Target;
use super::output::{Table, bytes, count, print, print_json, time};
use super::pipeline::read_spec;
use crate::checkpoint::{EntryKind, EntrySummary, Manifest, NodeKind, Store, history, read_manifest, verify};
use crate::error::{Error, ErrorKind};
use crate::flow::Progress;
use crate::model::{Epoch, SegmentKind, Timestamp};

/// `weir checkpoint`.
#[derive(Debug, Subcommand)]
pub(super) enum CheckpointCommand {
    /// List the completed checkpoints of a job
    List(ListArgs),
    /// Show what a checkpoint holds
    Show(EpochArgs),
    /// Read a checkpoint whole and check every byte of it against its digests; or replay an epoch
    Verify(VerifyArgs),
    /// Have a running job take a checkpoint, and wait until it is committed
    Now(super::control::NowArgs),
    /// Change settings of a running job's checkpoints, until its process ends
    Set(super::control::SetArgs),
    /// Show what changed between two checkpoints, by node and key group
    Diff(super::diff::DiffArgs),
    /// Delete what no checkpoint needs any more; safe beside a running job
    Gc(super::gc::GcArgs),
}

/// Which job.
#[derive(Debug, Args)]
pub(super) struct JobArgs {
    /// The pipeline file; it names the job and the store
    #[arg(required_unless_present = "store")]
    pub(super) pipeline: Option<PathBuf>,
    /// The URL of the store, instead of a pipeline file
    #[arg(long, requires = "job", conflicts_with = "pipeline")]
    store: Option<String>,
    /// The name of the job, with --store
    #[arg(long, requires = "store")]
    job: Option<String>,
    /// An option of the store, with --store, as in checkpoint.store_options; may be repeated
    #[arg(long = "store-option", requires = "store", value_name = "KEY=VALUE", value_parser = parse_option)]
    store_options: Vec<(String, String)>,
    /// Answer in JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `KEY=VALUE`.
pub(super) fn parse_option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err("write it as KEY=VALUE".into()),
    }
}

/// `weir checkpoint list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Show every entry of the log: claims of runs, too
    #[arg(long)]
    all: bool,
}

/// `weir checkpoint verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    epoch: EpochArgs,
    /// Start from this checkpoint, do the epoch after it again, and compare what comes out with the next checkpoint; 0 begins where the job began
    #[arg(long, value_name = "EPOCH", conflicts_with_all = ["epoch", "store"])]
    replay: Option<u64>,
}

/// `weir checkpoint show`.
#[derive(Debug, Args)]
pub(super) struct EpochArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Its epoch; the newest if it is left out
    #[arg(long, short)]
    epoch: Option<u64>,
}

impl JobArgs {
    fn target(&self) -> Result<Target, Error> {
        if let (Some(store), Some(job)) = (&self.store, &self.job) {
            return Ok(Target::in_store(store, &self.store_options, job));
        }
        let path = self.pipeline.clone().ok_or_else(|| Error::new(ErrorKind::Usage, "no pipeline file is named"))?;
        let (_, spec) = read_spec(&path)?;
        Ok(Target::of_pipeline(spec, path))
    }

    pub(super) fn open(&self) -> Result<(Store, String), Error> {
        let target = self.target()?;
        Ok((target.store()?, target.job))
    }

    /// Fails if a process on this machine runs the job.
    pub(super) async fn check_stopped(&self) -> Result<(), Error> {
        let target = self.target()?;
        match target.running().await? {
            None => Ok(()),
            Some(found) => {
                let run = found.status.generation.map_or_else(String::new, |run| format!(" (run {run})"));
                let message = format!("job {:?} is running{run}: it commits what it prepares by itself", target.job);
                Err(Error::new(ErrorKind::Usage, message).help("stop it first: weir stop"))
            }
        }
    }
}

impl EpochArgs {
    /// The epoch that is asked for, or the newest.
    async fn find(&self, store: &Store, job: &str) -> Result<Epoch, Error> {
        if let Some(epoch) = self.epoch {
            return Ok(Epoch(epoch));
        }
        let entries = history(store, job).await?;
        entries.iter().filter_map(|entry| entry.epoch).max().ok_or_else(|| {
            Error::new(ErrorKind::State, format!("job {job:?} has no complete checkpoint yet"))
                .help("run it for longer than its checkpoint.interval")
        })
    }
}

impl CheckpointCommand {
    pub(super) fn run(self) -> Result<(), Error> {
        super::run::block_on(async {
            match self {
                Self::Now(args) => args.run().await,
                Self::Set(args) => args.run().await,
                Self::List(args) => list(args).await,
                Self::Show(args) => show(args).await,
                Self::Verify(args) => match (args.replay, &args.epoch.job.pipeline) {
                    (Some(from), Some(pipeline)) => {
                        super::replay::verify_replay(pipeline, from, args.epoch.job.json).await
                    }
                    _ => verify_one(args.epoch).await,
                },
                Self::Diff(args) => super::diff::diff_two(args).await,
                Self::Gc(args) => super::gc::gc(args).await,
            }
        })
    }
}

/// A row of the list.
#[derive(Debug, Serialize)]
struct Row {
    seq: u64,
    kind: &'static str,
    epoch: Option<u64>,
    generation: Option<u64>,
    created_at: Option<Timestamp>,
    committed: bool,
    finished: bool,
    packs: u64,
    state_bytes: u64,
    note: String,
}

impl From<&EntrySummary> for Row {
    fn from(entry: &EntrySummary) -> Self {
        let (kind, note) = match &entry.kind {
            EntryKind::Claim { base: None } => ("claim", "a run began at the beginning".to_owned()),
            EntryKind::Claim { base: Some(base) } => ("claim", format!("a run began from checkpoint {base}")),
            EntryKind::Checkpoint if entry.finished => ("checkpoint", "the job finished".to_owned()),
            EntryKind::Checkpoint => ("checkpoint", String::new()),
            EntryKind::Void => ("void", String::new()),
            EntryKind::Refused { node, version, reason } => {
                ("refused", format!("version {version} of node {node} was taken back: {reason}"))
            }
            EntryKind::Damaged { fault } => ("damaged", fault.clone()),
        };
        Self {
            seq: entry.seq,
            kind,
            epoch: entry.epoch.map(|epoch| epoch.0),
            generation: entry.generation.map(|generation| generation.0),
            created_at: entry.created_at,
            committed: entry.committed,
            finished: entry.finished,
            packs: entry.packs,
            state_bytes: entry.bytes,
            note,
        }
    }
}

async fn list(args: ListArgs) -> Result<(), Error> {
    let (store, job) = args.job.open()?;
    let rows: Vec<Row> = history(&store, &job).await?.iter().map(Row::from).collect();
    // Damage is shown in any case: it must not look as if there were nothing.
    let rows: Vec<Row> =
        rows.into_iter().filter(|row| args.all || matches!(row.kind, "checkpoint" | "damaged")).collect();
    if args.job.json {
        return print_json(&rows);
    }
    if rows.is_empty() {
        eprintln!("job {job:?} has no complete checkpoint yet");
        return Ok(());
    }
    let mut table = Table::new(&[">epoch", "entry", ">run", "completed", "output", ">packs", ">state", "note"]);
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for row in rows {
        let checkpoint = row.kind == "checkpoint";
        table.row(vec![
            number(row.epoch),
            row.kind.into(),
            number(row.generation),
            row.created_at.map_or_else(|| "-".into(), time),
            match (checkpoint, row.committed) {
                (false, _) => "-".into(),
                (true, true) => "committed".into(),
                (true, false) => "open".into(),
            },
            if checkpoint { count(row.packs) } else { "-".into() },
            if checkpoint { bytes(row.state_bytes) } else { "-".into() },
            row.note,
        ]);
    }
    print(table)
}

/// What `show` prints.
#[derive(Debug, Serialize)]
struct Shown {
    job: String,
    job_id: String,
    epoch: u64,
    parent: Option<u64>,
    generation: u64,
    created_at: Timestamp,
    finished: bool,
    key_groups: u32,
    subtasks: Vec<ShownSubtask>,
    committables: Vec<ShownCommittables>,
}

#[derive(Debug, Serialize)]
struct ShownSubtask {
    node: String,
    kind: &'static str,
    subtask: u32,
    plugin: Option<String>,
    watermark: Option<Timestamp>,
    records: u64,
    ended: bool,
    segments: usize,
    deltas: usize,
    state_bytes: u64,
    splits: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ShownCommittables {
    sink: String,
    epochs: Vec<u64>,
    count: usize,
}

impl From<&Manifest> for Shown {
    fn from(manifest: &Manifest) -> Self {
        let subtasks = manifest.nodes.iter().flat_map(|node| {
            node.subtasks.iter().enumerate().map(|(number, entry)| ShownSubtask {
                node: node.name.to_string(),
                kind: match node.kind {
                    NodeKind::Source => "source",
                    NodeKind::Operator => "operator",
                    NodeKind::Sink => "sink",
                },
                subtask: number as u32,
                plugin: node.plugin.as_ref().map(|plugin| {
                    let digest = blake3::Hash::from_bytes(plugin.digest).to_hex();
                    format!("{} {} ({}…)", plugin.name, plugin.version, &digest[..12])
                }),
                watermark: Some(entry.watermark).filter(|&at| at != crate::model::NO_TIME),
                records: entry.records,
                ended: match Progress::decode(&entry.progress) {
                    Ok(Progress::Source { ended, .. }) => ended,
                    Ok(Progress::Inbox { state, .. }) => state.inputs.iter().all(|input| input.ended),
                    Err(_) => false,
                },
                segments: entry.segments.len(),
                deltas: entry.segments.iter().filter(|segment| segment.kind == SegmentKind::Delta).count(),
                state_bytes: entry.segments.iter().map(|segment| segment.bytes).sum(),
                splits: entry
                    .positions
                    .iter()
                    .map(|p| p.split.clone())
                    .filter(|split| !split.starts_with('*'))
                    .collect(),
            })
        });
        let committables = manifest.nodes.iter().filter(|node| !node.committables.is_empty()).map(|node| {
            let mut epochs: Vec<u64> = node.committables.iter().map(|staged| staged.epoch.0).collect();
            epochs.dedup();
            ShownCommittables { sink: node.name.to_string(), epochs, count: node.committables.len() }
        });
        Self {
            job: manifest.job.clone(),
            job_id: manifest.job_id.to_string(),
            epoch: manifest.epoch.0,
            parent: manifest.parent.map(|epoch| epoch.0),
            generation: manifest.generation.0,
            created_at: manifest.created_at,
            finished: manifest.finished,
            key_groups: manifest.key_groups,
            subtasks: subtasks.collect(),
            committables: committables.collect(),
        }
    }
}

async fn show(args: EpochArgs) -> Result<(), Error> {
    let (store, job) = args.job.open()?;
    let epoch = args.find(&store, &job).await?;
    let shown = Shown::from(&read_manifest(&store, &job, epoch).await?);
    if args.job.json {
        return print_json(&shown);
    }
    let mut text = format!(
        "checkpoint {} of job {} (id {}), run {}, completed {}",
        shown.epoch,
        shown.job,
        shown.job_id,
        shown.generation,
        time(shown.created_at)
    );
    if shown.finished {
        text.push_str(", the last one: the job finished");
    }
    text.push_str(&format!("\n{} key groups\n\n", shown.key_groups));
    let mut table =
        Table::new(&["task", "kind", "plugin", "watermark", ">records", ">segments", ">deltas", ">state", "note"]);
    for task in &shown.subtasks {
        let mut note = if task.ended { "ended".to_owned() } else { String::new() };
        if let [split] = task.splits.as_slice() {
            note = format!("{note} {split}");
        } else if !task.splits.is_empty() {
            note = format!("{note} {} splits", task.splits.len());
        }
        table.row(vec![
            format!("{}[{}]", task.node, task.subtask),
            task.kind.into(),
            task.plugin.clone().unwrap_or_else(|| "-".into()),
            task.watermark.map_or_else(|| "-".into(), time),
            count(task.records),
            count(task.segments as u64),
            count(task.deltas as u64),
            bytes(task.state_bytes),
            note.trim().to_owned(),
        ]);
    }
    text.push_str(&table.to_string());
    for staged in &shown.committables {
        text.push_str(&format!(
            "\nsink {}: {} committables of epochs {:?}\n",
            staged.sink, staged.count, staged.epochs
        ));
    }
    print(text)
}

async fn verify_one(args: EpochArgs) -> Result<(), Error> {
    let (store, job) = args.job.open()?;
    let epoch = args.find(&store, &job).await?;
    let report = verify(&store, &job, epoch).await?;
    if args.job.json {
        #[derive(Serialize)]
        struct Verified<'a> {
            job: &'a str,
            epoch: u64,
            sound: bool,
            packs: u64,
            chunks: u64,
            bytes: u64,
            faults: &'a [String],
        }
        print_json(&Verified {
            job: &job,
            epoch: epoch.0,
            sound: report.faults.is_empty(),
            packs: report.packs,
            chunks: report.chunks,
            bytes: report.bytes,
            faults: &report.faults,
        })?;
    } else if report.faults.is_empty() {
        print(format_args!(
            "checkpoint {epoch} of job {job} is sound: {} packs, {} chunks, {}\n",
            count(report.packs),
            count(report.chunks),
            bytes(report.bytes)
        ))?;
    } else {
        for fault in &report.faults {
            print(format_args!("{fault}\n"))?;
        }
    }
    match report.faults.len() {
        0 => Ok(()),
        n => Err(Error::new(ErrorKind::State, format!("checkpoint {epoch} of job {job} is damaged in {n} places"))
            .help("an older checkpoint may be sound: weir checkpoint list, verify, and run with --from")),
    }
}
