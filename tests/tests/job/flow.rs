//! What comes between two calls of an operator, and what does not: resumed calls, timers, several inputs, a busy chain.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use weir::clock::Clock;
use weir::model::{Batch, Timestamp};
use weir::plugin::{OperatorError, Output};
use weir_tests::job::code::{Call, Script, count, hooked, pass, script};
use weir_tests::job::{Pipeline, check_counts, check_once, stopped};

type Called = Result<(), OperatorError>;

const HEAD: &str = r#"
name = "t"
checkpoint = { interval = "10ms", retain = 1000 }
restart = { attempts = 3, delay = "1ms", max_delay = "5ms" }
"#;

fn fed(name: &str) -> String {
    format!(
        "[source.{name}]\nconnector = \"file\"\npath = \"in/{name}*.jsonl\"\nformat = \"json\"\nfollow = true\n\
         event_time = \"/time\"\nevent_time_unit = \"ms\"\n"
    )
}

/// What the test and the two subtasks of [`Many`] share.
#[derive(Default)]
struct Between {
    /// Records that a call has not said yet, by subtask.
    pending: [AtomicU64; 2],
    /// The last epoch that each subtask has cut.
    cut: [AtomicU64; 2],
    /// The last epoch that somebody beside it has cut.
    beside: AtomicU64,
    waited: AtomicU64,
    faults: Mutex<Vec<String>>,
}

/// Says one record in each call, and does not go on before a barrier waits for it.
struct Many {
    subtask: usize,
    pending: VecDeque<(Timestamp, Vec<u8>)>,
    between: Arc<Between>,
}

impl Many {
    fn say(&mut self, out: &mut Output) {
        if let Some((time, value)) = self.pending.pop_front() {
            let mut batch = Batch::default();
            batch.push(time, None, Some(&value));
            out.emitted.push((0, batch));
        }
        out.more = !self.pending.is_empty();
        self.between.pending[self.subtask].store(self.pending.len() as u64, Relaxed);
    }
}

#[async_trait]
impl Script for Many {
    async fn process(&mut self, _: Timestamp, _: u32, batch: &Batch, out: &mut Output) -> Called {
        for row in 0..batch.len() {
            self.pending.push_back((batch.timestamps[row], batch.values.get(row).unwrap_or_default().to_vec()));
        }
        self.say(out);
        Ok(())
    }

    async fn resume(&mut self, out: &mut Output) -> Called {
        let between = Arc::clone(&self.between);
        // Every source is told of an attempt at once: when another task has cut it, its barrier is on its way here.
        while between.beside.load(Relaxed) <= between.cut[self.subtask].load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        between.waited.fetch_add(1, Relaxed);
        self.say(out);
        Ok(())
    }
}

/// I3, and "no barrier comes between `more` and `done`" (DESIGN §3): here the barrier is waiting at every step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_barrier_and_no_other_call_comes_between_more_and_done() {
    for (parallelism, exchange) in [(1, "forward"), (2, "rebalance")] {
        let between = Arc::new(Between::default());
        let shared = Arc::clone(&between);
        let many = script(&["in"], move |task| Many {
            subtask: task.subtask as usize,
            pending: VecDeque::new(),
            between: Arc::clone(&shared),
        });
        let shared = Arc::clone(&between);
        let many = hooked(many, move |subtask, call| {
            let subtask = subtask as usize;
            if call != Call::Resume && shared.pending[subtask].load(Relaxed) > 0 {
                shared.faults.lock().unwrap().push(format!("{call:?} in subtask {subtask}"));
            }
            if let Call::Snapshot(epoch) = call {
                shared.cut[subtask].store(epoch.0, Relaxed);
            }
            Ok(())
        });
        let shared = Arc::clone(&between);
        let beside = hooked(pass(), move |_, call| {
            if let Call::Snapshot(epoch) = call {
                shared.beside.store(epoch.0, Relaxed);
            }
            Ok(())
        });
        let text = format!(
            r#"{HEAD}
{}{}
[operator.many]
plugin = "many"
inputs = [{{ from = "a", exchange = "{exchange}" }}]
parallelism = {parallelism}
[operator.beside]
plugin = "beside"
inputs = ["b"]
[sink.out]
connector = "file"
inputs = ["many"]
path = "out"
format = "json"
[sink.hole]
connector = "blackhole"
inputs = ["beside"]
"#,
            fed("a"),
            fed("b")
        );
        let pipeline = Pipeline::new(text, [("many", many), ("beside", beside)]);
        for run in 0..2u64 {
            let mut job = pipeline.start();
            for part in 1..=3u64 {
                let end = (run * 3 + part) * 20;
                pipeline.feed("a", end - 20..end);
                job.until("the output", |_| pipeline.out_len("out") == end).await;
            }
            stopped(job.stop().await);
        }
        check_once(&pipeline.out("out"), 120, 1);
        assert!(between.waited.load(Relaxed) >= 6, "a barrier waited while a call was resumed");
        assert_eq!(*between.faults.lock().unwrap(), Vec::<String>::new());
    }
}

const HOUR: i64 = 3_600_000_000;

/// Keeps each record for an hour of processing time.
#[derive(Default)]
struct Alarm {
    due: Vec<(i64, String)>,
}

#[async_trait]
impl Script for Alarm {
    async fn process(&mut self, now: Timestamp, _: u32, batch: &Batch, out: &mut Output) -> Called {
        for row in 0..batch.len() {
            let value = String::from_utf8_lossy(batch.values.get(row).unwrap_or_default()).into_owned();
            self.due.push((now + HOUR, value));
        }
        out.wake_at = Some(now + HOUR);
        Ok(())
    }

    async fn wake(&mut self, now: Timestamp, out: &mut Output) -> Called {
        let mut batch = Batch::default();
        self.due.retain(|(at, value)| {
            if *at <= now {
                batch.push(*at, None, Some(value.as_bytes()));
            }
            *at > now
        });
        out.emitted.push((0, batch));
        out.wake_at = self.due.iter().map(|(at, _)| *at).min();
        Ok(())
    }

    fn save(&mut self) -> Vec<u8> {
        serde_json::to_vec(&self.due).unwrap()
    }

    fn load(&mut self, state: &[u8]) {
        self.due = serde_json::from_slice(state).unwrap();
    }
}

/// I11: timers are part of the cut. Also in a run that is aborted after its checkpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_ended_before_a_timer_was_due_wakes_its_operator_when_it_runs_again() {
    for parallelism in [1, 2] {
        for is_stopped in [true, false] {
            let woken = Arc::new(AtomicU64::new(0));
            let wakes = Arc::clone(&woken);
            let alarm = hooked(script(&["in"], |_| Alarm::default()), move |_, call| {
                wakes.fetch_add(u64::from(call == Call::Wake), Relaxed);
                Ok(())
            });
            let text = format!(
                r#"{HEAD}
{}
[operator.alarm]
plugin = "alarm"
inputs = ["a"]
parallelism = {parallelism}
[sink.out]
connector = "file"
inputs = ["alarm"]
path = "out"
format = "json"
"#,
                fed("a")
            );
            let mut pipeline = Pipeline::new(text, [("alarm", alarm)]);
            let start = 1_000_000_000_000;
            // Half an hour before the first is due, and when it is a few minutes late; the same for the second.
            for (minutes, feed, taken, published, wakes) in
                [(0, 10, 0, 0, false), (30, 5, 10, 0, false), (65, 0, 15, 10, true), (95, 0, 15, 15, true)]
            {
                pipeline.clock = Clock::manual(start + minutes * HOUR / 60);
                woken.store(0, Relaxed);
                let mut job = pipeline.start();
                if feed > 0 {
                    pipeline.feed("a", taken..taken + feed);
                    job.until_at_least(1, "checkpoints", |metrics| &metrics.checkpoints).await;
                }
                job.until("the output", |_| pipeline.out_len("out") == published).await;
                assert_eq!(woken.load(Relaxed) > 0, wakes, "woken after {minutes} minutes");
                if is_stopped {
                    stopped(job.stop().await);
                } else {
                    job.until_at_least(1, "checkpoints", |metrics| &metrics.checkpoints).await;
                    job.abort().await;
                }
            }
            check_once(&pipeline.out("out"), 15, 1);
        }
    }
}

/// "`End` means that no record follows" (DESIGN §4): not of a timer either, while another part of the job goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_whose_inputs_have_all_ended_is_not_woken_any_more() {
    for parallelism in [1, 2] {
        let woken = Arc::new(AtomicU64::new(0));
        let wakes = Arc::clone(&woken);
        let alarm = hooked(script(&["in"], |_| Alarm::default()), move |_, call| {
            wakes.fetch_add(u64::from(call == Call::Wake), Relaxed);
            Ok(())
        });
        let text = format!(
            r#"{HEAD}
[source.short]
connector = "generator"
format = "json"
records = 10
{}
[operator.alarm]
plugin = "alarm"
inputs = [{{ from = "short", exchange = "{}" }}]
parallelism = {parallelism}
[sink.out]
connector = "file"
inputs = ["alarm", "b"]
path = "out"
format = "json"
"#,
            fed("b"),
            if parallelism == 1 { "forward" } else { "rebalance" }
        );
        let mut pipeline = Pipeline::new(text, [("alarm", alarm)]);
        for run in 0..2u64 {
            pipeline.clock = Clock::manual(1_000_000_000_000);
            let mut job = pipeline.start();
            pipeline.feed("b", run * 3..run * 3 + 1);
            job.until("the output", |_| pipeline.out_len("out") == run * 3 + 1).await;
            if run == 0 {
                // A run that goes on after the end is not told of it again.
                let alarm = job.metrics.node(&weir::model::NodeName::new("alarm"));
                job.until("the end of the short source", |_| alarm.watermark() == Some(i64::MAX)).await;
            }
            pipeline.clock.advance(Duration::from_secs(7200));
            // Barriers go through the operator, which is when its task looks for timers.
            for more in 1..3 {
                pipeline.feed("b", run * 3 + more..run * 3 + more + 1);
                job.until("the output", |_| pipeline.out_len("out") == run * 3 + more + 1).await;
            }
            assert_eq!((job.restarts(), woken.load(Relaxed)), (0, 0));
            stopped(job.stop().await);
        }
        check_once(&pipeline.out("out"), 6, 1);
    }
}

/// "Minimum watermark" of inputs that are not idle (DESIGN §4): what a timer says does not make an idle input one that is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_is_woken_while_its_input_is_idle_holds_no_watermark_back() {
    for parallelism in [1, 2] {
        let text = format!(
            r#"{HEAD}
{}idle_after = "1s"
{}
[operator.alarm]
plugin = "alarm"
inputs = ["a"]
parallelism = {parallelism}
[operator.both]
plugin = "pass"
inputs = ["alarm", "b"]
[sink.out]
connector = "file"
inputs = ["both"]
path = "out"
format = "json"
"#,
            fed("a"),
            fed("b")
        );
        let mut pipeline = Pipeline::new(text, [("alarm", script(&["in"], |_| Alarm::default())), ("both", pass())]);
        pipeline.clock = Clock::manual(1_000_000_000_000);
        let mut job = pipeline.start();
        let both = job.metrics.node(&weir::model::NodeName::new("both"));
        pipeline.feed("a", 0..1);
        pipeline.feed("b", 1..11);
        job.until("the output of b", |_| pipeline.out_len("out") == 10).await;
        job.until("the watermark of both", |_| both.watermark().is_some()).await;
        // `a` is idle from here on, and its timer is due.
        pipeline.clock.advance(Duration::from_secs(7200));
        job.until("the watermark of b alone", |_| both.watermark() == Some(9999)).await;
        job.until("the output of the timer", |_| pipeline.out_len("out") == 11).await;
        pipeline.feed("b", 11..21);
        job.until("the watermark of b alone", |_| both.watermark() == Some(19_999)).await;
        stopped(job.stop().await);
        check_once(&pipeline.out("out"), 21, 1);
    }
}

/// The coordinator takes its turn beside a source that never waits: §4, "chained into one task".
#[test]
fn a_busy_chain_does_not_starve_the_coordinator() {
    let text = format!(
        r#"{HEAD}
[source.in]
connector = "generator"
[operator.one]
plugin = "pass"
inputs = ["in"]
[operator.two]
plugin = "pass"
inputs = ["one"]
[sink.out]
connector = "blackhole"
inputs = ["two"]
"#
    );
    let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let one = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for runtime in [current, one] {
        runtime.block_on(async {
            let pipeline = Pipeline::new(text.clone(), [("one", pass()), ("two", pass())]);
            let mut job = pipeline.start();
            job.until_at_least(5, "checkpoints", |metrics| &metrics.checkpoints).await;
            let epoch = stopped(job.stop().await);
            assert!(epoch.0 >= 6);
            let mut job = pipeline.start();
            job.until_at_least(1, "checkpoints", |metrics| &metrics.checkpoints).await;
            assert!(stopped(job.stop().await) > epoch);
        });
    }
}

/// A stop signal that is set to what it was is no stop, and checkpoints go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_signal_that_says_no_changes_nothing() {
    let text = format!(
        r#"{HEAD}
{}
[operator.count]
plugin = "count"
inputs = [{{ from = "a", key = "/key" }}]
[sink.out]
connector = "file"
inputs = ["count"]
path = "out"
format = "json"
"#,
        fed("a")
    );
    let pipeline = Pipeline::new(text, [("count", count())]);
    let mut job = pipeline.start();
    for part in 1..=3u64 {
        job.signal(false);
        pipeline.feed("a", (part - 1) * 10..part * 10);
        job.until("the output", |_| pipeline.out_len("out") == part * 10).await;
        job.signal(false);
    }
    stopped(job.stop().await);
    check_counts(&pipeline.out("out"), 30, true);
}
