//! The recorder on real processes, and publishers that forget one step: each must be found out.

use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::image::Image;
use crate::loss::Loss;
use crate::record::Record;
use crate::recorder::{Recording, record, subject};

const EPOCHS: u64 = 3;

/// A folder to be watched, in one that is removed.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().expect("a folder");
    let folder = outer.path().join("watched");
    std::fs::create_dir(&folder).expect("a folder");
    (outer, folder)
}

#[test]
fn the_recorder_sees_every_kind_of_call_in_its_order() {
    let (_outer, folder) = folder();
    let (output, recording) = record(subject().arg("exercise").arg(&folder), &folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let count = |wanted: fn(&Record) -> bool| recording.records.iter().filter(|record| wanted(record)).count();
    // Four threads, twenty rounds.
    assert_eq!(count(|record| matches!(record, Record::Link { .. })), 80);
    assert!(count(|record| matches!(record, Record::Write { .. })) >= 80 * 12);
    assert_eq!(count(|record| matches!(record, Record::Truncate { .. })), 80);
    assert_eq!(count(|record| matches!(record, Record::Duplicate { .. })), 80);
    // The data of the copy, the log, the deep folder and the folder.
    assert_eq!(count(|record| matches!(record, Record::Sync { .. })), 80 * 4);
    let opened = count(|record| matches!(record, Record::Open { .. } | Record::Duplicate { .. }));
    assert_eq!(opened, count(|record| matches!(record, Record::Close { .. })), "every descriptor is given back");
}

#[test]
fn what_the_recorder_cannot_record_ends_the_process_with_the_name_of_the_call() {
    let (_outer, folder) = folder();
    let (output, _) = record(subject().arg("refused").arg(&folder), &folder);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("a shared writable map of") && stderr.contains("mapped"), "{stderr}");
}

fn publish(forgotten: Option<&str>) -> Recording {
    let (_outer, folder) = folder();
    let mut command = subject();
    command.arg("publish").arg(&folder).arg(EPOCHS.to_string()).args(forgotten);
    let (output, recording) = record(&mut command, &folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    recording
}

/// What is wrong with an image: an epoch is there in part, or its marker is and it is not.
fn fault(image: &Image) -> Option<String> {
    (0..EPOCHS).find_map(|epoch| {
        let folder = PathBuf::from(format!("epoch-{epoch}"));
        let expected = format!("epoch {epoch} ").repeat(3);
        let whole = ["a", "b"].iter().all(|part| image.file(folder.join(part)) == Some(expected.as_bytes()));
        let marker = Path::new("markers").join(epoch.to_string());
        if image.has(&folder) && !whole {
            Some(format!("epoch {epoch} is there in part"))
        } else if image.has(&marker) && !whole {
            Some(format!("epoch {epoch} is marked and is not there"))
        } else {
            None
        }
    })
}

/// The first fault in the images of a loss at every moment.
fn first_fault(recording: &Recording, losses: impl Fn(u64) -> Loss) -> Option<String> {
    let mut found = None;
    recording.moments(|moment, disk: &Disk| {
        for seed in 0..8 {
            let fault = || fault(&disk.image(losses(moment as u64 * 8 + seed)));
            found = found.take().or_else(|| fault().map(|fault| format!("moment {moment}: {fault}")));
        }
    });
    found
}

#[test]
fn a_publisher_that_syncs_everything_has_no_fault_at_any_moment() {
    // That the staging folder itself knows its entries is not needed: they are moved.
    for forgotten in [None, Some("staging-parent")] {
        let recording = publish(forgotten);
        for losses in [|_| Loss::Nothing, |_| Loss::Everything, Loss::Journal, Loss::Prefixes, Loss::Parts] {
            assert_eq!(first_fault(&recording, losses), None, "{forgotten:?}");
        }
        // Losing everything after the last sync loses nothing.
        let last = recording.at(recording.records.len()).image(Loss::Everything);
        assert!((0..EPOCHS).all(|epoch| last.has(format!("epoch-{epoch}")) && last.has(format!("markers/{epoch}"))));
    }
}

#[test]
fn a_publisher_that_forgets_to_sync_a_part_the_staging_folder_or_the_parent_is_found_out() {
    for (forgotten, what) in [("part", "in part"), ("staging", "in part"), ("parent", "is marked and is not there")] {
        let recording = publish(Some(forgotten));
        let worst = first_fault(&recording, |_| Loss::Everything).unwrap_or_default();
        assert!(worst.contains(what), "{forgotten}: {worst:?}");
        for losses in [Loss::Journal, Loss::Prefixes, Loss::Parts] {
            assert_ne!(first_fault(&recording, losses), None, "{forgotten}");
        }
    }
}

#[test]
fn a_publisher_that_forgets_to_sync_its_marker_is_found_out_by_the_missing_marker() {
    let recording = publish(Some("marker"));
    assert_eq!(first_fault(&recording, |_| Loss::Everything), None, "the epochs are whole all the same");
    let last = recording.at(recording.records.len()).image(Loss::Everything);
    assert!(!last.has("markers/0"));
}
