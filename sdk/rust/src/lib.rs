//! Write weir operators in Rust.
//!
//! [weir](https://github.com/weir-stream/weir) is a stream runtime whose operators are WebAssembly components with exactly-once state.
//! An operator is a type that implements [`Operator`], and [`Stateful`] if it keeps state of its own; [`export!`] makes a
//! component of it. It needs no file, no socket and no clock: batches come in, batches go out, and what it remembers lies in its fields.
//!
//! # A whole operator
//!
//! The running mean of a JSON field by key, with state that survives crashes, upgrades and rescaling:
//!
//! ```
//! use weir_sdk::state::{KeyedState, Postcard, Segments};
//! use weir_sdk::{
//!     BatchBuilder, BatchView, Cut, Descriptor, Failure, Operator, Output, Progress, SnapshotReader, SnapshotWriter,
//!     StateKind, Stateful, TaskInfo, json,
//! };
//!
//! #[derive(serde::Deserialize)]
//! struct Reading {
//!     degrees: f64,
//! }
//!
//! #[derive(Default, serde::Serialize, serde::Deserialize)]
//! struct Sum {
//!     readings: u64,
//!     degrees: f64,
//! }
//!
//! struct Mean {
//!     sums: KeyedState<Postcard<Sum>>,
//!     segments: Segments,
//!     out: BatchBuilder,
//! }
//!
//! impl Operator for Mean {
//!     fn descriptor() -> Descriptor {
//!         Descriptor::new("mean", "1.0.0")
//!             .summary("The mean of all readings of a sensor so far.")
//!             .keyed_input("in", "readings by sensor")
//!             .keyed_output("out", "the mean so far, one record for each that came in")
//!             .state(StateKind::Keyed, 1)
//!     }
//!
//!     fn open(_config: &str, task: &TaskInfo) -> Result<Self, Failure> {
//!         Ok(Self { sums: KeyedState::new("sums", task), segments: Segments::new(task), out: BatchBuilder::new() })
//!     }
//!
//!     fn process(&mut self, _port: u32, batch: BatchView<'_>, out: &mut Output) -> Result<Progress, Failure> {
//!         self.out.clear();
//!         for record in batch.records() {
//!             let (Some(key), Ok(reading)) = (record.keyed(), record.json::<Reading>()) else {
//!                 out.reject(record.index(), "not a reading with a sensor as its key");
//!                 continue;
//!             };
//!             let sum = self.sums.value(key);
//!             sum.readings += 1;
//!             sum.degrees += reading.degrees;
//!             let mean = sum.degrees / sum.readings as f64;
//!             self.out.push_with(record.time(), record.key(), |value| json::push_number(value, mean));
//!         }
//!         out.emit(0, &self.out);
//!         Ok(Progress::Done)
//!     }
//! }
//!
//! impl Stateful for Mean {
//!     fn snapshot(&mut self, cut: Cut, writer: &mut SnapshotWriter) -> Result<Progress, Failure> {
//!         self.segments.snapshot(cut, writer, &mut [&mut self.sums])
//!     }
//!
//!     fn restore(&mut self, _state_version: u32, reader: &mut SnapshotReader) -> Result<(), Failure> {
//!         self.segments.restore(reader, &mut [&mut self.sums])
//!     }
//! }
//!
//! weir_sdk::export!(Mean);
//!
//! // And its test, which needs neither weir nor WebAssembly:
//! use weir_sdk::testing::{Harness, Row};
//!
//! let mut harness = Harness::<Mean>::new("{}").unwrap();
//! harness.process(0, &[Row::new("attic", r#"{"degrees":20}"#).at(1), Row::new("attic", "hot")]).unwrap();
//! assert_eq!(harness.take(0), [Row::new("attic", "20.0").at(1)]);
//! assert_eq!(harness.take_rejected().len(), 1);
//!
//! let checkpoint = harness.snapshot().unwrap();
//! let mut restored = Harness::<Mean>::restore("{}", &checkpoint).unwrap();
//! restored.process(0, &[Row::new("attic", r#"{"degrees":30}"#)]).unwrap();
//! assert_eq!(restored.take(0), [Row::new("attic", "25.0")]);
//! ```
//!
//! # Where to look
//!
//! - [`Operator`], [`Stateful`]: what the host calls, and when.
//! - [`BatchView`], [`Record`], [`batch::Column`]: what comes in, without a copy. [`BatchBuilder`], [`Output`]: what goes out.
//! - [`state`]: values by key, values by key and window, timers, and their snapshots.
//! - [`json`], [`Record::json`], [`BatchBuilder::push_json`], and the same for postcard: typed values (features `json` and `postcard`).
//! - [`mod@log`], [`metrics`], [`time`]: the other things that the host offers.
//! - [`testing`]: an operator in plain `cargo test`.
//!
//! # Rules that the compiler cannot check
//!
//! The host re-executes calls to recover and to verify, so the same calls must lead to the same results, to the bit: no `HashMap` whose order
//! reaches the output (the collections of [`state`] are ordered by what they hold), no address, no state outside of the operator. A call that
//! returns [`Failure::retry`] has changed nothing. A panic ends the instance: the host starts a new one from the last
//! checkpoint, and the message is in its log.
//!
//! # Building
//!
//! `crate-type = ["cdylib", "rlib"]` and `weir plugin build`, which compiles for `wasm32-unknown-unknown` and makes a component of the result;
//! it imports nothing but weir's own interfaces.

pub mod batch;
#[doc(hidden)]
pub mod bindings;
mod descriptor;
#[doc(hidden)]
pub mod export;
mod host;
#[cfg(feature = "json")]
pub mod json;
pub mod log;
pub mod metrics;
#[cfg(not(target_arch = "wasm32"))]
pub mod native;
mod operator;
mod output;
pub mod snapshot;
pub mod state;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
pub mod time;

pub use batch::{BatchBuilder, BatchView, END_OF_TIME, NO_TIME, Record, Timestamp, key_group, key_hash};
pub use bindings::SnapshotMode;
pub use descriptor::{Descriptor, StateKind};
pub use operator::{Cut, Failure, FailureKind, Operator, Progress, Stateful, TaskInfo};
pub use output::Output;
pub use snapshot::{Scope, SegmentKind, SnapshotReader, SnapshotWriter};

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that `wit/types.wit` promises.
    #[test]
    fn key_hash_and_key_group_match_the_vectors_of_the_contract() {
        let groups = [1, 2, 7, 128, 256, 4096, 32_768];
        for (key, hash, expected) in [
            ("", 0x2d06_8005_38d3_94c2, [0, 1, 3, 64, 128, 2048, 16_386]),
            ("a", 0xe6c6_32b6_1e96_4e1f, [0, 0, 1, 25, 50, 811, 6491]),
            ("abc", 0x78af_5f94_892f_3950, [0, 0, 2, 47, 95, 1529, 12_234]),
        ] {
            assert_eq!(key_hash(key.as_bytes()), hash, "hash of {key:?}");
            assert_eq!(groups.map(|groups| key_group(hash, groups)), expected, "groups of {key:?}");
        }
    }
}
