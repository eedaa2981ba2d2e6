//! One instance, driven through the calls of a course, as a task would drive it but for the time: that is virtual.
//!
//! What a task keeps for an operator is kept here: when it asked to be woken, what time it is, what it has had of the host.

use std::time::Duration;

use super::course::Step;
use super::input::Input;
use super::said::Said;
use super::state::{State, Written};
use crate::clock::Clock;
use crate::flow::OperatorCode;
use crate::model::{Batch, Epoch, KEY_GROUPS_DEFAULT, SnapshotMode, TaskInfo, Timestamp, groups_of_subtask};
use crate::plugin::{HostCut, IDLE_STEPS_MAX, Operator, OperatorError, Output};

/// How often a call that asks for it is repeated.
const RETRIES_MAX: u32 = 8;

/// What is tried: the code of an operator, with its configuration in it, and the input port that gets the records.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Makes its instances.
    pub code: OperatorCode,
    /// Which input port gets the records.
    pub port: u32,
    /// Measures calls.
    pub clock: Clock,
}

impl Subject {
    /// How many output ports it has.
    pub(super) fn outputs(&self) -> usize {
        self.code.descriptor.outputs.len()
    }

    /// How many input ports it has.
    pub(super) fn inputs(&self) -> u32 {
        u32::try_from(self.code.descriptor.inputs.len()).unwrap_or(u32::MAX)
    }

    /// Whether its records come by key.
    pub(super) fn is_keyed(&self) -> bool {
        self.code.descriptor.inputs.get(self.port as usize).is_some_and(|port| port.keyed)
    }

    /// The name of an output, or of what was put aside.
    pub(super) fn stream(&self, number: usize) -> String {
        self.code.descriptor.outputs.get(number).map_or("rejected", |port| port.name.as_str()).to_owned()
    }
}

/// Which subtask an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) subtask: u32,
    pub(super) parallelism: u32,
}

impl Share {
    pub(super) const ALL: Self = Self { subtask: 0, parallelism: 1 };

    fn task(self) -> TaskInfo {
        TaskInfo {
            job: "conformance".to_owned(),
            node: "operator".to_owned(),
            subtask: self.subtask,
            parallelism: self.parallelism,
            key_groups: KEY_GROUPS_DEFAULT,
            groups: groups_of_subtask(self.subtask, self.parallelism, KEY_GROUPS_DEFAULT),
            seed: 0x7765_6972 + u64::from(self.subtask),
        }
    }
}

/// Everything that a checkpoint holds of one subtask.
#[derive(Clone, Debug, Default)]
pub(super) struct Cut {
    pub(super) state: State,
    pub(super) host: HostCut,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) now: Timestamp,
}

/// What a session has used.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    pub(super) calls: u64,
    pub(super) records_in: u64,
    pub(super) bytes_in: u64,
    pub(super) records_out: u64,
    pub(super) bytes_out: u64,
    pub(super) rejected: u64,
    pub(super) memory_bytes: u64,
    /// The most that one call said.
    pub(super) call_bytes_max: u64,
    /// In all calls.
    pub(super) time: Duration,
    /// In calls of `process` and the `resume` after them.
    pub(super) process_time: Duration,
    /// The longest call, and what it was.
    pub(super) longest: (Duration, &'static str),
    pub(super) looked_at_time: bool,
}

/// A call that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call<'a> {
    Process(u32, &'a Batch),
    Advance(Timestamp),
    Wake,
    Finish(u32),
    Resume,
}

impl Call<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Process(..) => "process",
            Self::Advance(_) => "advance",
            Self::Wake => "wake",
            Self::Finish(_) => "finish",
            Self::Resume => "resume",
        }
    }
}

/// See the module.
pub(super) struct Session {
    operator: Box<dyn Operator>,
    port: u32,
    share: Share,
    clock: Clock,
    now: Timestamp,
    wake_at: Option<Timestamp>,
    out: Output,
    epoch: Epoch,
    pub(super) usage: Usage,
}

impl Session {
    /// A fresh instance at the beginning of the time.
    pub(super) async fn open(subject: &Subject, share: Share, now: Timestamp) -> Result<Self, OperatorError> {
        let operator = (subject.code.open)(share.task()).await?;
        Ok(Self {
            operator,
            port: subject.port,
            share,
            clock: subject.clock.clone(),
            now,
            wake_at: None,
            out: Output::default(),
            epoch: Epoch(0),
            usage: Usage::default(),
        })
    }

    /// A fresh instance that goes on from a cut.
    pub(super) async fn restored(subject: &Subject, share: Share, cut: &Cut) -> Result<Self, OperatorError> {
        let mut session = Self::open(subject, share, cut.now).await?;
        session.wake_at = cut.wake_at;
        session.operator.resume_from(cut.host);
        if !cut.state.is_empty() {
            session.operator.restore(subject.code.descriptor.state_version, cut.state.chunks()).await?;
        }
        Ok(session)
    }

    /// Its memory now.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.operator.memory_bytes()
    }

    /// How long it has emitted, if that is measured.
    pub(super) fn emitting(&self) -> Duration {
        self.operator.emitting()
    }

    /// Sets the processing time.
    pub(super) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Does one step of a course.
    pub(super) async fn step(
        &mut self,
        number: usize,
        step: Step,
        input: &Input,
        said: &mut Said,
    ) -> Result<(), OperatorError> {
        match step {
            Step::Take(from, to) => {
                let Share { subtask, parallelism } = self.share;
                let batch = input.slice(from, to, |row| parallelism == 1 || input.subtask(row, parallelism) == subtask);
                if batch.is_empty() {
                    return Ok(());
                }
                self.call(Call::Process(self.port, &batch), number, said).await
            }
            Step::Tick(now) => {
                self.now = now;
                match self.wake_at.take_if(|at| *at <= now) {
                    Some(_) => self.call(Call::Wake, number, said).await,
                    None => Ok(()),
                }
            }
            Step::Advance(watermark) => self.call(Call::Advance(watermark), number, said).await,
            Step::Finish(port) => self.call(Call::Finish(port), number, said).await,
            Step::Stop => Ok(()),
        }
    }

    /// Makes a call, and all `resume` after it.
    pub(super) async fn call(&mut self, call: Call<'_>, number: usize, said: &mut Said) -> Result<(), OperatorError> {
        if let Call::Process(_, batch) = call {
            self.usage.records_in += batch.len() as u64;
            self.usage.bytes_in += batch.byte_len() as u64;
        }
        let (mut next, mut idle_steps) = (call, 0);
        loop {
            self.call_once(next, matches!(call, Call::Process(..))).await?;
            let out = &mut self.out;
            let nothing = out.emitted.is_empty() && out.rejected.1.is_empty();
            if let Some(at) = out.wake_at.take() {
                self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
            }
            said.add(number, out);
            if !out.more {
                return Ok(());
            }
            idle_steps = if nothing { idle_steps + 1 } else { 0 };
            if idle_steps > IDLE_STEPS_MAX {
                return Err(OperatorError::says_nothing("resume"));
            }
            next = Call::Resume;
        }
    }

    async fn call_once(&mut self, call: Call<'_>, processes: bool) -> Result<(), OperatorError> {
        let mut tries = 0;
        loop {
            let (now, out) = (self.now, &mut self.out);
            out.clear();
            let began = self.clock.elapsed();
            let result = match call {
                Call::Process(port, batch) => self.operator.process(now, port, batch, out).await,
                Call::Advance(watermark) => self.operator.advance(now, watermark, out).await,
                Call::Wake => self.operator.wake(now, out).await,
                Call::Finish(port) => self.operator.finish(now, port, out).await,
                Call::Resume => self.operator.resume(now, out).await,
            };
            let took = self.clock.elapsed().saturating_sub(began);
            self.note(call, processes, took);
            match result {
                Err(OperatorError::Retry(_)) if tries < RETRIES_MAX => tries += 1,
                result => return result,
            }
        }
    }

    fn note(&mut self, call: Call<'_>, processes: bool, took: Duration) {
        let (usage, out) = (&mut self.usage, &self.out);
        usage.calls += 1;
        usage.time += took;
        if processes {
            usage.process_time += took;
        }
        if took > usage.longest.0 {
            usage.longest = (took, call.name());
        }
        let bytes = |batch: &Batch| batch.byte_len() as u64;
        let said = out.emitted.iter().map(|(_, batch)| bytes(batch)).sum::<u64>() + bytes(&out.rejected.0);
        usage.bytes_out += said;
        usage.call_bytes_max = usage.call_bytes_max.max(said);
        usage.records_out += out.emitted.iter().map(|(_, batch)| batch.len() as u64).sum::<u64>();
        usage.rejected += out.rejected.0.len() as u64;
        usage.memory_bytes = usage.memory_bytes.max(self.operator.memory_bytes());
        usage.looked_at_time |= self.operator.looked_at_time();
    }

    /// Begins a snapshot, which abandons one that is open.
    pub(super) fn begin_snapshot(&mut self) {
        self.epoch = self.epoch.next();
    }

    /// One step of the snapshot that was begun. True: done.
    pub(super) async fn snapshot_step(
        &mut self,
        mode: SnapshotMode,
        written: &mut Written,
    ) -> Result<bool, OperatorError> {
        self.operator.snapshot(self.epoch, mode, written).await
    }

    /// Takes a snapshot in one go, however many calls that takes.
    pub(super) async fn snapshot(&mut self, mode: SnapshotMode) -> Result<Written, OperatorError> {
        self.begin_snapshot();
        let (mut written, mut idle_steps) = (Written::default(), 0);
        loop {
            let before = written.chunks.len();
            if self.snapshot_step(mode, &mut written).await? {
                return Ok(written);
            }
            idle_steps = if written.chunks.len() == before { idle_steps + 1 } else { 0 };
            if idle_steps > IDLE_STEPS_MAX {
                return Err(OperatorError::says_nothing("snapshot"));
            }
        }
    }

    /// Its state as a full snapshot has it.
    pub(super) async fn full_state(&mut self) -> Result<State, OperatorError> {
        let written = self.snapshot(SnapshotMode::Full).await?;
        Ok(State::full(self.share.subtask, written))
    }

    /// Everything that a checkpoint would hold now, but for the state.
    pub(super) fn cut(&self) -> Cut {
        Cut { state: State::default(), host: self.operator.host_cut(), wake_at: self.wake_at, now: self.now }
    }

    /// Everything that a checkpoint would hold now.
    pub(super) async fn full_cut(&mut self) -> Result<Cut, OperatorError> {
        let cut = self.cut();
        Ok(Cut { state: self.full_state().await?, ..cut })
    }
}
