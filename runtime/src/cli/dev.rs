//! `weir dev`: runs a pipeline while its plugins are written.
//!
//! ```text
//! files change ──► build ──► load ──► does the state fit? ──► stop at a barrier ──► go on in the new code
//!                    │         │            │ ask                                        │ fails before its first checkpoint
//!                    └─────────┴────────────┴──► the old code runs on ◄──────────────────┘
//! ```
//!
//! Until the last arrow the old code runs. The swap is what a stop and a start are: a last checkpoint, whose state the new code gets, so nothing is
//! lost, repeated or reordered. What fails is shown, and waits for the next change.

mod sources;
mod version;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch as channel;

use self::sources::{Sources, shown};
use self::version::{Verdict, Version};
use self::watch::Watcher;
use super::pipeline::read_spec;
use super::progress::{LogWriter, Progress, hold};
use super::run::{block_on, interrupted, say_outcome};
use super::socket::{JobKey, Server};
use crate::checkpoint::Start;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::job::{Control, Outcome, Request, RunOptions};
use crate::model::NodeName;

/// `weir dev`.
#[derive(Debug, Args)]
pub(super) struct DevArgs {
    /// The pipeline file
    pipeline: PathBuf,
    /// Where the sources of an operator are, if not beside its component; may be repeated
    #[arg(long, value_name = "NODE=DIR", value_parser = node_and_dir)]
    source: Vec<(NodeName, PathBuf)>,
    /// A folder with sources that plugins share: a change in it builds all of them; may be repeated
    #[arg(long, value_name = "DIR")]
    watch: Vec<PathBuf>,
    /// Begin at the beginning, under a new job id
    #[arg(long)]
    fresh: bool,
    /// Let a node start empty, without asking, when its state cannot go on in the new code
    #[arg(long)]
    start_empty: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

fn node_and_dir(text: &str) -> Result<(NodeName, PathBuf), String> {
    match text.split_once('=') {
        Some((node, dir)) if !node.is_empty() && !dir.is_empty() => Ok((NodeName::new(node), PathBuf::from(dir))),
        _ => Err("write the name of an operator, =, and a folder".to_owned()),
    }
}

impl DevArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        block_on(async {
            let mut dev = Dev::new(self)?;
            dev.work().await
        })
    }
}

/// What runs next.
struct Next {
    version: Version,
    start: Start,
    drop_state: BTreeSet<NodeName>,
    /// The code before, to go back to if this one fails, and when it was asked to stop.
    before: Option<(Version, Duration)>,
}

impl Next {
    fn new(version: Version, start: Start) -> Self {
        Self { version, start, drop_state: BTreeSet::new(), before: None }
    }
}

/// How a run ended.
enum Ended {
    /// The user has had enough.
    Interrupted,
    /// The code is to be another.
    Replaced(Box<Next>),
    /// Every source has ended.
    Finished,
    /// For good. It had completed so many checkpoints.
    Failed { error: Error, checkpoints: u64 },
}

/// Files, and what is made of them.
struct Dev {
    args: DevArgs,
    sources: Sources,
    watcher: Watcher,
    clock: Clock,
}

impl Dev {
    fn new(args: DevArgs) -> Result<Self, Error> {
        let mut dev = Self { args, sources: Sources::default(), watcher: Watcher::default(), clock: Clock::system() };
        dev.look_for_sources()?;
        match dev.sources.describe() {
            projects if projects.is_empty() => say(&format!(
                "watching {} and the components that it names: none has its sources beside it (--source NODE=DIR names them)",
                shown(&dev.args.pipeline)
            )),
            projects => projects.iter().for_each(|project| say(&format!("watching {project}"))),
        }
        Ok(dev)
    }

    /// The pipeline says which sources there are.
    fn look_for_sources(&mut self) -> Result<(), Error> {
        let (_, spec) = read_spec(&self.args.pipeline)?;
        let named: BTreeMap<_, _> = self.args.source.iter().cloned().collect();
        self.sources = Sources::find(&self.args.pipeline, &spec, &named, &self.args.watch)?;
        self.watcher.watch(self.sources.watched())
    }

    async fn work(&mut self) -> Result<(), Error> {
        let stale = self.sources.stale(&self.watcher);
        let mut next = match self.built(&stale).await {
            Some(version) if self.args.fresh => Some(Next::new(version, Start::Fresh)),
            Some(version) => self.admitted(version).await,
            None => None,
        };
        loop {
            let now = match next.take() {
                Some(next) => next,
                None => match self.after_a_change().await? {
                    Some(next) => next,
                    None => return Ok(()),
                },
            };
            let (version, before) = (now.version.clone(), now.before.as_ref().map(|(old, _)| old.clone()));
            next = match self.run(now).await? {
                Ended::Interrupted => return Ok(()),
                Ended::Replaced(next) => Some(*next),
                Ended::Finished => None,
                Ended::Failed { error, checkpoints } => {
                    say_error(&error);
                    match before {
                        // What the new code did since the checkpoint is in no committed output.
                        Some(old) if checkpoints == 0 => {
                            say("the new code failed before its first checkpoint: going back to the code before");
                            Some(Next::new(old, Start::Resume))
                        }
                        // It has shown that it works: from here its restarts are those of its settings.
                        Some(_) => Some(Next::new(version, Start::Resume)),
                        None => None,
                    }
                }
            };
        }
    }

    /// Waits for a change that makes something that can run; none when the user has had enough.
    async fn after_a_change(&mut self) -> Result<Option<Next>, Error> {
        say("waiting for a change");
        loop {
            tokio::select! {
                signal = interrupted() => return signal.map(|()| None),
                next = self.begun_by_a_change() => if next.is_some() {
                    return Ok(next);
                }
            }
        }
    }

    /// What a change makes to run while nothing runs.
    async fn begun_by_a_change(&mut self) -> Option<Next> {
        let version = self.changed().await?;
        if !version.has_finished().await {
            return self.admitted(version).await;
        }
        // Its input is at an end: new code begins at the beginning.
        match version.job(&self.clock).check_unowned().await {
            Ok(()) => {
                say("the job had finished: running it again from the beginning");
                Some(Next::new(version, Start::Fresh))
            }
            Err(error) => {
                say("the job had finished, and what it wrote is where it would write again");
                say_error(&error);
                None
            }
        }
    }

    /// Waits for a change and builds what it affects. None if that fails, which is said.
    async fn changed(&mut self) -> Option<Version> {
        let changed = self.watcher.changed().await;
        if changed.contains(&self.args.pipeline)
            && let Err(error) = self.look_for_sources()
        {
            self.watcher.done();
            say_error(&error);
            return None;
        }
        let mut affected = self.sources.affected(&changed);
        affected.extend(self.sources.stale(&self.watcher).into_iter().filter(|path| !path.exists()));
        affected.sort();
        affected.dedup();
        self.built(&affected).await
    }

    /// Builds components and loads the pipeline. None if that fails, which is said.
    async fn built(&mut self, components: &[PathBuf]) -> Option<Version> {
        let _held = hold();
        for component in components {
            say(&format!("building {}", shown(component)));
            let began = self.clock.elapsed();
            if let Err(error) = self.sources.build(component).await {
                self.watcher.done();
                say_error(&error);
                return None;
            }
            say(&format!("built {} in {}", shown(component), seconds(self.clock.elapsed().saturating_sub(began))));
        }
        let version = Version::load(&self.args.pipeline).await;
        self.watcher.done();
        version.map_err(|error| say_error(&error)).ok()
    }

    /// Waits until there is something else to run than what runs, and it may take over.
    async fn replacement(&mut self, running: &Version) -> Next {
        loop {
            let Some(version) = self.changed().await else {
                say("going on with the code that runs");
                continue;
            };
            if version.is_same_as(running) {
                say("nothing has changed in what runs");
                continue;
            }
            match self.admitted(version).await {
                Some(next) => return next,
                None => say("going on with the code that runs"),
            }
        }
    }

    /// From the newest checkpoint, if its state fits or may be given up. None if not, which is said.
    async fn admitted(&self, version: Version) -> Option<Next> {
        let drop_state = match version.fit(&self.clock).await {
            Ok(Verdict::Fits(carried)) => {
                carried.iter().for_each(|line| say(line));
                BTreeSet::new()
            }
            Ok(Verdict::Without(refused)) => self.may_start_empty(refused).await?,
            Err(error) => {
                say_error(&error);
                return None;
            }
        };
        Some(Next { drop_state, ..Next::new(version, Start::Resume) })
    }

    /// Asks whether nodes may lose their state.
    async fn may_start_empty(&self, refused: BTreeMap<NodeName, String>) -> Option<BTreeSet<NodeName>> {
        let _held = hold();
        for (node, reason) in &refused {
            say(&format!("the state of {:?} cannot go on: {reason}", node.as_str()));
        }
        let names = refused.into_keys().collect();
        if self.args.start_empty {
            return Some(names);
        }
        if !std::io::stdin().is_terminal() {
            say("nobody is there to say whether it may start empty: --start-empty says so");
            return None;
        }
        let ask = || {
            let mut answer = String::new();
            let asked = write!(LogWriter::new(), "dev: start empty? [y/N] ");
            let read = asked.and_then(|()| std::io::stdin().read_line(&mut answer));
            read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
        };
        tokio::task::spawn_blocking(ask).await.unwrap_or(false).then_some(names)
    }

    /// Runs until something ends it.
    async fn run(&mut self, next: Next) -> Result<Ended, Error> {
        let Next { version, start, drop_state, before } = next;
        let mut job = version.job(&self.clock);
        if before.is_some() {
            // The first failure of new code is what its author wants to see.
            job.spec.restart.attempts = 0;
        }
        let (stopper, stop) = channel::channel(false);
        let (control, requests) = Control::channel();
        let place = job.spec.checkpoint.place();
        let server = Server::start(&JobKey::new(&place, &job.spec.dir, &job.spec.name), control.clone()).await;
        let progress = Progress::new(&job.plan, &job.metrics, &job.clock);
        let clock = self.clock.clone();
        let is_shown = !self.args.quiet;
        let (mut is_asked, mut replacement) = (false, None);
        let outcome = {
            let run = job.run_with(RunOptions { start, drop_state, stop, requests });
            let changed = self.replacement(&version);
            // The coordinator answers as soon as there is one.
            let live = control.ask(Request::Status);
            tokio::pin!(run, changed, live);
            let mut is_live = false;
            loop {
                tokio::select! {
                    outcome = &mut run => break outcome,
                    signal = interrupted() => {
                        signal?;
                        if std::mem::replace(&mut is_asked, true) {
                            drop(progress);
                            let message = "interrupted again before the last checkpoint was complete";
                            let help = "nothing is lost: the next run goes on from the last complete checkpoint";
                            return Err(Error::new(ErrorKind::Job, message).help(help));
                        }
                        say("stopping with a last checkpoint; interrupt again to stop at once");
                        stopper.send_replace(true);
                    }
                    next = &mut changed, if replacement.is_none() && !is_asked => {
                        replacement = Some((next, clock.elapsed()));
                        stopper.send_replace(true);
                    }
                    answer = &mut live, if !is_live => {
                        is_live = true;
                        if let (Ok(_), Some((old, asked))) = (answer, &before) {
                            let took = seconds(clock.elapsed().saturating_sub(*asked));
                            let what = match version.changed_since(old) {
                                nodes if nodes.is_empty() => "the new pipeline is live".to_owned(),
                                nodes => format!("the new code of {} is live", nodes.join(", ")),
                            };
                            say(&format!("{what}; the stream paused for {took}"));
                        }
                    }
                    () = progress.show(), if is_shown => {}
                }
            }
        };
        drop(progress);
        if let Some(server) = server {
            server.close().await;
        }
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) if is_asked => return Err(error),
            Err(error) => match replacement {
                // The new code may be what mends it.
                Some((next, _)) => {
                    say_error(&error);
                    return Ok(Ended::Replaced(Box::new(next)));
                }
                None => {
                    let checkpoints = job.metrics.checkpoints.load(Relaxed);
                    return Ok(Ended::Failed { error, checkpoints });
                }
            },
        };
        match replacement {
            _ if is_asked => {}
            Some((next, asked)) if matches!(outcome, Outcome::Stopped { .. }) => {
                return Ok(Ended::Replaced(Box::new(Next { before: Some((version, asked)), ..next })));
            }
            _ => {}
        }
        if is_shown {
            say_outcome(&job, outcome);
        }
        Ok(if is_asked { Ended::Interrupted } else { Ended::Finished })
    }
}

/// A line for the user.
fn say(text: &str) {
    // Nobody may be looking any more.
    let _ = writeln!(LogWriter::new(), "dev: {text}");
}

fn say_error(error: &Error) {
    say(error.report().to_string().trim_end());
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
