//! What is in a store: the name of every object, and the few verbs by which all of them are touched.
//!
//! ```text
//! server/<n>                                              what `weir serve` knows of itself, revision n
//! tenants/<t>/tenant/<n>                                  quotas, grants and tokens of a tenant; `series.rs`
//! tenants/<t>/desired/<job>/<n>                           what a job of a server is to be
//! tenants/<t>/names/<plugin>/<version>                    which plugin has this name and version
//! tenants/<t>/plugins/<blake3>.wasm                       exact bytes
//! tenants/<t>/jobs/<job>/id/<n>                           the n-th history of this name; the highest counts
//! tenants/<t>/jobs/<job>/<job id>/log/<seq>               dense from 1; see log.rs
//! tenants/<t>/jobs/<job>/<job id>/committed/<epoch>       all sinks have committed this checkpoint
//! tenants/<t>/jobs/<job>/<job id>/boundary/<b>            entries up to b do not count any more
//! tenants/<t>/jobs/<job>/<job id>/pins/<name>             a copy of a manifest that is kept until it is deleted
//! tenants/<t>/jobs/<job>/<job id>/packs/<generation>-<epoch>-<node>.<subtask>-<blake3>
//! ```
//!
//! Whoever names no tenant is `default`. Numbers are decimal with 20 digits, so that a listing is in order. Nobody outside this file builds a name.
//!
//! The verbs are read, create-if-absent, put, delete and list. *Create* is where the protocol meets the store: its
//! answer is only ever "written" or "somebody's bytes are there" or "not known"; see [`Store::settle`].

use std::collections::HashSet;
use std::path::Path as FsPath;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use super::decide::{self, Seen, Settle};
use super::error::{Cause, CheckpointError};
use super::pack::{PACK_BYTES_MAX, PACK_TRAILER_BYTES, Pack, PackIndex, PackName, PackReader};
use crate::account::Account;
use crate::metrics::{StoreMetrics, StoreOperation};
use crate::model::{Epoch, JobId, name_fault};
use crate::storage::{LocalRoot, OpenError, Opened, StoreOptions, open};

/// The folder of all tenants.
const TENANTS: &str = "tenants";
/// The tenant of whoever names none.
pub const DEFAULT_TENANT: &str = "default";
/// How often one write is tried before it is left in doubt. The store's own client retries below this.
const ATTEMPTS_MAX: u32 = 4;
/// The largest object that is not a pack or a plugin, in bytes.
pub(crate) const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// The most names that a listing may give.
const LISTING_MAX: usize = 1 << 20;
/// The largest plugin, in bytes.
pub const PLUGIN_BYTES_MAX: u64 = 256 << 20;
/// How many bytes at the end of a pack are read first: its footer is in them unless it has more than a thousand chunks.
const PACK_TAIL_BYTES: u64 = 64 << 10;
/// How many objects are deleted at once.
const DELETES_AT_ONCE: usize = 8;
/// How many writers a probe sets on one name at once, and how often.
const PROBE_WRITERS: usize = 4;
const PROBE_ROUNDS: usize = 2;
const CREATES: &str = "refuse to create an object that exists (create-if-absent)";

/// A tenant's part of an object store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    /// Where it is on this machine, if it is: what a directory needs to be durable goes through this.
    local: Option<LocalRoot>,
    /// Its address, for messages.
    name: Arc<str>,
    /// Whose part: the folder of all its names.
    tenant: Arc<str>,
    nonces: Nonces,
    metrics: StoreMetrics,
    /// An account pays for its use.
    is_paid_for: bool,
}

impl std::fmt::Debug for Store {
    /// By its address alone: a client's own form shows keys for some stores.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store").field(&self.name).finish()
    }
}

#[derive(Clone, Debug)]
enum Nonces {
    System,
    #[cfg(test)]
    Seeded(Arc<std::sync::atomic::AtomicU64>),
}

/// How a create-if-absent ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// The bytes are there, durably.
    Written,
    /// These are there instead.
    Theirs(Bytes),
}

impl Store {
    /// Opens the store at `url`: a folder (`file://`, which is created), or a bucket (`s3://`, `gs://`, `az://`). A `file://`
    /// address is a path: absolute, or relative to `dir` (the folder of the pipeline file), taken as it is written, without
    /// percent-decoding. Credentials of the others come from the environment.
    ///
    /// Call [`probe`](Self::probe) before relying on it.
    pub fn open(url: &str, dir: &FsPath) -> Result<Self, CheckpointError> {
        Self::open_with(url, dir, &StoreOptions::default())
    }

    /// The same with options, which are no secrets.
    pub fn open_with(url: &str, dir: &FsPath, options: &StoreOptions) -> Result<Self, CheckpointError> {
        match open(url, dir, options) {
            Ok(opened) => Ok(Self::of(opened)),
            Err(OpenError::Fault(fault)) => {
                // What may hold a secret is cut off.
                let url = url.split(['?', '#']).next().unwrap_or_default();
                let url = url.rsplit_once('@').map_or(url, |(_, rest)| rest).to_owned();
                Err(CheckpointError::Url { url, fault: fault.fault, help: fault.help })
            }
            Err(OpenError::Folder(source)) => {
                let path = dir.join(url.trim_start_matches("file://"));
                Err(CheckpointError::unreachable("open the store at", path.display(), source))
            }
            Err(OpenError::Client(source)) => Err(CheckpointError::unreachable("open the store at", url, source)),
        }
    }

    /// A store on any implementation, which has to be durable when it says so and consistent in its listings.
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self::of(Opened::of(objects))
    }

    fn of(opened: Opened) -> Self {
        let Opened { objects, local, name, is_paid_for } = opened;
        let tenant = format!("{TENANTS}/{DEFAULT_TENANT}").into();
        let metrics = StoreMetrics::default();
        Self { objects, local, name, tenant, nonces: Nonces::System, metrics, is_paid_for }
    }

    /// The part of another tenant, with numbers of its own.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Name`] for what cannot be the name of a tenant.
    pub fn of_tenant(&self, tenant: &str) -> Result<Self, CheckpointError> {
        check_name("tenant", tenant)?;
        let metrics = StoreMetrics::default();
        Ok(Self { tenant: format!("{TENANTS}/{tenant}").into(), metrics, ..self.clone() })
    }

    /// The same part, with numbers of its own.
    #[must_use]
    pub fn counted_apart(&self) -> Self {
        Self { metrics: StoreMetrics::default(), ..self.clone() }
    }

    /// The same store, whose use an account pays for, by waiting: see [`AccountLimits`](crate::account::AccountLimits).
    /// One that was opened under an account stays under that.
    #[must_use]
    pub fn under(self, account: &Account) -> Self {
        let Self { objects, local, name, is_paid_for, .. } = self;
        let opened = Opened { objects, local, name, is_paid_for }.under(account);
        Self { objects: opened.objects, local: opened.local, name: opened.name, is_paid_for: true, ..self }
    }

    /// Its address, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the tenants that have something in this store, sorted.
    pub async fn list_tenants(&self) -> Result<Vec<String>, CheckpointError> {
        self.named_folders(&Path::from(TENANTS)).await
    }

    /// Folders whose names can be ours.
    async fn named_folders(&self, folder: &Path) -> Result<Vec<String>, CheckpointError> {
        let mut names = self.folders(folder).await?;
        names.retain(|name| name_fault(name).is_none());
        names.sort_unstable();
        Ok(names)
    }

    /// A name in the tenant's part.
    fn path(&self, rest: impl std::fmt::Display) -> Path {
        Path::from(format!("{}/{rest}", self.tenant))
    }

    /// How it answers.
    pub fn metrics(&self) -> &StoreMetrics {
        &self.metrics
    }

    /// Makes random identities repeatable.
    #[cfg(test)]
    pub(crate) fn seeded(mut self, seed: u64) -> Self {
        self.nonces = Nonces::Seeded(Arc::new(seed.into()));
        self
    }

    /// Sixteen bytes that nobody else has.
    pub(crate) fn nonce(&self) -> Result<[u8; 16], CheckpointError> {
        match &self.nonces {
            Nonces::System => {
                let mut nonce = [0; 16];
                getrandom::fill(&mut nonce).map_err(|error| CheckpointError::NoEntropy(error.to_string().into()))?;
                Ok(nonce)
            }
            #[cfg(test)]
            Nonces::Seeded(state) => {
                let state = state.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let mut nonce = [0; 16];
                nonce.copy_from_slice(&blake3::hash(&state.to_le_bytes()).as_bytes()[..16]);
                Ok(nonce)
            }
        }
    }

    /// Tries out what the protocol rests on: create-if-absent refuses an existing object and leaves it as it is, and lets one of
    /// several writers win who come at once; what was written is read back and listed, what was deleted is gone. Leaves
    /// nothing behind.
    pub async fn probe(&self) -> Result<(), CheckpointError> {
        let folder = self.path("probe");
        let name = blake3::Hash::from_bytes(*blake3::hash(&self.nonce()?).as_bytes()).to_hex();
        let path = |round: usize| Path::from(format!("{folder}/{}-{round}", &name[..32]));
        let mut result = Ok(());
        for round in 0..PROBE_ROUNDS {
            if result.is_ok() {
                result = self.race_at(&path(round)).await;
            }
        }
        if result.is_ok() {
            result = self.probe_at(&folder, &path(PROBE_ROUNDS)).await;
        }
        let cleaned = self.delete_all((0..=PROBE_ROUNDS).map(path).collect()).await;
        result.and(cleaned)
    }

    fn promise(&self, holds: bool, promise: &'static str) -> Result<(), CheckpointError> {
        if holds { Ok(()) } else { Err(CheckpointError::Unsuitable { store: self.name.to_string(), promise }) }
    }

    /// What a create said: it won, it lost, or the store cannot do it or did not answer.
    fn probed(&self, path: &Path, created: Result<(), object_store::Error>) -> Result<bool, CheckpointError> {
        match created {
            Ok(()) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
            Err(object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) => {
                self.promise(false, CREATES).map(|()| false)
            }
            Err(source) => Err(CheckpointError::unreachable("create", path, source)),
        }
    }

    /// Several writers create one object at once: at most one may be told that it has, and its bytes are those that are there.
    /// (None, if a client repeated a request of its own that had succeeded: then the answer is lost, and the bytes decide.)
    async fn race_at(&self, path: &Path) -> Result<(), CheckpointError> {
        let bytes = |writer: usize| Bytes::from(format!("writer {writer}"));
        let creates = (0..PROBE_WRITERS).map(|writer| self.create(path, bytes(writer)));
        let mut winners = Vec::new();
        for (writer, created) in futures::future::join_all(creates).await.into_iter().enumerate() {
            if self.probed(path, created)? {
                winners.push(writer);
            }
        }
        let found = self.read(path, 64).await?;
        let of = |writer: usize| found.as_ref() == Some(&bytes(writer));
        let holds = match winners[..] {
            [] => (0..PROBE_WRITERS).any(of),
            [winner] => of(winner),
            _ => false,
        };
        self.promise(holds, "let exactly one of several writers create an object (create-if-absent)")
    }

    async fn probe_at(&self, folder: &Path, path: &Path) -> Result<(), CheckpointError> {
        let first = self.create(path, Bytes::from_static(b"first")).await;
        self.probed(path, first)?;
        let second = self.create(path, Bytes::from_static(b"second")).await;
        let refused = !self.probed(path, second)?;
        self.promise(refused && self.read(path, 64).await?.as_deref() == Some(b"first"), CREATES)?;
        let is_listed = |listed: &[String]| path.filename().is_some_and(|name| listed.iter().any(|l| l == name));
        self.promise(is_listed(&self.list(folder).await?), "list what was just written")?;
        self.put(path, PutPayload::from_static(b"third")).await?;
        self.promise(self.read(path, 64).await?.as_deref() == Some(b"third"), "give back what was written last")?;
        self.delete(path).await?;
        self.promise(self.read(path, 64).await?.is_none(), "forget what was deleted")?;
        self.promise(!is_listed(&self.list(folder).await?), "list without what was deleted")
    }

    /// The bytes of an object; none if there is none. Larger ones than `limit` are refused before they are read.
    pub(crate) async fn read(&self, path: &Path, limit: u64) -> Result<Option<Bytes>, CheckpointError> {
        let failed = |source| CheckpointError::unreachable("read", path, source);
        let get = async {
            let object = self.objects.get_opts(path, GetOptions::default()).await?;
            let size = object.meta.size;
            let bytes = if size > limit { None } else { Some(object.bytes().await?) };
            Ok((size, bytes))
        };
        match self.metrics.timed(StoreOperation::Get, get).await {
            Ok((_, Some(bytes))) => Ok(Some(bytes)),
            Ok((size, None)) => {
                let fault = format!("it has {size} bytes, over the limit of {limit}");
                Err(CheckpointError::damaged(path, fault))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(failed(source)),
        }
    }

    /// Whether there is an object.
    pub(crate) async fn exists(&self, path: &Path) -> Result<bool, CheckpointError> {
        Ok(self.length(path).await?.is_some())
    }

    /// How long an object is; none if there is none.
    pub(crate) async fn length(&self, path: &Path) -> Result<Option<u64>, CheckpointError> {
        match self.metrics.timed(StoreOperation::Head, self.objects.head(path)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(CheckpointError::unreachable("look for", path, source)),
        }
    }

    /// Create-if-absent, once. Every error means *unknown*, also "already exists": a client may have repeated a request of
    /// its own that had succeeded.
    async fn create(&self, path: &Path, bytes: Bytes) -> Result<(), object_store::Error> {
        let put = self.objects.put_opts(path, bytes.into(), PutMode::Create.into());
        self.metrics.timed(StoreOperation::Create, put).await.map(|_| ())
    }

    /// Create-if-absent until the outcome is known, a few times at most. `bytes` have to differ from what anybody else would
    /// write there, unless it does not matter who wrote.
    ///
    /// `Written` means durable, also when it was found out by reading: then the directory is synced. After an error,
    /// which is always [`CheckpointError::InDoubt`], the write may still take place, even later. Repeating the same call
    /// is safe and the only thing to do.
    pub(crate) async fn settle(&self, path: &Path, bytes: &Bytes) -> Result<Created, CheckpointError> {
        let mut last: Option<Cause> = None;
        for _ in 0..ATTEMPTS_MAX {
            let put = self.create(path, bytes.clone()).await;
            if put.is_ok() {
                return Ok(Created::Written);
            }
            #[cfg(test)]
            if let Err(object_store::Error::AlreadyExists { .. }) = put {
                if crate::simulation::mutant(crate::simulation::Mutant::ExistsMeansLost) {
                    return Ok(Created::Theirs(bytes.clone()));
                }
                if crate::simulation::mutant(crate::simulation::Mutant::ExistsMeansWritten) {
                    return Ok(Created::Written);
                }
            }
            last = put.err().map(Into::into);
            let found = self.read(path, OBJECT_BYTES_MAX).await;
            let seen = match &found {
                Ok(Some(found)) if found == bytes => Seen::Own,
                Ok(Some(_)) => Seen::Another,
                Ok(None) => Seen::Nothing,
                Err(_) => Seen::Unread,
            };
            match (decide::settle(seen), found) {
                (Settle::Written, _) => match self.make_durable(path) {
                    Ok(()) => return Ok(Created::Written),
                    Err(error) => last = Some(error.into()),
                },
                (Settle::Lost, Ok(Some(theirs))) => return Ok(Created::Theirs(theirs)),
                (_, Err(error)) => last = Some(error.into()),
                _ => {}
            }
        }
        Err(CheckpointError::InDoubt { object: path.to_string(), source: last })
    }

    /// Makes the entry of an object that was found, not written, survive a loss of power.
    pub(crate) fn make_durable(&self, path: &Path) -> Result<(), CheckpointError> {
        let Some(local) = &self.local else { return Ok(()) };
        local.sync_folder_of(path).map_err(|source| CheckpointError::unreachable("sync", path, source))
    }

    /// Writes an object whatever is there. Only for objects whose name stands for their content: repeating is harmless.
    async fn put(&self, path: &Path, payload: PutPayload) -> Result<(), CheckpointError> {
        let mut attempt = 1;
        loop {
            match self.metrics.timed(StoreOperation::Put, self.objects.put(path, payload.clone())).await {
                Ok(_) => return Ok(()),
                Err(source) if attempt == ATTEMPTS_MAX => {
                    return Err(CheckpointError::unreachable("write", path, source));
                }
                Err(_) => attempt += 1,
            }
        }
    }

    /// Deletes an object; one that is not there is deleted.
    pub(crate) async fn delete(&self, path: &Path) -> Result<(), CheckpointError> {
        match self.metrics.timed(StoreOperation::Delete, self.objects.delete(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(CheckpointError::unreachable("delete", path, source)),
        }
    }

    /// Deletes many, in any order; stops at the first failure.
    pub(crate) async fn delete_all(&self, paths: Vec<Path>) -> Result<(), CheckpointError> {
        futures::stream::iter(paths)
            .map(|path| async move { self.delete(&path).await })
            .buffer_unordered(DELETES_AT_ONCE)
            .try_collect()
            .await
    }

    /// The names of the objects directly under a folder, sorted.
    pub(crate) async fn list(&self, folder: &Path) -> Result<Vec<String>, CheckpointError> {
        self.listed(folder, |object| {
            let mut parts = object.location.prefix_match(folder)?;
            let name = parts.next()?;
            parts.next().is_none().then(|| name.as_ref().to_owned())
        })
        .await
    }

    /// The paths of all objects below a folder, sorted.
    async fn list_deep(&self, folder: &Path) -> Result<Vec<String>, CheckpointError> {
        self.listed(folder, |object| Some(object.location.to_string())).await
    }

    /// What `found` makes of each object below a folder, sorted.
    async fn listed<T: Ord>(
        &self,
        folder: &Path,
        found: impl Fn(&ObjectMeta) -> Option<T>,
    ) -> Result<Vec<T>, CheckpointError> {
        let list = async {
            let mut all = Vec::new();
            let mut objects = self.objects.list(Some(folder));
            while let (Some(object), true) = (objects.try_next().await?, all.len() <= LISTING_MAX) {
                all.extend(found(&object));
            }
            Ok(all)
        };
        let listed = self.metrics.timed(StoreOperation::List, list).await;
        let mut all = listed.map_err(|source| CheckpointError::unreachable("list", folder, source))?;
        if all.len() > LISTING_MAX {
            let what = format!("the number of objects under {folder}");
            return Err(CheckpointError::TooLarge { what, value: all.len() as u64, limit: LISTING_MAX as u64 });
        }
        all.sort_unstable();
        Ok(all)
    }

    /// The names of the folders directly under a folder, sorted.
    async fn folders(&self, folder: &Path) -> Result<Vec<String>, CheckpointError> {
        let listed = self.metrics.timed(StoreOperation::List, self.objects.list_with_delimiter(Some(folder))).await;
        let listed = listed.map_err(|source| CheckpointError::unreachable("list", folder, source))?;
        Ok(listed.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)).collect())
    }

    /// The names of the jobs that ran in this store, sorted.
    pub async fn list_jobs(&self) -> Result<Vec<String>, CheckpointError> {
        self.named_folders(&self.path("jobs")).await
    }

    /// Stores a plugin under the hash of its bytes. Durable when it returns.
    pub async fn put_plugin(&self, bytes: Bytes) -> Result<[u8; 32], CheckpointError> {
        if bytes.len() as u64 > PLUGIN_BYTES_MAX {
            let what = "the plugin (bytes)".to_owned();
            return Err(CheckpointError::TooLarge { what, value: bytes.len() as u64, limit: PLUGIN_BYTES_MAX });
        }
        let digest = *blake3::hash(&bytes).as_bytes();
        // Not skipped when it exists: what is there may be damaged, and this mends it.
        self.put(&self.plugin(digest), bytes.into()).await?;
        Ok(digest)
    }

    /// The bytes of a plugin, checked against its digest.
    pub async fn get_plugin(&self, digest: [u8; 32]) -> Result<Bytes, CheckpointError> {
        let path = self.plugin(digest);
        match self.read(&path, PLUGIN_BYTES_MAX).await? {
            None => Err(CheckpointError::Missing { object: path.to_string(), by: "the checkpoint".into() }),
            Some(bytes) if *blake3::hash(&bytes).as_bytes() == digest => Ok(bytes),
            Some(_) => Err(CheckpointError::damaged(path, "its content does not match its name")),
        }
    }

    /// Deletes a plugin: whoever asks knows that nothing needs it.
    pub async fn delete_plugin(&self, digest: [u8; 32]) -> Result<(), CheckpointError> {
        self.delete(&self.plugin(digest)).await
    }

    /// The digest in hexadecimal and the size of every plugin.
    pub async fn list_plugins(&self) -> Result<Vec<(String, u64)>, CheckpointError> {
        self.listed(&self.path("plugins"), |object| {
            let digest = object.location.filename()?.strip_suffix(".wasm")?;
            blake3::Hash::from_hex(digest).is_ok().then(|| (digest.to_owned(), object.size))
        })
        .await
    }

    fn plugin(&self, digest: [u8; 32]) -> Path {
        self.path(format_args!("plugins/{}.wasm", blake3::Hash::from_bytes(digest).to_hex()))
    }

    /// The folder with everything of a job, of all its histories.
    fn job(&self, job: &str) -> Path {
        self.path(format_args!("jobs/{job}"))
    }

    /// The folder with the identities of a job's histories.
    pub(crate) fn ids(&self, job: &str) -> Path {
        self.path(format_args!("jobs/{job}/id"))
    }

    /// The object with the identity of a job's n-th history.
    pub(crate) fn id(&self, job: &str, n: u64) -> Path {
        self.path(format_args!("jobs/{job}/id/{n:020}"))
    }

    /// Deletes everything of a job that does not run and will not again: its histories, its state, its savepoints.
    pub async fn purge_job(&self, job: &str) -> Result<(), CheckpointError> {
        check_name("job", job)?;
        let objects = self.list_deep(&self.job(job)).await?;
        self.delete_all(objects.into_iter().map(Path::from).collect()).await
    }

    /// Deletes everything of the tenant whose part this is, but for what it is: that goes [last](super::Series::delete), so that what
    /// was begun is not forgotten.
    pub async fn purge_tenant(&self) -> Result<(), CheckpointError> {
        let kept = format!("{}/", self.tenant_folder());
        let mut objects = self.list_deep(&Path::from(&*self.tenant)).await?;
        objects.retain(|object| !object.starts_with(&kept));
        self.delete_all(objects.into_iter().map(Path::from).collect()).await
    }

    /// The folder with the revisions of what the server knows of itself.
    pub(crate) fn server_folder(&self) -> Path {
        Path::from("server")
    }

    /// The folder with the revisions of what the tenant is.
    pub(crate) fn tenant_folder(&self) -> Path {
        self.path("tenant")
    }

    /// The folder with the revisions of what a job is to be.
    pub(crate) fn desired_folder(&self, job: &str) -> Path {
        self.path(format_args!("desired/{job}"))
    }

    /// The names of the jobs of which it is known what they are to be, sorted.
    pub async fn list_desired(&self) -> Result<Vec<String>, CheckpointError> {
        self.named_folders(&self.path("desired")).await
    }

    /// The object that says which plugin has a name and a version.
    pub(crate) fn named(&self, name: &str, version: &str) -> Path {
        self.path(format_args!("names/{name}/{version}"))
    }

    /// All names of plugins, with their versions.
    pub(crate) async fn list_named(&self) -> Result<Vec<(String, String)>, CheckpointError> {
        let folder = self.path("names");
        let paths = self.list_deep(&folder).await?;
        let prefix = format!("{folder}/");
        let split = |path: &String| {
            let (name, version) = path.strip_prefix(&prefix)?.split_once('/')?;
            Some((name.to_owned(), version.to_owned()))
        };
        Ok(paths.iter().filter_map(split).collect())
    }

    /// Any object of the job that shows that it ran and got past its very first claim; none if there is none. Packs that were
    /// copied from elsewhere show only that an import was begun.
    pub(crate) async fn evidence(&self, job: &str) -> Result<Option<String>, CheckpointError> {
        let first_claim = format!("/log/{:020}", 1);
        let is_evidence = |path: &String| !path.ends_with(&first_claim) && !path.contains("/packs/0-");
        Ok(self.list_deep(&self.job(job)).await?.into_iter().find(is_evidence))
    }
}

fn wrong_size(now: u64, then: u64) -> String {
    format!("it has {now} bytes, and {then} were written")
}

/// Refuses what is not the name of a job or a pin.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), CheckpointError> {
    match name_fault(name) {
        Some(fault) => Err(CheckpointError::Name { what, name: name.to_owned(), fault }),
        None => Ok(()),
    }
}

/// The numbers among the names of a listing, ascending; what is not a number of 20 digits is not ours.
pub(crate) fn numbers(names: &[String]) -> Vec<u64> {
    names.iter().filter(|name| name.len() == 20).filter_map(|name| name.parse().ok()).collect()
}

/// One history of one job in a store. Cheap to clone; tasks get a clone to put their packs.
#[derive(Clone, Debug)]
pub struct JobStore {
    store: Store,
    job: Arc<str>,
    id: JobId,
    /// What this process put and no manifest names yet: [`Run::publish`](super::Run::publish) names nothing else (I1).
    durable: Arc<Mutex<HashSet<PackName>>>,
}

impl JobStore {
    pub(crate) fn new(store: &Store, job: &str, id: JobId) -> Self {
        Self { store: store.clone(), job: job.into(), id, durable: Arc::default() }
    }

    /// The store that it is in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// The job's history.
    pub fn id(&self) -> JobId {
        self.id
    }

    fn path(&self, rest: impl std::fmt::Display) -> Path {
        self.store.path(format_args!("jobs/{}/{}/{rest}", self.job, self.id))
    }

    pub(crate) fn log_folder(&self) -> Path {
        self.path("log")
    }

    pub(crate) fn log(&self, seq: u64) -> Path {
        self.path(format_args!("log/{seq:020}"))
    }

    pub(crate) fn committed_folder(&self) -> Path {
        self.path("committed")
    }

    pub(crate) fn committed(&self, epoch: Epoch) -> Path {
        self.path(format_args!("committed/{:020}", epoch.0))
    }

    pub(crate) fn boundary_folder(&self) -> Path {
        self.path("boundary")
    }

    pub(crate) fn boundary(&self, b: u64) -> Path {
        self.path(format_args!("boundary/{b:020}"))
    }

    pub(crate) fn pins_folder(&self) -> Path {
        self.path("pins")
    }

    pub(crate) fn pin(&self, name: &str) -> Path {
        self.path(format_args!("pins/{name}"))
    }

    pub(crate) fn packs_folder(&self) -> Path {
        self.path("packs")
    }

    pub(crate) fn pack(&self, name: &PackName) -> Path {
        self.path(format_args!("packs/{name}"))
    }

    /// Makes the folders, and makes them survive a loss of power, also those that an earlier run made and did not live to
    /// sync: `object_store` syncs only the folders that it makes itself, and after it has made them.
    pub(crate) fn prepare(&self) -> Result<(), CheckpointError> {
        let Some(local) = &self.store.local else { return Ok(()) };
        let folders = [
            self.store.ids(&self.job),
            self.log_folder(),
            self.committed_folder(),
            self.boundary_folder(),
            self.pins_folder(),
            self.packs_folder(),
        ];
        folders.iter().try_for_each(|folder| {
            local.make_folder(folder).map_err(|source| CheckpointError::unreachable("make the folder", folder, source))
        })
    }

    /// Removes what uploads of earlier runs left half-written on a local disk. They are fenced: nothing that
    /// they still upload can be named by a manifest.
    pub(crate) fn sweep(&self, generation: crate::model::Generation) -> Result<(), CheckpointError> {
        let Some(local) = &self.store.local else { return Ok(()) };
        let folder = self.packs_folder();
        let is_old = |name: &str| name.parse::<PackName>().is_ok_and(|name| name.generation() < generation);
        local.sweep(&folder, is_old).map_err(|source| CheckpointError::unreachable("sweep", &folder, source))
    }

    /// What [`sweep`](Self::sweep) would remove, with its length.
    pub(crate) fn half_written(
        &self,
        generation: crate::model::Generation,
    ) -> Result<Vec<(String, u64)>, CheckpointError> {
        let Some(local) = &self.store.local else { return Ok(Vec::new()) };
        let folder = self.packs_folder();
        let is_old = |name: &str| name.parse::<PackName>().is_ok_and(|name| name.generation() < generation);
        let found = local.half_written(&folder, is_old);
        let found = found.map_err(|source| CheckpointError::unreachable("sweep", &folder, source))?;
        Ok(found.into_iter().map(|(file, bytes)| (format!("{folder}/{file}"), bytes)).collect())
    }

    /// Keeps the pipeline file that a run was started with, for whoever looks later. Nothing reads it back to decide.
    pub async fn put_spec(&self, text: &str) -> Result<(), CheckpointError> {
        self.store.put(&self.path("spec.toml"), Bytes::copy_from_slice(text.as_bytes()).into()).await
    }

    /// Writes a pack. Durable when it returns; it belongs to nobody until a manifest names it.
    ///
    /// May be repeated: the name stands for the content. It is written even if it is there already (I8).
    pub async fn put_pack(&self, pack: &Pack) -> Result<(), CheckpointError> {
        #[cfg(test)]
        if crate::simulation::mutant(crate::simulation::Mutant::ManifestBeforePack)
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let (store, path, payload) = (self.store.clone(), self.pack(&pack.name), pack.payload.clone());
            tokio::spawn(async move { store.put(&path, payload).await });
            self.durable.lock().unwrap_or_else(PoisonError::into_inner).insert(pack.name.clone());
            return Ok(());
        }
        // A pack without chunks only says what is cleared: no manifest ever names it. And one that is carried by its name is no object.
        if pack.chunks > 0 && pack.name.inline().is_none() {
            self.store.put(&self.pack(&pack.name), pack.payload.clone()).await?;
        }
        self.durable.lock().unwrap_or_else(PoisonError::into_inner).insert(pack.name.clone());
        Ok(())
    }

    /// Whether a pack is in the store: remembered, or looked up for one that another process put.
    pub(crate) async fn has_pack(&self, name: &PackName) -> Result<bool, CheckpointError> {
        if self.durable.lock().unwrap_or_else(PoisonError::into_inner).contains(name) {
            return Ok(true);
        }
        let path = self.pack(name);
        if !self.store.exists(&path).await? {
            return Ok(false);
        }
        self.store.make_durable(&path)?;
        Ok(true)
    }

    /// Forgets the packs of attempts up to `epoch`: manifests name them now, or they are garbage.
    pub(crate) fn forget_packs(&self, epoch: Epoch) {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner).retain(|pack| pack.epoch() > epoch);
    }

    /// Reads a pack and checks its outline.
    pub(crate) async fn open_pack(&self, name: &PackName) -> Result<PackReader, CheckpointError> {
        let content = self.read_pack(name).await?;
        PackReader::open(name, content).map_err(|fault| CheckpointError::damaged(self.pack(name), fault))
    }

    /// Reads a pack as it is.
    pub(crate) async fn read_pack(&self, name: &PackName) -> Result<Bytes, CheckpointError> {
        let path = self.pack(name);
        let content = match name.inline() {
            Some(content) => Some(content.clone()),
            None => self.store.read(&path, PACK_BYTES_MAX).await?,
        };
        let missing = || CheckpointError::Missing { object: path.to_string(), by: "the checkpoint".into() };
        let content = content.ok_or_else(missing)?;
        let (now, then) = (content.len() as u64, name.size().map(|size| size.stored));
        match then.filter(|then| *then != now) {
            Some(then) => Err(CheckpointError::damaged(path, wrong_size(now, then))),
            None => Ok(content),
        }
    }

    /// Writes a pack as it was read elsewhere. Durable when it returns.
    pub(crate) async fn put_pack_bytes(&self, name: &PackName, content: Bytes) -> Result<(), CheckpointError> {
        self.store.put(&self.pack(name), content.into()).await
    }

    /// Reads the footer of a pack and checks it.
    pub(crate) async fn pack_index(&self, name: &PackName) -> Result<PackIndex, CheckpointError> {
        let damaged = |fault| self.damaged_pack(name, fault);
        let size = match (name.size(), name.inline()) {
            (_, Some(content)) => content.len() as u64,
            (Some(size), _) => size.stored,
            (None, _) => self.pack_bytes(name).await?,
        };
        let tail_start = size.saturating_sub(PACK_TAIL_BYTES);
        let tail = self.pack_range(name, tail_start..size).await?;
        let footer = PackIndex::footer_bytes(name, &tail).map_err(damaged)?;
        let after = tail.len() - PACK_TRAILER_BYTES;
        let footer = match after.checked_sub(footer) {
            Some(start) => tail.slice(start..after),
            None => {
                let end = size - PACK_TRAILER_BYTES as u64;
                let start = end.checked_sub(footer as u64);
                let start = start.ok_or_else(|| damaged(format!("it has {size} bytes, fewer than its parts")))?;
                self.pack_range(name, start..end).await?
            }
        };
        PackIndex::open(name, &footer, size).map_err(damaged)
    }

    /// Some bytes of a pack.
    pub(crate) async fn pack_range(
        &self,
        name: &PackName,
        range: std::ops::Range<u64>,
    ) -> Result<Bytes, CheckpointError> {
        let wanted = range.end.saturating_sub(range.start);
        let bytes = match name.inline() {
            Some(content) if range.end <= content.len() as u64 => {
                Ok(content.slice(range.start as usize..range.end as usize))
            }
            Some(_) => Ok(Bytes::new()),
            None if wanted == 0 => Ok(Bytes::new()),
            None => {
                let path = self.pack(name);
                let get = self.store.objects.get_range(&path, range.clone());
                self.store.metrics.timed(StoreOperation::Get, get).await
            }
        };
        match bytes {
            Ok(bytes) if bytes.len() as u64 == wanted => Ok(bytes),
            // Missing, shorter than it should be, or out of reach? The error does not tell in the same way on every store.
            bytes => match self.pack_bytes(name).await? {
                size if size < range.end => {
                    let then = name.size().map_or(range.end, |size| size.stored);
                    Err(self.damaged_pack(name, wrong_size(size, then)))
                }
                _ => Err(match bytes {
                    Err(source) => CheckpointError::unreachable("read", self.pack(name), source),
                    Ok(bytes) => self.damaged_pack(name, format!("it gave {} bytes for {wanted}", bytes.len())),
                }),
            },
        }
    }

    /// How many bytes a pack has, as the store says.
    async fn pack_bytes(&self, name: &PackName) -> Result<u64, CheckpointError> {
        let path = self.pack(name);
        if let Some(content) = name.inline() {
            return Ok(content.len() as u64);
        }
        match self.store.metrics.timed(StoreOperation::Head, self.store.objects.head(&path)).await {
            Ok(object) => Ok(object.size),
            Err(object_store::Error::NotFound { .. }) => {
                Err(CheckpointError::Missing { object: path.to_string(), by: "the checkpoint".into() })
            }
            Err(source) => Err(CheckpointError::unreachable("look for", path, source)),
        }
    }

    pub(crate) fn damaged_pack(&self, name: &PackName, fault: String) -> CheckpointError {
        CheckpointError::damaged(self.pack(name), fault)
    }
}
