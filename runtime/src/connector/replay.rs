//! Sinks of a replay: they encode what comes exactly as the real ones do, hash it, and publish nothing. No file, no object and no server is
//! touched.
//!
//! What a committable *holds* is compared, not what it says: where a part was staged, and by which run, is no content.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::encode::Encoder;
use super::file_sink::StagedPart;
use super::{Blackhole, ConnectorError, Sink};
use crate::model::{Batch, Epoch};
use crate::plan::{SinkConnector, SinkFormat, SinkSpec};

/// How much is gathered before it is hashed, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// What one subtask of a sink staged in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Records that were written.
    pub records: u64,
    /// Records without a value that the format has no way to write.
    pub skipped: u64,
    /// Bytes as they are published.
    pub bytes: u64,
    /// Their hash.
    pub blake3: [u8; 32],
}

/// What a committable of a sink holds; none for a sink that says nothing of it.
///
/// # Errors
///
/// [`ConnectorErrorKind::Mismatch`](super::ConnectorErrorKind::Mismatch) if it does not decode.
pub fn content(spec: &SinkSpec, committable: &[u8]) -> Result<Option<Content>, ConnectorError> {
    match &spec.connector {
        SinkConnector::File(_) => {
            let part: StagedPart = postcard::from_bytes(committable).map_err(|e| {
                ConnectorError::mismatch(format!("a committable of sink {:?} does not decode", spec.name.as_str()))
                    .caused_by(e)
            })?;
            let StagedPart { records, skipped, bytes, blake3, .. } = part;
            Ok(Some(Content { records, skipped, bytes, blake3 }))
        }
        SinkConnector::Stdout(_) | SinkConnector::Blackhole => Ok(None),
    }
}

/// What stands for a sink in a replay. What it prepares is a [`Content`], in postcard.
pub fn open_replayed_sink(spec: &SinkSpec) -> Box<dyn Sink> {
    match &spec.connector {
        SinkConnector::File(file) => Box::new(Hashing::new(file.format)),
        SinkConnector::Stdout(_) | SinkConnector::Blackhole => Box::new(Blackhole::new()),
    }
}

struct Hashing {
    format: SinkFormat,
    part: Option<(Encoder, blake3::Hasher, u64)>,
    buffer: Vec<u8>,
}

impl Hashing {
    fn new(format: SinkFormat) -> Self {
        Self { format, part: None, buffer: Vec::new() }
    }
}

#[async_trait]
impl Sink for Hashing {
    async fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        if batch.is_empty() {
            return Ok(());
        }
        let format = self.format;
        let (encoder, hasher, bytes) =
            self.part.get_or_insert_with(|| (Encoder::new(format), blake3::Hasher::new(), 0));
        for row in 0..batch.len() {
            encoder.write(batch.values.get(row), &mut self.buffer)?;
            if self.buffer.len() >= BUFFER_BYTES {
                hasher.update(&self.buffer);
                *bytes += self.buffer.len() as u64;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    async fn prepare(&mut self, _epoch: Epoch) -> Result<Option<Vec<u8>>, ConnectorError> {
        let Some((encoder, mut hasher, bytes)) = self.part.take() else { return Ok(None) };
        hasher.update(&self.buffer);
        let bytes = bytes + self.buffer.len() as u64;
        self.buffer.clear();
        if encoder.records == 0 {
            return Ok(None);
        }
        let Encoder { records, skipped, .. } = encoder;
        let content = Content { records, skipped, bytes, blake3: *hasher.finalize().as_bytes() };
        postcard::to_stdvec(&content)
            .map(Some)
            .map_err(|e| ConnectorError::mismatch("the content of a sink does not encode").caused_by(e))
    }
}
