//! A chain of stages: an operator or a sink, what it reads and what reads it, all in one task.
//!
//! A batch goes from guest to guest without a channel while edges are chained; at the other edges it is handed to an
//! [`Exchange`]. A chain is entered by its head (a source or an inbox); every element walks down depth first, so that
//! what a stage emitted reaches its readers before the stage sees the next element (I3: a barrier is such an element).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::TaskError;
use super::context::{FlowContext, Seen};
use super::dead_letter::dead_letters;
use super::exchange::{Exchange, Keying};
use super::inbox::{Action, Inbox, InboxState, Incoming};
use super::operator::OperatorStage;
use super::schedule::{Course, Op};
use super::sink::SinkStage;
use super::snapshot::room;
use crate::account;
use crate::metrics::NodeMetrics;
use crate::model::{Barrier, Batch, END_OF_TIME, Element, TaskId, Timestamp};
use crate::plan::{OnError, OutPort};
use crate::plugin::{HostCut, Operator, OperatorError, Output};

/// Where an output port leads.
#[derive(Debug)]
pub(super) struct OutputEdge {
    pub(super) port: OutPort,
    pub(super) keying: Keying,
    pub(super) target: Target,
}

/// Who reads an edge.
#[derive(Debug)]
pub(super) enum Target {
    /// A later stage of the same chain.
    Stage(usize),
    /// Another task.
    Exchange(Exchange),
}

/// What a stage does.
pub(super) enum Body {
    /// Head of a chain; the source task does the work.
    Source,
    /// Calls an operator.
    Operator(Box<OperatorStage>),
    /// Writes to a sink.
    Sink(Box<SinkStage>),
}

/// One subtask of one node.
pub(super) struct Stage {
    pub(super) task: TaskId,
    pub(super) inbox: Inbox,
    pub(super) input_names: Vec<String>,
    pub(super) body: Body,
    pub(super) outputs: Vec<OutputEdge>,
    pub(super) metrics: Arc<NodeMetrics>,
    /// What is done about records that it puts aside.
    pub(super) on_reject: OnError,
    /// How it works, for the manifest; that of the head has the order of the whole task.
    pub(super) course: Course,
    /// When the first barrier came of those that are being aligned.
    pub(super) aligning_since: Option<Duration>,
}

/// What a stage has to say at its cut.
pub(super) struct Cutting<'a> {
    pub(super) input_names: &'a [String],
    pub(super) inbox: InboxState,
    /// How long the barriers took to come on all inputs.
    pub(super) align: Duration,
    pub(super) course: &'a mut Course,
}

/// The stages of one task. Stage 0 is the head; a stage's readers come after it.
pub(super) struct Chain {
    pub(super) stages: Vec<Stage>,
    pub(super) context: Arc<FlowContext>,
}

type Walk<'a> = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send + 'a>>;

impl Chain {
    /// An element came in on an input of a stage.
    pub(super) fn accept(&mut self, stage: usize, input: usize, element: Element) -> Walk<'_> {
        Box::pin(async move {
            let (incoming, mut batch) = match element {
                Element::Batch(batch) => (Incoming::Batch, Some(batch)),
                Element::Watermark(time) => (Incoming::Watermark(time), None),
                Element::Barrier(barrier) => (Incoming::Barrier(barrier), None),
                Element::Idle => (Incoming::Idle, None),
                Element::End => (Incoming::End, None),
            };
            let mut actions = Vec::new();
            let now = matches!(incoming, Incoming::Barrier(_)).then(|| self.context.clock.elapsed());
            let this = &mut self.stages[stage];
            this.aligning_since = this.aligning_since.or(now);
            this.inbox.accept(input, incoming, &mut actions).map_err(|fault| TaskError::inbox(&this.task, fault))?;
            for action in actions {
                self.act(stage, action, batch.take()).await?;
            }
            Ok(())
        })
    }

    async fn act(&mut self, stage: usize, action: Action, batch: Option<Batch>) -> Result<(), TaskError> {
        match action {
            Action::Pass(port) => {
                let Some(batch) = batch else { return Ok(()) };
                self.pass(stage, port, &batch).await
            }
            Action::Advance(time) => {
                self.stages[stage].metrics.advance(time);
                self.call(stage, OperatorCall::Advance(time)).await?;
                // The end of time is told by `End`, after every port has finished.
                if time < END_OF_TIME { self.control(stage, Element::Watermark(time)).await } else { Ok(()) }
            }
            Action::Finish(port) => self.call(stage, OperatorCall::Finish(port)).await,
            Action::Idle => self.control(stage, Element::Idle).await,
            Action::End => {
                // After its end a stage says nothing more, so there is nothing to wake it for.
                if let Body::Operator(operator) = &mut self.stages[stage].body {
                    operator.forget_wake();
                }
                self.control(stage, Element::End).await
            }
            Action::Cut(barrier) => self.cut(stage, barrier).await,
        }
    }

    async fn pass(&mut self, stage: usize, port: u32, batch: &Batch) -> Result<(), TaskError> {
        let this = &mut self.stages[stage];
        NodeMetrics::add(&this.metrics.records_in, batch.len() as u64);
        NodeMetrics::add(&this.metrics.bytes_in, batch.byte_len() as u64);
        match &mut this.body {
            Body::Sink(sink) => {
                if let Some(tap) = &self.context.tap {
                    tap.note(&this.task, Seen::Received(port, batch));
                }
                sink.write(&this.task, batch).await
            }
            _ => self.call(stage, OperatorCall::Process(port, batch)).await,
        }
    }

    /// Calls a stage's operator, hands on what it says, and resumes it until it has nothing more to say. A stage without
    /// operator has nothing to say.
    async fn call(&mut self, stage: usize, call: OperatorCall<'_>) -> Result<(), TaskError> {
        let this = &mut self.stages[stage];
        let Body::Operator(operator) = &mut this.body else { return Ok(()) };
        let mut out = operator.call(&this.task, &this.metrics, &self.context, &mut this.course, call).await?;
        loop {
            let more = out.more;
            self.hand_on(stage, &mut out).await?;
            let this = &mut self.stages[stage];
            let Body::Operator(operator) = &mut this.body else { return Ok(()) };
            operator.give_back(out);
            if !more {
                return Ok(());
            }
            let call = OperatorCall::Resume;
            out = operator.call(&this.task, &this.metrics, &self.context, &mut this.course, call).await?;
        }
    }

    async fn hand_on(&mut self, stage: usize, out: &mut Output) -> Result<(), TaskError> {
        for (port, batch) in out.emitted.drain(..) {
            NodeMetrics::add(&self.stages[stage].metrics.records_out, batch.len() as u64);
            self.emit(stage, OutPort::Data(port), batch).await?;
        }
        let (records, reasons) = &out.rejected;
        if !records.is_empty() {
            let letters = dead_letters(&self.stages[stage].task, records, reasons);
            self.reject(stage, letters, reasons.first().map_or("", String::as_str)).await?;
        }
        Ok(())
    }

    /// Puts records aside, as the node's settings say. `letters` are dead letters already.
    pub(super) async fn reject(&mut self, stage: usize, letters: Batch, reason: &str) -> Result<(), TaskError> {
        let this = &self.stages[stage];
        let count = letters.len() as u64;
        match this.on_reject {
            OnError::Fail => Err(TaskError::rejected(&this.task, count, reason)),
            OnError::Skip => {
                NodeMetrics::add(&this.metrics.skipped, count);
                Ok(())
            }
            OnError::DeadLetter => {
                NodeMetrics::add(&this.metrics.rejected, count);
                self.emit(stage, OutPort::Rejected, letters).await
            }
        }
    }

    /// Hands records to every reader of an output port.
    pub(super) async fn emit(&mut self, stage: usize, port: OutPort, batch: Batch) -> Result<(), TaskError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.stages[stage].course.emitted(port, &batch);
        let mut batch = Some(batch);
        let edges = self.stages[stage].outputs.len();
        let last = self.stages[stage].outputs.iter().rposition(|edge| edge.port == port);
        for index in 0..edges {
            let this = &mut self.stages[stage];
            let edge = &mut this.outputs[index];
            if edge.port != port {
                continue;
            }
            let taken = if Some(index) == last { batch.take() } else { batch.clone() };
            let Some(mut records) = taken else { continue };
            if !edge.keying.is_identity() {
                let skipped = edge.keying.apply(&mut records).map_err(|e| TaskError::key(&this.task, e))?;
                NodeMetrics::add(&this.metrics.skipped, skipped);
                if records.is_empty() {
                    continue;
                }
            }
            match &mut edge.target {
                Target::Exchange(exchange) => exchange.send_batch(records, self.context.clock.elapsed()).await?,
                Target::Stage(next) => {
                    let next = *next;
                    self.accept(next, 0, Element::Batch(records)).await?;
                }
            }
        }
        Ok(())
    }

    /// Sends an element that is not records to every reader of a stage.
    pub(super) async fn control(&mut self, stage: usize, element: Element) -> Result<(), TaskError> {
        for index in 0..self.stages[stage].outputs.len() {
            match &mut self.stages[stage].outputs[index].target {
                Target::Exchange(exchange) => exchange.send_control(&element).await?,
                Target::Stage(next) => {
                    let next = *next;
                    self.accept(next, 0, element.clone()).await?;
                }
            }
        }
        Ok(())
    }

    /// Takes a stage's cut, or begins to, then sends the barrier on.
    async fn cut(&mut self, stage: usize, barrier: Barrier) -> Result<(), TaskError> {
        let came = self.context.clock.elapsed();
        let this = &mut self.stages[stage];
        let inbox = this.inbox.state();
        let since = this.aligning_since.take();
        let align = since.map_or(Duration::ZERO, |since| came.saturating_sub(since));
        let cutting = Cutting { input_names: &this.input_names, inbox, align, course: &mut this.course };
        match &mut this.body {
            Body::Operator(operator) => operator.cut(&this.task, barrier, cutting, &self.context).await?,
            Body::Sink(sink) => sink.cut(&this.task, barrier, cutting, &self.context).await?,
            Body::Source => {}
        }
        self.control(stage, Element::Barrier(barrier)).await?;
        // Who reads the stage has the barrier already, and does not wait for the swap.
        let this = &mut self.stages[stage];
        if let Body::Operator(operator) = &mut this.body {
            operator.swap_at(&this.task, &this.metrics, barrier.epoch).await?;
        }
        let held = self.context.clock.elapsed().saturating_sub(came);
        self.stages[stage].metrics.barrier_held.note(held);
        self.begin_segment(stage);
        Ok(())
    }

    /// Notes with what the segment of a schedule begins that follows a cut of the head.
    pub(super) fn begin_segment(&mut self, stage: usize) {
        if stage == 0 {
            let turns = self.exchanges().filter_map(|exchange| exchange.turn()).collect();
            self.stages[0].course.begin(turns);
        }
    }

    /// Every exchange of the task, by the number that its schedule gives it.
    pub(super) fn exchanges(&mut self) -> impl Iterator<Item = &mut Exchange> {
        self.stages.iter_mut().flat_map(|stage| &mut stage.outputs).filter_map(|edge| match &mut edge.target {
            Target::Exchange(exchange) => Some(exchange),
            Target::Stage(_) => None,
        })
    }

    /// Calls the operators whose time has come.
    pub(super) async fn wake(&mut self) -> Result<(), TaskError> {
        let now = self.context.clock.now();
        for stage in 0..self.stages.len() {
            let Body::Operator(operator) = &mut self.stages[stage].body else { continue };
            if operator.take_due(now) {
                self.wake_one(stage).await?;
            }
        }
        Ok(())
    }

    /// Calls the operator of a stage because of the time.
    pub(super) async fn wake_one(&mut self, stage: usize) -> Result<(), TaskError> {
        self.stages[0].course.note(&Op::Wake(stage as u32));
        self.context.note_activity(1);
        self.call(stage, OperatorCall::Wake).await?;
        // What it said is no sign that more comes from its inputs.
        if self.stages[stage].inbox.is_idle() {
            self.control(stage, Element::Idle).await?;
        }
        Ok(())
    }

    /// Does one thing again that does not concern the head's input.
    pub(super) async fn repeat(&mut self, op: Op) -> Result<(), TaskError> {
        match op {
            Op::Flush(number) => {
                let Some(exchange) = self.exchanges().nth(number as usize) else {
                    return Err(self.diverged(format!("its schedule names exchange {number}, which it has not")));
                };
                exchange.flush().await?;
                self.stages[0].course.note(&op);
                Ok(())
            }
            Op::Wake(number) => {
                let stage = number as usize;
                let asked = match self.stages.get_mut(stage).map(|stage| &mut stage.body) {
                    Some(Body::Operator(operator)) => operator.take_wake(),
                    _ => false,
                };
                if asked {
                    return self.wake_one(stage).await;
                }
                Err(self.diverged(format!("stage {number} of it was woken, and did not ask for it now")))
            }
            // A snapshot that was being written when the epoch began belongs to the checkpoint before.
            Op::Step(_) => Ok(()),
            op => Err(self.diverged(format!("its schedule says {op:?}, which it cannot do"))),
        }
    }

    /// Lets every rebalance exchange go on as it did.
    pub(super) fn set_turns(&mut self, turns: &[u32]) {
        let mut left = turns.iter();
        for exchange in self.exchanges().filter(|exchange| exchange.turn().is_some()) {
            if let Some(turn) = left.next() {
                exchange.set_turn(*turn);
            }
        }
        self.begin_segment(0);
    }

    /// The task cannot do what its schedule says.
    pub(super) fn diverged(&self, reason: String) -> TaskError {
        TaskError::Diverged { task: self.stages[0].task.clone(), reason }
    }

    /// The earliest processing time at which an operator asked to be woken.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.stages
            .iter()
            .filter_map(|stage| match &stage.body {
                Body::Operator(operator) => operator.wake_at(),
                _ => None,
            })
            .min()
    }

    /// Sends what the exchanges hold back, if it has waited long enough: since before `before`, or at all without it.
    pub(super) async fn flush(&mut self, before: Option<Duration>) -> Result<(), TaskError> {
        let mut number = 0;
        for stage in 0..self.stages.len() {
            for edge in 0..self.stages[stage].outputs.len() {
                let Target::Exchange(exchange) = &mut self.stages[stage].outputs[edge].target else { continue };
                if exchange.buffered_since().is_some_and(|since| before.is_none_or(|before| since <= before)) {
                    exchange.flush().await?;
                    self.stages[0].course.note(&Op::Flush(number));
                }
                number += 1;
            }
        }
        Ok(())
    }

    /// Writes one step of each snapshot that is open and for which there is room. It comes between two elements, never between `more` and
    /// `resume`.
    pub(super) async fn snapshot_step(&mut self) -> Result<(), TaskError> {
        for number in 0..self.stages.len() {
            let stage = &mut self.stages[number];
            if let Body::Operator(operator) = &mut stage.body
                && operator.is_writing()
                && operator.snapshot_step(&stage.task).await?
            {
                self.stages[0].course.note(&Op::Step(number as u32));
            }
        }
        Ok(())
    }

    /// Whether a snapshot of a stage is open.
    pub(super) fn is_writing(&self) -> bool {
        self.stages.iter().any(|stage| matches!(&stage.body, Body::Operator(operator) if operator.is_writing()))
    }

    /// Waits until there is room for a step of a snapshot that is open; for ever if none is.
    pub(super) fn room(&self) -> impl Future<Output = ()> + Send + use<> {
        let budget = self.is_writing().then(|| Arc::clone(&self.context.uploads));
        async move {
            match budget {
                Some(budget) => room(budget).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until everything that the cuts wrote is durable or has failed: before a task ends.
    pub(super) async fn settle(&mut self) -> Result<(), TaskError> {
        for stage in &mut self.stages {
            if let Body::Operator(operator) = &mut stage.body {
                operator.settle(&stage.task).await?;
            }
        }
        Ok(())
    }
}

/// What comes next; nothing if the pause is over before, or if there is [`Chain::room`] for a snapshot that is being written.
pub(super) async fn next_before<T>(
    is_writing: bool,
    room: impl Future<Output = ()>,
    pause: Option<Duration>,
    next: impl Future<Output = T>,
) -> Option<T> {
    if is_writing {
        // Others have work to do, too.
        account::yield_now().await;
    }
    tokio::select! {
        biased;
        next = next => Some(next),
        () = room, if is_writing => None,
        () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => None,
    }
}

/// Which export is called.
#[derive(Clone, Copy, Debug)]
pub enum OperatorCall<'a> {
    /// A batch on an input port.
    Process(u32, &'a Batch),
    /// Event time has come to this.
    Advance(Timestamp),
    /// Processing time has come to what it asked for.
    Wake,
    /// An input port has ended.
    Finish(u32),
    /// It said `more`.
    Resume,
}

impl OperatorCall<'_> {
    /// Makes the call.
    pub(super) async fn make(
        self,
        operator: &mut dyn Operator,
        now: Timestamp,
        out: &mut Output,
    ) -> Result<(), OperatorError> {
        match self {
            Self::Process(port, batch) => operator.process(now, port, batch, out).await,
            Self::Advance(watermark) => operator.advance(now, watermark, out).await,
            Self::Wake => operator.wake(now, out).await,
            Self::Finish(port) => operator.finish(now, port, out).await,
            Self::Resume => operator.resume(now, out).await,
        }
    }
}

/// What a stage's inbox and timers add to a manifest.
pub(super) fn progress(names: &[String], state: InboxState, wake_at: Option<Timestamp>, host: HostCut) -> Vec<u8> {
    super::report::Progress::Inbox { inputs: names.to_vec(), state, wake_at, host }.encode()
}
