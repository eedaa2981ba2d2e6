//! A running count that writes its state itself, and leaks with every batch as many bytes as its configuration asks for (`leak`); `keep` is taken once, by `open`.
//!
//! A record without a value forgets its key, so that segments vanish.

use weir_sdk::batch::ColumnBuilder;
use weir_sdk::state::{KeyedState, Segments};
use weir_sdk::{
    BatchBuilder, BatchView, Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotReader, SnapshotWriter,
    StateKind, Stateful, TaskInfo, json,
};

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    leak: usize,
    #[serde(default)]
    keep: usize,
}

struct Leaky {
    leak: usize,
    counts: KeyedState<u64>,
    segments: Segments,
}

impl Operator for Leaky {
    fn descriptor() -> Descriptor {
        Descriptor::new("leaky", env!("CARGO_PKG_VERSION"))
            .summary("Counts records by key, and leaks.")
            .keyed_input("in", "what is counted")
            .keyed_output("out", "the count so far, one record for each that came in")
            .state(StateKind::Keyed, 1)
    }

    fn open(config: &str, task: &TaskInfo) -> Result<Self, Failure> {
        let config: Config = json::config(config)?;
        waste(config.keep);
        Ok(Self { leak: config.leak, counts: KeyedState::new("counts", task), segments: Segments::new(task) })
    }

    fn process(&mut self, _: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        waste(self.leak);
        let mut counted = BatchBuilder::new();
        let mut values = ColumnBuilder::new();
        for record in batch.records() {
            let Some(key) = record.key() else {
                out.reject(record.index(), "the record has no key to count by");
                continue;
            };
            let count = if record.value().is_none() {
                self.counts.remove(key);
                0
            } else {
                let count = self.counts.get(key).copied().unwrap_or_default() + 1;
                self.counts.insert(key, count);
                count
            };
            counted.push_record(&record);
            values.push_with(|to| json::push_number(to, count));
        }
        out.emit(0, counted.view().with_values(values.view()));
        Ok(Progress::Done)
    }
}

/// Takes memory and never gives it back.
fn waste(bytes: usize) {
    std::mem::forget(vec![0xa5_u8; bytes]);
}

impl Stateful for Leaky {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        self.segments.snapshot(cut, writer, &mut [&mut self.counts])
    }

    fn restore(&mut self, _: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        self.segments.restore(reader, &mut [&mut self.counts])
    }
}

weir_sdk::export!(Leaky);
