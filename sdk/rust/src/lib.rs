//! Write weir operators in Rust.

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
