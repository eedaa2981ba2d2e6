//! `weir savepoint`: checkpoints that are kept under a name until they are deleted.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::control::{Target, TargetArgs, holds};
use super::output::{Table, bytes, count, print, print_json, time};
use super::pipeline::Pipeline;
use crate::checkpoint::{
    Manifest, Savepoint, Store, check_savepoint_name, create_savepoint, delete_savepoint, export_savepoint,
    find_savepoint, list_savepoints, missing_plugins,
};
use crate::error::{Error, ErrorKind};
use crate::job::{Answer, Request};
use crate::model::Timestamp;

/// `weir savepoint`.
#[derive(Debug, Subcommand)]
pub(super) enum SavepointCommand {
    /// Keep a checkpoint under a name: a fresh one of a running job, else the newest
    Create(NameArgs),
    /// List the savepoints of a job
    List(ListArgs),
    /// Write a savepoint into one file, with everything that it needs elsewhere
    Export(ExportArgs),
    /// Delete a savepoint
    Delete(NameArgs),
}

/// `weir savepoint create` and `delete`.
#[derive(Debug, Args)]
pub(super) struct NameArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The name of the savepoint
    name: String,
}

/// `weir savepoint list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    target: TargetArgs,
}

/// `weir savepoint export`.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The name of the savepoint
    name: String,
    /// The file to write; there must be none
    file: PathBuf,
}

impl SavepointCommand {
    pub(super) fn run(self) -> Result<(), Error> {
        super::run::block_on(async {
            match self {
                Self::Create(args) => create(args).await,
                Self::List(args) => list(args).await,
                Self::Export(args) => export(args).await,
                Self::Delete(args) => delete(args).await,
            }
        })
    }
}

/// A row of the list, and what `create` answers.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    epoch: u64,
    completed_at: Timestamp,
    finished: bool,
    packs: u64,
    state_bytes: u64,
    nodes: Vec<RowNode>,
}

#[derive(Debug, Serialize)]
struct RowNode {
    node: String,
    parallelism: u32,
}

impl Row {
    fn new(name: &str, manifest: &Manifest) -> Self {
        let nodes =
            manifest.nodes.iter().map(|node| RowNode { node: node.name.to_string(), parallelism: node.parallelism });
        Self {
            name: name.to_owned(),
            epoch: manifest.epoch.0,
            completed_at: manifest.created_at,
            finished: manifest.finished,
            packs: manifest.packs().len() as u64,
            state_bytes: manifest.segments().map(|segment| segment.bytes).sum(),
            nodes: nodes.collect(),
        }
    }
}

async fn create(args: NameArgs) -> Result<(), Error> {
    let name = &args.name;
    check_savepoint_name(name)?;
    let target = args.target.find()?;
    let store = target.open_store()?;
    let manifest = match target.running().await? {
        Some(found) => match found.ask(&Request::Savepoint { name: name.clone() }).await? {
            Answer::Checkpoint { .. } => find_savepoint(&store, &target.job, name).await?.manifest,
            other => {
                return Err(Error::new(ErrorKind::Job, format!("the job answered something else: {other:?}"))
                    .help("use the same version of weir as the process that runs the job"));
            }
        },
        None => create_savepoint(&store, &target.job, name).await?.manifest,
    };
    keep_plugins(&target, &store, name, &manifest).await?;
    if args.target.json {
        return print_json(&Row::new(name, &manifest));
    }
    print(format_args!("savepoint {name} of job {} keeps {}\n", target.job, holds(&manifest)))
}

/// Sees that the store has the plugins that a savepoint needs: a run has put them, unless somebody removed them.
async fn keep_plugins(target: &Target, store: &Store, name: &str, manifest: &Manifest) -> Result<(), Error> {
    let mut missing = missing_plugins(store, manifest).await?;
    if let (false, Some(path)) = (missing.is_empty(), &target.pipeline) {
        let pipeline = Pipeline::load(path).await?;
        for found in pipeline.plugins.values() {
            store.put_plugin(found.bytes.clone().into()).await?;
        }
        missing = missing_plugins(store, manifest).await?;
    }
    let Some((node, digest)) = missing.first() else { return Ok(()) };
    let digest = blake3::Hash::from_bytes(*digest).to_hex();
    let message = format!(
        "savepoint {name:?} is made and lacks the plugin of node {:?}, which is not in the store: {digest}",
        node.as_str()
    );
    Err(Error::new(ErrorKind::State, message)
        .help("name a pipeline file that uses exactly that plugin, so that it is put there, and create it again"))
}

async fn list(args: ListArgs) -> Result<(), Error> {
    let target = args.target.find()?;
    let savepoints = list_savepoints(&target.open_store()?, &target.job).await?;
    let rows: Vec<Row> = savepoints.iter().map(|Savepoint { name, manifest }| Row::new(name, manifest)).collect();
    if args.target.json {
        return print_json(&rows);
    }
    if rows.is_empty() {
        eprintln!("job {:?} has no savepoint", target.job);
        return Ok(());
    }
    let mut table = Table::new(&["savepoint", ">epoch", "completed", ">packs", ">state", "note"]);
    for row in rows {
        let note = if row.finished { "the job finished" } else { "" };
        table.row(vec![
            row.name,
            row.epoch.to_string(),
            time(row.completed_at),
            count(row.packs),
            bytes(row.state_bytes),
            note.into(),
        ]);
    }
    print(table)
}

async fn export(args: ExportArgs) -> Result<(), Error> {
    let target = args.target.find()?;
    let exported = export_savepoint(&target.open_store()?, &target.job, &args.name, &args.file).await?;
    if args.target.json {
        #[derive(Serialize)]
        struct Written<'a> {
            file: &'a std::path::Path,
            packs: u64,
            plugins: u64,
            bytes: u64,
        }
        let (packs, plugins, bytes) = (exported.packs, exported.plugins, exported.bytes);
        return print_json(&Written { file: &args.file, packs, plugins, bytes });
    }
    print(format_args!(
        "savepoint {} is in {}: {} packs, {} plugins, {}\n",
        args.name,
        args.file.display(),
        count(exported.packs),
        count(exported.plugins),
        bytes(exported.bytes)
    ))
}

async fn delete(args: NameArgs) -> Result<(), Error> {
    let target = args.target.find()?;
    let freed = delete_savepoint(&target.open_store()?, &target.job, &args.name).await?;
    if args.target.json {
        #[derive(Serialize)]
        struct Deleted<'a> {
            name: &'a str,
            epoch: u64,
            packs: u64,
            bytes: u64,
        }
        let (epoch, packs, bytes) = (freed.epoch.0, freed.packs, freed.bytes);
        return print_json(&Deleted { name: &args.name, epoch, packs, bytes });
    }
    let frees = match freed.packs {
        0 => "nothing is freed: other checkpoints need all that it kept".to_owned(),
        packs => {
            format!("{} packs with {} of its state are freed at the next collection", count(packs), bytes(freed.bytes))
        }
    };
    print(format_args!("savepoint {} of checkpoint {} is deleted; {frees}\n", args.name, freed.epoch))
}
