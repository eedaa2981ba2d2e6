//! `weir dev`: runs a pipeline while its plugins are written.
//!
//! ```text
//! files change ──► build ──► load ──► does the state fit? ──► stop at a barrier ──► go on in the new code
//!                    │         │            │ ask                                        │ fails before its first checkpoint
//!                    └─────────┴────────────┴──► the old code runs on ◄──────────────────┘
//! ```
//!
//! Until the last arrow the old code runs. The swap is what a stop and a start are: a last checkpoint, whose state the new code gets, so nothing is
//! lost, repeated or reordered. What fails is shown, and waits for the next change. Whether the state fits is asked twice: before the old
//! code stops, of a checkpoint that it takes for the purpose, and of its last one, which is what the new code gets.
//!
//! A run that somebody else has superseded ends this: the job is theirs.

mod sources;
mod terminal;
mod version;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;

use self::sources::{Sources, shown};
use self::terminal::Terminal;
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
    /// Give up state that cannot go on in the new code, without asking: its node starts empty
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
    /// Nodes whose state may be given up: somebody said so.
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
    terminal: Terminal,
    clock: Clock,
    /// No run has begun that forgets what was before, and one was asked for.
    is_fresh: bool,
    /// A change was seen of which nothing has come yet that was used or refused.
    is_owed: bool,
    /// Components whose sources are newer.
    dirty: BTreeSet<PathBuf>,
    /// A build whose end nobody has seen: it is waited for before there is another.
    building: Option<JoinHandle<Result<(), Error>>>,
}

impl Dev {
    fn new(args: DevArgs) -> Result<Self, Error> {
        let mut dev = Self {
            is_fresh: args.fresh,
            args,
            sources: Sources::default(),
            watcher: Watcher::default(),
            terminal: Terminal::default(),
            clock: Clock::system(),
            is_owed: true,
            dirty: BTreeSet::new(),
            building: None,
        };
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
        self.watcher.watch(self.sources.watched())?;
        self.dirty.extend(self.sources.stale(&self.watcher));
        Ok(())
    }

    async fn work(&mut self) -> Result<(), Error> {
        let mut next = None;
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
                Ended::Replaced(next) => Some(self.still_admitted(*next).await),
                Ended::Finished => None,
                Ended::Failed { error, .. } if error.kind() == ErrorKind::Superseded => return Err(error),
                Ended::Failed { error, checkpoints } => {
                    say_error(&error);
                    match before {
                        // What the new code did since the checkpoint is in no committed output.
                        Some(old) if checkpoints == 0 => {
                            say(
                                "the new code failed before its first checkpoint: going back to the code before, until the next change",
                            );
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
        if !self.is_owed {
            say("waiting for a change");
        }
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
        self.is_owed = false;
        if self.is_fresh {
            return Some(Next::new(version, Start::Fresh));
        }
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
                say_error(&error);
                say(
                    "the job had finished, and what it wrote is where it would write again: remove that and save once more",
                );
                None
            }
        }
    }

    /// Waits for a change and builds what it affects. None if that fails, which is said. May be dropped half way: the next call goes on.
    async fn changed(&mut self) -> Option<Version> {
        if !self.is_owed {
            self.watcher.changed().await;
            self.is_owed = true;
        }
        let version = self.built().await;
        if version.is_none() {
            self.is_owed = false;
        }
        version
    }

    /// Builds what is older than its sources and loads the pipeline.
    async fn built(&mut self) -> Option<Version> {
        let is_new_pipeline = self.watcher.pending().contains(&self.args.pipeline);
        self.dirty.extend(self.sources.affected(self.watcher.pending()));
        let found = if is_new_pipeline { self.look_for_sources() } else { Ok(()) };
        self.dirty.extend(self.sources.affected(self.watcher.pending()));
        let missing = self.sources.stale(&self.watcher).into_iter().filter(|path| !path.exists());
        self.dirty.extend(missing);
        self.watcher.done();
        let _held = hold();
        if let Err(error) = found {
            say_error(&error);
            return None;
        }
        while let Some(component) = self.dirty.first().cloned() {
            if let Err(error) = self.build(&component).await {
                say_error(&error);
                return None;
            }
            self.dirty.remove(&component);
        }
        Version::load(&self.args.pipeline).await.map_err(|error| say_error(&error)).ok()
    }

    async fn build(&mut self, component: &Path) -> Result<(), Error> {
        // Of one that was left half way nobody knows whether it had seen the last change.
        drop(self.end_of_build().await);
        say(&format!("building {}", shown(component)));
        let began = self.clock.elapsed();
        self.building = self.sources.build(component);
        self.end_of_build().await?;
        say(&format!("built {} in {}", shown(component), seconds(self.clock.elapsed().saturating_sub(began))));
        Ok(())
    }

    async fn end_of_build(&mut self) -> Result<(), Error> {
        let Some(building) = &mut self.building else { return Ok(()) };
        let built = building.await;
        self.building = None;
        built.unwrap_or_else(|error| Err(Error::new(ErrorKind::Plugin, "a build was lost").caused_by(error)))
    }

    /// Waits until there is something else to run than what runs, and it may take over.
    async fn replacement(&mut self, running: &Version, control: &Control) -> Next {
        loop {
            let Some(version) = self.changed().await else {
                say("going on with the code that runs");
                continue;
            };
            if version.is_same_as(running) {
                self.is_owed = false;
                say("nothing has changed in what runs");
                continue;
            }
            // The newest checkpoint may be old, or of code that ran before this: what counts is the state that there is now. Where none can
            // be taken, the last one decides.
            drop(control.ask(Request::Checkpoint).await);
            let admitted = self.admitted(version).await;
            self.is_owed = false;
            match admitted {
                Some(next) => return next,
                None => say("going on with the code that runs"),
            }
        }
    }

    /// Looks once more at what is to take over, now that the old code has taken its last checkpoint. If it may not, the old code goes on.
    async fn still_admitted(&mut self, mut next: Next) -> Next {
        let Some((old, _)) = &next.before else { return next };
        let old = old.clone();
        let refused = match next.version.fit(&self.clock).await {
            Ok(Verdict::Fits(_)) => {
                next.drop_state.clear();
                return next;
            }
            Ok(Verdict::Without(refused)) => refused,
            Err(error) => {
                say_error(&error);
                return Next::new(old, Start::Resume);
            }
        };
        if refused.keys().all(|node| next.drop_state.contains(node)) {
            next.drop_state.retain(|node| refused.contains_key(node));
            return next;
        }
        match self.may_give_up(refused).await {
            Some(drop_state) => Next { drop_state, ..next },
            None => {
                say("going back to the code before");
                Next::new(old, Start::Resume)
            }
        }
    }

    /// From the newest checkpoint, if its state fits or may be given up. None if not, which is said.
    async fn admitted(&mut self, version: Version) -> Option<Next> {
        let drop_state = match version.fit(&self.clock).await {
            Ok(Verdict::Fits(carried)) => {
                carried.iter().for_each(|line| say(line));
                BTreeSet::new()
            }
            Ok(Verdict::Without(refused)) => self.may_give_up(refused).await?,
            Err(error) => {
                say_error(&error);
                return None;
            }
        };
        Some(Next { drop_state, ..Next::new(version, Start::Resume) })
    }

    /// Asks whether nodes may lose their state.
    async fn may_give_up(&mut self, refused: BTreeMap<NodeName, String>) -> Option<BTreeSet<NodeName>> {
        let _held = hold();
        for (node, reason) in &refused {
            say(&format!("the state of {:?} cannot go on: {reason}", node.as_str()));
        }
        let names = refused.into_keys().collect();
        if self.args.start_empty {
            return Some(names);
        }
        if !Terminal::is_there() {
            say("nobody is there to say whether it may be given up: --start-empty says so");
            return None;
        }
        self.terminal.confirms("give this state up?").await.then_some(names)
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
        let server = Server::start(&JobKey::new(&place, &job.spec.dir, &job.spec.name), control.clone(), None).await;
        let progress = Progress::new(&job.plan, &job.metrics, &job.clock);
        let clock = self.clock.clone();
        let is_shown = !self.args.quiet;
        let is_fresh = start == Start::Fresh;
        let (mut is_asked, mut is_live, mut replacement) = (false, false, None);
        let outcome = {
            let run = job.run_with(RunOptions { start, drop_state, stop, requests });
            let changed = self.replacement(&version, &control);
            // The coordinator answers as soon as there is one.
            let live = control.ask(Request::Status);
            tokio::pin!(run, changed, live);
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
        if is_fresh && (is_live || outcome.is_ok()) {
            self.is_fresh = false;
        }
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) if is_asked || error.kind() == ErrorKind::Superseded => return Err(error),
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
        let is_stopped = matches!(outcome, Outcome::Stopped { .. });
        match replacement {
            Some((next, asked)) if is_stopped && !is_asked => {
                return Ok(Ended::Replaced(Box::new(Next { before: Some((version, asked)), ..next })));
            }
            // The input came to its end first: what was made of the change is made once more, for a run from the beginning.
            Some(_) => self.is_owed = true,
            None => {}
        }
        if is_shown {
            say_outcome(&job, outcome);
        }
        // Also somebody else may have asked it to stop.
        Ok(if is_asked || is_stopped { Ended::Interrupted } else { Ended::Finished })
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
