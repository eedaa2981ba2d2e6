//! The reader's side: list the commit records, read only what they name.

use std::path::Path as FsPath;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::super::ConnectorError;
use super::record::Record;
use super::{Place, absolute, epoch_of};
use crate::model::Epoch;
use crate::storage::StoreOptions;

/// Reads what an object sink has made visible.
#[derive(Debug)]
pub struct Reader {
    place: Place,
}

/// An object that a commit record names.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CommittedObject {
    /// The checkpoint that made it visible.
    pub epoch: u64,
    /// The subtask that wrote it.
    pub subtask: u32,
    /// Its name below the URL.
    pub name: String,
    /// How long it is.
    pub bytes: u64,
    /// How many records it holds.
    pub records: u64,
    /// The blake3 of its bytes in hexadecimal.
    pub blake3: String,
}

impl Reader {
    /// Opens the place of a sink. `dir` is where a relative `file://` path starts.
    ///
    /// # Errors
    ///
    /// If the URL or an option cannot be used.
    pub fn open(url: &str, dir: &FsPath, options: &StoreOptions) -> Result<Self, ConnectorError> {
        let url = absolute(url, dir)?;
        if let Some(path) = url.strip_prefix("file://")
            && !FsPath::new(path).is_dir()
        {
            return Err(ConnectorError::mismatch(format!("{url} is not a folder")).help("check the url of the sink"));
        }
        Ok(Self { place: Place::open(&url, dir, options)? })
    }

    /// The epochs that were committed after `after`, oldest first. What is returned once stays as it is; a later call adds to it.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn epochs(&self, after: Epoch) -> Result<Vec<Epoch>, ConnectorError> {
        let records = self.place.list(&Place::commits()).await?;
        Ok(records.iter().filter_map(|record| epoch_of(&record.location)).filter(|epoch| *epoch > after).collect())
    }

    /// What the record of an epoch names, in order; nothing for one that was given up.
    ///
    /// # Errors
    ///
    /// If there is no such record, or it is damaged, or the store does not answer.
    pub async fn objects(&self, epoch: Epoch) -> Result<Vec<CommittedObject>, ConnectorError> {
        let path = Place::commit(epoch);
        let bytes = self.place.read(&path).await?.ok_or_else(|| {
            ConnectorError::mismatch(format!("{} has no commit record of epoch {epoch}", self.place.url))
                .help("`weir sink list` shows those it has")
        })?;
        let record = Record::decode(&bytes)
            .map_err(|fault| ConnectorError::mismatch(format!("{}/{path} {fault}", self.place.url)))?;
        let object = |object: super::record::RecordedObject| CommittedObject {
            epoch: epoch.0,
            subtask: object.subtask,
            name: object.name,
            bytes: object.bytes,
            records: object.records,
            blake3: object.blake3,
        };
        Ok(record.objects.into_iter().map(object).collect())
    }

    /// The bytes of an object, in pieces. The last item is an error if they are not those that the record names.
    ///
    /// # Errors
    ///
    /// If it is not there, or the store does not answer.
    pub async fn read(
        &self,
        object: &CommittedObject,
    ) -> Result<BoxStream<'static, Result<Bytes, ConnectorError>>, ConnectorError> {
        let path = Path::from(object.name.as_str());
        let read = match self.place.objects().get(&path).await {
            Ok(read) => read,
            Err(object_store::Error::NotFound { .. }) => {
                return Err(self.differs(object, "is gone"));
            }
            Err(e) => return Err(self.place.failed("read", &path, e)),
        };
        let damaged = self.differs(object, "is not what its commit record says");
        let place = self.place.clone();
        let pieces = read.into_stream().map(move |piece| piece.map_err(|e| place.failed("read", &path, e)));
        let state = (pieces, blake3::Hasher::new(), object.blake3.clone(), Some(damaged));
        Ok(futures::stream::unfold(state, |(mut pieces, mut hasher, expected, mut damaged)| async move {
            match pieces.next().await {
                Some(Ok(piece)) => {
                    hasher.update(&piece);
                    Some((Ok(piece), (pieces, hasher, expected, damaged)))
                }
                Some(Err(error)) => Some((Err(error), (pieces, hasher, expected, None))),
                None if hasher.finalize().to_hex().as_str() == expected => None,
                None => damaged.take().map(|error| (Err(error), (pieces, hasher, expected, None))),
            }
        })
        .boxed())
    }

    fn differs(&self, object: &CommittedObject, how: &str) -> ConnectorError {
        ConnectorError::mismatch(format!("{}/{} of epoch {} {how}", self.place.url, object.name, object.epoch))
            .help("put it back from a copy; weir cannot produce it again by itself")
    }
}
