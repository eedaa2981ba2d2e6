//! Segments: what a subtask's state is made of, as references into packs.
//!
//! [`SegmentSet`] is a subtask's live list. It follows `wit/snapshots.wit` and `wit/checkpoint.wit`:
//!
//! - The first base that a snapshot writes to a scope drops all that the scope held before, base and deltas, also deltas
//!   written earlier in the same snapshot; further bases of that snapshot add to it. A base without bytes
//!   leaves nothing.
//! - A delta comes on top, in the order of writing.
//! - In a full snapshot what is not written is gone; in an incremental one it stays as it is.
//!
//! The scope is the identity of a segment, within one subtask. For [`Scope::Item`] this means: all items of a subtask
//! are *one* segment, whichever subtask wrote them and however many came from others in a rescale. A
//! base of items replaces the whole list, since the guest that writes it holds the whole list; a delta of items is on
//! top of the whole list, so a list that has deltas cannot be dealt out item by item, only as a whole. One
//! chunk of a base is one item.

//!
//! What a guest writes as one opaque state is kept in pieces that were cut by content ([`Layout::Pieces`], `cut.rs`), so that what did not
//! change is a reference. Its chunks come back as they were written all the same.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::pack::PackName;
use crate::model::{Scope, SegmentKind, SnapshotMode};

/// The most live segment references of a subtask.
pub const SEGMENTS_MAX: usize = 1 << 20;
/// References of one subtask above which the next snapshot should be full: each is some 15 bytes of every manifest.
const FOLD_ABOVE: usize = 32_768;

/// Chunks of one segment that lie side by side in a pack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentRef {
    /// Where it belongs.
    pub scope: Scope,
    /// Base or delta.
    pub kind: SegmentKind,
    /// The number of the subtask that wrote it.
    pub origin: u32,
    /// Which pack.
    pub pack: PackName,
    /// Its first chunk in the pack, from 0.
    pub first_chunk: u32,
    /// How many chunks. None at all: a base that clears; such a reference never stays in a [`SegmentSet`].
    pub chunks: u32,
    /// Their bytes.
    pub bytes: u64,
    /// What these chunks are to those that the guest wrote.
    pub layout: Layout,
}

/// What the chunks of a pack are to those that the guest wrote.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// Just those.
    Chunks,
    /// Pieces of them: the first of the references that make up a run of the guest's chunks. Laid end to end the pieces are the
    /// guest's chunks, which have these lengths.
    Pieces(Vec<Lengths>),
    /// The next pieces of the reference before it in the same segment.
    More,
}

/// So many chunks of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lengths {
    /// The bytes of each.
    pub bytes: u32,
    /// How many.
    pub count: u32,
}

impl Layout {
    /// Whether chunks that lie right behind can go under the same reference.
    pub(super) fn is_continued_by(&self, next: &Self) -> bool {
        matches!((self, next), (Self::Chunks, Self::Chunks) | (Self::Pieces(_) | Self::More, Self::More))
    }
}

impl SegmentRef {
    /// Whether a reference of the same segment lies right behind this one, so that one will do.
    fn is_continued_by(&self, next: &Self) -> bool {
        (self.kind, self.origin, &self.pack) == (next.kind, next.origin, &next.pack)
            && self.first_chunk.checked_add(self.chunks) == Some(next.first_chunk)
            && self.layout.is_continued_by(&next.layout)
    }
}

/// Checks that the pieces of each segment make up the chunks that its layout declares.
pub(super) fn check_layouts(segments: &[SegmentRef]) -> Result<(), String> {
    // Of each scope: the kind of its last reference, and how many bytes of pieces are still to come.
    let mut open: HashMap<Scope, (SegmentKind, Option<u64>)> = HashMap::new();
    let missing = |scope: Scope, bytes: u64| format!("a segment of {scope:?} whose pieces lack {bytes} bytes");
    for segment in segments {
        let SegmentRef { scope, kind, bytes, .. } = *segment;
        let before = open.get(&scope).copied();
        let left = match (&segment.layout, before) {
            (Layout::More, Some((last, Some(left)))) if last == kind => left,
            (Layout::More, _) => return Err(format!("a segment of {scope:?} that goes on with pieces of none")),
            (_, Some((_, Some(left)))) if left > 0 => return Err(missing(scope, left)),
            (Layout::Chunks, _) => {
                open.insert(scope, (kind, None));
                continue;
            }
            (Layout::Pieces(lengths), _) => {
                if lengths.iter().any(|part| part.bytes == 0 || part.count == 0) {
                    return Err(format!("a segment of {scope:?} with pieces of chunks of no bytes"));
                }
                lengths.iter().map(|part| u64::from(part.bytes) * u64::from(part.count)).sum()
            }
        };
        let Some(left) = left.checked_sub(bytes) else {
            return Err(format!("a segment of {scope:?} whose pieces have more bytes than its chunks"));
        };
        open.insert(scope, (kind, Some(left)));
    }
    match open.into_iter().find_map(|(scope, (_, left))| left.filter(|left| *left > 0).map(|left| (scope, left))) {
        Some((scope, left)) => Err(missing(scope, left)),
        None => Ok(()),
    }
}

impl SegmentRef {
    /// The same chunks as what they are in their pack, pieces or not.
    pub(crate) fn as_stored(&self) -> Self {
        Self { layout: Layout::Chunks, ..self.clone() }
    }

    /// Some of its chunks, from the number `skip` on. Only for reading: how many bytes they have is an estimate, so no manifest
    /// takes such a reference.
    pub(crate) fn part(&self, skip: u32, chunks: u32) -> Self {
        let bytes = u128::from(self.bytes) * u128::from(chunks) / u128::from(self.chunks.max(1));
        Self { first_chunk: self.first_chunk + skip, chunks, bytes: bytes as u64, ..self.clone() }
    }
}

/// The live segments of one subtask, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentSet(Vec<SegmentRef>);

impl SegmentSet {
    /// What a manifest says that a subtask holds.
    pub fn new(segments: Vec<SegmentRef>) -> Self {
        Self(segments)
    }

    /// The references, in the order in which they were written.
    pub fn as_slice(&self) -> &[SegmentRef] {
        &self.0
    }

    /// The references, for a manifest.
    pub fn to_vec(&self) -> Vec<SegmentRef> {
        self.0.clone()
    }

    /// Takes over what a snapshot wrote, in the order in which it wrote it.
    pub fn apply(&mut self, mode: SnapshotMode, written: &[SegmentRef]) {
        if mode == SnapshotMode::Full {
            self.0.clear();
        }
        // What the last base drops lies before the first base of this snapshot: everything older, and deltas that were
        // written before it.
        let mut first_base = HashMap::new();
        for (place, segment) in written.iter().enumerate() {
            if segment.kind == SegmentKind::Base {
                first_base.entry(segment.scope).or_insert(place);
            }
        }
        self.0.retain(|segment| !first_base.contains_key(&segment.scope));
        let stays = |(place, segment): &(usize, &SegmentRef)| {
            segment.chunks > 0 && first_base.get(&segment.scope).is_none_or(|first| place >= first)
        };
        self.0.extend(written.iter().enumerate().filter(stays).map(|(_, segment)| segment.clone()));
    }

    /// Whether there is far more of deltas than of bases, or the list has become long: then the next snapshot should be full. Guests that fold by themselves,
    /// a key group now and one then, do it before that.
    pub fn wants_full(&self) -> bool {
        let (mut bases, mut deltas) = (0, 0);
        for segment in &self.0 {
            *if segment.kind == SegmentKind::Base { &mut bases } else { &mut deltas } += segment.bytes;
        }
        deltas / 2 > bases || self.0.len() > FOLD_ABOVE
    }

    /// Puts other chunks with the same content in the place of those of some references, by their places in the list.
    pub(super) fn replace(&mut self, places: &[usize], with: impl IntoIterator<Item = SegmentRef>) {
        for (place, segment) in places.iter().zip(with) {
            self.0[*place] = segment;
        }
        let mut last: HashMap<Scope, usize> = HashMap::new();
        let mut merged: Vec<SegmentRef> = Vec::with_capacity(self.0.len());
        for segment in self.0.drain(..) {
            if let Some(before) = last.get(&segment.scope).and_then(|last| merged.get_mut(*last))
                && before.is_continued_by(&segment)
            {
                before.chunks += segment.chunks;
                before.bytes += segment.bytes;
                continue;
            }
            last.insert(segment.scope, merged.len());
            merged.push(segment);
        }
        self.0 = merged;
    }

    /// The bytes of all live chunks.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|segment| segment.bytes).sum()
    }
}

/// Sorts references as `wit/snapshots.wit` promises a guest: by ascending key group, the others after them; in a segment the
/// base before its deltas; otherwise as they were written.
pub fn reading_order(segments: &[SegmentRef]) -> Vec<&SegmentRef> {
    let mut sorted: Vec<_> = segments.iter().collect();
    sorted.sort_by_key(|segment| (segment.scope, segment.kind));
    sorted
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, HashSet};

    use proptest::prelude::*;

    use super::super::pack::{Pack, PackBuilder};
    use super::super::read::read_segments;
    use super::*;
    use crate::model::{Epoch, Generation, NodeName, TaskId};

    pub(in super::super) type Write = (Scope, SegmentKind, Vec<u8>);
    type Chunks = Vec<Vec<u8>>;

    /// What the contract says, chunk by chunk and without references.
    #[derive(Clone, Default)]
    pub(in super::super) struct Model(BTreeMap<Scope, (Chunks, Chunks)>);

    impl Model {
        pub(in super::super) fn apply(&mut self, mode: SnapshotMode, written: &[Write]) {
            if mode == SnapshotMode::Full {
                self.0.clear();
            }
            let mut based = HashSet::new();
            for (scope, kind, data) in written {
                let (bases, deltas) = self.0.entry(*scope).or_default();
                match kind {
                    SegmentKind::Base => {
                        if based.insert(*scope) {
                            bases.clear();
                            deltas.clear();
                        }
                        if !data.is_empty() {
                            bases.push(data.clone());
                        }
                    }
                    SegmentKind::Delta => deltas.push(data.clone()),
                }
            }
        }

        /// In the order that the contract promises: the scopes of `Scope` are declared in it.
        pub(in super::super) fn chunks(&self) -> Vec<Write> {
            let of = |scope: &Scope, kind, chunks: &[Vec<u8>]| {
                chunks.iter().map(|data| (*scope, kind, data.clone())).collect::<Vec<_>>()
            };
            self.0
                .iter()
                .flat_map(|(scope, (bases, deltas))| {
                    [of(scope, SegmentKind::Base, bases), of(scope, SegmentKind::Delta, deltas)].concat()
                })
                .collect()
        }
    }

    fn a_write() -> impl Strategy<Value = Write> {
        let scope = prop_oneof![
            3 => (0..3_u32).prop_map(Scope::KeyGroup),
            1 => Just(Scope::Subtask),
            1 => Just(Scope::Shared),
            1 => Just(Scope::Item),
        ];
        let kind = prop_oneof![Just(SegmentKind::Base), Just(SegmentKind::Delta)];
        (scope, kind, prop::collection::vec(any::<u8>(), 0..3))
    }

    fn a_snapshot() -> impl Strategy<Value = (SnapshotMode, Vec<Write>)> {
        let mode = prop_oneof![1 => Just(SnapshotMode::Full), 3 => Just(SnapshotMode::Incremental)];
        (mode, prop::collection::vec(a_write(), 0..8))
    }

    fn packed(epoch: u64, written: &[Write]) -> Option<Pack> {
        let task = TaskId { node: NodeName::new("a"), subtask: 4 };
        let mut builder = PackBuilder::new(Generation(1), Epoch(epoch), &task);
        for (scope, kind, data) in written {
            builder.write(*scope, *kind, data).unwrap();
        }
        builder.finish()
    }

    proptest! {
        #[test]
        fn a_segment_set_holds_what_the_contract_says(snapshots in prop::collection::vec(a_snapshot(), 0..8)) {
            let store = super::super::testing::job_store();
            let (mut model, mut set) = (Model::default(), SegmentSet::default());
            for (epoch, (mode, written)) in snapshots.iter().enumerate() {
                let pack = packed(epoch as u64 + 1, written);
                model.apply(*mode, written);
                set.apply(*mode, pack.as_ref().map_or(&[], |pack| &pack.segments));
                if let Some(pack) = pack {
                    super::super::testing::run(store.put_pack(&pack)).unwrap();
                }
                prop_assert!(set.as_slice().iter().all(|segment| segment.chunks > 0));
            }
            let chunks = super::super::testing::run(read_segments(&store, set.as_slice())).unwrap();
            prop_assert!(chunks.iter().all(|chunk| chunk.origin == 4));
            let read: Vec<Write> = chunks.into_iter().map(|c| (c.scope, c.kind, c.data.to_vec())).collect();
            prop_assert_eq!(read, model.chunks());
            prop_assert_eq!(set.bytes(), model.chunks().iter().map(|(_, _, data)| data.len() as u64).sum::<u64>());
        }
    }

    #[test]
    fn a_base_of_items_replaces_the_whole_list_whoever_wrote_it() {
        let one = packed(1, &[(Scope::Item, SegmentKind::Base, b"a".to_vec())]).unwrap();
        let mut dealt = one.segments.clone();
        dealt.extend(one.segments.iter().cloned().map(|segment| SegmentRef { origin: 9, ..segment }));
        let mut set = SegmentSet::new(dealt);
        let two = packed(2, &[(Scope::Item, SegmentKind::Base, b"b".to_vec())]).unwrap();
        set.apply(SnapshotMode::Incremental, &two.segments);
        assert_eq!(set.as_slice(), two.segments);
    }

    #[test]
    fn pieces_that_do_not_make_up_their_chunks_are_refused() {
        let pack = packed(1, &[(Scope::Subtask, SegmentKind::Base, b"state".to_vec())]).unwrap();
        let segment = |layout| SegmentRef { layout, ..pack.segments[0].clone() };
        let pieces = |bytes, count| segment(Layout::Pieces(vec![Lengths { bytes, count }]));
        let more = || segment(Layout::More);
        for good in [vec![segment(Layout::Chunks)], vec![pieces(5, 1)], vec![pieces(2, 5), more()]] {
            assert_eq!(check_layouts(&good), Ok(()), "{good:?}");
        }
        let other = SegmentRef { scope: Scope::Shared, ..more() };
        for (bad, fault) in [
            (vec![more()], "goes on with pieces of none"),
            (vec![segment(Layout::Chunks), more()], "goes on with pieces of none"),
            (vec![pieces(5, 1), more()], "more bytes"),
            (vec![pieces(4, 1)], "more bytes"),
            (vec![pieces(5, 2)], "lack 5 bytes"),
            (vec![pieces(5, 2), segment(Layout::Chunks)], "lack 5 bytes"),
            (vec![pieces(5, 2), other], "goes on with pieces of none"),
            (vec![pieces(5, 2), SegmentRef { kind: SegmentKind::Delta, ..more() }], "goes on with pieces of none"),
            (vec![pieces(0, 2)], "no bytes"),
        ] {
            let error = check_layouts(&bad).unwrap_err();
            assert!(error.contains(fault), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_missing_pack_a_damaged_one_and_a_wrong_reference_are_named() {
        let store = super::super::testing::job_store();
        let pack = packed(1, &[(Scope::Subtask, SegmentKind::Base, b"state".to_vec())]).unwrap();
        let read = |segments: &[SegmentRef]| {
            super::super::testing::run(read_segments(&store, segments)).map_err(|error| error.to_string())
        };
        let error = read(&pack.segments).unwrap_err();
        assert!(error.contains(&pack.name.to_string()) && error.contains("is missing"), "{error}");
        super::super::testing::run(store.put_pack(&pack)).unwrap();
        assert_eq!(read(&pack.segments).unwrap()[0].data[..], b"state"[..]);
        for (first_chunk, chunks) in [(1, 1), (0, 2), (u32::MAX, 2)] {
            let wrong = SegmentRef { first_chunk, chunks, ..pack.segments[0].clone() };
            let error = read(&[wrong]).unwrap_err();
            assert!(error.contains(&pack.name.to_string()) && error.contains("are wanted"), "{error}");
        }
        super::super::testing::flip(&store, &store.pack(&pack.name), 9);
        let error = read(&pack.segments).unwrap_err();
        assert!(error.contains(&pack.name.to_string()) && error.contains("chunk 0 does not match its hash"), "{error}");
    }
}
