//! Counts all records that come in, in versions whose states are of different formats: version 1 keeps eight bytes, the others a text, and
//! read both. Each record that goes out says the version and the count so far.
//!
//! Version 3 traps when it is asked for its state, version 4 does not take any back, and version 5 is slow. Others do as version 2 does.

use std::cell::Cell;

use exports::weir::plugin::{checkpoint, processor};
use weir::plugin::types::{Batch, Descriptor, Failure, FailureKind, Port, Progress, StateKind};
use weir::plugin::{output, snapshots};

wit_bindgen::generate!({ world: "stateful-operator", path: "../../../wit" });

/// Which version it is; a test writes another digit over the one that the component holds.
#[used]
static VERSION: [u8; 18] = *b"versioned-version1";

thread_local! {
    static TOTAL: Cell<u64> = const { Cell::new(0) };
}

struct Versioned;

export!(Versioned);

fn version() -> u32 {
    let word: Vec<u8> = VERSION.iter().map(|byte| unsafe { std::ptr::read_volatile(byte) }).collect();
    u32::from(word[17] - b'0')
}

fn state_version() -> u32 {
    version().min(2)
}

impl processor::Guest for Versioned {
    fn describe() -> Descriptor {
        let port = |name: &str| Port { name: name.to_owned(), summary: String::new(), keyed: false };
        Descriptor {
            name: "versioned".to_owned(),
            version: format!("{}.0.0", version()),
            summary: "counts records".to_owned(),
            inputs: vec![port("in")],
            outputs: vec![port("out")],
            state: StateKind::Whole,
            state_version: state_version(),
            oldest_state_version: 1,
            config_schema: None,
            attributes: Vec::new(),
        }
    }

    fn open(_config: String, _task: processor::TaskInfo) -> Result<(), Failure> {
        Ok(())
    }

    fn process(_port: u32, input: Batch) -> Result<Progress, Failure> {
        if version() == 5 {
            let spun = (0..40_000_000_u64).fold(0, |sum, i| std::hint::black_box(sum ^ i));
            std::hint::black_box(spun);
        }
        let (mut value_offsets, mut values) = (vec![0], Vec::new());
        for _ in &input.timestamps {
            TOTAL.set(TOTAL.get() + 1);
            let text = format!("{{\"version\":{},\"total\":{}}}", version(), TOTAL.get());
            values.extend_from_slice(text.as_bytes());
            value_offsets.push(values.len() as u32);
        }
        output::emit(0, &Batch { value_offsets, values, value_nulls: Vec::new(), ..input });
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

impl checkpoint::Guest for Versioned {
    fn snapshot(_epoch: u64, _mode: checkpoint::SnapshotMode) -> Result<Progress, Failure> {
        if version() == 3 {
            panic!("version 3 has no state to show");
        }
        let data = match version() {
            1 => TOTAL.get().to_le_bytes().to_vec(),
            _ => format!("total {}", TOTAL.get()).into_bytes(),
        };
        let target = snapshots::Segment { scope: snapshots::Scope::Subtask, kind: snapshots::SegmentKind::Base };
        snapshots::write(target, &data);
        Ok(Progress::Done)
    }

    fn restore(state_version: u32) -> Result<(), Failure> {
        let invalid = || Failure { kind: FailureKind::Invalid, message: "this is not its state".to_owned() };
        if version() == 4 {
            return Err(invalid());
        }
        while let Some(chunk) = snapshots::read() {
            let total = match state_version {
                1 => chunk.data.try_into().ok().map(u64::from_le_bytes),
                _ => std::str::from_utf8(&chunk.data).ok().and_then(|text| text.strip_prefix("total ")?.parse().ok()),
            };
            TOTAL.set(total.ok_or_else(invalid)?);
        }
        Ok(())
    }
}
