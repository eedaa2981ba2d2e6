//! The edge between two tasks: one bounded channel for each pair of subtasks, so that order is kept.
//!
//! Bounds are in batches and in bytes; whoever sends to a full channel waits, which is how a slow sink slows the source.
//! Elements without records are small and pass the byte bound. Dropping the receiver ends the sender's task.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::clock::Clock;
use crate::metrics::NodeMetrics;
use crate::model::Element;

/// The receiver is gone: its task has ended, and this one ends too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receiving task has ended")]
pub struct Closed;

/// The sending end.
#[derive(Debug)]
pub struct Sender {
    elements: mpsc::Sender<(Element, Option<OwnedSemaphorePermit>)>,
    budget: Arc<Semaphore>,
    bytes_max: u32,
    /// Where it is noted how long it waits for room.
    waits: Option<(Arc<NodeMetrics>, Clock)>,
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver {
    elements: mpsc::Receiver<(Element, Option<OwnedSemaphorePermit>)>,
}

/// A channel that holds at most `batches` elements and `bytes` bytes of records. A batch larger than that
/// passes alone.
pub fn channel(batches: usize, bytes: usize) -> (Sender, Receiver) {
    let (sender, receiver) = mpsc::channel(batches.max(1));
    let bytes_max = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
    let budget = Arc::new(Semaphore::new(bytes_max as usize));
    (Sender { elements: sender, budget, bytes_max, waits: None }, Receiver { elements: receiver })
}

impl Sender {
    /// The same, of a node: how long it waits for room counts as its backpressure.
    #[must_use]
    pub fn of_node(self, metrics: Arc<NodeMetrics>, clock: Clock) -> Self {
        Self { waits: Some((metrics, clock)), ..self }
    }

    /// Sends, and waits for room.
    ///
    /// # Errors
    ///
    /// If the receiver is gone.
    pub async fn send(&self, element: Element) -> Result<(), Closed> {
        let mut sending = std::pin::pin!(self.send_when_there_is_room(element));
        // Where there is room, nobody looks at the clock.
        if let Poll::Ready(sent) = futures::poll!(sending.as_mut()) {
            return sent;
        }
        let Some((metrics, clock)) = &self.waits else { return sending.await };
        let began = clock.elapsed();
        let sent = sending.await;
        let waited = clock.elapsed().saturating_sub(began).as_micros();
        NodeMetrics::add(&metrics.waited_micros, u64::try_from(waited).unwrap_or(u64::MAX));
        sent
    }

    async fn send_when_there_is_room(&self, element: Element) -> Result<(), Closed> {
        let permit = match &element {
            Element::Batch(batch) => {
                let bytes = u32::try_from(batch.byte_len()).unwrap_or(u32::MAX).min(self.bytes_max);
                Some(Arc::clone(&self.budget).acquire_many_owned(bytes).await.map_err(|_| Closed)?)
            }
            _ => None,
        };
        self.elements.send((element, permit)).await.map_err(|_| Closed)
    }
}

impl Receiver {
    /// The next element; none when the sender is gone.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Element>> {
        self.elements.poll_recv(context).map(|received| received.map(|(element, _permit)| element))
    }
}

impl Drop for Receiver {
    /// Wakes a sender that waits for room: it finds the channel closed.
    fn drop(&mut self) {
        self.elements.close();
        while self.elements.try_recv().is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures::FutureExt;

    use super::*;
    use crate::model::Batch;

    fn batch(bytes: usize) -> Element {
        let mut batch = Batch::default();
        batch.push(0, None, Some(&vec![7; bytes]));
        Element::Batch(batch)
    }

    #[tokio::test]
    async fn a_sender_waits_for_bytes_and_a_batch_larger_than_the_bound_passes_alone() {
        let (sender, mut receiver) = channel(8, 1000);
        sender.send(batch(5000)).await.unwrap();
        assert!(sender.send(batch(1)).now_or_never().is_none(), "no room");
        sender.send(Element::Idle).await.unwrap();
        assert!(poll_fn(|cx| receiver.poll_recv(cx)).await.is_some());
        assert!(sender.send(batch(1)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_waiting_sender_learns_that_its_receiver_is_gone() {
        let (sender, receiver) = channel(8, 100);
        sender.send(batch(100)).await.unwrap();
        let mut waiting = Box::pin(sender.send(batch(100)));
        assert!((&mut waiting).now_or_never().is_none());
        drop(receiver);
        assert_eq!(waiting.await, Err(Closed));
    }
}
