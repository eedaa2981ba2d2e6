//! Where results go: valid within `process`, `advance`, `wake`, `finish` and `resume`, and handed to each of them.

use crate::batch::BatchView;
use crate::host;

/// Takes what a call emits and rejects. All of it takes effect when the call returns ok; if the call fails or panics, none
/// of it does.
#[derive(Debug)]
pub struct Output {
    _only_in_calls: (),
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { _only_in_calls: () }
    }

    /// Hands a batch on through an output port: what a [`BatchBuilder`](crate::BatchBuilder) made, or a view. An empty one is dropped.
    ///
    /// Emit once for each batch that came in, not once for each record. What a call may emit is limited (64 MiB unless
    /// the node's limits say otherwise): with more to say, return [`Progress::More`](crate::Progress::More).
    ///
    /// Traps if there is no such port, if a column is longer than the contract allows, or if the port is keyed and a
    /// record has no key.
    #[inline]
    pub fn emit<'a>(&mut self, port: u32, batch: impl Into<BatchView<'a>>) {
        let batch = batch.into();
        if !batch.is_empty() {
            host::emit(port, batch);
        }
    }

    /// Hands the batch that came in on as it is, or with some columns replaced. Nothing is copied in the plugin.
    #[inline]
    pub fn forward(&mut self, port: u32, batch: BatchView<'_>) {
        self.emit(port, batch);
    }

    /// Puts a record of the batch that is being processed aside, with the reason, for people to look at: what
    /// happens to it is up to the pipeline. Only within `process`; elsewhere, and if there is no such record, it traps.
    ///
    /// Reasons are cut at 1,024 bytes.
    pub fn reject(&mut self, index: u32, reason: &str) {
        host::reject(index, reason);
    }

    /// Puts records aside that came in an earlier call.
    pub fn reject_batch<'a>(&mut self, batch: impl Into<BatchView<'a>>, reason: &str) {
        let batch = batch.into();
        if !batch.is_empty() {
            host::reject_batch(batch, reason);
        }
    }
}
