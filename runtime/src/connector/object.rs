//! Objects as a sink: what is below the URL of a sink, by name.
//!
//! ```text
//! URL/data/<job id>/<generation>/<subtask>-<n>.jsonl      staged where it stays; nobody reads it yet
//! URL/_weir/commits/<epoch>.json                          the commit record: names what a checkpoint makes visible
//! URL/_weir/owner.json                                    the one job and node that may write here
//! URL/_weir/swept/<generation>                            below this run nothing is left that no record names
//! ```
//!
//! Objects cannot be renamed, so they do not move when they become visible: a record names them. Readers list the records
//! and read only what these name. The record of an epoch is written with create-if-absent and is one object, so the
//! output of all subtasks becomes visible at once, or not at all.
//!
//! An object is begun before it is known which epoch it will be of, so its name has none; the record says it.

mod commit;
mod read;
mod record;
mod sink;

use std::path::Path as FsPath;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode};

pub(super) use commit::ObjectCommitter;
pub use read::{CommittedObject, Reader};
pub(super) use record::contents;
pub(super) use record::is_committable;
pub(super) use sink::{OBJECT_BYTES, ObjectSink, PART_BYTES, check_unowned};

use super::ConnectorError;
use super::ConnectorErrorKind::Transient;
use crate::model::{Epoch, Generation, JobId};
use crate::storage::{OpenError, Opened, StoreOptions, StoreUrl, open};

/// How often a write whose outcome is not known is sent, before whoever asked for it has to ask again.
const ATTEMPTS_MAX: u32 = 4;
/// The largest commit record or owner, in bytes.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// The most names that a listing may give.
const LISTING_MAX: usize = 1 << 20;

/// The place of a sink: a store, opened at its URL.
#[derive(Clone, Debug)]
struct Place {
    store: Opened,
    url: Arc<str>,
}

/// How a create-if-absent ended.
enum Created {
    Written,
    Theirs(Bytes),
}

impl Place {
    fn open(url: &str, dir: &FsPath, options: &StoreOptions) -> Result<Self, ConnectorError> {
        match open(url, dir, options) {
            Ok(store) => Ok(Self { url: store.name.clone(), store }),
            Err(OpenError::Fault(fault)) => {
                Err(ConnectorError::mismatch(format!("the url of the sink {}", fault.fault)).help(fault.help))
            }
            Err(OpenError::Folder(e)) => Err(ConnectorError::new(Transient, format!("cannot open {url}")).caused_by(e)),
            Err(OpenError::Client(e)) => Err(ConnectorError::new(Transient, format!("cannot open {url}")).caused_by(e)),
        }
    }

    fn owner() -> Path {
        Path::from("_weir/owner.json")
    }

    fn commits() -> Path {
        Path::from("_weir/commits")
    }

    fn commit(epoch: Epoch) -> Path {
        Path::from(format!("_weir/commits/{:020}.json", epoch.0))
    }

    fn swept() -> Path {
        Path::from("_weir/swept")
    }

    fn data(job: JobId) -> Path {
        Path::from(format!("data/{job}"))
    }

    fn staging(job: JobId, generation: Generation) -> Path {
        Path::from(format!("data/{job}/{:020}", generation.0))
    }

    /// Makes folders durable before anything is put into them, where folders are a thing.
    fn make_folders(&self, folders: &[Path]) -> Result<(), ConnectorError> {
        let Some(local) = &self.store.local else { return Ok(()) };
        folders
            .iter()
            .try_for_each(|folder| local.make_folder(folder).map_err(|e| self.failed("make the folder", folder, e)))
    }

    fn failed(
        &self,
        verb: &str,
        path: &Path,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> ConnectorError {
        ConnectorError::new(Transient, format!("cannot {verb} {}/{path}", self.url)).caused_by(cause)
    }

    fn objects(&self) -> &dyn ObjectStore {
        &*self.store.objects
    }

    /// The bytes of a small object; none if there is none.
    async fn read(&self, path: &Path) -> Result<Option<Bytes>, ConnectorError> {
        match self.objects().get_opts(path, GetOptions::default()).await {
            Ok(object) if object.meta.size > RECORD_BYTES_MAX => Err(ConnectorError::mismatch(format!(
                "{}/{path} has {} bytes, over the limit of {RECORD_BYTES_MAX}",
                self.url, object.meta.size
            ))),
            Ok(object) => object.bytes().await.map(Some).map_err(|e| self.failed("read", path, e)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("read", path, e)),
        }
    }

    /// The length of an object; none if there is none.
    async fn length(&self, path: &Path) -> Result<Option<u64>, ConnectorError> {
        match self.objects().head(path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("look at", path, e)),
        }
    }

    /// Create-if-absent until the outcome is known, a few times at most. No answer is believed but what is there: a time-out may
    /// have written, and "already exists" may be a client's own success, repeated. `is_mine` tells.
    async fn create(
        &self,
        path: &Path,
        bytes: &Bytes,
        is_mine: impl Fn(&Bytes) -> bool,
    ) -> Result<Created, ConnectorError> {
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.objects().put_opts(path, bytes.clone().into(), PutMode::Create.into()).await {
                Ok(_) => return Ok(Created::Written),
                Err(e) => last = Some(self.failed("create", path, e)),
            }
            match self.read(path).await {
                Ok(Some(theirs)) if is_mine(&theirs) => {
                    // Whoever wrote it may have died before the entry was durable.
                    self.make_durable(path)?;
                    return Ok(Created::Written);
                }
                Ok(Some(theirs)) => return Ok(Created::Theirs(theirs)),
                Ok(None) => {}
                Err(e) => last = Some(e),
            }
        }
        Err(last.unwrap_or_else(|| ConnectorError::new(Transient, format!("cannot create {}/{path}", self.url))))
    }

    fn make_durable(&self, path: &Path) -> Result<(), ConnectorError> {
        let Some(local) = &self.store.local else { return Ok(()) };
        local.sync_folder_of(path).map_err(|e| self.failed("sync", path, e))
    }

    /// What is below a folder.
    async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>, ConnectorError> {
        let mut all = Vec::new();
        let mut listed = self.objects().list(Some(folder));
        while let Some(object) = listed.try_next().await.map_err(|e| self.failed("list", folder, e))? {
            all.push(object);
            if all.len() > LISTING_MAX {
                let message = format!("{}/{folder} holds more than {LISTING_MAX} objects", self.url);
                return Err(ConnectorError::mismatch(message).help("begin another prefix, or remove what is old"));
            }
        }
        all.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(all)
    }

    async fn delete(&self, path: &Path) -> Result<(), ConnectorError> {
        match self.objects().delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed("delete", path, e)),
        }
    }
}

/// The number in the name of a commit record.
fn epoch_of(record: &Path) -> Option<Epoch> {
    let digits = record.filename()?.strip_suffix(".json").filter(|name| name.len() == 20)?;
    digits.parse().ok().map(Epoch)
}

/// The run that staged an object, by its path below `data/<job id>`.
fn generation_of(object: &Path, job: JobId) -> Option<Generation> {
    let mut rest = object.prefix_match(&Place::data(job))?;
    rest.next()?.as_ref().parse().ok().map(Generation)
}

/// The URL without a path that depends on where a command was started.
fn absolute(url: &str, dir: &FsPath) -> Result<String, ConnectorError> {
    match StoreUrl::parse(url) {
        Ok(parsed) if parsed.scheme == crate::storage::Scheme::File => {
            let path = dir.join(&parsed.path);
            let path = std::path::absolute(&path).map_err(|e| ConnectorError::io("make absolute", &path, e))?;
            let text = path.to_str().ok_or_else(|| {
                ConnectorError::mismatch(format!("the path {} is not UTF-8", path.display()))
                    .help("choose another path for the sink")
            })?;
            Ok(format!("file://{text}"))
        }
        Ok(parsed) => Ok(parsed.to_string()),
        Err(fault) => Err(ConnectorError::mismatch(format!("the url of the sink {}", fault.fault)).help(fault.help)),
    }
}
