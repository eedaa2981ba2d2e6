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

/// How much is gathered before it is hashed, in bytes: the pieces in which the object sink uploads.
const BUFFER_BYTES: usize = super::object::PART_BYTES;

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

impl Content {
    /// Of several parts that follow each other. That of a single one is its own.
    fn of(parts: impl Iterator<Item = Self>) -> Self {
        let (mut whole, mut hasher, mut count) =
            (Self { records: 0, skipped: 0, bytes: 0, blake3: [0; 32] }, blake3::Hasher::new(), 0);
        for part in parts {
            whole.records += part.records;
            whole.skipped += part.skipped;
            whole.bytes += part.bytes;
            whole.blake3 = part.blake3;
            hasher.update(&part.bytes.to_le_bytes()).update(&part.blake3);
            count += 1;
        }
        if count > 1 {
            whole.blake3 = *hasher.finalize().as_bytes();
        }
        whole
    }
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
        SinkConnector::Object(_) => {
            let parts = super::object::contents(committable)?;
            Ok(Some(Content::of(parts.into_iter().map(|(records, skipped, bytes, blake3)| Content {
                records,
                skipped,
                bytes,
                blake3,
            }))))
        }
        SinkConnector::Stdout(_) | SinkConnector::Blackhole => Ok(None),
    }
}

/// What stands for a sink in a replay. What it prepares is a [`Content`], in postcard.
pub fn open_replayed_sink(spec: &SinkSpec) -> Box<dyn Sink> {
    match &spec.connector {
        SinkConnector::File(file) => Box::new(Hashing::new(file.format, None)),
        SinkConnector::Object(object) => Box::new(Hashing::new(object.format, Some(super::object::OBJECT_BYTES))),
        SinkConnector::Stdout(_) | SinkConnector::Blackhole => Box::new(Blackhole::new()),
    }
}

struct Hashing {
    format: SinkFormat,
    part: Option<(Encoder, blake3::Hasher, u64)>,
    buffer: Vec<u8>,
    /// After how many bytes the real sink begins another part.
    part_bytes: Option<u64>,
    finished: Vec<Content>,
}

impl Hashing {
    fn new(format: SinkFormat, part_bytes: Option<u64>) -> Self {
        Self { format, part: None, buffer: Vec::new(), part_bytes, finished: Vec::new() }
    }

    /// Ends the part that is being written, if one is.
    fn finish(&mut self) {
        let Some((encoder, mut hasher, bytes)) = self.part.take() else { return };
        hasher.update(&self.buffer);
        let bytes = bytes + self.buffer.len() as u64;
        self.buffer.clear();
        if encoder.records > 0 {
            let Encoder { records, skipped, .. } = encoder;
            self.finished.push(Content { records, skipped, bytes, blake3: *hasher.finalize().as_bytes() });
        }
    }
}

#[async_trait]
impl Sink for Hashing {
    async fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        if batch.is_empty() {
            return Ok(());
        }
        for row in 0..batch.len() {
            let format = self.format;
            let (encoder, hasher, bytes) =
                self.part.get_or_insert_with(|| (Encoder::new(format), blake3::Hasher::new(), 0));
            encoder.write(batch.values.get(row), &mut self.buffer)?;
            // The parts end where those of the real sink end: it looks at whole pieces of this size.
            if self.buffer.len() >= BUFFER_BYTES {
                let whole = self.buffer.len() - self.buffer.len() % BUFFER_BYTES;
                hasher.update(&self.buffer[..whole]);
                *bytes += whole as u64;
                self.buffer.drain(..whole);
                if self.part_bytes.is_some_and(|limit| *bytes >= limit) {
                    self.finish();
                }
            }
        }
        Ok(())
    }

    async fn prepare(&mut self, _epoch: Epoch) -> Result<Option<Vec<u8>>, ConnectorError> {
        self.finish();
        if self.finished.is_empty() {
            return Ok(None);
        }
        let content = Content::of(self.finished.drain(..));
        postcard::to_stdvec(&content)
            .map(Some)
            .map_err(|e| ConnectorError::mismatch("the content of a sink does not encode").caused_by(e))
    }
}
