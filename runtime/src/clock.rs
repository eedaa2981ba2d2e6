//! Time: the only file that asks the operating system what time it is.
//!
//! Everything that waits or stamps takes a [`Clock`], so that tests and the simulation decide what time it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::model::Timestamp;

/// Where time comes from.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

/// How long this thread has been on a processor; none where the operating system does not say.
pub(crate) fn thread_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it writes one `timespec`, which is there.
        let known = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } == 0;
        let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
        known.then(|| Duration::new(seconds, nanos))
    }
    #[cfg(not(unix))]
    None
}

#[derive(Clone, Debug)]
enum Kind {
    System {
        start: Instant,
    },
    Manual(Arc<AtomicI64>),
    #[cfg(test)]
    Paused {
        began: Timestamp,
        start: tokio::time::Instant,
    },
}

impl Clock {
    /// The operating system's.
    #[allow(clippy::disallowed_methods)]
    pub fn system() -> Self {
        Self(Kind::System { start: Instant::now() })
    }

    /// One that stands still until it is told to move, for tests.
    pub fn manual(start: Timestamp) -> Self {
        Self(Kind::Manual(Arc::new(AtomicI64::new(start))))
    }

    /// The virtual time of tokio's runtime, which began at `began`, for the simulation.
    #[cfg(test)]
    pub(crate) fn paused(began: Timestamp) -> Self {
        Self(Kind::Paused { began, start: tokio::time::Instant::now() })
    }

    /// Microseconds since the Unix epoch. May jump when the operating system's clock is set.
    #[allow(clippy::disallowed_methods)]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Kind::System { .. } => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
            Kind::Manual(now) => now.load(Ordering::SeqCst),
            #[cfg(test)]
            Kind::Paused { began, start } => began + i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX),
        }
    }

    /// Time since some fixed moment; never goes back. For measuring and for deadlines.
    #[allow(clippy::disallowed_methods)]
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            Kind::System { start } => start.elapsed(),
            Kind::Manual(now) => Duration::from_micros(now.load(Ordering::SeqCst).max(0).cast_unsigned()),
            #[cfg(test)]
            Kind::Paused { start, .. } => start.elapsed(),
        }
    }

    /// Moves a manual clock on; nothing on the system's.
    pub fn advance(&self, by: Duration) {
        if let Kind::Manual(now) = &self.0 {
            now.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }
}
