//! So much a second: what was taken too much is waited for.
//!
//! A bucket that fills at a rate, holds what flows in during one second, and may go below zero: a call's output is
//! known when the call is over, and is not cut in two.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rate(Mutex<Option<Bucket>>);

#[derive(Clone, Copy, Debug)]
struct Bucket {
    per_second: f64,
    left: f64,
    filled_at: Duration,
}

impl Bucket {
    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled_at).as_secs_f64();
        self.filled_at = self.filled_at.max(now);
        self.left = (self.left + passed * self.per_second).min(self.per_second);
    }

    fn wait(&self) -> Duration {
        if self.left >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.left / self.per_second).unwrap_or(Duration::MAX)
    }
}

impl Rate {
    /// Sets the rate; none for no limit. What is owed stays owed.
    pub(crate) fn set(&self, per_second: Option<u64>, now: Duration) {
        let mut bucket = self.lock();
        *bucket = per_second.map(|per_second| {
            let per_second = per_second.max(1) as f64;
            match *bucket {
                Some(mut old) => {
                    old.fill(now);
                    Bucket { per_second, left: old.left.min(per_second), ..old }
                }
                None => Bucket { per_second, left: per_second, filled_at: now },
            }
        });
    }

    /// Takes `n`, whatever is left.
    pub(crate) fn take(&self, n: u64, now: Duration) {
        if let Some(bucket) = &mut *self.lock() {
            bucket.fill(now);
            bucket.left -= n as f64;
        }
    }

    /// Takes `n`. Says how long to wait for what was taken before: whoever waits as long as it is told comes in its
    /// order.
    pub(crate) fn reserve(&self, n: u64, now: Duration) -> Duration {
        let mut bucket = self.lock();
        let Some(bucket) = &mut *bucket else { return Duration::ZERO };
        bucket.fill(now);
        let wait = bucket.wait();
        bucket.left -= n as f64;
        wait
    }

    /// Takes one if it is there.
    pub(crate) fn try_take(&self, now: Duration) -> bool {
        let Some(bucket) = &mut *self.lock() else { return true };
        bucket.fill(now);
        let is_there = bucket.left >= 1.0;
        if is_there {
            bucket.left -= 1.0;
        }
        is_there
    }

    /// How long until nothing is owed.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        let Some(bucket) = &mut *self.lock() else { return Duration::ZERO };
        bucket.fill(now);
        bucket.wait()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Bucket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_was_taken_too_much_is_waited_for() {
        let rate = Rate::default();
        rate.take(1_000, SECOND);
        assert_eq!(rate.wait(SECOND), Duration::ZERO, "without a limit nothing is");
        rate.set(Some(100), SECOND);
        rate.take(100, SECOND);
        assert_eq!(rate.wait(SECOND), Duration::ZERO);
        rate.take(250, SECOND);
        assert_eq!(rate.wait(SECOND), Duration::from_millis(2_500));
        assert_eq!(rate.wait(SECOND * 3), Duration::from_millis(500));
        rate.set(Some(50), SECOND * 3);
        assert_eq!(rate.wait(SECOND * 3), SECOND);
        // What was not used is not saved up beyond a second.
        assert_eq!(rate.wait(SECOND * 100), Duration::ZERO);
        rate.take(100, SECOND * 100);
        assert_eq!(rate.wait(SECOND * 100), SECOND);
    }

    #[test]
    fn one_by_one_as_many_as_there_are() {
        let rate = Rate::default();
        rate.set(Some(3), SECOND);
        let taken = (0..10).filter(|_| rate.try_take(SECOND)).count();
        assert_eq!(taken, 3);
        assert!(rate.try_take(SECOND * 2));
    }
}
