//! The operator of `plugins/count` without a line of snapshot code: its counts lie in a map of the standard library, and the host takes
//! images of its memory.
//!
//! Its configuration fills memory that holds nothing (`ballast`, in bytes), so that a test can make an image of any size.

use std::collections::HashMap;

use weir_sdk::batch::ColumnBuilder;
use weir_sdk::{BatchBuilder, BatchView, Descriptor, Failure, Operator, Output, Progress, StateKind, TaskInfo, json};

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    ballast: usize,
}

/// With everything in it escaped it fits a value.
const KEY_BYTES_MAX: usize = 1 << 20;

struct Count {
    counts: HashMap<Vec<u8>, u64>,
    /// Grows with every batch, so that an image has pages that no count is on.
    batches: Vec<u64>,
    ballast: Vec<u64>,
}

impl Operator for Count {
    fn descriptor() -> Descriptor {
        Descriptor::new("simple-count", env!("CARGO_PKG_VERSION"))
            .summary("Counts records by key, without snapshot code.")
            .keyed_input("in", "what is counted")
            .keyed_output("out", "the count so far, one record for each that came in")
            .state(StateKind::Keyed, 1)
    }

    fn open(config: &str, _: &TaskInfo) -> Result<Self, Failure> {
        let config: Config = json::config(config)?;
        let ballast = (0..config.ballast as u64 / 8).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).collect();
        Ok(Self { counts: HashMap::new(), batches: Vec::new(), ballast })
    }

    fn process(&mut self, _: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        self.batches.push(batch.len() as u64);
        if let Some(word) = self.ballast.first_mut() {
            *word += 1;
        }
        let mut keyed = BatchBuilder::new();
        let mut values = ColumnBuilder::new();
        for record in batch.records() {
            let Some(key) = record.key().filter(|key| key.len() <= KEY_BYTES_MAX) else {
                out.reject(record.index(), "the record has no key to count by, or one that does not fit a JSON value");
                continue;
            };
            let count = self.counts.entry(key.to_vec()).or_default();
            *count += 1;
            keyed.push_record(&record);
            values.push_with(|to| json_value(key, *count, to));
        }
        out.emit(0, keyed.view().with_values(values.view()));
        Ok(Progress::Done)
    }
}

/// `{"key":…,"count":…}`, as `plugins/count` writes it.
fn json_value(key: &[u8], count: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(b"{\"key\":");
    json::push_text(to, &String::from_utf8_lossy(key));
    to.extend_from_slice(b",\"count\":");
    json::push_number(to, count);
    to.push(b'}');
}

weir_sdk::export_simple!(Count);
