//! What a running job can be asked, and what it answers.
//!
//! Requests come over a channel to the coordinator, which serves them between two events: so a checkpoint that is asked for is one
//! like any other, and nothing here can hold the job up. Whoever holds the sender is the front: a socket of `weir run`, an HTTP
//! server, a test. Requests and answers are plain values that serialise; a front adds its own framing and limits.
//!
//! A caller that has gone is no error. A job that ends drops what it was asked and has not done: the answer then never
//! comes, and the front says so.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::Job;
use super::supervisor::Desk;
use super::upgrade::{Upgrade, UpgradeReport, UpgradeRequest, UpgradeStatus, Upgrading};
use crate::checkpoint::{CheckpointError, Run};
use crate::error::Error;
use crate::flow::OperatorCode;
use crate::model::{Epoch, Timestamp};
use crate::plan::{CheckpointSpec, DURATION_MAX, show_duration};

/// How many requests may wait for the coordinator.
const WAITING_MAX: usize = 64;
/// The shortest interval and timeout: that of the pipeline file.
const SHORTEST: Duration = Duration::from_millis(10);
/// The largest count of a setting: that of the pipeline file.
const COUNT_MAX: u32 = 1_000_000;

/// What a job is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How it is getting on.
    Status,
    /// Take a checkpoint now, and answer when it is committed.
    Checkpoint,
    /// Take a checkpoint now and pin it under this name.
    Savepoint {
        /// The name of the savepoint.
        name: String,
    },
    /// Stop with a last checkpoint, and pin that one if a name is given.
    Stop {
        /// The name of the savepoint.
        #[serde(default)]
        savepoint: Option<String>,
    },
    /// Change settings of its checkpoints, for as long as this process runs.
    Set(Change),
    /// Put the next version of an operator in place of the one that runs. The code comes beside the request: see
    /// [`Control::upgrade`].
    Upgrade(UpgradeRequest),
}

/// New values for settings; what is none stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    /// `interval`, in microseconds.
    pub interval_us: Option<u64>,
    /// `timeout`, in microseconds.
    pub timeout_us: Option<u64>,
    /// `min_pause`, in microseconds.
    pub min_pause_us: Option<u64>,
    /// `tolerated_failures`.
    pub tolerated_failures: Option<u32>,
    /// `retain`.
    pub retain: Option<u32>,
}

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Changed {
    /// Its name in the pipeline file.
    pub setting: String,
    /// What it was.
    pub old: String,
    /// What it is now.
    pub new: String,
}

/// What a job answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Checkpoint`] and [`Request::Savepoint`].
    Checkpoint {
        /// Which one it was.
        epoch: Epoch,
        /// The name under which it is pinned.
        savepoint: Option<String>,
    },
    /// To [`Request::Stop`]: everything up to there is committed, and the process is about to end.
    Stopped {
        /// The last checkpoint.
        epoch: Epoch,
        /// Every source had ended: the job is finished.
        finished: bool,
        /// The name under which it is pinned.
        savepoint: Option<String>,
    },
    /// To [`Request::Set`].
    Set {
        /// Each setting that was named.
        changed: Vec<Changed>,
    },
    /// To [`Request::Upgrade`]: a complete checkpoint holds the new version.
    Upgraded(Box<UpgradeReport>),
}

/// How a job is getting on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub job: String,
    /// `running`, `checkpointing`, `stopping` or `restarting`.
    pub state: String,
    /// The process.
    pub pid: u32,
    /// Its history, while it holds a claim.
    pub job_id: Option<String>,
    /// This run, while it holds a claim.
    pub generation: Option<u64>,
    /// The newest complete checkpoint of this run.
    pub epoch: Option<u64>,
    /// How long it took, in microseconds.
    pub checkpoint_us: u64,
    /// Checkpoints that this process completed.
    pub checkpoints: u64,
    /// Attempts of this process that failed.
    pub failed: u64,
    /// How often this process started the job over.
    pub restarts: u64,
    /// The settings that are in force.
    pub settings: Vec<(String, String)>,
    /// The upgrade that is under way, if one is.
    #[serde(default)]
    pub upgrade: Option<UpgradeStatus>,
    /// Each node.
    pub nodes: Vec<NodeStatus>,
}

/// How a node is getting on: counted since the process started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// Records that came in.
    pub records_in: u64,
    /// Records that went out.
    pub records_out: u64,
    /// The newest watermark of a subtask.
    pub watermark: Option<Timestamp>,
}

/// Why a job did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The exit code that goes with it: see [`crate::error::ErrorKind::exit_code`].
    pub code: u8,
    /// One clause.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { code: error.kind().exit_code(), message: error.chain(), help: error.remedy().map(str::to_owned) }
    }
}

impl From<CheckpointError> for Refusal {
    fn from(error: CheckpointError) -> Self {
        Error::from(error).into()
    }
}

/// A request on its way, and where its answer goes.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub request: Request,
    /// The code of an upgrade.
    pub code: Option<Box<OperatorCode>>,
    /// Where the answer goes. Nobody may be listening any more.
    pub answer: oneshot::Sender<Result<Answer, Refusal>>,
}

impl Call {
    pub(super) fn answer(self, answer: Result<Answer, Refusal>) {
        let _ = self.answer.send(answer);
    }
}

/// The front's end of the channel. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control(mpsc::Sender<Call>);

impl Control {
    /// A channel, and the end that [`RunOptions`](super::RunOptions) takes.
    pub fn channel() -> (Self, mpsc::Receiver<Call>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), receiver)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    ///
    /// If the job refuses, has too much to answer already, or ends before it is done.
    pub async fn ask(&self, request: Request) -> Result<Answer, Refusal> {
        self.send(request, None).await
    }

    /// Puts the next version of an operator in place of the one that runs, and waits until a complete checkpoint holds it.
    ///
    /// Until then it can be seen in [`Status::upgrade`]. One at a time in a job. A caller that goes away does not stop it.
    ///
    /// # Errors
    ///
    /// Says why the old version goes on: the new one does not fit, could not take the state over, was too slow, or failed after it had
    /// taken over, in which case the job has started over from its newest checkpoint.
    pub async fn upgrade(&self, upgrade: Upgrade) -> Result<UpgradeReport, Refusal> {
        let Upgrade { node, code, shadow, canary, catch_up } = upgrade;
        let micros = |time: Option<Duration>| time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        let request = UpgradeRequest {
            node: node.to_string(),
            plugin: None,
            config: None,
            shadow_us: micros(shadow),
            canary,
            catch_up_us: micros(catch_up),
        };
        match self.send(Request::Upgrade(request), Some(Box::new(code))).await? {
            Answer::Upgraded(report) => Ok(*report),
            other => Err(Refusal { code: 1, message: format!("the job answered {other:?}"), help: None }),
        }
    }

    async fn send(&self, request: Request, code: Option<Box<OperatorCode>>) -> Result<Answer, Refusal> {
        let refused = |message: &str, help: &str| Refusal { code: 1, message: message.into(), help: Some(help.into()) };
        let ended = || refused("the job ended before it had done that", "look at its log, and run it again");
        let (answer, answered) = oneshot::channel();
        match self.0.try_send(Call { request, code, answer }) {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(ended())),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(ended()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(refused("the job has 64 requests to answer already", "ask again when it has answered some"))
            }
        }
    }
}

impl Change {
    /// Changes settings, all of them or none.
    pub(super) fn apply(self, to: &mut CheckpointSpec) -> Result<Vec<Changed>, Refusal> {
        let mut new = to.clone();
        let mut changed = Vec::new();
        let mut note = |setting: &str, old: String, new: String| {
            changed.push(Changed { setting: setting.into(), old, new });
        };
        for (setting, asked, least, value) in [
            ("interval", self.interval_us, SHORTEST, &mut new.interval),
            ("timeout", self.timeout_us, SHORTEST, &mut new.timeout),
            ("min_pause", self.min_pause_us, Duration::ZERO, &mut new.min_pause),
        ] {
            let Some(asked) = asked.map(Duration::from_micros) else { continue };
            if !(least..=DURATION_MAX).contains(&asked) {
                let (asked, least) = (show_duration(asked), show_duration(least));
                return Err(out_of_range(setting, &asked, &least, &show_duration(DURATION_MAX)));
            }
            note(setting, show_duration(*value), show_duration(asked));
            *value = asked;
        }
        for (setting, asked, least, value) in [
            ("tolerated_failures", self.tolerated_failures, 0, &mut new.tolerated_failures),
            ("retain", self.retain, 1, &mut new.retain),
        ] {
            let Some(asked) = asked else { continue };
            if !(least..=COUNT_MAX).contains(&asked) {
                return Err(out_of_range(setting, &asked.to_string(), &least.to_string(), &COUNT_MAX.to_string()));
            }
            note(setting, value.to_string(), asked.to_string());
            *value = asked;
        }
        if changed.is_empty() {
            return Err(Refusal {
                code: 2,
                message: "no setting is named".into(),
                help: Some("name interval, timeout, min_pause, tolerated_failures or retain".into()),
            });
        }
        *to = new;
        Ok(changed)
    }
}

fn out_of_range(setting: &str, value: &str, least: &str, most: &str) -> Refusal {
    Refusal {
        code: 2,
        message: format!("{setting} is {value}, and it has to be from {least} to {most}"),
        help: Some(format!("choose a value from {least} to {most}")),
    }
}

impl Status {
    /// What there is to say of a job. `run` is its hold on the log, if it has one now.
    pub(super) fn of(job: &Job, run: Option<&Run>, desk: &Desk, state: &str) -> Self {
        let settings = desk.settings.borrow();
        use std::sync::atomic::Ordering::Relaxed;
        let metrics = &job.metrics;
        let nodes = metrics.nodes().map(|(name, node)| NodeStatus {
            node: name.to_string(),
            records_in: node.records_in.load(Relaxed),
            records_out: node.records_out.load(Relaxed),
            watermark: node.watermark(),
        });
        let duration = |value: Duration| show_duration(value);
        let epoch = Some(metrics.epoch.load(Relaxed)).filter(|&epoch| epoch > 0);
        Self {
            job: job.spec.name.clone(),
            state: state.into(),
            pid: std::process::id(),
            job_id: run.map(|run| run.job_id().to_string()),
            generation: run.map(|run| run.generation().0),
            epoch,
            checkpoint_us: metrics.checkpoint_micros.load(Relaxed),
            checkpoints: metrics.checkpoints.load(Relaxed),
            failed: metrics.checkpoints_failed.load(Relaxed),
            restarts: metrics.restarts.load(Relaxed),
            settings: vec![
                ("interval".into(), duration(settings.interval)),
                ("timeout".into(), duration(settings.timeout)),
                ("min_pause".into(), duration(settings.min_pause)),
                ("tolerated_failures".into(), settings.tolerated_failures.to_string()),
                ("retain".into(), settings.retain.to_string()),
            ],
            upgrade: desk.upgrade.as_ref().map(Upgrading::status),
            nodes: nodes.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> CheckpointSpec {
        let text = "name = \"t\"\n[source.s]\nconnector = \"generator\"\n[sink.k]\nconnector = \"blackhole\"\ninputs = [\"s\"]";
        crate::plan::parse(text, std::path::Path::new("pipeline.toml")).expect("it is a pipeline").checkpoint
    }

    #[test]
    fn a_change_says_what_was_and_what_is_and_changes_all_or_nothing() {
        let mut now = settings();
        let change = Change { interval_us: Some(5_000_000), retain: Some(7), ..Change::default() };
        let changed = change.apply(&mut now).expect("it is in range");
        let said: Vec<_> = changed.iter().map(|c| (c.setting.as_str(), c.old.as_str(), c.new.as_str())).collect();
        assert_eq!(said, [("interval", "1s", "5s"), ("retain", "3", "7")]);
        assert_eq!((now.interval, now.retain, now.timeout), (Duration::from_secs(5), 7, Duration::from_secs(60)));

        for (wrong, named) in [
            (Change { interval_us: Some(9_999), retain: Some(9), ..Change::default() }, "interval is 9999us"),
            (Change { timeout_us: Some(u64::MAX), ..Change::default() }, "timeout is"),
            (Change { retain: Some(0), interval_us: Some(20_000), ..Change::default() }, "retain is 0"),
            (Change { tolerated_failures: Some(1_000_001), ..Change::default() }, "tolerated_failures is 1000001"),
            (Change::default(), "no setting"),
        ] {
            let before = format!("{now:?}");
            let refusal = wrong.apply(&mut now).expect_err("it is out of range");
            assert!(refusal.message.contains(named) && refusal.code == 2, "{refusal:?}");
            assert_eq!(format!("{now:?}"), before);
        }
    }

    #[test]
    fn requests_are_written_as_the_documentation_shows_them() {
        for (request, text) in [
            (Request::Status, r#"{"request":"status"}"#),
            (Request::Checkpoint, r#"{"request":"checkpoint"}"#),
            (Request::Savepoint { name: "a".into() }, r#"{"request":"savepoint","name":"a"}"#),
            (Request::Stop { savepoint: None }, r#"{"request":"stop"}"#),
            (Request::Set(Change { retain: Some(2), ..Change::default() }), r#"{"request":"set","retain":2}"#),
        ] {
            assert_eq!(serde_json::from_str::<Request>(text).expect(text), request);
        }
        assert!(serde_json::from_str::<Request>(r#"{"request":"set","retian":2}"#).is_err());
        assert!(serde_json::from_str::<Request>(r#"{"request":"explode"}"#).is_err());
    }
}
