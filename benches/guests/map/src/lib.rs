//! The stateless operator of workload W1: each value begins with a 64-bit little-endian number; it is multiplied by 3, 1 is added, and odd
//! results are kept with the rest of the value. With the configuration `{"drop":true}` it takes everything and says nothing, which
//! measures the hand-over alone.

use weir_sdk::batch::{BatchBuilder, BatchView};
use weir_sdk::{
    Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotReader, SnapshotWriter, StateKind, Stateful, TaskInfo,
};

/// See above.
#[derive(Debug)]
pub struct Map {
    drop: bool,
    value: Vec<u8>,
    builder: BatchBuilder,
}

impl Operator for Map {
    fn descriptor() -> Descriptor {
        Descriptor::new("bench-map", env!("CARGO_PKG_VERSION"))
            .input("in", "values that begin with a number")
            .output("out", "number x 3 + 1 where that is odd")
            .state(StateKind::Stateless, 1)
    }

    fn open(config: &str, _task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self { drop: config.contains("drop"), value: Vec::new(), builder: BatchBuilder::new() })
    }

    fn process(&mut self, _port: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        if self.drop {
            return Ok(Progress::Done);
        }
        self.builder.clear();
        for record in batch.records() {
            let Some((number, rest)) = record.value().and_then(|value| value.split_first_chunk::<8>()) else {
                out.reject(record.index(), "the value is shorter than 8 bytes");
                continue;
            };
            let mapped = u64::from_le_bytes(*number).wrapping_mul(3).wrapping_add(1);
            if mapped % 2 == 1 {
                self.value.clear();
                self.value.extend_from_slice(&mapped.to_le_bytes());
                self.value.extend_from_slice(rest);
                self.builder.push(record.time(), record.key(), Some(&self.value));
            }
        }
        out.emit(0, &self.builder);
        Ok(Progress::Done)
    }
}

/// For the bench that runs it natively. The component does not export this.
impl Stateful for Map {
    fn snapshot(&mut self, _: Cut, _: &mut SnapshotWriter) -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }

    fn restore(&mut self, _: u32, _: &mut SnapshotReader) -> Result<(), Failure> {
        Ok(())
    }
}

weir_sdk::export_simple!(Map);
