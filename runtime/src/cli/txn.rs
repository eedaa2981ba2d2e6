//! `weir txn`: what a stopped job has prepared and not committed. A job that runs on this machine is left alone; one that runs
//! elsewhere is fenced.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::inspect::JobArgs;
use super::output::{Table, bytes, count, print, print_json};
use crate::clock::Clock;
use crate::connector::StagedFile;
use crate::error::{Error, ErrorKind};
use crate::job::{Transactions, abort_open, commit_open, open_transactions};

/// `weir txn`.
#[derive(Debug, Subcommand)]
pub(super) enum TxnCommand {
    /// List what is prepared and not committed
    List(ListArgs),
    /// Publish what is prepared, as the next run would do first
    Commit(CommitArgs),
    /// Give up what is prepared: the next run produces it again
    Abort(AbortArgs),
}

/// `weir txn list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    job: JobArgs,
}

/// `weir txn commit`.
#[derive(Debug, Args)]
pub(super) struct CommitArgs {
    #[command(flatten)]
    job: JobArgs,
}

/// `weir txn abort`.
#[derive(Debug, Args)]
pub(super) struct AbortArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Do it; without this the command only says what it would do
    #[arg(long)]
    yes: bool,
}

impl TxnCommand {
    pub(super) fn run(self) -> Result<(), Error> {
        super::run::block_on(async {
            match self {
                Self::List(args) => list(args.job).await,
                Self::Commit(args) => commit(args.job).await,
                Self::Abort(args) => abort(args).await,
            }
        })
    }
}

/// What a sink has prepared, for printing.
#[derive(Debug, Serialize)]
struct Shown {
    job: String,
    job_id: String,
    sink: String,
    epoch: u64,
    destination: Option<String>,
    state: &'static str,
    records: u64,
    bytes: u64,
    staged: Vec<StagedFile>,
    fault: Option<String>,
}

impl Shown {
    fn of(open: &Transactions) -> Vec<Self> {
        let show = |sink: &crate::job::Transaction| {
            let mut shown = Self {
                job: open.manifest.job.clone(),
                job_id: open.manifest.job_id.to_string(),
                sink: sink.node.to_string(),
                epoch: open.manifest.epoch.0,
                destination: None,
                state: "unknown",
                records: 0,
                bytes: 0,
                staged: Vec::new(),
                fault: None,
            };
            match &sink.looked {
                Ok(looked) => {
                    shown.destination = Some(looked.destination.clone());
                    shown.state = match (looked.published, looked.given_up) {
                        (true, _) => "published",
                        (_, true) => "given up",
                        _ if looked.staged.iter().any(|file| file.found != Some(file.bytes)) => "damaged",
                        _ => "prepared",
                    };
                    shown.records = looked.staged.iter().map(|file| file.records).sum();
                    shown.bytes = looked.staged.iter().map(|file| file.bytes).sum();
                    shown.staged.clone_from(&looked.staged);
                }
                Err(error) => shown.fault = Some(error.chain()),
            }
            shown
        };
        open.sinks.iter().map(show).collect()
    }
}

async fn list(args: JobArgs) -> Result<(), Error> {
    let (store, job) = args.open()?;
    let open = open_transactions(&store, &job).await?;
    let shown = open.as_ref().map(Shown::of).unwrap_or_default();
    if args.json {
        return print_json(&shown);
    }
    let Some(open) = open else {
        eprintln!("job {job:?} has nothing open: all that was prepared is committed");
        return Ok(());
    };
    if shown.is_empty() {
        eprintln!(
            "checkpoint {} of job {job:?} is open, and no sink has prepared anything for it",
            open.manifest.epoch
        );
        return Ok(());
    }
    print(text(&shown))
}

fn text(shown: &[Shown]) -> String {
    let mut table = Table::new(&["sink", ">epoch", "state", ">records", ">bytes", "destination"]);
    for sink in shown {
        table.row(vec![
            sink.sink.clone(),
            sink.epoch.to_string(),
            sink.state.into(),
            count(sink.records),
            bytes(sink.bytes),
            sink.destination.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    let mut text = table.to_string();
    for sink in shown {
        text.push_str(&format!("\n{}: job {} (id {}), epoch {}\n", sink.sink, sink.job, sink.job_id, sink.epoch));
        if let Some(fault) = &sink.fault {
            text.push_str(&format!("  cannot be looked at: {fault}\n"));
        }
        for file in &sink.staged {
            let note = match file.found {
                _ if sink.state == "published" => String::new(),
                Some(found) if found == file.bytes => String::new(),
                Some(found) => format!(", and it has {}", bytes(found)),
                None => ", and it is gone".into(),
            };
            text.push_str(&format!("  {}: {} records, {}{note}\n", file.name, count(file.records), bytes(file.bytes)));
        }
    }
    text
}

async fn commit(args: JobArgs) -> Result<(), Error> {
    args.check_stopped().await?;
    let (store, job) = args.open()?;
    let epoch = commit_open(&store, &job, &Clock::system()).await?;
    if args.json {
        #[derive(Serialize)]
        struct Committed {
            job: String,
            committed: Option<u64>,
        }
        return print_json(&Committed { job, committed: epoch.map(|epoch| epoch.0) });
    }
    match epoch {
        Some(epoch) => eprintln!("checkpoint {epoch} of job {job:?} is committed; a run goes on from it"),
        None => eprintln!("job {job:?} has nothing open: all that was prepared is committed"),
    }
    Ok(())
}

async fn abort(args: AbortArgs) -> Result<(), Error> {
    args.job.check_stopped().await?;
    let (store, job) = args.job.open()?;
    let Some(open) = open_transactions(&store, &job).await? else {
        eprintln!("job {job:?} has nothing open: all that was prepared is committed");
        return Ok(());
    };
    let (epoch, parent) = (open.manifest.epoch, open.manifest.parent);
    let shown = Shown::of(&open);
    eprint!("{}", text(&shown));
    let from = parent.map_or_else(|| "the beginning".to_owned(), |parent| format!("checkpoint {parent}"));
    eprintln!("\nGiving checkpoint {epoch} up drops the state that it holds and the staged output above. The next run");
    eprintln!(
        "goes on from {from}, reads again what came after it, and publishes it under later epochs. A source that"
    );
    eprintln!("does not have these records any more loses them.");
    if !args.yes {
        return Err(Error::new(ErrorKind::Usage, format!("checkpoint {epoch} of job {job:?} was not given up"))
            .help("add --yes to give it up, or publish it: weir txn commit"));
    }
    abort_open(&store, &job, epoch, &Clock::system()).await?;
    if args.job.json {
        #[derive(Serialize)]
        struct Aborted {
            job: String,
            aborted: u64,
            goes_on_from: Option<u64>,
        }
        return print_json(&Aborted { job, aborted: epoch.0, goes_on_from: parent.map(|parent| parent.0) });
    }
    eprintln!("checkpoint {epoch} of job {job:?} is given up; a run goes on from {from}");
    Ok(())
}
