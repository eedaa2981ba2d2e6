//! The task of a chain whose head reads channels: takes the next element of whatever input may be read, and hands it
//! to the chain. It ends with the last barrier.

use std::future::poll_fn;
use std::task::{Context, Poll};

use futures::FutureExt;

use super::TaskError;
use super::channel::Receiver;
use super::schedule::{Op, Segment};
use super::source::micros_until;
use super::stage::{Chain, next_before};
use crate::account;
use crate::model::Element;

/// A chain that reads channels.
pub(super) struct InboxTask {
    chain: Chain,
    /// Input `i` of the inbox of stage 0.
    receivers: Vec<Receiver>,
    /// Where the next look begins, so that no input starves another.
    turn: usize,
}

impl InboxTask {
    pub(super) fn new(mut chain: Chain, receivers: Vec<Receiver>) -> Self {
        chain.begin_segment(0);
        Self { chain, receivers, turn: 0 }
    }

    /// Works until the last barrier, or until something fails.
    pub(super) async fn run(mut self) -> Result<(), TaskError> {
        loop {
            account::breathe().await;
            // Between two elements, and back to back when there are none.
            self.chain.snapshot_step().await?;
            let ready = poll_fn(|cx| self.poll_next(cx)).now_or_never();
            let next = match ready {
                Some(next) => Some(next),
                None => {
                    // Nothing is waiting: nobody gains by holding records back.
                    self.chain.flush(None).await?;
                    self.wait().await
                }
            };
            let Some(next) = next else {
                self.chain.wake().await?;
                continue;
            };
            let (input, element) = next?;
            let last = matches!(&element, Element::Barrier(barrier) if barrier.last);
            self.chain.stages[0].course.note(&Op::Take(input as u64));
            self.chain.accept(0, input, element).await?;
            if last && self.chain.stages[0].inbox.is_aligned() {
                return self.chain.settle().await;
            }
            let context = &self.chain.context;
            if let Some(before) = context.clock.elapsed().checked_sub(context.batch.delay) {
                self.chain.flush(Some(before)).await?;
            }
            if self.chain.wake_at().is_some() {
                self.chain.wake().await?;
            }
        }
    }

    /// Does again what is recorded, up to the last cut of it.
    ///
    /// If that cannot be done, what still comes is taken and dropped: whoever sends it has a schedule of its own to get to the
    /// end of, so that it is known who was the first to do something else.
    pub(super) async fn replay(mut self, segments: Vec<Segment>) -> Result<(), TaskError> {
        let followed = self.follow(segments).await;
        if followed.is_err() {
            let Self { chain, mut receivers, .. } = self;
            // Whoever reads this task gets nothing more.
            drop(chain);
            poll_fn(|cx| {
                receivers.retain_mut(|receiver| {
                    loop {
                        match receiver.poll_recv(cx) {
                            Poll::Ready(Some(_)) => {}
                            Poll::Ready(None) => return false,
                            Poll::Pending => return true,
                        }
                    }
                });
                if receivers.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        followed
    }

    async fn follow(&mut self, segments: Vec<Segment>) -> Result<(), TaskError> {
        for (number, segment) in segments.into_iter().enumerate() {
            self.chain.set_turns(&segment.turns);
            for op in segment.ops() {
                match op.map_err(|reason| self.chain.diverged(reason))? {
                    Op::Take(input) => self.take_again(input).await?,
                    op => self.chain.repeat(op).await?,
                }
                if self.chain.stages[0].course.cuts() > number + 1 {
                    return Err(self.chain.diverged("it took more cuts than it had taken".into()));
                }
            }
            if self.chain.stages[0].course.cuts() != number + 1 {
                let epoch = segment.epoch;
                return Err(self
                    .chain
                    .diverged(format!("something else came to it before barrier {epoch} than had come")));
            }
        }
        self.chain.settle().await
    }

    async fn take_again(&mut self, input: u64) -> Result<(), TaskError> {
        let place = usize::try_from(input).ok().filter(|&input| input < self.receivers.len());
        let Some(input) = place else {
            let inputs = self.receivers.len();
            return Err(self.chain.diverged(format!("its schedule reads input {input}, and it has {inputs}")));
        };
        if !self.chain.stages[0].inbox.readable(input) {
            let name = &self.chain.stages[0].input_names[input];
            return Err(self.chain.diverged(format!("input {name} is held for a barrier where it had not been")));
        }
        let received = poll_fn(|cx| self.receivers[input].poll_recv(cx)).await;
        let Some(element) = received else {
            let name = &self.chain.stages[0].input_names[input];
            return Err(self.chain.diverged(format!("input {name} ended where more had come")));
        };
        self.chain.stages[0].course.note(&Op::Take(input as u64));
        self.chain.accept(0, input, element).await
    }

    /// The next element, or nothing if an operator is to be woken first or a snapshot can go on.
    async fn wait(&mut self) -> Option<Result<(usize, Element), TaskError>> {
        let pause = self.chain.wake_at().map(|at| micros_until(at, self.chain.context.clock.now()));
        let (is_writing, room) = (self.chain.is_writing(), self.chain.room());
        next_before(is_writing, room, pause, poll_fn(|cx| self.poll_next(cx))).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<(usize, Element), TaskError>> {
        let inputs = self.receivers.len();
        let inbox = &self.chain.stages[0].inbox;
        for offset in 0..inputs {
            let input = (self.turn + offset) % inputs;
            if !inbox.readable(input) {
                continue;
            }
            match self.receivers[input].poll_recv(context) {
                Poll::Pending => {}
                Poll::Ready(None) => return Poll::Ready(Err(TaskError::Closed)),
                Poll::Ready(Some(element)) => {
                    self.turn = input + 1;
                    return Poll::Ready(Ok((input, element)));
                }
            }
        }
        Poll::Pending
    }
}
