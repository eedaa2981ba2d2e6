//! What changed between two checkpoints: bytes that came, went and stayed, by node and key group.
//!
//! Segments that both name are the same without being read; of the others every chunk is read and told by its hash, so state
//! that was written again as it was counts as the same, wherever it lies.

use std::collections::{BTreeMap, HashMap};

use super::error::CheckpointError;
use super::inspect::read_manifest;
use super::manifest::Manifest;
use super::objects::{JobStore, Store};
use super::read::read_segments;
use super::recover::look_at;
use super::segment::SegmentRef;
use crate::model::{Epoch, NodeName, Scope};

/// How a part of a node's state differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The node.
    pub node: NodeName,
    /// Which part: a key group, or what else state belongs to.
    pub scope: Scope,
    /// The subtask, where state belongs to one.
    pub subtask: Option<u32>,
    /// Bytes that only the second has.
    pub added: u64,
    /// Bytes that only the first has.
    pub removed: u64,
    /// Bytes that both have.
    pub same: u64,
}

type Part = (NodeName, Scope, Option<u32>);

/// Compares two checkpoints of a job, each in its log or pinned. Parts in their order, by node; those without any bytes are left
/// out.
pub async fn diff(store: &Store, job: &str, first: Epoch, second: Epoch) -> Result<Vec<Difference>, CheckpointError> {
    let (first, second) = (read_manifest(store, job, first).await?, read_manifest(store, job, second).await?);
    let store = look_at(store, job).await?;
    let (mut first, mut second) = (subtasks(&first), subtasks(&second));
    let mut parts: BTreeMap<Part, [u64; 3]> = BTreeMap::new();
    // What both name.
    let mut known: HashMap<SegmentRef, Vec<(NodeName, u32)>> = HashMap::new();
    for (task, segments) in &second {
        for segment in segments {
            known.entry(segment.clone()).or_default().push(task.clone());
        }
    }
    let mut shared: HashMap<SegmentRef, usize> = HashMap::new();
    for (task, segments) in &mut first {
        segments.retain(|segment| {
            let both = known.get_mut(segment).filter(|tasks| tasks.iter().any(|(node, _)| *node == task.0));
            let Some(tasks) = both else { return true };
            if let Some(at) = tasks.iter().position(|(node, _)| *node == task.0) {
                tasks.swap_remove(at);
            }
            parts.entry(part(task, segment)).or_default()[2] += segment.bytes;
            *shared.entry(segment.clone()).or_default() += 1;
            false
        });
    }
    for segments in second.values_mut() {
        segments.retain(|segment| match shared.get_mut(segment) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        });
    }
    // What one of them names: by content.
    let mut chunks: HashMap<(Part, blake3::Hash), ([u64; 2], u64)> = HashMap::new();
    for (side, tasks) in [first, second].into_iter().enumerate() {
        for (task, segments) in tasks {
            read_into(&store, side, &task, &segments, &mut chunks).await?;
        }
    }
    for ((part, _), (counts, bytes)) in chunks {
        let [in_first, in_second] = counts;
        let same = in_first.min(in_second);
        let sums = parts.entry(part).or_default();
        sums[0] += (in_second - same) * bytes;
        sums[1] += (in_first - same) * bytes;
        sums[2] += same * bytes;
    }
    let difference = |((node, scope, subtask), [added, removed, same]): (Part, [u64; 3])| Difference {
        node,
        scope,
        subtask,
        added,
        removed,
        same,
    };
    Ok(parts.into_iter().map(difference).filter(|d| d.added + d.removed + d.same > 0).collect())
}

fn subtasks(manifest: &Manifest) -> BTreeMap<(NodeName, u32), Vec<SegmentRef>> {
    let nodes = manifest.nodes.iter();
    let subtasks = nodes.flat_map(|node| {
        let numbered = (0..).zip(&node.subtasks);
        // Of opaque state, piece by piece: what did not change is the same.
        numbered.map(|(number, subtask)| {
            ((node.name.clone(), number), subtask.segments.iter().map(SegmentRef::as_stored).collect())
        })
    });
    subtasks.collect()
}

fn part(task: &(NodeName, u32), segment: &SegmentRef) -> Part {
    part_of(task, segment.scope)
}

/// Key groups move between subtasks and items are dealt out; the rest belongs to a subtask.
fn part_of((node, subtask): &(NodeName, u32), scope: Scope) -> Part {
    let subtask = matches!(scope, Scope::Subtask | Scope::Shared).then_some(*subtask);
    (node.clone(), scope, subtask)
}

async fn read_into(
    store: &JobStore,
    side: usize,
    task: &(NodeName, u32),
    segments: &[SegmentRef],
    chunks: &mut HashMap<(Part, blake3::Hash), ([u64; 2], u64)>,
) -> Result<(), CheckpointError> {
    for chunk in read_segments(store, segments).await? {
        let key = (part_of(task, chunk.scope), blake3::hash(&chunk.data));
        let (counts, bytes) = chunks.entry(key).or_default();
        counts[side] += 1;
        *bytes = chunk.data.len() as u64;
    }
    Ok(())
}
