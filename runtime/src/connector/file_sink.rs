//! Files as a sink, first phase: records become parts that are durable and that nobody sees.
//!
//! ```text
//! PATH/epoch-000000000007/part-00000-000000000006.jsonl     published, by file_commit.rs
//! PATH/epoch-000000000007/_commit.json                      whose it is
//! PATH/.weir/owner.json                                     the one job and node that may write here
//! PATH/.weir/<job id>/<generation>/00000-00000001/part-…    staged: a folder of its own for each part
//! PATH/.weir/<job id>/<generation>/commit/epoch-…/          a commit on its way, or interrupted
//! ```
//!
//! A part has a folder of its own so that syncing one part can never make the move of another durable halfway: no
//! folder that a commit moves something out of is synced by anybody else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::confined;
use super::durable::{make_dirs, sync_dir, sync_parent};
use super::encode::Encoder;
use super::{ConnectorError, Sink, TaskContext};
use crate::model::{Batch, Epoch, Generation, JobId};
use crate::plan::{FileSinkSpec, SinkFormat};

/// How much is gathered before it is hashed and written, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// What a committable of this sink holds: nothing outside it is needed to publish the part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StagedPart {
    /// The name of the job, for `_commit.json`.
    pub(super) job: String,
    /// The folder of the sink, absolute.
    pub(super) destination: String,
    /// Where the part is, absolute.
    pub(super) staged: String,
    /// Its name when it is published.
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) records: u64,
    /// Records without a value that the format has no way to write.
    pub(super) skipped: u64,
    pub(super) blake3: [u8; 32],
}

/// Names of what is below the folder of a sink.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) path: PathBuf,
}

impl Layout {
    /// The layout of a path as it stands in a pipeline file in `dir`.
    pub(super) fn new(path: &Path, dir: &Path) -> Result<Self, ConnectorError> {
        let path = dir.join(path);
        Ok(Self { path: std::path::absolute(&path).map_err(|e| ConnectorError::io("make absolute", &path, e))? })
    }

    pub(super) fn job(&self, job: JobId) -> PathBuf {
        self.path.join(".weir").join(job.to_string())
    }

    fn owner(&self) -> PathBuf {
        self.path.join(".weir/owner.json")
    }

    fn staging(&self, job: JobId, generation: Generation) -> PathBuf {
        self.job(job).join(generation.to_string())
    }

    pub(super) fn published(&self, epoch: Epoch) -> PathBuf {
        self.path.join(format!("epoch-{:012}", epoch.0))
    }
}

/// Whose a path is: two sinks, or two jobs, never write to the same one.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    job_id: String,
    job: String,
    node: String,
}

pub(super) struct FileSink {
    layout: Layout,
    format: SinkFormat,
    context: TaskContext,
    staging: PathBuf,
    part: Option<Part>,
    /// Encoded and not yet written.
    buffer: Vec<u8>,
    /// How many part folders this sink has made or found.
    folders: u64,
    /// Something went wrong half way: nothing may be published of it.
    failed: bool,
}

/// A part that is being written.
struct Part {
    folder: PathBuf,
    file: File,
    encoder: Encoder,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl FileSink {
    pub(super) fn open(spec: &FileSinkSpec, dir: &Path, context: &TaskContext) -> Result<Self, ConnectorError> {
        let layout = Layout::new(&spec.path, dir)?;
        confined::check_directory(spec.root.as_deref(), &layout.path, &spec.path)?;
        make_dirs(&layout.path)?;
        make_dirs(&layout.path.join(".weir"))?;
        claim(&layout, context)?;
        let staging = layout.staging(context.job_id, context.generation);
        make_dirs(&layout.job(context.job_id))?;
        make_dirs(&staging)?;
        Ok(Self {
            layout,
            format: spec.format,
            context: context.clone(),
            staging,
            part: None,
            buffer: Vec::new(),
            folders: 0,
            failed: false,
        })
    }

    fn begin_part(&mut self) -> Result<Part, ConnectorError> {
        loop {
            self.folders += 1;
            let folder = self.staging.join(format!("{:05}-{:08}", self.context.task.subtask, self.folders));
            match fs::create_dir(&folder) {
                Ok(()) => {
                    let path = folder.join("open");
                    let file = File::create_new(&path).map_err(|e| ConnectorError::io("create", &path, e))?;
                    return Ok(Part {
                        folder,
                        file,
                        encoder: Encoder::new(self.format),
                        hasher: blake3::Hasher::new(),
                        bytes: 0,
                    });
                }
                // From a sink that was opened before in this generation.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(ConnectorError::io("make folder", &folder, error)),
            }
        }
    }

    fn append(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        if self.part.is_none() && !batch.is_empty() {
            self.part = Some(self.begin_part()?);
        }
        let Some(part) = &mut self.part else { return Ok(()) };
        for row in 0..batch.len() {
            part.encoder.write(batch.values.get(row), &mut self.buffer)?;
            if self.buffer.len() >= BUFFER_BYTES {
                part.flush(&mut self.buffer)?;
            }
        }
        Ok(())
    }

    fn finish_part(&mut self, epoch: Epoch) -> Result<Option<Vec<u8>>, ConnectorError> {
        let Some(mut part) = self.part.take() else { return Ok(None) };
        part.flush(&mut self.buffer)?;
        let open = part.folder.join("open");
        if part.encoder.records == 0 {
            tracing::warn!(sink = %self.context.task, skipped = part.encoder.skipped, "records without a value were left out");
            // A leftover would do no harm.
            let _ = fs::remove_file(&open).and_then(|()| fs::remove_dir(&part.folder));
            return Ok(None);
        }
        if part.encoder.skipped > 0 {
            tracing::warn!(sink = %self.context.task, skipped = part.encoder.skipped, "records without a value were left out");
        }
        let extension = Encoder::extension(self.format);
        let name = format!("part-{:05}-{:012}.{extension}", self.context.task.subtask, epoch.0);
        let staged = part.folder.join(&name);
        part.file.sync_all().map_err(|e| ConnectorError::io("sync", &open, e))?;
        fs::rename(&open, &staged).map_err(|e| ConnectorError::io("rename", &open, e))?;
        sync_dir(&part.folder)?;
        sync_parent(&part.folder)?;
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                ConnectorError::mismatch(format!("the path {} is not UTF-8", path.display()))
                    .help("choose another path for the sink")
            })
        };
        let committable = StagedPart {
            job: self.context.job.clone(),
            destination: text(&self.layout.path)?,
            staged: text(&staged)?,
            name,
            bytes: part.bytes,
            records: part.encoder.records,
            skipped: part.encoder.skipped,
            blake3: *part.hasher.finalize().as_bytes(),
        };
        postcard::to_stdvec(&committable)
            .map(Some)
            .map_err(|e| ConnectorError::mismatch("a committable does not encode").caused_by(e))
    }
}

impl Part {
    fn flush(&mut self, buffer: &mut Vec<u8>) -> Result<(), ConnectorError> {
        self.hasher.update(buffer);
        self.file.write_all(buffer).map_err(|e| ConnectorError::io("write", &self.folder.join("open"), e))?;
        self.bytes += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }
}

/// Finds out whether somebody owns the path already: a new history of a job would be refused there.
pub(super) fn check_unowned(spec: &FileSinkSpec, dir: &Path) -> Result<(), ConnectorError> {
    let layout = Layout::new(&spec.path, dir)?;
    if !layout.owner().exists() {
        return Ok(());
    }
    Err(ConnectorError::mismatch(format!("{} holds the output of an earlier history", layout.path.display()))
        .help("choose another path for the sink, or remove the old output with its folder .weir"))
}

/// Makes this job and node the owner of the path, or finds that they are.
fn claim(layout: &Layout, context: &TaskContext) -> Result<(), ConnectorError> {
    let path = layout.owner();
    let me =
        Owner { job_id: context.job_id.to_string(), job: context.job.clone(), node: context.task.node.to_string() };
    if !path.exists() {
        // Written whole under a name of its own, then linked: a link is made only where nothing is, so one of several
        // wins, and nobody ever sees half of it.
        let text = serde_json::to_vec_pretty(&me)
            .map_err(|e| ConnectorError::mismatch("an owner does not encode").caused_by(e))?;
        let draft = layout.path.join(format!(
            ".weir/owner-{}-{}-{}-{:05}",
            context.job_id, context.generation, context.task.node, context.task.subtask
        ));
        let io = |e| ConnectorError::io("create", &draft, e);
        let mut file = File::create(&draft).map_err(io)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(io)?;
        let linked = fs::hard_link(&draft, &path);
        let _ = fs::remove_file(&draft);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(ConnectorError::io("create", &path, error));
            }
            _ => {}
        }
    }
    // Also if it was there: whoever made it may have died before it was durable.
    sync_parent(&path)?;
    let text = fs::read(&path).map_err(|e| ConnectorError::io("read", &path, e))?;
    let owner: Owner = serde_json::from_slice(&text).map_err(|e| {
        ConnectorError::mismatch(format!("{} does not say who owns the folder", path.display()))
            .caused_by(e)
            .help("choose another path for the sink, or remove the folder with all that is in it")
    })?;
    if owner == me {
        return Ok(());
    }
    let history = if owner.job == me.job && owner.node == me.node { "an earlier history of " } else { "" };
    Err(ConnectorError::mismatch(format!(
        "{} belongs to {history}job {:?}, sink {:?} (job id {}), not to job {:?}, sink {:?} (job id {})",
        layout.path.display(),
        owner.job,
        owner.node,
        owner.job_id,
        me.job,
        me.node,
        me.job_id
    ))
    .help("choose another path for the sink, or remove the old output with its folder .weir"))
}

#[async_trait]
impl Sink for FileSink {
    async fn write(&mut self, batch: &Batch) -> Result<(), ConnectorError> {
        let written = self.append(batch);
        self.failed |= written.is_err();
        written
    }

    async fn prepare(&mut self, epoch: Epoch) -> Result<Option<Vec<u8>>, ConnectorError> {
        if self.failed {
            return Err(ConnectorError::new(
                super::ConnectorErrorKind::Transient,
                format!("sink {} failed before: what it wrote since the last epoch is not whole", self.context.task),
            ));
        }
        let prepared = self.finish_part(epoch);
        self.failed |= prepared.is_err();
        prepared
    }
}
