//! An operator that misbehaves as its configuration says: `{"do": "spin", "in": "process"}`.
//!
//! It is written against the bare bindings, without an SDK, since it does what no SDK lets one do. Without a
//! configuration it behaves: it hands on what comes in, and its state is how many batches that were.

use std::alloc::{Layout, alloc};
use std::cell::{Cell, RefCell};
use std::hint::black_box;

use exports::weir::plugin::{checkpoint, processor};
use weir::plugin::types::{Batch, Descriptor, Failure, FailureKind, Port, Progress, StateKind};
use weir::plugin::{log, metrics, output, snapshots, timers};

wit_bindgen::generate!({ world: "stateful-operator", path: "../../../wit" });

/// What `describe` does; tests write another word over the one that the component holds.
#[used]
static DESCRIBE: [u8; 32] = *b"hostile-describe=ok             ";

/// The imports as core functions, to hand over what the bindings would not.
mod raw {
    #[link(wasm_import_module = "weir:plugin/log@0.1.0")]
    unsafe extern "C" {
        #[link_name = "write"]
        pub fn log(level: i32, text: *const u8, bytes: usize);
    }

    #[link(wasm_import_module = "weir:plugin/output@0.1.0")]
    unsafe extern "C" {
        /// The port, and ten lists, each an address and a number of elements.
        #[link_name = "emit"]
        pub fn emit(arguments: *const [usize; 21]);
    }
}

thread_local! {
    static DO: RefCell<String> = const { RefCell::new(String::new()) };
    static IN: RefCell<String> = const { RefCell::new(String::new()) };
    static BATCHES: Cell<u64> = const { Cell::new(0) };
    static SNAPSHOT_STEPS: Cell<u32> = const { Cell::new(0) };
    static RETRIED: Cell<bool> = const { Cell::new(false) };
}

struct Hostile;

export!(Hostile);

impl processor::Guest for Hostile {
    fn describe() -> Descriptor {
        std::panic::set_hook(Box::new(|info| log::write(log::Level::Error, &info.to_string())));
        let word: Vec<u8> = DESCRIBE.iter().map(|byte| unsafe { std::ptr::read_volatile(byte) }).collect();
        let mut name = "hostile".to_owned();
        match word["hostile-describe=".len()..].trim_ascii() {
            b"panic" => panic!("describe was told to panic"),
            b"spin" => spin(),
            b"hoard" => hoard(),
            b"emit" => output::emit(0, &one_record()),
            b"name" => name = "No Such Name".to_owned(),
            _ => {}
        }
        let port = |name: &str, keyed| Port { name: name.to_owned(), summary: String::new(), keyed };
        Descriptor {
            name,
            version: "1.0.0".to_owned(),
            summary: "misbehaves".to_owned(),
            inputs: vec![port("in", false)],
            outputs: vec![port("out", false), port("keyed", true)],
            state: StateKind::Whole,
            state_version: 1,
            oldest_state_version: 1,
            config_schema: None,
            attributes: Vec::new(),
        }
    }

    fn open(config: String, _task: processor::TaskInfo) -> Result<(), Failure> {
        std::panic::set_hook(Box::new(|info| log::write(log::Level::Error, &info.to_string())));
        let word = |key: &str| {
            let (_, after) = config.split_once(&format!("\"{key}\":\""))?;
            after.split_once('"').map(|(word, _)| word.to_owned())
        };
        DO.set(word("do").unwrap_or_default());
        IN.set(word("in").unwrap_or_else(|| "process".to_owned()));
        act("open", None).map(|_| ())
    }

    fn process(_port: u32, input: Batch) -> Result<Progress, Failure> {
        BATCHES.set(BATCHES.get() + 1);
        act("process", Some(input))
    }

    fn advance(_watermark: i64) -> Result<Progress, Failure> {
        act("advance", None)
    }

    fn wake() -> Result<Progress, Failure> {
        act("wake", None)
    }

    fn finish(_port: u32) -> Result<Progress, Failure> {
        act("finish", None)
    }

    fn resume() -> Result<Progress, Failure> {
        act("resume", None)
    }
}

impl checkpoint::Guest for Hostile {
    fn snapshot(_epoch: u64, _mode: checkpoint::SnapshotMode) -> Result<Progress, Failure> {
        let progress = act("snapshot", None)?;
        write(snapshots::Scope::Subtask, snapshots::SegmentKind::Base, &BATCHES.get().to_le_bytes());
        Ok(progress)
    }

    fn restore(_state_version: u32) -> Result<(), Failure> {
        act("restore", None)?;
        if DO.with_borrow(|what| what == "ignore-state") {
            return Ok(());
        }
        while let Some(chunk) = snapshots::read() {
            let Ok(bytes) = chunk.data.try_into() else { return Err(failure(FailureKind::Invalid, "not 8 bytes")) };
            BATCHES.set(u64::from_le_bytes(bytes));
        }
        Ok(())
    }
}

fn failure(kind: FailureKind, message: &str) -> Failure {
    Failure { kind, message: message.to_owned() }
}

fn write(scope: snapshots::Scope, kind: snapshots::SegmentKind, data: &[u8]) {
    snapshots::write(snapshots::Segment { scope, kind }, data);
}

fn one_record() -> Batch {
    batch(&[0, 1], b"v")
}

fn batch(value_offsets: &[u32], values: &[u8]) -> Batch {
    Batch {
        timestamps: vec![0],
        hashes: Vec::new(),
        key_offsets: Vec::new(),
        keys: Vec::new(),
        key_nulls: Vec::new(),
        value_offsets: value_offsets.to_vec(),
        values: values.to_vec(),
        value_nulls: Vec::new(),
        header_offsets: Vec::new(),
        headers: Vec::new(),
    }
}

fn act(export: &str, input: Option<Batch>) -> Result<Progress, Failure> {
    let what = if IN.with_borrow(|it| it == export) { DO.with_borrow(String::clone) } else { String::new() };
    match what.as_str() {
        "drop" => return Ok(Progress::Done),
        "more" => {
            output::emit(0, &one_record());
            return Ok(Progress::More);
        }
        "panic" => panic!("{export} was told to panic"),
        "abort" => core::arch::wasm32::unreachable(),
        "spin" => spin(),
        "recurse" => drop(black_box(recurse(black_box(1)))),
        "recurse-in-memory" => drop(black_box(recurse_in_memory(black_box(1)))),
        "hoard" => hoard(),
        "flood" => loop {
            output::emit(0, &batch(&[0, 1 << 16], &[7; 1 << 16]));
        },
        "flood-with-nothing" => loop {
            output::emit(0, &batch(&[], &[]));
        },
        "one-huge-batch" => output::emit(0, &batch(&[0, 9 << 20], &vec![7; 9 << 20])),
        "monstrous-batch" => output::emit(0, &batch(&[0, 13 << 20], &vec![7; 13 << 20])),
        "unknown-port" => output::emit(7, &one_record()),
        "no-key" => output::emit(1, &one_record()),
        "empty-batch" => output::emit(0, &Batch { timestamps: Vec::new(), ..batch(&[], &[]) }),
        "first-offset" => output::emit(0, &batch(&[1, 1], b"v")),
        "falling-offsets" => output::emit(0, &Batch { timestamps: vec![0; 2], ..batch(&[0, 2, 1], b"v") }),
        "offset-beyond" => output::emit(0, &batch(&[0, 4_000_000_000], b"v")),
        "too-few-offsets" => output::emit(0, &batch(&[0], b"")),
        "null-bits" => output::emit(0, &Batch { value_nulls: vec![2], ..batch(&[0, 1], b"v") }),
        "headers" => output::emit(0, &Batch { header_offsets: vec![0, 3], headers: vec![255; 3], ..one_record() }),
        "list-outside-memory" => raw_emit(|lists| lists[1..3].copy_from_slice(&[0xffff_fff0, 1 << 20])),
        "list-across-the-end" => raw_emit(|lists| lists[1..3].copy_from_slice(&[8, 0x1fff_ffff])),
        "list-unaligned" => raw_emit(|lists| lists[1..3].copy_from_slice(&[9, 1])),
        "bad-utf8" => {
            let bytes = b"not \xff\xfe text";
            unsafe { raw::log(4, bytes.as_ptr(), bytes.len()) }
        }
        "long-line" => log::write(log::Level::Error, &"long ".repeat(100_000)),
        "many-lines" => (0..100_000).for_each(|i| log::write(log::Level::Error, &format!("line {i}"))),
        "metrics" => {
            (0..1_000).for_each(|i| metrics::count(&format!("series_{i}"), 2));
            metrics::gauge("series_0", 1.0);
        }
        "metric-name" => metrics::observe("Not A Name", 1.0),
        "reject-outside" => output::reject(1_000_000, "there is no such record"),
        "reject-twice" => (0..2).for_each(|_| output::reject(0, "again")),
        "reject" => {
            output::reject(1, "odd");
            output::reject_batch(&one_record(), "late");
            output::reject(0, "\u{1b}[2Jeven");
        }
        "reject-flood" => loop {
            output::reject_batch(&one_record(), &"late ".repeat(1_000));
        },
        "emit" => output::emit(0, &one_record()),
        "wake-at" => {
            timers::wake_at(timers::now() + 5);
            timers::wake_at(timers::now() + 3);
            timers::wake_at(timers::now() + 9);
        }
        "write" => write(snapshots::Scope::Subtask, snapshots::SegmentKind::Base, b"x"),
        "read" => drop(snapshots::read()),
        "write-forever" => loop {
            write(snapshots::Scope::Item, snapshots::SegmentKind::Base, &[7; 1 << 16]);
        },
        "write-nothing-forever" => loop {
            write(snapshots::Scope::Item, snapshots::SegmentKind::Base, &[]);
        },
        "huge-chunk" => write(snapshots::Scope::Item, snapshots::SegmentKind::Base, &vec![7; 17 << 20]),
        "foreign-group" => write(snapshots::Scope::KeyGroup(64), snapshots::SegmentKind::Base, b"x"),
        "delta" => write(snapshots::Scope::Subtask, snapshots::SegmentKind::Delta, b"x"),
        "in-steps" => {
            SNAPSHOT_STEPS.set(SNAPSHOT_STEPS.get() + 1);
            return Ok(if SNAPSHOT_STEPS.get() < 3 { Progress::More } else { Progress::Done });
        }
        "retry-once" if !RETRIED.replace(true) => {
            output::emit(0, &one_record());
            return Err(failure(FailureKind::Retry, "not now"));
        }
        "retry" => return Err(failure(FailureKind::Retry, "not now")),
        "invalid" => return Err(failure(FailureKind::Invalid, "not so")),
        "fatal" => return Err(failure(FailureKind::Fatal, "no more")),
        "long-failure" => return Err(failure(FailureKind::Fatal, &"why ".repeat(1 << 20))),
        _ => {
            if let Some(input) = input {
                output::emit(0, &input);
            }
        }
    }
    Ok(Progress::Done)
}

fn spin() -> ! {
    loop {
        black_box(0);
    }
}

fn hoard() -> ! {
    loop {
        // SAFETY: the layout is not empty.
        black_box(unsafe { alloc(Layout::new::<[u8; 1 << 20]>()) });
    }
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    if depth == 0 { 1 } else { recurse(black_box(depth + 1)) ^ depth }
}

#[inline(never)]
fn recurse_in_memory(depth: u64) -> u64 {
    let mut frame = [depth; 1_024];
    black_box(&mut frame);
    if depth == 0 { 1 } else { recurse_in_memory(black_box(depth + 1)) ^ frame[7] }
}

/// Emits one record whose lists `lie` may move elsewhere.
fn raw_emit(lie: impl FnOnce(&mut [usize; 21])) {
    let times = [0i64];
    let mut lists = [0; 21];
    // Empty lists need an address, too.
    for list in lists[1..].chunks_exact_mut(2) {
        list[0] = 8;
    }
    lists[1] = times.as_ptr() as usize;
    lists[2] = 1;
    lie(&mut lists);
    // SAFETY: none; that is the point.
    unsafe { raw::emit(&lists) }
}
