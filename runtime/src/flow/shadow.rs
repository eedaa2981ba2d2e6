//! A shadow: the next version of an operator, which does again beside the stream what the old one does in it, until it
//! takes its place.
//!
//! ```text
//! stage ── old operator ──► output ──► stream           at cut n: every call from here on is recorded
//!   │          call, times, digest of what it said      checkpoint n complete: the shadow is restored from it
//!   └─► queue ──► shadow ──► compared and dropped       at cut m: the queue is closed, the shadow works it off,
//!                                                       and is the stage's operator from the next element on
//! ```
//!
//! Restoring takes long when there is much state, and the stream does not wait for it: it waits only for the calls
//! that are left in the queue at cut m. The queue is bounded in bytes. A stage that works as fast as it can would keep
//! its shadow behind for ever, so it gives way to one that lags, for as long as its own calls take: at worst it works
//! at half its speed.
//!
//! A shadow has no side effects: nothing that it says or measures goes anywhere, its log lines are marked, and it is
//! not live: no request that it makes is sent, before it has taken over. An operator that may send some cannot be
//! shadowed at all, as its state may hang on the answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::compare::{Compared, Said};
use super::operator::{RETRIES_MAX, RETRY_DELAY, describe};
use super::report::Progress;
use super::stage::OperatorCall;
use super::{OperatorCode, TaskError, open_and_restore};
use crate::account::Account;
use crate::checkpoint::{JobStore, SubtaskEntry};
use crate::clock::Clock;
use crate::error::Error;
use crate::model::{Batch, Epoch, TaskId, TaskInfo, Timestamp};
use crate::plugin::{IDLE_STEPS_MAX, Operator, OperatorError, Output};

/// What the recorded calls of a subtask may take, in bytes.
const RECORDED_BYTES_MAX: u64 = 256 << 20;
/// From here on a stage gives way also to a shadow that is not restored yet.
const RECORDED_BYTES_MANY: u64 = RECORDED_BYTES_MAX / 4;
/// What is counted for a call beside its batch.
const CALL_BYTES: u64 = 256;
/// A shadow that is not further behind has caught up.
pub const CAUGHT_UP: Duration = Duration::from_millis(10);
/// How long the stream waits at the swap for a shadow that had caught up, before the upgrade is given up.
const SWAP_PATIENCE: Duration = Duration::from_secs(10);
/// A stage gives way in pieces of this, not after every call: timers have a millisecond.
const GIVE_WAY_MIN: Duration = Duration::from_millis(2);

/// What a stage is to do at a cut.
#[derive(Debug)]
pub(super) enum Order {
    /// From this cut on, every call is recorded for a shadow.
    Record(Epoch, Shadow),
    /// At this cut the shadow takes over.
    Swap(Epoch),
}

impl Order {
    pub(super) fn epoch(&self) -> Epoch {
        match self {
            Self::Record(epoch, _) | Self::Swap(epoch) => *epoch,
        }
    }
}

/// The way to one subtask of an operator, for whoever upgrades it.
///
/// An order names the epoch at whose cut it is carried out, and has to be given before that barrier is sent.
#[derive(Debug)]
pub struct UpgradeHandle {
    pub(super) info: TaskInfo,
    pub(super) task: TaskId,
    pub(super) orders: mpsc::UnboundedSender<Order>,
    pub(super) clock: Clock,
    pub(super) store: JobStore,
    /// Who pays for what the shadow does.
    pub(super) account: Option<Account>,
}

impl UpgradeHandle {
    /// From the cut of this epoch on, every call is recorded for the shadow that is given back.
    pub fn record(&self, epoch: Epoch) -> Shadow {
        let shadow = Shadow::new(self.task.clone(), self.clock.clone());
        // A stage that is gone has ended the run.
        let _ = self.orders.send(Order::Record(epoch, shadow.clone()));
        shadow
    }

    /// At the cut of this epoch the shadow that was recorded for takes over.
    pub fn swap(&self, epoch: Epoch) {
        let _ = self.orders.send(Order::Swap(epoch));
    }

    /// Opens the shadow from what the checkpoint holds at whose cut recording began, and lets it work off what was
    /// recorded. The state was written by a plugin with this state version.
    pub fn start(&self, shadow: &Shadow, code: &OperatorCode, entry: &SubtaskEntry, state_version: u32) -> ShadowTask {
        let state = (!entry.segments.is_empty()).then(|| (state_version, entry.segments.clone()));
        let (open, who, store) = (Arc::clone(&code.open), (self.task.clone(), self.info.clone()), self.store.clone());
        let (shadow, progress) = (shadow.clone(), Progress::decode(&entry.progress));
        let work = async move {
            // However this ends, nobody waits for it in vain.
            let ends = Ends(&shadow);
            shadow.lock().phase = Phase::Restoring;
            let (wake_at, host) = match progress {
                Ok(Progress::Inbox { wake_at, host, .. }) => (wake_at, host),
                Ok(Progress::Source { .. }) => return shadow.fail("its checkpoint is that of a source".into()),
                Err(reason) => return shadow.fail(reason),
            };
            let operator = match open_and_restore(open, who, (host, true), store, state).await {
                Ok((operator, _)) => operator,
                Err(error) => return shadow.fail(Error::from(error).chain()),
            };
            let worker = Worker { operator, wake_at, now: host.seen, out: Output::default() };
            match shadow.work(worker).await {
                Ok(handover) => shadow.end(Phase::Ready(Box::new(handover))),
                Err(reason) => shadow.fail(reason),
            }
            drop(ends);
        };
        ShadowTask(tokio::spawn(Account::run_under(self.account.clone(), work).in_current_span()))
    }
}

/// A shadow at work. Dropping it ends that.
#[derive(Debug)]
pub struct ShadowTask(JoinHandle<()>);

impl Drop for ShadowTask {
    fn drop(&mut self) {
        // One that has handed over has ended already.
        self.0.abort();
    }
}

/// What the stage, the shadow at work and whoever upgrades share. Cheap to clone.
#[derive(Clone)]
pub struct Shadow(Arc<Inner>);

struct Inner {
    task: TaskId,
    clock: Clock,
    state: Mutex<State>,
    /// To the worker: there is something to do.
    arrived: Notify,
    /// To the stage: something was done.
    moved: Notify,
}

struct State {
    calls: VecDeque<Recorded>,
    bytes: u64,
    /// When the call was recorded that is being done again.
    in_hand: Option<Duration>,
    /// Nothing more comes.
    is_closed: bool,
    phase: Phase,
    compared: Compared,
    pause: Option<Duration>,
}

enum Phase {
    /// Its checkpoint is not complete.
    Waiting,
    Restoring,
    Working,
    /// It has done all there was.
    Ready(Box<Handover>),
    /// The stage has it.
    Taken,
    Failed(String),
    Cancelled,
}

/// What a shadow has to give when it takes over.
pub(super) struct Handover {
    pub(super) operator: Box<dyn Operator>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) now: Timestamp,
}

/// How far a shadow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShadowPhase {
    /// Calls are recorded; the checkpoint that it begins with is not complete.
    Waiting,
    /// It is opened and takes its state over.
    Restoring,
    /// It works off what was recorded.
    Working,
    /// It works in the stream.
    Taken,
    /// It could not go on.
    Failed,
}

/// How far a shadow is, in numbers.
#[derive(Clone, Debug)]
pub struct ShadowStatus {
    /// What it does.
    pub phase: ShadowPhase,
    /// How long ago the call was made that it does again now.
    pub lag: Duration,
    /// Calls that wait for it.
    pub waiting_calls: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// What it said, compared.
    pub compared: Compared,
    /// How long the stream waited for it when it took over.
    pub pause: Option<Duration>,
    /// Why it could not go on.
    pub fault: Option<String>,
}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadow").field("task", &self.0.task).finish_non_exhaustive()
    }
}

/// Marks a shadow as failed if its task ends without having said how.
struct Ends<'a>(&'a Shadow);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let open = matches!(self.0.lock().phase, Phase::Waiting | Phase::Restoring | Phase::Working);
        if open {
            self.0.fail("its task has ended".into());
        }
    }
}

impl Shadow {
    fn new(task: TaskId, clock: Clock) -> Self {
        let state = State {
            calls: VecDeque::new(),
            bytes: 0,
            in_hand: None,
            is_closed: false,
            phase: Phase::Waiting,
            compared: Compared::default(),
            pause: None,
        };
        Self(Arc::new(Inner { task, clock, state: Mutex::new(state), arrived: Notify::new(), moved: Notify::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is.
    pub fn status(&self) -> ShadowStatus {
        let now = self.0.clock.elapsed();
        let state = self.lock();
        let (phase, fault) = match &state.phase {
            Phase::Waiting => (ShadowPhase::Waiting, None),
            Phase::Restoring => (ShadowPhase::Restoring, None),
            Phase::Working | Phase::Ready(_) => (ShadowPhase::Working, None),
            Phase::Taken => (ShadowPhase::Taken, None),
            Phase::Failed(reason) => (ShadowPhase::Failed, Some(reason.clone())),
            Phase::Cancelled => (ShadowPhase::Failed, Some("it was given up".into())),
        };
        ShadowStatus {
            phase,
            lag: state.lag(now),
            waiting_calls: state.calls.len() as u64,
            waiting_bytes: state.bytes,
            compared: state.compared.clone(),
            pause: state.pause,
            fault,
        }
    }

    /// Gives it up: nothing more is recorded, and what was is dropped.
    pub fn cancel(&self) {
        self.end(Phase::Cancelled);
    }

    fn fail(&self, reason: String) {
        self.end(Phase::Failed(reason));
    }

    fn end(&self, phase: Phase) {
        let (calls, before) = {
            let mut state = self.lock();
            // What has ended stays as it is; but one that is ready can still be given up.
            let is_over = match (&state.phase, &phase) {
                (Phase::Ready(_), Phase::Cancelled) => false,
                (Phase::Ready(_) | Phase::Taken | Phase::Failed(_) | Phase::Cancelled, _) => true,
                _ => false,
            };
            if is_over {
                return;
            }
            state.bytes = 0;
            (std::mem::take(&mut state.calls), std::mem::replace(&mut state.phase, phase))
        };
        // Outside of the lock: there may be much to drop.
        drop((calls, before));
        self.0.arrived.notify_one();
        self.0.moved.notify_one();
    }

    /// Takes a call of the stage. False: nothing more is wanted.
    fn push(&self, recorded: Recorded) -> bool {
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Waiting | Phase::Restoring | Phase::Working) {
            return false;
        }
        state.bytes += recorded.bytes();
        if state.bytes > RECORDED_BYTES_MAX {
            drop(state);
            let limit = RECORDED_BYTES_MAX >> 20;
            self.fail(format!("it is too slow: more than {limit} MiB of calls waited for it in one subtask"));
            return false;
        }
        state.calls.push_back(recorded);
        drop(state);
        self.0.arrived.notify_one();
        true
    }

    /// The next call; none when it is to take over and nothing is left.
    async fn next(&self) -> Result<Option<Recorded>, String> {
        loop {
            {
                let mut state = self.lock();
                if !matches!(state.phase, Phase::Working) {
                    return Err("it was given up".into());
                }
                state.in_hand = None;
                if let Some(recorded) = state.calls.pop_front() {
                    state.bytes = state.bytes.saturating_sub(recorded.bytes());
                    state.in_hand = Some(recorded.at);
                    return Ok(Some(recorded));
                }
                if state.is_closed {
                    return Ok(None);
                }
            }
            self.0.moved.notify_one();
            self.0.arrived.notified().await;
        }
    }

    async fn work(&self, mut worker: Worker) -> Result<Handover, String> {
        {
            let mut state = self.lock();
            if matches!(state.phase, Phase::Restoring) {
                state.phase = Phase::Working;
            }
        }
        while let Some(recorded) = self.next().await? {
            let said = worker.repeat(&self.0.task, &recorded).await.map_err(|error| Error::from(error).chain())?;
            let records = recorded.records();
            self.lock().compared.note(records, (&recorded.said, &said), || recorded.call.describe());
            self.0.moved.notify_one();
            // Native code has no other place at which others get their turn.
            tokio::task::yield_now().await;
        }
        let Worker { mut operator, wake_at, now, .. } = worker;
        operator.set_aside(false);
        Ok(Handover { operator, wake_at, now })
    }

    /// Waits for one that lags, at most for so long.
    async fn give_way(&self, time: Duration) {
        let caught_up = async {
            loop {
                let is_behind = {
                    let state = self.lock();
                    match state.phase {
                        Phase::Working => state.lag(self.0.clock.elapsed()) > CAUGHT_UP,
                        Phase::Waiting | Phase::Restoring => state.bytes > RECORDED_BYTES_MANY,
                        Phase::Ready(_) | Phase::Taken | Phase::Failed(_) | Phase::Cancelled => false,
                    }
                };
                if !is_behind {
                    return;
                }
                self.0.moved.notified().await;
            }
        };
        let _ = tokio::time::timeout(time, caught_up).await;
    }

    /// Waits until it has done all there is, and takes it.
    pub(super) async fn hand_over(&self) -> Result<Handover, String> {
        self.lock().is_closed = true;
        self.0.arrived.notify_one();
        let taken = async {
            loop {
                {
                    let mut state = self.lock();
                    match &state.phase {
                        Phase::Ready(_) => {
                            if let Phase::Ready(handover) = std::mem::replace(&mut state.phase, Phase::Taken) {
                                return Ok(*handover);
                            }
                        }
                        Phase::Failed(reason) => return Err(reason.clone()),
                        Phase::Cancelled => return Err("it was given up".into()),
                        Phase::Taken => return Err("it has taken over already".into()),
                        Phase::Waiting | Phase::Restoring | Phase::Working => {}
                    }
                }
                self.0.moved.notified().await;
            }
        };
        match tokio::time::timeout(SWAP_PATIENCE, taken).await {
            Ok(taken) => taken,
            Err(_) => Err(format!("it was still behind after the stream had waited {SWAP_PATIENCE:?} for it")),
        }
    }

    /// Notes how long the stream has waited for it.
    pub(super) fn note_pause(&self, pause: Duration) {
        self.lock().pause = Some(pause);
    }

    fn is_cancelled(&self) -> bool {
        matches!(self.lock().phase, Phase::Cancelled)
    }
}

impl State {
    fn lag(&self, now: Duration) -> Duration {
        let oldest = self.in_hand.or_else(|| self.calls.front().map(|recorded| recorded.at));
        oldest.map_or(Duration::ZERO, |at| now.saturating_sub(at))
    }
}

/// A call that was made, and what was said to it.
struct Recorded {
    call: Recall,
    /// The processing time of the call.
    now: Timestamp,
    /// That of each `resume` after it.
    resumed: Vec<Timestamp>,
    said: Said,
    at: Duration,
}

/// Which call it was.
enum Recall {
    Process(u32, Box<Batch>),
    Advance(Timestamp),
    Wake,
    Finish(u32),
}

impl Recall {
    fn as_call(&self) -> OperatorCall<'_> {
        match self {
            Self::Process(port, batch) => OperatorCall::Process(*port, batch),
            Self::Advance(time) => OperatorCall::Advance(*time),
            Self::Wake => OperatorCall::Wake,
            Self::Finish(port) => OperatorCall::Finish(*port),
        }
    }

    fn describe(&self) -> String {
        describe(self.as_call())
    }
}

impl Recorded {
    fn records(&self) -> u64 {
        match &self.call {
            Recall::Process(_, batch) => batch.len() as u64,
            _ => 0,
        }
    }

    fn bytes(&self) -> u64 {
        let batch = match &self.call {
            Recall::Process(_, batch) => batch.byte_len() as u64,
            _ => 0,
        };
        batch + CALL_BYTES
    }
}

/// The stage's end: notes what its operator is called with and what it says.
pub(super) struct Recorder {
    shadow: Shadow,
    open: Option<Recorded>,
    /// How long its own calls took, and it has not given way for yet.
    owed: Duration,
    /// The shadow wants nothing more.
    is_over: bool,
}

impl Recorder {
    pub(super) fn new(shadow: Shadow) -> Self {
        Self { shadow, open: None, owed: Duration::ZERO, is_over: false }
    }

    pub(super) fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.shadow.0.clock
    }

    /// Whether it was given up, so that its swap is none.
    pub(super) fn is_cancelled(&self) -> bool {
        self.shadow.is_cancelled()
    }

    /// Notes a call that went well, after it began at `began`. Gives way to a shadow that lags.
    pub(super) async fn note(&mut self, call: OperatorCall<'_>, now: Timestamp, out: &Output, began: Duration) {
        if self.is_over {
            return;
        }
        let ended = self.shadow.0.clock.elapsed();
        let call = match call {
            OperatorCall::Process(port, batch) => Some(Recall::Process(port, Box::new(batch.clone()))),
            OperatorCall::Advance(time) => Some(Recall::Advance(time)),
            OperatorCall::Wake => Some(Recall::Wake),
            OperatorCall::Finish(port) => Some(Recall::Finish(port)),
            OperatorCall::Resume => None,
        };
        let mut recorded = match (call, self.open.take()) {
            (Some(call), _) => Recorded { call, now, resumed: Vec::new(), said: Said::default(), at: ended },
            (None, Some(mut recorded)) => {
                recorded.resumed.push(now);
                recorded
            }
            // It cannot be: recording begins at a cut, and none comes before a `resume`.
            (None, None) => return,
        };
        recorded.said.add(out);
        self.owed += ended.saturating_sub(began);
        if out.more {
            self.open = Some(recorded);
            return;
        }
        if !self.shadow.push(recorded) {
            self.is_over = true;
            return;
        }
        if self.owed >= GIVE_WAY_MIN {
            self.shadow.give_way(std::mem::take(&mut self.owed)).await;
        }
    }
}

/// The shadow's end: does it again.
struct Worker {
    operator: Box<dyn Operator>,
    wake_at: Option<Timestamp>,
    now: Timestamp,
    out: Output,
}

impl Worker {
    /// Does a call again, with all its `resume`s. It may want more or fewer of them than the old version.
    async fn repeat(&mut self, task: &TaskId, recorded: &Recorded) -> Result<Said, TaskError> {
        let mut said = Said::default();
        if matches!(recorded.call, Recall::Wake) {
            // The old one asked for it. Who has not asked is not woken.
            if self.wake_at.take_if(|at| *at <= recorded.now).is_none() {
                return Ok(said);
            }
        }
        self.now = self.now.max(recorded.now);
        let mut call = recorded.call.as_call();
        let mut times = recorded.resumed.iter();
        let mut idle_steps = 0;
        loop {
            self.call(task, call).await?;
            said.add(&self.out);
            self.wake_at = match (self.wake_at, self.out.wake_at) {
                (Some(kept), Some(asked)) => Some(kept.min(asked)),
                (kept, asked) => kept.or(asked),
            };
            if !self.out.more {
                return Ok(said);
            }
            let says_nothing = self.out.emitted.is_empty() && self.out.rejected.1.is_empty();
            idle_steps = if says_nothing { idle_steps + 1 } else { 0 };
            if idle_steps > IDLE_STEPS_MAX {
                return Err(TaskError::operator(task, describe(call), OperatorError::says_nothing("resume")));
            }
            call = OperatorCall::Resume;
            self.now = times.next().map_or(self.now, |time| self.now.max(*time));
        }
    }

    async fn call(&mut self, task: &TaskId, call: OperatorCall<'_>) -> Result<(), TaskError> {
        let mut tries = 0;
        loop {
            self.out.clear();
            match call.make(&mut *self.operator, self.now, &mut self.out).await {
                Ok(()) => return Ok(()),
                Err(OperatorError::Retry(_)) if tries < RETRIES_MAX => {
                    tokio::time::sleep(RETRY_DELAY * 2u32.pow(tries)).await;
                    tries += 1;
                }
                Err(source) => return Err(TaskError::operator(task, describe(call), source)),
            }
        }
    }
}
