//! `weir status`, `weir stop`, `weir checkpoint now|set`: what is asked of a job that runs on this machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::output::{Table, bytes, count, print, print_json, time};
use super::pipeline::read_spec;
use super::remote::{Client, RemoteArgs, show_job, stop};
use super::socket::{Found, JobKey, find};
use crate::checkpoint::{Store, look_for};
use crate::error::{Error, ErrorKind};
use crate::job::{Answer, Change, Request, Status};
use crate::plan::{CheckpointSpec, PipelineSpec, duration};

/// Which job a command is about.
#[derive(Debug, Args)]
pub(super) struct TargetArgs {
    /// The pipeline file; with --store, the name of the job
    #[arg(value_name = "PIPELINE|JOB")]
    target: String,
    /// The URL of the store, with the name of a job instead of a pipeline file
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// An option of the store, with --store, as in checkpoint.store_options; may be repeated
    #[arg(long = "store-option", requires = "store", value_name = "KEY=VALUE", value_parser = super::inspect::parse_option)]
    store_options: Vec<(String, String)>,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The job of a command: where it keeps its checkpoints, and its name.
pub(super) struct Target {
    checkpoint: CheckpointSpec,
    dir: PathBuf,
    pub(super) job: String,
    /// The pipeline file, if one was named.
    pub(super) pipeline: Option<PathBuf>,
}

impl TargetArgs {
    /// The server and the name of the job there, if a job on a server is meant: one is named, and no file and no store of this machine.
    pub(super) fn remote(&self) -> Result<Option<(Client, String)>, Error> {
        let is_file = self.target.contains(['/', '.']) || PathBuf::from(&self.target).is_file();
        if self.store.is_some() || !self.remote.is_meant() || is_file {
            return Ok(None);
        }
        Ok(Some((self.remote.client()?, self.target.clone())))
    }

    pub(super) fn find(&self) -> Result<Target, Error> {
        if let Some(store) = &self.store {
            return Ok(Target::in_store(store, &self.store_options, &self.target));
        }
        let path = PathBuf::from(&self.target);
        let (_, spec) = read_spec(&path).map_err(|fault| {
            let error = Error::from(fault);
            if path.exists() {
                error
            } else {
                error.help("name a pipeline file, a job and its --store, or a job and its --server")
            }
        })?;
        Ok(Target::of_pipeline(spec, path))
    }
}

impl Target {
    /// By the URL of a store and the name of a job in it.
    pub(super) fn in_store(store: &str, options: &[(String, String)], job: &str) -> Self {
        let dir = std::env::current_dir().unwrap_or_default();
        let store_options = options.iter().cloned().collect();
        let checkpoint = CheckpointSpec { store: store.to_owned(), store_options, ..CheckpointSpec::default() };
        Self { checkpoint, dir, job: job.to_owned(), pipeline: None }
    }

    /// By a pipeline file.
    pub(super) fn of_pipeline(spec: PipelineSpec, path: PathBuf) -> Self {
        Self { checkpoint: spec.checkpoint, dir: spec.dir, job: spec.name, pipeline: Some(path) }
    }

    /// Where its process is found.
    fn key(&self) -> JobKey {
        JobKey::new(&self.checkpoint.place(), &self.dir, &self.job)
    }

    /// The process that runs it on this machine.
    pub(super) async fn running(&self) -> Result<Option<Found>, Error> {
        find(&self.key()).await
    }

    pub(super) async fn must_run(&self) -> Result<Found, Error> {
        self.running().await?.ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("job {:?} does not run here", self.job))
                .help("start it with `weir run`; only its owner can ask it, on the machine that runs it")
        })
    }

    /// Its store. A folder that is not there is not made.
    pub(super) fn open_store(&self) -> Result<Store, Error> {
        if let Some(path) = self.checkpoint.store.strip_prefix("file://")
            && !self.dir.join(path).is_dir()
        {
            let message = format!("job {:?} never ran: there is no store at {:?}", self.job, self.checkpoint.store);
            return Err(
                Error::new(ErrorKind::Usage, message).help("check the name of the job and the address of the store")
            );
        }
        self.store()
    }

    /// Its store, made if it is not there.
    pub(super) fn store(&self) -> Result<Store, Error> {
        Ok(Store::open_with(&self.checkpoint.store, &self.dir, &self.checkpoint.store_options)?)
    }
}

/// `weir status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    target: TargetArgs,
}

/// `weir stop`.
#[derive(Debug, Args)]
pub(super) struct StopArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Keep the last checkpoint under this name
    #[arg(long, value_name = "NAME")]
    savepoint: Option<String>,
}

/// `weir checkpoint now`.
#[derive(Debug, Args)]
pub(super) struct NowArgs {
    #[command(flatten)]
    target: TargetArgs,
}

/// `weir checkpoint set`.
#[derive(Debug, Args)]
pub(super) struct SetArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// From the start of one checkpoint to the start of the next, such as 5s
    #[arg(long, value_parser = duration)]
    interval: Option<Duration>,
    /// When a checkpoint is given up, such as 1m
    #[arg(long, value_parser = duration)]
    timeout: Option<Duration>,
    /// From the end of one checkpoint to the start of the next, such as 500ms
    #[arg(long, value_parser = duration)]
    min_pause: Option<Duration>,
    /// How many checkpoints may fail one after the other
    #[arg(long, value_name = "N")]
    tolerated_failures: Option<u32>,
    /// How many complete checkpoints are kept
    #[arg(long, value_name = "N")]
    retain: Option<u32>,
}

/// What `weir status` says of a job that does not run here.
#[derive(Debug, Serialize)]
struct Resting {
    job: String,
    state: &'static str,
    epoch: Option<u64>,
    committed: Option<bool>,
    finished: Option<bool>,
    completed_at: Option<i64>,
}

impl StatusArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        super::run::block_on(async {
            if let Some((client, job)) = self.target.remote()? {
                return show_job(&client, &job, self.target.json).await;
            }
            let target = self.target.find()?;
            match target.running().await? {
                Some(found) if self.target.json => print_json(&found.status),
                Some(found) => show(&found.status),
                None => self.resting(&target).await,
            }
        })
    }

    async fn resting(&self, target: &Target) -> Result<(), Error> {
        let found = look_for(&target.open_store()?, &target.job, None).await?;
        let manifest = found.as_ref().map(|found| &found.manifest);
        let resting = Resting {
            job: target.job.clone(),
            state: "not running here",
            epoch: manifest.map(|manifest| manifest.epoch.0),
            committed: found.as_ref().map(|found| found.committed),
            finished: manifest.map(|manifest| manifest.finished),
            completed_at: manifest.map(|manifest| manifest.created_at),
        };
        if self.target.json {
            return print_json(&resting);
        }
        let point = match (&found, manifest) {
            (Some(found), Some(manifest)) => {
                let output = if found.committed { "" } else { ", whose output is not published yet" };
                let how = if manifest.finished { "it finished with" } else { "it goes on from" };
                format!("{how} checkpoint {} of {}{output}", manifest.epoch, time(manifest.created_at))
            }
            _ => "it has no complete checkpoint".to_owned(),
        };
        print(format_args!("job {} does not run here; {point}\n", target.job))
    }
}

fn show(status: &Status) -> Result<(), Error> {
    let Status { job, state, pid, .. } = status;
    let run = status.generation.map_or_else(String::new, |generation| format!(", run {generation}"));
    let mut text = format!("job {job} is {state} in process {pid}{run}\n");
    match status.epoch {
        Some(epoch) => {
            let took = Duration::from_micros(status.checkpoint_us).as_secs_f64() * 1e3;
            text.push_str(&format!("checkpoint {epoch} is the newest, taken in {took:.0} ms; "));
        }
        None => text.push_str("no checkpoint yet; "),
    }
    text.push_str(&format!(
        "{} complete, {} failed, {} restarts\n",
        count(status.checkpoints),
        count(status.failed),
        count(status.restarts)
    ));
    let settings: Vec<String> = status.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    text.push_str(&format!("settings: {}\n", settings.join(", ")));
    if let Some(upgrade) = &status.upgrade {
        text.push_str(&super::upgrade::line(upgrade));
    }
    text.push('\n');
    let mut table = Table::new(&["node", ">records in", ">out", "watermark"]);
    for node in &status.nodes {
        table.row(vec![
            node.node.clone(),
            count(node.records_in),
            count(node.records_out),
            node.watermark.map_or_else(|| "-".into(), time),
        ]);
    }
    text.push_str(&table.to_string());
    print(text)
}

pub(super) fn unexpected(answer: &Answer) -> Error {
    Error::new(ErrorKind::Job, format!("the job answered something else than it was asked: {answer:?}"))
        .help("use the same version of weir as the process that runs the job")
}

/// Prints an answer, or the text for it.
pub(super) fn say(json: bool, answer: &Answer, text: impl FnOnce() -> Result<String, Error>) -> Result<(), Error> {
    if json { print_json(answer) } else { print(text()?) }
}

impl StopArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        super::run::block_on(async {
            if let Some((client, job)) = self.target.remote()? {
                return stop(&client, &job, self.savepoint.clone(), self.target.json).await;
            }
            let target = self.target.find()?;
            let found = target.must_run().await?;
            let answer = found.ask(&Request::Stop { savepoint: self.savepoint.clone() }).await?;
            say(self.target.json, &answer, || match &answer {
                Answer::Stopped { epoch, finished, savepoint } => {
                    let how = if *finished { "has finished" } else { "has stopped" };
                    let kept =
                        savepoint.as_ref().map_or_else(String::new, |name| format!(", kept as savepoint {name}"));
                    Ok(format!("job {} {how} with checkpoint {epoch}{kept}\n", target.job))
                }
                other => Err(unexpected(other)),
            })
        })
    }
}

impl NowArgs {
    pub(super) async fn run(self) -> Result<(), Error> {
        let target = self.target.find()?;
        let answer = target.must_run().await?.ask(&Request::Checkpoint).await?;
        say(self.target.json, &answer, || match &answer {
            Answer::Checkpoint { epoch, .. } => {
                Ok(format!("checkpoint {epoch} of job {} is complete and committed\n", target.job))
            }
            other => Err(unexpected(other)),
        })
    }
}

impl SetArgs {
    pub(super) async fn run(self) -> Result<(), Error> {
        let micros = |value: Option<Duration>| value.map(|value| u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
        let change = Change {
            interval_us: micros(self.interval),
            timeout_us: micros(self.timeout),
            min_pause_us: micros(self.min_pause),
            tolerated_failures: self.tolerated_failures,
            retain: self.retain,
        };
        if change == Change::default() {
            let help = "add --interval, --timeout, --min-pause, --tolerated-failures or --retain with a value";
            return Err(Error::new(ErrorKind::Usage, "no setting is named").help(help));
        }
        let target = self.target.find()?;
        let answer = target.must_run().await?.ask(&Request::Set(change)).await?;
        say(self.target.json, &answer, || match &answer {
            Answer::Set { changed } => {
                let lines = changed.iter().map(|c| format!("{}: {} -> {}\n", c.setting, c.old, c.new));
                let note = "until this process ends: the pipeline file is as it was\n";
                Ok(lines.chain([note.to_owned()]).collect())
            }
            other => Err(unexpected(other)),
        })
    }
}

/// What a savepoint holds, for a line of text.
pub(super) fn holds(manifest: &crate::checkpoint::Manifest) -> String {
    let state: u64 = manifest.segments().map(|segment| segment.bytes).sum();
    format!(
        "checkpoint {} with {} of state in {} packs",
        manifest.epoch,
        bytes(state),
        count(manifest.packs().len() as u64)
    )
}
