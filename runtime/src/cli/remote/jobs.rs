//! `weir deploy`, `list`, `start`, `rescale`, `delete`, `logs`; and what `status` and `stop` do with a server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::{Client, RemoteArgs, segment};
use crate::cli::output::{Table, bytes, count, print, print_json, time};
use crate::cli::pipeline::read_spec;
use crate::cli::run::block_on;
use crate::error::{Error, ErrorKind};
use crate::plan::PluginRef;
use crate::serve::{
    ComponentView, Deployed, Deployment, JobSummary, JobView, LogLine, NodePlan, Phase, RescaleRequest, StartRequest,
    StopRequest, StoppedView,
};

/// How often a job is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// `weir deploy`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DeployArgs {
    /// The pipeline file
    pipeline: PathBuf,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Say what would become of the job and its state, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Give up the state of this node; may be repeated
    #[arg(long, value_name = "NODE")]
    drop_state: Vec<String>,
    /// Begin anew, and forget every checkpoint that the job has
    #[arg(long)]
    fresh: bool,
    /// Do not wait until the job runs
    #[arg(long)]
    no_wait: bool,
    /// Sign what is sent with this private key (ed25519, PEM)
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir list`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir start`.
#[derive(Debug, Args)]
pub(in crate::cli) struct StartArgs {
    /// The job
    job: String,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Start from this checkpoint or savepoint
    #[arg(long, value_name = "CHECKPOINT|SAVEPOINT")]
    from: Option<String>,
    /// With --from: allow that output of later epochs, which is published already, is produced again
    #[arg(long, requires = "from")]
    republish: bool,
    /// Begin anew, and forget every checkpoint that the job has
    #[arg(long, conflicts_with = "from")]
    fresh: bool,
    /// Give up the state of this node; may be repeated
    #[arg(long, value_name = "NODE")]
    drop_state: Vec<String>,
    /// Do not wait until the job runs
    #[arg(long)]
    no_wait: bool,
}

/// `weir rescale`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RescaleArgs {
    /// The job
    job: String,
    /// The node
    node: String,
    /// How many subtasks it is to have
    parallelism: u32,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir delete`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DeleteArgs {
    /// The job
    job: String,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// `weir logs`.
#[derive(Debug, Args)]
pub(in crate::cli) struct LogsArgs {
    /// The job
    job: String,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Go on with what comes
    #[arg(long, short)]
    follow: bool,
    /// A JSON object a line
    #[arg(long)]
    json: bool,
}

fn job_path(client: &Client, job: &str, rest: &str) -> Result<String, Error> {
    client.of_tenant(&format!("/jobs/{}{rest}", segment(job)))
}

impl DeployArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let (pipeline, spec) = read_spec(&self.pipeline)?;
            let mut plugins = BTreeMap::new();
            for operator in &spec.operators {
                let PluginRef::Path(path) = &operator.plugin else { continue };
                let path = spec.dir.join(path);
                let bytes = super::plugins::read(&path)?;
                let (digest, signature) = super::plugins::sign(&bytes, self.sign.as_deref())?;
                let address = client.of_tenant(&format!("/components/{digest}"))?;
                // What is there already need not be sent, unless it is to be signed.
                if client.find::<ComponentView>(&address).await?.is_none() {
                    eprintln!("sending {} ({})", path.display(), self::bytes(bytes.len() as u64));
                    client.upload::<ComponentView>(&address, bytes, signature.as_deref()).await?;
                }
                plugins.insert(operator.name.to_string(), digest);
            }
            let drop_state: BTreeSet<String> = self.drop_state.iter().cloned().collect();
            let address = job_path(&client, &spec.name, "")?;
            let asked = Deployment { pipeline, plugins, drop_state, dry_run: true, fresh: self.fresh };
            // What will become of the state is shown before anything is done about it.
            let planned: Deployed = client.put(&address, &asked).await?;
            if !self.json {
                show_plan(&planned)?;
            }
            if self.dry_run {
                return if self.json { print_json(&planned) } else { Ok(()) };
            }
            let deployed: Deployed = client.put(&address, &Deployment { dry_run: false, ..asked }).await?;
            if !self.no_wait && deployed.outcome != "unchanged" {
                until_it_runs(&client, &spec.name).await?;
            }
            if self.json {
                return print_json(&deployed);
            }
            let from = deployed.savepoint.as_ref().map_or_else(String::new, |name| format!(", from savepoint {name}"));
            print(format_args!("job {} is {}{from}\n", deployed.job, deployed.outcome))
        })
    }
}

fn show_plan(planned: &Deployed) -> Result<(), Error> {
    if planned.plan.is_empty() {
        return Ok(());
    }
    let epoch = planned.epoch.map_or_else(String::new, |epoch| format!(" of checkpoint {epoch}"));
    print(format_args!("what becomes of the state{epoch}:\n{}", plan_table(&planned.plan)))
}

fn plan_table(plan: &[NodePlan]) -> Table {
    let mut table = Table::new(&["  node", ">was", ">is", ">state", "", "reason"]);
    let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for node in plan {
        table.row(vec![
            format!("  {}", node.node),
            number(node.was),
            number(node.parallelism),
            bytes(node.state_bytes),
            node.verdict.clone(),
            node.reason.clone(),
        ]);
    }
    table
}

/// Waits until a job runs, has finished, or has failed, which is an error.
async fn until_it_runs(client: &Client, job: &str) -> Result<(), Error> {
    loop {
        let view: JobView = client.get(&job_path(client, job, "")?).await?;
        match view.state {
            Phase::Running | Phase::Finished => return Ok(()),
            Phase::Starting | Phase::Stopping => {}
            Phase::Stopped | Phase::Waiting | Phase::Failed | Phase::Superseded => {
                let (message, help) = view.error.map_or_else(Default::default, |e| (e.message, e.help));
                let error = Error::new(ErrorKind::Job, format!("job {job:?} is {}: {message}", view.state));
                let logs = format!("see `weir logs {job}`");
                return Err(error.help(help.unwrap_or(logs)));
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl ListArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let jobs: Vec<JobSummary> = client.get(&client.of_tenant("/jobs")?).await?;
            if self.json {
                return print_json(&jobs);
            }
            if jobs.is_empty() {
                eprintln!("tenant {:?} has no job", client.tenant()?);
                return Ok(());
            }
            let mut table = Table::new(&["job", "state", ">epoch", "changed", "error"]);
            for job in jobs {
                table.row(vec![
                    job.name,
                    job.state.to_string(),
                    job.epoch.map_or_else(|| "-".into(), |epoch| epoch.to_string()),
                    time(job.changed_at),
                    job.error.unwrap_or_default().chars().take(80).collect(),
                ]);
            }
            print(table)
        })
    }
}

impl StartArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let drop_state = self.drop_state.into_iter().collect();
            let asked = StartRequest { from: self.from, republish: self.republish, fresh: self.fresh, drop_state };
            let _: JobSummary = client.post(&job_path(&client, &self.job, "/start")?, &asked).await?;
            if !self.no_wait {
                until_it_runs(&client, &self.job).await?;
            }
            print(format_args!("job {} is started\n", self.job))
        })
    }
}

impl RescaleArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let asked = RescaleRequest { node: self.node, parallelism: self.parallelism };
            let deployed: Deployed = client.post(&job_path(&client, &self.job, "/rescale")?, &asked).await?;
            until_it_runs(&client, &self.job).await?;
            if self.json {
                return print_json(&deployed);
            }
            show_plan(&deployed)?;
            print(format_args!("job {} is {}\n", deployed.job, deployed.outcome))
        })
    }
}

impl DeleteArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let path = job_path(&client, &self.job, "")?;
            let view: JobView = client.get(&path).await?;
            let what = format!("job {} of tenant {} with all its checkpoints and savepoints", self.job, view.tenant);
            confirm(&what, self.yes)?;
            client.delete(&path).await?;
            print(format_args!("job {} is deleted\n", self.job))
        })
    }
}

/// Asks before something goes for good.
pub(super) fn confirm(what: &str, yes: bool) -> Result<(), Error> {
    if yes {
        return Ok(());
    }
    let refused = |message: String| Err(Error::new(ErrorKind::Usage, message).help("add --yes if that is meant"));
    if !std::io::stdin().is_terminal() {
        return refused(format!("{what} would be deleted, and nobody can be asked"));
    }
    eprint!("delete {what}? [y/N] ");
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    if matches!(line.trim(), "y" | "Y" | "yes") { Ok(()) } else { refused(format!("{what} is kept")) }
}

/// `weir status` of a job on a server.
pub(in crate::cli) async fn show_job(client: &Client, job: &str, json: bool) -> Result<(), Error> {
    let view: JobView = client.get(&job_path(client, job, "")?).await?;
    if json {
        return print_json(&view);
    }
    let mut text = format!("job {} of tenant {} is {}", view.name, view.tenant, view.state);
    if let Some(run) = &view.run {
        if run.state != view.state.to_string() {
            text.push_str(&format!(" ({})", run.state));
        }
        text.push_str(&run.generation.map_or_else(String::new, |generation| format!(", run {generation}")));
        text.push('\n');
        match run.epoch {
            Some(epoch) => {
                let took = Duration::from_micros(run.checkpoint_us).as_secs_f64() * 1e3;
                text.push_str(&format!("checkpoint {epoch} is the newest, taken in {took:.0} ms; "));
            }
            None => text.push_str("no checkpoint yet; "),
        }
        let (complete, failed, restarts) = (count(run.checkpoints), count(run.failed), count(run.restarts));
        text.push_str(&format!("{complete} complete, {failed} failed, {restarts} restarts\n"));
    } else {
        text.push('\n');
    }
    if let Some(error) = &view.error {
        text.push_str(&format!("error: {}\n", error.message));
        text.push_str(&error.help.as_ref().map_or_else(String::new, |help| format!("  help: {help}\n")));
    }
    text.push_str(&format!("changed {} by {}, revision {}\n\n", time(view.changed_at), view.changed_by, view.revision));
    let headers = ["node", ">subtasks", "reads", ">records in", ">/s", ">out", ">/s", "watermark", ">held up"];
    let mut table = Table::new(&headers);
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |rate| count(rate.round() as u64));
    for node in &view.nodes {
        let reads = view.edges.iter().filter(|edge| edge.to == node.node);
        let reads = reads.map(|edge| format!("{} ({})", edge.from, edge.exchange)).collect::<Vec<_>>().join(", ");
        table.row(vec![
            node.node.clone(),
            node.parallelism.to_string(),
            reads,
            count(node.records_in),
            rate(node.in_per_second),
            count(node.records_out),
            rate(node.out_per_second),
            node.watermark.map_or_else(|| "-".into(), time),
            node.backpressure.map_or_else(|| "-".into(), |part| format!("{:.0} %", part * 100.0)),
        ]);
    }
    text.push_str(&table.to_string());
    print(text)
}

/// `weir stop` of a job on a server.
pub(in crate::cli) async fn stop(
    client: &Client,
    job: &str,
    savepoint: Option<String>,
    json: bool,
) -> Result<(), Error> {
    let stopped: StoppedView = client.post(&job_path(client, job, "/stop")?, &StopRequest { savepoint }).await?;
    if json {
        return print_json(&stopped);
    }
    let with =
        stopped.epoch.map_or_else(|| " without a checkpoint".into(), |epoch| format!(" with checkpoint {epoch}"));
    let kept = stopped.savepoint.map_or_else(String::new, |name| format!(", kept as savepoint {name}"));
    print(format_args!("job {job} has stopped{with}{kept}\n"))
}

impl LogsArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let path = job_path(&client, &self.job, &format!("/logs?follow={}", self.follow))?;
            let mut response = client.stream(&path).await?;
            let mut rest = Vec::new();
            loop {
                let piece = response
                    .chunk()
                    .await
                    .map_err(|e| Error::new(ErrorKind::Store, "the log broke off").help("ask again").caused_by(e))?;
                let Some(piece) = piece else { return Ok(()) };
                rest.extend_from_slice(&piece);
                while let Some(at) = rest.iter().position(|&byte| byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=at).collect();
                    self.show(&line)?;
                }
            }
        })
    }

    fn show(&self, line: &[u8]) -> Result<(), Error> {
        // An empty line says that nothing came.
        let Ok(value) = serde_json::from_slice::<Value>(line) else { return Ok(()) };
        if self.json {
            return print(format_args!("{value}\n"));
        }
        let Ok(line) = serde_json::from_value::<LogLine>(value) else { return Ok(()) };
        let at =
            jiff::Timestamp::from_microsecond(line.at).map_or_else(|_| line.at.to_string(), |at| format!("{at:.3}"));
        let node = line.node.map_or_else(String::new, |node| format!("{node}: "));
        // What a plugin says may move the cursor or pretend to be more lines.
        let message: String = line.message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        print(format_args!("{at} {:>5} {node}{message}\n", line.level.to_uppercase()))?;
        let _ = std::io::stdout().flush();
        Ok(())
    }
}
