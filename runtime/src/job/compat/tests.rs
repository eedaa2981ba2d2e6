//! Every verdict and every refusal, with its text.

use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;

use super::*;
use crate::checkpoint::{Layout, SegmentRef, SubtaskEntry};
use crate::flow::{InboxState, Progress};
use crate::model::{Committable, Descriptor, Generation, JobId, NO_TIME, Port, Scope, SegmentKind};
use crate::plan::parse;
use crate::plugin::HostCut;

fn code(version: &str, state: StateKind, versions: (u32, u32), digest: u8) -> OperatorCode {
    let port = |name: &str| Port { name: name.into(), summary: String::new(), keyed: false };
    let descriptor = Descriptor {
        name: "count".into(),
        version: version.into(),
        summary: String::new(),
        inputs: vec![port("in")],
        outputs: vec![port("out")],
        state,
        state_version: versions.1,
        oldest_state_version: versions.0,
        config_schema: None,
    };
    let open = Arc::new(|_| async { Err(crate::plugin::OperatorError::Fatal("not in this test".into())) }.boxed());
    OperatorCode { descriptor, digest: [digest; 32], image: None, open }
}

fn old_code() -> OperatorCode {
    code("1.0.0", StateKind::Keyed, (2, 2), 1)
}

/// A pipeline `in -> op -> out`, with whatever else.
fn plan(op: u32, more: &str, code: &BTreeMap<NodeName, OperatorCode>) -> Plan {
    let text = format!(
        r#"
name = "t"
[source.in]
connector = "generator"
[operator.op]
plugin = "p"
inputs = [{{ from = "in", exchange = "keyed" }}]
parallelism = {op}
[sink.out]
connector = "blackhole"
inputs = ["op"]
{more}
"#
    );
    let spec = parse(&text, Path::new("pipeline.toml")).unwrap_or_else(|e| panic!("{e}"));
    let descriptors = code.iter().map(|(name, code)| (name.clone(), code.descriptor.clone())).collect();
    Plan::build(&spec, &descriptors).unwrap_or_else(|e| panic!("{e}"))
}

/// A checkpoint of that pipeline at parallelism 2 of the operator.
fn manifest(scope: impl Fn(u32) -> Scope) -> Manifest {
    let segment = |subtask: u32| SegmentRef {
        scope: scope(subtask),
        kind: SegmentKind::Base,
        origin: subtask,
        pack: format!("1-7-op.{subtask}-{}", "ab".repeat(32)).parse().expect("it is a name"),
        first_chunk: 0,
        chunks: 1,
        bytes: 50,
        layout: Layout::Chunks,
    };
    let code = BTreeMap::from([(NodeName::new("op"), old_code())]);
    let shape = plan(2, "", &code);
    let nodes = shape.nodes.iter().map(|planned| {
        let entry = |subtask: u32| {
            let progress = match planned.kind {
                NodeKind::Source(_) => Progress::Source { newest: 5, watermark: 4, idle: false, ended: false },
                _ => Progress::Inbox {
                    inputs: Vec::new(),
                    state: InboxState { inputs: Vec::new(), watermark: NO_TIME },
                    wake_at: None,
                    host: HostCut::default(),
                },
            };
            let segments = if planned.name.as_str() == "op" { vec![segment(subtask)] } else { Vec::new() };
            SubtaskEntry { segments, progress: progress.encode(), ..SubtaskEntry::default() }
        };
        NodeEntry {
            name: planned.name.clone(),
            kind: match planned.kind {
                NodeKind::Source(_) => checkpoint::NodeKind::Source,
                NodeKind::Operator(_) => checkpoint::NodeKind::Operator,
                NodeKind::Sink(_) => checkpoint::NodeKind::Sink,
            },
            parallelism: planned.parallelism,
            plugin: (planned.name.as_str() == "op").then(|| PluginEntry {
                digest: [1; 32],
                name: "count".into(),
                version: "1.0.0".into(),
                state_version: 2,
                image: None,
            }),
            subtasks: (0..planned.parallelism).map(entry).collect(),
            grants: Vec::new(),
            committables: Vec::new(),
        }
    });
    Manifest {
        job: "t".into(),
        job_id: JobId([1; 16]),
        epoch: Epoch(7),
        generation: Generation(1),
        parent: None,
        created_at: 0,
        finished: false,
        key_groups: 128,
        pipeline: [0; 32],
        nodes: nodes.collect(),
    }
}

fn keyed(subtask: u32) -> Scope {
    Scope::KeyGroup(subtask * 64)
}

fn judge(manifest: &Manifest, op: u32, more: &str, code: OperatorCode, drop: &[&str], open: bool) -> Fit {
    let mut codes = BTreeMap::from([(NodeName::new("op"), code)]);
    if more.contains("operator.extra") {
        codes.insert(NodeName::new("extra"), old_code());
    }
    let drop_state = drop.iter().map(|name| NodeName::new(*name)).collect();
    let plan = plan(op, more, &codes);
    fit(&Facts { manifest, open, plan: &plan, key_groups: 128, code: &codes, drop_state: &drop_state })
}

fn verdict(fit: &Fit, node: &str) -> (Fate, String) {
    let found = fit.nodes.iter().find(|fit| fit.node == node).unwrap_or_else(|| panic!("{node}: {fit:?}"));
    (found.verdict, found.reason.clone())
}

#[test]
fn what_did_not_change_is_kept() {
    let fit = judge(&manifest(keyed), 2, "", old_code(), &[], false);
    assert!(fit.nodes.iter().all(|node| node.verdict == Fate::Kept), "{fit:?}");
    assert!(fit.check().is_ok() && fit.full.is_empty());
}

#[test]
fn another_parallelism_moves_the_state_and_the_next_snapshot_is_full() {
    let fit = judge(&manifest(keyed), 5, "", old_code(), &[], false);
    assert_eq!(verdict(&fit, "op"), (Fate::Moved, "its state moves, from 2 to 5 subtasks".into()));
    assert_eq!(verdict(&fit, "in").0, Fate::Kept);
    assert!(fit.check().is_ok());
    assert_eq!(fit.full, BTreeSet::from([NodeName::new("op")]));
    assert_eq!(fit.restore.node("op").map(|node| node.subtasks.len()), Some(5));
}

#[test]
fn another_version_takes_over_what_it_reads() {
    let newer = code("2.0.0", StateKind::Keyed, (1, 3), 2);
    let fit = judge(&manifest(keyed), 2, "", newer.clone(), &[], false);
    let (verdict_is, reason) = verdict(&fit, "op");
    assert_eq!(verdict_is, Fate::Migrated);
    assert_eq!(reason, "count 2.0.0 takes over the state of 1.0.0, from state version 2 to 3");
    assert!(fit.full.contains("op"));
    let (verdict_is, reason) = verdict(&judge(&manifest(keyed), 3, "", newer, &[], false), "op");
    assert_eq!(verdict_is, Fate::Migrated);
    assert!(reason.ends_with("; its state moves, from 2 to 3 subtasks"), "{reason}");
}

#[test]
fn nodes_come_with_nothing_and_go_only_when_they_are_named() {
    let more = "[operator.extra]\nplugin = \"p\"\ninputs = [\"op\"]\n[sink.more]\nconnector = \"blackhole\"\ninputs = [\"extra\"]";
    let fit = judge(&manifest(keyed), 2, more, old_code(), &[], false);
    assert_eq!(verdict(&fit, "extra"), (Fate::New, "it starts empty, with what comes from now on".into()));
    assert!(fit.check().is_ok());

    let mut old = manifest(keyed);
    let mut gone = old.nodes[2].clone();
    gone.name = NodeName::new("gone");
    old.nodes.push(gone);
    let fit = judge(&old, 2, "", old_code(), &[], false);
    assert_eq!(verdict(&fit, "gone").0, Fate::Refused);
    let error = fit.check().expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::State);
    assert_eq!(
        error.to_string(),
        "checkpoint 7 does not fit node \"gone\": the checkpoint holds its state, and the pipeline has it no more"
    );
    assert!(error.remedy().is_some_and(|help| help.contains("--drop-state gone")));
    let fit = judge(&old, 2, "", old_code(), &["gone"], false);
    assert_eq!(verdict(&fit, "gone").0, Fate::Dropped);
    assert!(fit.check().is_ok() && fit.check_dropped().is_ok() && fit.restore.node("gone").is_none());

    // Output that is not published yet is not dropped, whatever is asked; once it is published, it may go.
    let staged = Committable { epoch: Epoch(7), subtask: 0, data: vec![1] };
    old.nodes[3].committables.push(staged);
    let fit = judge(&old, 2, "", old_code(), &["gone"], true);
    assert_eq!(verdict(&fit, "gone").0, Fate::Refused);
    assert!(fit.check().expect_err("it is refused").to_string().contains("output that is not published yet"));
    assert!(judge(&old, 2, "", old_code(), &["gone"], false).check().is_ok());
}

#[test]
fn an_operator_that_stays_starts_empty_when_it_is_named_whatever_its_state_is() {
    let mut image = manifest(|_| Scope::Subtask);
    if let Some(plugin) = &mut image.nodes[1].plugin {
        plugin.image = Some(1);
    }
    let new = || OperatorCode { image: Some(1), ..code("2.0.0", StateKind::Whole, (9, 9), 2) };
    assert_eq!(verdict(&judge(&image, 3, "", new(), &[], false), "op").0, Fate::Refused);
    let fit = judge(&image, 3, "", new(), &["op"], false);
    assert_eq!(verdict(&fit, "op"), (Fate::Dropped, "it starts empty, as asked".into()));
    assert!(fit.check().is_ok() && fit.check_dropped().is_ok() && fit.full.contains(&NodeName::new("op")));
    let node = |manifest: &Manifest, name: &str| manifest.node(name).expect("it is there").clone();
    assert!(node(&fit.restore, "op").subtasks.iter().all(|subtask| subtask.segments.is_empty()));
    assert!(fit.nodes.iter().any(|node| node.node == "op" && node.state_bytes > 0));
    // Nobody else loses anything, and in time it is where it was.
    let restored = |drop: &[&str]| judge(&manifest(keyed), 2, "", old_code(), drop, false).restore;
    let (kept, emptied) = (restored(&[]), restored(&["op"]));
    for name in ["in", "out"] {
        assert_eq!(node(&emptied, name).subtasks, node(&kept, name).subtasks);
    }
    for (kept, emptied) in node(&kept, "op").subtasks.iter().zip(&node(&emptied, "op").subtasks) {
        assert!(!kept.segments.is_empty() && emptied.segments.is_empty());
        assert_eq!((&kept.progress, kept.records), (&emptied.progress, emptied.records));
    }
}

#[test]
fn names_to_drop_that_are_not_to_be_dropped_are_wrong_calls() {
    for (name, why) in
        [("in", "which is no operator"), ("out", "which is no operator"), ("typo", "which it does not have")]
    {
        let fit = judge(&manifest(keyed), 2, "", old_code(), &[name], false);
        let error = fit.check_dropped().expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains(why) && error.to_string().contains(name), "{error}");
    }
}

#[test]
fn what_cannot_go_on_is_refused_with_its_reason_and_a_remedy() {
    let alone = |_| Scope::Subtask;
    let with_image = |digest: u8| {
        let mut manifest = manifest(alone);
        if let Some(plugin) = &mut manifest.nodes[1].plugin {
            plugin.image = Some(1);
        }
        (manifest, OperatorCode { image: Some(1), ..code("1.0.0", StateKind::Whole, (2, 2), digest) })
    };
    let mut other_kind = manifest(keyed);
    other_kind.nodes[1].kind = checkpoint::NodeKind::Sink;
    let mut other_plugin = manifest(keyed);
    other_plugin.nodes[1].plugin.as_mut().expect("a plugin").name = "window".into();
    let (same_image, same_code) = with_image(1);
    let (image, other_code) = with_image(2);
    for (manifest, op, code, reason) in [
        (
            manifest(alone),
            3,
            old_code(),
            "it had 2 subtasks and has 3 now: 50 bytes of its state belong to subtask 0 alone",
        ),
        (
            same_image,
            3,
            same_code,
            "an image of its memory at parallelism 2, and the pipeline has 3: an image cannot be divided",
        ),
        (image, 2, other_code, "is an image of the memory of plugin \"count\" 1.0.0 with digest 010101010101"),
        (
            manifest(keyed),
            2,
            code("3.0.0", StateKind::Keyed, (3, 4), 3),
            "its state has version 2, and plugin count 3.0.0 reads versions 3 to 4",
        ),
        (manifest(keyed), 2, code("0.9.0", StateKind::Keyed, (1, 1), 3), "reads versions 1 to 1"),
        (manifest(keyed), 2, code("4.0.0", StateKind::Stateless, (0, 9), 3), "version 4.0.0 of it keeps none"),
        (other_plugin, 2, old_code(), "its state is of plugin \"window\", and the pipeline has plugin \"count\" there"),
        (other_kind, 2, old_code(), "it was of kind sink and is of kind operator now"),
    ] {
        let fit = judge(&manifest, op, "", code, &[], false);
        let error = fit.check().expect_err(reason);
        assert_eq!(error.kind(), ErrorKind::State, "{reason}");
        assert!(error.to_string().contains(reason) && error.to_string().contains("\"op\""), "{reason}: {error}");
        assert!(error.remedy().is_some(), "{reason}");
    }
    let mut groups = manifest(keyed);
    groups.key_groups = 64;
    groups.nodes[1].subtasks[1].segments.clear();
    let error = judge(&groups, 2, "", old_code(), &[], false).check().expect_err("it is refused");
    assert!(error.to_string().contains("64 key groups, and the pipeline has 128"), "{error}");
}
