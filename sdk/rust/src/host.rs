//! The functions that the host offers. In a component they are the imports; anywhere else they go to whoever plays the host
//! ([`crate::native`]), so that an operator runs unchanged in `cargo test`.

#[cfg(target_arch = "wasm32")]
mod imports {
    use crate::batch::BatchView;
    pub(crate) use crate::bindings::log::{enabled as log_enabled, write as log_write};
    pub(crate) use crate::bindings::metrics::{count, gauge, observe};
    use crate::bindings::output;
    pub(crate) use crate::bindings::output::reject;
    pub(crate) use crate::bindings::snapshots::{read as snapshot_read, write as snapshot_write};
    pub(crate) use crate::bindings::timers::{now, wake_at};

    #[inline]
    pub(crate) fn emit(port: u32, batch: BatchView<'_>) {
        output::emit(port, batch.into());
    }

    pub(crate) fn reject_batch(batch: BatchView<'_>, reason: &str) {
        output::reject_batch(batch.into(), reason);
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod imports {
    use crate::batch::BatchView;
    use crate::bindings::log::Level;
    use crate::bindings::snapshots::{Chunk, Segment};
    use crate::native::{has_host, with_host};

    #[inline]
    pub(crate) fn emit(port: u32, batch: BatchView<'_>) {
        with_host("output.emit", |host| host.emit(port, batch));
    }

    pub(crate) fn reject(index: u32, reason: &str) {
        with_host("output.reject", |host| host.reject(index, reason));
    }

    pub(crate) fn reject_batch(batch: BatchView<'_>, reason: &str) {
        with_host("output.reject-batch", |host| host.reject_batch(batch, reason));
    }

    /// Logging is allowed everywhere; without a host it goes to standard error.
    pub(crate) fn log_write(level: Level, message: &str) {
        if has_host() {
            with_host("log.write", |host| host.log(level, message));
        } else {
            eprintln!("{level:?}: {message}");
        }
    }

    pub(crate) fn log_enabled(level: Level) -> bool {
        !has_host() || with_host("log.enabled", |host| host.log_enabled(level))
    }

    pub(crate) fn count(name: &str, delta: u64) {
        with_host("metrics.count", |host| host.count(name, delta));
    }

    pub(crate) fn gauge(name: &str, value: f64) {
        with_host("metrics.gauge", |host| host.gauge(name, value));
    }

    pub(crate) fn observe(name: &str, value: f64) {
        with_host("metrics.observe", |host| host.observe(name, value));
    }

    pub(crate) fn now() -> i64 {
        with_host("timers.now", |host| host.now())
    }

    pub(crate) fn wake_at(at: i64) {
        with_host("timers.wake-at", |host| host.wake_at(at));
    }

    pub(crate) fn snapshot_write(target: Segment, data: &[u8]) -> bool {
        with_host("snapshots.write", |host| host.write(target, data))
    }

    pub(crate) fn snapshot_read() -> Option<Chunk> {
        with_host("snapshots.read", |host| host.read())
    }
}

pub(crate) use imports::*;
