//! Instances that are replaced at a soft memory ceiling: the same output and the same state as without, at any moment.
//!
//! Invariants: I8, I12.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use weir::model::{Batch, Chunk, Epoch, Scope, SegmentKind, SnapshotMode, TaskInfo};
use weir::plan::LimitsSpec;
use weir::plugin::{HostOptions, Operator, Output, Plugin, PluginHost, SnapshotWriter};
use weir_tests::guests::guest;

static CACHE: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

async fn leaky(instances_max: u32) -> Plugin {
    let cache_dir = Some(CACHE.path().join("compiled"));
    let host = PluginHost::new(HostOptions { cache_dir, instances_max, ..HostOptions::default() }).expect("a host");
    host.load(&guest("leaky")).await.expect("it is a plugin")
}

async fn open(plugin: &Plugin, soft: Option<u64>, config: serde_json::Value) -> Box<dyn Operator> {
    let limits = LimitsSpec { memory_bytes: 64 << 20, soft_memory_bytes: soft, ..LimitsSpec::default() };
    let (job, node) = ("job".to_owned(), "node".to_owned());
    let task = TaskInfo { job, node, subtask: 0, parallelism: 1, key_groups: 16, groups: 0..16, seed: 1 };
    plugin.open(&limits, &config, &task).await.expect("it opens")
}

type Write = (Scope, SegmentKind, Vec<u8>);

/// Takes so many chunks before it asks to be called again.
struct Written {
    chunks: Vec<Write>,
    room: usize,
}

impl SnapshotWriter for Written {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        self.chunks.push((scope, kind, data.to_vec()));
        self.room = self.room.saturating_sub(1);
        self.room > 0
    }
}

/// The segments that a store holds, as `wit/snapshots.wit` says.
#[derive(Clone, Default)]
struct Held(BTreeMap<Scope, Vec<(SegmentKind, Vec<u8>)>>);

impl Held {
    fn apply(&mut self, mode: SnapshotMode, written: &[Write]) {
        if mode == SnapshotMode::Full {
            self.0.clear();
        }
        let mut based = HashSet::new();
        for (scope, kind, data) in written {
            let segment = self.0.entry(*scope).or_default();
            if *kind == SegmentKind::Base && based.insert(*scope) {
                segment.clear();
            }
            if !data.is_empty() {
                segment.push((*kind, data.clone()));
            }
        }
    }

    fn chunks(&self) -> Vec<Chunk> {
        let chunks = self.0.iter().flat_map(|(scope, segment)| segment.iter().map(move |chunk| (*scope, chunk)));
        chunks.map(|(scope, (kind, data))| Chunk { scope, kind: *kind, origin: 0, data: data.clone().into() }).collect()
    }
}

fn batch(random: &mut Xoshiro256PlusPlus) -> Batch {
    let mut batch = Batch::default();
    for n in 0..1 + random.next_u64() % 30 {
        let key = format!("key-{}", random.next_u64() % 60);
        // Keys are forgotten often enough that key groups become empty.
        let value = (!random.next_u64().is_multiple_of(3)).then_some(&b"{}"[..]);
        batch.push(n as i64, Some(key.as_bytes()), value);
    }
    batch.hash_keys();
    batch
}

async fn process(operator: &mut dyn Operator, batch: &Batch) -> (Vec<(u32, Batch)>, u32) {
    let mut out = Output::default();
    operator.process(7, 0, batch, &mut out).await.expect("it works");
    (out.emitted, out.recycled)
}

/// One that leaks and is recycled, beside one that is not: snapshots of both in any mode and in any number of steps, batches between the
/// steps, restores from what a store would hold. Gives how often it was recycled.
async fn recycling_makes_no_difference(plugin: &Plugin, seed: u64) -> u32 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let leak = serde_json::json!({ "leak": 100_000 });
    let soft = Some(2 << 20);
    let mut calm = open(plugin, None, serde_json::json!({})).await;
    let mut moved = open(plugin, soft, leak.clone()).await;
    let (mut held_calm, mut held_moved) = (Held::default(), Held::default());
    let mut recycled = 0;
    for epoch in 1..=50 {
        for _ in 0..random.next_u64() % 12 {
            let batch = batch(&mut random);
            let (expected, _) = process(&mut *calm, &batch).await;
            let (got, times) = process(&mut *moved, &batch).await;
            assert_eq!(got, expected, "seed {seed}, epoch {epoch}");
            recycled += times;
        }
        let full = epoch == 1 || random.next_u64().is_multiple_of(6);
        let mode = if full { SnapshotMode::Full } else { SnapshotMode::Incremental };
        let room = 1 + random.next_u64() as usize % 20;
        let mut written = Written { chunks: Vec::new(), room: usize::MAX };
        assert!(calm.snapshot(Epoch(epoch), mode, &mut written).await.expect("it is saved"));
        held_calm.apply(mode, &written.chunks);
        let mut written = Written { chunks: Vec::new(), room };
        while !moved.snapshot(Epoch(epoch), mode, &mut written).await.expect("it is saved") {
            written.room = room;
            let batch = batch(&mut random);
            let (expected, _) = process(&mut *calm, &batch).await;
            let (got, times) = process(&mut *moved, &batch).await;
            assert_eq!((got, times), (expected, 0), "seed {seed}, epoch {epoch}: an open snapshot would be lost");
        }
        held_moved.apply(mode, &written.chunks);
        // Both stores lead to the same state.
        let mut by_calm = open(plugin, None, serde_json::json!({})).await;
        by_calm.restore(1, held_calm.chunks()).await.expect("it is read");
        let mut by_moved = open(plugin, None, serde_json::json!({})).await;
        by_moved.restore(1, held_moved.chunks()).await.expect("it is read");
        assert!(everything(&mut *by_calm).await == everything(&mut *by_moved).await, "seed {seed}, epoch {epoch}");
        if random.next_u64().is_multiple_of(8) {
            // A crash: both go back to what was saved.
            calm = by_calm;
            drop(moved);
            moved = open(plugin, soft, leak.clone()).await;
            moved.restore(1, held_moved.chunks()).await.expect("it is read");
        }
    }
    recycled
}

/// All state, in an order that does not depend on history.
async fn everything(operator: &mut dyn Operator) -> Vec<Write> {
    let mut written = Written { chunks: Vec::new(), room: usize::MAX };
    assert!(operator.snapshot(Epoch(1), SnapshotMode::Full, &mut written).await.expect("it is saved"));
    written.chunks.sort();
    written.chunks
}

#[tokio::test]
async fn an_instance_that_is_recycled_at_any_moment_leaves_the_same_output_and_the_same_segments() {
    let plugin = leaky(8).await;
    let mut recycled = 0;
    for seed in 0..10 {
        recycled += recycling_makes_no_difference(&plugin, seed).await;
    }
    assert!(recycled > 50, "recycled {recycled} times");
}

#[tokio::test]
async fn memory_stays_near_the_ceiling_and_without_one_the_limit_is_crossed() {
    let plugin = leaky(1).await;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let config = serde_json::json!({ "leak": 1 << 20 });
    let mut operator = open(&plugin, Some(8 << 20), config.clone()).await;
    let mut recycled = 0;
    // 200 MiB leak within a limit of 64, in the only place that there is.
    for _ in 0..200 {
        recycled += process(&mut *operator, &batch(&mut random)).await.1;
    }
    assert!((20..60).contains(&recycled), "{recycled}");
    drop(operator);
    let mut operator = open(&plugin, None, config).await;
    let mut out = Output::default();
    for _ in 0..200 {
        if let Err(error) = operator.process(1, 0, &batch(&mut random), &mut out).await {
            assert!(error.to_string().contains("limit of 64 MiB memory"), "{error}");
            return;
        }
    }
    panic!("it does not leak");
}

#[tokio::test]
async fn an_instance_that_is_above_the_ceiling_at_once_is_not_recycled_for_ever() {
    let plugin = leaky(1).await;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    // `open` alone takes more than the ceiling.
    let mut operator = open(&plugin, Some(4 << 20), serde_json::json!({ "keep": 6 << 20 })).await;
    let mut recycled = 0;
    for _ in 0..100 {
        recycled += process(&mut *operator, &batch(&mut random)).await.1;
    }
    assert_eq!(recycled, 1, "once, and then it knows");
}
