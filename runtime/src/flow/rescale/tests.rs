//! Carrying over, attacked by properties: whatever the shapes, no key group is lost or doubled, and going there and back changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::checkpoint::{Layout, PluginEntry};
use crate::model::{Descriptor, Epoch, Generation, JobId, Port, SplitPosition, StateKind};
use crate::plan::parse;

const GROUPS: u32 = 16;

fn descriptor(name: &str) -> Descriptor {
    let port = |name: &str| Port { name: name.into(), summary: String::new(), keyed: false };
    Descriptor {
        name: name.into(),
        version: "0.1.0".into(),
        summary: String::new(),
        inputs: vec![port("in"), port("side")],
        outputs: vec![port("out")],
        state: StateKind::Keyed,
        state_version: 1,
        oldest_state_version: 1,
        config_schema: None,
    }
}

/// Two sources, an operator and a sink, so many subtasks each.
fn plan(sources: u32, operator: u32, sink: u32) -> Plan {
    let text = format!(
        r#"
name = "t"
key_groups = {GROUPS}
[source.a]
connector = "generator"
parallelism = {sources}
[source.b]
connector = "generator"
[operator.op]
plugin = "p"
inputs = [{{ from = "a", exchange = "keyed", to = "in" }}, {{ from = "b", exchange = "broadcast", to = "side" }}]
parallelism = {operator}
[sink.k]
connector = "blackhole"
inputs = [{{ from = "op", exchange = "rebalance" }}]
parallelism = {sink}
"#
    );
    let spec = parse(&text, Path::new("pipeline.toml")).unwrap_or_else(|e| panic!("{e}"));
    Plan::build(&spec, &BTreeMap::from([(NodeName::new("op"), descriptor("p"))])).unwrap_or_else(|e| panic!("{e}"))
}

fn segment(scope: Scope, kind: SegmentKind, origin: u32, mark: u32, chunks: u32) -> SegmentRef {
    let hash = blake3::hash(&mark.to_le_bytes()).to_hex();
    let pack = format!("1-3-op.{origin}-{hash}").parse().expect("it is a name");
    SegmentRef {
        scope,
        kind,
        origin,
        pack,
        first_chunk: 0,
        chunks,
        bytes: u64::from(chunks) * 10,
        layout: Layout::Chunks,
    }
}

/// How far the sources have come, by subtask: watermark, idle, ended.
type Sources = Vec<(i64, bool, bool)>;

/// A cut that such a plan could have taken: every receiver knows of its senders what they told.
fn cut(sources: &Sources, operator: u32, sink: u32, segments: &[Vec<SegmentRef>]) -> Manifest {
    let plan = plan(sources.len() as u32, operator, sink);
    let told = |node: &str, subtask: u32| match node {
        "a" => sources[subtask as usize],
        _ => (40, false, false),
    };
    let mut nodes = Vec::new();
    let mut op_told = Vec::new();
    for (index, planned) in plan.nodes.iter().enumerate() {
        let name = planned.name.as_str();
        let mut subtasks = Vec::new();
        for subtask in 0..planned.parallelism {
            let entry = match name {
                "a" | "b" => {
                    let (watermark, idle, ended) = told(name, subtask);
                    SubtaskEntry {
                        positions: vec![SplitPosition {
                            split: format!("{name}-{subtask}"),
                            offset: Vec::new(),
                            fingerprint: Vec::new(),
                        }],
                        progress: Progress::Source { newest: watermark + 5, watermark, idle, ended }.encode(),
                        watermark,
                        records: 100 + u64::from(subtask),
                        ..SubtaskEntry::default()
                    }
                }
                _ => {
                    let inputs = inputs_of(&plan, index, subtask);
                    let state: Vec<InputState> = inputs
                        .iter()
                        .map(|input| {
                            let from = plan.nodes[plan.edges[input.edge].from].name.as_str();
                            let (watermark, idle, ended) = match from {
                                "op" => op_told[input.sender as usize],
                                other => told(other, input.sender),
                            };
                            InputState { watermark, idle, ended }
                        })
                        .collect();
                    let watermark = state.iter().map(|input| input.watermark).min().unwrap_or(NO_TIME);
                    if name == "op" {
                        op_told.push((watermark, false, false));
                    }
                    let names = inputs.into_iter().map(|input| input.name).collect();
                    let state = InboxState { inputs: state, watermark };
                    SubtaskEntry {
                        segments: if name == "op" { segments[subtask as usize].clone() } else { Vec::new() },
                        progress: Progress::Inbox {
                            inputs: names,
                            state,
                            wake_at: Some(70 + i64::from(subtask)),
                            host: HostCut::default(),
                        }
                        .encode(),
                        watermark,
                        records: 1000 + u64::from(subtask),
                        ..SubtaskEntry::default()
                    }
                }
            };
            subtasks.push(entry);
        }
        let kind = match planned.kind {
            NodeKind::Source(_) => EntryKind::Source,
            NodeKind::Operator(_) => EntryKind::Operator,
            NodeKind::Sink(_) => EntryKind::Sink,
        };
        let plugin = (name == "op").then(|| PluginEntry {
            digest: [4; 32],
            name: "p".into(),
            version: "0.1.0".into(),
            state_version: 1,
            image: None,
        });
        nodes.push(NodeEntry {
            name: planned.name.clone(),
            kind,
            parallelism: planned.parallelism,
            plugin,
            subtasks,
            grants: Vec::new(),
            committables: Vec::new(),
        });
    }
    let manifest = Manifest {
        job: "t".into(),
        job_id: JobId([1; 16]),
        epoch: Epoch(3),
        generation: Generation(1),
        parent: Some(Epoch(2)),
        created_at: 0,
        finished: false,
        key_groups: GROUPS,
        pipeline: [0; 32],
        nodes,
    };
    manifest.check().unwrap_or_else(|fault| panic!("{fault}"));
    manifest
}

/// State by key group with shared copies and items, as `operator` subtasks would hold it.
fn segments(operator: u32, groups: &[bool], shared: bool, items: &[u32]) -> Vec<Vec<SegmentRef>> {
    let mut all = vec![Vec::new(); operator as usize];
    for (group, _) in groups.iter().enumerate().filter(|(_, has)| **has) {
        let group = group as u32;
        let owner = subtask_of_group(group, operator, GROUPS);
        for kind in [SegmentKind::Base, SegmentKind::Delta] {
            all[owner as usize].push(segment(Scope::KeyGroup(group), kind, owner, group, 2));
        }
    }
    for (subtask, of) in all.iter_mut().enumerate() {
        if shared {
            of.push(segment(Scope::Shared, SegmentKind::Base, subtask as u32, 900, 3));
        }
        if let Some(&count) = items.get(subtask).filter(|&&count| count > 0) {
            of.push(segment(Scope::Item, SegmentKind::Base, subtask as u32, 800 + subtask as u32, count));
        }
    }
    all
}

/// What a node holds, whoever holds it: chunks of key groups and items by their places, and copies of what is shared.
fn content(node: &NodeEntry) -> (Vec<String>, Vec<String>) {
    let (mut own, mut shared) = (Vec::new(), Vec::new());
    for segment in node.subtasks.iter().flat_map(|entry| &entry.segments) {
        for chunk in segment.first_chunk..segment.first_chunk + segment.chunks {
            // A copy of what is shared is as good as another: what counts is the hash, not whose pack it is in.
            let pack = segment.pack.to_string();
            let hash = pack.rsplit('-').next().unwrap_or_default();
            match segment.scope {
                Scope::Shared => shared.push(format!("{:?} {hash} {chunk}", segment.kind)),
                scope => own.push(format!("{scope:?} {:?} {pack} {chunk}", segment.kind)),
            }
        }
    }
    own.sort_unstable();
    shared.sort_unstable();
    shared.dedup();
    (own, shared)
}

fn inbox(entry: &SubtaskEntry) -> (InboxState, Option<Timestamp>) {
    match Progress::decode(&entry.progress) {
        Ok(Progress::Inbox { state, wake_at, inputs, .. }) => {
            assert_eq!(inputs.len(), state.inputs.len());
            (state, wake_at)
        }
        other => panic!("{other:?}"),
    }
}

fn some_sources() -> impl Strategy<Value = Sources> {
    prop::collection::vec((0..50_i64, any::<bool>(), any::<bool>()), 1..5)
        .prop_map(|all| all.into_iter().map(|(at, idle, ended)| (at, idle && !ended, ended)).collect())
}

proptest! {
    /// I2 and I11: whatever the shapes, each key group and item is there exactly once and with its owner, what is shared is with all,
    /// counters are kept in sum, no watermark is beyond an old one, and nobody waits for an end that was told.
    #[test]
    fn any_redistribution_keeps_everything_exactly_once(
        sources in some_sources(),
        shapes in (1..7_u32, 1..7_u32, 1..5_u32, 1..7_u32, 1..7_u32),
        groups in prop::collection::vec(any::<bool>(), GROUPS as usize),
        shared in any::<bool>(),
        items in prop::collection::vec(0..9_u32, 6),
    ) {
        let (op, sink, new_sources, new_op, new_sink) = shapes;
        let manifest = cut(&sources, op, sink, &segments(op, &groups, shared, &items));
        let plan = plan(new_sources, new_op, new_sink);
        let carried = carry_over(&manifest, &plan);
        prop_assert!(carried.faults.is_empty(), "{:?}", carried.faults);
        let node = |manifest: &Manifest, name: &str| manifest.node(name).expect("it is there").clone();
        let (before, after) = (node(&manifest, "op"), node(&carried.manifest, "op"));
        prop_assert_eq!(content(&before), content(&after));
        for (subtask, entry) in after.subtasks.iter().enumerate() {
            for segment in &entry.segments {
                if let Scope::KeyGroup(group) = segment.scope {
                    prop_assert_eq!(subtask_of_group(group, new_op, GROUPS), subtask as u32);
                }
            }
            prop_assert_eq!(shared, entry.segments.iter().any(|segment| segment.scope == Scope::Shared));
            // A base is read before its deltas: their order is kept.
            let of = |group| entry.segments.iter().filter(move |s| s.scope == Scope::KeyGroup(group)).map(|s| s.kind);
            prop_assert!((0..GROUPS).all(|group| of(group).collect::<Vec<_>>().is_sorted()));
        }
        for name in ["a", "b", "op", "k"] {
            let (before, after) = (node(&manifest, name), node(&carried.manifest, name));
            let sum = |node: &NodeEntry| node.subtasks.iter().map(|entry| entry.records).sum::<u64>();
            prop_assert_eq!(sum(&before), sum(&after));
            prop_assert_eq!(after.subtasks.len(), after.parallelism as usize);
            prop_assert_eq!(carried.moved.contains(&after.name), before.parallelism != after.parallelism);
        }
        carried.manifest.check().map_err(TestCaseError::fail)?;

        // A receiver knows of each sender what that one is.
        let all_ended = sources.iter().all(|(_, _, ended)| *ended);
        let open: Vec<i64> = sources.iter().filter(|(_, idle, ended)| !idle && !ended).map(|(at, ..)| *at).collect();
        let told: Vec<Told> = node(&carried.manifest, "a").subtasks.iter().map(|entry| {
            match Progress::decode(&entry.progress) {
                Ok(Progress::Source { watermark, idle, ended, .. }) => Told { watermark, idle, ended },
                other => panic!("{other:?}"),
            }
        }).collect();
        if sources.len() as u32 != new_sources {
            for told in &told {
                prop_assert_eq!(told.ended, all_ended);
                prop_assert_eq!(told.idle, !all_ended && open.is_empty());
                if let Some(least) = open.iter().min() {
                    prop_assert_eq!(told.watermark, *least);
                }
            }
            let positions = &node(&carried.manifest, "a").subtasks[0].positions;
            prop_assert_eq!(positions.len(), sources.len());
        }
        let old_watermark = before.subtasks.iter().map(|entry| entry.watermark).min().expect("a subtask");
        let at = plan.nodes.iter().position(|planned| planned.name.as_str() == "op").expect("it is planned");
        for (subtask, entry) in after.subtasks.iter().enumerate() {
            let (state, wake_at) = inbox(entry);
            if new_op != op {
                prop_assert_eq!((state.watermark, wake_at), (old_watermark, Some(70)));
            }
            for (input, state) in inputs_of(&plan, at, subtask as u32).iter().zip(&state.inputs) {
                if plan.nodes[plan.edges[input.edge].from].name.as_str() == "a" {
                    let told = told[input.sender as usize];
                    prop_assert_eq!((state.ended, state.idle), (told.ended, told.idle));
                }
            }
        }
    }

    /// From p to q and back to p is nothing, but for the copy of what is shared that was taken and where items and counters lie.
    #[test]
    fn there_and_back_changes_no_content(
        p in 1..8_u32,
        q in 1..8_u32,
        groups in prop::collection::vec(any::<bool>(), GROUPS as usize),
        items in prop::collection::vec(0..9_u32, 7),
    ) {
        let sources = vec![(10, false, false); 2];
        let manifest = cut(&sources, p, 2, &segments(p, &groups, true, &items));
        let there = carry_over(&manifest, &plan(2, q, 2));
        let back = carry_over(&there.manifest, &plan(2, p, 2));
        prop_assert!(back.faults.is_empty());
        let op = |manifest: &Manifest| manifest.node("op").expect("it is there").clone();
        prop_assert_eq!(content(&op(&back.manifest)), content(&op(&manifest)));
        let groups = |node: &NodeEntry| -> Vec<Vec<SegmentRef>> {
            let keyed = |entry: &SubtaskEntry| {
                entry.segments.iter().filter(|s| matches!(s.scope, Scope::KeyGroup(_))).cloned().collect()
            };
            node.subtasks.iter().map(keyed).collect()
        };
        prop_assert_eq!(groups(&op(&back.manifest)), groups(&op(&manifest)));
    }
}

#[test]
fn the_same_shape_changes_nothing_at_all() {
    let manifest = cut(&vec![(10, false, false), (20, true, false)], 3, 2, &segments(3, &[true; 16], true, &[2, 0, 5]));
    let carried = carry_over(&manifest, &plan(2, 3, 2));
    assert_eq!(carried.manifest, manifest);
    assert!(carried.moved.is_empty() && carried.faults.is_empty());
}

fn op_fault(manifest: &Manifest, plan: &Plan) -> String {
    carry_over(manifest, plan).faults.get("op").map(|faults| faults.join("; ")).unwrap_or_default()
}

#[test]
fn state_of_a_subtask_alone_is_refused_by_the_subtask_that_has_it() {
    let mut state = segments(2, &[true; 16], false, &[]);
    state[1].push(segment(Scope::Subtask, SegmentKind::Base, 1, 5, 3));
    let manifest = cut(&vec![(10, false, false)], 2, 1, &state);
    assert_eq!(op_fault(&manifest, &plan(1, 2, 3)), "");
    let fault = op_fault(&manifest, &plan(1, 3, 1));
    assert_eq!(fault, "30 bytes of its state belong to subtask 1 alone and cannot be split");
}

#[test]
fn a_list_of_items_with_deltas_stays_whole_and_two_of_them_do_not_become_one() {
    let mut state = vec![Vec::new(); 2];
    for (subtask, of) in state.iter_mut().enumerate() {
        for kind in [SegmentKind::Base, SegmentKind::Delta] {
            of.push(segment(Scope::Item, kind, subtask as u32, 10 + subtask as u32, 4));
        }
    }
    let manifest = cut(&vec![(10, false, false)], 2, 1, &state);
    let carried = carry_over(&manifest, &plan(1, 4, 1));
    let held: Vec<_> =
        carried.manifest.node("op").expect("it is there").subtasks.iter().map(|e| e.segments.clone()).collect();
    assert_eq!(held, [state[0].clone(), state[1].clone(), Vec::new(), Vec::new()]);
    assert!(op_fault(&manifest, &plan(1, 1, 1)).contains("2 lists of items"));
}

#[test]
fn a_port_that_has_ended_does_not_begin_again_and_an_end_is_not_forgotten() {
    // Source `a` has ended; `b` goes on.
    let manifest = cut(&vec![(10, false, true), (20, false, true)], 2, 1, &segments(2, &[true; 16], false, &[]));
    assert_eq!(op_fault(&manifest, &plan(3, 4, 1)), "");
    let renamed = |from: &str, to: &str| {
        let mut manifest = manifest.clone();
        let source = manifest.nodes.iter_mut().find(|node| node.name.as_str() == from).expect("it is there");
        source.name = NodeName::new(to);
        manifest
    };
    // As if another source, which is new, fed the port that has ended.
    let fault = op_fault(&renamed("a", "gone"), &plan(2, 2, 1));
    assert_eq!(fault, "its input port 0 has ended, and cannot get another input");
    // As if the only input of a port that goes on were one that has ended.
    let mut swapped = manifest.clone();
    let (a, b) = (swapped.node("a").expect("a").clone(), swapped.node("b").expect("b").clone());
    for node in &mut swapped.nodes {
        if node.name.as_str() == "b" {
            node.subtasks[0].progress = a.subtasks[0].progress.clone();
        }
    }
    assert_eq!(b.parallelism, 1);
    let fault = op_fault(&swapped, &plan(2, 3, 1));
    assert_eq!(fault, "all that is left of its input port 1 has ended before");
}

#[test]
fn a_new_node_knows_how_far_its_senders_are() {
    let mut manifest = cut(&vec![(10, false, true)], 2, 1, &segments(2, &[true; 16], false, &[]));
    manifest.nodes.retain(|node| node.name.as_str() != "k");
    let carried = carry_over(&manifest, &plan(1, 2, 2));
    let sink = carried.manifest.node("k").expect("it is there");
    let (state, _) = inbox(&sink.subtasks[1]);
    assert_eq!(state.watermark, NO_TIME);
    let input = InputState { watermark: 10, idle: false, ended: false };
    assert_eq!(state.inputs, [input; 2]);
}
