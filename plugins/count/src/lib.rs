//! Counts records by key.
use std::collections::BTreeMap;
use weir_sdk::*;

/// x
#[derive(Debug)]
pub struct Count {
    counts: BTreeMap<Vec<u8>, u64>,
    values: batch::ColumnBuilder,
}

impl Operator for Count {
    fn descriptor() -> Descriptor {
        Descriptor::new("count", env!("CARGO_PKG_VERSION"))
            .summary("Counts records by key.")
            .keyed_input("in", "what is counted")
            .keyed_output("out", "the count so far, one record for each that came in")
            .state(StateKind::Keyed, 1)
    }
    fn open(_config: &str, _task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self { counts: BTreeMap::new(), values: Default::default() })
    }
    fn process(&mut self, _port: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        self.values.clear();
        for record in batch.records() {
            let n = self.counts.entry(record.key().unwrap_or_default().to_vec()).or_default();
            *n += 1;
            self.values.push_bytes(&n.to_le_bytes());
        }
        out.emit(0, batch.with_values(self.values.view()));
        Ok(Progress::Done)
    }
}

impl Stateful for Count {
    fn snapshot(&mut self, _cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        for (key, n) in &self.counts {
            writer.write(Scope::Item, SegmentKind::Base, &[key.as_slice(), &n.to_le_bytes()].concat());
        }
        Ok(Progress::Done)
    }
    fn restore(&mut self, _version: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        for chunk in reader {
            let (key, n) = chunk.data.split_last_chunk::<8>().ok_or_else(|| Failure::invalid("short chunk"))?;
            self.counts.insert(key.to_vec(), u64::from_le_bytes(*n));
        }
        Ok(())
    }
}

weir_sdk::export!(Count);
