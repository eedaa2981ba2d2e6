//! Snapshots through everything between a guest's chunks and a manifest: cut, compressed, packed, carried inline, referred to, moved.

use std::collections::HashSet;

use bytes::Bytes;
use futures::FutureExt;

use super::super::manifest::SubtaskEntry;
use super::super::objects::JobStore;
use super::super::read::{SegmentReader, move_chunks, read_segments};
use super::super::segment::tests::{Model, Write};
use super::super::testing::{Random, a_manifest, job_store, run};
use super::*;
use crate::model::{NodeName, Scope, SegmentKind};

const GENERATION: Generation = Generation(1);

fn task() -> TaskId {
    TaskId { node: NodeName::new("count"), subtask: 0 }
}

fn noise(random: &mut Random, bytes: usize) -> Vec<u8> {
    std::iter::repeat_with(|| random.next().to_le_bytes()).flatten().take(bytes).collect()
}

/// One subtask and its store.
struct Place {
    store: JobStore,
    holdings: Holdings,
    epoch: u64,
    inline_max: u64,
}

impl Place {
    fn new() -> Self {
        Self { store: job_store(), holdings: Holdings::default(), epoch: 0, inline_max: 8 << 10 }
    }

    /// Packs and puts a snapshot. Says how many bytes were put, and in how many objects.
    fn put(&mut self, written: &[Write], mut flush: impl FnMut() -> bool) -> (Written, u64, usize) {
        self.epoch += 1;
        let mut packer = self.holdings.packer(GENERATION, Epoch(self.epoch), &task());
        let mut packs = Vec::new();
        for (scope, kind, data) in written {
            packer.write(*scope, *kind, Bytes::copy_from_slice(data)).unwrap();
            packs.extend(packer.take_full());
            if flush() {
                packs.extend(packer.take());
            }
        }
        let (last, written) = packer.finish(packs.is_empty()).unwrap();
        packs.extend(last);
        for pack in &packs {
            run(self.store.put_pack(pack)).unwrap();
        }
        (written, packs.iter().map(|pack| pack.bytes).sum(), packs.len())
    }

    /// A snapshot that becomes durable, and what follows from it. Says how many bytes it put, and how many of them are older.
    fn snapshot(&mut self, mode: SnapshotMode, written: &[Write]) -> (u64, u64) {
        let (written, bytes, _) = self.put(written, || false);
        self.take(mode, written, bytes)
    }

    fn take(&mut self, mode: SnapshotMode, written: Written, bytes: u64) -> (u64, u64) {
        self.holdings.apply(mode, written);
        let places = self.holdings.to_move(bytes, self.inline_max);
        let moved =
            run(move_chunks(&self.store, &self.holdings, (GENERATION, Epoch(self.epoch), &task()), places)).unwrap();
        let mut moved_bytes = 0;
        if let Some((holdings, more)) = moved {
            self.holdings = holdings;
            moved_bytes = more;
        }
        (bytes + moved_bytes, moved_bytes)
    }

    fn segments(&self) -> &[SegmentRef] {
        self.holdings.segments().as_slice()
    }

    fn named(&self) -> HashSet<PackName> {
        self.segments().iter().map(|segment| segment.pack.clone()).collect()
    }

    /// What a manifest names stays, the rest goes: as the collector has it.
    fn collect(&self) {
        let named: HashSet<String> = self.named().iter().map(ToString::to_string).collect();
        let listed = run(self.store.store().list(&self.store.packs_folder())).unwrap();
        for name in listed.iter().filter(|name| !named.contains(*name)) {
            run(self.store.store().delete(&self.store.pack(&name.parse().unwrap()))).unwrap();
        }
    }

    fn objects(&self) -> usize {
        run(self.store.store().list(&self.store.packs_folder())).unwrap().len()
    }

    fn read(&self) -> Vec<Write> {
        let chunks = run(read_segments(&self.store, self.segments())).unwrap();
        chunks.into_iter().map(|chunk| (chunk.scope, chunk.kind, chunk.data.to_vec())).collect()
    }

    /// Through the bytes of a manifest, into a new life.
    fn restart(&mut self) {
        let mut manifest = a_manifest(self.epoch.max(1), 1);
        manifest.nodes[1].subtasks[0] = SubtaskEntry { segments: self.segments().to_vec(), ..SubtaskEntry::default() };
        manifest.check().unwrap();
        let bytes = postcard::to_allocvec(&manifest).unwrap();
        let manifest: super::super::Manifest = postcard::from_bytes(&bytes).unwrap();
        let (_, holdings) =
            run(SegmentReader::open(&manifest.nodes[1].subtasks[0].segments, |_| self.store.clone())).unwrap();
        assert_eq!(holdings.segments(), self.holdings.segments());
        self.holdings = holdings;
    }
}

/// Chunks of a state, as a guest might write them.
fn opaque(scope: Scope, state: &[u8], chunk: usize) -> Vec<Write> {
    let chunks: Vec<Write> = state.chunks(chunk).map(|data| (scope, SegmentKind::Base, data.to_vec())).collect();
    if chunks.is_empty() { vec![(scope, SegmentKind::Base, Vec::new())] } else { chunks }
}

#[test]
fn whatever_is_written_left_moved_or_lost_what_is_held_comes_back_as_it_was_written() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let mut place = Place::new();
        let mut model = Model::default();
        let mut states = [noise(&mut random, 700_000), Vec::new()];
        let mut is_lost = true;
        for _ in 0..14 {
            let mode = if is_lost || random.chance(150) { SnapshotMode::Full } else { SnapshotMode::Incremental };
            let mut written: Vec<Write> = Vec::new();
            for (scope, state) in [Scope::Subtask, Scope::Shared].into_iter().zip(&mut states) {
                match random.below(4) {
                    0 => {
                        let at = random.below(state.len() as u64 + 1) as usize;
                        let length = random.below(60_000) as usize;
                        let new = noise(&mut random, length);
                        state.splice(at..at, new);
                    }
                    1 if !state.is_empty() => {
                        let at = random.below(state.len() as u64) as usize;
                        let end = state.len().min(at + random.below(100_000) as usize);
                        state.drain(at..end);
                    }
                    _ => {}
                }
                if mode == SnapshotMode::Full || random.chance(600) {
                    written.extend(opaque(scope, state, [3_000, 65_536, 100_001][random.below(3) as usize]));
                }
            }
            for _ in 0..random.below(6) {
                let scope = [Scope::KeyGroup(random.below(3) as u32), Scope::Item, Scope::Subtask, Scope::Shared]
                    [random.below(4) as usize];
                let is_delta = mode == SnapshotMode::Incremental && random.chance(600);
                let kind = if is_delta || matches!(scope, Scope::Subtask | Scope::Shared) {
                    SegmentKind::Delta
                } else {
                    SegmentKind::Base
                };
                if kind == SegmentKind::Delta && mode == SnapshotMode::Full {
                    continue;
                }
                let length = random.below(3_000) as usize;
                let data = if random.chance(500) { vec![1; length] } else { noise(&mut random, length) };
                written.push((scope, kind, data));
            }
            let before = place.named();
            let (packed, bytes, _) = place.put(&written, || random.chance(100));
            is_lost = random.chance(100);
            if is_lost {
                continue;
            }
            place.take(mode, packed, bytes);
            model.apply(mode, &written);
            // I8.
            let epoch = Epoch(place.epoch);
            assert!(place.named().iter().all(|pack| pack.epoch() == epoch || before.contains(pack)), "seed {seed}");
            place.collect();
            if random.chance(300) {
                place.restart();
            }
            assert!(place.read() == model.chunks(), "seed {seed}, epoch {epoch}");
            let live: u64 = model.chunks().iter().map(|(_, _, data)| data.len() as u64).sum();
            assert_eq!(place.holdings.segments().bytes(), live, "seed {seed}");
        }
    }
}

#[test]
fn an_insertion_near_the_front_of_an_opaque_state_costs_about_a_piece() {
    let mut random = Random(1);
    for restarts in [false, true] {
        let mut place = Place::new();
        let mut state = noise(&mut random, 16 << 20);
        let (first, _) = place.snapshot(SnapshotMode::Full, &opaque(Scope::Subtask, &state, 256 << 10));
        assert!(first >= 16 << 20);
        for _ in 0..3 {
            if restarts {
                place.restart();
            }
            state.splice(70_000..70_000, *b"an insertion");
            let written = opaque(Scope::Subtask, &state, 256 << 10);
            let (bytes, _) = place.snapshot(SnapshotMode::Incremental, &written);
            assert!(bytes < 512 << 10, "{bytes} bytes for an insertion of 12");
            assert!(place.read() == written);
        }
        // Nothing has changed: nothing is written.
        let objects = place.objects();
        let (bytes, _) = place.snapshot(SnapshotMode::Incremental, &opaque(Scope::Subtask, &state, 256 << 10));
        assert_eq!((bytes, place.objects()), (0, objects));
    }
}

#[test]
fn a_few_bytes_make_no_object_until_there_are_many_of_them_or_an_object_is_written_anyway() {
    let mut place = Place::new();
    let mut model = Model::default();
    let mut flushed = 0;
    for epoch in 0..100_u32 {
        let kind = if epoch == 0 { SegmentKind::Base } else { SegmentKind::Delta };
        let mode = if epoch == 0 { SnapshotMode::Full } else { SnapshotMode::Incremental };
        let written = [(Scope::KeyGroup(epoch % 3), kind, epoch.to_le_bytes().to_vec())];
        let (bytes, moved) = place.snapshot(mode, &written);
        model.apply(mode, &written);
        assert_eq!(bytes, moved, "only what moves makes an object");
        flushed += u64::from(moved > 0);
        let inline: usize = place.named().iter().filter_map(|pack| pack.inline().map(Bytes::len)).sum();
        assert!(inline <= 8 << 10, "{inline} bytes in the manifest");
        assert!(place.read() == model.chunks());
    }
    assert!((1..=3).contains(&flushed), "{flushed} objects for 100 epochs");
    // What was moved together lies together.
    assert!(place.segments().len() < 80, "{}", place.segments().len());
    let written = [(Scope::KeyGroup(0), SegmentKind::Delta, noise(&mut Random(2), 10_000))];
    place.snapshot(SnapshotMode::Incremental, &written);
    model.apply(SnapshotMode::Incremental, &written);
    assert!(place.named().iter().all(|pack| pack.inline().is_none()));
    assert!(place.read() == model.chunks());
}

#[test]
fn a_pack_less_than_half_alive_is_written_again_and_goes() {
    let mut random = Random(3);
    let mut place = Place::new();
    let mut model = Model::default();
    let group = |group, random: &mut Random| (Scope::KeyGroup(group), SegmentKind::Base, noise(random, 40_000));
    let mut written: Vec<Write> = (0..10).map(|number| group(number, &mut random)).collect();
    place.snapshot(SnapshotMode::Full, &written);
    model.apply(SnapshotMode::Full, &written);
    let first = place.segments()[0].pack.clone();
    for number in 0..6 {
        written = vec![group(number, &mut random)];
        let (_, moved) = place.snapshot(SnapshotMode::Incremental, &written);
        model.apply(SnapshotMode::Incremental, &written);
        assert!(place.read() == model.chunks());
        // Half alive is not less than half.
        assert_eq!(moved > 0, number == 5, "after {number}");
        assert_eq!(place.named().contains(&first), number < 5);
    }
    assert!(place.segments().iter().all(|segment| segment.pack.size().is_some()));
}

#[test]
fn very_many_references_are_joined_a_few_at_a_time() {
    let mut place = Place::new();
    place.inline_max = 0;
    let mut model = Model::default();
    let mut most = 0;
    for epoch in 0..80_u32 {
        let mode = if epoch == 0 { SnapshotMode::Full } else { SnapshotMode::Incremental };
        let kind = if epoch == 0 { SegmentKind::Base } else { SegmentKind::Delta };
        let written: Vec<Write> = (0..250).map(|g| (Scope::KeyGroup(g), kind, epoch.to_le_bytes().to_vec())).collect();
        place.snapshot(mode, &written);
        model.apply(mode, &written);
        most = most.max(place.segments().len());
    }
    assert!(most <= JOIN_ABOVE + 250, "{most} references");
    assert!(place.read() == model.chunks());
}

#[test]
fn a_chunk_that_cannot_be_moved_leaves_what_is_held_as_it_was() {
    let mut place = Place::new();
    place.snapshot(SnapshotMode::Full, &[(Scope::Item, SegmentKind::Base, noise(&mut Random(4), 10_000))]);
    let pack = place.segments()[0].pack.clone();
    run(place.store.store().delete(&place.store.pack(&pack))).unwrap();
    let at = (GENERATION, Epoch(9), &task());
    let moving = move_chunks(&place.store, &place.holdings, at, vec![0]).now_or_never();
    let error = moving.expect("memory does not wait").unwrap_err().to_string();
    assert!(error.contains(&pack.to_string()) && error.contains("is missing"), "{error}");
}
