//! Snapshots that are large: written in steps while the stream goes on, made durable behind its back, lost half way; and those that are so small that they
//! make no object.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use weir::metrics::JobMetrics;
use weir::model::{Epoch, NodeName};
use weir::plugin::OperatorError;
use weir_tests::job::code::{Call, count, heavy_count, hooked, hooked_async};
use weir_tests::job::store::{Fate, FaultyStore, Verb};
use weir_tests::job::{Pipeline, check_counts, stopped};

/// How long a step takes where a test wants something to happen meanwhile.
const STEP: Duration = Duration::from_millis(5);

/// A fed count in one chain or in two tasks.
fn fed(keyed: bool, checkpoint: &str) -> String {
    let exchange = if keyed { r#", exchange = "keyed""# } else { "" };
    format!(
        r#"
name = "t"
checkpoint = {{ interval = "10ms", tolerated_failures = 1000, retain = 1000, {checkpoint} }}
restart = {{ attempts = 1000, delay = "1ms", max_delay = "5ms" }}
[source.in]
connector = "file"
path = "in/*.jsonl"
format = "json"
follow = true
[operator.count]
plugin = "count"
inputs = [{{ from = "in", key = "/key"{exchange} }}]
[sink.out]
connector = "file"
inputs = ["count"]
path = "out"
format = "json"
"#
    )
}

fn records_in(metrics: &JobMetrics, node: &str) -> u64 {
    metrics.node(&NodeName::new(node)).records_in.load(Relaxed)
}

/// Calls in their order.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Call>>>);

impl Calls {
    fn push(&self, call: Call) {
        self.0.lock().unwrap().push(call);
    }

    fn list(&self) -> Vec<Call> {
        self.0.lock().unwrap().clone()
    }

    fn epochs(&self) -> Vec<Epoch> {
        let epoch = |call: Call| if let Call::Snapshot(epoch) = call { Some(epoch) } else { None };
        self.list().into_iter().filter_map(epoch).collect()
    }

    /// Whether a batch was processed between two steps of one snapshot.
    fn are_interleaved(&self) -> bool {
        let mut since: Option<(Epoch, bool)> = None;
        for call in self.list() {
            match (call, since) {
                (Call::Snapshot(epoch), Some((last, true))) if epoch == last => return true,
                (Call::Snapshot(epoch), _) => since = Some((epoch, false)),
                (Call::Process(_), Some((last, _))) => since = Some((last, true)),
                _ => {}
            }
        }
        false
    }
}

/// I3, I8: what batches between two steps change does not show in the snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_a_snapshot_come_between_batches_and_write_the_state_of_the_cut() {
    for keyed in [false, true] {
        let calls = Calls::default();
        let log = calls.clone();
        let code = hooked_async(heavy_count(700_000), move |_, call| {
            // A step that takes a while: in the meantime records come.
            let pause = if matches!(call, Call::Snapshot(_)) { STEP } else { Duration::ZERO };
            log.push(call);
            tokio::time::sleep(pause).map(Ok).boxed()
        });
        let pipeline = Pipeline::new(fed(keyed, ""), [("count", code)]);
        let mut fed = 0;
        for _ in 0..4 {
            calls.0.lock().unwrap().clear();
            let mut job = pipeline.start();
            while !calls.are_interleaved() {
                let before = records_in(&job.metrics, "in");
                pipeline.feed("a", fed..fed + 20);
                fed += 20;
                job.until("records", |metrics| records_in(metrics, "in") > before).await;
                assert!(fed < 100_000, "never a batch between two steps");
            }
            // Wherever it is.
            job.abort().await;
        }
        let mut job = pipeline.start();
        pipeline.feed("a", fed..fed + 20);
        fed += 20;
        job.until("all output", |_| pipeline.out_len("out") == fed).await;
        assert_eq!(job.restarts(), 0);
        stopped(job.stop().await);
        check_counts(&pipeline.out("out"), fed, true);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_that_comes_before_the_end_of_a_snapshot_drives_it_to_its_end_first() {
    for keyed in [false, true] {
        let calls = Calls::default();
        let (open, gate) = watch::channel(false);
        let log = calls.clone();
        let code = hooked_async(heavy_count(1_200_000), move |_, call| {
            log.push(call);
            let (epochs, mut gate) = (log.epochs(), gate.clone());
            // The second step of the first snapshot stands still until its attempt was given up and the next barrier is on its way.
            let stands = epochs.len() == 2;
            async move {
                if stands {
                    let _ = gate.wait_for(|open| *open).await;
                }
                Ok(())
            }
            .boxed()
        });
        let pipeline = Pipeline::new(fed(keyed, r#"timeout = "50ms""#), [("count", code)]);
        let mut job = pipeline.start();
        pipeline.feed("a", 0..100);
        job.until_at_least(2, "attempts that were given up", |metrics| &metrics.checkpoints_failed).await;
        let epochs = calls.epochs();
        assert_eq!(epochs, [epochs[0]; 2]);
        open.send_replace(true);
        job.until("the output", |_| pipeline.out_len("out") == 100).await;
        let epochs = calls.epochs();
        assert!(epochs.is_sorted(), "{epochs:?}");
        // Every snapshot had all its steps: there are seven keys, and a step has room for one.
        let mut steps: BTreeMap<Epoch, usize> = BTreeMap::new();
        epochs.iter().for_each(|epoch| *steps.entry(*epoch).or_default() += 1);
        assert_eq!(steps[&epochs[0]], 7, "{steps:?}");
        stopped(job.stop().await);
        let mut job = pipeline.start();
        pipeline.feed("a", 100..200);
        job.until("the output after a restart", |_| pipeline.out_len("out") == 200).await;
        stopped(job.stop().await);
        check_counts(&pipeline.out("out"), 200, true);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_memory_for_uploads_is_used_up_steps_wait_and_the_stream_goes_on() {
    for keyed in [false, true] {
        let store = FaultyStore::new();
        store
            .decide(|verb, path| if verb == Verb::Put && path.contains("/packs/") { Fate::Waits } else { Fate::Works });
        let calls = Calls::default();
        let log = calls.clone();
        let code = hooked(heavy_count(3 << 20), move |_, call| {
            log.push(call);
            Ok(())
        });
        let text = fed(keyed, r#"upload_memory = "8MiB", uploads = 2"#);
        let pipeline = Pipeline::new(text, [("count", code)]).on(store.clone());
        let mut job = pipeline.start();
        pipeline.feed("a", 0..100);
        job.until("the first steps", |_| calls.epochs().len() >= 3).await;
        // Nothing can be uploaded, and still every record comes through.
        for part in 1..=5 {
            pipeline.feed("a", part * 100..(part + 1) * 100);
            job.until("records", |metrics| records_in(metrics, "out") == (part + 1) * 100).await;
        }
        assert_eq!(calls.epochs().len(), 3, "three steps of 3 MiB take up 8 MiB");
        store.release();
        job.until("the output", |_| pipeline.out_len("out") == 600).await;
        assert!(calls.epochs().len() >= 7);
        stopped(job.stop().await);
        let mut job = pipeline.start();
        pipeline.feed("a", 600..700);
        job.until("the output after a restart", |_| pipeline.out_len("out") == 700).await;
        stopped(job.stop().await);
        check_counts(&pipeline.out("out"), 700, true);
    }
}

/// I8: one of several packs of an epoch is lost, then the next snapshot has everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_one_of_several_uploads_is_lost_the_attempt_fails_and_nothing_is_missing_later() {
    let store = FaultyStore::new();
    // With so little memory packs leave half full.
    let text = fed(true, r#"upload_memory = "8MiB", inline = "0B""#);
    let pipeline = Pipeline::new(text, [("count", heavy_count(2 << 20))]).on(store.clone());
    let mut job = pipeline.start();
    pipeline.feed("a", 0..100);
    job.until("the first output", |_| pipeline.out_len("out") == 100).await;
    let mut records = 100;
    for lost in 0..4 {
        let before = job.metrics.checkpoints_failed.load(Relaxed);
        let (put, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (number, has_failed) = (Arc::clone(&put), Arc::clone(&failed));
        let mut chosen: Option<String> = None;
        store.decide(move |verb, path| {
            if verb != Verb::Put || !path.contains("/packs/") {
                return Fate::Works;
            }
            // Every try of the pack that was chosen.
            if chosen.is_none() && number.fetch_add(1, Relaxed) == lost % 3 {
                chosen = Some(path.to_owned());
            }
            if chosen.as_deref() == Some(path) {
                has_failed.store(true, Relaxed);
                return Fate::FailsBefore;
            }
            Fate::Works
        });
        while !failed.load(Relaxed) {
            pipeline.feed("a", records..records + 50);
            records += 50;
            // Not by the metrics, which begin anew with each start.
            job.until("output, or a failure", |_| failed.load(Relaxed) || pipeline.out_len("out") == records).await;
        }
        job.until_at_least(before + 1, "failed attempts", |metrics| &metrics.checkpoints_failed).await;
        store.heal();
        pipeline.feed("a", records..records + 10);
        records += 10;
        job.until("all output", |_| pipeline.out_len("out") == records).await;
        job.abort().await;
        job = pipeline.start();
    }
    pipeline.feed("a", records..records + 100);
    records += 100;
    job.until("the output after restarts", |_| pipeline.out_len("out") == records).await;
    stopped(job.stop().await);
    check_counts(&pipeline.out("out"), records, true);
}

/// I8: an operator that gives a snapshot up half way, or traps there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_given_up_half_way_or_traps_there_is_followed_by_a_full_one() {
    let retries: fn(String) -> OperatorError = OperatorError::Retry;
    for (error, restarts) in [(retries, 0), (OperatorError::Fatal as fn(String) -> OperatorError, 3)] {
        let steps = Arc::new(AtomicU64::new(0));
        let code = hooked(heavy_count(1_200_000), move |_, call| {
            let is_chosen = matches!(call, Call::Snapshot(_)) && [3, 12, 25].contains(&steps.fetch_add(1, Relaxed));
            if is_chosen { Err(error("not now".into())) } else { Ok(()) }
        });
        let pipeline = Pipeline::new(fed(true, ""), [("count", code)]);
        let mut job = pipeline.start();
        let mut records = 0;
        while records < 600 {
            pipeline.feed("a", records..records + 100);
            records += 100;
            job.until("the output", |_| pipeline.out_len("out") == records).await;
        }
        assert!(job.restarts() >= restarts, "{} restarts", job.restarts());
        assert!(restarts > 0 || job.metrics.checkpoints_failed.load(Relaxed) >= 3);
        stopped(job.stop().await);
        check_counts(&pipeline.out("out"), records, true);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_of_a_small_job_takes_two_objects_its_manifest_and_its_marker() {
    let store = FaultyStore::new();
    let pipeline = Pipeline::new(fed(true, ""), [("count", count())]).on(store.clone());
    let mut job = pipeline.start();
    pipeline.feed("a", 0..10);
    job.until("the first output", |_| pipeline.out_len("out") == 10).await;
    let puts: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let seen = Arc::clone(&puts);
    store.decide(move |verb, path| {
        if verb == Verb::Put {
            let kind = path.rsplit('/').nth(1).unwrap_or_default().to_owned();
            *seen.lock().unwrap().entry(kind).or_default() += 1;
        }
        Fate::Works
    });
    let before = job.metrics.checkpoints.load(Relaxed);
    for part in 1..=12 {
        pipeline.feed("a", part * 10..(part + 1) * 10);
        job.until("the output", |_| pipeline.out_len("out") == (part + 1) * 10).await;
    }
    stopped(job.stop().await);
    let checkpoints = 12;
    let puts = puts.lock().unwrap().clone();
    // The marker of the epoch before may have come after the count began.
    assert!(puts["log"] >= checkpoints && puts["committed"] - puts["log"] <= 1, "{puts:?} after {before}");
    assert!(puts.keys().all(|kind| ["log", "committed", "boundary"].contains(&kind.as_str())), "{puts:?}");
    let mut job = pipeline.start();
    pipeline.feed("a", 130..200);
    job.until("the output after a restart", |_| pipeline.out_len("out") == 200).await;
    stopped(job.stop().await);
    check_counts(&pipeline.out("out"), 200, true);
}
