//! Operators that fail, ask to be repeated, and reject.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;
use weir::error::ErrorKind;
use weir::flow::OperatorCode;
use weir::model::{Batch, Timestamp};
use weir::plugin::{Operator, OperatorError, Output};
use weir_tests::job::code::{Call, Script, count, hooked, script, sequence};
use weir_tests::job::{Pipeline, check_counts, check_once, sequences, stopped};

fn fed(parallelism: u32, attempts: u32, more: &str) -> String {
    format!(
        r#"
name = "t"
checkpoint = {{ interval = "10ms", retain = 1000 }}
restart = {{ attempts = {attempts}, delay = "1ms", max_delay = "5ms" }}
[source.in]
connector = "file"
path = "in/*.jsonl"
format = "json"
follow = true
[operator.work]
plugin = "work"
inputs = [{{ from = "in", key = "/key" }}]
parallelism = {parallelism}
{more}
[sink.out]
connector = "file"
inputs = ["work"]
parallelism = {parallelism}
path = "out"
format = "json"
"#
    )
}

fn trap() -> OperatorError {
    OperatorError::Trap { call: "process", reason: "unreachable".into(), backtrace: "frame 0".into() }
}

/// Row "the process dies before the manifest of n", for one operator of a process that lives: I2, I5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_fails_once_starts_over_from_the_last_checkpoint_and_nothing_comes_twice() {
    type Fault = (&'static str, fn() -> OperatorError);
    let faults: [Fault; 3] = [
        ("fatal", || OperatorError::Fatal("it gave up".into())),
        ("trap", trap),
        ("panic", || panic!("a panic on purpose: a defect of weir would look like this")),
    ];
    for (name, fault) in faults {
        for parallelism in [1, 2] {
            let armed = Arc::new(AtomicBool::new(false));
            let replayed = Arc::new(Mutex::new(Vec::new()));
            let (is_armed, seen) = (Arc::clone(&armed), Arc::clone(&replayed));
            let work = hooked(count(), move |_, call| {
                let Call::Process(sequences) = call else { return Ok(()) };
                if sequences.contains(&150) && is_armed.swap(false, Relaxed) {
                    seen.lock().unwrap().clear();
                    return Err(fault());
                }
                seen.lock().unwrap().extend(sequences);
                Ok(())
            });
            let pipeline = Pipeline::new(fed(parallelism, 3, ""), [("work", work)]);
            let mut job = pipeline.start();
            pipeline.feed("a", 0..100);
            job.until("the first output", |_| pipeline.out_len("out") == 100).await;
            job.until_at_least(1, "checkpoints", |metrics| &metrics.checkpoints).await;
            armed.store(true, Relaxed);
            pipeline.feed("a", 100..200);
            job.until("all output", |_| pipeline.out_len("out") == 200).await;
            assert_eq!(job.restarts(), 1, "{name}");
            stopped(job.stop().await);
            check_counts(&pipeline.out("out"), 200, true);
            let replayed = replayed.lock().unwrap();
            assert!(replayed.iter().all(|&i| i >= 100), "{name}: what was committed is not replayed: {replayed:?}");
        }
    }
}

/// The supervisor's limit: "after too many restarts in a row, given up".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_always_fails_ends_the_job_with_its_name_and_the_cause() {
    for (attempts, parallelism) in [(0, 1), (1, 2), (4, 1)] {
        let failures = Arc::new(AtomicU64::new(0));
        let failed = Arc::clone(&failures);
        let work = hooked(count(), move |_, call| match call {
            Call::Process(sequences) if sequences.contains(&7) => {
                failed.fetch_add(1, Relaxed);
                Err(OperatorError::Fatal("seven is too much".into()))
            }
            _ => Ok(()),
        });
        let pipeline = Pipeline::new(fed(parallelism, attempts, ""), [("work", work)]);
        pipeline.feed("a", 0..10);
        let job = pipeline.start();
        let metrics = Arc::clone(&job.metrics);
        let error = job.end().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Job);
        let text = error.chain();
        for part in ["\"t\"", "work[", "seven is too much", &format!("after {attempts} restarts")] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert_eq!(metrics.restarts.load(Relaxed), u64::from(attempts));
        assert_eq!(failures.load(Relaxed), u64::from(attempts) + 1);
        assert_eq!(pipeline.out_len("out"), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_refuses_its_configuration_or_its_state_is_not_restarted() {
    let invalid = || OperatorError::Invalid("size must be positive".into());
    let in_open = OperatorCode {
        open: Arc::new(move |_| {
            Box::pin(async move { Err::<Box<dyn Operator>, _>(OperatorError::Invalid("size must be positive".into())) })
        }),
        ..count()
    };
    let in_call = hooked(count(), move |_, call| match call {
        Call::Process(_) => Err(invalid()),
        _ => Ok(()),
    });
    // From any other call than `open` and `restore`, `invalid` is as good as `fatal`: started over, as often as is allowed.
    for (work, restarts) in [(in_open, 0), (in_call, 100)] {
        let pipeline = Pipeline::new(fed(2, 100, ""), [("work", work)]);
        pipeline.feed("a", 0..10);
        let job = pipeline.start();
        let metrics = Arc::clone(&job.metrics);
        let error = job.end().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Job);
        let text = error.chain();
        assert!(text.contains("work[") && text.contains("size must be positive"), "{text}");
        assert_eq!(metrics.restarts.load(Relaxed), restarts);
    }
    // What cannot be restored is not tried again either, and nothing starts empty (I10).
    let mut pipeline = Pipeline::new(fed(2, 100, ""), [("work", count())]);
    pipeline.feed("a", 0..10);
    let mut job = pipeline.start();
    job.until("the output", |_| pipeline.out_len("out") == 10).await;
    stopped(job.stop().await);
    let refuses = hooked(count(), move |_, call| match call {
        Call::Restore => Err(invalid()),
        _ => Ok(()),
    });
    pipeline.code = [(weir::model::NodeName::new("work"), refuses)].into();
    let job = pipeline.start();
    let metrics = Arc::clone(&job.metrics);
    let text = job.end().await.unwrap_err().chain();
    assert!(text.contains("work[") && text.contains("state was restored"), "{text}");
    assert_eq!(metrics.restarts.load(Relaxed), 0);
    pipeline.code = [(weir::model::NodeName::new("work"), count())].into();
    pipeline.feed("a", 10..20);
    let mut job = pipeline.start();
    job.until("the output", |_| pipeline.out_len("out") == 20).await;
    stopped(job.stop().await);
    check_counts(&pipeline.out("out"), 20, true);
}

/// Says everything that a call can say, asks for the call again, and says it once more.
struct Stammer {
    tries: Arc<AtomicU64>,
}

#[async_trait]
impl Script for Stammer {
    async fn process(&mut self, now: Timestamp, _: u32, batch: &Batch, out: &mut Output) -> Result<(), OperatorError> {
        out.emitted.push((0, Batch { hashes: Vec::new(), ..batch.clone() }));
        out.rejected.0.push_row(batch, 0);
        out.rejected.1.push("to see what becomes of it".into());
        if self.tries.fetch_add(1, Relaxed) % 3 < 2 {
            out.wake_at = Some(now);
            out.more = true;
            return Err(OperatorError::Retry("not yet".into()));
        }
        Ok(())
    }

    async fn wake(&mut self, _: Timestamp, _: &mut Output) -> Result<(), OperatorError> {
        Err(OperatorError::Fatal("woken by a call that failed".into()))
    }

    async fn resume(&mut self, _: &mut Output) -> Result<(), OperatorError> {
        Err(OperatorError::Fatal("resumed after a call that failed".into()))
    }
}

/// "A call is a transaction" (DESIGN §3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_asks_to_be_repeated_is_and_says_everything_once() {
    let tries = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&tries);
    let work = script(&["in"], move |_| Stammer { tries: Arc::clone(&shared) });
    let text = fed(1, 0, "on_reject = \"skip\"");
    let pipeline = Pipeline::new(text, [("work", work)]);
    let mut job = pipeline.start();
    for part in 1..=3u64 {
        pipeline.feed("a", (part - 1) * 10..part * 10);
        job.until("the output", |_| pipeline.out_len("out") == part * 10).await;
    }
    let node = job.metrics.node(&weir::model::NodeName::new("work"));
    stopped(job.stop().await);
    check_once(&pipeline.out("out"), 30, 1);
    let calls = tries.load(Relaxed) / 3;
    assert_eq!(tries.load(Relaxed) % 3, 0);
    assert_eq!((node.retries.load(Relaxed), node.skipped.load(Relaxed)), (2 * calls, calls));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_always_asks_to_be_repeated_fails_in_the_end() {
    let work = hooked(count(), |_, call| match call {
        Call::Process(_) => Err(OperatorError::Retry("the moon is not full".into())),
        _ => Ok(()),
    });
    let pipeline = Pipeline::new(fed(1, 0, ""), [("work", work)]);
    pipeline.feed("a", 0..10);
    let job = pipeline.start();
    let metrics = Arc::clone(&job.metrics);
    let error = job.end().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Job);
    assert!(error.chain().contains("work[0]") && error.chain().contains("the moon is not full"), "{}", error.chain());
    assert_eq!(metrics.node(&weir::model::NodeName::new("work")).retries.load(Relaxed), 8);
}

/// Hands on even numbers and rejects odd ones.
struct Even;

#[async_trait]
impl Script for Even {
    async fn process(&mut self, _: Timestamp, _: u32, batch: &Batch, out: &mut Output) -> Result<(), OperatorError> {
        let mut kept = Batch::default();
        for row in 0..batch.len() {
            let sequence = sequence(batch, row);
            if sequence.is_multiple_of(2) {
                kept.push_row(batch, row);
            } else {
                out.rejected.0.push_row(batch, row);
                out.rejected.1.push(format!("{sequence} is odd"));
            }
        }
        out.emitted.push((0, kept));
        Ok(())
    }
}

/// "Rejected records are not failures" (DESIGN §3), unless the node says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_record_fails_the_job_at_once_or_is_skipped_and_counted() {
    for parallelism in [1, 2] {
        let pipeline = Pipeline::new(fed(parallelism, 100, ""), [("work", script(&["in"], |_| Even))]);
        pipeline.feed("a", 0..10);
        let job = pipeline.start();
        let metrics = Arc::clone(&job.metrics);
        let error = job.end().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Job);
        assert!(error.chain().contains("work[") && error.chain().contains("is odd"), "{}", error.chain());
        assert!(error.remedy().is_some_and(|help| help.contains("dead-letter")), "{}", error.report());
        assert_eq!(metrics.restarts.load(Relaxed), 0, "the same record would be rejected again");
        assert_eq!(pipeline.out_len("out"), 0);

        let text = fed(parallelism, 0, "on_reject = \"skip\"");
        let pipeline = Pipeline::new(text, [("work", script(&["in"], |_| Even))]);
        pipeline.feed("a", 0..100);
        let mut job = pipeline.start();
        job.until("the output", |_| pipeline.out_len("out") == 50).await;
        let node = job.metrics.node(&weir::model::NodeName::new("work"));
        assert_eq!((node.skipped.load(Relaxed), node.rejected.load(Relaxed)), (50, 0));
        stopped(job.stop().await);
    }
}

/// I11: rejected records are part of the cut. Rows "attempt n fails" and "dies before the manifest", for both outputs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_come_exactly_once_too() {
    for parallelism in [1, 2] {
        let fails_at = Arc::new(AtomicU64::new(u64::MAX));
        let at = Arc::clone(&fails_at);
        let work = hooked(script(&["in"], |_| Even), move |_, call| match call {
            Call::Process(sequences) if sequences.contains(&at.load(Relaxed)) => {
                at.store(u64::MAX, Relaxed);
                Err(trap())
            }
            _ => Ok(()),
        });
        let text = fed(parallelism, 3, "on_reject = \"dead-letter\"")
            + r#"
[sink.bad]
connector = "file"
inputs = [{ from = "work", port = "rejected" }]
path = "bad"
format = "json"
"#;
        let pipeline = Pipeline::new(text, [("work", work)]);
        let mut job = pipeline.start();
        for part in 1..=4u64 {
            fails_at.store(part * 100 - 50, Relaxed);
            pipeline.feed("a", (part - 1) * 100..part * 100);
            job.until("both outputs", |_| (pipeline.out_len("out"), pipeline.out_len("bad")) == (part * 50, part * 50))
                .await;
            assert_eq!(fails_at.load(Relaxed), u64::MAX, "it failed on the way");
        }
        assert_eq!(job.restarts(), 4);
        stopped(job.stop().await);
        let letters = pipeline.out("bad");
        let mut values = Vec::new();
        for letter in &letters {
            let value: Value = serde_json::from_str(letter["value"].as_str().unwrap()).unwrap();
            assert_eq!(letter["node"], "work");
            assert_eq!(letter["reason"], format!("{} is odd", value["sequence"]));
            assert_eq!(letter["key"], value["key"]);
            values.push(value);
        }
        let mut odd = sequences(&values);
        let mut even = sequences(&pipeline.out("out"));
        odd.sort_unstable();
        even.sort_unstable();
        assert!(even.into_iter().eq((0..400).step_by(2)));
        assert!(odd.into_iter().eq((1..400).step_by(2)));
    }
}
