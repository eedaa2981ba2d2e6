//! A store in memory that fails when a test says so: before a request was applied, or after it, so that only the answer is lost.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out and answered.
    Works,
    /// It fails and was not carried out.
    FailsBefore,
    /// It was carried out, and the answer is lost.
    FailsAfter,
    /// It is never carried out and never answered.
    HangsBefore,
    /// It was carried out and is never answered.
    HangsAfter,
    /// It is carried out when the store is released.
    Waits,
}

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Create or overwrite.
    Put,
    /// Read, or ask whether it is there.
    Get,
    /// Delete.
    Delete,
    /// List.
    List,
}

type Decide = dyn FnMut(Verb, &str) -> Fate + Send;

/// The store. Its clones are the same one.
#[derive(Clone)]
pub struct FaultyStore {
    objects: Arc<InMemory>,
    decide: Arc<Mutex<Box<Decide>>>,
    released: Arc<watch::Sender<bool>>,
}

impl FaultyStore {
    /// A store that works.
    pub fn new() -> Self {
        Self {
            objects: Arc::new(InMemory::new()),
            decide: Arc::new(Mutex::new(Box::new(|_, _| Fate::Works))),
            released: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Carries out what waits, and what will.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// From now on `decide` says what becomes of each request, by its verb and path.
    pub fn decide(&self, decide: impl FnMut(Verb, &str) -> Fate + Send + 'static) {
        *self.decide.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(decide);
    }

    /// From now on it works.
    pub fn heal(&self) {
        self.decide(|_, _| Fate::Works);
    }

    fn fate(&self, verb: Verb, path: &str) -> Fate {
        let mut decide = self.decide.lock().unwrap_or_else(PoisonError::into_inner);
        decide(verb, path)
    }

    async fn answer<T>(&self, verb: Verb, path: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.fate(verb, path) {
            Fate::Works => work.await,
            Fate::Waits => {
                let mut released = self.released.subscribe();
                // The sender is this store's own.
                let _ = released.wait_for(|released| *released).await;
                work.await
            }
            Fate::FailsBefore => Err(lost()),
            Fate::FailsAfter => {
                drop(work.await);
                Err(lost())
            }
            Fate::HangsBefore => std::future::pending().await,
            Fate::HangsAfter => {
                drop(work.await);
                std::future::pending().await
            }
        }
    }
}

impl Default for FaultyStore {
    fn default() -> Self {
        Self::new()
    }
}

/// What the store says when it fails.
pub const LOST: &str = "the cable was pulled out";

fn lost() -> Error {
    Error::Generic { store: "faulty", source: LOST.into() }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.answer(Verb::Put, path.as_ref(), self.objects.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(lost())
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.answer(Verb::Get, path.as_ref(), self.objects.get_opts(path, options)).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |path: Path| {
            let store = store.clone();
            async move {
                store.answer(Verb::Delete, path.as_ref(), store.objects.delete(&path)).await?;
                Ok(path)
            }
        };
        paths.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fate(Verb::List, prefix.map_or("", Path::as_ref)) {
            Fate::Works => self.objects.list(prefix),
            _ => futures::stream::iter([Err(lost())]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.map_or("", Path::as_ref);
        self.answer(Verb::List, path, self.objects.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(lost())
    }
}

/// A store whose listings are late: they leave out the last names in each folder, however often one asks. Everything else is that of the
/// store below.
#[derive(Clone, Debug)]
pub struct LateStore {
    objects: FaultyStore,
    late: usize,
}

impl LateStore {
    /// Listings leave out `late` names.
    pub fn new(objects: FaultyStore, late: usize) -> Self {
        Self { objects, late }
    }
}

impl fmt::Display for LateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LateStore")
    }
}

#[async_trait]
impl ObjectStore for LateStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.objects.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (listed, late) = (self.objects.list(prefix), self.late);
        let cut = async move {
            let mut all: Vec<_> = listed.collect().await;
            all.truncate(all.len().saturating_sub(late));
            futures::stream::iter(all)
        };
        futures::stream::once(cut).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
