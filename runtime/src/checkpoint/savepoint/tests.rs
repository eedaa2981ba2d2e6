//! Savepoints on a real directory: what is pinned stays, what is deleted goes, and a file is whole or refused.

use std::path::Path;

use super::super::testing::{a_manifest, run};
use super::super::{
    Begun, PackBuilder, Run, Start, begin, check_job, collect, export_savepoint, history, import, open_export,
    read_segments, verify,
};
use super::*;
use crate::clock::Clock;
use crate::error::ErrorKind;
use crate::model::{Scope, SegmentKind, TaskId};

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
    fn begin(&self, start: Start) -> (Run, Option<Manifest>) {
        match run(begin(&self.store, "job", start, &Clock::manual(7))).unwrap() {
            Begun::Run { run, restore, .. } => (run, restore),
            Begun::Finished(manifest) => panic!("finished with {}", manifest.epoch),
        }
    }

    fn create(&self, name: &str) -> Result<Epoch, CheckpointError> {
        run(create_savepoint(&self.store, "job", name)).map(|savepoint| savepoint.manifest.epoch)
    }

    fn names(&self) -> Vec<String> {
        run(list_savepoints(&self.store, "job")).unwrap().into_iter().map(|savepoint| savepoint.name).collect()
    }

    /// A plugin of the store, so that a savepoint has one to take along.
    fn plugin(&self) -> [u8; 32] {
        run(self.store.put_plugin(bytes::Bytes::from_static(b"a plugin"))).unwrap()
    }
}

/// A checkpoint with a pack of its own. Committed and marked if `commit`.
fn checkpoint(runner: &mut Run, plugin: [u8; 32], commit: bool) -> Epoch {
    let epoch = runner.next_epoch();
    let mut pack = PackBuilder::new(runner.generation(), epoch, &TaskId { node: NodeName::new("count"), subtask: 0 });
    let state = format!("state of {epoch}").repeat(20);
    pack.write(Scope::KeyGroup(7), SegmentKind::Base, state.as_bytes()).unwrap();
    let pack = pack.finish().unwrap();
    run(runner.store().put_pack(&pack)).unwrap();
    let mut manifest = a_manifest(epoch.0, runner.generation().0);
    (manifest.job_id, manifest.parent) = (runner.job_id(), runner.tip());
    manifest.nodes[1].subtasks[0].segments = pack.segments;
    manifest.nodes[1].plugin.as_mut().unwrap().digest = plugin;
    let permit = run(runner.publish(manifest)).unwrap();
    if commit {
        run(runner.mark_committed(permit)).unwrap();
    }
    epoch
}

/// What a run that starts there reads as the state.
fn state(run_of: &Run, manifest: &Manifest) -> String {
    let chunks = run(read_segments(run_of.store(), &manifest.nodes[1].subtasks[0].segments)).unwrap();
    String::from_utf8(chunks[0].data.to_vec()).unwrap()
}

#[test]
fn i9_what_is_pinned_stays_while_everything_around_it_is_collected_and_goes_when_it_is_deleted() {
    let place = place();
    let plugin = place.plugin();
    let (mut runner, _) = place.begin(Start::Resume);
    checkpoint(&mut runner, plugin, true);
    let pinned = checkpoint(&mut runner, plugin, true);
    assert_eq!(place.create("nightly").unwrap(), pinned);
    for _ in 0..3 {
        checkpoint(&mut runner, plugin, true);
    }
    run(collect(&mut runner, 1)).unwrap();
    let logged: Vec<_> =
        run(history(&place.store, "job")).unwrap().into_iter().filter_map(|entry| entry.epoch).collect();
    assert_eq!(logged, [Epoch(5)]);
    assert!(run(verify(&place.store, "job", pinned)).unwrap().faults.is_empty());
    let found = run(look_for_state(&place.store, pinned)).unwrap();
    assert_eq!((found.0, found.1), (pinned, vec![Epoch(5)]));

    // It is started from; then its base keeps it until a checkpoint follows.
    let (mut runner, restore) = place.begin(Start::From(pinned));
    let restore = restore.unwrap();
    assert_eq!((restore.epoch, state(&runner, &restore)), (pinned, "state of 2".repeat(20)));
    let freed = run(delete_savepoint(&place.store, "job", "nightly")).unwrap();
    assert_eq!(freed, Freed { epoch: pinned, packs: 0, bytes: 0 });
    run(collect(&mut runner, 1)).unwrap();
    assert_eq!(state(&runner, &restore), "state of 2".repeat(20));
    // What was pinned again and deleted, and named by nothing else, goes.
    let last = checkpoint(&mut runner, plugin, true);
    assert_eq!(place.create("again").unwrap(), last);
    checkpoint(&mut runner, plugin, true);
    run(collect(&mut runner, 1)).unwrap();
    let freed = run(delete_savepoint(&place.store, "job", "again")).unwrap();
    assert_eq!((freed.epoch, freed.packs), (last, 1));
    let packs = run(collect(&mut runner, 1)).unwrap().packs;
    assert_eq!(packs, 1);
    let error = run(look_for_state(&place.store, last)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
}

/// What a start from there would find: the epoch, and those after it.
async fn look_for_state(store: &Store, epoch: Epoch) -> Result<(Epoch, Vec<Epoch>), CheckpointError> {
    let found = super::super::look_for(store, "job", Some(epoch)).await?.expect("it is there");
    assert!(found.committed);
    Ok((found.manifest.epoch, found.later))
}

#[test]
fn i13_what_is_not_committed_is_not_pinned_and_the_error_says_what_to_do() {
    let place = place();
    let plugin = place.plugin();
    let error = place.create("early").unwrap_err();
    assert!(matches!(error, CheckpointError::NeverRan { .. }), "{error}");
    let (mut runner, _) = place.begin(Start::Resume);
    let error = place.create("early").unwrap_err().to_string();
    assert_eq!(error, "job job has nothing to make a savepoint of: it has no complete checkpoint yet");
    let one = checkpoint(&mut runner, plugin, true);
    let two = checkpoint(&mut runner, plugin, false);
    let error = place.create("open").unwrap_err();
    assert!(error.to_string().contains(&format!("newest checkpoint {two} is not published yet")), "{error}");
    assert!(error.to_string().contains(&format!("the one before it is {one}")), "{error}");
    assert_eq!(error.kind(), ErrorKind::State);
    // The next run has claimed it and not committed yet: its base is the same open checkpoint.
    place.begin(Start::Resume);
    assert!(place.create("open").is_err());
    assert!(place.names().is_empty());
}

#[test]
fn a_checkpoint_that_is_collected_while_it_is_pinned_is_not_pinned() {
    let place = place();
    let plugin = place.plugin();
    let (mut runner, _) = place.begin(Start::Resume);
    let one = checkpoint(&mut runner, plugin, true);
    let manifest = run(super::super::read_manifest(&place.store, "job", one)).unwrap();
    for _ in 0..2 {
        checkpoint(&mut runner, plugin, true);
    }
    // Another collector has passed the entry after it was read here.
    run(collect(&mut runner, 1)).unwrap();
    let error = run(pin(runner.store(), "late", manifest, 2)).unwrap_err();
    assert!(error.to_string().contains("checkpoint 1 was collected while it was pinned"), "{error}");
    assert!(place.names().is_empty());
}

#[test]
fn names_are_names_and_are_taken_once() {
    let place = place();
    let plugin = place.plugin();
    let (mut runner, _) = place.begin(Start::Resume);
    checkpoint(&mut runner, plugin, true);
    for (name, fault) in [
        ("", "is empty"),
        ("../x", "characters other than"),
        ("from-here", "for the runs of a job"),
        ("12", "is a number"),
        (&"a".repeat(64), "longer than 63"),
    ] {
        let error = place.create(name).unwrap_err();
        assert!(error.to_string().contains(fault) && error.kind() == ErrorKind::Usage, "{name}: {error}");
    }
    assert_eq!(place.create("a").unwrap(), Epoch(1));
    assert_eq!(place.create("a").unwrap(), Epoch(1));
    checkpoint(&mut runner, plugin, true);
    let error = place.create("a").unwrap_err();
    assert_eq!(error.to_string(), "job job has a savepoint \"a\" already, of checkpoint 1");
    assert_eq!(place.create("b").unwrap(), Epoch(2));
    assert_eq!(place.names(), ["a", "b"]);
    let error = run(find_savepoint(&place.store, "job", "c")).unwrap_err();
    assert_eq!(error.to_string(), "job job has no savepoint \"c\"; it has a, b");
    assert!(run(delete_savepoint(&place.store, "job", "c")).is_err());
}

fn tokio_run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A place with a savepoint `s` of its second checkpoint, and the file of it.
fn exported() -> (Place, std::path::PathBuf) {
    let place = place();
    let plugin = place.plugin();
    let (mut runner, _) = place.begin(Start::Resume);
    checkpoint(&mut runner, plugin, true);
    checkpoint(&mut runner, plugin, true);
    place.create("s").unwrap();
    let file = place.dir.path().join("s.save");
    let written = tokio_run(export_savepoint(&place.store, "job", "s", &file)).unwrap();
    assert_eq!((written.packs, written.plugins), (1, 1));
    assert_eq!(written.bytes, std::fs::metadata(&file).unwrap().len());
    (place, file)
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn a_file_begins_a_history_elsewhere_that_goes_on_with_the_epochs() {
    let (from, file) = exported();
    let before = std::fs::read(&file).unwrap();
    let error = tokio_run(export_savepoint(&from.store, "job", "s", &file)).unwrap_err();
    assert!(error.to_string().contains("there is a file already"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(std::fs::read_dir(from.dir.path()).unwrap().count(), 2, "no part of a file is left");

    let to = place();
    let export = tokio_run(open_export(&file)).unwrap();
    assert_eq!((export.name.as_str(), export.manifest.epoch), ("s", Epoch(2)));
    let id = tokio_run(import(&to.store, "job", &export, false, &Clock::manual(9))).unwrap();
    let (mut runner, restore) = to.begin(Start::Resume);
    let restore = restore.unwrap();
    assert_eq!((runner.job_id(), restore.job_id, restore.epoch), (id, id, Epoch(2)));
    assert_ne!(id, export.manifest.job_id);
    assert_eq!(state(&runner, &restore), "state of 2".repeat(20));
    assert!(restore.nodes.iter().all(|node| node.committables.is_empty()));
    let plugin = restore.nodes[1].plugin.as_ref().unwrap().digest;
    assert_eq!(run(to.store.get_plugin(plugin)).unwrap()[..], b"a plugin"[..]);
    // It lives like any other, carries its packs along and collects them in the end.
    assert_eq!(checkpoint(&mut runner, plugin, true), Epoch(3));
    assert!(run(missing_plugins(&to.store, &restore)).unwrap().is_empty());
    checkpoint(&mut runner, plugin, true);
    assert_eq!(run(collect(&mut runner, 1)).unwrap().packs, 2);

    // The job has a history there now.
    let error = tokio_run(import(&to.store, "job", &export, false, &Clock::manual(9))).unwrap_err();
    assert!(matches!(error, CheckpointError::Exists { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Usage);
    let fresh = tokio_run(import(&to.store, "job", &export, true, &Clock::manual(9))).unwrap();
    assert_eq!(to.begin(Start::Resume).0.job_id(), fresh);
    let error = run(runner.check_fence()).unwrap_err();
    assert!(error.to_string().contains("a fresh start"), "{error}");
}

#[test]
fn every_flipped_byte_and_every_cut_of_a_file_is_found_and_nothing_is_imported() {
    let (_from, file) = exported();
    let whole = std::fs::read(&file).unwrap();
    let bad = file.with_extension("bad");
    tokio_run(async {
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&bad, bytes).unwrap();
            let error = open_export(&bad).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::State, "byte {at}: {error}");
        }
        for length in (0..whole.len()).step_by(7) {
            std::fs::write(&bad, &whole[..length]).unwrap();
            assert!(open_export(&bad).await.is_err(), "cut at {length}");
        }
    });
    std::fs::write(&bad, [&whole[..], b"x"].concat()).unwrap();
    assert!(tokio_run(open_export(&bad)).is_err());
    assert!(tokio_run(open_export(Path::new("/nowhere/s.save"))).is_err());

    // A file that changes between the two readings: nothing of it becomes the job's.
    let to = place();
    let export = tokio_run(open_export(&file)).unwrap();
    let mut bytes = whole.clone();
    let at = bytes.len() - 200;
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let error = tokio_run(import(&to.store, "job", &export, false, &Clock::manual(9))).unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
    std::fs::write(&file, whole).unwrap();
    // A job of that name starts as one that never ran, whatever the import left.
    let (_, restore) = to.begin(Start::Resume);
    assert!(restore.is_none());
}

#[test]
fn an_import_that_died_is_no_trace_of_a_job() {
    let (_from, file) = exported();
    let to = place();
    let export = tokio_run(open_export(&file)).unwrap();
    tokio_run(import(&to.store, "job", &export, false, &Clock::manual(9))).unwrap();
    // As if the program had died before the history had its identity.
    for path in files(to.dir.path()).iter().filter(|path| path.to_str().unwrap().contains("/id/")) {
        std::fs::remove_file(path).unwrap();
    }
    assert!(files(to.dir.path()).iter().any(|path| path.to_str().unwrap().contains("/packs/0-2-count.0-")));
    let (_, restore) = to.begin(Start::Resume);
    assert!(restore.is_none());
}

#[test]
fn a_file_of_another_job_is_refused_by_both_names() {
    let (_from, file) = exported();
    let export = tokio_run(open_export(&file)).unwrap();
    let error = check_job(&export, "other").unwrap_err();
    assert!(error.to_string().contains("a savepoint of job \"job\", and this is job \"other\""), "{error}");
    let to = place();
    assert!(tokio_run(import(&to.store, "other", &export, false, &Clock::manual(9))).is_err());
    assert!(files(to.dir.path()).is_empty());
}
