//! First phase: records become objects that are durable and that nobody reads.
//!
//! What fits into one part is uploaded whole when the epoch is prepared; anything larger goes up in parts while it is written,
//! a few at a time, so the memory that a subtask takes is bounded whatever an epoch holds.

use std::path::Path as FsPath;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, WriteMultipart};

use super::super::ConnectorErrorKind::Transient;
use super::super::encode::Encoder;
use super::super::{ConnectorError, Sink, TaskContext};
use super::record::{Owner, Staged, StagedObject};
use super::{Created, Place, absolute};
use crate::model::{Batch, Epoch};
use crate::plan::ObjectSinkSpec;

/// What is uploaded at once, in bytes: parts of an object but the last have to be as large as this for all stores to take them.
pub(in super::super) const PART_BYTES: usize = 8 << 20;
/// How many parts of one object are on their way at most.
const UPLOADS_MAX: usize = 3;
/// After this another object is begun, in bytes: stores take 10,000 parts.
pub(in super::super) const OBJECT_BYTES: u64 = 1 << 30;

pub(in super::super) struct ObjectSink {
    place: Place,
    spec: ObjectSinkSpec,
    destination: String,
    context: TaskContext,
    folder: Path,
    object: Option<Object>,
    /// Encoded and not yet on its way.
    buffer: Vec<u8>,
    /// Finished, of the epoch that is being written.
    finished: Vec<StagedObject>,
    /// How many objects this sink has begun.
    begun: u64,
    /// Something went wrong half way: nothing may be published of it.
    failed: bool,
}

/// An object that is being written.
struct Object {
    path: Path,
    encoder: Encoder,
    hasher: blake3::Hasher,
    /// How much of it is on its way.
    bytes: u64,
    /// Once it is larger than one part.
    upload: Option<WriteMultipart>,
}

impl ObjectSink {
    pub(in super::super) async fn open(
        spec: &ObjectSinkSpec,
        dir: &FsPath,
        context: &TaskContext,
    ) -> Result<Self, ConnectorError> {
        let destination = absolute(&spec.url, dir)?;
        let place = Place::open(&destination, dir, &spec.options)?;
        let folder = Place::staging(context.job_id, context.generation);
        place.make_folders(&[Place::commits(), Place::swept(), folder.clone()])?;
        claim(&place, context).await?;
        Ok(Self {
            place,
            spec: spec.clone(),
            destination,
            context: context.clone(),
            folder,
            object: None,
            buffer: Vec::new(),
            finished: Vec::new(),
            begun: 0,
            failed: false,
        })
    }

    fn begin(&mut self) -> Object {
        self.begun += 1;
        let extension = Encoder::extension(self.spec.format);
        let name = format!("{}/{:05}-{:08}.{extension}", self.folder, self.context.task.subtask, self.begun);
        Object {
            path: Path::from(name),
            encoder: Encoder::new(self.spec.format),
            hasher: blake3::Hasher::new(),
            bytes: 0,
            upload: None,
        }
    }

    async fn append(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        for row in 0..batch.len() {
            let mut object = self.object.take().unwrap_or_else(|| self.begin());
            let written = object.encoder.write(batch.values.get(row), &mut self.buffer);
            let object = self.object.insert(object);
            written?;
            if self.buffer.len() >= PART_BYTES {
                object.send_parts(&self.place, &mut self.buffer).await?;
                if object.bytes >= OBJECT_BYTES {
                    self.finish().await?;
                }
            }
        }
        Ok(())
    }

    /// Ends the object that is being written, if one is.
    async fn finish(&mut self) -> Result<(), ConnectorError> {
        let Some(mut object) = self.object.take() else { return Ok(()) };
        let (records, skipped) = (object.encoder.records, object.encoder.skipped);
        if skipped > 0 {
            tracing::warn!(sink = %self.context.task, skipped, "records without a value were left out");
        }
        if records == 0 {
            self.buffer.clear();
            return Ok(());
        }
        let rest = Bytes::from(std::mem::take(&mut self.buffer));
        object.hasher.update(&rest);
        object.bytes += rest.len() as u64;
        let failed = |e| self.place.failed("write", &object.path, e);
        match object.upload.take() {
            None => drop(self.place.objects().put(&object.path, rest.into()).await.map_err(failed)?),
            Some(mut upload) => {
                upload.put(rest);
                upload.finish().await.map_err(failed)?;
            }
        }
        self.finished.push(StagedObject {
            name: object.path.to_string(),
            bytes: object.bytes,
            records,
            skipped,
            blake3: *object.hasher.finalize().as_bytes(),
        });
        Ok(())
    }

    async fn prepare_now(&mut self) -> Result<Option<Vec<u8>>, ConnectorError> {
        self.finish().await?;
        if self.finished.is_empty() {
            return Ok(None);
        }
        let staged = Staged {
            job: self.context.job.clone(),
            destination: self.destination.clone(),
            options: self.spec.options.clone(),
            objects: std::mem::take(&mut self.finished),
        };
        staged.encode().map(Some)
    }
}

impl Object {
    /// Sends whole parts off, and keeps the rest.
    async fn send_parts(&mut self, place: &Place, buffer: &mut Vec<u8>) -> Result<(), ConnectorError> {
        let failed = |e| place.failed("write", &self.path, e);
        let upload = match &mut self.upload {
            Some(upload) => upload,
            None => {
                let upload = place.objects().put_multipart(&self.path).await.map_err(failed)?;
                self.upload.insert(WriteMultipart::new_with_chunk_size(upload, PART_BYTES))
            }
        };
        while buffer.len() >= PART_BYTES {
            let rest = buffer.split_off(PART_BYTES);
            let part = Bytes::from(std::mem::replace(buffer, rest));
            self.hasher.update(&part);
            self.bytes += part.len() as u64;
            upload.wait_for_capacity(UPLOADS_MAX).await.map_err(|e| place.failed("write", &self.path, e))?;
            upload.put(part);
        }
        Ok(())
    }
}

#[async_trait]
impl Sink for ObjectSink {
    async fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        let written = self.append(batch).await;
        self.failed |= written.is_err();
        written
    }

    async fn prepare(&mut self, _: Epoch) -> Result<Option<Vec<u8>>, ConnectorError> {
        if self.failed {
            return Err(ConnectorError::new(
                Transient,
                format!("sink {} failed before: what it wrote since the last epoch is not whole", self.context.task),
            ));
        }
        let prepared = self.prepare_now().await;
        self.failed |= prepared.is_err();
        prepared
    }
}

/// Finds out whether somebody owns the place already: a new history of a job would be refused there.
pub(in super::super) async fn check_unowned(spec: &ObjectSinkSpec, dir: &FsPath) -> Result<(), ConnectorError> {
    let place = Place::open(&absolute(&spec.url, dir)?, dir, &spec.options)?;
    match place.read(&Place::owner()).await? {
        None => Ok(()),
        Some(_) => {
            Err(ConnectorError::mismatch(format!("{} holds the output of an earlier history", place.url)).help(HELP))
        }
    }
}

const HELP: &str = "choose another url for the sink, or remove the old output with everything below _weir and data";

/// Makes this job and node the owner of the place, or finds that they are.
async fn claim(place: &Place, context: &TaskContext) -> Result<(), ConnectorError> {
    let me =
        Owner { job_id: context.job_id.to_string(), job: context.job.clone(), node: context.task.node.to_string() };
    let is_mine = |bytes: &Bytes| serde_json::from_slice::<Owner>(bytes).is_ok_and(|owner| owner == me);
    let theirs = match place.create(&Place::owner(), &me.encode()?, is_mine).await? {
        Created::Written => return Ok(()),
        Created::Theirs(theirs) => theirs,
    };
    let owner: Owner = serde_json::from_slice(&theirs).map_err(|e| {
        let message = format!("{}/{} does not say who owns the place", place.url, Place::owner());
        ConnectorError::mismatch(message).caused_by(e).help(HELP)
    })?;
    let history = if owner.job == me.job && owner.node == me.node { "an earlier history of " } else { "" };
    Err(ConnectorError::mismatch(format!(
        "{} belongs to {history}job {:?}, sink {:?} (job id {}), not to job {:?}, sink {:?} (job id {})",
        place.url, owner.job, owner.node, owner.job_id, me.job, me.node, me.job_id
    ))
    .help(HELP))
}
