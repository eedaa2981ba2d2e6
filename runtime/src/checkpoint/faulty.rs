//! A store that fails on purpose, and the programs that see it: what the simulations run on.
//!
//! Faults that must be survived, at any operation of any program:
//! - a request fails and was not applied;
//! - a put or a deletion fails and *was* applied (the answer was lost);
//! - a put fails, and is applied later, at any time (it was under way);
//! - for a while every request fails (the store is out of reach);
//! - a listing does not show yet what was written last, where a listing is only a hint: entries of the log, identities,
//!   packs, markers. Boundaries and pins are listed as they are: that is what `Store::new` asks of a store;
//! - the program stops before or after the operation, for ever;
//! - the program sleeps there while others go on.
//!
//! An object, once written, is not damaged here: that has tests of its own.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::testing::Random;

/// How many of the objects that were written last a late listing may leave out.
const LATE_MAX: usize = 3;

/// Told of everything that has become so in the store.
pub(crate) trait Witness: Send {
    /// An object is now there; `new` if none was before. `actor` asked for it.
    fn written(&mut self, objects: &Arc<InMemory>, path: &Path, bytes: &Bytes, new: bool, actor: usize);
    /// An object is about to go.
    fn deleting(&mut self, objects: &Arc<InMemory>, path: &Path);
}

/// How long an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Others may run once before it and once after it.
    Steps,
    /// Some virtual milliseconds before it and after it; needs tokio's clock.
    Time,
}

struct DelayedPut {
    path: Path,
    payload: PutPayload,
    options: PutOptions,
    actor: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Actor {
    /// After how many more operations it dies.
    dies_after: Option<u64>,
    /// After how many more operations it falls asleep.
    sleeps_after: Option<u64>,
    is_dead: bool,
    is_asleep: bool,
}

struct State {
    objects: Arc<InMemory>,
    random: Random,
    witness: Box<dyn Witness>,
    delayed: Vec<DelayedPut>,
    pace: Pace,
    /// Faults per thousand operations, of each kind.
    faults: u64,
    /// Nothing works.
    is_out: bool,
    /// Written last, the newest at the end: of the objects whose listing is a hint.
    recent: VecDeque<Path>,
    actors: Vec<Actor>,
    /// How often each named situation came up.
    seen: BTreeMap<&'static str, u64>,
    /// A running hash of every operation, by which two runs of one seed are compared.
    trace: blake3::Hasher,
}

/// A world with one store and several programs that see it.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

impl World {
    pub(crate) fn new(seed: u64, faults: u64, pace: Pace, witness: Box<dyn Witness>) -> Self {
        Self(Arc::new(Mutex::new(State {
            objects: Arc::new(InMemory::new()),
            random: Random(seed),
            witness,
            delayed: Vec::new(),
            pace,
            faults,
            is_out: false,
            recent: VecDeque::new(),
            actors: Vec::new(),
            seen: BTreeMap::new(),
            trace: blake3::Hasher::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store as one program sees it, and dies or falls asleep after so many operations, if at all.
    pub(crate) fn actor(&self, dies_after: Option<u64>, sleeps_after: Option<u64>) -> FaultyStore {
        let mut state = self.state();
        state.actors.push(Actor { dies_after, sleeps_after, ..Actor::default() });
        FaultyStore { world: self.clone(), actor: state.actors.len() - 1 }
    }

    pub(crate) fn is_dead(&self, store: &FaultyStore) -> bool {
        self.state().actors[store.actor].is_dead
    }

    pub(crate) fn is_asleep(&self, store: &FaultyStore) -> bool {
        self.state().actors[store.actor].is_asleep
    }

    /// It goes on, and falls asleep again after so many operations, if at all.
    pub(crate) fn wake(&self, store: &FaultyStore, sleeps_after: Option<u64>) {
        let actor = &mut self.state().actors[store.actor];
        (actor.is_asleep, actor.sleeps_after) = (false, sleeps_after);
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
        let _ = state.put(put.actor, &put.path, put.payload, put.options);
        true
    }

    /// From now on nothing works, or as much as before.
    pub(crate) fn set_out(&self, is_out: bool) {
        self.state().is_out = is_out;
    }

    /// From now on everything works, and what was under way has arrived.
    pub(crate) fn heal(&self) {
        while self.deliver_one() {}
        let mut state = self.state();
        (state.faults, state.is_out) = (0, false);
        state.recent.clear();
    }

    /// How often each named situation came up.
    pub(crate) fn seen(&self) -> BTreeMap<&'static str, u64> {
        self.state().seen.clone()
    }

    /// The same for two runs that did the same.
    pub(crate) fn trace(&self) -> blake3::Hash {
        self.state().trace.finalize()
    }
}

/// Whether a listing that does not show an object of this folder yet does no harm.
fn is_hint(path: &Path) -> bool {
    path.parts().any(|part| matches!(part.as_ref(), "log" | "id" | "packs" | "committed"))
}

impl State {
    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn put(&mut self, actor: usize, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let objects = self.objects.clone();
        let is_new = objects.head(path).now_or_never().expect("memory does not wait").is_err();
        let bytes: Bytes = payload.iter().flat_map(|part| part.iter().copied()).collect::<Vec<_>>().into();
        let result = objects.put_opts(path, payload, options).now_or_never().expect("memory does not wait");
        if result.is_ok() {
            if is_new && is_hint(path) && self.faults > 0 {
                self.recent.push_back(path.clone());
                if self.recent.len() > LATE_MAX {
                    self.recent.pop_front();
                }
            }
            self.witness.written(&objects, path, &bytes, is_new, actor);
        }
        result
    }

    fn delete(&mut self, path: &Path) {
        let objects = self.objects.clone();
        if objects.head(path).now_or_never().expect("memory does not wait").is_ok() {
            self.witness.deleting(&objects, path);
            let _ = objects.delete(path).now_or_never().expect("memory does not wait");
        }
    }

    fn note(&mut self, actor: usize, verb: &str, path: Option<&Path>, fate: Fate) {
        let path = path.map_or("", Path::as_ref);
        let line = format!("{actor} {verb} {path} {fate:?}\n");
        // What everybody asked of the store, for whoever looks into a seed that failed.
        if std::env::var_os("WEIR_SEED_TRACE").is_some() {
            eprint!("{line}");
        }
        self.trace.update(line.as_bytes());
    }
}

/// See [`World::actor`].
#[derive(Clone)]
pub(crate) struct FaultyStore {
    world: World,
    actor: usize,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Works,
    FailsBefore,
    FailsAfter,
    FailsAndComesLater,
}

impl FaultyStore {
    /// Which program this is.
    pub(crate) fn actor(&self) -> usize {
        self.actor
    }

    /// The world that it is in.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Others may run here; the program may stop or fall asleep here. Also for what it does outside of the store.
    pub(crate) async fn step(&self) {
        let pause = {
            let mut state = self.world.state();
            match (state.pace, state.random.below(100)) {
                (Pace::Steps, _) => None,
                (Pace::Time, 0..=59) => Some(0),
                (Pace::Time, 60..=91) => Some(1 + state.random.below(3)),
                (Pace::Time, 92..=98) => Some(4 + state.random.below(20)),
                (Pace::Time, _) => Some(40 + state.random.below(200)),
            }
        };
        match pause {
            None => yield_once().await,
            Some(0) => tokio::task::yield_now().await,
            Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
        {
            let mut state = self.world.state();
            let actor = &mut state.actors[self.actor];
            for left in [&mut actor.dies_after, &mut actor.sleeps_after].into_iter().flatten() {
                *left = left.saturating_sub(1);
            }
            actor.is_dead |= actor.dies_after == Some(0);
            if actor.sleeps_after == Some(0) {
                (actor.is_asleep, actor.sleeps_after) = (true, None);
            }
        }
        self.stand_still().await;
    }

    /// Waits while the program sleeps; for ever if it is dead.
    pub(crate) async fn stand_still(&self) {
        loop {
            let actor = self.world.state().actors[self.actor];
            if actor.is_dead {
                futures::future::pending::<()>().await;
            }
            if !actor.is_asleep {
                return;
            }
            // The scheduler does not run it any more; until it notices, nothing is done.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// What becomes of a request of this program.
    pub(crate) fn fate(&self, is_put: bool) -> Fate {
        let mut state = self.world.state();
        if state.is_out {
            return Fate::FailsBefore;
        }
        // A read that fails is no more than a read that fails: many of them would only keep everything from happening.
        let faults = if is_put { state.faults } else { state.faults.div_ceil(3) };
        match state.random.below(1000) {
            n if n < faults => Fate::FailsBefore,
            n if n < 2 * faults => Fate::FailsAfter,
            n if n < 3 * faults && is_put => Fate::FailsAndComesLater,
            _ => Fate::Works,
        }
    }
}

async fn yield_once() {
    let mut yielded = false;
    futures::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
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
        let result = {
            let mut state = self.world.state();
            state.note(self.actor, "put", Some(path), fate);
            match fate {
                Fate::FailsBefore => Err(lost()),
                Fate::FailsAndComesLater => {
                    state.delayed.push(DelayedPut { path: path.clone(), payload, options, actor: self.actor });
                    Err(lost())
                }
                Fate::Works => state.put(self.actor, path, payload, options),
                Fate::FailsAfter => {
                    let result = state.put(self.actor, path, payload, options);
                    if result.is_ok() {
                        state.saw("put applied but reported failed");
                    }
                    result.and(Err(lost()))
                }
            }
        };
        self.step().await;
        result
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(lost())
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.step().await;
        let fate = self.fate(false);
        self.world.state().note(self.actor, "get", Some(path), fate);
        if fate != Fate::Works {
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
                    {
                        let mut state = store.world.state();
                        state.note(store.actor, "delete", Some(&path), fate);
                        if fate != Fate::FailsBefore {
                            state.delete(&path);
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
            let fate = store.fate(false);
            let objects = {
                let mut state = store.world.state();
                state.note(store.actor, "list", prefix.as_ref(), fate);
                state.objects.clone()
            };
            let mut listed = objects.list(prefix.as_ref()).collect::<Vec<_>>().await;
            {
                let mut state = store.world.state();
                let late = state.random.below(1 + LATE_MAX as u64) as usize;
                if state.faults > 0 && state.random.chance(100) {
                    // But never a pin: that a store lists what it holds is what pins rest on, and `Store::probe` asks for it.
                    let recent = state.recent.iter().rev().take(late);
                    let hidden: Vec<Path> = recent.filter(|path| !path.as_ref().contains("/pins/")).cloned().collect();
                    let before = listed.len();
                    listed.retain(|object| object.as_ref().map_or(true, |o| !hidden.contains(&o.location)));
                    if listed.len() < before {
                        state.saw("listing late");
                    }
                }
            }
            store.step().await;
            futures::stream::iter(if fate == Fate::Works { listed } else { vec![Err(lost())] })
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
