//! A noisy neighbour for `make bench-serve`: its state is new with each checkpoint, and as large as its configuration
//! says, `{"mib":1000}`. The bytes are noise, so that they neither compress nor are there already. Of the stream it
//! takes everything and says nothing.

use weir_sdk::batch::BatchView;
use weir_sdk::{
    Cut, Descriptor, Failure, Operator, Output, Progress, Scope, SegmentKind, SnapshotReader, SnapshotWriter,
    StateKind, Stateful, TaskInfo,
};

/// What is written at once, the most that a chunk may have.
const CHUNK_BYTES: usize = 1 << 20;

/// See above.
#[derive(Debug)]
pub struct Dump {
    chunks: u32,
    /// Of the snapshot that is being written: its epoch and how many chunks it has.
    written: (u64, u32),
    noise: u64,
    chunk: Vec<u8>,
}

impl Dump {
    fn fill(&mut self) {
        for eight in self.chunk.chunks_exact_mut(8) {
            self.noise = self.noise.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.noise;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z ^= z >> 27;
            eight.copy_from_slice(&z.to_le_bytes());
        }
    }
}

impl Operator for Dump {
    fn descriptor() -> Descriptor {
        Descriptor::new("bench-dump", env!("CARGO_PKG_VERSION"))
            .input("in", "whatever comes")
            .state(StateKind::Whole, 1)
    }

    fn open(config: &str, _task: &TaskInfo) -> Result<Self, Failure> {
        let digits: String = config.chars().filter(char::is_ascii_digit).collect();
        let chunks = digits.parse().map_err(|_| {
            Failure::invalid(format!("the configuration is {config}, and has to be like {{\"mib\":1000}}"))
        })?;
        Ok(Self { chunks, written: (0, 0), noise: 0, chunk: vec![0; CHUNK_BYTES] })
    }

    fn process(&mut self, _port: u32, _batch: BatchView<'_>, _out: &mut Output) -> Result<Progress, Failure> {
        Ok(Progress::Done)
    }
}

impl Stateful for Dump {
    fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
        if self.written.0 != cut.epoch {
            self.written = (cut.epoch, 0);
            // Another process may have written this much noise before: what follows has to be new.
            self.noise = self.noise.wrapping_add(cut.epoch << 40);
        }
        while self.written.1 < self.chunks {
            self.fill();
            self.written.1 += 1;
            if !writer.write(Scope::Subtask, SegmentKind::Base, &self.chunk) && self.written.1 < self.chunks {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn restore(&mut self, _state_version: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
        reader.for_each(drop);
        Ok(())
    }
}

weir_sdk::export!(Dump);
