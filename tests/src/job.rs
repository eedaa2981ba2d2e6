//! Jobs in process: a pipeline whose operators are native code, so that a test decides what each call does and when.
//!
//! A [`Pipeline`] is a folder, a text and the code of its operators; [`Pipeline::start`] runs it in the background. Tests wait for
//! events (numbers, published files) with [`Running::until`], and never for time. Input comes from a followed file that the
//! test writes ([`Pipeline::feed`]) or from a generator; [`check_counts`] is the auditor of what came out.

pub mod code;
pub mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use object_store::ObjectStore;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir::checkpoint::{EntryKind, Manifest, Start, Store, history, read_manifest};
use weir::clock::Clock;
use weir::error::Error;
use weir::flow::OperatorCode;
use weir::job::{Control, Job, Outcome, Pair, RunOptions, Verdict};
use weir::metrics::JobMetrics;
use weir::model::{Epoch, NodeName};
use weir::plan::{Plan, parse};

/// How long anything may take before the test is given up.
const PATIENCE: Duration = Duration::from_secs(40);
/// How often an event is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// A pipeline in a folder of its own.
#[derive(Debug)]
pub struct Pipeline {
    dir: TempDir,
    /// Its file. May be changed between runs.
    pub text: String,
    /// The code of its operators. May be changed between runs.
    pub code: BTreeMap<NodeName, OperatorCode>,
    /// Time. May be changed between runs.
    pub clock: Clock,
    objects: Option<Arc<dyn ObjectStore>>,
}

impl Pipeline {
    /// A pipeline whose checkpoints go to where its file says.
    ///
    /// # Panics
    ///
    /// If there is no place for it.
    pub fn new<'a>(text: impl Into<String>, code: impl IntoIterator<Item = (&'a str, OperatorCode)>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(dir.path().join("in")).expect("a folder");
        let code = code.into_iter().map(|(name, code)| (NodeName::new(name), code)).collect();
        Self { dir, text: text.into(), code, clock: Clock::system(), objects: None }
    }

    /// The same with its checkpoints in `objects`.
    #[must_use]
    pub fn on(mut self, objects: impl ObjectStore) -> Self {
        self.objects = Some(Arc::new(objects));
        self
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Where its checkpoints go.
    ///
    /// # Panics
    ///
    /// If it cannot be opened.
    pub fn store(&self) -> Store {
        match &self.objects {
            Some(objects) => Store::new(Arc::clone(objects)),
            None => Store::open("file://./.weir", self.folder()).expect("a store"),
        }
    }

    /// Appends records to `in/NAME.jsonl` in one write: sequence numbers with seven keys and a millisecond of event time each.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn feed(&self, name: &str, sequence: std::ops::Range<u64>) {
        let text: String = sequence
            .map(|i| format!("{{\"sequence\":{i},\"key\":\"k{}\",\"time\":{}}}\n", (i * i + i / 3) % 7, i))
            .collect();
        let path = self.folder().join("in").join(format!("{name}.jsonl"));
        let mut file = fs::File::options().create(true).append(true).open(path).expect("the file opens");
        file.write_all(text.as_bytes()).expect("the records are written");
    }

    /// What the file sink with this folder has published.
    pub fn out(&self, folder: &str) -> Vec<Value> {
        crate::json_lines(&self.folder().join(folder))
    }

    /// How many records the file sink with this folder has published.
    pub fn out_len(&self, folder: &str) -> u64 {
        crate::lines(&self.folder().join(folder)).len() as u64
    }

    /// Starts it in the background, from its restore point.
    pub fn start(&self) -> Running {
        self.start_with(watch::Sender::new(false))
    }

    /// The same, with the stop signal of the caller.
    ///
    /// # Panics
    ///
    /// If its text or its plan is wrong.
    pub fn start_with(&self, stop: watch::Sender<bool>) -> Running {
        let job = self.job();
        let metrics = Arc::clone(&job.metrics);
        let stopped = stop.subscribe();
        let handle = tokio::spawn(async move { job.run(Start::Resume, stopped).await });
        Running { handle, stop, metrics }
    }

    /// Starts it in the background with a way to ask it something.
    ///
    /// # Panics
    ///
    /// If its text or its plan is wrong.
    pub fn start_asked(&self) -> (Running, Control) {
        let job = self.job();
        let metrics = Arc::clone(&job.metrics);
        let stop = watch::Sender::new(false);
        let stopped = stop.subscribe();
        let (control, requests) = Control::channel();
        let handle = tokio::spawn(async move {
            let drop_state = BTreeSet::new();
            job.run_with(RunOptions { start: Start::Resume, drop_state, stop: stopped, requests }).await
        });
        (Running { handle, stop, metrics }, control)
    }

    /// The job, as its text and its code are now.
    ///
    /// # Panics
    ///
    /// If its text or its plan is wrong.
    pub fn job(&self) -> Job {
        let spec = parse(&self.text, &self.folder().join("pipeline.toml")).unwrap_or_else(|e| panic!("{e}"));
        let descriptors = self.code.iter().map(|(name, code)| (name.clone(), code.descriptor.clone())).collect();
        let plan = Plan::build(&spec, &descriptors).unwrap_or_else(|e| panic!("{e}"));
        let metrics = Arc::new(JobMetrics::new(plan.nodes.iter().map(|node| node.name.clone())));
        let (code, text) = (self.code.clone(), self.text.clone());
        Job { spec, plan, code, text, store: self.store(), clock: self.clock.clone(), metrics }
    }

    /// Replays every epoch between two checkpoints that are kept, the oldest first, with its code as it is now.
    ///
    /// # Panics
    ///
    /// If one cannot be replayed.
    pub async fn replay_all(&self) -> Vec<Verdict> {
        let manifests = self.manifests().await;
        let job = self.job();
        let mut verdicts = Vec::new();
        for to in &manifests {
            let from = manifests.iter().find(|manifest| Some(manifest.epoch) == to.parent).cloned();
            if from.is_none() && to.parent.is_some() {
                continue;
            }
            let pair = Pair { from, to: to.clone() };
            verdicts.push(job.verify_replay(&pair).await.unwrap_or_else(|error| panic!("{}", error.report())));
        }
        verdicts
    }

    /// Runs it until it ends by itself.
    ///
    /// # Errors
    ///
    /// Those of the job.
    pub async fn run(&self) -> Result<Outcome, Error> {
        self.start().end().await
    }

    /// Its complete checkpoints, the oldest first.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub async fn manifests(&self) -> Vec<Manifest> {
        let store = self.store();
        let mut manifests = Vec::new();
        for entry in history(&store, "t").await.expect("the log can be read") {
            if let (EntryKind::Checkpoint, Some(epoch)) = (entry.kind, entry.epoch) {
                manifests.push(read_manifest(&store, "t", epoch).await.expect("the manifest can be read"));
            }
        }
        manifests
    }

    /// Everything that is in its folder.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.folder().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(path.display().to_string(), fs::read(&path).expect("a file"));
                }
            }
        }
        files
    }
}

/// A job in the background.
#[derive(Debug)]
pub struct Running {
    handle: JoinHandle<Result<Outcome, Error>>,
    stop: watch::Sender<bool>,
    /// Its numbers.
    pub metrics: Arc<JobMetrics>,
}

impl Running {
    /// Waits until something is so.
    ///
    /// # Panics
    ///
    /// If the job ends before, or nothing happens for a long time.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&JobMetrics) -> bool) {
        let looked = tokio::time::timeout(PATIENCE, async {
            while !is_so(&self.metrics) {
                if self.handle.is_finished() && !is_so(&self.metrics) {
                    match (&mut self.handle).await {
                        Ok(Ok(outcome)) => panic!("the job ended before {what}: {outcome:?}"),
                        Ok(Err(error)) => panic!("the job failed before {what}: {}", error.report()),
                        Err(error) => panic!("the job broke before {what}: {error}"),
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        assert!(looked.await.is_ok(), "waited in vain until {what}: {:?}", self.metrics);
    }

    /// Waits until `counter` is at least `n`.
    ///
    /// # Panics
    ///
    /// As [`until`](Self::until).
    pub async fn until_at_least(
        &mut self,
        n: u64,
        what: &str,
        counter: impl for<'a> Fn(&'a JobMetrics) -> &'a AtomicU64,
    ) {
        self.until(&format!("{n} {what}"), |metrics| counter(metrics).load(Relaxed) >= n).await;
    }

    /// How often the job was restarted.
    pub fn restarts(&self) -> u64 {
        self.metrics.restarts.load(Relaxed)
    }

    /// Asks the job to stop and waits for that.
    ///
    /// # Errors
    ///
    /// Those of the job.
    pub async fn stop(self) -> Result<Outcome, Error> {
        self.stop.send_replace(true);
        self.end().await
    }

    /// Says something on the stop signal without waiting.
    pub fn signal(&self, stop: bool) {
        self.stop.send_replace(stop);
    }

    /// Waits until the job ends by itself.
    ///
    /// # Errors
    ///
    /// Those of the job.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub async fn end(self) -> Result<Outcome, Error> {
        match tokio::time::timeout(PATIENCE, self.handle).await {
            Ok(joined) => joined.expect("the job does not panic"),
            Err(_) => panic!("the job does not end: {:?}", self.metrics),
        }
    }

    /// Ends the job wherever it is, as a process that dies would, but that what it had handed to other threads goes on.
    pub async fn abort(self) {
        self.handle.abort();
        let _ = self.handle.await;
    }
}

/// The epoch of a job that was stopped.
///
/// # Panics
///
/// If it ended in another way.
pub fn stopped(outcome: Result<Outcome, Error>) -> Epoch {
    match outcome {
        Ok(Outcome::Stopped { epoch }) => epoch,
        Ok(other) => panic!("stopped was asked for: {other:?}"),
        Err(error) => panic!("{}", error.report()),
    }
}

/// The epoch of a job that finished in this run.
///
/// # Panics
///
/// If it ended in another way.
pub fn finished(outcome: Result<Outcome, Error>) -> Epoch {
    match outcome {
        Ok(Outcome::Finished { epoch, before: false }) => epoch,
        Ok(other) => panic!("it had to finish: {other:?}"),
        Err(error) => panic!("{}", error.report()),
    }
}

/// The sequence numbers of records, in their order.
pub fn sequences(records: &[Value]) -> Vec<u64> {
    records.iter().map(|record| record["sequence"].as_u64().unwrap_or(u64::MAX)).collect()
}

/// Whether each sequence number below `records` is there exactly `copies` times.
///
/// # Panics
///
/// If not, with the first that differs.
pub fn check_once(output: &[Value], records: u64, copies: u64) {
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    for sequence in sequences(output) {
        *times.entry(sequence).or_default() += 1;
    }
    for sequence in 0..records {
        assert_eq!(times.remove(&sequence).unwrap_or(0), copies, "times that record {sequence} came");
    }
    assert!(times.is_empty(), "records that were never made: {times:?}");
}

/// Whether each record below `records` is there once, and the running counts of each key are those of an operator that lost and repeated nothing. With
/// `in_order`, they also come in order, and so do the sequence numbers of a key.
///
/// # Panics
///
/// If not, with the first that differs.
pub fn check_counts(output: &[Value], records: u64, in_order: bool) {
    check_once(output, records, 1);
    let mut by_key: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for record in output {
        let number = |name: &str| record[name].as_u64().unwrap_or_else(|| panic!("{name} in {record}"));
        let key = record["key"].as_str().unwrap_or_else(|| panic!("key in {record}"));
        by_key.entry(key).or_default().push((number("sequence"), number("count")));
    }
    for (key, seen) in by_key {
        if in_order {
            for (at, pair) in seen.iter().enumerate() {
                assert_eq!(pair.1, at as u64 + 1, "count of key {key:?} at its place {at}: {seen:?}");
            }
            assert!(seen.is_sorted(), "records of key {key:?} out of order: {seen:?}");
        }
        let counts: BTreeSet<u64> = seen.iter().map(|pair| pair.1).collect();
        assert!(counts.into_iter().eq(1..=seen.len() as u64), "counts of key {key:?}: {seen:?}");
    }
}
