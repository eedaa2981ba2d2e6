//! A document that changes: numbered revisions that never do, of which the highest counts.
//!
//! The stores that weir runs on agree on create-if-absent and on little else, so nothing is overwritten: a change is a new
//! object at the next number. Whoever changes names the revision that it has read; of two who read the same, one is told that it
//! lost. Old revisions are deleted when some newer ones are there. Somebody who slept meanwhile may then create a number that was deleted:
//! the listing afterwards shows it a higher one, and it takes its own back. Readers count the highest only, so they never see it.
//!
//! Whether a change was written is sometimes not known: the store did not answer. Whoever made it is told so; the next change settles it
//! first, and comes after it if it was.
//!
//! The body is text of the caller's, in an envelope that shows damage, with a nonce: no two writers write the same bytes.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use object_store::path::Path;

use super::envelope::{self, Magic};
use super::error::CheckpointError;
use super::objects::{Created, OBJECT_BYTES_MAX, Store, check_name, numbers};

const MAGIC: Magic = Magic(b"weirdoc\0");
/// How many revisions are kept.
const KEPT: u64 = 4;
/// How often a revision that is gone when it is read is looked for again.
const READ_ATTEMPTS_MAX: u32 = 16;

/// The revisions of one document.
#[derive(Clone, Debug)]
pub struct Series {
    store: Store,
    folder: Path,
    /// What may have been written after a revision.
    doubt: Arc<Mutex<Option<(u64, Bytes)>>>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Its number, from 1.
    pub number: u64,
    /// What it says.
    pub text: String,
}

impl Series {
    fn new(store: &Store, folder: Path) -> Self {
        Self { store: store.clone(), folder, doubt: Arc::default() }
    }

    /// What a server knows of itself.
    pub fn of_server(store: &Store) -> Self {
        Self::new(store, store.server_folder())
    }

    /// What the tenant whose part `store` is may do.
    pub fn of_tenant(store: &Store) -> Self {
        Self::new(store, store.tenant_folder())
    }

    /// What a job is to be.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Name`] for what cannot be the name of a job.
    pub fn of_job(store: &Store, job: &str) -> Result<Self, CheckpointError> {
        check_name("job", job)?;
        Ok(Self::new(store, store.desired_folder(job)))
    }

    /// The highest revision; none if there is none.
    ///
    /// # Errors
    ///
    /// If the store does not answer, or what it has is damaged.
    pub async fn newest(&self) -> Result<Option<Revision>, CheckpointError> {
        for _ in 0..READ_ATTEMPTS_MAX {
            let Some(number) = self.highest().await? else { return Ok(None) };
            let path = self.path(number);
            // Gone: newer ones have come meanwhile.
            let Some(bytes) = self.store.read(&path, OBJECT_BYTES_MAX).await? else { continue };
            let (_, text): ([u8; 16], String) =
                envelope::open(MAGIC, &bytes).map_err(|fault| CheckpointError::damaged(&path, fault))?;
            return Ok(Some(Revision { number, text }));
        }
        Err(CheckpointError::damaged(&self.folder, "its newest revision is gone whenever it is read"))
    }

    /// Adds a revision after the one that was read last: 0 for none. Durable when it returns. None: somebody else changed it meanwhile.
    ///
    /// # Errors
    ///
    /// If the store does not answer, or it is not known whether it was written. Then the next one may come after it.
    pub async fn append(&self, after: u64, text: String) -> Result<Option<Revision>, CheckpointError> {
        let doubt = self.doubt().clone();
        let after = match doubt {
            Some((before, bytes)) if before == after => match self.add(after, &bytes).await? {
                true => after + 1,
                false => {
                    *self.doubt() = None;
                    return Ok(None);
                }
            },
            _ => after,
        };
        *self.doubt() = None;
        let bytes: Bytes = envelope::seal(MAGIC, &(self.store.nonce()?, &text))?;
        if bytes.len() as u64 > OBJECT_BYTES_MAX {
            let (what, value) = (format!("what {} says (bytes)", self.path(after + 1)), bytes.len() as u64);
            return Err(CheckpointError::TooLarge { what, value, limit: OBJECT_BYTES_MAX });
        }
        *self.doubt() = Some((after, bytes.clone()));
        let added = self.add(after, &bytes).await?;
        *self.doubt() = None;
        Ok(added.then_some(Revision { number: after + 1, text }))
    }

    /// Makes the object of a revision. False: somebody else changed it meanwhile. May be repeated after an error.
    async fn add(&self, after: u64, bytes: &Bytes) -> Result<bool, CheckpointError> {
        let number = after + 1;
        let path = self.path(number);
        if self.store.settle(&path, bytes).await? != Created::Written {
            return Ok(false);
        }
        let all = numbers(&self.store.list(&self.folder).await?);
        if all.last().is_some_and(|&highest| highest > number) {
            self.store.delete(&path).await?;
            return Ok(false);
        }
        let old = all.into_iter().filter(|&n| n + KEPT <= number).map(|n| self.path(n)).collect();
        if let Err(error) = self.store.delete_all(old).await {
            tracing::debug!(%error, "old revisions are left for the next change");
        }
        Ok(true)
    }

    fn doubt(&self) -> std::sync::MutexGuard<'_, Option<(u64, Bytes)>> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes all revisions, the oldest first: one that is read meanwhile is the newest.
    ///
    /// # Errors
    ///
    /// If the store does not answer; it may be repeated.
    pub async fn delete(&self) -> Result<(), CheckpointError> {
        for number in numbers(&self.store.list(&self.folder).await?) {
            self.store.delete(&self.path(number)).await?;
        }
        Ok(())
    }

    async fn highest(&self) -> Result<Option<u64>, CheckpointError> {
        Ok(numbers(&self.store.list(&self.folder).await?).last().copied())
    }

    fn path(&self, number: u64) -> Path {
        Path::from(format!("{}/{number:020}", self.folder))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    fn series() -> Series {
        let store = Store::new(Arc::new(InMemory::new())).of_tenant("a").expect("it is a name");
        Series::of_job(&store, "j").expect("it is a name")
    }

    #[tokio::test]
    async fn the_highest_revision_counts_and_old_ones_go() {
        let series = series();
        assert_eq!(series.newest().await.unwrap(), None);
        for n in 0..10 {
            let added = series.append(n, format!("text {n}")).await.unwrap().expect("nobody else writes");
            assert_eq!(added.number, n + 1);
            assert_eq!(series.newest().await.unwrap(), Some(added));
        }
        assert_eq!(series.store.list(&series.folder).await.unwrap().len() as u64, KEPT);
        series.delete().await.unwrap();
        assert_eq!(series.newest().await.unwrap(), None);
    }

    #[tokio::test]
    async fn of_two_that_change_what_both_have_read_one_is_told_that_it_lost() {
        let series = series();
        assert!(series.append(0, "mine".into()).await.unwrap().is_some());
        assert_eq!(series.append(0, "theirs".into()).await.unwrap(), None);
        assert_eq!(series.newest().await.unwrap().map(|r| r.text), Some("mine".to_owned()));
    }

    #[tokio::test]
    async fn one_that_slept_until_its_number_was_deleted_takes_its_revision_back() {
        let series = series();
        for n in 0..9 {
            series.append(n, n.to_string()).await.unwrap();
        }
        assert_eq!(series.append(1, "late".into()).await.unwrap(), None);
        assert_eq!(series.newest().await.unwrap().map(|r| r.number), Some(9));
        assert!(!series.store.exists(&series.path(2)).await.unwrap(), "what it wrote is taken back");
    }

    #[tokio::test]
    async fn a_change_after_one_of_which_it_is_not_known_whether_it_was_written_comes_after_it() {
        for was_written in [true, false] {
            let series = series();
            let bytes = envelope::seal(MAGIC, &([1_u8; 16], "lost on its way")).expect("it is text");
            *series.doubt() = Some((0, bytes.clone()));
            if was_written {
                assert!(series.add(0, &bytes).await.unwrap());
            }
            let next = series.append(0, "next".into()).await.unwrap().expect("nobody else writes");
            assert_eq!(next.number, 2, "{was_written}");
            assert_eq!(series.newest().await.unwrap(), Some(next));
        }
        // What somebody else has written instead is not taken for one's own.
        let series = series();
        *series.doubt() = Some((0, envelope::seal(MAGIC, &([1_u8; 16], "mine")).expect("it is text")));
        let theirs = Series::new(&series.store, series.folder.clone());
        assert!(theirs.append(0, "theirs".into()).await.unwrap().is_some());
        assert_eq!(series.append(0, "next".into()).await.unwrap(), None);
        assert_eq!(series.newest().await.unwrap().map(|r| r.text), Some("theirs".to_owned()));
    }

    #[tokio::test]
    async fn damage_is_named_and_never_taken_for_nothing() {
        let series = series();
        series.append(0, "text".into()).await.unwrap();
        let path = series.path(2);
        assert_eq!(series.store.settle(&path, &Bytes::from_static(b"rubbish")).await.unwrap(), Created::Written);
        let error = series.newest().await.expect_err("it is damaged").to_string();
        assert!(error.contains(&path.to_string()), "{error}");
    }
}
