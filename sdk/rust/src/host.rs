//! The functions that the host offers. In a component they are the imports; anywhere else they go to the fake host of
//! [`crate::testing`], so that an operator runs unchanged in `cargo test`.

#[cfg(target_arch = "wasm32")]
mod imports {
    use crate::batch::BatchView;
    use crate::bindings::{log, metrics, output, snapshots, timers};

    #[inline]
    pub(crate) fn emit(port: u32, batch: BatchView<'_>) {
        output::emit(port, batch.into());
    }

    pub(crate) fn reject(index: u32, reason: &str) {
        output::reject(index, reason);
    }

    pub(crate) fn reject_batch(batch: BatchView<'_>, reason: &str) {
        output::reject_batch(batch.into(), reason);
    }

    pub(crate) fn log_write(level: log::Level, message: &str) {
        log::write(level, message);
    }

    pub(crate) fn log_enabled(level: log::Level) -> bool {
        log::enabled(level)
    }

    pub(crate) fn count(name: &str, delta: u64) {
        metrics::count(name, delta);
    }

    pub(crate) fn gauge(name: &str, value: f64) {
        metrics::gauge(name, value);
    }

    pub(crate) fn observe(name: &str, value: f64) {
        metrics::observe(name, value);
    }

    pub(crate) fn now() -> i64 {
        timers::now()
    }

    pub(crate) fn wake_at(at: i64) {
        timers::wake_at(at);
    }

    pub(crate) fn snapshot_write(target: snapshots::Segment, data: &[u8]) -> bool {
        snapshots::write(target, data)
    }

    pub(crate) fn snapshot_read() -> Option<snapshots::Chunk> {
        snapshots::read()
    }
}

#[cfg(target_arch = "wasm32")]
pub(crate) use imports::*;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::testing::host::*;
