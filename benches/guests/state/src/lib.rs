//! The operator of workload W4: 100 bytes of state for each key, set anew by each record with it. The bytes do not compress. Of each batch
//! it says only that it was there, so that a reader knows when the first record is through.

use weir_sdk::batch::{BatchBuilder, BatchView};
use weir_sdk::state::{KeyedState, Segments, State};
use weir_sdk::{
    Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotReader, SnapshotWriter, StateKind, Stateful, TaskInfo,
};

/// What is kept for a key.
#[derive(Debug)]
pub struct Payload([u8; 100]);

impl Default for Payload {
    fn default() -> Self {
        Self([0; 100])
    }
}

impl State for Payload {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.0);
    }

    fn decode(from: &[u8]) -> Result<Self, String> {
        from.try_into().map(Self).map_err(|_| format!("a payload takes 100 bytes, not {}", from.len()))
    }
}

/// See above.
#[derive(Debug)]
pub struct Payloads {
    state: KeyedState<Payload>,
    segments: Segments,
    records: u64,
    builder: BatchBuilder,
}

impl Operator for Payloads {
    fn descriptor() -> Descriptor {
        Descriptor::new("bench-state", env!("CARGO_PKG_VERSION"))
            .keyed_input("in", "whatever has a key")
            .output("out", "one record for each batch")
            .state(StateKind::Keyed, 1)
    }

    fn open(_config: &str, task: &TaskInfo) -> Result<Self, Failure> {
        Ok(Self {
            state: KeyedState::new("payloads", task),
            segments: Segments::new(task),
            records: 0,
            builder: BatchBuilder::new(),
        })
    }

    fn process(&mut self, _port: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
        let mut next = self.records;
        self.state.update_batch(batch, |_, payload| {
            next += 1;
            let mut noise = next;
            for eight in payload.0.chunks_mut(8) {
                noise = noise.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = noise;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z ^= z >> 27;
                eight.copy_from_slice(&z.to_le_bytes()[..eight.len()]);
            }
        });
        self.records = next;
        self.builder.clear();
        if let Some(first) = batch.records().next() {
            self.builder.push(first.time(), first.key(), first.key());
        }
        out.emit(0, &self.builder);
        Ok(Progress::Done)
    }
}

impl Stateful for Payloads {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        self.segments.snapshot(cut, writer, &mut [&mut self.state])
    }

    fn restore(&mut self, _state_version: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        self.segments.restore(reader, &mut [&mut self.state])
    }
}

weir_sdk::export!(Payloads);
