//! `weir run` with an object sink in a folder, recorded to its end; the power goes at many moments.
//!
//! What a durable commit record names is durable and whole, what the store has marked as committed has its record, and a run from
//! any image ends in the output of an undisturbed one (I1, I4, I5; the last row of the crash table).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::image::Image;
use crate::loss::Loss;
use crate::promises::number;
use crate::record::Record;
use crate::recorder::record;

const RECORDS: usize = 2_000;
const KEYS: usize = 20;
/// How many images are run on from.
const RUNS: usize = 16;

fn prepare(outer: &Path, image: &Image, rate: &str) -> PathBuf {
    let work = outer.join("work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir(&work).expect("a folder");
    image.write(&work).expect("the image can be made real");
    let text = format!(
        r#"
name = "power"

[checkpoint]
interval = "100ms"

[restart]
attempts = 0

[source.lines]
connector = "file"
path = "{}/input.jsonl"
format = "json"
{rate}

[operator.count]
plugin = "count"
inputs = [{{ from = "lines", key = "/key" }}]
parallelism = 2

[sink.out]
connector = "object"
inputs = ["count"]
parallelism = 2
url = "file://./out"
format = "json"
"#,
        outer.display()
    );
    fs::write(work.join("pipeline.toml"), text).expect("the pipeline can be written");
    work
}

/// The epochs that an image shows: of each record what its objects hold.
fn visible(image: &Image) -> Result<BTreeMap<u64, Vec<Vec<u8>>>, String> {
    let mut epochs = BTreeMap::new();
    for path in image.entries.keys().filter(|path| path.parent() == Some(Path::new("out/_weir/commits"))) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(".json")) else {
            continue;
        };
        let text = image.file(path).unwrap_or_default();
        let record: Value = serde_json::from_slice(text).map_err(|e| format!("{name}: {e}"))?;
        let mut objects = Vec::new();
        for object in record["objects"].as_array().ok_or_else(|| format!("{name} names no objects"))? {
            let object_name = object["name"].as_str().unwrap_or_default();
            let bytes = image.file(Path::new("out").join(object_name));
            let bytes = bytes.ok_or_else(|| format!("{name} names {object_name}, which is not there"))?;
            if object["blake3"] != blake3::hash(bytes).to_hex().as_str() {
                return Err(format!("{object_name} is not what {name} says"));
            }
            objects.push(bytes.to_vec());
        }
        epochs.insert(record["epoch"].as_u64().unwrap_or_default(), objects);
    }
    Ok(epochs)
}

fn is_whole(image: &Image) -> Result<(), String> {
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for object in visible(image)?.values().flatten() {
        for line in String::from_utf8_lossy(object).lines() {
            let line: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
            counts.entry(line["key"].to_string()).or_default().push(line["count"].as_u64().unwrap_or_default());
        }
    }
    let records: usize = counts.values().map(Vec::len).sum();
    let in_order = counts.values().all(|counts| counts.iter().copied().eq(1..=counts.len() as u64));
    if records == RECORDS && in_order { Ok(()) } else { Err(format!("{records} records, in order: {in_order}")) }
}

#[test]
fn the_objects_of_a_sink_are_those_of_an_undisturbed_run_when_the_power_goes_at_any_moment() {
    let outer = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let outer = outer.path();
    let line = |n: usize| json!({ "key": format!("k{}", n * n % KEYS), "n": n }).to_string() + "\n";
    fs::write(outer.join("input.jsonl"), (0..RECORDS).map(line).collect::<String>()).expect("the input can be written");

    let work = prepare(outer, &Image::default(), "rate = 2_000");
    let mut command = Command::new(weir_tests::weir());
    command.args(["run", "--quiet", "pipeline.toml"]).current_dir(&work);
    let (output, recording) = record(&mut command, &work);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let end = recording.at(recording.records.len()).image(Loss::Everything);
    is_whole(&end).expect("all of it, and durable");
    let published = visible(&end).expect("whole epochs");
    assert!(published.len() > 4, "{} epochs", published.len());

    // What a reader sees, and what it was promised, at every moment.
    let mut promised = BTreeSet::new();
    recording.moments(|moment, disk| {
        let worst = disk.image(Loss::Everything);
        let shown = visible(&worst).unwrap_or_else(|fault| panic!("moment {moment}: {fault}"));
        for (epoch, objects) in &shown {
            assert_eq!(published.get(epoch), Some(objects), "moment {moment}, epoch {epoch}");
        }
        let marked: BTreeSet<u64> = worst.entries.keys().filter_map(|path| number(path, "committed")).collect();
        let lost = marked.iter().find(|epoch| published.contains_key(epoch) && !shown.contains_key(epoch));
        assert_eq!(lost, None, "moment {moment}: it is marked as committed and is not there");
        let gone = promised.iter().find(|epoch| !shown.contains_key(epoch));
        assert_eq!(gone, None, "moment {moment}: it was durable and is gone");
        promised.extend(shown.into_keys());
    });

    // Runs from images around commits: as the record gets its name, and the steps before and after.
    let commits: Vec<usize> = (0..recording.records.len())
        .filter(|index| match &recording.records[*index] {
            Record::Link { to, .. } => {
                let to = String::from_utf8_lossy(to);
                to.contains("_weir/commits/") || to.contains("/log/") || to.contains("/committed/")
            }
            _ => false,
        })
        .collect();
    let moments: BTreeSet<usize> = commits.iter().flat_map(|index| [*index, index + 1, index + 3]).collect();
    let step = (moments.len() / RUNS).max(1);
    for moment in moments.into_iter().step_by(step) {
        let image = recording.at(moment.min(recording.records.len())).image(Loss::Everything);
        let work = prepare(outer, &image, "");
        let (code, _, stderr) = weir_tests::run(&work, &["run", "--quiet", "pipeline.toml"]);
        assert_eq!(code, 0, "moment {moment}: {stderr}");
        is_whole(&Image::of(&work).expect("the folder can be read"))
            .unwrap_or_else(|fault| panic!("moment {moment}: {fault}"));
    }
}
