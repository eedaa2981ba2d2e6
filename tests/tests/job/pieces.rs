//! A job that runs in pieces, ended by a stop, by a process that dies, or by an operator that fails, gives what one run gives.
//!
//! Sources are endless until the last piece, so that every piece really ends where the test says: when an operator has seen so many
//! records, from a seed. The last piece knows how many records there are, and runs to the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::future::join_all;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::Value;
use tokio::sync::watch;
use weir::checkpoint::NodeKind;
use weir::flow::OperatorCode;
use weir::model::{Batch, END_OF_TIME, Timestamp};
use weir::plugin::{OperatorError, Output};
use weir_tests::job::code::{Call, Script, count, hooked, pass, script};
use weir_tests::job::{Pipeline, check_counts, check_once, finished, stopped};

type Called = Result<(), OperatorError>;

/// How a piece ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Stop,
    /// The job is dropped where it is: what a process that dies leaves behind, and more, since its uploads go on.
    Die,
    /// The operator fails, the job starts over, and is stopped some records after that. A stop that came before would end it with the failure.
    FailThenStop,
}

/// The most subtasks of a source here.
const SOURCE_SUBTASKS_MAX: u64 = 3;

/// Counts the records that an operator is given and does something at one of them.
#[derive(Clone, Default)]
struct Trigger(Arc<Shared>);

#[derive(Default)]
struct Shared {
    seen: AtomicU64,
    stop_at: AtomicU64,
    fail_at: AtomicU64,
    failed: AtomicBool,
    stop: Mutex<Option<watch::Sender<bool>>>,
}

impl Trigger {
    fn arm(&self, way: Way, at: u64, stop: &watch::Sender<bool>) {
        self.0.seen.store(0, Relaxed);
        self.0.failed.store(false, Relaxed);
        let (fail_at, stop_at) = match way {
            Way::Stop => (u64::MAX, at),
            Way::Die => (u64::MAX, u64::MAX),
            Way::FailThenStop => (at, u64::MAX),
        };
        self.0.fail_at.store(fail_at, Relaxed);
        self.0.stop_at.store(stop_at, Relaxed);
        *self.0.stop.lock().unwrap() = Some(stop.clone());
    }

    fn disarm(&self) {
        self.0.fail_at.store(u64::MAX, Relaxed);
        self.0.stop_at.store(u64::MAX, Relaxed);
    }

    fn on(&self, code: OperatorCode) -> OperatorCode {
        let shared = Arc::clone(&self.0);
        hooked(code, move |_, call| {
            let Call::Process(sequences) = call else { return Ok(()) };
            let seen = shared.seen.fetch_add(sequences.len() as u64, Relaxed) + sequences.len() as u64;
            if seen >= shared.fail_at.load(Relaxed) && !shared.failed.swap(true, Relaxed) {
                return Err(OperatorError::Fatal("as the seed wants it".into()));
            }
            if seen >= shared.stop_at.load(Relaxed)
                && let Some(stop) = &*shared.stop.lock().unwrap()
            {
                stop.send_replace(true);
            }
            Ok(())
        })
    }
}

/// Runs a pipeline in pieces and then to its end. `text` makes the file of a piece for a number of records, or for no end. Gives how
/// many there were in the end.
async fn in_pieces(
    pipeline: &mut Pipeline,
    trigger: &Trigger,
    seed: u64,
    pieces: u32,
    text: impl Fn(u32, Option<u64>) -> String,
) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for piece in 0..pieces {
        pipeline.text = text(piece, None);
        let way = [Way::Stop, Way::FailThenStop, Way::Die][((seed + u64::from(piece)) % 3) as usize];
        let at = 1 + u64::from(random.next_u32() % 400);
        let stop = watch::Sender::new(false);
        trigger.arm(way, at, &stop);
        let mut job = pipeline.start_with(stop);
        match way {
            Way::Stop => drop(stopped(job.end().await)),
            Way::FailThenStop => {
                job.until_at_least(1, "restarts", |metrics| &metrics.restarts).await;
                trigger.0.stop_at.store(trigger.0.seen.load(Relaxed) + at, Relaxed);
                let metrics = Arc::clone(&job.metrics);
                stopped(job.end().await);
                assert_eq!(metrics.restarts.load(Relaxed), 1);
            }
            Way::Die => {
                // A part of the pieces that die has completed a checkpoint.
                if random.next_u32().is_multiple_of(2) {
                    job.until_at_least(1, "checkpoints", |metrics| &metrics.checkpoints).await;
                }
                let seen = trigger.0.seen.load(Relaxed);
                job.until("some records", |_| trigger.0.seen.load(Relaxed) >= seen + at).await;
                job.abort().await;
            }
        }
    }
    trigger.disarm();
    let manifests = pipeline.manifests().await;
    let last = manifests.last().expect("a piece was stopped");
    let sources = last.nodes.iter().filter(|node| node.kind == NodeKind::Source);
    // Of n records that the subtasks of a piece make none is farther than `subtasks * (n + 1)` from where the piece began.
    let made: u64 = sources.flat_map(|node| &node.subtasks).map(|entry| entry.records).sum();
    let records = SOURCE_SUBTASKS_MAX * (made + u64::from(pieces)) + 200;
    pipeline.text = text(pieces, Some(records));
    finished(pipeline.run().await);
    records
}

fn generator(name: &str, records: Option<u64>, parallelism: u32) -> String {
    let records = records.map_or(String::new(), |records| format!("records = {records}\n"));
    format!(
        "[source.{name}]\nconnector = \"generator\"\nformat = \"json\"\nkeys = 13\nrate = 20000\n\
         parallelism = {parallelism}\nevent_time_step = \"1ms\"\n{records}"
    )
}

fn sink(from: &str, parallelism: u32) -> String {
    format!(
        "[sink.out]\nconnector = \"file\"\ninputs = [{from}]\nparallelism = {parallelism}\npath = \"out\"\nformat = \"json\"\n"
    )
}

const HEAD: &str = r#"
name = "t"
checkpoint = { interval = "10ms", retain = 1000 }
restart = { attempts = 5, delay = "1ms", max_delay = "5ms" }
batch = { records = 16, delay = "1ms" }
channel = { batches = 4 }
"#;

/// What does not depend on the order in which several inputs are merged.
fn bag(output: &[Value]) -> BTreeMap<(u64, String), u64> {
    let mut bag = BTreeMap::new();
    for record in output {
        let sequence = record["sequence"].as_u64().unwrap();
        *bag.entry((sequence, record["key"].to_string())).or_default() += 1;
    }
    bag
}

/// Runs a graph in pieces at parallelism 1, 2 and 3, each with some seeds, compares with one run, and lets `check` look at the
/// output.
async fn same_as_one_run(
    graph: impl Fn(u32, Option<u64>) -> String,
    code: impl Fn(&Trigger) -> Vec<(&'static str, OperatorCode)>,
    check: impl Fn(&[Value], u64, u32),
) {
    let (graph, code, check) = (&graph, &code, &check);
    join_all((1..=3u32).flat_map(|parallelism| (0..3u64).map(move |seed| (parallelism, seed))).map(
        |(parallelism, seed)| async move {
            let text = |records| format!("{HEAD}{}", graph(parallelism, records));
            let trigger = Trigger::default();
            let mut pipeline = Pipeline::new("", code(&trigger));
            let records = in_pieces(&mut pipeline, &trigger, seed, 4, |_, records| text(records)).await;
            let output = pipeline.out("out");
            check(&output, records, parallelism);
            let whole = Pipeline::new(text(Some(records)), code(&trigger));
            finished(whole.run().await);
            assert_eq!(bag(&output), bag(&whole.out("out")), "parallelism {parallelism}, seed {seed}");
        },
    ))
    .await;
}

/// I2, I3, I4, I5, I13 and the rows "the process dies before the manifest", "after the manifest", "after the marker". At parallelism 1 all
/// of it is one chain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyed_graph_in_pieces_gives_what_one_run_gives() {
    let graph = |parallelism, records| {
        format!(
            "{}[operator.count]\nplugin = \"count\"\ninputs = [\"in\"]\nparallelism = {parallelism}\n{}",
            generator("in", records, 1),
            sink("\"count\"", parallelism)
        )
    };
    same_as_one_run(
        graph,
        |trigger| vec![("count", trigger.on(count()))],
        |output, records, _| {
            check_counts(output, records, true);
        },
    )
    .await;
}

/// The same for a source of several subtasks and a sink that merges those of the operator: only the order of a key is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyed_graph_with_parallel_sources_in_pieces_gives_what_one_run_gives() {
    let graph = |parallelism, records| {
        format!(
            "{}[operator.first]\nplugin = \"pass\"\ninputs = [\"in\"]\nparallelism = {parallelism}\n\
             [operator.count]\nplugin = \"count\"\ninputs = [\"first\"]\nparallelism = {parallelism}\n{}",
            generator("in", records, parallelism),
            sink("\"count\"", 4 - parallelism)
        )
    };
    let code = |trigger: &Trigger| vec![("first", trigger.on(pass())), ("count", count())];
    same_as_one_run(graph, code, |output, records, _| check_counts(output, records, false)).await;
}

/// I2, I9, I11: the same where each piece has another parallelism than the one before, of the source, of the operators and of the sink, whether
/// that was stopped, failed or died, in the middle of the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graph_with_another_parallelism_in_each_piece_gives_what_one_run_gives() {
    const SHAPES: [[u32; 4]; 6] = [[2, 2, 2, 1], [3, 1, 5, 2], [1, 4, 1, 3], [2, 3, 4, 1], [3, 3, 2, 2], [1, 1, 7, 1]];
    let graph = |[source, first, second, to]: [u32; 4], records| {
        format!(
            "{HEAD}{}[operator.first]\nplugin = \"pass\"\ninputs = [{{ from = \"in\", exchange = \"rebalance\" }}]\n\
             parallelism = {first}\n[operator.count]\nplugin = \"count\"\ninputs = [\"first\"]\nparallelism = {second}\n{}",
            generator("in", records, source),
            sink("{ from = \"count\", exchange = \"rebalance\" }", to)
        )
    };
    join_all((0..6u64).map(|seed| async move {
        let text = |piece: u32, records| graph(SHAPES[(seed as usize + piece as usize) % SHAPES.len()], records);
        let trigger = Trigger::default();
        let mut pipeline = Pipeline::new("", [("first", trigger.on(pass())), ("count", count())]);
        let records = in_pieces(&mut pipeline, &trigger, seed, 6, text).await;
        check_counts(&pipeline.out("out"), records, false);
    }))
    .await;
}

/// The same for chains from source to sink, side by side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chains_in_pieces_give_what_one_run_gives() {
    let graph = |parallelism, records| {
        format!(
            "{}[operator.first]\nplugin = \"pass\"\ninputs = [\"in\"]\nparallelism = {parallelism}\n{}",
            generator("in", records, parallelism),
            sink("\"first\"", parallelism)
        )
    };
    same_as_one_run(
        graph,
        |trigger| vec![("first", trigger.on(pass()))],
        |output, records, parallelism| {
            check_once(output, records, 1);
            // Each chain keeps the order of its source.
            let mut last = BTreeMap::new();
            for record in output {
                let sequence = record["sequence"].as_u64().unwrap();
                let before = last.insert(sequence % u64::from(parallelism), sequence);
                assert!(before.is_none_or(|before| before < sequence), "{before:?} then {sequence}");
            }
        },
    )
    .await;
}

/// The same where every subtask gets everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broadcast_in_pieces_gives_what_one_run_gives() {
    let graph = |parallelism, records| {
        format!(
            "{}[operator.first]\nplugin = \"pass\"\ninputs = [{{ from = \"in\", exchange = \"broadcast\" }}]\n\
             parallelism = {parallelism}\n{}",
            generator("in", records, 1),
            sink("\"first\"", parallelism)
        )
    };
    let code = |trigger: &Trigger| vec![("first", trigger.on(pass()))];
    same_as_one_run(graph, code, |output, records, copies| check_once(output, records, u64::from(copies))).await;
}

/// The same where batches go in turn, and where a diamond is merged in one sink.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_diamond_with_a_rebalance_in_pieces_gives_what_one_run_gives() {
    let graph = |parallelism, records| {
        format!(
            "{}[operator.left]\nplugin = \"pass\"\ninputs = [{{ from = \"in\", exchange = \"rebalance\" }}]\n\
             parallelism = {parallelism}\n\
             [operator.right]\nplugin = \"pass\"\ninputs = [{{ from = \"in\", exchange = \"rebalance\" }}]\n\
             parallelism = 2\n{}",
            generator("in", records, 1),
            sink("\"left\", \"right\"", parallelism)
        )
    };
    let code = |trigger: &Trigger| vec![("left", trigger.on(pass())), ("right", pass())];
    same_as_one_run(graph, code, |output, records, _| check_once(output, records, 2)).await;
}

/// Two inputs: remembers what came, and notes whatever must not be.
struct Join {
    subtask: u32,
    /// Newest event time by port, ended by port, the last watermark.
    state: ([i64; 2], [bool; 2], i64),
    faults: Arc<Mutex<Vec<String>>>,
}

impl Join {
    fn fault(&self, what: String) {
        self.faults.lock().unwrap().push(format!("{what} with {:?} in subtask {}", self.state, self.subtask));
    }

    fn say(out: &mut Output, value: String) {
        let mut batch = Batch::default();
        batch.push(0, None, Some(value.as_bytes()));
        out.emitted.push((0, batch));
    }
}

#[async_trait]
impl Script for Join {
    async fn process(&mut self, _: Timestamp, port: u32, batch: &Batch, out: &mut Output) -> Called {
        let at = port as usize;
        if self.state.1[at] {
            self.fault(format!("records on port {port} after its end"));
        }
        let mut joined = Batch::default();
        for row in 0..batch.len() {
            let time = batch.timestamps[row];
            // The sources are in order: nothing is late.
            if time <= self.state.2 {
                self.fault(format!("a record of {time} on port {port}"));
            }
            self.state.0[at] = self.state.0[at].max(time);
            let mut value: Value = serde_json::from_slice(batch.values.get(row).unwrap_or_default()).unwrap();
            value["port"] = port.into();
            joined.push(time, None, Some(value.to_string().as_bytes()));
        }
        out.emitted.push((0, joined));
        Ok(())
    }

    async fn advance(&mut self, watermark: Timestamp, out: &mut Output) -> Called {
        let ends = |at: usize| if self.state.1[at] { END_OF_TIME } else { self.state.0[at] };
        let most = ends(0).min(ends(1));
        // A record of the time of the newest may still come.
        if (most < END_OF_TIME && watermark >= most) || (most == END_OF_TIME && watermark != END_OF_TIME) {
            self.fault(format!("watermark {watermark}"));
        }
        if watermark <= self.state.2 {
            self.fault(format!("watermark {watermark} again"));
        }
        self.state.2 = watermark;
        if watermark == END_OF_TIME {
            Self::say(out, format!("{{\"end\":2,\"subtask\":{}}}", self.subtask));
        }
        Ok(())
    }

    async fn finish(&mut self, port: u32, out: &mut Output) -> Called {
        if self.state.1[port as usize] {
            self.fault(format!("a second end of port {port}"));
        }
        self.state.1[port as usize] = true;
        Self::say(out, format!("{{\"end\":{port},\"subtask\":{}}}", self.subtask));
        Ok(())
    }

    fn save(&mut self) -> Vec<u8> {
        serde_json::to_vec(&self.state).unwrap()
    }

    fn load(&mut self, state: &[u8]) {
        self.state = serde_json::from_slice(state).unwrap();
    }
}

/// I3, I11: two sources on two ports, one of which ended long before the other, in pieces: each end is told once, the watermark is that
/// of the slower input that has not ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_inputs_are_aligned_end_once_and_go_by_the_smaller_watermark() {
    join_all(
        [(1u32, 1u32), (1, 2), (2, 3), (2, 1)].into_iter().flat_map(|of| (0..3u64).map(move |seed| (of, seed))).map(
            |((sources, parallelism), seed)| async move {
                let faults = Arc::new(Mutex::new(Vec::new()));
                let shared = Arc::clone(&faults);
                let trigger = Trigger::default();
                let join = trigger.on(script(&["left", "right"], move |task| Join {
                    subtask: task.subtask,
                    state: ([i64::MIN; 2], [false; 2], i64::MIN),
                    faults: Arc::clone(&shared),
                }));
                let text = |records| {
                    format!(
                        "{HEAD}{}{}[operator.join]\nplugin = \"join\"\nparallelism = {parallelism}\n\
                     inputs = [{{ from = \"left\", to = \"left\", exchange = \"broadcast\" }}, \
                     {{ from = \"right\", to = \"right\", exchange = \"broadcast\" }}]\n{}",
                        generator("left", Some(150), 1),
                        generator("right", records, sources),
                        sink("\"join\"", 1)
                    )
                };
                let mut pipeline = Pipeline::new("", [("join", join)]);
                let records = in_pieces(&mut pipeline, &trigger, seed, 5, |_, records| text(records)).await;
                let output = pipeline.out("out");
                let of_port =
                    |port: u64| -> Vec<Value> { output.iter().filter(|r| r["port"] == port).cloned().collect() };
                check_once(&of_port(0), 150, u64::from(parallelism));
                check_once(&of_port(1), records, u64::from(parallelism));
                for subtask in 0..parallelism {
                    let ends: Vec<&Value> =
                        output.iter().filter(|r| r["subtask"] == subtask).map(|record| &record["end"]).collect();
                    assert!(ends == [0, 1, 2] || ends == [1, 0, 2], "ends of subtask {subtask}: {ends:?}");
                }
                assert_eq!(*faults.lock().unwrap(), Vec::<String>::new());
            },
        ),
    )
    .await;
}
