//! One instance of a component at work on one subtask: typed calls, and what each way to end means.
//!
//! A call goes in with its limits set anew; what it said comes out only if it returned ok. An instance that trapped,
//! crossed a limit or whose call was dropped half way has ended: its memory goes back at once, and every further call is
//! answered with an error. It never hangs and never takes the process with it.
//!
//! An instance whose component has no snapshot code is saved and restored as an image (`image.rs`), behind the same two calls.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use wasmtime::component::{self, InstancePre};
use wasmtime::{Store, UpdateDeadline};

use super::bindings::{self, checkpoint, processor, types};
use super::engine::SharedEngine;
use super::host::{Call, HostState, Rejected, Stopwatch};
use super::image::{Accessors, Image, ImageFault};
use super::lent::Loan;
use super::limits::{self, HOSTCALL_BYTES, Meter, TEXT_BYTES_MAX, clean};
use super::log::Log;
use super::metrics::TaskMetrics;
use super::wasi::Outside;
use super::{HostCut, Operator, OperatorError, Output, SnapshotReader, SnapshotWriter};
use crate::account::{self, Account, InstanceMemory, Place};
use crate::clock::Clock;
use crate::model::{Batch, Chunk, Epoch, SnapshotMode, StateKind, TaskInfo, Timestamp};
use crate::plan::LimitsSpec;

/// What one component and its exports are, before there is an instance.
pub(super) struct Code {
    pub(super) engine: Arc<SharedEngine>,
    pub(super) pre: InstancePre<HostState>,
    pub(super) processor: processor::GuestIndices,
    pub(super) checkpoint: Option<checkpoint::GuestIndices>,
    /// Of a component that was instrumented.
    pub(super) accessors: Option<Accessors>,
}

/// One instance.
pub(super) struct Instance {
    engine: Arc<SharedEngine>,
    account: Account,
    /// None when it has ended.
    store: Option<Store<HostState>>,
    processor: processor::Guest,
    checkpoint: Option<checkpoint::Guest>,
    handle: component::Instance,
    /// Of one whose state is saved as an image.
    image: Option<Image>,
    wall: Duration,
    output_bytes: u64,
    state: StateKind,
    /// The snapshot that is being written.
    snapshot: Option<Epoch>,
    /// A call has begun and not returned: its future was dropped, if this is seen from outside of a call.
    in_call: bool,
    /// Why it has ended.
    ended: Option<String>,
}

/// A call of an export on an instance that may be called, up to what it means.
macro_rules! call {
    ($self:ident, $call:expr, |$store:ident| $body:expr) => {{
        let result = match $self.store.as_mut() {
            Some($store) => {
                let _running = $self.engine.running();
                within(&$self.account, $self.wall, $body).await
            }
            None => return Err($self.has_ended()),
        };
        $self.settle($call, result)
    }};
}

impl Instance {
    /// A fresh instance, on which nothing was called yet. `first` is the call that it is made for.
    pub(super) async fn new(
        code: &Code,
        account: &Account,
        first: Call,
        limits: LimitsSpec,
        log: Log,
        metrics: TaskMetrics,
    ) -> Result<Self, OperatorError> {
        let place = code
            .engine
            .place(account)
            .map_err(|breach| limits::operator_error(first.name(), &breach.into(), 0, None, ""))?;
        let memory = InstanceMemory::new(account.clone());
        let wall = limits.wall;
        let output_bytes = limits.output_bytes;
        let hostcall_bytes = output_bytes.saturating_add(HOSTCALL_BYTES);
        let mut store =
            Store::new(code.engine.engine(), HostState::new(Meter::new(limits, Some(memory)), log, metrics, place));
        store.limiter(|state| &mut state.meter);
        store.set_hostcall_fuel(usize::try_from(hostcall_bytes).unwrap_or(usize::MAX));
        store.epoch_deadline_callback(|mut context| {
            context.data_mut().meter.tick()?;
            account::goes_on();
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        store.set_epoch_deadline(1);
        store.data_mut().begin(first, None, 0);
        let made = {
            let _running = code.engine.running();
            within(account, wall, code.pre.instantiate_async(&mut store)).await
        };
        let made = made.unwrap_or_else(|Elapsed| Err(store.data().meter.wall().into()));
        let loaded = made.and_then(|instance| {
            let processor = code.processor.load(&mut store, &instance)?;
            let checkpoint = code.checkpoint.as_ref().map(|indices| indices.load(&mut store, &instance)).transpose()?;
            Ok((processor, checkpoint, instance))
        });
        let (processor, checkpoint, handle) = loaded.map_err(|error| {
            store.data_mut().finish_lines();
            let log = &store.data().log;
            limits::operator_error(first.name(), &error, output_bytes, log.last_error.as_deref(), &log.printed)
        })?;
        Ok(Self {
            engine: Arc::clone(&code.engine),
            account: account.clone(),
            store: Some(store),
            processor,
            checkpoint,
            handle,
            image: None,
            wall,
            output_bytes,
            state: StateKind::Stateless,
            snapshot: None,
            in_call: false,
            ended: None,
        })
    }

    /// Asks what the plugin is. The instance is not used for anything else.
    pub(super) async fn describe(mut self) -> Result<types::Descriptor, OperatorError> {
        self.begin(Call::Describe, None, 0)?;
        call!(self, Call::Describe, |store| async { Ok(Ok(self.processor.call_describe(&mut *store).await?)) })
    }

    /// Tells the host's side what the descriptor, the task and the configuration say. Once, before any call but `describe`.
    pub(super) fn bind(
        &mut self,
        code: &Code,
        config: &str,
        task: &TaskInfo,
        state: StateKind,
        output_keyed: Vec<bool>,
        outside: Outside,
    ) -> Result<(), OperatorError> {
        self.state = state;
        let Some(store) = &mut self.store else { return Err(self.has_ended()) };
        let data = store.data_mut();
        data.bind(output_keyed, task.groups.clone());
        data.outside = outside;
        if let (StateKind::Whole | StateKind::Keyed, None, Some(accessors)) = (state, &self.checkpoint, &code.accessors)
        {
            let config = *blake3::hash(config.as_bytes()).as_bytes();
            let image = Image::new(accessors, store, &self.handle, config);
            self.image = Some(image.map_err(|error| limits::operator_error(Call::Open.name(), &error, 0, None, ""))?);
        }
        Ok(())
    }

    /// Makes it ready for work.
    pub(super) async fn open(&mut self, config: &str, task: &TaskInfo) -> Result<(), OperatorError> {
        self.begin(Call::Open, None, 0)?;
        call!(self, Call::Open, |store| self.processor.call_open(store, config, bindings::task_param(task)))
    }

    /// Waits until its account may emit more. A call is whole: what it emits is paid for before the next.
    async fn paid(&mut self) {
        if !self.account.is_free() {
            self.account.paid().await;
        }
    }

    fn begin(&mut self, call: Call, now: Option<Timestamp>, rows: usize) -> Result<(), OperatorError> {
        if std::mem::replace(&mut self.in_call, true) {
            self.end("a call was given up before it returned".to_owned());
        }
        let Some(store) = &mut self.store else { return Err(self.has_ended()) };
        if let Err(breach) = store.data().meter.may_stay() {
            self.in_call = false;
            let error = limits::operator_error(call.name(), &breach.into(), 0, None, "");
            self.end(error.to_string());
            return Err(error);
        }
        store.data_mut().begin(call, now, rows);
        store.set_epoch_deadline(1);
        Ok(())
    }

    /// What a call came to. Any error but `Retry` ends the instance.
    fn settle<T>(
        &mut self,
        call: Call,
        result: Result<wasmtime::Result<Result<T, types::Failure>>, Elapsed>,
    ) -> Result<T, OperatorError> {
        self.in_call = false;
        let Some(store) = &mut self.store else { return Err(self.has_ended()) };
        // After a trap there is no other call that would.
        store.data_mut().finish_lines();
        let log = &store.data().log;
        let error = match result {
            Ok(Ok(Ok(value))) => return Ok(value),
            Ok(Ok(Err(failure))) => {
                let message = clean(&failure.message, TEXT_BYTES_MAX);
                match failure.kind {
                    types::FailureKind::Retry => {
                        store.data_mut().said.clear();
                        return Err(OperatorError::Retry(message));
                    }
                    types::FailureKind::Invalid => OperatorError::Invalid(message),
                    types::FailureKind::Fatal => OperatorError::Fatal(message),
                }
            }
            Ok(Err(error)) => {
                let last_error = log.last_error.as_deref();
                limits::operator_error(call.name(), &error, self.output_bytes, last_error, &log.printed)
            }
            Err(Elapsed) => limits::operator_error(call.name(), &store.data().meter.wall().into(), 0, None, ""),
        };
        self.end(error.to_string());
        Err(error)
    }

    /// Saves or restores as an image; `call` is which of the two.
    fn settle_image(
        &mut self,
        call: Call,
        result: Result<Result<(), ImageFault>, Elapsed>,
    ) -> Result<(), OperatorError> {
        let result = match result {
            Ok(Err(ImageFault::Unfit(what))) => {
                self.in_call = false;
                let error = OperatorError::Unfit(what);
                self.end(error.to_string());
                return Err(error);
            }
            Ok(Err(ImageFault::Host(error))) => Ok(Err(error)),
            Ok(Ok(())) => Ok(Ok(Ok(()))),
            Err(elapsed) => Err(elapsed),
        };
        self.settle(call, result)
    }

    /// Notes from now on how long it emits.
    pub(super) fn start_stopwatch(&mut self, clock: Clock) {
        if let Some(store) = &mut self.store {
            store.data_mut().stopwatch = Some(Stopwatch { clock, emitting: Duration::ZERO });
        }
    }

    /// Ends it: another takes its place.
    pub(super) fn retire(&mut self) {
        self.end("another instance took its place".to_owned());
    }

    /// Gives back its memory.
    fn end(&mut self, why: String) {
        self.store = None;
        self.ended.get_or_insert(why);
    }

    #[cold]
    fn has_ended(&self) -> OperatorError {
        let why = self.ended.as_deref().unwrap_or("no reason is known");
        OperatorError::Fatal(format!("this instance has ended and cannot be called again: {why}"))
    }

    /// Breaks off from the host's side.
    fn refuse(&mut self, call: Call, what: String) -> OperatorError {
        let error = OperatorError::Contract { call: call.name(), what };
        self.end(error.to_string());
        error
    }

    /// Whether the call looked at the time that an instance before this one has made.
    pub(super) fn note_looked(&mut self, looked: bool) {
        if let Some(store) = &mut self.store {
            store.data_mut().looked = looked;
        }
    }

    /// What a call said takes effect.
    fn deliver(
        &mut self,
        progress: types::Progress,
        batch: Option<&Batch>,
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        let Some(store) = &mut self.store else { return Err(self.has_ended()) };
        let said = store.data().meter.output_bytes();
        if said > 0 && !self.account.is_free() {
            self.account.emitted(said);
        }
        let said = &mut store.data_mut().said;
        out.more = progress == types::Progress::More;
        out.emitted.append(&mut said.emitted);
        if let Some(at) = said.wake_at.take() {
            out.wake_at = Some(out.wake_at.map_or(at, |earlier| earlier.min(at)));
        }
        let (rows, reasons) = &mut out.rejected;
        for rejected in said.rejected.drain(..) {
            match rejected {
                Rejected::Row(row, reason) => {
                    let Some(batch) = batch else { continue };
                    push_rejected(rows, batch, row);
                    reasons.push(reason);
                }
                Rejected::Batch(batch, reason) => {
                    for row in 0..batch.len() {
                        push_rejected(rows, &batch, row);
                        reasons.push(reason.clone());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Hashes are left out: rows of batches with and without them may meet here.
fn push_rejected(rows: &mut Batch, from: &Batch, row: usize) {
    rows.push_row(from, row);
    rows.hashes.clear();
}

#[async_trait]
impl Operator for Instance {
    async fn process(
        &mut self,
        now: Timestamp,
        port: u32,
        batch: &Batch,
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        self.paid().await;
        self.begin(Call::Process, Some(now), batch.len())?;
        let progress =
            call!(self, Call::Process, |store| self.processor.call_process(store, port, bindings::batch_param(batch)))?;
        self.deliver(progress, Some(batch), out)
    }

    async fn advance(&mut self, now: Timestamp, watermark: Timestamp, out: &mut Output) -> Result<(), OperatorError> {
        self.paid().await;
        self.begin(Call::Advance, Some(now), 0)?;
        let progress = call!(self, Call::Advance, |store| self.processor.call_advance(store, watermark))?;
        self.deliver(progress, None, out)
    }

    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Result<(), OperatorError> {
        self.paid().await;
        self.begin(Call::Wake, Some(now), 0)?;
        let progress = call!(self, Call::Wake, |store| self.processor.call_wake(store))?;
        self.deliver(progress, None, out)
    }

    async fn finish(&mut self, now: Timestamp, port: u32, out: &mut Output) -> Result<(), OperatorError> {
        self.paid().await;
        self.begin(Call::Finish, Some(now), 0)?;
        let progress = call!(self, Call::Finish, |store| self.processor.call_finish(store, port))?;
        self.deliver(progress, None, out)
    }

    async fn resume(&mut self, now: Timestamp, out: &mut Output) -> Result<(), OperatorError> {
        self.paid().await;
        self.begin(Call::Resume, Some(now), 0)?;
        let progress = call!(self, Call::Resume, |store| self.processor.call_resume(store))?;
        self.deliver(progress, None, out)
    }

    async fn snapshot(
        &mut self,
        epoch: Epoch,
        mode: SnapshotMode,
        writer: &mut dyn SnapshotWriter,
    ) -> Result<bool, OperatorError> {
        self.begin(Call::Snapshot, None, 0)?;
        if let (Some(image), Some(store)) = (&mut self.image, &mut self.store) {
            store.data_mut().meter.begin_snapshot();
            let result = {
                let _running = self.engine.running();
                within(&self.account, self.wall, image.snapshot(store, mode, writer)).await
            };
            return self.settle_image(Call::Snapshot, result).map(|()| true);
        }
        if self.checkpoint.is_none() {
            self.in_call = false;
            return if self.state == StateKind::Stateless { Ok(true) } else { Err(no_checkpoint("save")) };
        }
        let begins = self.snapshot.replace(epoch) != Some(epoch);
        if let Some(store) = &mut self.store {
            let state = store.data_mut();
            if begins {
                state.meter.begin_snapshot();
            }
            state.snapshot_mode = mode;
        }
        let result = match (&mut self.store, &self.checkpoint) {
            (Some(store), Some(guest)) => {
                let mut loan = Loan::new(store, writer);
                let _running = self.engine.running();
                let mode = bindings::snapshot_mode(mode);
                within(&self.account, self.wall, guest.call_snapshot(loan.store(), epoch.0, mode)).await
            }
            _ => return Err(self.has_ended()),
        };
        let progress = self.settle(Call::Snapshot, result).inspect_err(|_| self.snapshot = None);
        let done = progress? == types::Progress::Done;
        if done {
            self.snapshot = None;
        }
        Ok(done)
    }

    async fn restore(&mut self, state_version: u32, chunks: Vec<Chunk>) -> Result<(), OperatorError> {
        self.restore_from(state_version, Box::new(chunks.into_iter())).await
    }

    async fn restore_from(
        &mut self,
        state_version: u32,
        mut chunks: Box<dyn SnapshotReader>,
    ) -> Result<(), OperatorError> {
        self.begin(Call::Restore, None, 0)?;
        if let (Some(image), Some(store)) = (&mut self.image, &mut self.store) {
            let all = super::all_chunks(&mut *chunks).await;
            let result = {
                let _running = self.engine.running();
                within(&self.account, self.wall, image.restore(store, &all)).await
            };
            return self.settle_image(Call::Restore, result);
        }
        if self.checkpoint.is_none() {
            self.in_call = false;
            return if chunks.read().await.is_none() { Ok(()) } else { Err(no_checkpoint("restore")) };
        }
        if let Some(store) = &mut self.store {
            let state = store.data_mut();
            (state.reader, state.chunks_given) = (Some(chunks), 0);
        }
        match &self.checkpoint {
            Some(guest) => call!(self, Call::Restore, |store| guest.call_restore(store, state_version))?,
            None => return Err(no_checkpoint("restore")),
        }
        let Some(store) = &mut self.store else { return Err(self.has_ended()) };
        let state = store.data_mut();
        let (given, reader) = (state.chunks_given, state.reader.take());
        let left = match reader {
            Some(mut reader) => reader.read().await,
            None => None,
        };
        if left.is_some() {
            let what = format!("{given} chunks of state were read, and there are more: what they hold would be lost");
            return Err(self.refuse(Call::Restore, what));
        }
        Ok(())
    }

    fn looked_at_time(&self) -> bool {
        self.store.as_ref().is_none_or(|store| store.data().looked)
    }

    fn host_cut(&self) -> HostCut {
        self.store.as_ref().map(|store| store.data().outside.cut).unwrap_or_default()
    }

    fn resume_from(&mut self, cut: HostCut) {
        if let Some(store) = &mut self.store {
            store.data_mut().outside.cut = cut;
        }
    }

    fn set_aside(&mut self, aside: bool) {
        if let Some(store) = &mut self.store {
            store.data_mut().log.is_aside = aside;
        }
    }

    fn go_live(&mut self) {
        if let Some(store) = &mut self.store {
            store.data_mut().outside.is_live = true;
        }
    }

    fn memory_bytes(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.data().meter.memory_bytes())
    }

    fn emitting(&self) -> Duration {
        let watch = self.store.as_ref().and_then(|store| store.data().stopwatch.as_ref());
        watch.map_or(Duration::ZERO, |watch| watch.emitting)
    }
}

fn no_checkpoint(verb: &str) -> OperatorError {
    OperatorError::Invalid(format!("it does not export the interface checkpoint, so it cannot {verb} state"))
}

/// A call took longer than it may.
struct Elapsed;

/// Waits for a call under an account, at most for `limit`; what it waits for a slot does not count. A timer is made
/// only when the call has not returned at its first tick: nearly all have.
async fn within<T>(account: &Account, limit: Duration, call: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut call = pin!(call);
    let mut place = Place::new(Some(account));
    let first = std::future::poll_fn(|context| Poll::Ready(place.poll(context, call.as_mut()))).await;
    if let Poll::Ready(value) = first {
        return Ok(value);
    }
    let (mut left, mut waited) = (limit, Duration::ZERO);
    let before = place.waited();
    loop {
        let goes_on = std::future::poll_fn(|context| place.poll(context, call.as_mut()));
        if let Ok(value) = tokio::time::timeout(left, goes_on).await {
            return Ok(value);
        }
        let more = place.waited().saturating_sub(before).saturating_sub(waited);
        if more.is_zero() {
            return Err(Elapsed);
        }
        (left, waited) = (more, waited + more);
    }
}
