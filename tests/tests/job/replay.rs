//! I12: an epoch that is done again comes to what is recorded, whatever timing decided when it was done first; and what does not is found by
//! node.
//!
//! Operators here remember the order of all they see, so that one element that came in another order shows. How fast
//! anything goes differs from run to run, and a replay must not care.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use weir::error::ErrorKind;
use weir::flow::{OperatorCall, OperatorCode, Seen, Tap};
use weir::job::{Pair, Verdict, replay_pair};
use weir::model::{Batch, NodeName, TaskId, Timestamp, key_hash};
use weir::plugin::{OperatorError, Output};
use weir_tests::job::code::{Call, Script, count, hooked, pass, script};
use weir_tests::job::store::{Fate, FaultyStore, Verb};
use weir_tests::job::{Pipeline, stopped};

type Called = Result<(), OperatorError>;

/// Two followed sources with several files, a generator cut by its rate, exchanges of every kind, several inputs a port, dead letters.
const TEXT: &str = r#"
name = "t"
checkpoint = { interval = "10ms", retain = 1000, tolerated_failures = 1000 }
restart = { attempts = 1000, delay = "1ms", max_delay = "2ms" }
batch = { records = 16, delay = "1ms" }
[source.left]
connector = "file"
path = "in/l*.jsonl"
format = "json"
follow = true
idle_after = "3ms"
event_time = "/time"
event_time_unit = "ms"
out_of_orderness = "5ms"
[source.right]
connector = "generator"
format = "json"
parallelism = 2
rate = 3000
[operator.mix]
plugin = "mix"
inputs = [{ from = "left", to = "left", exchange = "rebalance" }, { from = "right", to = "right", exchange = "broadcast" }]
parallelism = 3
on_reject = "dead-letter"
[operator.count]
plugin = "count"
inputs = [{ from = "mix", exchange = "keyed" }]
parallelism = 2
[operator.last]
plugin = "last"
inputs = ["count"]
parallelism = 2
[sink.out]
connector = "file"
inputs = ["last"]
parallelism = 2
path = "out"
format = "json"
[sink.bad]
connector = "file"
inputs = [{ from = "mix", port = "rejected" }]
path = "bad"
format = "json"
"#;

/// Mixes all that it sees and when into one number, says it now and then, and asks to be woken.
struct Mix {
    seen: u64,
    resumes: u64,
    /// Added to what it sees: a node that does not do the same again.
    fault: Arc<AtomicU64>,
}

impl Mix {
    fn see(&mut self, what: u64) {
        self.seen = (self.seen.rotate_left(7) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15) + self.fault.load(Relaxed);
    }

    fn say(&self, out: &mut Output) {
        let mut batch = Batch::default();
        let value = format!("{{\"sequence\":{},\"key\":\"said\"}}", self.seen);
        batch.push(1, Some(b"said"), Some(value.as_bytes()));
        out.emitted.push((0, batch));
    }
}

#[async_trait]
impl Script for Mix {
    async fn process(&mut self, now: Timestamp, port: u32, batch: &Batch, out: &mut Output) -> Called {
        self.see(u64::from(port) + 1);
        self.see(now as u64);
        let mut kept = Batch::default();
        for (row, &time) in batch.timestamps.iter().enumerate() {
            let value = batch.values.get(row).unwrap_or_default();
            self.see(key_hash(value));
            if key_hash(value).is_multiple_of(13) {
                out.rejected.0.push_row(batch, row);
                out.rejected.1.push("of all records one in thirteen".into());
                out.rejected.0.hashes.clear();
            } else {
                kept.push(time, Some(&value[value.len().saturating_sub(3)..]), Some(value));
            }
        }
        out.emitted.push((0, kept));
        self.say(out);
        if self.seen.is_multiple_of(3) {
            out.wake_at = Some(now + 700);
        }
        self.resumes = self.seen % 4;
        out.more = self.resumes > 0;
        Ok(())
    }

    async fn advance(&mut self, watermark: Timestamp, out: &mut Output) -> Called {
        self.see(watermark as u64);
        self.say(out);
        Ok(())
    }

    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Called {
        self.see(now as u64);
        self.say(out);
        Ok(())
    }

    async fn finish(&mut self, port: u32, _: &mut Output) -> Called {
        self.see(u64::from(port));
        Ok(())
    }

    async fn resume(&mut self, out: &mut Output) -> Called {
        self.resumes -= 1;
        self.say(out);
        out.more = self.resumes > 0;
        Ok(())
    }

    fn save(&mut self) -> Vec<u8> {
        self.seen.to_le_bytes().to_vec()
    }

    fn load(&mut self, state: &[u8]) {
        self.seen = u64::from_le_bytes(state.try_into().expect("eight bytes"));
    }
}

fn mix(fault: &Arc<AtomicU64>) -> OperatorCode {
    let fault = Arc::clone(fault);
    script(&["left", "right"], move |_| Mix { seen: 0, resumes: 0, fault: Arc::clone(&fault) })
}

fn code(fault: &Arc<AtomicU64>) -> Vec<(&'static str, OperatorCode)> {
    vec![("mix", mix(fault)), ("count", count()), ("last", pass())]
}

fn described(verdict: &Verdict) -> String {
    serde_json::to_string_pretty(verdict).expect("a verdict is JSON")
}

/// Feeds both files of the followed source in random pieces with random pauses.
async fn feed(pipeline: &Pipeline, random: &mut Xoshiro256PlusPlus, from: u64, records: u64) {
    let mut next = from;
    while next < from + records {
        let piece = 1 + u64::from(random.next_u32() % 60);
        let file = if random.next_u32().is_multiple_of(3) { "l2" } else { "l1" };
        pipeline.feed(file, next..next + piece);
        next += piece;
        tokio::time::sleep(Duration::from_micros(u64::from(random.next_u32() % 4000))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_epoch_of_a_busy_job_comes_out_again() {
    for seed in 0..3 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let pipeline = Pipeline::new(TEXT, code(&Arc::default()));
        pipeline.feed("l1", 0..5);
        let mut job = pipeline.start();
        feed(&pipeline, &mut random, 5, 800).await;
        job.until_at_least(4, "checkpoints", |metrics| &metrics.checkpoints).await;
        stopped(job.stop().await);
        let before = pipeline.files();
        let verdicts = pipeline.replay_all().await;
        assert!(verdicts.len() >= 5, "seed {seed}: {} epochs", verdicts.len());
        for verdict in &verdicts {
            assert!(verdict.same && !verdict.pipeline_changed, "seed {seed}: {}", described(verdict));
        }
        let total = |of: fn(&Verdict) -> u64| verdicts.iter().map(of).sum::<u64>();
        assert!(total(|v| v.records) > 800 && total(|v| v.chunks) > 100 && total(|v| v.parts) > 5, "seed {seed}");
        assert!(before == pipeline.files(), "a replay writes nothing");
    }
}

/// "An attempt that fails while the job runs on is subsumed": its schedule goes to the next manifest. And a restart begins a schedule anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_with_failed_attempts_and_restarts_come_out_again() {
    for seed in 10..13 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let store = FaultyStore::new();
        let (fails, declines) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let hook = |fails: &Arc<AtomicBool>, declines: &Arc<AtomicBool>| {
            let (fails, declines) = (Arc::clone(fails), Arc::clone(declines));
            move |_, call| match call {
                Call::Process(_) if fails.swap(false, Relaxed) => {
                    Err(OperatorError::Fatal("as the test wants it".into()))
                }
                Call::Snapshot(_) if declines.swap(false, Relaxed) => Err(OperatorError::Retry("not now".into())),
                _ => Ok(()),
            }
        };
        let mut pipeline = Pipeline::new(TEXT, code(&Arc::default())).on(store.clone());
        let plain = pipeline.code.clone();
        for name in ["mix", "count"] {
            let name = NodeName::new(name);
            let hooked = hooked(pipeline.code[&name].clone(), hook(&fails, &declines));
            pipeline.code.insert(name, hooked);
        }
        pipeline.feed("l1", 0..5);
        let mut job = pipeline.start();
        let mut fed = 5;
        for round in 0..12 {
            feed(&pipeline, &mut random, fed, 60).await;
            fed += 60;
            match round % 4 {
                // Packs that are lost: the next snapshot is a full one.
                0 => {
                    let mut left = 6;
                    store.decide(move |verb, path| {
                        if left > 0 && verb == Verb::Put && path.contains("/packs/") {
                            left -= 1;
                            return Fate::FailsBefore;
                        }
                        Fate::Works
                    });
                }
                1 => declines.store(true, Relaxed),
                2 => {
                    fails.store(true, Relaxed);
                    let restarts = job.restarts();
                    feed(&pipeline, &mut random, fed, 20).await;
                    fed += 20;
                    job.until_at_least(restarts + 1, "restarts", |metrics| &metrics.restarts).await;
                }
                _ => {}
            }
            let complete = job.metrics.checkpoints.load(Relaxed);
            job.until_at_least(complete + 2, "checkpoints", |metrics| &metrics.checkpoints).await;
        }
        store.heal();
        assert!(job.metrics.checkpoints_failed.load(Relaxed) > 0 && job.restarts() > 0);
        stopped(job.stop().await);
        pipeline.code = plain;
        let subsumed =
            pipeline.manifests().await.iter().filter(|m| m.parent.is_some_and(|p| p.0 + 1 < m.epoch.0)).count();
        assert!(subsumed > 0, "seed {seed}: no manifest carries a failed attempt");
        for verdict in pipeline.replay_all().await {
            assert!(verdict.same, "seed {seed}: {}", described(&verdict));
        }
    }
}

/// The job runs on while its last epochs are replayed, from other threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_works_beside_a_running_job() {
    let pipeline = Pipeline::new(TEXT, code(&Arc::default()));
    pipeline.feed("l1", 0..50);
    let mut job = pipeline.start();
    let replaying = pipeline.job();
    for round in 0..5 {
        pipeline.feed("l1", 50 + round * 50..100 + round * 50);
        job.until_at_least(2 * round + 2, "checkpoints", |metrics| &metrics.checkpoints).await;
        let pair = pipeline.manifests().await.iter().rev().find_map(|to| Some((to.parent?, to.epoch)));
        let pair = replay_pair(&pipeline.store(), "t", pair.map(|(parent, _)| parent)).await.unwrap();
        let verdict = replaying.verify_replay(&pair).await.unwrap();
        assert!(verdict.same, "{}", described(&verdict));
    }
    assert_eq!(job.restarts(), 0, "nothing was claimed");
    stopped(job.stop().await);
}

async fn last_pair(pipeline: &Pipeline) -> Pair {
    let parent = pipeline.manifests().await.last().and_then(|to| to.parent);
    replay_pair(&pipeline.store(), "t", parent).await.unwrap()
}

/// Runs twice, each time until some records have come, so that there are two checkpoints: after 100 records of the source `left` and after 300.
async fn two_epochs(pipeline: &mut Pipeline) {
    pipeline.text = pipeline.text.replace("interval = \"10ms\"", "interval = \"1h\"");
    for (from, to) in [(0, 100), (100, 300)] {
        pipeline.feed("l1", from..to);
        let mut job = pipeline.start();
        let left = job.metrics.node(&NodeName::new("left"));
        job.until("all records", |_| left.records_in.load(Relaxed) == to - from).await;
        stopped(job.stop().await);
    }
    assert_eq!(pipeline.manifests().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_do_the_same_again_is_named_and_what_comes_after_it_is_a_consequence() {
    let fault = Arc::default();
    let mut pipeline = Pipeline::new(TEXT, code(&fault));
    two_epochs(&mut pipeline).await;
    fault.store(1, Relaxed);
    for verdict in pipeline.replay_all().await.iter().filter(|verdict| verdict.records > 50) {
        let first = verdict.culprit().unwrap_or_else(|| panic!("{}", described(verdict)));
        assert_eq!((first.node.as_str(), first.is_consequence), ("mix", false), "{}", described(verdict));
        assert!(verdict.differences[1..].iter().all(|d| d.is_consequence), "{}", described(verdict));
        assert!(verdict.differences.iter().all(|d| d.node != "left" && d.node != "right"));
    }
    // One whose output is what it was and whose state is not: the key group is named.
    fault.store(0, Relaxed);
    let forgets = hooked(count(), |_, _| Ok(()));
    let skewed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&skewed);
    let inner = forgets.open.clone();
    let open = move |task| {
        let (opening, flag) = (inner(task), Arc::clone(&flag));
        let made: futures::future::BoxFuture<'static, _> = Box::pin(async move {
            let operator = opening.await?;
            Ok(Box::new(Skewed { operator, flag }) as Box<dyn weir::plugin::Operator>)
        });
        made
    };
    pipeline.code.insert(NodeName::new("count"), OperatorCode { open: Arc::new(open), ..count() });
    let verdict = pipeline.job().verify_replay(&last_pair(&pipeline).await).await.unwrap();
    assert!(skewed.load(Relaxed) && !verdict.same, "{}", described(&verdict));
    let first = verdict.culprit().unwrap();
    assert_eq!(first.node, "count", "{}", described(&verdict));
    assert!(first.details[0].key_group.is_some(), "{}", described(&verdict));
    assert_eq!(verdict.differences.len(), 1, "{}", described(&verdict));
}

/// Changes one byte of the first chunk that it writes.
struct Skewed {
    operator: Box<dyn weir::plugin::Operator>,
    flag: Arc<AtomicBool>,
}

struct Skewing<'a> {
    writer: &'a mut dyn weir::plugin::SnapshotWriter,
    flag: &'a AtomicBool,
}

impl weir::plugin::SnapshotWriter for Skewing<'_> {
    fn write(&mut self, scope: weir::model::Scope, kind: weir::model::SegmentKind, data: &[u8]) -> bool {
        let mut data = data.to_vec();
        if let (Some(last), false) = (data.last_mut(), self.flag.swap(true, Relaxed)) {
            *last ^= 1;
        }
        self.writer.write(scope, kind, &data)
    }
}

#[async_trait]
impl weir::plugin::Operator for Skewed {
    async fn process(&mut self, now: Timestamp, port: u32, batch: &Batch, out: &mut Output) -> Called {
        self.operator.process(now, port, batch, out).await
    }

    async fn advance(&mut self, now: Timestamp, watermark: Timestamp, out: &mut Output) -> Called {
        self.operator.advance(now, watermark, out).await
    }

    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Called {
        self.operator.wake(now, out).await
    }

    async fn finish(&mut self, now: Timestamp, port: u32, out: &mut Output) -> Called {
        self.operator.finish(now, port, out).await
    }

    async fn resume(&mut self, now: Timestamp, out: &mut Output) -> Called {
        self.operator.resume(now, out).await
    }

    async fn snapshot(
        &mut self,
        epoch: weir::model::Epoch,
        mode: weir::model::SnapshotMode,
        writer: &mut dyn weir::plugin::SnapshotWriter,
    ) -> Result<bool, OperatorError> {
        self.operator.snapshot(epoch, mode, &mut Skewing { writer, flag: &self.flag }).await
    }

    async fn restore(&mut self, version: u32, chunks: Vec<weir::model::Chunk>) -> Called {
        self.operator.restore(version, chunks).await
    }
}

/// More or fewer batches than then: no task waits for ever, and the first node that differs is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_emits_more_or_less_is_found_although_the_schedules_after_it_do_not_fit() {
    struct Copies(u64);
    #[async_trait]
    impl Script for Copies {
        async fn process(&mut self, _: Timestamp, _: u32, batch: &Batch, out: &mut Output) -> Called {
            for _ in 0..self.0 {
                out.emitted.push((0, Batch { hashes: Vec::new(), ..batch.clone() }));
            }
            Ok(())
        }
    }
    let text = TEXT
        .replace("inputs = [\"count\"]\nparallelism = 2", "inputs = [{ from = \"count\", exchange = \"rebalance\" }]");
    let copies = |n: u64| script(&["in"], move |_| Copies(n));
    let code = [("mix", mix(&Arc::default())), ("count", count()), ("last", copies(1))];
    let mut pipeline = Pipeline::new(text.replace("plugin = \"count\"", "plugin = \"copies\""), code);
    pipeline.code.insert(NodeName::new("count"), copies(2));
    two_epochs(&mut pipeline).await;
    let pair = last_pair(&pipeline).await;
    assert!(pipeline.job().verify_replay(&pair).await.unwrap().same);
    for n in [0, 1, 3, 40] {
        pipeline.code.insert(NodeName::new("count"), copies(n));
        let verdict = pipeline.job().verify_replay(&pair).await.unwrap();
        assert_eq!(verdict.culprit().map(|d| d.node.as_str()), Some("count"), "{n}: {}", described(&verdict));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_whose_records_were_changed_is_found() {
    let mut pipeline = Pipeline::new(TEXT, code(&Arc::default()));
    two_epochs(&mut pipeline).await;
    let pair = last_pair(&pipeline).await;
    let job = pipeline.job();
    let path = pipeline.folder().join("in/l1.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    // The same length and the same event time, in a record far from everything that a position covers.
    let changed = whole.replacen("{\"sequence\":150,", "{\"sequence\":151,", 1);
    assert_ne!(changed, whole);
    std::fs::write(&path, changed).unwrap();
    let verdict = job.verify_replay(&pair).await.unwrap();
    let first = verdict.culprit().unwrap_or_else(|| panic!("{}", described(&verdict)));
    assert_eq!(first.node, "left", "{}", described(&verdict));
    assert!(first.details[0].what.contains("data was changed"), "{}", described(&verdict));
    // Another length: its bounds do not fit.
    std::fs::write(&path, whole.replacen("{\"sequence\":150,", "{\"sequence\":1500,", 1)).unwrap();
    match job.verify_replay(&pair).await {
        Ok(verdict) => assert_eq!(verdict.culprit().map(|d| d.node.as_str()), Some("left"), "{}", described(&verdict)),
        Err(error) => panic!("{}", error.report()),
    }
    // What the first checkpoint has read was changed: it cannot begin there.
    std::fs::write(&path, whole.replacen("{\"sequence\":1,", "{\"sequence\":2,", 1)).unwrap();
    let error = job.verify_replay(&pair).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State);
    assert!(error.chain().contains("left[0]") && error.chain().contains("l1.jsonl"), "{}", error.report());
    std::fs::remove_file(&path).unwrap();
    let error = job.verify_replay(&pair).await.unwrap_err();
    assert!(error.chain().contains("gone"), "{}", error.report());
    // More at its end is what a file that is followed is there for.
    std::fs::write(&path, whole + "{\"sequence\":1000,\"key\":\"k\",\"time\":1}\n").unwrap();
    assert!(job.verify_replay(&pair).await.unwrap().same);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_replayed_is_refused_with_the_reason() {
    let mut pipeline = Pipeline::new(TEXT, code(&Arc::default()));
    two_epochs(&mut pipeline).await;
    let pair = last_pair(&pipeline).await;
    let refused = |error: weir::error::Error, parts: &[&str]| {
        assert_eq!(error.kind(), ErrorKind::State, "{}", error.report());
        for part in parts {
            assert!(error.report().contains(part), "{part:?} in {}", error.report());
        }
    };
    let job = pipeline.job();
    let store = pipeline.store();
    let newest = pair.to.epoch;
    refused(replay_pair(&store, "t", Some(newest)).await.unwrap_err(), &["goes on from checkpoint", "can begin at"]);
    let unknown = replay_pair(&store, "t", Some(weir::model::Epoch(999))).await.unwrap_err();
    assert!(
        unknown.kind() == ErrorKind::Usage && unknown.chain().contains("no checkpoint 999"),
        "{}",
        unknown.report()
    );

    let changed = |change: fn(&mut weir::checkpoint::Manifest)| {
        let mut pair = pair.clone();
        change(&mut pair.to);
        pair
    };
    let no_schedule = changed(|to| to.nodes[2].subtasks[1].schedule.clear());
    refused(job.verify_replay(&no_schedule).await.unwrap_err(), &["[1]: its schedule was not recorded"]);
    let other_digest = changed(|to| {
        for node in to.nodes.iter_mut().filter(|node| node.name.as_str() == "count") {
            node.plugin.as_mut().expect("it has a plugin").digest = [7; 32];
        }
    });
    refused(
        job.verify_replay(&other_digest).await.unwrap_err(),
        &["node \"count\" ran plugin native", "0707", "blake3:DIGEST"],
    );
    let rescaled = {
        let mut pair = pair.clone();
        for node in pair.from.iter_mut().flat_map(|from| &mut from.nodes).filter(|node| node.name.as_str() == "mix") {
            node.parallelism = 2;
        }
        pair
    };
    refused(job.verify_replay(&rescaled).await.unwrap_err(), &["node \"mix\" went from parallelism 2 to 3"]);
    pipeline.text = TEXT.replace(
        "[operator.last]\nplugin = \"last\"\ninputs = [\"count\"]\nparallelism = 2",
        "[operator.last]\nplugin = \"last\"\ninputs = [{ from = \"count\", exchange = \"keyed\" }]\nparallelism = 4",
    );
    refused(
        pipeline.job().verify_replay(&pair).await.unwrap_err(),
        &["node \"last\" had parallelism 2", "pipeline has 4"],
    );
    // A change that does not matter does not hinder.
    pipeline.text = TEXT.replace("retain = 1000", "retain = 900");
    let verdict = pipeline.job().verify_replay(&pair).await.unwrap();
    assert!(verdict.same && verdict.pipeline_changed, "{}", described(&verdict));
}

/// `weir replay` stands on this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_replay_shows_all_that_a_node_received_and_emitted_in_its_order() {
    #[derive(Debug, Default)]
    struct Watch(Mutex<Vec<(u32, String)>>);
    impl Tap for Watch {
        fn note(&self, task: &TaskId, seen: Seen<'_>) {
            let line = match seen {
                Seen::Called(OperatorCall::Process(_, batch), _, out) => {
                    let emitted: usize = out.emitted.iter().map(|(_, batch)| batch.len()).sum();
                    format!("process {} {emitted}", batch.len())
                }
                _ => return,
            };
            if task.node.as_str() == "count" {
                self.0.lock().unwrap().push((task.subtask, line));
            }
        }
    }
    let calls: Arc<Mutex<Vec<(u32, String)>>> = Arc::default();
    let shared = Arc::clone(&calls);
    let mut pipeline = Pipeline::new(TEXT, code(&Arc::default()));
    let plain = pipeline.code.clone();
    let watched = hooked(count(), move |subtask, call| {
        match call {
            Call::Process(sequences) => {
                shared.lock().unwrap().push((subtask, format!("process {0} {0}", sequences.len())))
            }
            Call::Snapshot(epoch) => shared.lock().unwrap().push((subtask, format!("snapshot {epoch}"))),
            _ => {}
        }
        Ok(())
    });
    pipeline.code.insert(NodeName::new("count"), watched);
    two_epochs(&mut pipeline).await;
    pipeline.code = plain;
    let pair = last_pair(&pipeline).await;
    let watch = Arc::new(Watch::default());
    let left = pipeline.job().watch_replay(&pair, Arc::clone(&watch) as Arc<dyn Tap>).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    let (from, to) = (pair.from.map(|from| from.epoch).unwrap_or_default(), pair.to.epoch);
    let calls = calls.lock().unwrap();
    let mut total = 0;
    for subtask in 0..2 {
        let of = |calls: &[(u32, String)]| {
            calls.iter().filter(|(s, _)| *s == subtask).map(|(_, call)| call.clone()).collect::<Vec<_>>()
        };
        let then = of(&calls);
        let place = |epoch| then.iter().position(|call| *call == format!("snapshot {epoch}"));
        let begin = place(from).map_or(0, |at| at + 1);
        let end = place(to).expect("it took the last cut");
        let between: Vec<_> = then[begin..end].iter().filter(|call| call.starts_with("process")).cloned().collect();
        total += between.len();
        assert_eq!(of(&watch.0.lock().unwrap()), between, "subtask {subtask}");
    }
    assert!(total > 0);
}
