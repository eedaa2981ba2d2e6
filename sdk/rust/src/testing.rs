//! x
pub(crate) mod host {
    use crate::batch::BatchView;
    use crate::bindings::{log, snapshots};
    pub(crate) fn emit(_port: u32, _batch: BatchView<'_>) {}
    pub(crate) fn reject(_index: u32, _reason: &str) {}
    pub(crate) fn reject_batch(_batch: BatchView<'_>, _reason: &str) {}
    pub(crate) fn log_write(_level: log::Level, _message: &str) {}
    pub(crate) fn log_enabled(_level: log::Level) -> bool {
        true
    }
    pub(crate) fn count(_name: &str, _delta: u64) {}
    pub(crate) fn gauge(_name: &str, _value: f64) {}
    pub(crate) fn observe(_name: &str, _value: f64) {}
    pub(crate) fn now() -> i64 {
        0
    }
    pub(crate) fn wake_at(_at: i64) {}
    pub(crate) fn snapshot_write(_target: snapshots::Segment, _data: &[u8]) -> bool {
        true
    }
    pub(crate) fn snapshot_read() -> Option<snapshots::Chunk> {
        None
    }
}
