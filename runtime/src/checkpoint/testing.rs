//! A store that fails on purpose, and a scheduler that is a seed: what the simulation runs on.
//!
//! Faults that must be survived, at any operation of any actor:
//! - a request fails and was not applied;
//! - a put or a deletion fails and *was* applied (the answer was lost);
//! - a put fails, and is applied later, at any time (it was under way);
//! - the program stops before or after the operation, for ever;
//! - the program sleeps while others go on.
//!
//! An object, once written, is not damaged here: that has tests of its own.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn chance(&mut self, per_thousand: u64) -> bool {
        self.below(1000) < per_thousand
    }
}

/// Told of everything that has become so in the store.
pub(crate) trait Witness: Send {
    /// An object is now there; `new` if none was before.
    fn written(&mut self, objects: &InMemory, path: &Path, bytes: &Bytes, new: bool);
    /// An object is about to go.
    fn deleting(&mut self, objects: &InMemory, path: &Path);
}

struct DelayedPut {
    path: Path,
    payload: PutPayload,
    options: PutOptions,
}

struct State {
    objects: Arc<InMemory>,
    random: Random,
    witness: Box<dyn Witness>,
    delayed: Vec<DelayedPut>,
    /// Faults per thousand operations, of each kind.
    faults: u64,
    /// Actors that are dead, and after how many more operations the others die.
    lives: Vec<Option<u64>>,
}

/// A world with one store and several actors that see it.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

impl World {
    pub(crate) fn new(seed: u64, faults: u64, witness: Box<dyn Witness>) -> Self {
        let objects = Arc::new(InMemory::new());
        let random = Random(seed);
        Self(Arc::new(Mutex::new(State { objects, random, witness, delayed: Vec::new(), faults, lives: Vec::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store as one actor sees it, and dies after so many operations, if at all.
    pub(crate) fn actor(&self, dies_after: Option<u64>) -> FaultyStore {
        let mut state = self.state();
        state.lives.push(dies_after);
        FaultyStore { world: self.clone(), actor: state.lives.len() - 1 }
    }

    pub(crate) fn is_dead(&self, store: &FaultyStore) -> bool {
        self.state().lives[store.actor] == Some(0)
    }

    pub(crate) fn below(&self, n: u64) -> u64 {
        self.state().random.below(n)
    }

    pub(crate) fn chance(&self, per_thousand: u64) -> bool {
        self.state().random.chance(per_thousand)
    }

    pub(crate) fn objects(&self) -> Arc<InMemory> {
        self.state().objects.clone()
    }

    /// Applies one put that was under way, if there is one.
    pub(crate) fn deliver_one(&self) -> bool {
        let mut state = self.state();
        if state.delayed.is_empty() {
            return false;
        }
        let count = state.delayed.len() as u64;
        let pick = state.random.below(count) as usize;
        let put = state.delayed.swap_remove(pick);
        let _ = state.put(&put.path, put.payload, put.options);
        true
    }

    /// From now on everything works, and what was under way has arrived.
    pub(crate) fn heal(&self) {
        while self.deliver_one() {}
        self.state().faults = 0;
    }
}

impl State {
    fn put(&mut self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let objects = self.objects.clone();
        let is_new = objects.head(path).now_or_never().expect("memory does not wait").is_err();
        let bytes: Bytes = payload.iter().flat_map(|part| part.iter().copied()).collect::<Vec<_>>().into();
        let result = objects.put_opts(path, payload, options).now_or_never().expect("memory does not wait");
        if result.is_ok() {
            self.witness.written(&objects, path, &bytes, is_new);
        }
        result
    }
}

/// See [`World::actor`].
#[derive(Clone)]
pub(crate) struct FaultyStore {
    world: World,
    actor: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Works,
    FailsBefore,
    FailsAfter,
    FailsAndComesLater,
}

impl FaultyStore {
    /// Others may run here; the program may stop here.
    async fn step(&self) {
        let mut yielded = false;
        futures::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let is_dead = match &mut self.world.state().lives[self.actor] {
            None => false,
            Some(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
        };
        if is_dead {
            futures::future::pending::<()>().await;
        }
    }

    fn fate(&self, is_put: bool) -> Fate {
        let mut state = self.world.state();
        let faults = state.faults;
        match state.random.below(1000) {
            n if n < faults => Fate::FailsBefore,
            n if n < 2 * faults => Fate::FailsAfter,
            n if n < 3 * faults && is_put => Fate::FailsAndComesLater,
            _ => Fate::Works,
        }
    }
}

fn lost() -> Error {
    Error::Generic { store: "faulty", source: "the answer was lost".into() }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyStore({})", self.actor)
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.step().await;
        let fate = self.fate(true);
        let result = match fate {
            Fate::FailsBefore => Err(lost()),
            Fate::FailsAndComesLater => {
                self.world.state().delayed.push(DelayedPut { path: path.clone(), payload, options });
                Err(lost())
            }
            Fate::Works => self.world.state().put(path, payload, options),
            Fate::FailsAfter => self.world.state().put(path, payload, options).and(Err(lost())),
        };
        self.step().await;
        result
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(lost())
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.step().await;
        if self.fate(false) != Fate::Works {
            return Err(lost());
        }
        let objects = self.world.objects();
        let result = objects.get_opts(path, options).await;
        self.step().await;
        result
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        paths
            .then(move |path| {
                let store = store.clone();
                async move {
                    let path = path?;
                    store.step().await;
                    let fate = store.fate(false);
                    if fate != Fate::FailsBefore {
                        let mut state = store.world.state();
                        let objects = state.objects.clone();
                        if objects.head(&path).now_or_never().expect("memory does not wait").is_ok() {
                            state.witness.deleting(&objects, &path);
                            let _ = objects.delete(&path).now_or_never().expect("memory does not wait");
                        }
                    }
                    store.step().await;
                    if fate == Fate::Works { Ok(path) } else { Err(lost()) }
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            store.step().await;
            let works = store.fate(false) == Fate::Works;
            let listed = store.world.objects().list(prefix.as_ref()).collect::<Vec<_>>().await;
            store.step().await;
            futures::stream::iter(if works { listed } else { vec![Err(lost())] })
        };
        futures::stream::once(listed).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.step().await;
        self.world.objects().list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(lost())
    }
}

/// A store that takes everything for new: what `probe` has to find out.
#[derive(Debug)]
pub(crate) struct Overwriting(pub(crate) InMemory);

impl fmt::Display for Overwriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Overwriting")
    }
}

#[async_trait]
impl ObjectStore for Overwriting {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        options.mode = PutMode::Overwrite;
        self.0.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, o: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, o).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

/// A program of an actor.
pub(crate) type Program = Pin<Box<dyn Future<Output = ()>>>;

/// Runs a future that never waits for anything but [`FaultyStore::step`] or a store in memory.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    for _ in 0..10_000_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
    panic!("the program does not end");
}

/// Polls a program once. True: it has ended.
pub(crate) fn poll(program: &mut Program) -> bool {
    program.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// An empty history in a store in memory.
pub(crate) fn job_store() -> super::JobStore {
    let store = super::Store::new(Arc::new(InMemory::new())).seeded(1);
    super::JobStore::new(&store, "job", crate::model::JobId([7; 16]))
}

/// Flips a bit of an object.
pub(crate) fn flip(store: &super::JobStore, path: &Path, byte: usize) {
    let found = run(store.store().read(path, u64::MAX)).expect("memory answers").expect("it is there");
    let mut bytes = found.to_vec();
    bytes[byte] ^= 1;
    run(store.store().delete(path)).expect("memory answers");
    run(store.store().settle(path, &bytes.into())).expect("memory answers");
}

/// A manifest with a source, an operator with state and a sink with a committable.
pub(crate) fn a_manifest(epoch: u64, generation: u64) -> super::Manifest {
    use crate::model::{Committable, Epoch, Generation, JobId, NodeName, Scope, SegmentKind, SplitPosition};
    let segment = super::SegmentRef {
        scope: Scope::KeyGroup(7),
        kind: SegmentKind::Base,
        origin: 0,
        pack: format!("{generation}-{epoch}-count.0-{}", "ab".repeat(32)).parse().expect("it is a name"),
        first_chunk: 0,
        chunks: 2,
        bytes: 10,
        layout: super::Layout::Chunks,
    };
    let position = SplitPosition { split: "a.csv".into(), offset: vec![1, 2], fingerprint: vec![3] };
    let node = |name: &str, kind, subtask| super::NodeEntry {
        name: NodeName::new(name),
        kind,
        parallelism: 1,
        plugin: None,
        subtasks: vec![subtask],
        grants: Vec::new(),
        committables: Vec::new(),
    };
    let mut nodes = vec![
        node(
            "read",
            super::NodeKind::Source,
            super::SubtaskEntry { positions: vec![position], ..super::SubtaskEntry::default() },
        ),
        node(
            "count",
            super::NodeKind::Operator,
            super::SubtaskEntry { segments: vec![segment], ..super::SubtaskEntry::default() },
        ),
        node("write", super::NodeKind::Sink, super::SubtaskEntry::default()),
    ];
    nodes[1].plugin = Some(super::PluginEntry {
        digest: [4; 32],
        name: "count".into(),
        version: "0.1.0".into(),
        state_version: 1,
        image: None,
    });
    for data in [vec![1], vec![2]] {
        nodes[2].committables.push(Committable { epoch: Epoch(epoch), subtask: 0, data });
    }
    super::Manifest {
        job: "job".into(),
        job_id: JobId([7; 16]),
        epoch: Epoch(epoch),
        generation: Generation(generation),
        parent: Some(Epoch(epoch - 1)),
        created_at: 1,
        finished: false,
        key_groups: 8,
        pipeline: [5; 32],
        nodes,
    }
}
