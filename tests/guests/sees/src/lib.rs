//! An operator that looks: at each call it asks for the word in its configuration, `{"see":"wall"}`, and says or keeps the number that it
//! gets: `"say"` lets it emit a record with the number for each record that comes, and `"keep"` lets it remember the sum of all
//! numbers as its state. Without a configuration it hands on what comes and counts the batches.

use std::cell::{Cell, RefCell};

use exports::weir::plugin::{checkpoint, processor};
use wasi::clocks::{monotonic_clock, wall_clock};
use wasi::random::{insecure, insecure_seed, random};
use weir::plugin::types::{Batch, Descriptor, Failure, FailureKind, Port, Progress, StateKind};
use weir::plugin::{output, snapshots, timers};

wit_bindgen::generate!({ world: "test:sees/sees", path: ["../../../wit", "wit"], generate_all });

thread_local! {
    static SEE: RefCell<String> = const { RefCell::new(String::new()) };
    static SAY: Cell<bool> = const { Cell::new(false) };
    static KEEP: Cell<bool> = const { Cell::new(false) };
    static OPENED: Cell<u64> = const { Cell::new(0) };
    static SUM: Cell<u64> = const { Cell::new(0) };
}

struct Sees;

export!(Sees);

fn look() -> u64 {
    SEE.with_borrow(|word| match word.as_str() {
        "wall" => {
            let now = wall_clock::now();
            now.seconds * 1_000_000 + u64::from(now.nanoseconds / 1_000)
        }
        "monotonic" => monotonic_clock::now(),
        "timers" => timers::now() as u64,
        "random" => random::get_random_u64(),
        "bytes" => random::get_random_bytes(11).iter().fold(0, |sum, byte| sum * 31 + u64::from(*byte)),
        "insecure" => insecure::get_insecure_random_u64(),
        "seed" => insecure_seed::insecure_seed().0,
        _ => 1,
    })
}

impl processor::Guest for Sees {
    fn describe() -> Descriptor {
        let port = |name: &str| Port { name: name.to_owned(), summary: String::new(), keyed: false };
        Descriptor {
            name: "sees".to_owned(),
            version: "1.0.0".to_owned(),
            summary: "looks at clocks and randomness".to_owned(),
            inputs: vec![port("in")],
            outputs: vec![port("out")],
            state: StateKind::Whole,
            state_version: 1,
            oldest_state_version: 1,
            config_schema: None,
            attributes: Vec::new(),
        }
    }

    fn open(config: String, _task: processor::TaskInfo) -> Result<(), Failure> {
        let word = config.split_once("\"see\":\"").and_then(|(_, after)| after.split_once('"'));
        SEE.set(word.map_or(String::new(), |(word, _)| word.to_owned()));
        SAY.set(config.contains("\"say\":true"));
        KEEP.set(config.contains("\"keep\":true"));
        // Whatever it is, it is the same in every run, and takes nothing from what comes later.
        OPENED.set(look());
        Ok(())
    }

    fn process(_port: u32, input: Batch) -> Result<Progress, Failure> {
        let seen = look();
        let kept = if KEEP.get() { seen } else { 1 };
        SUM.set(SUM.get().wrapping_add(kept));
        if !SAY.get() {
            output::emit(0, &input);
            return Ok(Progress::Done);
        }
        let value = format!("{{\"seen\":{seen},\"opened\":{}}}", OPENED.get());
        let rows = input.timestamps.len();
        let batch = Batch {
            timestamps: input.timestamps,
            hashes: Vec::new(),
            key_offsets: Vec::new(),
            keys: Vec::new(),
            key_nulls: Vec::new(),
            value_offsets: (0..=rows).map(|row| (row * value.len()) as u32).collect(),
            values: value.repeat(rows).into_bytes(),
            value_nulls: Vec::new(),
            header_offsets: Vec::new(),
            headers: Vec::new(),
        };
        output::emit(0, &batch);
        Ok(Progress::Done)
    }

    fn advance(_watermark: i64) -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn wake() -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn finish(_port: u32) -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn resume() -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }
}

impl checkpoint::Guest for Sees {
    fn snapshot(_epoch: u64, _mode: checkpoint::SnapshotMode) -> Result<Progress, Failure> {
        // What a snapshot looks at is not to shift what later calls see.
        look();
        let segment = snapshots::Segment { scope: snapshots::Scope::Subtask, kind: snapshots::SegmentKind::Base };
        snapshots::write(segment, &SUM.get().to_le_bytes());
        Ok(Progress::Done)
    }

    fn restore(_state_version: u32) -> Result<(), Failure> {
        look();
        while let Some(chunk) = snapshots::read() {
            let bytes = chunk
                .data
                .try_into()
                .map_err(|_| Failure { kind: FailureKind::Invalid, message: "the state is not a number".to_owned() })?;
            SUM.set(u64::from_le_bytes(bytes));
        }
        Ok(())
    }
}
