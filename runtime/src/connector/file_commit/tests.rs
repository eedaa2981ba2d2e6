//! Commits that are interrupted after each of their steps, repeated, and raced.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;

use futures::FutureExt;

use super::super::file_sink::FileSink;
use super::super::{ConnectorErrorKind, Sink, TaskContext};
use super::*;
use crate::model::{Batch, NO_TIME, NodeName, TaskId};
use crate::plan::SinkFormat;

const JOB: JobId = JobId([9; 16]);

struct Case {
    dir: tempfile::TempDir,
    spec: FileSinkSpec,
}

impl Case {
    fn new() -> Self {
        let spec = FileSinkSpec { path: "some/new/out".into(), format: SinkFormat::Lines, root: None };
        Self { dir: tempfile::tempdir().unwrap(), spec }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(&self.spec.path)
    }

    fn sink(&self, subtask: u32, generation: u64) -> FileSink {
        let context = TaskContext {
            job: "job".into(),
            job_id: JOB,
            generation: Generation(generation),
            task: TaskId { node: NodeName::new("out"), subtask },
            parallelism: 2,
        };
        FileSink::open(&self.spec, self.dir.path(), &context).unwrap()
    }

    fn committer(&self, steps: Option<i64>) -> FileCommitter {
        let mut committer = FileCommitter::new(&self.spec, self.dir.path(), JOB).unwrap();
        committer.steps = steps.map(AtomicI64::new);
        committer
    }

    /// What a reader sees: the published folders with their parts.
    fn visible(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(self.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
            if name(&path).starts_with('.') {
                continue;
            }
            for part in fs::read_dir(&path).unwrap() {
                let part = part.unwrap().path();
                files.insert(format!("{}/{}", name(&path), name(&part)), fs::read_to_string(&part).unwrap());
            }
        }
        files
    }
}

fn batch(values: &[&str]) -> Batch {
    let mut batch = Batch::default();
    values.iter().for_each(|value| batch.push(NO_TIME, None, Some(value.as_bytes())));
    batch
}

fn stage(sink: &mut FileSink, subtask: u32, epoch: u64, values: &[&str]) -> Committable {
    sink.write(&batch(values)).now_or_never().unwrap().unwrap();
    let data = sink.prepare(Epoch(epoch)).now_or_never().unwrap().unwrap().unwrap();
    Committable { epoch: Epoch(epoch), subtask, data }
}

/// Epochs 6 and 7 of two subtasks, to be published as 7.
fn staged(case: &Case) -> Vec<Committable> {
    let mut sinks = [case.sink(0, 3), case.sink(1, 3)];
    vec![
        stage(&mut sinks[0], 0, 6, &["a"]),
        stage(&mut sinks[0], 0, 7, &["b", "c"]),
        stage(&mut sinks[1], 1, 7, &["d"]),
    ]
}

fn identity() -> CommitIdentity {
    CommitIdentity { job: JOB, node: NodeName::new("out"), epoch: Epoch(7) }
}

fn commit(committer: &FileCommitter, list: &[Committable]) -> Result<Committed, ConnectorError> {
    committer.commit(&identity(), list).now_or_never().unwrap()
}

fn expected() -> Vec<(&'static str, &'static str)> {
    vec![
        ("epoch-000000000007/part-00000-000000000006.txt", "a\n"),
        ("epoch-000000000007/part-00000-000000000007.txt", "b\nc\n"),
        ("epoch-000000000007/part-00001-000000000007.txt", "d\n"),
    ]
}

fn parts(visible: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    visible.iter().filter(|(name, _)| !name.ends_with(RECORD_NAME)).map(|(n, t)| (n.as_str(), t.as_str())).collect()
}

#[test]
fn a_commit_that_is_interrupted_anywhere_and_repeated_publishes_the_same_and_never_a_part() {
    let mut interruptions = 0;
    // Two interruptions in a row, so that a repetition is interrupted as well.
    for first in 0.. {
        let mut first_done = false;
        for second in 0.. {
            let case = Case::new();
            let list = staged(&case);
            assert!(case.visible().is_empty(), "nothing is visible before a commit");
            let mut second_done = false;
            for (steps, done) in [(first, &mut first_done), (second, &mut second_done)] {
                match commit(&case.committer(Some(steps)), &list) {
                    Ok(_) => *done = true,
                    Err(error) => {
                        assert_eq!(error.message, "interrupted");
                        interruptions += 1;
                    }
                }
                let visible = case.visible();
                assert!(visible.is_empty() || visible.len() == 4, "{visible:?}");
            }
            commit(&case.committer(None), &list).unwrap();
            let visible = case.visible();
            assert_eq!(parts(&visible), expected());
            let record: CommitRecord =
                serde_json::from_str(&visible[&format!("epoch-000000000007/{RECORD_NAME}")]).unwrap();
            for (part, (name, text)) in record.parts.iter().zip(expected()) {
                assert!(name.ends_with(&part.name));
                assert_eq!((part.bytes, part.records), (text.len() as u64, text.lines().count() as u64));
                assert_eq!(part.blake3, blake3::hash(text.as_bytes()).to_hex().to_string());
            }
            assert_eq!(commit(&case.committer(None), &list).unwrap(), Committed::AlreadyApplied);
            assert_eq!(case.visible(), visible);
            if second_done {
                break;
            }
        }
        if first_done {
            break;
        }
    }
    assert!(interruptions > 50, "{interruptions}");
}

#[test]
fn whatever_else_stands_there_is_named_and_left_alone() {
    let other = |change: fn(&mut CommitIdentity)| {
        let mut other = identity();
        change(&mut other);
        other
    };
    for (occupant, named) in [
        (None, "without _commit.json"),
        (Some(other(|i| i.job = JobId([8; 16]))), "job id 0808"),
        (Some(other(|i| i.node = NodeName::new("else"))), "sink \"else\""),
        (Some(other(|i| i.epoch = Epoch(6))), "epoch 6"),
    ] {
        let case = Case::new();
        let list = staged(&case);
        let published = case.path().join("epoch-000000000007");
        fs::create_dir(&published).unwrap();
        if let Some(occupant) = &occupant {
            write_record(&published.join(RECORD_NAME), occupant, &decode(&list).unwrap().unwrap()).unwrap();
        }
        let before = case.visible();
        let error = commit(&case.committer(None), &list).unwrap_err();
        assert_eq!(error.kind, ConnectorErrorKind::Mismatch);
        assert!(error.message.contains("epoch-000000000007") && error.message.contains(named), "{error:?}");
        assert_eq!(case.visible(), before);
        // When it is gone, the commit goes through.
        fs::remove_dir_all(&published).unwrap();
        assert_eq!(commit(&case.committer(None), &list).unwrap(), Committed::Applied);
    }
}

#[test]
fn parts_that_are_gone_or_changed_or_strange_are_refused_by_name() {
    type Harm = fn(&Case, &Path);
    let harms: [(&str, Harm); 3] = [
        ("is gone", |_, part| fs::remove_file(part).unwrap()),
        ("has 3 bytes and must have 2", |_, part| fs::write(part, "abc").unwrap()),
        ("among prepared parts", |case, _| {
            let assembly = case.path().join(format!(".weir/{JOB}/3/commit/epoch-000000000007"));
            fs::create_dir_all(&assembly).unwrap();
            fs::write(assembly.join("stranger"), "").unwrap();
        }),
    ];
    for (named, harm) in harms {
        let case = Case::new();
        let list = staged(&case);
        harm(&case, Path::new(&decode(&list).unwrap().unwrap()[0].staged));
        let error = commit(&case.committer(None), &list).unwrap_err();
        assert!(error.kind == ConnectorErrorKind::Mismatch && error.message.contains(named), "{error:?}");
        assert!(case.visible().is_empty());
    }
    let case = Case::new();
    let mut list = staged(&case);
    list.push(list[0].clone());
    assert!(commit(&case.committer(None), &list).is_err(), "one part twice");
    list.truncate(1);
    list[0].data.truncate(5);
    assert!(commit(&case.committer(None), &list).is_err(), "half a committable");
}

#[test]
fn a_sink_that_failed_half_way_prepares_nothing() {
    let case = Case::new();
    let mut sink = case.sink(0, 1);
    assert!(sink.write(&batch(&["fine", "not\nfine"])).now_or_never().unwrap().is_err());
    assert!(sink.prepare(Epoch(1)).now_or_never().unwrap().is_err());
}

#[test]
fn a_value_that_no_line_can_hold_is_left_out_and_a_part_of_nothing_is_none() {
    let case = Case::new();
    let mut sink = case.sink(0, 1);
    let mut tombstone = Batch::default();
    tombstone.push(NO_TIME, Some(b"key"), None);
    sink.write(&tombstone).now_or_never().unwrap().unwrap();
    assert_eq!(sink.prepare(Epoch(1)).now_or_never().unwrap().unwrap(), None);
    sink.write(&tombstone).now_or_never().unwrap().unwrap();
    let committable = stage(&mut sink, 0, 2, &["a"]);
    let parts = decode(&[committable]).unwrap().unwrap();
    assert_eq!((parts[0].records, parts[0].skipped), (1, 1));
}

/// I5: whoever is in the middle of a commit and sleeps while the epoch is given up publishes nothing, or had published it.
#[test]
fn of_a_commit_and_of_giving_up_one_happens_wherever_they_meet() {
    let mut outcomes = [0, 0];
    for met in 0.. {
        let case = Case::new();
        let list = staged(&case);
        let answer = std::sync::Arc::new(std::sync::Mutex::new(None));
        let mut committer = case.committer(None);
        let (other, theirs, told) = (case.committer(None), list.clone(), std::sync::Arc::clone(&answer));
        let give_up = move || {
            let abandoned = other.abandon(&identity(), &theirs).now_or_never().unwrap().unwrap();
            *told.lock().unwrap() = Some(abandoned);
        };
        committer.meets = std::sync::Mutex::new(Some((met, Box::new(give_up))));
        let committed = commit(&committer, &list);
        let Some(abandoned) = *answer.lock().unwrap() else { break };
        match abandoned {
            Abandoned::Done => {
                assert!(committed.is_err(), "met at step {met}");
                assert!(case.visible().is_empty(), "met at step {met}: {:?}", case.visible());
                assert!(commit(&case.committer(None), &list).is_err(), "also later");
                assert!(case.visible().is_empty());
                outcomes[0] += 1;
            }
            Abandoned::AlreadyPublished => {
                assert_eq!(committed.unwrap(), Committed::Applied, "met at step {met}");
                assert_eq!(parts(&case.visible()), expected());
                outcomes[1] += 1;
            }
        }
    }
    assert!(outcomes[0] > 3 && outcomes[1] > 0, "{outcomes:?}");
}

/// Giving up is interrupted anywhere and repeated.
#[test]
fn giving_up_that_is_interrupted_and_repeated_leaves_nothing_to_publish() {
    for steps in 0.. {
        let case = Case::new();
        let list = staged(&case);
        // A commit was under way and died with some of its parts moved.
        assert!(commit(&case.committer(Some(2)), &list).is_err());
        let done = case.committer(Some(steps)).abandon(&identity(), &list).now_or_never().unwrap().is_ok();
        let again = case.committer(None).abandon(&identity(), &list).now_or_never().unwrap().unwrap();
        assert_eq!(again, Abandoned::Done);
        assert!(commit(&case.committer(None), &list).is_err());
        assert!(case.visible().is_empty());
        if done {
            assert!(steps > 3);
            break;
        }
    }
}
