//! `weir run`, recorded to its end; the power goes at many moments of it, and once more while the next run recovers.
//!
//! Invariants: I1, I2, I4, I5, I10, I13, and the last row of the crash table (`runtime/src/checkpoint.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::json;

use crate::disk::Disk;
use crate::image::{Entry, Image};
use crate::loss::Loss;
use crate::record::Record;
use crate::recorder::{Recording, record};

const SEED: u64 = 0x90e4_0ff;
const RECORDS: usize = 6_000;
const KEYS: u64 = 40;
const EPOCHS_MIN: usize = 8;
const SINKS: [&str; 2] = ["counts", "mirror"];

/// The folders of the test. Committables hold absolute paths, as they must, so every run is at the same place.
struct Place {
    outer: tempfile::TempDir,
}

/// What is published: everything, in the order of a reader.
#[derive(Debug, PartialEq)]
struct Output {
    /// The counts of each key, in order.
    counts: BTreeMap<String, Vec<u64>>,
    /// Every line of the input, in order.
    mirror: Vec<String>,
}

impl Place {
    fn new() -> Self {
        let place = Self { outer: tempfile::tempdir().expect("a folder") };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let lines = (0..RECORDS).map(|n| format!("{}\n", json!({ "key": format!("k{}", random.next_u64() % KEYS), "n": n })));
        fs::write(place.outer.path().join("input.jsonl"), lines.collect::<String>()).expect("the input can be written");
        place
    }

    fn work(&self) -> PathBuf {
        self.outer.path().join("work")
    }

    /// The pipeline file stands outside what is watched, as the input does: a user has them on a disk long before.
    fn pipeline(&self, rate: &str) -> PathBuf {
        let path = self.work().join("pipeline.toml");
        let input = self.outer.path().join("input.jsonl");
        let text = format!(
            r#"
name = "power"

[checkpoint]
interval = "100ms"

[restart]
attempts = 0

[source.lines]
connector = "file"
path = "{}"
format = "json"
{rate}

[operator.count]
plugin = "count"
inputs = [{{ from = "lines", key = "/key" }}]
parallelism = 2

[sink.counts]
connector = "file"
inputs = ["count"]
parallelism = 2
path = "counts"
format = "json"

[sink.mirror]
connector = "file"
inputs = ["lines"]
path = "mirror"
format = "json"
"#,
            input.display()
        );
        fs::write(&path, text).expect("the pipeline can be written");
        path
    }

    /// An empty folder to work in.
    fn clear(&self) {
        let _ = fs::remove_dir_all(self.work());
        fs::create_dir(self.work()).expect("a folder");
    }

    /// What the folder that was made from an image holds before and after a run.
    fn recover(&self, image: &Image) -> Result<Output, String> {
        self.clear();
        image.write(&self.work()).map_err(|e| format!("the image cannot be made real: {e}"))?;
        for sink in SINKS {
            weir_tests::published(&self.work().join(sink))?;
        }
        self.pipeline("");
        let (code, _, stderr) = weir_tests::run(&self.work(), &["run", "--quiet", "pipeline.toml"]);
        if code != 0 {
            return Err(format!("the next run ended with {code}: {stderr}"));
        }
        self.output()
    }

    fn output(&self) -> Result<Output, String> {
        for sink in SINKS {
            weir_tests::published(&self.work().join(sink))?;
        }
        let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for line in weir_tests::json_lines(&self.work().join("counts")) {
            let count = line["count"].as_u64().ok_or_else(|| format!("no count in {line}"))?;
            counts.entry(line["key"].to_string()).or_default().push(count);
        }
        Ok(Output { counts, mirror: weir_tests::lines(&self.work().join("mirror")) })
    }
}

/// The files of each published epoch, by its path: they never change once they are seen.
fn epochs(image: &Image) -> BTreeMap<PathBuf, BTreeMap<PathBuf, &[u8]>> {
    let mut epochs: BTreeMap<PathBuf, BTreeMap<PathBuf, &[u8]>> = BTreeMap::new();
    for (path, entry) in &image.entries {
        let names: Vec<_> = path.iter().take(2).map(|name| name.to_string_lossy()).collect();
        let [sink, epoch] = &names[..] else { continue };
        if SINKS.contains(&&**sink) && !epoch.starts_with('.') {
            let files = epochs.entry(Path::new(&**sink).join(&**epoch)).or_default();
            if let Entry::File { content, .. } = entry {
                files.insert(path.clone(), content);
            }
        }
    }
    epochs
}

/// The numbers of the epochs whose commit is marked.
fn marked(image: &Image) -> BTreeSet<u64> {
    let markers = image.entries.keys().filter(|path| path.parent().is_some_and(|parent| parent.ends_with("committed")));
    markers.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()
}

fn epoch_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("epoch-")?.parse().ok()
}

/// What must hold of any image of a run that went on to `end`, whatever survived.
fn check(image: &Image, end: &Image, promised: &BTreeSet<PathBuf>) -> Result<(), String> {
    let (seen, end) = (epochs(image), epochs(end));
    for (path, files) in &seen {
        if end.get(path) != Some(files) {
            return Err(format!("{} is published and is not what it is at the end", path.display()));
        }
    }
    if let Some(path) = promised.iter().find(|path| !seen.contains_key(*path)) {
        return Err(format!("{} was durable and is gone", path.display()));
    }
    let marked = marked(image);
    match end.keys().find(|path| epoch_of(path).is_some_and(|epoch| marked.contains(&epoch)) && !seen.contains_key(*path)) {
        Some(path) => Err(format!("{} is marked as committed and is not there", path.display())),
        None => Ok(()),
    }
}

/// Whether a record is about a manifest, a commit or a marker: the moments around these are all tried.
fn is_decisive(record: &Record) -> bool {
    let names = |path: &[u8]| {
        let path = String::from_utf8_lossy(path).into_owned();
        path.contains("/log/") || path.contains("/committed/") || path.contains("/commit/") || path.contains("/id")
    };
    match record {
        Record::Rename { to, .. } | Record::Link { to, .. } => names(to) || String::from_utf8_lossy(to).contains("/epoch-"),
        Record::MakeFolder { path } | Record::Unlink { path } => names(path),
        _ => false,
    }
}

fn chance(random: &mut Xoshiro256PlusPlus) -> Loss {
    let seed = random.next_u64();
    match random.next_u64() % 3 {
        0 => Loss::Journal(seed),
        1 => Loss::Prefixes(seed),
        _ => Loss::Parts(seed),
    }
}

/// Looks at images of every moment, and gives what was durable before each.
fn sweep(recording: &Recording, end: &Image, random: &mut Xoshiro256PlusPlus) -> Vec<BTreeSet<PathBuf>> {
    let mut promised = BTreeSet::new();
    let mut promises = Vec::new();
    recording.moments(|moment, disk: &Disk| {
        let worst = disk.image(Loss::Everything);
        let check = |image: &Image, loss: Loss| {
            if let Err(fault) = check(image, end, &promised) {
                panic!("the power went at moment {moment}, {loss:?}: {fault}");
            }
        };
        check(&worst, Loss::Everything);
        for _ in 0..2 {
            let loss = chance(random);
            check(&disk.image(loss), loss);
        }
        promised.extend(epochs(&worst).into_keys());
        promises.push(promised.clone());
    });
    promises
}

#[test]
fn output_is_that_of_an_undisturbed_run_when_the_power_goes_at_any_moment() {
    let place = Place::new();
    place.clear();
    let expected = place.recover(&Image::default()).expect("an undisturbed run");
    assert_eq!(expected.mirror.len(), RECORDS);
    assert_eq!(expected.counts.len(), KEYS as usize);
    for counts in expected.counts.values() {
        assert!(counts.iter().copied().eq(1..=counts.len() as u64), "each key is counted from one: {counts:?}");
    }

    place.clear();
    place.pipeline("rate = 3_000");
    let mut command = Command::new(weir_tests::weir());
    command.args(["run", "--quiet", "pipeline.toml"]).current_dir(place.work());
    let (output, recording) = record(&mut command, &place.work());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(place.output().as_ref(), Ok(&expected));
    let len = recording.records.len();
    let end = recording.at(len).image(Loss::Everything);
    let published: BTreeSet<u64> = epochs(&end).keys().filter_map(|path| epoch_of(path)).collect();
    assert!(published.len() >= EPOCHS_MIN, "{published:?}");
    assert_eq!(epochs(&end), epochs(&recording.at(len).image(Loss::Nothing)), "what is published is durable");
    assert_eq!(marked(&end).last(), published.last(), "and so is the newest mark; older ones may be collected");

    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    sweep(&recording, &end, &mut random);
    println!("{len} records, {} epochs", published.len());

    let decisive: Vec<usize> = (0..len).filter(|&index| is_decisive(&recording.records[index])).collect();
    println!("{} decisive", decisive.len());
    for &index in decisive.iter().take(60) { println!("{index} {:?}", recording.records[index]); }
    let started = std::time::Instant::now();
    let mut recoveries = 0;
    for n in 0..60 {
        let moment = decisive[random.next_u64() as usize % decisive.len()] + (random.next_u64() % 3) as usize;
        let loss = if n % 3 == 0 { Loss::Everything } else { chance(&mut random) };
        let got = place.recover(&recording.at(moment).image(loss));
        match got {
            Ok(got) => assert!(got == expected, "moment {moment} {loss:?}"),
            Err(fault) => panic!("moment {moment} {loss:?}: {fault}"),
        }
        recoveries += 1;
    }
    println!("{recoveries} in {:?}", started.elapsed());
}
