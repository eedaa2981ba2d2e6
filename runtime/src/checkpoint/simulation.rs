//! Many runs of one small job on a store that fails, interleaved by a seed, and an auditor who looks at every object that
//! appears or goes.
//!
//! The job counts records by key group in two subtasks, and publishes each record by two sinks. State at position p is
//! a function of p, so a restore is checked by content; output is ranges of positions, so exactly-once is that the
//! ranges of committed checkpoints, along the line of parents, are `0..p` without gap or overlap.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::path::Path;

use super::auditor::{Audited, Content, Counts, ensure};
use super::faulty::{FaultyStore, Pace, World};
use super::testing::{Program, Random, keep_savepoint, poll, run};
use super::*;
use crate::clock::Clock;
use crate::model::{
    Committable, Epoch, NodeName, Scope, SegmentKind, SnapshotMode, SplitPosition, TaskId, groups_of_subtask,
};
use crate::simulation::mutants::{Mutant, catch, mutant};
use crate::simulation::situations::table;
use crate::simulation::world::simulate_all;

type Auditor = super::auditor::Auditor<Toy>;

const GROUPS: u32 = 4;
const SUBTASKS: u32 = 2;
const SINKS: [&str; 2] = ["left", "right"];
/// Where the job ends.
const RECORDS: u64 = 40;

/// The last retained checkpoints are at least so many.
const RETAIN: u32 = 2;

/// Positions of records, each from and to.
type Ranges = Vec<(u64, u64)>;

/// Output that anybody can see: by history, sink and epoch.
#[derive(Default)]
struct Toy {
    visible: BTreeMap<(crate::model::JobId, String, Epoch), Ranges>,
}

impl Toy {
    /// A sink makes an epoch visible.
    fn commit(&mut self, sink: &str, manifest: &Manifest) -> Audited {
        let ranges = ranges(manifest, sink);
        let key = (manifest.job_id, sink.to_owned(), manifest.epoch);
        let before = self.visible.insert(key, ranges.clone());
        // A destination that knows identities does nothing the second time.
        let is_known = before.as_ref() == Some(&ranges) && !mutant(Mutant::ForgetfulDestination);
        ensure!(before.is_none() || is_known, "I4: a second commit of {} by {sink} changed something", manifest.epoch);
        Ok(())
    }

    fn is_all_visible(&self, manifest: &Manifest) -> bool {
        SINKS.iter().all(|sink| self.is_visible(manifest, &NodeName::new(*sink)))
    }
}

impl Content for Toy {
    fn completed(&mut self, manifest: &Manifest, parent: Option<&Manifest>, _: &JobStore) -> Audited {
        for sink in SINKS {
            let mut at = position(parent);
            for (from, to) in ranges(manifest, sink) {
                ensure!(from == at, "I5: a gap or an overlap in what is published: {from} after {at}");
                at = to;
            }
            ensure!(at == position(Some(manifest)), "I2: {sink} is at {at}, and the source is not");
        }
        Ok(())
    }

    fn is_visible(&self, manifest: &Manifest, sink: &NodeName) -> bool {
        self.visible.contains_key(&(manifest.job_id, sink.as_str().to_owned(), manifest.epoch))
    }
}

fn ranges(manifest: &Manifest, sink: &str) -> Ranges {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let committables = &manifest.node(sink).unwrap().committables;
    committables.iter().map(|c| (number(&c.data[..8]), number(&c.data[8..]))).collect()
}

fn position(manifest: Option<&Manifest>) -> u64 {
    manifest.map_or(0, |m| u64::from_le_bytes(m.nodes[0].subtasks[0].positions[0].offset[..].try_into().unwrap()))
}

/// The state of a group at a position.
fn count_at(group: u32, position: u64) -> u64 {
    (0..position).filter(|record| record % u64::from(GROUPS) == u64::from(group)).count() as u64
}

struct Job {
    world: World,
    auditor: Auditor,
    actor: usize,
    run: Run,
    position: u64,
    tasks: Vec<Task>,
    committables: Vec<Committable>,
}

/// A subtask: its live segments, and up to where they tell the state.
struct Task {
    number: u32,
    live: SegmentSet,
    told: u64,
    is_whole: bool,
}

/// How a program ends that has not died.
type Ended = Result<(), ()>;

async fn program(world: World, auditor: Auditor, store: Store, actor: usize, start: Start, rounds: u64) {
    let clock = Clock::manual(0);
    let begun = match begin(&store, "job", start, &clock).await {
        Ok(begun) => begun,
        Err(CheckpointError::Unreachable { .. } | CheckpointError::InDoubt { .. }) => return,
        Err(CheckpointError::Superseded { .. } | CheckpointError::Contended { .. }) => return,
        Err(
            CheckpointError::NoCheckpoint { .. }
            | CheckpointError::NeverCommitted { .. }
            | CheckpointError::NeverRan { .. },
        ) if matches!(start, Start::From(_)) => return auditor.count("--from refused"),
        Err(error) => {
            return auditor.object(Err(format!("I6: nothing is ever damaged here, and a run begins with {error:?}")));
        }
    };
    match begun {
        Begun::Finished(manifest) => {
            let is_visible = auditor.with(|books| books.content.is_all_visible(&manifest));
            assert!(manifest.finished && is_visible, "finished, and not all is visible");
            auditor.count("finished");
        }
        Begun::Run { run, restore, commit_needed } => {
            let mut job = restored(world, auditor, actor, run, restore.as_ref()).await;
            if let Some(job) = &mut job {
                let _ = job.go(restore, commit_needed, rounds).await;
            }
        }
    }
}

/// Restores, and checks what comes back. None: the store did not answer.
async fn restored(world: World, auditor: Auditor, actor: usize, run: Run, restore: Option<&Manifest>) -> Option<Job> {
    let position = position(restore);
    let mut tasks = Vec::new();
    for number in 0..SUBTASKS {
        let segments =
            restore.map_or(Vec::new(), |m| m.node("count").unwrap().subtasks[number as usize].segments.clone());
        let chunks = match read_segments(run.store(), &segments).await {
            Ok(chunks) => chunks,
            Err(CheckpointError::Unreachable { .. }) => return None,
            // Another run may have collected it: then this one is superseded.
            Err(CheckpointError::Missing { .. }) => {
                let newest = auditor.with(|books| books.histories[&run.job_id()].newest_claim().unwrap().0);
                assert!(newest > run.generation().0, "I1: the restore point has lost a pack");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        for group in groups_of_subtask(number, SUBTASKS, GROUPS) {
            let count: u64 = chunks
                .iter()
                .filter(|chunk| chunk.scope == Scope::KeyGroup(group))
                .map(|chunk| u64::from_le_bytes(chunk.data[..].try_into().unwrap()))
                .sum();
            let right = count_at(group, position);
            if count != right {
                let objection = format!("I2: group {group} holds {count} at position {position}, where it is {right}");
                auditor.object(Err(objection));
            }
        }
        tasks.push(Task { number, live: SegmentSet::new(segments), told: position, is_whole: restore.is_some() });
    }
    Some(Job { world, auditor, actor, run, position, tasks, committables: Vec::new() })
}

impl Job {
    async fn go(&mut self, restore: Option<Manifest>, commit_needed: bool, rounds: u64) -> Ended {
        if let Some(manifest) = restore {
            if commit_needed {
                self.commit(&manifest, None).await?;
            }
            if manifest.finished {
                return Ok(());
            }
        }
        for _ in 0..rounds {
            let epoch = self.run.next_epoch();
            let from = self.position;
            self.position = (from + self.world.below(6)).min(RECORDS);
            if self.position > from || self.world.chance(300) {
                let data = [from.to_le_bytes(), self.position.to_le_bytes()].concat();
                self.committables.push(Committable { epoch, subtask: 0, data });
            }
            for task in 0..self.tasks.len() {
                self.snapshot(task, epoch).await?;
            }
            // Beside an attempt whose packs nothing names yet.
            if self.world.chance(150) {
                self.collect().await?;
            }
            // The attempt fails, and the job goes on: the next one carries it.
            if self.world.chance(200) {
                self.auditor.count("attempt failed while the job lives");
                continue;
            }
            let manifest = self.manifest(epoch);
            let permit = self.publish(&manifest).await?;
            if !manifest.finished && self.world.chance(100) {
                let next = self.run.next_epoch();
                let mut early = self.manifest(next);
                early.parent = Some(epoch);
                for node in &mut early.nodes {
                    node.committables.clear();
                }
                self.auditor.count("commit still open when the next epoch is due");
                let refused = self.run.publish(early).await;
                assert!(matches!(refused, Err(PublishError::NotCommitted { .. })), "I13: {refused:?}");
            }
            self.committables.clear();
            self.commit(&manifest, Some(permit)).await?;
            if self.world.chance(400) {
                self.collect().await?;
            }
            if manifest.finished {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn snapshot(&mut self, task: usize, epoch: Epoch) -> Ended {
        let (position, generation) = (self.position, self.run.generation());
        let is_full = !self.tasks[task].is_whole || self.tasks[task].live.wants_full() || self.world.chance(200);
        let mode = if is_full { SnapshotMode::Full } else { SnapshotMode::Incremental };
        let number = self.tasks[task].number;
        let mut pack = PackBuilder::new(generation, epoch, &TaskId { node: NodeName::new("count"), subtask: number });
        for group in groups_of_subtask(number, SUBTASKS, GROUPS) {
            let (before, now) = (count_at(group, self.tasks[task].told), count_at(group, position));
            if is_full || (now > before && self.world.chance(300)) {
                // In two chunks, of which the first may be empty.
                let first = self.world.below(now + 1);
                pack.write(Scope::KeyGroup(group), SegmentKind::Base, &first.to_le_bytes()).unwrap();
                pack.write(Scope::KeyGroup(group), SegmentKind::Base, &(now - first).to_le_bytes()).unwrap();
            } else if now > before {
                pack.write(Scope::KeyGroup(group), SegmentKind::Delta, &(now - before).to_le_bytes()).unwrap();
            }
        }
        let mut pack = pack.finish();
        let is_reused = pack.as_mut().is_some_and(|pack| mutant(Mutant::ReuseBecauseItExists) && self.reuse(pack));
        if let (Some(pack), false) = (&pack, is_reused) {
            self.run.store().put_pack(pack).await.map_err(|_| ())?;
        }
        let task = &mut self.tasks[task];
        task.live.apply(mode, pack.as_ref().map_or(&[], |pack| &pack.segments));
        (task.told, task.is_whole) = (position, true);
        Ok(())
    }

    /// The mutant: names what is there with the same content, if something is.
    fn reuse(&self, pack: &mut Pack) -> bool {
        let raw = Store::new(self.world.objects());
        let there = run(raw.list(&self.run.store().packs_folder())).unwrap();
        let hash = pack.name.to_string().rsplit_once('-').unwrap().1.to_owned();
        let (generation, epoch) = (pack.name.generation(), pack.name.epoch());
        let mut there = there.iter().filter(|name| name.ends_with(&hash)).map(|name| name.parse::<PackName>().unwrap());
        let Some(same) = there.find(|same| same.generation() <= generation && same.epoch() < epoch) else {
            return false;
        };
        pack.segments.iter_mut().for_each(|segment| segment.pack = same.clone());
        pack.name = same;
        true
    }

    fn manifest(&self, epoch: Epoch) -> Manifest {
        let node = |name: &str, kind, subtasks: Vec<SubtaskEntry>, committables| NodeEntry {
            name: NodeName::new(name),
            kind,
            parallelism: subtasks.len() as u32,
            plugin: None,
            subtasks,
            grants: Vec::new(),
            committables,
        };
        let at = SplitPosition {
            split: "records".into(),
            offset: self.position.to_le_bytes().into(),
            fingerprint: Vec::new(),
        };
        let source = SubtaskEntry { positions: vec![at], ..SubtaskEntry::default() };
        let count = |task: &Task| SubtaskEntry { segments: task.live.to_vec(), ..SubtaskEntry::default() };
        let mut nodes = vec![
            node("records", NodeKind::Source, vec![source], Vec::new()),
            node("count", NodeKind::Operator, self.tasks.iter().map(count).collect(), Vec::new()),
        ];
        nodes.extend(
            SINKS.map(|sink| node(sink, NodeKind::Sink, vec![SubtaskEntry::default()], self.committables.clone())),
        );
        Manifest {
            job: "job".into(),
            job_id: self.run.job_id(),
            epoch,
            generation: self.run.generation(),
            parent: self.run.tip(),
            created_at: 0,
            finished: self.position == RECORDS,
            key_groups: GROUPS,
            pipeline: [0; 32],
            nodes,
        }
    }

    async fn publish(&mut self, manifest: &Manifest) -> Result<CommitPermit, ()> {
        let mut result = self.run.publish(manifest.clone()).await;
        for _ in 0..5 {
            match result {
                Ok(permit) => return Ok(permit),
                Err(PublishError::InDoubt { .. }) => {
                    self.auditor.count("put in doubt");
                    let mut other = manifest.clone();
                    other.epoch = manifest.epoch.next();
                    let refused = self.run.publish(other).await;
                    assert!(matches!(refused, Err(PublishError::InDoubt { .. })), "I6: went on while in doubt");
                    assert!(self.run.permit_tip().await.is_err(), "I4: a permit while in doubt");
                    result = self.run.resolve().await;
                }
                Err(PublishError::Superseded { .. }) => {
                    self.auditor.count("superseded");
                    let actor = self.actor;
                    if !self.auditor.with(|books| books.was_overtaken(actor)) {
                        self.auditor.object(Err("I6: a run is told that it was superseded, and nobody was".into()));
                    }
                    return Err(());
                }
                Err(PublishError::Failed(CheckpointError::Unreachable { .. })) => return Err(()),
                // What was there when the mutant looked has been collected: it may as well be seen in time.
                Err(PublishError::Refused { .. }) if mutant(Mutant::ReuseBecauseItExists) => return Err(()),
                Err(error) => panic!("{error:?}"),
            }
        }
        Err(())
    }

    async fn commit(&mut self, manifest: &Manifest, permit: Option<CommitPermit>) -> Ended {
        let mut permit = match permit {
            Some(permit) => permit,
            None => self.run.permit_tip().await.map_err(|_| ())?,
        };
        for sink in SINKS {
            let name = NodeName::new(sink);
            let named = &manifest.node(sink).unwrap().committables;
            self.auditor.committing(manifest.job_id, &name, manifest.epoch, named);
            let committed = self.auditor.with(|books| books.content.commit(sink, manifest));
            self.auditor.object(committed);
            // A place to stop between two sinks.
            let _ = self.run.store().store().exists(&Path::from("nothing")).await;
        }
        for _ in 0..5 {
            match self.run.mark_committed(permit).await {
                Ok(()) => return Ok(()),
                Err(CheckpointError::InDoubt { .. }) => permit = self.run.permit_tip().await.map_err(|_| ())?,
                Err(error) => panic!("{error}"),
            }
        }
        Err(())
    }

    async fn collect(&mut self) -> Ended {
        match collect(&mut self.run, RETAIN).await {
            Ok(_) => Ok(()),
            Err(CheckpointError::Unreachable { .. } | CheckpointError::InDoubt { .. }) => Ok(()),
            Err(CheckpointError::Superseded { .. }) => Err(()),
            // An entry that is gone without a boundary is a fault; with one, somebody else is the writer now.
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// One seed: chaos, then a run in peace, then the books.
fn simulate(seed: u64) -> Counts {
    let auditor = Auditor::new(Toy::default(), RETAIN);
    let mut random = Random(seed);
    let faults = [0, 5, 30, 80][random.below(4) as usize];
    let world = World::new(random.next(), faults, Pace::Steps, Box::new(auditor.clone()));
    let mut actors: Vec<(Program, FaultyStore, u64)> = Vec::new();
    let mut spawned = 0;
    let runs = 2 + random.below(5);
    let with_from = random.chance(400);
    let with_fresh = random.chance(150);
    let begin = |start, dies_after, random: &mut Random, rounds| {
        let store = world.actor(dies_after, None);
        auditor.started(store.actor(), start);
        let view = Store::new(Arc::new(store.clone())).seeded(random.next());
        let program: Program = Box::pin(program(world.clone(), auditor.clone(), view, store.actor(), start, rounds));
        (program, store, 0)
    };
    for _ in 0..200_000 {
        if spawned < runs && (actors.is_empty() || random.chance(4)) {
            spawned += 1;
            let start = match random.below(10) {
                0..=3 if with_from => Start::From(Epoch(1 + random.below(8))),
                4 if with_fresh => Start::Fresh,
                _ => Start::Resume,
            };
            if random.chance(150) {
                let store = world.actor(random.chance(300).then(|| 1 + random.below(100)), None);
                auditor.started(store.actor(), Start::Resume);
                let view = Store::new(Arc::new(store.clone())).seeded(random.next());
                let (name, steps) = (format!("nightly-{}", store.actor()), random.below(200));
                let keeping = async move {
                    let hold = async {
                        for _ in 0..steps {
                            let _ = view.exists(&Path::from("nothing")).await;
                        }
                    };
                    drop(keep_savepoint(&view, &name, hold).await);
                };
                actors.push((Box::pin(keeping), store, random.below(400)));
            }
            let dies_after = random.chance(700).then(|| 1 + random.below(250));
            let rounds = 1 + random.below(12);
            actors.push(begin(start, dies_after, &mut random, rounds));
        }
        if spawned == runs && actors.is_empty() {
            break;
        }
        if random.chance(20) {
            world.deliver_one();
        }
        let pick = random.below(actors.len() as u64) as usize;
        let (program, store, asleep) = &mut actors[pick];
        if *asleep > 0 {
            *asleep -= 1;
            continue;
        }
        let has_ended = poll(program);
        auditor.check();
        if world.is_dead(store) {
            auditor.died(store.actor());
        }
        if has_ended || world.is_dead(store) {
            drop(actors.swap_remove(pick));
        } else if random.chance(10) {
            *asleep = random.below(400);
        }
    }
    assert!(actors.is_empty(), "a program does not end");
    world.heal();
    let (last, store, _) = begin(Start::Resume, None, &mut random, 1000);
    run(last);
    auditor.check();
    audit_the_end(&world, &auditor, &Store::new(Arc::new(store)).seeded(random.next()));
    auditor.check();
    let mut seen = auditor.with(|books| books.seen.clone());
    crate::simulation::situations::add(&mut seen, world.seen());
    seen
}

fn audit_the_end(world: &World, auditor: &Auditor, store: &Store) {
    let Begun::Finished(last) = run(begin(store, "job", Start::Resume, &Clock::manual(0))).unwrap() else {
        panic!("the job is not finished")
    };
    assert_eq!(position(Some(&last)), RECORDS);
    auditor.with(|books| {
        let history = &books.histories[&last.job_id];
        let mut end = RECORDS;
        for manifest in history.line(last.epoch) {
            assert!(books.content.is_all_visible(manifest), "I5: {} is not visible", manifest.epoch);
            for sink in SINKS {
                assert!(ranges(manifest, sink).last().is_none_or(|(_, to)| *to == end), "I5");
            }
            end = position(manifest.parent.and_then(|parent| history.manifest(parent)));
        }
        assert_eq!(end, 0);
    });
    auditor.close(world, &last);
}

/// What has to come up in many seeds.
const SITUATIONS: [&str; 26] = [
    "--from refused",
    "checkpoint",
    "claim between put and commit",
    "claim on an older checkpoint",
    "collected to the end",
    "commit still open when the next epoch is due",
    "died after its claim",
    "died after the marker",
    "died before any commit",
    "died before the manifest",
    "died before the marker",
    "died between the commits of two sinks",
    "empty epoch",
    "finished",
    "fresh",
    "listing late",
    "pack deleted",
    "put after its name was collected",
    "put applied but reported failed",
    "put in doubt",
    "restore with an open commit",
    "savepoint held while packs are collected around it",
    "start from a savepoint that the log has no more",
    "state of a failed attempt carried",
    "subsumed attempt",
    "superseded",
];

#[test]
fn every_seed_of_the_protocol_keeps_the_invariants() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let alone = number("WEIR_SEED");
    let seeds = if alone.is_some() { 1 } else { number("WEIR_PROTOCOL_SEEDS").unwrap_or(500) };
    let first = alone.unwrap_or(1);
    let replay = "cargo test --release -p weir --lib every_seed_of_the_protocol";
    let seen = simulate_all(first..first + seeds, replay, simulate);
    let (text, missing) = table(&format!("{seeds} seeds of the protocol"), &SITUATIONS, &seen);
    eprintln!("{text}");
    // A simulation in which nothing happens would hold everything.
    assert!(seeds < 2_000 || missing.is_empty(), "never happened: {missing:?}");
}

/// See the same in `crate::simulation::tests`.
macro_rules! mutants {
    ($($name:ident: $which:ident by $seeds_max:literal,)*) => {
        $(
            #[test]
            fn $name() {
                catch(Mutant::$which, $seeds_max, |seed| drop(simulate(seed)));
            }
        )*
    };
}

mutants! {
    a_claim_outside_the_log_is_caught: ClaimOutsideTheLog by 20,
    a_generation_checked_before_the_put_and_not_after_it_is_caught: FenceBeforePut by 2_000,
    already_exists_taken_for_lost_is_caught: ExistsMeansLost by 200,
    already_exists_taken_for_written_is_caught: ExistsMeansWritten by 200,
    a_second_open_commit_is_caught: SecondOpenCommit by 20,
    deletion_by_age_is_caught: DeletionByAge by 100,
    reuse_because_it_exists_is_caught: ReuseBecauseItExists by 200,
    a_destination_that_forgets_identities_is_caught: ForgetfulDestination by 100,
}
