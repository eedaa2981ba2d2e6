//! What all snapshots of a process may keep in memory on their way to the store, and how many uploads run at once.
//!
//! A step of a snapshot is paid for before it is taken: when nothing is left, steps wait, and the stream goes on. What a step has copied
//! is given back when it is in the store, was dropped, or turned out to be there already. The first step of a cut cannot wait: it goes
//! beyond the limit if it has to, one step for each subtask at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};

use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};

/// The limits that all subtasks share.
#[derive(Debug)]
pub struct UploadBudget {
    bytes_max: u64,
    used: AtomicU64,
    freed: Notify,
    /// Counts how often somebody found nothing left.
    pressure: watch::Sender<u64>,
    uploads: Semaphore,
}

impl UploadBudget {
    /// So many bytes in memory, so many uploads at once.
    pub fn new(bytes_max: u64, uploads: u32) -> Self {
        Self {
            bytes_max,
            used: AtomicU64::new(0),
            freed: Notify::new(),
            pressure: watch::Sender::new(0),
            uploads: Semaphore::new(uploads.max(1) as usize),
        }
    }

    /// How many bytes are on their way.
    pub fn used(&self) -> u64 {
        self.used.load(Acquire)
    }

    /// Waits for one's turn to upload.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.uploads.acquire().await.ok()
    }

    /// Changes whenever somebody found nothing left: who holds a part of a pack then had better send it on its way.
    pub(super) fn pressure(&self) -> watch::Receiver<u64> {
        self.pressure.subscribe()
    }

    /// Takes so many bytes, if they are left. When nothing is in use, that is enough for anything: nobody would ever give it more.
    pub(super) fn try_reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let take = |used: u64| (used == 0 || used.saturating_add(bytes) <= self.bytes_max).then(|| used + bytes);
        if self.used.fetch_update(AcqRel, Acquire, take).is_err() {
            self.pressure.send_modify(|times| *times = times.wrapping_add(1));
            return None;
        }
        Some(Reservation { budget: Arc::clone(self), bytes })
    }

    /// Takes so many bytes, whatever is left.
    pub(super) fn overdraw(self: &Arc<Self>, bytes: u64) -> Reservation {
        self.used.fetch_add(bytes, AcqRel);
        Reservation { budget: Arc::clone(self), bytes }
    }

    /// Waits until so many bytes can be taken.
    pub(super) async fn reserve(self: &Arc<Self>, bytes: u64) -> Reservation {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on nothing that is given back is missed.
            freed.as_mut().enable();
            if let Some(reservation) = self.try_reserve(bytes) {
                return reservation;
            }
            freed.await;
        }
    }
}

/// Bytes that are in memory. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<UploadBudget>,
    bytes: u64,
}

impl Reservation {
    /// Makes it stand for so many bytes, more or fewer than before.
    pub(super) fn resize(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.budget.used.fetch_add(bytes - self.bytes, AcqRel);
        } else if bytes < self.bytes {
            self.budget.used.fetch_sub(self.bytes - bytes, AcqRel);
            self.budget.freed.notify_waiters();
        }
        self.bytes = bytes;
    }

    /// Takes the bytes of another over.
    pub(super) fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Takes so many of its bytes out, or all it has.
    pub(super) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: Arc::clone(&self.budget), bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn what_is_reserved_stays_within_the_limit_and_comes_back() {
        let budget = Arc::new(UploadBudget::new(100, 2));
        let mut one = budget.try_reserve(60).unwrap();
        assert!(budget.try_reserve(41).is_none());
        let two = budget.try_reserve(40).unwrap();
        one.resize(10);
        assert_eq!(budget.used(), 50);
        one.join(two);
        let part = one.split(30);
        assert_eq!(budget.used(), 50);
        drop(one);
        assert_eq!(budget.used(), 30);
        drop(part);
        assert_eq!(budget.used(), 0);
        // More than the limit, when nothing else is on its way.
        let large = budget.try_reserve(1000).unwrap();
        assert!(budget.try_reserve(1).is_none());
        let over = budget.overdraw(5);
        drop((large, over));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn whoever_waits_goes_on_when_enough_is_given_back() {
        let budget = Arc::new(UploadBudget::new(100, 2));
        let mut one = budget.try_reserve(100).unwrap();
        let mut waiting = Box::pin(budget.reserve(50));
        assert!((&mut waiting).now_or_never().is_none());
        one.resize(60);
        assert!((&mut waiting).now_or_never().is_none());
        one.resize(50);
        assert!((&mut waiting).now_or_never().is_some());
    }
}
