//! State on its way from one instance to the next: what a store would hold of an operator's snapshots, and how it is dealt out.
//!
//! A toy of the real thing (`checkpoint/`, `flow/rescale.rs`): the rules of `wit/snapshots.wit` and nothing besides, in memory.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use crate::model::{Chunk, KEY_GROUPS_DEFAULT, Scope, SegmentKind, SnapshotMode, subtask_of_group};
use crate::plugin::SnapshotWriter;

/// The chunks of one snapshot, as they are written.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) chunks: Vec<(Scope, SegmentKind, Bytes)>,
    /// Asks to be called again after each chunk.
    pub(super) in_steps: bool,
}

impl SnapshotWriter for Written {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        self.chunks.push((scope, kind, Bytes::copy_from_slice(data)));
        !self.in_steps
    }
}

/// The segments that a store holds of one subtask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    segments: BTreeMap<Scope, Vec<Piece>>,
}

/// A chunk of a segment, and who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    kind: SegmentKind,
    origin: u32,
    data: Bytes,
}

impl State {
    /// What a full snapshot left.
    pub(super) fn full(origin: u32, written: Written) -> Self {
        let mut state = Self::default();
        state.apply(SnapshotMode::Full, origin, written);
        state
    }

    /// A snapshot that was done.
    pub(super) fn apply(&mut self, mode: SnapshotMode, origin: u32, written: Written) {
        if mode == SnapshotMode::Full {
            self.segments.clear();
        }
        let mut based = HashSet::new();
        for (scope, kind, data) in written.chunks {
            let segment = self.segments.entry(scope).or_default();
            if kind == SegmentKind::Base && based.insert(scope) {
                segment.clear();
            }
            if !data.is_empty() {
                segment.push(Piece { kind, origin, data });
            }
        }
        self.segments.retain(|_, pieces| !pieces.is_empty());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.pieces().map(|(_, piece)| piece.data.len() as u64).sum()
    }

    /// The largest chunk.
    pub(super) fn chunk_bytes_max(&self) -> u64 {
        self.pieces().map(|(_, piece)| piece.data.len() as u64).max().unwrap_or(0)
    }

    fn pieces(&self) -> impl Iterator<Item = (Scope, &Piece)> {
        self.segments.iter().flat_map(|(scope, pieces)| pieces.iter().map(move |piece| (*scope, piece)))
    }

    /// In the order in which a restore reads them.
    pub(super) fn chunks(&self) -> Vec<Chunk> {
        let chunk = |(scope, piece): (Scope, &Piece)| Chunk {
            scope,
            kind: piece.kind,
            origin: piece.origin,
            data: piece.data.clone(),
        };
        self.pieces().map(chunk).collect()
    }

    /// By which equal states are known without keeping them.
    pub(super) fn hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for (scope, piece) in self.pieces() {
            let place = format!("{scope:?} {:?} {} ", piece.kind, piece.data.len());
            hasher.update(place.as_bytes()).update(&piece.data);
        }
        hasher.finalize()
    }

    /// The first segment that is not the same, in words; none if all are.
    pub(super) fn difference(&self, found: &Self) -> Option<StateDifference> {
        let scopes: std::collections::BTreeSet<&Scope> = self.segments.keys().chain(found.segments.keys()).collect();
        let differs = |scope: &Scope| data(self, scope) != data(found, scope);
        let differing: Vec<&Scope> = scopes.into_iter().filter(|scope| differs(scope)).collect();
        let scope = **differing.first()?;
        let what = match (self.segments.get(&scope), found.segments.get(&scope)) {
            (Some(mine), None) => format!("has {} in the undisturbed run and nothing in the other", amount(mine)),
            (None, Some(theirs)) => format!("has nothing in the undisturbed run and {} in the other", amount(theirs)),
            (Some(mine), Some(theirs)) => difference(mine, theirs),
            (None, None) => return None,
        };
        Some(StateDifference { segment: name(scope), what, segments: differing.len() })
    }

    /// Deals out what several subtasks wrote, as a job does that goes on with another parallelism.
    ///
    /// # Errors
    ///
    /// Which state cannot be dealt out.
    pub(super) fn deal(states: &[Self], parallelism: u32) -> Result<Vec<Self>, Undealt> {
        let mut dealt = vec![Self::default(); parallelism as usize];
        let mut items = Vec::new();
        for state in states {
            for (scope, pieces) in &state.segments {
                match scope {
                    Scope::KeyGroup(group) => {
                        let to = subtask_of_group(*group, parallelism, KEY_GROUPS_DEFAULT) as usize;
                        if dealt[to].segments.insert(*scope, pieces.clone()).is_some() {
                            return Err(Undealt::Twice(*group));
                        }
                    }
                    Scope::Subtask => {
                        return Err(Undealt::Subtask(pieces.iter().map(|piece| piece.data.len() as u64).sum()));
                    }
                    // All have the same: the copy of the first.
                    Scope::Shared => {
                        for to in &mut dealt {
                            to.segments.entry(*scope).or_insert_with(|| pieces.clone());
                        }
                    }
                    Scope::Item => items.extend(pieces.iter().cloned()),
                }
            }
        }
        let count = items.len();
        for (number, item) in items.into_iter().enumerate() {
            let to = number * dealt.len() / count;
            dealt[to].segments.entry(Scope::Item).or_default().push(item);
        }
        Ok(dealt)
    }
}

/// What cannot be dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undealt {
    /// So many bytes belong to a subtask alone.
    Subtask(u64),
    /// Two subtasks wrote this key group.
    Twice(u32),
}

fn data<'a>(state: &'a State, scope: &Scope) -> Vec<(SegmentKind, &'a Bytes)> {
    let pieces = state.segments.get(scope).into_iter().flatten();
    pieces.map(|piece| (piece.kind, &piece.data)).collect()
}

fn amount(pieces: &[Piece]) -> String {
    let bytes: usize = pieces.iter().map(|piece| piece.data.len()).sum();
    match pieces.len() {
        1 => format!("a chunk of {bytes} bytes"),
        chunks => format!("{chunks} chunks of {bytes} bytes"),
    }
}

fn difference(mine: &[Piece], theirs: &[Piece]) -> String {
    let mut pairs = mine.iter().zip(theirs).map(|(mine, theirs)| (&mine.data, &theirs.data)).enumerate();
    let Some((number, (mine, theirs))) = pairs.find(|(_, (mine, theirs))| mine != theirs) else {
        return format!("has {} in the undisturbed run and {} in the other", amount(mine), amount(theirs));
    };
    let at = mine.iter().zip(theirs.iter()).position(|(a, b)| a != b).unwrap_or(mine.len().min(theirs.len()));
    let (mine, theirs) = (mine.len(), theirs.len());
    format!(
        "differs from byte {at} of its chunk {number} on ({mine} bytes in the undisturbed run, {theirs} in the other)"
    )
}

/// A segment for people.
fn name(scope: Scope) -> String {
    match scope {
        Scope::KeyGroup(group) => format!("key group {group}"),
        Scope::Subtask => "the state of the subtask".to_owned(),
        Scope::Shared => "the shared state".to_owned(),
        Scope::Item => "the list of items".to_owned(),
    }
}

/// Where two states differ.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct StateDifference {
    /// The first segment that differs.
    pub segment: String,
    /// In what.
    pub what: String,
    /// How many segments differ.
    pub segments: usize,
}

impl std::fmt::Display for StateDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.segment, self.what)?;
        if self.segments > 1 { write!(f, "; {} segments differ", self.segments) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(chunks: &[(Scope, SegmentKind, &'static str)]) -> Written {
        let chunks = chunks.iter().map(|&(scope, kind, data)| (scope, kind, Bytes::from_static(data.as_bytes())));
        Written { chunks: chunks.collect(), in_steps: false }
    }

    const GROUP: Scope = Scope::KeyGroup(3);

    #[test]
    fn a_base_replaces_a_segment_a_delta_adds_to_it_and_an_empty_base_clears_it() {
        use SegmentKind::{Base, Delta};
        let mut state = State::full(0, written(&[(GROUP, Base, "a"), (GROUP, Base, "b"), (Scope::Shared, Base, "s")]));
        state.apply(SnapshotMode::Incremental, 0, written(&[(GROUP, Delta, "c")]));
        let data = |state: &State| state.chunks().iter().map(|chunk| chunk.data.clone()).collect::<Vec<_>>();
        assert_eq!(data(&state), ["a", "b", "c", "s"]);
        state.apply(SnapshotMode::Incremental, 0, written(&[(GROUP, Base, "d"), (Scope::Shared, Base, "")]));
        assert_eq!(data(&state), ["d"]);
        state.apply(SnapshotMode::Full, 0, written(&[]));
        assert!(state.is_empty());
    }

    #[test]
    fn key_groups_move_shared_state_is_copied_items_are_dealt_and_what_is_a_subtasks_own_is_refused() {
        use SegmentKind::Base;
        let one = State::full(
            0,
            written(&[
                (Scope::KeyGroup(0), Base, "0"),
                (Scope::KeyGroup(127), Base, "127"),
                (Scope::Shared, Base, "s"),
                (Scope::Item, Base, "i"),
                (Scope::Item, Base, "j"),
            ]),
        );
        let two = State::deal(std::slice::from_ref(&one), 2).unwrap();
        let data = |state: &State| state.chunks().iter().map(|chunk| chunk.data.clone()).collect::<Vec<_>>();
        assert_eq!(
            (data(&two[0]), data(&two[1])),
            (vec!["0".into(), "s".into(), "i".into()], vec!["127".into(), "s".into(), "j".into()])
        );
        assert_eq!(State::deal(&two, 1).unwrap(), std::slice::from_ref(&one));
        assert_eq!(State::deal(&[one.clone(), one], 2), Err(Undealt::Twice(0)));
        let own = State::full(0, written(&[(Scope::Subtask, Base, "own")]));
        assert_eq!(State::deal(&[own], 2), Err(Undealt::Subtask(3)));
    }

    #[test]
    fn the_first_segment_that_differs_is_named_with_the_place() {
        use SegmentKind::Base;
        let one = State::full(0, written(&[(GROUP, Base, "abc"), (Scope::Subtask, Base, "x")]));
        let other = State::full(0, written(&[(GROUP, Base, "abd")]));
        assert_eq!(one.difference(&one), None);
        let text = one.difference(&other).unwrap().to_string();
        assert_eq!(
            text,
            "key group 3 differs from byte 2 of its chunk 0 on (3 bytes in the undisturbed run, 3 in the other); 2 segments differ"
        );
    }
}
