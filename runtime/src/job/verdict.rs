//! What a replay came to: the two checkpoints compared, node by node in the order of the data.
//!
//! A node that differs while all before it are the same is a culprit; one after it is a consequence. What a node was granted
//! (a real clock, real randomness) explains a difference of that node and is said with it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Job;
use super::replay::{Outcome, Pair, ancestors};
use crate::checkpoint::{JobStore, NodeEntry, PackName, StateContent, SubtaskEntry, state_content};
use crate::connector::{Content, content};
use crate::error::{Error, ErrorKind};
use crate::flow::{Progress, schedule};
use crate::model::{Committable, NO_TIME, Scope, TaskId};
use crate::plan::{NodeKind, SinkSpec};

/// The most differences of one node that are listed.
const DIFFERENCES_MAX: usize = 20;

/// What a replay came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The job.
    pub job: String,
    /// The checkpoint from which it began; none for the beginning of the job.
    pub from: Option<u64>,
    /// The checkpoint with which it was compared.
    pub to: u64,
    /// The same came out.
    pub same: bool,
    /// Subtasks that were compared.
    pub subtasks: u64,
    /// Records that the sources read again.
    pub records: u64,
    /// Chunks of state that were compared.
    pub chunks: u64,
    /// Bytes of these chunks.
    pub state_bytes: u64,
    /// Staged parts of sinks that were compared.
    pub parts: u64,
    /// Bytes of these parts.
    pub output_bytes: u64,
    /// Bytes that the schedules take in the checkpoint.
    pub schedule_bytes: u64,
    /// Nodes that were granted what makes a replay differ.
    pub granted: Vec<Granted>,
    /// The pipeline file has changed since, which may be a reason.
    pub pipeline_changed: bool,
    /// Nodes that differ, in the order of the data.
    pub differences: Vec<Difference>,
}

/// A node that sees something of the world outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Granted {
    /// Its name.
    pub node: String,
    /// As they are written in the pipeline file.
    pub grants: Vec<String>,
}

/// A node that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name.
    pub node: String,
    /// Nodes before it differ too: it need not be its fault.
    pub is_consequence: bool,
    /// What it was granted, which explains it.
    pub grants: Vec<String>,
    /// What differs, the first of it first.
    pub details: Vec<Detail>,
    /// How many more there are.
    pub left_out: u64,
}

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// In which subtask.
    pub subtask: Option<u32>,
    /// In which key group.
    pub key_group: Option<u32>,
    /// What.
    pub what: String,
}

impl Verdict {
    /// The first node that differs, in the order of the data.
    pub fn culprit(&self) -> Option<&Difference> {
        self.differences.first()
    }
}

/// Collects what differs in a node.
#[derive(Default)]
struct Findings {
    details: Vec<Detail>,
    left_out: u64,
}

impl Findings {
    fn add(&mut self, subtask: Option<u32>, key_group: Option<u32>, what: String) {
        if self.details.len() < DIFFERENCES_MAX {
            self.details.push(Detail { subtask, key_group, what });
        } else {
            self.left_out += 1;
        }
    }
}

/// Compares what came of a replay with what is recorded.
pub(super) async fn compare(
    job: &Job,
    pair: &Pair,
    outcome: &Outcome,
    store: &JobStore,
    scratch: &JobStore,
) -> Result<Verdict, Error> {
    let Pair { from, to } = pair;
    let mut verdict = Verdict {
        job: to.job.clone(),
        from: from.as_ref().map(|from| from.epoch.0),
        to: to.epoch.0,
        pipeline_changed: *blake3::hash(job.text.as_bytes()).as_bytes() != to.pipeline,
        ..Verdict::default()
    };
    let mut differs = Vec::new();
    for (index, planned) in job.plan.nodes.iter().enumerate() {
        let name = planned.name.as_str();
        let Some(recorded) = to.node(name) else { continue };
        let before = from.as_ref().and_then(|from| from.node(name));
        if !recorded.grants.is_empty() {
            verdict.granted.push(Granted { node: name.to_owned(), grants: recorded.grants.clone() });
        }
        let mut findings = Findings::default();
        let mut unreached = false;
        for (subtask, then) in (0..).zip(&recorded.subtasks) {
            verdict.schedule_bytes += then.schedule.len() as u64;
            let task = TaskId { node: planned.name.clone(), subtask };
            if let Some(reason) = outcome.failures.get(&task) {
                findings.add(Some(subtask), None, reason.clone());
            }
            let Some(now) = outcome.entries.get(&task) else {
                unreached = true;
                continue;
            };
            let old = before.and_then(|before| before.subtasks.get(subtask as usize));
            verdict.subtasks += 1;
            if matches!(planned.kind, NodeKind::Source(_)) {
                verdict.records += then.records.saturating_sub(old.map_or(0, |old| old.records));
            }
            compare_entries(planned.kind, subtask, then, now, &mut findings);
            compare_state(&mut verdict, subtask, (then, now, old), (store, scratch), &mut findings).await?;
        }
        if let NodeKind::Sink(sink) = planned.kind {
            let now = outcome.committables.get(&planned.name).map_or(&[][..], Vec::as_slice);
            compare_output(&mut verdict, &job.spec.sinks[sink], recorded, now, unreached, &mut findings)?;
        }
        let own = !findings.details.is_empty();
        if own || unreached {
            let is_consequence = !own || ancestors(job, index).iter().any(|node| differs.contains(node));
            if !own {
                findings.add(None, None, format!("it did not come to barrier {}", to.epoch));
            }
            differs.push(index);
            verdict.differences.push(Difference {
                node: name.to_owned(),
                is_consequence,
                grants: recorded.grants.clone(),
                details: findings.details,
                left_out: findings.left_out,
            });
        }
    }
    // Culprits first: a stage that only shares a task with the one that failed stands before it in the order of the data.
    verdict.differences.sort_by_key(|difference| difference.is_consequence);
    verdict.same = verdict.differences.is_empty();
    if let (false, Some(first)) = (verdict.same, verdict.differences.first_mut()) {
        // With tasks that wait for one another and no word of why, the first that did not come to the end is where to look.
        first.is_consequence = false;
    }
    Ok(verdict)
}

fn compare_entries(kind: NodeKind, subtask: u32, then: &SubtaskEntry, now: &SubtaskEntry, findings: &mut Findings) {
    let mut add = |what: String| findings.add(Some(subtask), None, what);
    if then.records != now.records {
        add(format!("{} records had passed, and {} in the replay", then.records, now.records));
    }
    let emitted = |entry: &SubtaskEntry| {
        let segments = schedule::decode(&entry.schedule).unwrap_or_default();
        segments.iter().map(|segment| (segment.epoch, segment.emitted)).collect::<Vec<_>>()
    };
    let (then_emitted, now_emitted) = (emitted(then), emitted(now));
    if let Some(epoch) = then_emitted.iter().find(|part| !now_emitted.contains(part)).map(|(epoch, _)| epoch) {
        add(match kind {
            NodeKind::Source(_) => {
                format!("it read other records before barrier {epoch} than then: its data was changed")
            }
            _ => format!("it emitted something else before barrier {epoch}"),
        });
    }
    for position in &then.positions {
        match now.positions.iter().find(|other| other.split == position.split) {
            None => add(format!("its position has no split {:?}", position.split)),
            Some(other) if other.offset != position.offset => {
                add(format!("it stands at another place in split {:?}", position.split));
            }
            Some(other) if other.fingerprint != position.fingerprint => {
                add(format!("what it read of split {:?} is not what it was", position.split));
            }
            Some(_) => {}
        }
    }
    let known = |split: &str| then.positions.iter().any(|position| position.split == split);
    if let Some(more) = now.positions.iter().find(|position| !known(&position.split)) {
        add(format!("its position has split {:?}, which it had not", more.split));
    }
    if then.watermark != now.watermark {
        let show = |time: i64| if time == NO_TIME { "none".to_owned() } else { format!("{time} µs") };
        add(format!("its watermark was {}, and is {}", show(then.watermark), show(now.watermark)));
    }
    if then.progress != now.progress {
        add(match (Progress::decode(&then.progress), Progress::decode(&now.progress)) {
            (Ok(then), Ok(now)) => describe_progress(&then, &now),
            _ => "what it keeps of its inputs differs".into(),
        });
    }
}

fn describe_progress(then: &Progress, now: &Progress) -> String {
    match (then, now) {
        (Progress::Inbox { wake_at: then, .. }, Progress::Inbox { wake_at: now, .. }) if then != now => {
            format!("it had asked to be woken at {then:?} µs, and asked for {now:?} µs")
        }
        (Progress::Inbox { host: then, .. }, Progress::Inbox { host: now, .. }) if then != now => format!(
            "it had drawn random bytes {} times and last seen the time {} µs, and now {} times and {} µs",
            then.draws, then.seen, now.draws, now.seen
        ),
        _ => "the watermarks, idleness or ends of its inputs differ".into(),
    }
}

async fn compare_state(
    verdict: &mut Verdict,
    subtask: u32,
    (then, now, old): (&SubtaskEntry, &SubtaskEntry, Option<&SubtaskEntry>),
    (store, scratch): (&JobStore, &JobStore),
    findings: &mut Findings,
) -> Result<(), Error> {
    // What the first checkpoint held is in the store of the job; all else was written by the replay.
    let is_old = |pack: &PackName| old.is_some_and(|old| old.segments.iter().any(|segment| segment.pack == *pack));
    let recorded = state_content(&then.segments, |_| store).await?;
    let replayed = state_content(&now.segments, |pack| if is_old(pack) { store } else { scratch }).await?;
    for chunks in recorded.values() {
        verdict.chunks += chunks.len() as u64;
        verdict.state_bytes += chunks.iter().map(|chunk| chunk.bytes).sum::<u64>();
    }
    let mut scopes: Vec<Scope> = recorded.keys().chain(replayed.keys()).copied().collect();
    scopes.sort_unstable();
    scopes.dedup();
    for scope in scopes {
        if let Some(what) = describe_scope(&recorded, &replayed, scope) {
            let key_group = match scope {
                Scope::KeyGroup(group) => Some(group),
                _ => None,
            };
            findings.add(Some(subtask), key_group, what);
        }
    }
    Ok(())
}

/// How the state of one scope differs, if it does.
fn describe_scope(recorded: &StateContent, replayed: &StateContent, scope: Scope) -> Option<String> {
    let of = |content: &StateContent| content.get(&scope).cloned().unwrap_or_default();
    let (then, now) = (of(recorded), of(replayed));
    if then == now {
        return None;
    }
    let whose = match scope {
        Scope::KeyGroup(group) => format!("the state of key group {group}"),
        Scope::Subtask => "the state of the subtask".into(),
        Scope::Shared => "the shared state".into(),
        Scope::Item => "the list of items".into(),
    };
    if then.len() != now.len() {
        return Some(format!("{whose} had {} chunks, and has {}", then.len(), now.len()));
    }
    let at = then.iter().zip(&now).position(|(then, now)| then != now).unwrap_or_default();
    let hex = |id: [u8; 32]| blake3::Hash::from_bytes(id).to_hex()[..12].to_owned();
    Some(format!("{whose} differs from its chunk {at} on: {}… had been {}…", hex(now[at].id), hex(then[at].id)))
}

fn compare_output(
    verdict: &mut Verdict,
    sink: &SinkSpec,
    recorded: &NodeEntry,
    now: &[Committable],
    unreached: bool,
    findings: &mut Findings,
) -> Result<(), Error> {
    let mut parts = BTreeMap::new();
    for staged in now {
        let content: Content = postcard::from_bytes(&staged.data)
            .map_err(|e| Error::new(ErrorKind::Job, "the content of a replayed sink does not decode").caused_by(e))?;
        parts.insert((staged.epoch, staged.subtask), content);
    }
    for staged in &recorded.committables {
        let then = content(sink, &staged.data).map_err(|e| {
            Error::new(ErrorKind::State, format!("what sink {:?} staged cannot be read", sink.name.as_str()))
                .caused_by(e)
        })?;
        let Some(then) = then else { continue };
        verdict.parts += 1;
        verdict.output_bytes += then.bytes;
        let mut add = |what: String| findings.add(Some(staged.subtask), None, what);
        match parts.remove(&(staged.epoch, staged.subtask)) {
            // Whoever did not come to the end did not prepare everything.
            None if unreached => {}
            None => add(format!("it had staged {} records in epoch {}, and stages none", then.records, staged.epoch)),
            Some(now) if now == then => {}
            Some(now) if now.records != then.records => add(format!(
                "it had staged {} records in epoch {}, and stages {}",
                then.records, staged.epoch, now.records
            )),
            Some(now) => add(format!(
                "the {} records that it stages in epoch {} differ: {} bytes, and {} then",
                now.records, staged.epoch, now.bytes, then.bytes
            )),
        }
    }
    for ((epoch, subtask), content) in parts {
        findings.add(
            Some(subtask),
            None,
            format!("it stages {} records in epoch {epoch}, and had none", content.records),
        );
    }
    Ok(())
}
