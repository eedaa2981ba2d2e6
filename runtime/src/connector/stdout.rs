//! Standard output as a sink: what is written is seen at once, so it is at least once and says so in its type.

use std::io::Write;

use async_trait::async_trait;

use super::encode::Encoder;
use super::{ConnectorError, ConnectorErrorKind, Sink};
use crate::model::{Batch, Epoch};
use crate::plan::SinkFormat;

/// Writes records to standard output, or to what stands for it in a test; formats are those of the file sink, and CSV
/// has one header a run and subtask.
pub struct StdoutSink {
    encoder: Encoder,
    out: Box<dyn Write + Send>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for StdoutSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StdoutSink").field("encoder", &self.encoder).finish_non_exhaustive()
    }
}

impl StdoutSink {
    /// A sink that writes to `out`.
    pub fn new(format: SinkFormat, out: Box<dyn Write + Send>) -> Self {
        Self { encoder: Encoder::new(format), out, buffer: Vec::new() }
    }
}

#[async_trait]
impl Sink for StdoutSink {
    /// Whole batches in one piece, so that the lines of two subtasks do not mix.
    async fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        self.buffer.clear();
        for row in 0..batch.len() {
            self.encoder.write(batch.values.get(row), &mut self.buffer)?;
        }
        self.out.write_all(&self.buffer).and_then(|()| self.out.flush()).map_err(|error| {
            // A reader that has gone does not come back by a restart.
            let kind = match error.kind() {
                std::io::ErrorKind::BrokenPipe => ConnectorErrorKind::Mismatch,
                _ => ConnectorErrorKind::Transient,
            };
            ConnectorError::new(kind, "cannot write to standard output").caused_by(error)
        })
    }

    async fn prepare(&mut self, _epoch: Epoch) -> Result<Option<Vec<u8>>, ConnectorError> {
        Ok(None)
    }
}
