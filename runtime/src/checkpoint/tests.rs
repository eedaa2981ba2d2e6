//! The life of a job on a real directory, and what is said when something in it is damaged or gone.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use object_store::memory::InMemory;

use super::testing::{Overwriting, a_manifest, run};
use super::*;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::model::{Epoch, NodeName, Scope, SegmentKind, TaskId};

struct Place {
    dir: tempfile::TempDir,
    store: Store,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open("file://./.weir", dir.path()).unwrap();
    Place { dir, store }
}

impl Place {
    fn begin(&self, start: Start) -> Result<Begun, CheckpointError> {
        run(begin(&self.store, "job", start, &Clock::manual(7)))
    }

    fn running(&self, start: Start) -> (Run, Option<Manifest>, bool) {
        match self.begin(start).unwrap() {
            Begun::Run { run, restore, commit_needed } => (run, restore, commit_needed),
            Begun::Finished(manifest) => panic!("finished with {}", manifest.epoch),
        }
    }

    /// The only file whose path has this in it.
    fn file(&self, part: &str) -> PathBuf {
        let mut found: Vec<_> =
            files(self.dir.path()).into_iter().filter(|f| f.to_str().unwrap().contains(part)).collect();
        assert_eq!(found.len(), 1, "{part}: {found:?}");
        found.remove(0)
    }

    fn refusal(&self, start: Start) -> Error {
        self.begin(start).unwrap_err().into()
    }
}

fn files(dir: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn flip(file: &std::path::Path, byte: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[byte] ^= 4;
    std::fs::write(file, bytes).unwrap();
}

/// A checkpoint with a pack of its own. Committed and marked if `commit`.
fn checkpoint(runner: &mut Run, finished: bool, commit: bool) -> Epoch {
    let epoch = runner.next_epoch();
    let mut pack = PackBuilder::new(runner.generation(), epoch, &TaskId { node: NodeName::new("count"), subtask: 0 });
    pack.write(Scope::KeyGroup(7), SegmentKind::Base, format!("state of {epoch}").as_bytes()).unwrap();
    let pack = pack.finish().unwrap();
    run(runner.store().put_pack(&pack)).unwrap();
    let mut manifest = a_manifest(epoch.0, runner.generation().0);
    (manifest.job_id, manifest.parent, manifest.finished) = (runner.job_id(), runner.tip(), finished);
    manifest.nodes[1].subtasks[0].segments = pack.segments;
    let permit = run(runner.publish(manifest)).unwrap();
    assert_eq!((permit.epoch(), permit.job_id(), permit.generation()), (epoch, runner.job_id(), runner.generation()));
    if commit {
        run(runner.mark_committed(permit)).unwrap();
    }
    epoch
}

#[test]
fn a_store_is_a_directory_beside_the_pipeline_file_and_passes_the_probe() {
    let place = place();
    run(place.store.probe()).unwrap();
    assert!(place.dir.path().join(".weir").is_dir());
    assert_eq!(files(place.dir.path()), Vec::<PathBuf>::new());
    let absolute = format!("file://{}/deep/er", place.dir.path().display());
    run(Store::open(&absolute, std::path::Path::new("/nowhere")).unwrap().probe()).unwrap();
    assert!(place.dir.path().join("deep/er").is_dir());
    run(Store::new(Arc::new(InMemory::new())).probe()).unwrap();
}

#[test]
fn addresses_that_are_no_store_are_refused_with_a_remedy() {
    for (url, fault) in [
        ("./.weir", "is not a URL"),
        ("ftp://bucket", "the schemes are \"file\", \"s3\", \"gs\" and \"az\""),
        ("file://", "names no"),
        ("s3://key:secret@bucket/x", "more than a bucket"),
    ] {
        let error: Error = Store::open(url, std::path::Path::new("/tmp")).unwrap_err().into();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains(fault) && error.remedy().is_some(), "{}", error.report());
        assert!(!error.report().contains("secret"), "{}", error.report());
    }
}

#[test]
fn a_store_that_overwrites_what_exists_is_refused() {
    let error: Error = run(Store::new(Arc::new(Overwriting(InMemory::new()))).probe()).unwrap_err().into();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("create-if-absent"), "{error}");
}

#[test]
fn a_job_goes_on_where_it_was_and_says_when_it_has_finished() {
    let place = place();
    let (mut first, restore, commit_needed) = place.running(Start::Resume);
    assert_eq!((restore, commit_needed, first.generation().0), (None, false, 1));
    let one = checkpoint(&mut first, false, true);
    let two = checkpoint(&mut first, false, false);
    assert_eq!((one, two, first.is_open()), (Epoch(1), Epoch(2), true));

    // It died before it had committed.
    let (mut second, restore, commit_needed) = place.running(Start::Resume);
    let restore = restore.unwrap();
    assert_eq!((restore.epoch, commit_needed, second.job_id()), (two, true, first.job_id()));
    let chunks = run(read_segments(second.store(), &restore.nodes[1].subtasks[0].segments)).unwrap();
    assert_eq!(chunks[0].data[..], b"state of 2"[..]);
    let permit = run(second.permit_tip()).unwrap();
    run(second.mark_committed(permit)).unwrap();
    let three = checkpoint(&mut second, true, false);

    let (mut third, restore, commit_needed) = place.running(Start::Resume);
    assert_eq!((restore.unwrap().epoch, commit_needed), (three, true));
    let permit = run(third.permit_tip()).unwrap();
    run(third.mark_committed(permit)).unwrap();

    for start in [Start::Resume, Start::From(three)] {
        let Begun::Finished(last) = place.begin(start).unwrap() else { panic!("not finished") };
        assert_eq!(last.epoch, three);
    }
}

#[test]
fn a_run_is_superseded_by_a_claim_a_fresh_start_and_a_collection() {
    let place = place();
    let (mut old, ..) = place.running(Start::Resume);
    checkpoint(&mut old, false, true);
    let (mut new, ..) = place.running(Start::Resume);
    let mut manifest = a_manifest(9, old.generation().0);
    (manifest.job_id, manifest.parent) = (old.job_id(), old.tip());
    manifest.nodes[1].subtasks[0].segments.clear();
    let error = run(old.publish(manifest.clone())).unwrap_err();
    let PublishError::Superseded { by, .. } = &error else { panic!("{error}") };
    assert_eq!(*by, Superseder::Generation(new.generation()));
    assert_eq!(Error::from(error).kind(), ErrorKind::Superseded);

    // The claim that fenced it, and the place it would put at, are gone: the boundary is what it meets.
    checkpoint(&mut new, false, true);
    checkpoint(&mut new, false, true);
    let collected = run(collect(&mut new, 1)).unwrap();
    assert_eq!((collected.entries, collected.packs), (4, 2));
    assert_eq!(run(collect(&mut new, 1)).unwrap(), Collected::default());
    let error = run(old.resolve()).unwrap_err();
    assert!(matches!(error, PublishError::Superseded { by: Superseder::Collected(4), .. }), "{error}");
    // What it left there counts for nobody, and goes.
    assert_eq!(run(collect(&mut new, 1)).unwrap().entries, 1);

    let (fresh, restore, _) = place.running(Start::Fresh);
    assert!(restore.is_none() && fresh.job_id() != new.job_id());
    assert!(matches!(run(new.check_fence()), Err(CheckpointError::Superseded { by: Superseder::Fresh, .. })));
    assert!(run(collect(&mut new, 1)).is_err());
    let (again, restore, _) = place.running(Start::Resume);
    assert!(restore.is_none() && again.job_id() == fresh.job_id());
}

#[test]
fn a_manifest_that_names_a_pack_nobody_put_is_refused_and_nothing_is_written() {
    let place = place();
    let (mut runner, ..) = place.running(Start::Resume);
    let mut manifest = a_manifest(2, 1);
    (manifest.job_id, manifest.parent) = (runner.job_id(), None);
    let error = run(runner.publish(manifest)).unwrap_err();
    assert!(matches!(error, PublishError::Refused { .. }) && error.to_string().contains("was not put"), "{error}");
    assert_eq!((runner.in_doubt(), checkpoint(&mut runner, false, true)), (None, Epoch(1)));
}

#[test]
fn a_damaged_manifest_is_refused_by_name_and_an_older_one_can_be_chosen() {
    let place = place();
    let (mut runner, ..) = place.running(Start::Resume);
    checkpoint(&mut runner, false, true);
    checkpoint(&mut runner, false, true);
    flip(&place.file("log/00000000000000000003"), 40);
    let error = place.refusal(Start::Resume);
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(error.to_string().contains("log/00000000000000000003 is damaged"), "{error}");
    assert!(error.remedy().unwrap().contains("--from"));
    let report = run(verify(&place.store, "job", Epoch(2))).unwrap();
    assert!(report.faults[0].contains("log/00000000000000000003 is damaged"), "{report:?}");
    let shown = run(history(&place.store, "job")).unwrap();
    assert!(matches!(shown[2].kind, EntryKind::Damaged { .. }) && shown[1].epoch == Some(Epoch(1)), "{shown:?}");

    let (mut runner, restore, commit_needed) = place.running(Start::From(Epoch(1)));
    assert_eq!((restore.unwrap().epoch, commit_needed), (Epoch(1), false));
    // Whatever number the damaged one had, it is not used again.
    assert!(checkpoint(&mut runner, false, true) > Epoch(1 << 20));
    let (_, restore, _) = place.running(Start::Resume);
    assert!(restore.unwrap().epoch > Epoch(1 << 20));
}

#[test]
fn from_an_older_checkpoint_holds_over_a_restart_and_never_uses_an_epoch_twice() {
    let place = place();
    let (mut runner, ..) = place.running(Start::Resume);
    (0..3).for_each(|_| {
        checkpoint(&mut runner, false, true);
    });
    let open = checkpoint(&mut runner, false, false);
    let (.., restore, commit_needed) = place.running(Start::From(Epoch(2)));
    assert_eq!((restore.unwrap().epoch, commit_needed), (Epoch(2), false));
    let (mut runner, restore, commit_needed) = place.running(Start::Resume);
    assert_eq!((restore.unwrap().epoch, commit_needed), (Epoch(2), false));
    assert_eq!(checkpoint(&mut runner, false, true), open.next());
    assert!(files(place.dir.path()).iter().all(|file| !file.to_str().unwrap().contains("/pins/")));

    assert!(matches!(place.begin(Start::From(open)), Err(CheckpointError::NeverCommitted { .. })));
    let error = place.refusal(Start::From(Epoch(77)));
    assert_eq!(error.to_string(), "job job has no checkpoint 77; it has 1, 2, 3, 4, 5");
}

#[test]
fn what_is_missing_is_an_error_and_never_an_empty_start() {
    // Each in a store of its own: what goes, and what the error names.
    for (gone, named) in [
        ("log/00000000000000000003", "the manifest of checkpoint 2"),
        ("/id/", "/id/00000000000000000001"),
        ("/log/", "/log/00000000000000000001"),
    ] {
        let place = place();
        let (mut runner, ..) = place.running(Start::Resume);
        checkpoint(&mut runner, false, true);
        checkpoint(&mut runner, false, true);
        for file in files(place.dir.path()).iter().filter(|file| file.to_str().unwrap().contains(gone)) {
            std::fs::remove_file(file).unwrap();
        }
        let error = place.refusal(Start::Resume);
        assert_eq!(error.kind(), ErrorKind::State, "{gone}");
        assert!(error.to_string().contains(named) && error.to_string().contains("missing"), "{gone}: {error}");
    }
}

#[test]
fn a_first_run_that_died_before_it_had_an_identity_is_forgotten() {
    let place = place();
    place.running(Start::Resume);
    std::fs::remove_file(place.file("/id/")).unwrap();
    let (_, restore, _) = place.running(Start::Resume);
    assert!(restore.is_none());
    assert!(matches!(run(history(&place.store, "other")), Err(CheckpointError::NeverRan { .. })));
    assert!(matches!(
        run(begin(&place.store, "../x", Start::Resume, &Clock::manual(0))),
        Err(CheckpointError::Name { .. })
    ));
}

#[test]
fn a_damaged_a_cut_and_a_missing_pack_are_named_by_verify_and_refused_by_a_restore() {
    type Harm = fn(&std::path::Path);
    let harms: [(&str, Harm); 3] = [
        ("chunk 0 does not match its hash", |file| flip(file, 10)),
        ("it has 105 bytes, and 110 were written", |file| {
            let bytes = std::fs::read(file).unwrap();
            std::fs::write(file, &bytes[..bytes.len() - 5]).unwrap();
        }),
        ("is missing", |file| std::fs::remove_file(file).unwrap()),
    ];
    for (fault, harm) in harms {
        let place = place();
        let (mut runner, ..) = place.running(Start::Resume);
        let epoch = checkpoint(&mut runner, false, true);
        let report = run(verify(&place.store, "job", epoch)).unwrap();
        assert_eq!((report.packs, report.chunks, report.bytes, report.faults.len()), (1, 1, 10, 0));
        let file = place.file("/packs/");
        harm(&file);
        let name = file.file_name().unwrap().to_str().unwrap();
        let report = run(verify(&place.store, "job", epoch)).unwrap();
        assert!(
            report.faults.len() == 1 && report.faults[0].contains(name) && report.faults[0].contains(fault),
            "{report:?}"
        );
        let (runner, restore, _) = place.running(Start::Resume);
        let segments = &restore.unwrap().nodes[1].subtasks[0].segments;
        let error: Error = run(read_segments(runner.store(), segments)).unwrap_err().into();
        assert_eq!(error.kind(), ErrorKind::State);
        assert!(error.to_string().contains(name) && error.to_string().contains(fault), "{error}");
    }
}

#[test]
fn the_history_tells_what_happened() {
    let place = place();
    let (mut runner, ..) = place.running(Start::Resume);
    checkpoint(&mut runner, false, true);
    place.running(Start::Resume);
    assert_eq!(run(place.store.list_jobs()).unwrap(), ["job"]);
    let shown = run(history(&place.store, "job")).unwrap();
    assert_eq!(shown.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(shown[0].kind, EntryKind::Claim { base: None });
    assert_eq!(
        (&shown[1].kind, shown[1].committed, shown[1].packs, shown[1].bytes),
        (&EntryKind::Checkpoint, true, 1, 10)
    );
    assert_eq!(shown[2].kind, EntryKind::Claim { base: Some(Epoch(1)) });
    assert_eq!(run(read_manifest(&place.store, "job", Epoch(1))).unwrap().epoch, Epoch(1));
    assert!(matches!(run(read_manifest(&place.store, "job", Epoch(2))), Err(CheckpointError::NoCheckpoint { .. })));
}

#[test]
fn a_plugin_comes_back_as_it_was_or_not_at_all() {
    let place = place();
    let digest = run(place.store.put_plugin(Bytes::from_static(b"component"))).unwrap();
    assert_eq!(run(place.store.get_plugin(digest)).unwrap(), &b"component"[..]);
    flip(&place.file("/plugins/"), 0);
    assert!(matches!(run(place.store.get_plugin(digest)), Err(CheckpointError::Damaged { .. })));
    run(place.store.put_plugin(Bytes::from_static(b"component"))).unwrap();
    assert_eq!(run(place.store.get_plugin(digest)).unwrap(), &b"component"[..]);
    assert!(matches!(run(place.store.get_plugin([0; 32])), Err(CheckpointError::Missing { .. })));
}

#[test]
fn uploads_that_a_dead_run_left_half_written_go_with_the_next_claim() {
    let place = place();
    let (mut runner, ..) = place.running(Start::Resume);
    checkpoint(&mut runner, false, true);
    let pack = place.file("/packs/");
    let leftover = pack.with_file_name(format!("{}#1", pack.file_name().unwrap().to_str().unwrap()));
    std::fs::write(&leftover, b"half").unwrap();
    place.running(Start::Resume);
    assert!(!leftover.exists() && pack.exists());
}

/// Sees nothing.
struct Nobody;

impl super::faulty::Witness for Nobody {
    fn written(&mut self, _: &Arc<InMemory>, _: &object_store::path::Path, _: &Bytes, _: bool, _: usize) {}
    fn deleting(&mut self, _: &Arc<InMemory>, _: &object_store::path::Path) {}
}

/// The order in which `FenceFacts` are read: entry after ours, then boundary. The other way round, an overtaker could come
/// and go between the two.
#[test]
fn a_writer_that_is_overtaken_and_collected_between_two_reads_gets_no_permit() {
    let is_permitted_when_overtaken_after = |polls: usize| {
        let world = super::faulty::World::new(1, 0, super::faulty::Pace::Steps, Box::new(Nobody));
        let store = Store::new(Arc::new(world.actor(None, None))).seeded(1);
        let start = || match run(begin(&store, "job", Start::Resume, &Clock::manual(0))).unwrap() {
            Begun::Run { run, .. } => run,
            Begun::Finished(_) => panic!("finished"),
        };
        let mut old = start();
        checkpoint(&mut old, false, false);
        let mut asking = Box::pin(old.permit_tip());
        for _ in 0..polls {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(asking.as_mut().poll(&mut context).is_pending());
        }
        let mut new = start();
        let permit = run(new.permit_tip()).unwrap();
        run(new.mark_committed(permit)).unwrap();
        checkpoint(&mut new, false, true);
        checkpoint(&mut new, false, true);
        run(collect(&mut new, 1)).unwrap();
        run(asking).is_ok()
    };
    // Two polls an operation: the first comes to it, the second carries it out. The second operation reads the boundary.
    for polls in 0..4 {
        assert!(!is_permitted_when_overtaken_after(polls), "after {polls}");
    }
    // Overtaken when it has looked: nobody can see that, and the commit is one that the overtaker makes as well.
    assert!(is_permitted_when_overtaken_after(6));
}

/// One that waits for its commit.
fn open_checkpoint(runner: &mut Run) -> Epoch {
    checkpoint(runner, false, false)
}

/// I4, I13: after it was given up, no run restores or commits it, what it covered comes again, and its number is not used twice.
#[test]
fn a_tip_that_is_given_up_is_never_the_base_of_a_run_again_and_the_next_run_is_told_of_it() {
    for first in [true, false] {
        let place = place();
        let (mut runner, ..) = place.running(Start::Resume);
        let parent = (!first).then(|| checkpoint(&mut runner, false, true));
        let open = open_checkpoint(&mut runner);
        assert_eq!(run(open_tip(&place.store, "job")).unwrap().map(|tip| tip.epoch), Some(open));

        // Only that one.
        let error: Error = run(give_up(&place.store, "job", open.next(), &Clock::manual(8))).unwrap_err().into();
        assert_eq!(error.kind(), ErrorKind::Usage);
        let gone = run(give_up(&place.store, "job", open, &Clock::manual(8))).unwrap();
        assert_eq!((gone.tip(), gone.given_up().map(|m| m.epoch)), (parent, Some(open)));
        assert!(run(open_tip(&place.store, "job")).unwrap().is_none());
        run(give_up(&place.store, "job", open, &Clock::manual(8))).unwrap_err();
        // Whoever had it open is fenced, with a permit or without.
        assert!(matches!(run(runner.permit_tip()), Err(PublishError::Superseded { .. })));

        // It may die before it has told the sinks: the next one is told as well, until one has gone on.
        for _ in 0..2 {
            let (next, restore, commit_needed) = place.running(Start::Resume);
            assert_eq!((restore.map(|m| m.epoch), commit_needed), (parent, false));
            assert_eq!(next.given_up().map(|m| m.epoch), Some(open));
        }
        let (mut next, ..) = place.running(Start::Resume);
        assert!(checkpoint(&mut next, false, true) > open);
        let (last, ..) = place.running(Start::Resume);
        assert!(last.given_up().is_none());
    }
}

/// A start from an older checkpoint leaves an open one behind in the same way.
#[test]
fn a_start_from_an_older_checkpoint_says_which_open_one_it_leaves_behind() {
    let place = place();
    let (mut runner, restore, _) = place.running(Start::Resume);
    assert!(restore.is_none() && runner.given_up().is_none());
    let older = checkpoint(&mut runner, false, true);
    let (same, ..) = place.running(Start::From(older));
    assert!(same.given_up().is_none(), "nothing was open");
    let (mut runner, ..) = place.running(Start::Resume);
    let open = open_checkpoint(&mut runner);
    let (again, _, commit_needed) = place.running(Start::Resume);
    assert!(commit_needed && again.given_up().is_none(), "it is what the run starts from");
    let (from, ..) = place.running(Start::From(older));
    assert_eq!(from.given_up().map(|m| m.epoch), Some(open));
}

fn names(dir: &std::path::Path) -> Vec<PathBuf> {
    let mut names = files(dir);
    names.sort();
    names
}

/// I9, beside a run: what a sweep deletes is what that run would have deleted, and the run goes on.
#[test]
fn a_sweep_beside_a_run_deletes_what_the_run_itself_would_and_first_only_says_so() {
    let build = || {
        let place = place();
        let (mut runner, ..) = place.running(Start::Resume);
        (0..3).for_each(|_| _ = checkpoint(&mut runner, false, true));
        let (mut runner, ..) = place.running(Start::Resume);
        (0..3).for_each(|_| _ = checkpoint(&mut runner, false, true));
        // Of an attempt under way.
        let epoch = runner.next_epoch();
        let task = TaskId { node: NodeName::new("count"), subtask: 0 };
        let mut pack = PackBuilder::new(runner.generation(), epoch, &task);
        pack.write(Scope::KeyGroup(7), SegmentKind::Base, b"under way").unwrap();
        run(runner.store().put_pack(&pack.finish().unwrap())).unwrap();
        (place, runner)
    };
    for retain in [1, 2, 5, 100] {
        let (by_itself, mut runner) = build();
        run(collect(&mut runner, retain)).unwrap();
        let (beside, mut runner) = build();
        let before = names(beside.dir.path());
        let shown = run(sweep(&beside.store, "job", retain, true)).unwrap();
        assert_eq!(names(beside.dir.path()), before, "a dry run changes nothing");
        let swept = run(sweep(&beside.store, "job", retain, false)).unwrap();
        assert_eq!((swept.objects.len(), swept.open), (shown.objects.len(), None));
        let after = names(beside.dir.path());
        let gone: Vec<_> = before.iter().filter(|path| !after.contains(path)).collect();
        assert_eq!(gone.len(), swept.objects.len());
        for (name, bytes) in &swept.objects {
            assert!(*bytes > 0 && gone.iter().any(|path| path.ends_with(name)), "{name}");
        }
        assert_eq!(after.len(), names(by_itself.dir.path()).len(), "retain {retain}");
        checkpoint(&mut runner, false, true);
        assert!(
            !run(sweep(&beside.store, "job", retain, true)).unwrap().objects.is_empty(),
            "that attempt is garbage now"
        );
    }
}

/// Giving the tip up starts from its parent: that stays while the tip is open, however few are to be kept.
#[test]
fn a_sweep_keeps_the_parent_of_an_open_tip() {
    let place = place();
    let (mut runner, ..) = place.running(Start::Resume);
    (0..3).for_each(|_| _ = checkpoint(&mut runner, false, true));
    let open = open_checkpoint(&mut runner);
    let swept = run(sweep(&place.store, "job", 1, false)).unwrap();
    assert!(swept.open == Some(open) && !swept.objects.is_empty());
    let gone = run(give_up(&place.store, "job", open, &Clock::manual(8))).unwrap();
    assert_eq!(gone.tip(), Some(Epoch(open.0 - 1)));
    let report = run(verify(&place.store, "job", Epoch(open.0 - 1))).unwrap();
    assert_eq!((report.faults, report.packs), (Vec::new(), 1));
}

/// The same content in another pack is the same.
#[test]
fn a_diff_tells_bytes_that_came_went_and_stayed_by_key_group() {
    let place = place();
    let (mut runner, ..) = place.running(Start::Resume);
    let mut publish = |chunks: &[(u32, &str)]| {
        let epoch = runner.next_epoch();
        let task = TaskId { node: NodeName::new("count"), subtask: 0 };
        let mut pack = PackBuilder::new(runner.generation(), epoch, &task);
        for (group, data) in chunks {
            pack.write(Scope::KeyGroup(*group), SegmentKind::Base, data.as_bytes()).unwrap();
        }
        let pack = pack.finish().unwrap();
        run(runner.store().put_pack(&pack)).unwrap();
        let mut manifest = a_manifest(epoch.0, runner.generation().0);
        (manifest.job_id, manifest.parent) = (runner.job_id(), runner.tip());
        manifest.nodes[1].subtasks[0].segments = pack.segments;
        let permit = run(runner.publish(manifest)).unwrap();
        run(runner.mark_committed(permit)).unwrap();
        epoch
    };
    let first = publish(&[(1, "stays as it is"), (2, "changes"), (3, "goes")]);
    let second = publish(&[(1, "stays as it is"), (2, "changed!"), (4, "comes")]);
    let told = |first, second| -> Vec<_> {
        let differences = run(diff(&place.store, "job", first, second)).unwrap();
        differences.iter().map(|d| (d.scope, d.added, d.removed, d.same)).collect()
    };
    let group = Scope::KeyGroup;
    assert_eq!(
        told(first, second),
        [(group(1), 0, 0, 14), (group(2), 8, 7, 0), (group(3), 0, 4, 0), (group(4), 5, 0, 0)]
    );
    assert_eq!(
        told(second, first),
        [(group(1), 0, 0, 14), (group(2), 7, 8, 0), (group(3), 4, 0, 0), (group(4), 0, 5, 0)]
    );
    assert_eq!(told(first, first), [(group(1), 0, 0, 14), (group(2), 0, 0, 7), (group(3), 0, 0, 4)]);
}

#[test]
fn a_refusal_of_code_is_read_back_decides_nothing_and_is_not_written_by_a_run_that_was_superseded() {
    let place = place();
    let refusal = |epoch: Epoch, reason: &str| Refused {
        node: NodeName::new("count"),
        digest: [5; 32],
        version: "2.0.0".into(),
        epoch,
        reason: reason.into(),
        created_at: 3,
    };
    let (mut first, ..) = place.running(Start::Resume);
    // Before any checkpoint, and after one; a text without end is cut.
    run(first.note_refused(refusal(Epoch(0), "at once"))).unwrap();
    let epoch = checkpoint(&mut first, false, true);
    run(first.note_refused(refusal(epoch, &"é".repeat(TEXT_BYTES_MAX)))).unwrap();
    let next = checkpoint(&mut first, false, true);
    run(first.note_refused(refusal(next, "again"))).unwrap();

    let all = run(refused(&place.store, "job")).unwrap();
    assert_eq!(all.iter().map(|refused| refused.epoch).collect::<Vec<_>>(), [Epoch(0), epoch, next]);
    assert_eq!((all[0].reason.as_str(), all[1].reason.len()), ("at once", TEXT_BYTES_MAX));
    let kinds: Vec<_> = run(history(&place.store, "job")).unwrap().into_iter().map(|entry| entry.kind).collect();
    assert!(
        matches!(&kinds[5], EntryKind::Refused { node, version, reason } if (node.as_str(), version.as_str(), reason.as_str()) == ("count", "2.0.0", "again"))
    );

    // What is restored is the checkpoint before it; and the run that noted it is fenced by the claim after it.
    let (mut second, restore, commit_needed) = place.running(Start::Resume);
    assert_eq!((restore.map(|manifest| manifest.epoch), commit_needed), (Some(next), false));
    let error = run(first.note_refused(refusal(next, "too late"))).unwrap_err();
    assert!(matches!(error, CheckpointError::Superseded { .. }), "{error}");
    checkpoint(&mut second, false, true);
    // The collector takes it with the entries around it.
    run(collect(&mut second, 1)).unwrap();
    assert_eq!(run(refused(&place.store, "job")).unwrap(), []);
}

#[test]
fn a_refusal_that_its_run_never_learned_of_is_found_and_not_written_twice() {
    let place = place();
    let (mut runner, ..) = place.running(Start::Resume);
    let epoch = checkpoint(&mut runner, false, true);
    // An entry of its own that it never learned of, as after a call that was dropped.
    let refused_once = Refused {
        node: NodeName::new("count"),
        digest: [5; 32],
        version: "2.0.0".into(),
        epoch,
        reason: "once".into(),
        created_at: 3,
    };
    let before = runner.last_seq();
    run(runner.note_refused(refused_once.clone())).unwrap();
    runner.note_seq(before);
    run(runner.note_refused(refused_once)).unwrap();
    assert_eq!(run(refused(&place.store, "job")).unwrap().len(), 1);
}
