//! The manifest: all that one checkpoint consists of. Its existence in the log is what completes the checkpoint.
//!
//! It is flat: everything live is named in it, and no reader opens a parent. What a source was at, what an operator
//! holds and what a sink has prepared are in one object, so that they are restored together or not at all (I2); timers,
//! inputs that ended and the schedule are in `progress`, in the words of the data path (I11).
//!
//! It is checked before it is written and after it was read, by the same function.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::pack::PackName;
use super::segment::{Layout, SEGMENTS_MAX, SegmentRef, check_layouts};
use crate::model::{
    Committable, Epoch, Generation, JobId, KEY_GROUPS_MAX, NodeName, Scope, SegmentKind, SplitPosition, Timestamp,
    name_fault,
};

/// The most nodes of a job.
pub const NODES_MAX: usize = 1024;
/// The most subtasks of a node.
pub const SUBTASKS_MAX: usize = 32_768;
/// The most committables of a node.
pub const COMMITTABLES_MAX: usize = 1 << 16;
/// The most split positions of a subtask.
pub const POSITIONS_MAX: usize = 1 << 16;
/// The most grants of a node.
const GRANTS_MAX: usize = 64;
/// The most bytes of one committable, of one subtask's progress or schedule, of one offset or fingerprint.
pub const OPAQUE_BYTES_MAX: usize = 16 << 20;
/// The longest name of a plugin, of its version or of a split, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The job's name.
    pub job: String,
    /// The job's history.
    pub job_id: JobId,
    /// Which attempt this is.
    pub epoch: Epoch,
    /// The run that wrote it.
    pub generation: Generation,
    /// The checkpoint before it on the line that was restored; none for the first.
    pub parent: Option<Epoch>,
    /// When it was put together.
    pub created_at: Timestamp,
    /// The job has ended with it.
    pub finished: bool,
    /// How many key groups the job has.
    pub key_groups: u32,
    /// The digest of the pipeline file.
    pub pipeline: [u8; 32],
    /// Every node of the pipeline.
    pub nodes: Vec<NodeEntry>,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    /// Records come from it.
    Source,
    /// Records go through it.
    Operator,
    /// Records go to it.
    Sink,
}

/// A node in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// Its identity.
    pub name: NodeName,
    /// What it does.
    pub kind: NodeKind,
    /// How many subtasks it had: as many as are listed.
    pub parallelism: u32,
    /// The code it ran, if that is a plugin.
    pub plugin: Option<PluginEntry>,
    /// By number.
    pub subtasks: Vec<SubtaskEntry>,
    /// What it was granted that makes a replay differ, such as a real clock.
    pub grants: Vec<String>,
    /// What a sink prepared and this checkpoint publishes, the oldest epoch first.
    pub committables: Vec<Committable>,
}

/// The code of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginEntry {
    /// The blake3 hash of the component.
    pub digest: [u8; 32],
    /// As the plugin calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of its state.
    pub state_version: u32,
    /// Its state is an image of its memory, taken by this version of the instrumenter: bound to the digest and the parallelism.
    pub image: Option<u32>,
}

/// A subtask in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubtaskEntry {
    /// Its live state, in the order of [`SegmentSet`](super::SegmentSet).
    pub segments: Vec<SegmentRef>,
    /// How far a source had read.
    pub positions: Vec<SplitPosition>,
    /// What else the cut consists of, in the words of the data path.
    pub progress: Vec<u8>,
    /// The watermark at the cut.
    pub watermark: Timestamp,
    /// How many records had passed.
    pub records: u64,
    /// In which order it worked since the checkpoint before, in the words of the data path; empty where that was not recorded.
    pub schedule: Vec<u8>,
}

impl Manifest {
    /// Every segment reference in it.
    pub fn segments(&self) -> impl Iterator<Item = &SegmentRef> {
        self.nodes.iter().flat_map(|node| &node.subtasks).flat_map(|subtask| &subtask.segments)
    }

    /// Every object with state that it names, once. What is carried inline is none.
    pub fn packs(&self) -> HashSet<PackName> {
        let stored = self.segments().filter(|segment| segment.pack.inline().is_none());
        stored.map(|segment| segment.pack.clone()).collect()
    }

    /// The node with a name.
    pub fn node(&self, name: &str) -> Option<&NodeEntry> {
        self.nodes.iter().find(|node| node.name.as_str() == name)
    }

    /// Says what is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), String> {
        let limit = |what: &str, value: usize, limit: usize| {
            if value > limit { Err(format!("{what}: {value}, over the limit of {limit}")) } else { Ok(()) }
        };
        if let Some(fault) = name_fault(&self.job) {
            return Err(format!("its job name {:?} {fault}", self.job));
        }
        if self.parent.is_some_and(|parent| parent >= self.epoch) {
            return Err(format!("its parent {:?} is not before epoch {}", self.parent, self.epoch));
        }
        if self.key_groups == 0 || self.key_groups > KEY_GROUPS_MAX {
            return Err(format!("it has {} key groups, and 1 to {KEY_GROUPS_MAX} are possible", self.key_groups));
        }
        limit("number of nodes", self.nodes.len(), NODES_MAX)?;
        let mut names = HashSet::new();
        for node in &self.nodes {
            if let Some(fault) = name_fault(node.name.as_str()) {
                return Err(format!("its node name {:?} {fault}", node.name.as_str()));
            }
            if !names.insert(&node.name) {
                return Err(format!("it has two nodes {}", node.name));
            }
            self.check_node(node, &limit).map_err(|fault| format!("node {}: {fault}", node.name))?;
        }
        Ok(())
    }

    fn check_node(
        &self,
        node: &NodeEntry,
        limit: &impl Fn(&str, usize, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        limit("number of subtasks", node.subtasks.len(), SUBTASKS_MAX)?;
        if node.subtasks.len() != node.parallelism as usize || node.parallelism == 0 {
            return Err(format!("{} subtasks at parallelism {}", node.subtasks.len(), node.parallelism));
        }
        if let Some(plugin) = &node.plugin {
            limit("length of the plugin's name (bytes)", plugin.name.len(), TEXT_BYTES_MAX)?;
            limit("length of the plugin's version (bytes)", plugin.version.len(), TEXT_BYTES_MAX)?;
        }
        limit("number of grants", node.grants.len(), GRANTS_MAX)?;
        for grant in &node.grants {
            limit("length of a grant (bytes)", grant.len(), TEXT_BYTES_MAX)?;
        }
        limit("number of committables", node.committables.len(), COMMITTABLES_MAX)?;
        if node.kind != NodeKind::Sink && !node.committables.is_empty() {
            return Err("committables, and it is not a sink".into());
        }
        if !node.committables.is_sorted_by_key(|committable| committable.epoch) {
            return Err("committables that are not the oldest first".into());
        }
        for committable in &node.committables {
            limit("committable (bytes)", committable.data.len(), OPAQUE_BYTES_MAX)?;
            // Not before its parent: what that one named was committed with it (I13).
            if committable.epoch > self.epoch || self.parent.is_some_and(|parent| committable.epoch <= parent) {
                return Err(format!(
                    "a committable of epoch {} in checkpoint {} with parent {:?}",
                    committable.epoch, self.epoch, self.parent
                ));
            }
        }
        for subtask in &node.subtasks {
            limit("number of segments of a subtask", subtask.segments.len(), SEGMENTS_MAX)?;
            limit("number of positions of a subtask", subtask.positions.len(), POSITIONS_MAX)?;
            limit("progress of a subtask (bytes)", subtask.progress.len(), OPAQUE_BYTES_MAX)?;
            limit("schedule of a subtask (bytes)", subtask.schedule.len(), OPAQUE_BYTES_MAX)?;
            for position in &subtask.positions {
                limit("name of a split (bytes)", position.split.len(), TEXT_BYTES_MAX)?;
                limit("offset (bytes)", position.offset.len(), OPAQUE_BYTES_MAX)?;
                limit("fingerprint (bytes)", position.fingerprint.len(), OPAQUE_BYTES_MAX)?;
            }
            check_layouts(&subtask.segments)?;
            for segment in &subtask.segments {
                if segment.chunks == 0 || segment.first_chunk.checked_add(segment.chunks).is_none() {
                    return Err(format!("a segment of {} chunks from {}", segment.chunks, segment.first_chunk));
                }
                if matches!(segment.scope, Scope::KeyGroup(group) if group >= self.key_groups) {
                    return Err(format!("a segment of {:?} with {} key groups", segment.scope, self.key_groups));
                }
                if segment.pack.epoch() > self.epoch || segment.pack.generation() > self.generation {
                    return Err(format!("pack {}, which is younger than the checkpoint", segment.pack));
                }
            }
        }
        Ok(())
    }
}

/// As it is stored: each pack's name once, and segments by the number of their pack.
#[derive(Serialize, Deserialize)]
struct Wire {
    job: String,
    job_id: JobId,
    epoch: Epoch,
    generation: Generation,
    parent: Option<Epoch>,
    created_at: Timestamp,
    finished: bool,
    key_groups: u32,
    pipeline: [u8; 32],
    packs: Vec<PackName>,
    nodes: Vec<WireNode>,
}

#[derive(Serialize, Deserialize)]
struct WireNode {
    name: NodeName,
    kind: NodeKind,
    parallelism: u32,
    plugin: Option<PluginEntry>,
    subtasks: Vec<WireSubtask>,
    grants: Vec<String>,
    committables: Vec<Committable>,
}

#[derive(Serialize, Deserialize)]
struct WireSubtask {
    segments: Vec<WireSegment>,
    positions: Vec<SplitPosition>,
    progress: Vec<u8>,
    watermark: Timestamp,
    records: u64,
    schedule: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct WireSegment {
    scope: Scope,
    kind: SegmentKind,
    origin: u32,
    pack: u32,
    first_chunk: u32,
    chunks: u32,
    bytes: u64,
    layout: Layout,
}

impl Serialize for Manifest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut packs = Vec::new();
        let mut numbers = HashMap::new();
        let mut number = |pack: &PackName| {
            *numbers.entry(pack.clone()).or_insert_with(|| {
                packs.push(pack.clone());
                packs.len() as u32 - 1
            })
        };
        let mut segment = |s: &SegmentRef| WireSegment {
            scope: s.scope,
            kind: s.kind,
            origin: s.origin,
            pack: number(&s.pack),
            first_chunk: s.first_chunk,
            chunks: s.chunks,
            bytes: s.bytes,
            layout: s.layout.clone(),
        };
        let mut subtask = |s: &SubtaskEntry| WireSubtask {
            segments: s.segments.iter().map(&mut segment).collect(),
            positions: s.positions.clone(),
            progress: s.progress.clone(),
            watermark: s.watermark,
            records: s.records,
            schedule: s.schedule.clone(),
        };
        let node = |n: &NodeEntry| WireNode {
            name: n.name.clone(),
            kind: n.kind,
            parallelism: n.parallelism,
            plugin: n.plugin.clone(),
            subtasks: n.subtasks.iter().map(&mut subtask).collect(),
            grants: n.grants.clone(),
            committables: n.committables.clone(),
        };
        let nodes = self.nodes.iter().map(node).collect();
        let wire = Wire {
            job: self.job.clone(),
            job_id: self.job_id,
            epoch: self.epoch,
            generation: self.generation,
            parent: self.parent,
            created_at: self.created_at,
            finished: self.finished,
            key_groups: self.key_groups,
            pipeline: self.pipeline,
            packs,
            nodes,
        };
        wire.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Manifest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let packs = wire.packs;
        let segment = |s: WireSegment| {
            let pack = packs.get(s.pack as usize).cloned();
            let pack = pack.ok_or_else(|| serde::de::Error::custom(format!("there is no pack number {}", s.pack)))?;
            Ok(SegmentRef {
                scope: s.scope,
                kind: s.kind,
                origin: s.origin,
                pack,
                first_chunk: s.first_chunk,
                chunks: s.chunks,
                bytes: s.bytes,
                layout: s.layout,
            })
        };
        let subtask = |s: WireSubtask| {
            Ok(SubtaskEntry {
                segments: s.segments.into_iter().map(segment).collect::<Result<_, D::Error>>()?,
                positions: s.positions,
                progress: s.progress,
                watermark: s.watermark,
                records: s.records,
                schedule: s.schedule,
            })
        };
        let node = |n: WireNode| {
            Ok(NodeEntry {
                name: n.name,
                kind: n.kind,
                parallelism: n.parallelism,
                plugin: n.plugin,
                subtasks: n.subtasks.into_iter().map(subtask).collect::<Result<_, D::Error>>()?,
                grants: n.grants,
                committables: n.committables,
            })
        };
        Ok(Self {
            job: wire.job,
            job_id: wire.job_id,
            epoch: wire.epoch,
            generation: wire.generation,
            parent: wire.parent,
            created_at: wire.created_at,
            finished: wire.finished,
            key_groups: wire.key_groups,
            pipeline: wire.pipeline,
            nodes: wire.nodes.into_iter().map(node).collect::<Result<_, D::Error>>()?,
        })
    }
}
