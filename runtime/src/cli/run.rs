//! `weir run` and `weir check`: what starts here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use clap::Args;
use futures::future::OptionFuture;
use tokio::sync::watch;

use super::metrics::{self, Numbers};
use super::output::{count, print, print_json};
use super::pipeline::{Pipeline, PipelineFault, open_store};
use super::progress::Progress;
use super::socket::{JobKey, Server};
use super::start_from::{FromArgs, Origin, StateReport};
use super::upgrade::Loader;
use crate::checkpoint::{Start, Store, check_import, import, look_for};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::job::{Control, Job, Outcome, RunOptions};
use crate::metrics::JobMetrics;
use crate::model::Epoch;
use crate::plan::{CheckReport, render_check};

/// `weir run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The pipeline file
    pipeline: PathBuf,
    /// Forget what the job knows and start at the beginning, or from a file, under a new job id
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    from: FromArgs,
    /// With --from: allow that output of later epochs, which is published already, is produced again
    #[arg(long, requires = "from")]
    republish: bool,
    /// Serve the job's numbers at http://ADDRESS/metrics, for Prometheus
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

impl RunArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        block_on(self.run_job())
    }

    async fn run_job(self) -> Result<(), Error> {
        let pipeline = Pipeline::load(&self.pipeline).await?;
        let listener = match self.metrics {
            Some(address) => Some(metrics::listen(address).await?),
            None => None,
        };
        let store = open_store(&pipeline.spec)?;
        store.probe().await?;
        for found in pipeline.plugins.values() {
            store.put_plugin(found.bytes.clone().into()).await?;
        }
        let from = self.from.find(&store, &pipeline.spec.name).await?;
        if let Some(Origin::Epoch(epoch)) = &from {
            self.check_republish(&store, &pipeline.spec.name, *epoch).await?;
        }
        let drop_state = self.from.drop_state();
        let metrics = Arc::new(JobMetrics::new(pipeline.plan.nodes.iter().map(|node| node.name.clone())));
        let (code, loader) = (pipeline.code(), Loader::new(&pipeline, &store));
        let clock = Clock::system();
        let job = Job { spec: pipeline.spec, plan: pipeline.plan, code, text: pipeline.text, store, clock, metrics };
        let start = match from {
            Some(Origin::File(export)) => {
                // A pipeline that will be refused must not leave a history, here or elsewhere.
                let fit = job.fit(&export.manifest, false, &drop_state);
                fit.check()?;
                fit.check_dropped()?;
                check_import(&job.store, &job.spec.name, &export, self.fresh).await?;
                job.check_unowned().await?;
                let id = import(&job.store, &job.spec.name, &export, self.fresh, &job.clock).await?;
                tracing::info!(savepoint = export.name, %id, "a new history begins with checkpoint {}", export.manifest.epoch);
                Start::Resume
            }
            Some(Origin::Epoch(_)) if self.fresh => {
                let message = "--fresh forgets every checkpoint, and --from names one";
                return Err(Error::new(ErrorKind::Usage, message).help("leave one of the two out"));
            }
            Some(Origin::Epoch(epoch)) => Start::From(epoch),
            None if self.fresh => Start::Fresh,
            None => Start::Resume,
        };
        let served = listener.map(|listener| {
            let numbers = Numbers {
                job: job.spec.name.clone(),
                metrics: Arc::clone(&job.metrics),
                store: job.store.clone(),
                clock: job.clock.clone(),
                host: pipeline.host.clone(),
            };
            metrics::serve(listener, numbers)
        });
        let served = OptionFuture::from(served);
        tokio::pin!(served);
        let progress = Progress::new(&job.plan, &job.metrics, &job.clock);
        let (stopper, stop) = watch::channel(false);
        let (control, requests) = Control::channel();
        let key = JobKey::new(&job.spec.checkpoint.place(), &job.spec.dir, &job.spec.name);
        let server = Server::start(&key, control, Some(loader)).await;
        let run = job.run_with(RunOptions { start, drop_state, stop, requests });
        tokio::pin!(run);
        let mut asked = 0;
        let outcome = loop {
            tokio::select! {
                outcome = &mut run => break outcome,
                signal = interrupted() => {
                    signal?;
                    asked += 1;
                    if asked > 1 {
                        drop(progress);
                        return Err(Error::new(ErrorKind::Job, "interrupted again before the last checkpoint was complete")
                            .help("nothing is lost: the next run goes on from the last complete checkpoint"));
                    }
                    tracing::info!("stopping with a last checkpoint; interrupt again to stop at once");
                    stopper.send_replace(true);
                }
                () = progress.show(), if !self.quiet => {}
                Some(()) = &mut served => {}
            }
        };
        drop(progress);
        if let Some(server) = server {
            server.close().await;
        }
        let outcome = outcome?;
        if !self.quiet {
            say_outcome(&job, outcome);
        }
        Ok(())
    }

    /// Output of later epochs is published already and would be produced again: only if the user says so.
    async fn check_republish(&self, store: &Store, job: &str, from: Epoch) -> Result<(), Error> {
        if self.republish {
            return Ok(());
        }
        // One that is not marked as committed yet may be visible all the same. What does not exist is left to the run to refuse.
        let later =
            look_for(store, job, Some(from)).await.map(|found| found.map(|found| found.later)).unwrap_or_default();
        let later: Vec<String> = later.unwrap_or_default().iter().map(Epoch::to_string).collect();
        if later.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Usage,
            format!(
                "output of epochs {} is published and would be produced again from checkpoint {from}",
                later.join(", ")
            ),
        )
        .help(
            "add --republish if whoever reads the output can take that, or leave --from out to go on from the newest",
        ))
    }
}

/// How a job ended, and what went through its nodes.
pub(super) fn say_outcome(job: &Job, outcome: Outcome) {
    let name = &job.spec.name;
    let line = match outcome {
        Outcome::Finished { epoch, before: true } => {
            format!(
                "job {name} has finished before, with checkpoint {epoch}; to run it again, remove its output and add --fresh"
            )
        }
        Outcome::Finished { epoch, before: false } => format!("job {name} has finished with checkpoint {epoch}"),
        Outcome::Stopped { epoch } => {
            format!("job {name} has stopped with checkpoint {epoch}; run it again to go on")
        }
    };
    eprintln!("{line}");
    if matches!(outcome, Outcome::Finished { before: true, .. }) {
        return;
    }
    for (node, metrics) in job.metrics.nodes() {
        let (read, written) = (metrics.records_in.load(Relaxed), metrics.records_out.load(Relaxed));
        let mut line = format!("  {node}: {} records in", count(read));
        if job.spec.sinks.iter().all(|sink| sink.name != *node) {
            line.push_str(&format!(", {} out", count(written)));
        }
        for (what, n) in [("rejected", metrics.rejected.load(Relaxed)), ("skipped", metrics.skipped.load(Relaxed))] {
            if n > 0 {
                line.push_str(&format!(", {} {what}", count(n)));
            }
        }
        eprintln!("{line}");
    }
}

/// `weir check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The pipeline file
    pipeline: PathBuf,
    #[command(flatten)]
    from: FromArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl CheckArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        block_on(async {
            let pipeline = match Pipeline::load(&self.pipeline).await {
                Ok(pipeline) => pipeline,
                Err(PipelineFault::Diagnostics(diagnostics)) if self.json => {
                    print_json(&diagnostics)?;
                    return Err(Error::new(ErrorKind::Usage, diagnostics.summary()));
                }
                Err(fault) => return Err(fault.into()),
            };
            let descriptors = pipeline.descriptors();
            let state = match self.from.is_given() {
                true => Some(StateReport::new(&self.from, &pipeline).await?),
                false => None,
            };
            let snapshots = pipeline.snapshot_code();
            let report =
                CheckReport::new(&pipeline.spec, &pipeline.plan, &descriptors, &snapshots, pipeline.guarantees);
            if self.json {
                #[derive(serde::Serialize)]
                struct Both<'a> {
                    #[serde(flatten)]
                    report: &'a CheckReport,
                    #[serde(skip_serializing_if = "Option::is_none")]
                    state: Option<&'a StateReport>,
                }
                print_json(&Both { report: &report, state: state.as_ref() })?;
            } else {
                print(render_check(&report))?;
                state.iter().try_for_each(|state| print(state.text()))?;
            }
            match state {
                None => Ok(()),
                Some(state) => state.fit.check_dropped().and_then(|()| state.fit.check()),
            }
        })
    }
}

/// Runs a command. A thread that sits in a call to the operating system (a pipe that nobody reads) is left behind.
pub(super) fn block_on<T>(command: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = runtime()?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}

fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("weir").build().map_err(|e| {
        Error::new(ErrorKind::Store, "the threads of the runtime cannot be started")
            .help("look at the limits on threads and file descriptors of this process")
            .caused_by(e)
    })
}

/// Waits for SIGINT or SIGTERM.
pub(super) async fn interrupted() -> Result<(), Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |e| Error::new(ErrorKind::Store, "signals cannot be listened to").caused_by(e);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
