//! The auditor of the simulations: looks at every object that appears in the store or goes, and at every commit, and objects by the
//! number of the invariant that was broken.
//!
//! It works from definitions (what a restore point is, what is needed) and not from the code that looks for them. What a
//! job's state and output have to be is told by a [`Content`]; everything else about a log is the same for all jobs. The
//! first objection is kept, since a panic in a task would be taken for a fault of that task: the scheduler asks for it
//! after each step.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::faulty::{Witness, World};
use super::log::{Body, Claim, Entry, Identity};
use super::objects::numbers;
use super::pack::PackReader;
use super::testing::run;
use super::{JobStore, Manifest, PackName, Run, Start, Store, collect};
use crate::model::{Committable, Epoch, Generation, JobId, NodeName};

/// How often each named situation came up.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// An objection.
pub(crate) type Audited = Result<(), String>;

macro_rules! ensure {
    ($holds:expr, $($objection:tt)*) => {
        if !$holds {
            return Err(format!($($objection)*));
        }
    };
}
pub(crate) use ensure;

/// What the state and the output of a job have to be.
pub(crate) trait Content: Send + 'static {
    /// A manifest has become an entry of the log, after `parent`. `store` shows every object as it is.
    fn completed(&mut self, manifest: &Manifest, parent: Option<&Manifest>, store: &JobStore) -> Audited;

    /// Whether the output that a manifest names of a sink can be seen by anybody.
    fn is_visible(&self, manifest: &Manifest, sink: &NodeName) -> bool;
}

/// What happened to one history of the job.
#[derive(Default)]
pub(crate) struct History {
    entries: Vec<Entry>,
    /// By whom each entry was written.
    writers: Vec<usize>,
    boundary: u64,
    pins: BTreeMap<String, Manifest>,
    /// Packs that were written since the last entry, by whom.
    packs_since: BTreeSet<usize>,
}

impl History {
    /// The newest claim, its place and its writer.
    pub(crate) fn newest_claim(&self) -> Option<(u64, &Claim, usize)> {
        self.entries.iter().zip(&self.writers).rev().find_map(|(entry, writer)| match &entry.body {
            Body::Claim(claim) => Some((entry.seq, claim, *writer)),
            _ => None,
        })
    }

    /// By its definition, and not by the way it is looked for.
    pub(crate) fn restore_point(&self) -> Option<&Manifest> {
        let (claim_seq, claim, _) = self.newest_claim()?;
        let after = self.checkpoints().rfind(|(seq, _)| *seq > claim_seq);
        after.map(|(_, manifest)| manifest).or(claim.base.as_ref().map(|base| &*base.manifest))
    }

    /// What a run of this generation was to restore.
    pub(crate) fn base_of(&self, generation: Generation) -> Option<&Manifest> {
        self.entries.iter().find(|entry| entry.seq == generation.0).and_then(|entry| match &entry.body {
            Body::Claim(claim) => claim.base.as_ref().map(|base| &*base.manifest),
            _ => None,
        })
    }

    pub(crate) fn checkpoints(&self) -> impl DoubleEndedIterator<Item = (u64, &Manifest)> {
        self.entries.iter().filter_map(|entry| match &entry.body {
            Body::Checkpoint(manifest) => Some((entry.seq, &**manifest)),
            _ => None,
        })
    }

    pub(crate) fn manifest(&self, epoch: Epoch) -> Option<&Manifest> {
        self.checkpoints().map(|(_, manifest)| manifest).find(|manifest| manifest.epoch == epoch)
    }

    /// A checkpoint and all before it on its line, the newest first.
    pub(crate) fn line(&self, epoch: Epoch) -> impl Iterator<Item = &Manifest> {
        std::iter::successors(self.manifest(epoch), |manifest| self.manifest(manifest.parent?))
    }

    /// Whether a checkpoint is on no line that anybody goes on with: a start from an older one has left it behind.
    pub(crate) fn is_left_behind(&self, epoch: Epoch) -> bool {
        self.restore_point().is_none_or(|point| self.line(point.epoch).all(|manifest| manifest.epoch != epoch))
    }

    /// What nobody may delete.
    pub(crate) fn needed(&self, retain: u32) -> HashSet<PackName> {
        let retained = self.checkpoints().rev().take(retain as usize).map(|(_, manifest)| manifest);
        retained.chain(self.restore_point()).chain(self.pins.values()).flat_map(Manifest::packs).collect()
    }
}

/// What the auditor knows.
pub(crate) struct Books<C> {
    pub(crate) histories: BTreeMap<JobId, History>,
    pub(crate) markers: BTreeSet<(JobId, Epoch)>,
    /// The history that the job's name stands for.
    pub(crate) latest: Option<JobId>,
    pub(crate) content: C,
    pub(crate) seen: Counts,
    /// How each program was started.
    starts: Vec<Start>,
    dead: BTreeSet<usize>,
    /// Who sleeps, and where the boundary was when it fell asleep.
    asleep: BTreeMap<usize, u64>,
    retain: u32,
    objection: Option<String>,
}

/// Many see it; there is one.
pub(crate) struct Auditor<C>(Arc<Mutex<Books<C>>>);

impl<C> Clone for Auditor<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Content> Auditor<C> {
    /// Of a job that keeps its last `retain` checkpoints.
    pub(crate) fn new(content: C, retain: u32) -> Self {
        Self(Arc::new(Mutex::new(Books {
            histories: BTreeMap::new(),
            markers: BTreeSet::new(),
            latest: None,
            content,
            seen: Counts::new(),
            starts: Vec::new(),
            dead: BTreeSet::new(),
            asleep: BTreeMap::new(),
            retain,
            objection: None,
        })))
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Books<C>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn count(&self, what: &'static str) {
        self.with(|books| books.saw(what));
    }

    /// Keeps an objection, if it is the first.
    pub(crate) fn object(&self, audited: Audited) {
        self.with(|books| books.keep(audited));
    }

    /// Panics if there is an objection.
    pub(crate) fn check(&self) {
        if let Some(objection) = self.with(|books| books.objection.clone()) {
            panic!("the auditor objects: {objection}");
        }
    }

    /// A program begins; its number is that of its store.
    pub(crate) fn started(&self, actor: usize, start: Start) {
        self.with(|books| {
            assert_eq!(books.starts.len(), actor, "programs begin in the order of their numbers");
            books.starts.push(start);
        });
    }

    /// A program died: where was it?
    pub(crate) fn died(&self, actor: usize) {
        self.with(|books| {
            books.dead.insert(actor);
            if let Some(what) = books.row_of(actor) {
                books.saw(what);
            }
        });
    }

    /// A program is not run for a while.
    pub(crate) fn fell_asleep(&self, actor: usize) {
        self.with(|books| {
            let boundary = books.boundary();
            books.asleep.insert(actor, boundary);
        });
    }

    /// A program goes on.
    pub(crate) fn woke(&self, actor: usize) {
        self.with(|books| {
            let before = books.asleep.remove(&actor).unwrap_or_default();
            let wrote = books.latest.is_some_and(|id| books.histories[&id].writers.contains(&actor));
            if wrote && books.was_overtaken(actor) {
                let is_collected = books.boundary() > before;
                books.saw("stalled run wakes up after others went on");
                if is_collected {
                    books.saw("stalled run wakes up after collection");
                }
            }
        });
    }

    /// A sink is asked to commit. I4: the manifest is there, and names exactly this. Everything else is the destination's business.
    pub(crate) fn committing(&self, job: JobId, sink: &NodeName, epoch: Epoch, committables: &[Committable]) {
        self.with(|books| {
            let manifest = books.histories.get(&job).and_then(|history| history.manifest(epoch));
            let named = manifest.and_then(|m| m.node(sink.as_str())).map(|node| node.committables.as_slice());
            let audited = match named {
                None => Err(format!("I4: {sink} commits epoch {epoch}, and there is no such manifest")),
                Some(named) if named != committables => Err(format!(
                    "I4: {sink} commits {committables:?} for epoch {epoch}, and its manifest names {named:?}"
                )),
                Some(_) => Ok(()),
            };
            books.keep(audited);
        });
    }
}

impl<C: Content> Auditor<C> {
    /// At the end of a world, when the job has finished and the store works: the last checkpoint is whole, and once its writer has
    /// collected, exactly what is needed is left (I9).
    ///
    /// # Panics
    ///
    /// If not.
    pub(crate) fn close(&self, world: &World, last: &Manifest) {
        let raw = Store::new(world.objects() as Arc<dyn ObjectStore>);
        let report = run(super::verify(&raw, &last.job, last.epoch)).expect("a healed store answers");
        assert_eq!(report.faults, Vec::<String>::new(), "I1");
        let actor = world.actor(None, None);
        self.started(actor.actor(), Start::Resume);
        let store = Store::new(Arc::new(actor)).seeded(1);
        let job = JobStore::new(&store, &last.job, last.job_id);
        let raw = JobStore::new(&raw, &last.job, last.job_id);
        // Garbage goes when its writer collects. The run that finished is gone by now; its last act is played here, unless
        // another one claimed after it, only to find that nothing is left to do.
        let history =
            run(Identity::current(raw.store(), &last.job)).expect("a healed store answers").expect("it ran").n;
        let tip = run(raw.span()).expect("it has a log").tip;
        let entry = run(raw.read_entry(tip)).expect("a healed store answers").expect("the tip is there");
        if !matches!(entry.body, Body::Checkpoint(_)) {
            return;
        }
        self.count("collected to the end");
        let mut collector = Run::resumed_for_tests(job.clone(), history, last.generation, last, tip);
        let retain = self.with(|books| books.retain);
        in_virtual_time(collect(&mut collector, retain)).expect("a healed store answers");
        let mut needed = self.with(|books| books.histories[&last.job_id].needed(retain));
        needed.extend(last.packs());
        let left = run(raw.store().list(&raw.packs_folder())).expect("a healed store answers");
        let left: HashSet<PackName> = left.iter().map(|name| name.parse().expect("a pack's name")).collect();
        let lost: Vec<_> = needed.difference(&left).collect();
        assert!(lost.is_empty(), "I9: {lost:?} is needed, and is gone");
        // A pin whose maker died before it saw that it came too late holds what is left of its checkpoint.
        for (_, pinned) in run(raw.pins()).expect("a healed store answers") {
            needed.extend(pinned.packs());
        }
        // And the claims that are still in the log hold what they began with, needed or not.
        self.with(|books| {
            let history = &books.histories[&last.job_id];
            for entry in history.entries.iter().filter(|entry| entry.seq > history.boundary) {
                if let Body::Claim(Claim { base: Some(base), .. }) = &entry.body {
                    needed.extend(base.manifest.packs());
                }
            }
        });
        let garbage: Vec<_> = left.difference(&needed).collect();
        assert!(garbage.is_empty(), "I9: {garbage:?} is left, and nobody needs it");
        let span = run(raw.span()).expect("it has a log");
        let entries = numbers(&run(raw.store().list(&raw.log_folder())).expect("a healed store answers"));
        assert_eq!(entries, (span.boundary + 1..=span.tip).collect::<Vec<_>>(), "I9: the log");
    }
}

/// Runs a future whose operations may take virtual time.
fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without threads or I/O can be made").block_on(future)
}

impl<C: Content> Books<C> {
    /// Whether somebody else holds the job now.
    pub(crate) fn was_overtaken(&self, actor: usize) -> bool {
        let history = self.latest.and_then(|id| self.histories.get(&id));
        history.and_then(History::newest_claim).is_none_or(|(_, _, writer)| writer != actor)
    }

    pub(crate) fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn boundary(&self) -> u64 {
        self.latest.and_then(|id| self.histories.get(&id)).map_or(0, |history| history.boundary)
    }

    fn keep(&mut self, audited: Audited) {
        if let (Err(objection), None) = (audited, &self.objection) {
            self.objection = Some(objection);
        }
    }

    /// The row of the crash table that a program is in which dies now; none if it was not the job's writer.
    fn row_of(&self, actor: usize) -> Option<&'static str> {
        let id = self.latest?;
        let history = self.histories.get(&id)?;
        let (_, _, writer) = history.newest_claim()?;
        if writer != actor {
            return None;
        }
        let is_under_way = history.packs_since.contains(&actor);
        let last = history.entries.iter().rev().find(|entry| !matches!(entry.body, Body::Void | Body::Refused(_)))?;
        let Body::Checkpoint(manifest) = &last.body else {
            return Some(if is_under_way { "died before the manifest" } else { "died after its claim" });
        };
        if self.markers.contains(&(id, manifest.epoch)) {
            return Some(if is_under_way { "died before the manifest" } else { "died after the marker" });
        }
        let sinks: Vec<_> = manifest.nodes.iter().filter(|node| !node.committables.is_empty()).collect();
        let visible = sinks.iter().filter(|node| self.content.is_visible(manifest, &node.name)).count();
        Some(match visible {
            n if n == sinks.len() => "died before the marker",
            0 => "died before any commit",
            _ => "died between the commits of two sinks",
        })
    }

    fn written(&mut self, objects: &Arc<InMemory>, path: &Path, bytes: &Bytes, new: bool, actor: usize) -> Audited {
        let parts: Vec<_> = path.parts().map(|part| part.as_ref().to_owned()).collect();
        let start = self.starts.get(actor).copied().unwrap_or(Start::Resume);
        if parts[4] == "id" {
            ensure!(new, "I6: the identity {path} was replaced");
            let identity: Identity = super::envelope::open(super::log::IDENTITY, bytes)?;
            ensure!(
                identity.n == 1 || start == Start::Fresh,
                "I10: a new history was made, and nobody asked for a fresh start"
            );
            if identity.n > 1 {
                self.saw("fresh");
            }
            self.latest = Some(identity.job_id);
            return Ok(());
        }
        let id: JobId = parts[4].parse()?;
        let known = |books: &Self| books.histories.contains_key(&id);
        match parts[5].as_str() {
            "log" => {
                let entry = Entry::decode(bytes)?;
                if entry.seq <= self.histories.entry(id).or_default().boundary {
                    self.saw("put after its name was collected");
                    return Ok(());
                }
                ensure!(new, "I6: entry {} was replaced", entry.seq);
                self.entry(objects, id, entry, actor)?;
            }
            "committed" if known(self) => {
                let epoch = Epoch(parts[6].parse().map_err(|e| format!("marker {}: {e}", parts[6]))?);
                if self.markers.insert((id, epoch)) {
                    let manifest = self.histories[&id].manifest(epoch);
                    let manifest = manifest.ok_or_else(|| format!("I4: {epoch} is marked, and has no manifest"))?;
                    let open = manifest
                        .nodes
                        .iter()
                        .find(|node| !node.committables.is_empty() && !self.content.is_visible(manifest, &node.name));
                    ensure!(open.is_none(), "I13: {epoch} is marked, and a sink has not committed it");
                }
            }
            "boundary" if known(self) => {
                let b: u64 = parts[6].parse().map_err(|e| format!("boundary {}: {e}", parts[6]))?;
                let retain = self.retain as usize;
                let history = self.histories.entry(id).or_default();
                let retained = history.checkpoints().rev().take(retain).last();
                ensure!(
                    retained.is_some_and(|(seq, _)| b < seq),
                    "I9: the boundary {b} covers a checkpoint that is to be retained"
                );
                let mut after = history.entries.iter().filter(|entry| entry.seq > b);
                ensure!(
                    after.any(|entry| !matches!(entry.body, Body::Void | Body::Refused(_))),
                    "I9: the boundary {b} covers the restore point"
                );
                history.boundary = history.boundary.max(b);
            }
            "pins" if known(self) => {
                let manifest: Manifest = super::envelope::open(super::log::PIN, bytes)?;
                let history = self.histories.entry(id).or_default();
                // Made after the boundary: its maker is going to see that, and let go of it.
                if history.checkpoints().any(|(seq, m)| m.epoch == manifest.epoch && seq > history.boundary) {
                    history.pins.insert(parts[6].clone(), manifest);
                }
            }
            "packs" if known(self) => {
                let name: PackName = parts[6].parse()?;
                ensure!(name.to_string() == parts[6], "I9: a pack has the name {}", parts[6]);
                self.histories.entry(id).or_default().packs_since.insert(actor);
            }
            "spec.toml" => {}
            _ => return Err(format!("an object that nobody knows: {path}")),
        }
        Ok(())
    }

    fn deleting(&mut self, path: &Path) -> Audited {
        let parts: Vec<_> = path.parts().map(|part| part.as_ref().to_owned()).collect();
        let id: JobId = parts[4].parse().map_err(|_| format!("I10: {path} is deleted"))?;
        let is_current = self.latest == Some(id);
        let retain = self.retain;
        let history = self.histories.get_mut(&id).ok_or_else(|| format!("{path} is of no history"))?;
        match parts[5].as_str() {
            "log" => {
                let seq: u64 = parts[6].parse().map_err(|e| format!("entry {}: {e}", parts[6]))?;
                if seq > history.boundary {
                    // Only the claim of a first run that found another one's.
                    ensure!(
                        !is_current && history.entries.len() == 1,
                        "I9: entry {seq} is deleted above the boundary {}",
                        history.boundary
                    );
                    self.histories.remove(&id);
                }
            }
            "packs" => {
                let pack: PackName = parts[6].parse()?;
                ensure!(!history.needed(retain).contains(&pack), "I9: {pack} is deleted, and is needed");
                // A manifest that is still to come may name what the newest generation writes now.
                let claim = history.newest_claim().map_or(0, |(seq, ..)| seq);
                let tip = history.restore_point().map(|manifest| manifest.epoch).unwrap_or_default();
                ensure!(
                    pack.generation().0 < claim || pack.epoch() <= tip,
                    "I9: {pack} is deleted, and an attempt is under way that may name it"
                );
                let is_pinned = history.pins.keys().any(|name| !name.starts_with("from-"));
                self.saw("pack deleted");
                if is_pinned {
                    self.saw("savepoint held while packs are collected around it");
                }
            }
            "pins" => {
                history.pins.remove(&parts[6]);
            }
            "id" => return Err(format!("I10: {path} is deleted")),
            _ => {}
        }
        Ok(())
    }

    fn entry(&mut self, objects: &Arc<InMemory>, id: JobId, entry: Entry, actor: usize) -> Audited {
        let history = self.histories.entry(id).or_default();
        let last = history.entries.last().map_or(0, |entry| entry.seq);
        ensure!(entry.seq == last + 1, "I6: entry {} comes after entry {last}", entry.seq);
        let last_epoch = history.checkpoints().map(|(_, m)| m.epoch).max().unwrap_or_default();
        match &entry.body {
            Body::Claim(claim) => {
                ensure!(entry.generation == Generation(entry.seq), "I7: claim {} of {}", entry.seq, entry.generation);
                ensure!(claim.last_epoch >= last_epoch, "an epoch would be used twice after claim {}", entry.seq);
                self.claim(objects, id, claim, actor)?;
            }
            Body::Checkpoint(manifest) => self.checkpoint(objects, id, &entry, manifest)?,
            Body::Void | Body::Refused(_) => {}
        }
        let history = self.histories.entry(id).or_default();
        history.entries.push(entry);
        history.writers.push(actor);
        history.packs_since.remove(&actor);
        Ok(())
    }

    fn claim(&mut self, objects: &Arc<InMemory>, id: JobId, claim: &Claim, actor: usize) -> Audited {
        let history = &self.histories[&id];
        let base = claim.base.as_ref().map(|base| base.manifest.epoch);
        let point = history.restore_point().map(|manifest| manifest.epoch);
        let mut seen = Vec::new();
        if base != point {
            seen.push("claim on an older checkpoint");
            let base = base.ok_or_else(|| format!("I10: a claim on nothing, and the restore point is {point:?}"))?;
            ensure!(
                matches!(self.starts.get(actor), Some(Start::From(_))),
                "I10: a claim on {base}, the restore point is {point:?}, and nobody asked for it"
            );
            ensure!(self.markers.contains(&(id, base)), "a claim on {base}, which was never committed");
            let known = history.manifest(base).ok_or_else(|| format!("a claim on {base}, which never was"))?;
            if history.checkpoints().any(|(seq, m)| m.epoch == base && seq <= history.boundary) {
                seen.push("start from a savepoint that the log has no more");
            }
            for pack in known.packs() {
                ensure!(get(objects, id, &pack).is_some(), "I9: a claim on {base}, and {pack} was collected");
            }
        }
        if let Some((_, _, before)) = history.newest_claim() {
            if before == actor {
                seen.push("restart in the same process");
            } else if !self.dead.contains(&before) {
                seen.push("claim while the run before lives");
            }
            if let (Some(point), Some(Entry { body: Body::Checkpoint(_), .. })) = (point, history.entries.last())
                && !self.markers.contains(&(id, point))
            {
                seen.push("restore with an open commit");
                if !self.dead.contains(&before) && before != actor {
                    seen.push("claim between put and commit");
                }
            }
        }
        seen.into_iter().for_each(|what| self.saw(what));
        Ok(())
    }

    fn checkpoint(&mut self, objects: &Arc<InMemory>, id: JobId, entry: &Entry, manifest: &Manifest) -> Audited {
        let epoch = manifest.epoch;
        let history = &self.histories[&id];
        let (claim, _, _) = history.newest_claim().ok_or("I7: a checkpoint, and there is no claim")?;
        ensure!(
            entry.generation == Generation(claim) && manifest.generation == entry.generation,
            "I7: checkpoint {epoch} is of generation {}, and the newest claim is {claim}",
            entry.generation
        );
        let point = history.restore_point();
        ensure!(
            manifest.parent == point.map(|point| point.epoch),
            "I6: checkpoint {epoch} is after {:?}, and the restore point is {:?}",
            manifest.parent,
            point.map(|point| point.epoch)
        );
        let last_epoch = history.checkpoints().map(|(_, m)| m.epoch).max().unwrap_or_default();
        ensure!(epoch > last_epoch, "epoch {epoch} is used after {last_epoch}");
        if let Some(parent) = manifest.parent {
            ensure!(
                self.markers.contains(&(id, parent)),
                "I13: checkpoint {epoch} is put, and its parent {parent} is not marked"
            );
        }
        let inherited = point.map(Manifest::packs).unwrap_or_default();
        let mut carries_packs = false;
        for name in manifest.packs() {
            let is_new = name.generation() == manifest.generation
                && manifest.parent.is_none_or(|parent| name.epoch() > parent)
                && name.epoch() <= epoch;
            ensure!(is_new || inherited.contains(&name), "I8: checkpoint {epoch} names {name}");
            carries_packs |= is_new && name.epoch() < epoch;
            let content = get(objects, id, &name);
            let content = content.ok_or_else(|| format!("I1: checkpoint {epoch} names {name}, which is not there"))?;
            let pack = PackReader::open(&name, content).map_err(|fault| format!("I1: {name}: {fault}"))?;
            for number in 0..pack.len() {
                pack.chunk(number).map_err(|fault| format!("I1: {name}: {fault}"))?;
            }
        }
        let committables = || manifest.nodes.iter().flat_map(|node| &node.committables);
        let carries_output = committables().any(|committable| committable.epoch < epoch);
        let is_empty = committables().next().is_none();
        let raw = Store::new(Arc::clone(objects) as Arc<dyn ObjectStore>);
        self.content.completed(manifest, point, &JobStore::new(&raw, &manifest.job, id))?;
        self.saw("checkpoint");
        for (is_so, what) in [
            (carries_output, "subsumed attempt"),
            (carries_packs, "state of a failed attempt carried"),
            (is_empty, "empty epoch"),
        ] {
            if is_so {
                self.saw(what);
            }
        }
        Ok(())
    }
}

impl<C: Content> Witness for Auditor<C> {
    fn written(&mut self, objects: &Arc<InMemory>, path: &Path, bytes: &Bytes, new: bool, actor: usize) {
        self.with(|books| {
            let audited = books.written(objects, path, bytes, new, actor);
            books.keep(audited);
        });
    }

    fn deleting(&mut self, _: &Arc<InMemory>, path: &Path) {
        self.with(|books| {
            let audited = books.deleting(path);
            books.keep(audited);
        });
    }
}

fn get(objects: &InMemory, id: JobId, pack: &PackName) -> Option<Bytes> {
    let path = Path::from(format!("tenants/default/jobs/job/{id}/packs/{pack}"));
    let found = objects.get(&path).now_or_never().expect("memory does not wait").ok()?;
    found.bytes().now_or_never().expect("memory does not wait").ok()
}
