//! What the store does to a job: attempts that fail while the process lives, answers that are lost, a store that stays away.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use weir::error::ErrorKind;
use weir::job::Outcome;
use weir::plugin::OperatorError;
use weir_tests::job::code::{Call, count, hooked, pass};
use weir_tests::job::store::{Fate, FaultyStore, LOST, Verb};
use weir_tests::job::{Pipeline, check_counts, finished, stopped};

/// A fed count. At parallelism 1 it is one chain, at 2 it is not.
fn fed(parallelism: u32, tolerated: u32, attempts: u32) -> String {
    format!(
        r#"
name = "t"
checkpoint = {{ interval = "10ms", tolerated_failures = {tolerated}, retain = 1000, inline = "0B" }}
restart = {{ attempts = {attempts}, delay = "1ms", max_delay = "5ms" }}
[source.in]
connector = "file"
path = "in/*.jsonl"
format = "json"
follow = true
[operator.count]
plugin = "count"
inputs = [{{ from = "in", key = "/key" }}]
parallelism = {parallelism}
[sink.out]
connector = "file"
inputs = ["count"]
parallelism = {parallelism}
path = "out"
format = "json"
"#
    )
}

fn packs_fail(verb: Verb, path: &str) -> Fate {
    if verb == Verb::Put && path.contains("/packs/") { Fate::FailsBefore } else { Fate::Works }
}

/// Row "attempt n fails, the process lives"; I5, I8, I13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_failed_attempts_staged_and_changed_is_in_the_next_manifest_once_and_in_order() {
    for parallelism in [1, 2] {
        let store = FaultyStore::new();
        let pipeline = Pipeline::new(fed(parallelism, 1000, 0), [("count", count())]).on(store.clone());
        let mut job = pipeline.start();
        pipeline.feed("a", 0..100);
        job.until("the first output", |_| pipeline.out_len("out") == 100).await;
        let before = pipeline.manifests().await.last().map(|manifest| manifest.epoch).unwrap();

        store.decide(packs_fail);
        // Each part of the input is staged in an attempt that fails.
        for failures in 1..=3u64 {
            let had = job.metrics.checkpoints_failed.load(Relaxed);
            pipeline.feed("a", failures * 100..(failures + 1) * 100);
            job.until_at_least((failures + 1) * 100, "records counted", |metrics| {
                &metrics.nodes().find(|(name, _)| name.as_str() == "out").unwrap().1.records_in
            })
            .await;
            job.until_at_least(had + 2, "failed attempts", |metrics| &metrics.checkpoints_failed).await;
        }
        assert_eq!(pipeline.out_len("out"), 100, "nothing of an attempt that failed is visible");
        store.heal();
        job.until("all output", |_| pipeline.out_len("out") == 400).await;
        assert_eq!(job.restarts(), 0);

        let manifests = pipeline.manifests().await;
        let next = manifests.iter().find(|manifest| manifest.epoch > before).unwrap();
        assert_eq!(next.parent, Some(before), "no failed attempt is in the log");
        let carried = &next.nodes.iter().find(|node| node.name.as_str() == "out").unwrap().committables;
        let mut epochs: Vec<u64> = carried.iter().map(|staged| staged.epoch.0).collect();
        assert!(epochs.is_sorted(), "the oldest first: {epochs:?}");
        epochs.dedup();
        assert!(epochs.len() >= 3 && epochs[0] > before.0, "{before} then {epochs:?}");
        assert!(next.epoch.0 >= before.0 + 7, "{before} then {}", next.epoch);
        check_counts(&pipeline.out("out"), 400, true);

        stopped(job.stop().await);
        let mut job = pipeline.start();
        pipeline.feed("a", 400..500);
        job.until("the output after a restart", |_| pipeline.out_len("out") == 500).await;
        stopped(job.stop().await);
        check_counts(&pipeline.out("out"), 500, true);
    }
}

/// Row "attempt n fails, the process lives", then "the process dies before the manifest of n": what was staged for attempts that failed
/// is discarded, and replayed (I5).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_after_failed_attempts_publishes_nothing_of_them_twice() {
    for parallelism in [1, 2] {
        let store = FaultyStore::new();
        let pipeline = Pipeline::new(fed(parallelism, 1000, 0), [("count", count())]).on(store.clone());
        let mut job = pipeline.start();
        pipeline.feed("a", 0..100);
        job.until("the first output", |_| pipeline.out_len("out") == 100).await;
        store.decide(packs_fail);
        pipeline.feed("a", 100..200);
        job.until_at_least(2, "failed attempts", |metrics| &metrics.checkpoints_failed).await;
        job.abort().await;
        store.heal();
        let mut job = pipeline.start();
        pipeline.feed("a", 200..300);
        job.until("all output", |_| pipeline.out_len("out") == 300).await;
        stopped(job.stop().await);
        check_counts(&pipeline.out("out"), 300, true);
    }
}

fn paced(records: u64, parallelism: u32, tolerated: u64) -> String {
    format!(
        r#"
name = "t"
checkpoint = {{ interval = "10ms", tolerated_failures = {tolerated}, timeout = "500ms", inline = "0B" }}
restart = {{ attempts = 1000, delay = "1ms", max_delay = "5ms" }}
batch = {{ records = 32, delay = "1ms" }}
[source.in]
connector = "generator"
format = "json"
records = {records}
keys = 20
rate = 10000
[operator.pass]
plugin = "pass"
inputs = ["in"]
[operator.count]
plugin = "count"
inputs = [{{ from = "pass", exchange = "keyed" }}]
parallelism = {parallelism}
[sink.out]
connector = "file"
inputs = ["count"]
parallelism = {parallelism}
path = "out"
format = "json"
"#
    )
}

/// Row "the outcome of the manifest's put or of a commit is unknown", and every other request that fails before or after it was
/// carried out: I1, I4, I5, I6, I13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_fail_before_or_after_they_were_carried_out_change_nothing_in_the_output() {
    let touched = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
    join_all((0..12u64).map(|seed| {
        let touched = Arc::clone(&touched);
        async move {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let store = FaultyStore::new();
            let text = paced(2000, 1 + (seed % 2) as u32, seed % 3);
            let pipeline = Pipeline::new(text, [("pass", pass()), ("count", count())]).on(store.clone());
            let job = pipeline.start();
            // Runs of failures, so that also what is tried four times in a row fails for good.
            let mut left = 0;
            let mut fate = Fate::Works;
            let mut puts = BTreeMap::<String, u64>::new();
            store.decide(move |verb, path| {
                let kind = path.split('/').nth_back(1).unwrap_or_default();
                let count = puts.entry(kind.to_owned()).or_default();
                *count += u64::from(verb == Verb::Put);
                if verb == Verb::Put && *count == 2 {
                    // Whatever the seed gives: each kind of put fails in both ways at some time.
                    fate = if seed % 2 == 0 { Fate::FailsBefore } else { Fate::FailsAfter };
                    left = 1;
                } else if left == 0 {
                    fate = match random.next_u32() % 40 {
                        0 => Fate::FailsBefore,
                        1 => Fate::FailsAfter,
                        _ => Fate::Works,
                    };
                    left = 1 + random.next_u32() % 6;
                }
                left -= 1;
                if fate != Fate::Works {
                    *touched.lock().unwrap().entry(format!("{fate:?} {verb:?} {kind}")).or_default() += 1;
                }
                fate
            });
            let metrics = Arc::clone(&job.metrics);
            // A job whose last manifest is there and whose last answer was lost has finished before its last restart.
            match job.end().await {
                Ok(Outcome::Finished { .. }) => {}
                other => panic!("seed {seed}: {other:?}"),
            }
            store.heal();
            println!(
                "seed {seed}: {} checkpoints, {} failed, {} restarts",
                metrics.checkpoints.load(Relaxed),
                metrics.checkpoints_failed.load(Relaxed),
                metrics.restarts.load(Relaxed)
            );
            assert!(matches!(pipeline.run().await, Ok(Outcome::Finished { before: true, .. })), "seed {seed}");
            check_counts(&pipeline.out("out"), 2000, true);
        }
    }))
    .await;
    let touched = touched.lock().unwrap();
    for what in ["log", "packs", "committed"] {
        for fate in [Fate::FailsBefore, Fate::FailsAfter] {
            let what = format!("{fate:?} Put {what}");
            assert!(touched.contains_key(&what), "{what} never happened: {touched:?}");
        }
    }
}

/// Row "store unreachable": no checkpoint completes, processing goes on until the tolerance is spent, then the job fails, clearly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_tolerance_is_spent_the_job_fails_and_says_which_attempt_failed_and_why() {
    let store = FaultyStore::new();
    let pipeline = Pipeline::new(fed(2, 2, 1), [("count", count())]).on(store.clone());
    let mut job = pipeline.start();
    pipeline.feed("a", 0..100);
    job.until("the first output", |_| pipeline.out_len("out") == 100).await;
    store.decide(packs_fail);
    pipeline.feed("a", 100..200);
    let metrics = Arc::clone(&job.metrics);
    let error = job.end().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Job);
    let text = error.chain();
    for part in [
        "given up after 1 restarts",
        "number 3 in a row of which 2 are tolerated",
        "count[",
        "could not store its state",
        "packs/",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert_eq!((metrics.restarts.load(Relaxed), metrics.checkpoints_failed.load(Relaxed)), (1, 6));
    assert_eq!(pipeline.out_len("out"), 100);

    store.heal();
    let mut job = pipeline.start();
    job.until("all output", |_| pipeline.out_len("out") == 200).await;
    stopped(job.stop().await);
    check_counts(&pipeline.out("out"), 200, true);
}

/// Row "store unreachable", for good: at the start, and in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_store_stays_away_ends_with_an_error_that_says_so() {
    let store = FaultyStore::new();
    let pipeline = Pipeline::new(fed(2, 2, 2), [("count", count())]).on(store.clone());
    store.decide(|_, _| Fate::FailsBefore);
    let error = pipeline.run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Job);
    assert!(error.chain().contains(LOST), "{}", error.chain());

    store.heal();
    let mut job = pipeline.start();
    pipeline.feed("a", 0..100);
    job.until("the first output", |_| pipeline.out_len("out") == 100).await;
    store.decide(|_, _| Fate::FailsBefore);
    pipeline.feed("a", 100..200);
    let error = job.end().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Job);
    assert!(error.chain().contains(LOST), "{}", error.chain());

    store.heal();
    let mut job = pipeline.start();
    job.until("all output", |_| pipeline.out_len("out") == 200).await;
    stopped(job.stop().await);
    check_counts(&pipeline.out("out"), 200, true);
}

/// Row "store unreachable", for a while, when the manifest is there and its output is not marked: the job goes on by itself (I13).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marker_that_cannot_be_written_for_a_while_holds_back_the_next_checkpoint_and_nothing_else() {
    for fate in [Fate::FailsBefore, Fate::FailsAfter] {
        let store = FaultyStore::new();
        let pipeline = Pipeline::new(fed(2, 2, 1000), [("count", count())]).on(store.clone());
        let mut job = pipeline.start();
        let refused = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&refused);
        store.decide(move |verb, path| {
            // More often than one write is tried.
            if path.contains("/committed/") && verb != Verb::List && counter.fetch_add(1, Relaxed) < 20 {
                return fate;
            }
            Fate::Works
        });
        pipeline.feed("a", 0..100);
        job.until("the marker was refused", |_| refused.load(Relaxed) >= 20).await;
        pipeline.feed("a", 100..200);
        job.until("all output", |_| pipeline.out_len("out") == 200).await;
        stopped(job.stop().await);
        check_counts(&pipeline.out("out"), 200, true);
        let manifests = pipeline.manifests().await;
        assert!(manifests.windows(2).all(|pair| pair[1].parent == Some(pair[0].epoch)), "one chain");
    }
}

/// Row "the outcome of the manifest's put is unknown": its epoch is not abandoned, and the entry that turns out to be there is not taken for
/// that of a newer run (I6, I7).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_fails_while_a_manifest_is_on_its_way_does_not_make_the_job_its_own_successor() {
    for fate in [Fate::HangsBefore, Fate::HangsAfter] {
        let store = FaultyStore::new();
        let failed = Arc::new(AtomicBool::new(false));
        let has_failed = Arc::clone(&failed);
        let work = hooked(count(), move |_, call| match call {
            Call::Process(sequences) if sequences.contains(&150) && !has_failed.swap(true, Relaxed) => {
                Err(OperatorError::Fatal("it gave up".into()))
            }
            _ => Ok(()),
        });
        let pipeline = Pipeline::new(fed(2, 0, 3), [("count", work)]).on(store.clone());
        let mut job = pipeline.start();
        let sent = Arc::new(AtomicBool::new(false));
        let is_sent = Arc::clone(&sent);
        store.decide(move |verb, path| {
            let is_manifest = verb == Verb::Put && path.contains("/log/") && !path.ends_with("/00000000000000000001");
            if is_manifest && !is_sent.swap(true, Relaxed) { fate } else { Fate::Works }
        });
        pipeline.feed("a", 0..100);
        job.until("the manifest was sent", |_| sent.load(Relaxed)).await;
        pipeline.feed("a", 100..200);
        job.until("all output", |_| pipeline.out_len("out") == 200).await;
        assert!(failed.load(Relaxed));
        assert_eq!(job.restarts(), 1);
        stopped(job.stop().await);
        check_counts(&pipeline.out("out"), 200, true);
    }
}

/// "Every restart claims, also one in the same process", and a claim whose answer was lost is in doubt like any other put (I6): it is not
/// taken for that of a newer run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_was_lost_does_not_make_the_job_its_own_successor() {
    // How many requests for the claim fail after they were carried out, and how many after those for what follows it. With the claim in
    // the log, one look that fails is no reason to begin again.
    for (claims, others, restarts) in [(8, 0, 2), (0, 1, 1), (8, 8, 2)] {
        let store = FaultyStore::new();
        let armed = Arc::new(AtomicBool::new(false));
        let is_armed = Arc::clone(&armed);
        let work = hooked(count(), move |_, call| match call {
            Call::Process(sequences) if sequences.contains(&150) && !is_armed.swap(true, Relaxed) => {
                Err(OperatorError::Fatal("it gave up".into()))
            }
            _ => Ok(()),
        });
        let pipeline = Pipeline::new(fed(2, 0, 100), [("count", work)]).on(store.clone());
        let mut job = pipeline.start();
        pipeline.feed("a", 0..100);
        job.until("the first output", |_| pipeline.out_len("out") == 100).await;
        job.until_at_least(1, "checkpoints", |metrics| &metrics.checkpoints).await;
        let (mut claim, mut claims, mut others) = (None, claims, others);
        store.decide(move |verb, path| {
            if !armed.load(Relaxed) {
                return Fate::Works;
            }
            if verb == Verb::Put && path.contains("/log/") && claim.is_none() {
                claim = Some(path.to_owned());
            }
            let left = match &claim {
                None => return Fate::Works,
                Some(claim) if claim == path => &mut claims,
                Some(_) => &mut others,
            };
            if *left == 0 {
                return Fate::Works;
            }
            *left -= 1;
            Fate::FailsAfter
        });
        pipeline.feed("a", 100..200);
        job.until("all output", |_| pipeline.out_len("out") == 200).await;
        assert!(job.restarts() >= restarts, "{}", job.restarts());
        stopped(job.stop().await);
        check_counts(&pipeline.out("out"), 200, true);
    }
}

/// Row "store unreachable", while state is read back: the job tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_that_cannot_be_read_for_a_while_is_read_later() {
    let store = FaultyStore::new();
    let pipeline = Pipeline::new(fed(2, 0, 100), [("count", count())]).on(store.clone());
    let mut job = pipeline.start();
    pipeline.feed("a", 0..100);
    job.until("the first output", |_| pipeline.out_len("out") == 100).await;
    stopped(job.stop().await);
    let mut left = 5;
    store.decide(move |verb, path| {
        if verb == Verb::Get && path.contains("/packs/") && left > 0 {
            left -= 1;
            return Fate::FailsBefore;
        }
        Fate::Works
    });
    let mut job = pipeline.start();
    pipeline.feed("a", 100..200);
    job.until("all output", |_| pipeline.out_len("out") == 200).await;
    assert!(job.restarts() >= 2, "{}", job.restarts());
    stopped(job.stop().await);
    check_counts(&pipeline.out("out"), 200, true);
}

/// I10, and row "dies after the `committed` marker" for a job that is at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_job_says_so_and_changes_nothing_when_it_is_run_again() {
    for parallelism in [1, 2] {
        let pipeline = Pipeline::new(paced(500, parallelism, 3), [("pass", pass()), ("count", count())]);
        let epoch = finished(pipeline.run().await);
        check_counts(&pipeline.out("out"), 500, true);
        let files = pipeline.files();
        for _ in 0..2 {
            match pipeline.run().await {
                Ok(Outcome::Finished { epoch: again, before: true }) => assert_eq!(again, epoch),
                other => panic!("{other:?}"),
            }
            assert!(pipeline.files() == files, "a second run changed files");
        }
    }
}

/// "When nothing came since the last epoch anywhere and no timer fired, no barrier is sent" (DESIGN §4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_new_data_no_checkpoint_is_taken_and_with_new_data_one_is() {
    let pipeline = Pipeline::new(fed(2, 3, 0), [("count", count())]);
    let mut job = pipeline.start();
    for part in 1..=3u64 {
        pipeline.feed("a", (part - 1) * 10..part * 10);
        job.until("the output", |_| pipeline.out_len("out") == part * 10).await;
        job.until_at_least(part, "checkpoints", |metrics| &metrics.checkpoints).await;
        // Twenty intervals. A checkpoint that should not be taken may be missed here, one that should is not asked for.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert_eq!(job.metrics.checkpoints.load(Relaxed), part, "of {part} writes");
        assert_eq!(pipeline.manifests().await.len() as u64, part);
    }
    stopped(job.stop().await);
    assert_eq!(pipeline.manifests().await.len(), 4, "and a last one");
    check_counts(&pipeline.out("out"), 30, true);
}
