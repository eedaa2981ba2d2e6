//! Where the runs of the scenario take place: one folder, made from an image, run to the end, and read as a user reads it.
//!
//! Committables hold absolute paths, as they must, so all runs are in the same place, one after the other. The input lies
//! outside what is watched.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::json;

use crate::image::Image;
use crate::recorder::{Recording, record};

/// How many records the input has.
pub(crate) const RECORDS: usize = 6_000;
/// How many different keys.
pub(crate) const KEYS: usize = 40;
/// The sinks of the pipeline; each writes to the folder of its name.
pub(crate) const SINKS: [&str; 2] = ["counts", "mirror"];

/// The folders, removed at the end.
#[derive(Debug)]
pub(crate) struct Place {
    outer: tempfile::TempDir,
}

/// Everything that is published.
#[derive(Debug, PartialEq)]
pub(crate) struct Output {
    /// The counts of each key, in order.
    pub(crate) counts: BTreeMap<String, Vec<u64>>,
    /// Every line of the input, in order.
    pub(crate) mirror: Vec<String>,
}

impl Place {
    /// With the input that a seed makes.
    pub(crate) fn new(seed: u64) -> Self {
        // What is durable is computed, so no disk need be waited for.
        let outer = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut line = |n| json!({ "key": format!("k{}", random.next_u64() % KEYS as u64), "n": n }).to_string() + "\n";
        let input: String = (0..RECORDS).map(&mut line).collect();
        fs::write(outer.path().join("input.jsonl"), input).expect("the input can be written");
        Self { outer }
    }

    fn work(&self) -> PathBuf {
        self.outer.path().join("work")
    }

    /// Makes the folder what an image says, and puts the pipeline into it.
    fn prepare(&self, image: &Image, rate: &str) {
        let work = self.work();
        let _ = fs::remove_dir_all(&work);
        fs::create_dir(&work).expect("a folder");
        image.write(&work).expect("the image can be made real");
        let input = self.outer.path().join("input.jsonl");
        let text = format!(
            r#"
name = "power"

[checkpoint]
interval = "100ms"
inline = "0B"

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
        fs::write(work.join("pipeline.toml"), text).expect("the pipeline can be written");
    }

    /// Runs on from an image to the end.
    ///
    /// # Errors
    ///
    /// A reader would have seen part of an epoch, before or after, or the run failed.
    pub(crate) fn run(&self, image: &Image) -> Result<Output, String> {
        self.prepare(image, "");
        for sink in SINKS {
            weir_tests::published(&self.work().join(sink))?;
        }
        let (code, _, stderr) = weir_tests::run(&self.work(), &["run", "--quiet", "pipeline.toml"]);
        if code == 0 { self.output() } else { Err(format!("the next run ended with {code}: {stderr}")) }
    }

    /// The same with the recorder. `rate` is a line for the source.
    pub(crate) fn record(&self, image: &Image, rate: &str) -> (Output, Recording) {
        self.prepare(image, rate);
        let mut command = Command::new(weir_tests::weir());
        command.args(["run", "--quiet", "pipeline.toml"]).current_dir(self.work());
        let (output, recording) = record(&mut command, &self.work());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (self.output().expect("whole epochs"), recording)
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

    /// Leaves an image for a person to look at: a recording is another one each time.
    pub(crate) fn keep(&self, image: &Image) -> PathBuf {
        let kept = weir_tests::cargo_target().join("power-failure");
        let _ = fs::remove_dir_all(&kept);
        let made = fs::create_dir_all(&kept).and_then(|()| image.write(&kept));
        made.map_or_else(|_| Path::new("nowhere").to_path_buf(), |()| kept)
    }
}
