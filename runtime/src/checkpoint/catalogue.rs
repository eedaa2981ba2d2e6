//! Which plugins a tenant has in the store: their components by digest, and names with versions that are written once.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use super::envelope::{self, Magic};
use super::error::CheckpointError;
use super::objects::{Created, OBJECT_BYTES_MAX, Store, check_name};

const MAGIC: Magic = Magic(b"weirname");
/// How many are read at once.
const READS_AT_ONCE: usize = 16;

impl Store {
    /// Gives a name and a version for good to what `text` says. Some: it has been given already, to this.
    ///
    /// # Errors
    ///
    /// If the store does not answer, or what it has is damaged.
    pub async fn put_name(&self, name: &str, version: &str, text: &str) -> Result<Option<String>, CheckpointError> {
        check_name("plugin", name)?;
        let path = self.named(name, version);
        let bytes: Bytes = envelope::seal(MAGIC, &(self.nonce()?, text))?;
        match self.settle(&path, &bytes).await? {
            Created::Written => Ok(None),
            Created::Theirs(theirs) => {
                let (_, text): ([u8; 16], String) =
                    envelope::open(MAGIC, &theirs).map_err(|fault| CheckpointError::damaged(&path, fault))?;
                Ok(Some(text))
            }
        }
    }

    /// Every name with its version, and what it was given to.
    ///
    /// # Errors
    ///
    /// If the store does not answer, or what it has is damaged.
    pub async fn list_names(&self) -> Result<Vec<((String, String), String)>, CheckpointError> {
        let names = self.list_named().await?;
        let read = |(name, version): (String, String)| async move {
            let path = self.named(&name, &version);
            // Deleted meanwhile.
            let Some(bytes) = self.read(&path, OBJECT_BYTES_MAX).await? else { return Ok(None) };
            let (_, text): ([u8; 16], String) =
                envelope::open(MAGIC, &bytes).map_err(|fault| CheckpointError::damaged(&path, fault))?;
            Ok::<_, CheckpointError>(Some(((name, version), text)))
        };
        let all: Vec<_> = futures::stream::iter(names).map(read).buffered(READS_AT_ONCE).try_collect().await?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Takes a name and a version back.
    ///
    /// # Errors
    ///
    /// If the store does not answer.
    pub async fn delete_name(&self, name: &str, version: &str) -> Result<(), CheckpointError> {
        self.delete(&self.named(name, version)).await
    }
}
