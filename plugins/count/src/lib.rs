//! Counts records by key: for each record that comes in, one goes out with the count so far.
//!
//! Input `in` is keyed. A record without a key is rejected, and so is one whose key is too long for a JSON value. Keys, event times and headers are handed on as they came; only the value is
//! made here. The state is one number a key, so it can be upgraded, rescaled and stored incrementally.

use weir_sdk::batch::ColumnBuilder;
use weir_sdk::state::{KeyedState, Segments};
use weir_sdk::{
    BatchBuilder, BatchView, Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotReader, SnapshotWriter,
    StateKind, Stateful, TaskInfo, json,
};

const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "format": {
      "description": "json: {\"key\": ..., \"count\": ...}; binary: the count as 8 bytes, little-endian",
      "enum": ["json", "binary"],
      "default": "json"
    }
  }
}"#;

/// The longest key that is written as JSON, in bytes: with everything in it escaped it fits a value.
const JSON_KEY_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Format {
    #[default]
    Json,
    Binary,
}

/// A running count by key.
#[derive(Debug)]
pub struct Count {
    format: Format,
    counts: KeyedState<u64>,
    segments: Segments,
    values: ColumnBuilder,
    keyed: BatchBuilder,
}

impl Operator for Count {
    fn descriptor() -> Descriptor {
        Descriptor::new("count", env!("CARGO_PKG_VERSION"))
            .summary("Counts records by key.")
            .keyed_input("in", "what is counted")
            .keyed_output("out", "the count so far, one record for each that came in")
            .state(StateKind::Keyed, 1)
            .config_schema(SCHEMA)
    }

    fn open(config: &str, task: &TaskInfo) -> Result<Self, Failure> {
        let config: Config = json::config(config)?;
        Ok(Self {
            format: config.format,
            counts: KeyedState::new("counts", task),
            segments: Segments::new(task),
            values: ColumnBuilder::new(),
            keyed: BatchBuilder::new(),
        })
    }

    fn process(&mut self, _: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        let longest = if self.format == Format::Json { JSON_KEY_BYTES_MAX } else { usize::MAX };
        if batch.keys().is_full() && batch.keys().bytes().len() <= longest {
            self.count(batch, out);
            return Ok(Progress::Done);
        }
        let mut keyed = std::mem::take(&mut self.keyed);
        keyed.clear();
        for record in batch.records() {
            match record.key() {
                Some(key) if key.len() > longest => {
                    out.reject(record.index(), "the key has more than 1 MiB, which is too much for a JSON value");
                }
                Some(_) => keyed.push_record(&record),
                None => out.reject(record.index(), "the record has no key to count by"),
            }
        }
        if !keyed.is_empty() {
            self.count(keyed.view(), out);
        }
        self.keyed = keyed;
        Ok(Progress::Done)
    }
}

impl Count {
    /// Counts a batch in which every record has a key.
    fn count(&mut self, batch: BatchView<'_>, out: &mut Output) {
        let Self { counts, values, .. } = self;
        values.clear();
        match self.format {
            Format::Binary => {
                let rows = values.fill_fixed::<8>(batch.len());
                counts.update_batch(batch, |row, count| {
                    *count += 1;
                    rows[row] = count.to_le_bytes();
                });
            }
            Format::Json => {
                let keys = batch.keys();
                counts.update_batch(batch, |row, count| {
                    *count += 1;
                    values.push_with(|to| json_value(keys.bytes_at(row), *count, to));
                });
            }
        }
        out.emit(0, batch.with_values(values.view()));
    }
}

/// `{"key":…,"count":…}`; a key that is not UTF-8 with replacement characters.
fn json_value(key: &[u8], count: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(b"{\"key\":");
    json::push_text(to, &String::from_utf8_lossy(key));
    to.extend_from_slice(b",\"count\":");
    json::push_number(to, count);
    to.push(b'}');
}

impl Stateful for Count {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        self.segments.snapshot(cut, writer, &mut [&mut self.counts])
    }

    fn restore(&mut self, _: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        self.segments.restore(reader, &mut [&mut self.counts])
    }
}

weir_sdk::export!(Count);
