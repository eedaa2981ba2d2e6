//! `weir checkpoint gc`: deletes what no checkpoint needs any more, in the store and in the places of sinks.

use clap::Args;
use serde::Serialize;

use super::inspect::JobArgs;
use super::output::{Table, bytes, count, print, print_json};
use super::pipeline::read_spec;
use crate::checkpoint::sweep;
use crate::connector::{ConnectorError, committer};
use crate::error::{Error, ErrorKind};

/// What is kept where no pipeline file says it.
const RETAIN: u32 = 3;

/// `weir checkpoint gc`.
#[derive(Debug, Args)]
pub(super) struct GcArgs {
    #[command(flatten)]
    job: JobArgs,
    /// How many complete checkpoints are kept, instead of checkpoint.retain of the pipeline
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    retain: Option<u32>,
    /// Only show what would go
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct Item {
    /// `store`, or the name of a sink.
    of: String,
    name: String,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Collected {
    job: String,
    dry_run: bool,
    objects: usize,
    bytes: u64,
    items: Vec<Item>,
    kept_back: Option<String>,
}

fn failed(sink: &str, error: ConnectorError) -> Error {
    Error::new(ErrorKind::Store, format!("what sink {sink:?} has left over cannot be collected")).caused_by(error)
}

pub(super) async fn gc(args: GcArgs) -> Result<(), Error> {
    let (store, job) = args.job.open()?;
    let spec = match &args.job.pipeline {
        Some(path) => Some(read_spec(path)?.1),
        None => None,
    };
    let retain = args.retain.or(spec.as_ref().map(|spec| spec.checkpoint.retain)).unwrap_or(RETAIN);
    let swept = sweep(&store, &job, retain, args.dry_run).await?;
    let mut items: Vec<Item> =
        swept.objects.into_iter().map(|(name, bytes)| Item { of: "store".into(), name, bytes }).collect();
    let mut kept_back = None;
    match (&spec, swept.open) {
        (_, Some(epoch)) => {
            kept_back = Some(format!("checkpoint {epoch} is not committed, so what sinks have staged is kept"));
        }
        (None, None) => {
            kept_back = Some("what sinks have left over is found with the pipeline file instead of --store".into());
        }
        (Some(spec), None) => {
            for sink in &spec.sinks {
                let name = sink.name.as_str();
                let made = committer(sink, &spec.dir, swept.job_id).map_err(|e| failed(name, e))?;
                let Some(committer) = made else { continue };
                let leftovers = committer.leftovers(swept.generation).await.map_err(|e| failed(name, e))?;
                if !args.dry_run {
                    committer.collect(swept.generation).await.map_err(|e| failed(name, e))?;
                }
                items.extend(leftovers.into_iter().map(|l| Item { of: name.into(), name: l.name, bytes: l.bytes }));
            }
        }
    }
    let total = items.iter().map(|item| item.bytes).sum();
    if args.job.json {
        let (objects, bytes) = (items.len(), total);
        return print_json(&Collected { job, dry_run: args.dry_run, objects, bytes, items, kept_back });
    }
    if args.dry_run && !items.is_empty() {
        let mut table = Table::new(&["of", "object", ">bytes"]);
        for item in &items {
            table.row(vec![item.of.clone(), item.name.clone(), bytes(item.bytes)]);
        }
        print(table)?;
    }
    let verb = if args.dry_run { "would go" } else { "are gone" };
    eprintln!("job {job:?}: {} objects with {} {verb}", count(items.len() as u64), bytes(total));
    if let Some(why) = kept_back {
        eprintln!("{why}");
    }
    Ok(())
}
