//! Hostile guests: whatever one does ends in an error of the right kind that names limit and value; the process lives, its
//! neighbours go on, and its memory and place go back.

use std::sync::LazyLock;
use std::time::Duration;

use weir::model::{Batch, Chunk, Epoch, Scope, SegmentKind, SnapshotMode, TaskInfo};
use weir::plan::LimitsSpec;
use weir::plugin::{
    HostOptions, MetricValue, Operator, OperatorError, Output, Plugin, PluginError, PluginHost, SnapshotWriter,
};
use weir_tests::guests::guest;

static CACHE: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

/// A host with room for a few instances; all share the compiled code.
fn host(instances_max: u32) -> PluginHost {
    let cache_dir = Some(CACHE.path().join("compiled"));
    PluginHost::new(HostOptions { cache_dir, instances_max, ..HostOptions::default() }).expect("a host")
}

async fn hostile(host: &PluginHost) -> Plugin {
    host.load(&guest("hostile")).await.expect("the hostile guest is a plugin")
}

fn task(node: &str) -> TaskInfo {
    let (job, node) = ("job".to_owned(), node.to_owned());
    TaskInfo { job, node, subtask: 0, parallelism: 2, key_groups: 128, groups: 0..64, seed: 1 }
}

/// Tight, but enough for every call that behaves.
fn limits() -> LimitsSpec {
    LimitsSpec {
        memory_bytes: 32 << 20,
        soft_memory_bytes: None,
        cpu: Duration::from_millis(200),
        wall: Duration::from_secs(3_600),
        output_bytes: 8 << 20,
        state_bytes: 1 << 20,
        log_lines: 10,
    }
}

fn two_records() -> Batch {
    let mut batch = Batch::default();
    batch.push(1, Some(b"a"), Some(b"one"));
    batch.push(2, Some(b"b"), None);
    batch.hash_keys();
    batch
}

#[derive(Default)]
struct Chunks(Vec<(Scope, SegmentKind, Vec<u8>)>);

impl SnapshotWriter for Chunks {
    fn write(&mut self, scope: Scope, kind: SegmentKind, data: &[u8]) -> bool {
        self.0.push((scope, kind, data.to_vec()));
        true
    }
}

fn chunk(data: impl Into<Vec<u8>>) -> Chunk {
    Chunk { scope: Scope::Subtask, kind: SegmentKind::Base, origin: 0, data: data.into().into() }
}

/// Calls an export by its name.
async fn call(operator: &mut dyn Operator, export: &str, out: &mut Output) -> Result<(), OperatorError> {
    match export {
        "process" => operator.process(7, 0, &two_records(), out).await,
        "advance" => operator.advance(7, 1, out).await,
        "wake" => operator.wake(7, out).await,
        "finish" => operator.finish(7, 0, out).await,
        "resume" => operator.resume(7, out).await,
        "snapshot" => operator.snapshot(Epoch(1), SnapshotMode::Full, &mut Chunks::default()).await.map(|_| ()),
        "restore" => operator.restore(1, vec![chunk(1u64.to_le_bytes())]).await,
        other => unreachable!("no such export: {other}"),
    }
}

/// Lets a fresh instance do `what` in `export` while a neighbour lives; the error that comes of it. Checks
/// that nothing of the call is kept, that the instance has ended, that the neighbour goes on, and that the place goes back.
async fn misbehave(plugin: &Plugin, host: &PluginHost, limits: &LimitsSpec, export: &str, what: &str) -> OperatorError {
    let mut neighbour = plugin.open(limits, &serde_json::json!({}), &task("neighbour")).await.expect("it behaves");
    let before = host.instances();
    let config = serde_json::json!({ "do": what, "in": export });
    let opened = plugin.open(limits, &config, &task("culprit")).await;
    let error = if export == "open" {
        opened.err().unwrap_or_else(|| panic!("{what} in open went well"))
    } else {
        let mut culprit = opened.expect("opening goes well");
        let mut out = Output::default();
        let Err(error) = call(&mut *culprit, export, &mut out).await else { panic!("{what} in {export} went well") };
        assert!(out.emitted.is_empty() && out.rejected.1.is_empty(), "{what} in {export} left output behind");
        let again = culprit.process(8, 0, &two_records(), &mut out).await.expect_err("it has ended");
        assert!(matches!(&again, OperatorError::Fatal(why) if why.contains("has ended")), "{again}");
        assert_eq!(host.instances(), before, "{what} in {export}: the place goes back before it is dropped");
        error
    };
    assert_eq!(host.instances(), before, "{what} in {export}: the place goes back");
    let mut out = Output::default();
    neighbour.process(9, 0, &two_records(), &mut out).await.expect("the neighbour goes on");
    assert_eq!(out.emitted.len(), 1);
    error
}

#[tokio::test]
async fn each_limit_is_an_error_that_names_limit_value_and_setting() {
    let host = host(4);
    let plugin = hostile(&host).await;
    let cases = [
        ("process", "spin", "200ms", "CPU time", "201ms", "cpu"),
        ("open", "spin", "200ms", "CPU time", "201ms", "cpu"),
        ("restore", "spin", "200ms", "CPU time", "201ms", "cpu"),
        ("process", "recurse", "512 KiB", "stack", "recursion that went deeper", ""),
        ("process", "hoard", "32 MiB", "memory", "", "memory"),
        ("process", "flood", "8 MiB", "output", "", "output"),
        ("resume", "one-huge-batch", "8 MiB", "output", "9437456 bytes", "output"),
        ("resume", "monstrous-batch", "8 MiB", "output", "more in a single list or text", "output"),
        ("advance", "flood-with-nothing", "8 MiB", "output", "8388864 bytes", "output"),
        ("process", "reject-flood", "8 MiB", "output", "", "output"),
        ("snapshot", "write-forever", "1 MiB", "state", "", "state"),
        ("snapshot", "write-nothing-forever", "1 MiB", "state", "1048832 bytes", "state"),
    ];
    for (export, what, limit, resource, value, setting) in cases {
        let error = misbehave(&plugin, &host, &limits(), export, what).await;
        let OperatorError::Limit { call, what: of, limit: is_limit, value: is_value, setting: is_setting } = &error
        else {
            panic!("{what} in {export}: {error:?}");
        };
        assert_eq!((*call, *of, is_limit.as_str(), *is_setting), (export, resource, limit, setting), "{what}: {error}");
        assert!(value.is_empty() || value == is_value, "{what}: {error}");
        assert!(!is_value.is_empty(), "{what}: {error}");
    }
    assert_eq!(host.instances(), 0);
}

#[tokio::test]
async fn time_on_the_wall_is_limited_apart_from_cpu_time() {
    let host = host(4);
    let plugin = hostile(&host).await;
    let limits = LimitsSpec { cpu: Duration::from_secs(3_600), wall: Duration::from_millis(50), ..limits() };
    let error = misbehave(&plugin, &host, &limits, "advance", "spin").await;
    let text = "plugin crossed its limit of 50ms wall-clock time in advance: more than 50ms";
    assert_eq!(error.to_string(), text);
    assert!(matches!(error, OperatorError::Limit { setting: "wall", .. }));
}

#[tokio::test]
async fn each_breach_of_the_contract_is_named() {
    let host = host(4);
    let plugin = hostile(&host).await;
    let only_output = "may be called only in process, advance, wake, finish and resume, not in";
    let cases = [
        ("process", "unknown-port", "output.emit on port 7, but the plugin has 2 output ports".to_owned()),
        ("process", "no-key", "the port is declared as keyed, and a record has no key".to_owned()),
        ("process", "first-offset", "its first offset is 1 and must be 0".to_owned()),
        ("process", "falling-offsets", "offsets go down from 2 to 1 at record 1".to_owned()),
        ("process", "offset-beyond", "it has 1 bytes and must have 4000000000".to_owned()),
        ("process", "too-few-offsets", "it has 1 offsets and must have 2".to_owned()),
        ("process", "null-bits", "null bits beyond the last record are set".to_owned()),
        ("process", "headers", "the headers of record 0 do not decode".to_owned()),
        ("wake", "list-outside-memory", "out of bounds of memory".to_owned()),
        ("wake", "list-across-the-end", "out of bounds of memory".to_owned()),
        ("wake", "list-unaligned", "list pointer is not aligned".to_owned()),
        ("finish", "bad-utf8", "log.write: invalid utf-8 sequence of 1 bytes from index 4".to_owned()),
        ("process", "metric-name", "a metric is called \"Not A Name\"".to_owned()),
        ("process", "reject-outside", "output.reject of record 1000000 in a batch of 2 records".to_owned()),
        ("process", "reject-twice", "output.reject of record 0 twice".to_owned()),
        ("advance", "reject-twice", "output.reject may be called only in process, not in advance".to_owned()),
        ("open", "emit", format!("output.emit {only_output} open")),
        ("snapshot", "emit", format!("output.emit {only_output} snapshot")),
        ("restore", "emit", format!("output.emit {only_output} restore")),
        ("open", "wake-at", format!("timers.wake-at {only_output} open")),
        ("snapshot", "wake-at", format!("timers.wake-at {only_output} snapshot")),
        ("process", "write", "snapshots.write may be called only in snapshot, not in process".to_owned()),
        ("restore", "write", "snapshots.write may be called only in snapshot, not in restore".to_owned()),
        ("process", "read", "snapshots.read may be called only in restore, not in process".to_owned()),
        ("snapshot", "foreign-group", "key group 64 is not one of this subtask's, 0 up to".to_owned()),
        ("snapshot", "delta", "a delta in a full snapshot".to_owned()),
        ("snapshot", "huge-chunk", "a chunk of 17825792 bytes; the most is 16777216".to_owned()),
        ("restore", "ignore-state", "0 chunks of state were read, and there are more".to_owned()),
    ];
    for (export, what, part) in cases {
        let limits = LimitsSpec { memory_bytes: 64 << 20, output_bytes: 64 << 20, ..limits() };
        let error = misbehave(&plugin, &host, &limits, export, what).await;
        let OperatorError::Contract { call, what: text } = &error else { panic!("{what} in {export}: {error:?}") };
        assert_eq!(*call, export);
        assert!(text.contains(&part), "{what} in {export}: {text:?} should say {part:?}");
    }
    assert_eq!(host.instances(), 0);
}

#[tokio::test]
async fn a_panic_in_any_export_is_reported_in_its_own_words_with_a_backtrace() {
    let host = host(4);
    let plugin = hostile(&host).await;
    for export in ["open", "process", "advance", "wake", "finish", "resume", "snapshot", "restore"] {
        let error = misbehave(&plugin, &host, &limits(), export, "panic").await;
        let OperatorError::Trap { call, reason, backtrace } = &error else { panic!("{export}: {error:?}") };
        assert_eq!(*call, export);
        assert!(reason.contains(&format!("{export} was told to panic")), "{reason}");
        assert!((1..=20).contains(&backtrace.lines().count()), "{backtrace}");
        assert!(backtrace.contains("hostile::act"), "demangled, and with the function that panicked: {backtrace}");
    }
}

#[tokio::test]
async fn a_trap_without_a_message_says_which_and_overflow_in_the_guests_own_memory_is_recognised() {
    let host = host(4);
    let plugin = hostile(&host).await;
    let error = misbehave(&plugin, &host, &limits(), "process", "abort").await;
    let OperatorError::Trap { reason, .. } = &error else { panic!("{error:?}") };
    assert_eq!(reason, "wasm trap: wasm `unreachable` instruction executed");
    let error = misbehave(&plugin, &host, &limits(), "process", "recurse-in-memory").await;
    let OperatorError::Trap { reason, backtrace, .. } = &error else { panic!("{error:?}") };
    assert!(reason.contains("looks like recursion"), "{reason}\n{backtrace}");
    assert_eq!(backtrace.lines().count(), 20);
}

/// The component with another word behind the marker that it holds for this.
fn told_to(name: &str, marker: &str, word: &str) -> Vec<u8> {
    let mut bytes = guest(name);
    let marker = marker.as_bytes();
    let at = bytes.windows(marker.len()).position(|part| part == marker).expect("the guest has the marker");
    bytes[at + marker.len()..][..word.len()].copy_from_slice(word.as_bytes());
    bytes
}

#[tokio::test]
async fn a_plugin_that_misbehaves_in_describe_is_refused_with_the_reason() {
    let host = host(4);
    for (word, part) in [
        ("panic", "plugin trapped in describe: panicked at"),
        ("spin", "limit of 2s CPU time in describe: 2.001s"),
        ("hoard", "limit of 256 MiB memory in describe"),
        ("emit", "broke the contract in describe: output.emit may be called only in"),
    ] {
        let error = host.load(&told_to("hostile", "hostile-describe=", word)).await.expect_err(word);
        let PluginError::Describe(error) = &error else { panic!("{word}: {error:?}") };
        assert!(error.to_string().contains(part), "{word}: {error}");
    }
    let error = host.load(&told_to("hostile", "hostile-describe=", "name")).await.expect_err("a bad name");
    assert!(matches!(&error, PluginError::Descriptor(what) if what.contains("No Such Name")), "{error:?}");
    assert_eq!(host.instances(), 0);
    hostile(&host).await;
}

#[tokio::test]
async fn retry_drops_what_was_said_and_the_call_can_be_made_again() {
    let host = host(2);
    let plugin = hostile(&host).await;
    let config = serde_json::json!({ "do": "retry-once" });
    let mut operator = plugin.open(&limits(), &config, &task("node")).await.expect("opens");
    let mut out = Output::default();
    let error = operator.process(1, 0, &two_records(), &mut out).await.expect_err("the first time");
    assert!(matches!(&error, OperatorError::Retry(why) if why == "not now"), "{error}");
    assert!(out.emitted.is_empty());
    operator.process(1, 0, &two_records(), &mut out).await.expect("the second time");
    assert_eq!(out.emitted.len(), 1);
}

#[tokio::test]
async fn failures_come_back_as_their_kind_and_are_cut_when_they_are_long() {
    let host = host(4);
    let plugin = hostile(&host).await;
    for export in ["open", "process", "restore"] {
        let error = misbehave(&plugin, &host, &limits(), export, "invalid").await;
        assert!(matches!(&error, OperatorError::Invalid(why) if why == "not so"), "{error}");
    }
    let error = misbehave(&plugin, &host, &limits(), "advance", "fatal").await;
    assert!(matches!(&error, OperatorError::Fatal(why) if why == "no more"), "{error}");
    let error = misbehave(&plugin, &host, &limits(), "advance", "long-failure").await;
    assert!(matches!(&error, OperatorError::Fatal(why) if why.len() < 5_000 && why.ends_with('…')), "{error}");
}

#[tokio::test]
async fn a_call_that_is_dropped_half_way_ends_the_instance_and_no_later_call_hangs() {
    let host = host(2);
    let plugin = hostile(&host).await;
    let slow = LimitsSpec { cpu: Duration::from_secs(3_600), ..limits() };
    for export in ["process", "snapshot"] {
        let config = serde_json::json!({ "do": "spin", "in": export });
        let mut operator = plugin.open(&slow, &config, &task("node")).await.expect("opens");
        {
            let mut out = Output::default();
            let mut call = std::pin::pin!(call(&mut *operator, export, &mut out));
            // It spins, so the first poll ends with the first tick, and the future is dropped.
            assert!(
                std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context))).await.is_pending()
            );
        }
        let error = operator.advance(2, 1, &mut Output::default()).await.expect_err("it has ended");
        assert!(matches!(&error, OperatorError::Fatal(why) if why.contains("given up")), "{error}");
        assert_eq!(host.instances(), 0, "its place went back");
    }
}

#[tokio::test]
async fn places_go_back_and_one_instance_too_many_is_refused_with_the_number() {
    let host = host(2);
    let plugin = hostile(&host).await;
    let config = serde_json::json!({});
    let _one = plugin.open(&limits(), &config, &task("one")).await.expect("the first");
    for round in 0..50 {
        let mut two = plugin.open(&limits(), &config, &task("two")).await.expect("the second");
        let mut out = Output::default();
        two.process(round, 0, &two_records(), &mut out).await.expect("works");
    }
    let _two = plugin.open(&limits(), &config, &task("two")).await.expect("the second");
    let error = plugin.open(&limits(), &config, &task("three")).await.err().expect("no place for a third");
    let text = "plugin crossed its limit of 2 plugin instances in one process in open: 3";
    assert_eq!(error.to_string(), text);
    assert_eq!(host.instances(), 2);
}

#[tokio::test]
async fn rejected_records_come_with_their_reasons_in_order_and_wake_at_is_the_earliest() {
    let host = host(2);
    let plugin = hostile(&host).await;
    let config = serde_json::json!({ "do": "reject" });
    let mut operator = plugin.open(&limits(), &config, &task("node")).await.expect("opens");
    let mut out = Output::default();
    operator.process(1, 0, &two_records(), &mut out).await.expect("works");
    let (rows, reasons) = &out.rejected;
    assert_eq!(reasons, &["odd", "late", "\u{fffd}[2Jeven"]);
    let mut expected = Batch::default();
    expected.push(2, Some(b"b"), None);
    expected.push(0, None, Some(b"v"));
    expected.push(1, Some(b"a"), Some(b"one"));
    assert_eq!(*rows, expected);
    assert_eq!(rows.validate(), Ok(()));

    let config = serde_json::json!({ "do": "wake-at" });
    let mut operator = plugin.open(&limits(), &config, &task("node")).await.expect("opens");
    operator.process(100, 0, &two_records(), &mut out).await.expect("works");
    assert_eq!(out.wake_at, Some(103));
}

#[tokio::test]
async fn what_comes_in_goes_out_unchanged_and_more_asks_for_resume() {
    let host = host(3);
    let plugin = hostile(&host).await;
    let mut operator = plugin.open(&limits(), &serde_json::Value::Null, &task("node")).await.expect("opens");
    let mut out = Output::default();
    operator.process(1, 0, &two_records(), &mut out).await.expect("works");
    assert_eq!(out.emitted, [(0, Batch { hashes: Vec::new(), ..two_records() })]);
    assert!(!out.more);
    let config = serde_json::json!({ "do": "more" });
    let mut operator = plugin.open(&limits(), &config, &task("node")).await.expect("opens");
    let mut out = Output::default();
    operator.process(1, 0, &two_records(), &mut out).await.expect("works");
    assert!(out.more);
    operator.resume(1, &mut out).await.expect("works");
    assert!(!out.more);
    let config = serde_json::json!({ "do": "empty-batch" });
    let mut operator = plugin.open(&limits(), &config, &task("node")).await.expect("opens");
    let mut out = Output::default();
    operator.process(1, 0, &two_records(), &mut out).await.expect("works");
    assert!(out.emitted.is_empty(), "a batch without records is dropped");
}

#[tokio::test]
async fn state_that_was_written_is_restored_and_a_snapshot_may_take_several_calls() {
    let host = host(3);
    let plugin = hostile(&host).await;
    let config = serde_json::json!({ "do": "in-steps", "in": "snapshot" });
    let mut operator = plugin.open(&limits(), &config, &task("node")).await.expect("opens");
    let mut out = Output::default();
    for _ in 0..3 {
        operator.process(1, 0, &two_records(), &mut out).await.expect("works");
    }
    let mut chunks = Chunks::default();
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(operator.snapshot(Epoch(4), SnapshotMode::Full, &mut chunks).await.expect("works"));
    }
    assert_eq!(steps, [false, false, true]);
    let written = (Scope::Subtask, SegmentKind::Base, 3u64.to_le_bytes().to_vec());
    assert_eq!(chunks.0, [written.clone(), written.clone(), written]);

    let mut restored = plugin.open(&limits(), &serde_json::Value::Null, &task("node")).await.expect("opens");
    restored.restore(1, vec![chunk(3u64.to_le_bytes())]).await.expect("takes it over");
    restored.process(1, 0, &two_records(), &mut out).await.expect("works");
    let mut chunks = Chunks::default();
    assert!(restored.snapshot(Epoch(1), SnapshotMode::Incremental, &mut chunks).await.expect("works"));
    assert_eq!(chunks.0[0].2, 4u64.to_le_bytes());
    let error = restored.restore(1, vec![chunk("abc")]).await.expect_err("three bytes are no count");
    assert!(matches!(error, OperatorError::Invalid(_)), "{error}");
}

#[tokio::test]
async fn without_snapshot_code_state_is_an_image_and_without_state_there_is_nothing_to_save() {
    let host = host(2);
    let plugin = host.load(&guest("plain")).await.expect("the plain guest is a plugin");
    assert!(!plugin.has_snapshot_code());
    let mut operator = plugin.open(&limits(), &serde_json::Value::Null, &task("node")).await.expect("opens");
    let mut chunks = Chunks::default();
    assert!(operator.snapshot(Epoch(1), SnapshotMode::Full, &mut chunks).await.expect("it has no state"));
    assert!(chunks.0.is_empty());
    operator.restore(0, Vec::new()).await.expect("there is nothing to restore");
    let error = operator.restore(0, vec![chunk("x")]).await.expect_err("it cannot read state");
    assert!(error.to_string().contains("cannot restore state"), "{error}");
    let mut out = Output::default();
    operator.process(1, 0, &two_records(), &mut out).await.expect("works");
    assert_eq!(out.emitted.len(), 1);

    let plugin = host.load(&told_to("plain", "plain-state=", "some")).await.expect("it is a plugin");
    let mut operator = plugin.open(&limits(), &serde_json::Value::Null, &task("node")).await.expect("opens");
    assert!(operator.snapshot(Epoch(1), SnapshotMode::Full, &mut chunks).await.expect("its memory is saved"));
    let image =
        |(scope, kind, _): &(Scope, SegmentKind, Vec<u8>)| (*scope, *kind) == (Scope::Subtask, SegmentKind::Base);
    assert!(!chunks.0.is_empty() && chunks.0.iter().all(image), "{:?}", chunks.0.len());
    let error = operator.restore(0, vec![chunk("x")]).await.expect_err("this is no image");
    assert!(matches!(&error, OperatorError::Unfit(what) if what.contains("no image")), "{error}");
}

#[tokio::test]
async fn log_lines_and_metrics_beyond_their_limits_are_dropped_and_the_guest_goes_on() {
    let host = host(2);
    let plugin = hostile(&host).await;
    for what in ["many-lines", "long-line", "metrics"] {
        let generous = LimitsSpec { cpu: Duration::from_secs(60), ..limits() };
        let config = serde_json::json!({ "do": what });
        let mut operator = plugin.open(&generous, &config, &task("node")).await.expect("opens");
        operator.process(1, 0, &two_records(), &mut Output::default()).await.expect("goes on");
    }
    let metrics = host.metrics();
    assert_eq!(metrics.len(), 256);
    let one = &metrics[0];
    assert_eq!((one.job.as_str(), one.node.as_str(), one.name.as_str()), ("job", "node", "series_0"));
    assert_eq!(one.value, MetricValue::Counter(2), "a gauge of the same name changed nothing");
    host.forget_metrics("job");
    assert!(host.metrics().is_empty());
}

#[tokio::test]
async fn a_configuration_that_is_no_object_is_refused_before_the_plugin_sees_it() {
    let host = host(2);
    let plugin = hostile(&host).await;
    let error = plugin.open(&limits(), &serde_json::json!([1]), &task("node")).await.err().expect("refused");
    assert_eq!(error.to_string(), "plugin refuses: config must be an object and is [1]");
}

#[tokio::test]
async fn what_is_no_plugin_is_refused_with_a_remedy() {
    let host = host(2);
    for bytes in [&b""[..], b"hello", b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"] {
        let error = host.load(bytes).await.expect_err("it is no plugin");
        assert!(matches!(error, PluginError::Component(_)), "{error:?}");
        assert!(!error.remedy().is_empty());
    }
}

#[tokio::test]
async fn a_planted_entry_of_the_cache_is_ignored_and_replaced() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = HostOptions { cache_dir: Some(folder.path().to_owned()), instances_max: 2, ..HostOptions::default() };
    let host = PluginHost::new(options.clone()).expect("a host");
    hostile(&host).await;
    let entry = || {
        let files = std::fs::read_dir(folder.path()).expect("the folder is there").flatten();
        let mut entries = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|ext| ext == "bin"));
        entries.next().expect("one entry")
    };
    let mut planted = std::fs::read(entry()).expect("can be read");
    *planted.last_mut().expect("it is not empty") ^= 1;
    std::fs::write(entry(), &planted).expect("can be written");
    let plugin = hostile(&PluginHost::new(options).expect("a host")).await;
    assert_ne!(std::fs::read(entry()).expect("can be read"), planted);
    plugin.open(&limits(), &serde_json::Value::Null, &task("node")).await.expect("what was compiled anew works");
}
