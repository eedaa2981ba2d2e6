//! Operators for weir in Zig.
//!
//! An operator is a struct called `Operator`, in the file that is named as the entry of the plugin:
//!
//!     const weir = @import("weir");
//!
//!     pub const Operator = struct {
//!         pub const descriptor: weir.Descriptor = .{
//!             .name = "count",
//!             .version = "0.1.0",
//!             .inputs = &.{.{ .name = "in", .keyed = true }},
//!             .outputs = &.{.{ .name = "out", .keyed = true }},
//!             .state = .keyed,
//!             .state_version = 1,
//!         };
//!
//!         counts: weir.KeyedState(u64), // state: part of every snapshot, by the name of the field
//!
//!         pub fn open(config: []const u8, task: *const weir.Task) weir.Error!Operator { ... }
//!         pub fn process(op: *Operator, port: u32, batch: *const weir.Batch, out: weir.Output) weir.Error!weir.Progress { ... }
//!     };
//!
//! `advance(op, watermark, out)`, `wake(op, out)`, `finish(op, port, out)`, `resume(op, out)` and `restored(op, state_version)` are called where they are there. The host
//! makes one call at a time, and a call is a transaction: what it emits takes effect when it goes well. What an operator remembers lies in its struct.
//!
//! The same calls must lead to the same results: take time from `now` and randomness from `Task.seed`, and do not let addresses or
//! undefined bytes reach output or state.

const batches = @import("src/batch.zig");
const operator = @import("src/operator.zig");
const host = @import("src/host.zig");

pub const Batch = batches.Batch;
pub const BatchBuilder = batches.BatchBuilder;
pub const Column = batches.Column;
pub const Record = batches.Record;
pub const Key = batches.Key;
pub const keyGroup = batches.keyGroup;
pub const no_time = batches.no_time;
pub const end_of_time = batches.end_of_time;

pub const Descriptor = operator.Descriptor;
pub const Port = operator.Port;
pub const Task = operator.Task;
pub const Output = operator.Output;
pub const Progress = operator.Progress;
pub const Error = operator.Error;
pub const fail = operator.fail;
pub const config = operator.config;

pub const KeyedState = @import("src/keyed.zig").KeyedState;
pub const EventTimers = @import("src/timers.zig").EventTimers;
pub const SubtaskValue = @import("src/single.zig").SubtaskValue;
pub const SharedValue = @import("src/single.zig").SharedValue;
pub const codec = @import("src/codec.zig");
pub const Bytes = codec.Bytes;

/// Processing time, when the host began this call; in `open` it is 0.
pub const now = host.now;
/// Asks for a call of `wake` at that time. The host keeps one such time, the earliest, and forgets it when it calls.
pub const wakeAt = host.wakeAt;

/// Numbers for people. A name is 1 to 64 lower-case letters, digits and underscores. Call once a batch, not once a record.
pub const metrics = struct {
    pub const count = host.count;
    pub const gauge = host.gauge;
    pub const observe = host.observe;
};

/// What `std.log` does in a component, and in tests where `std_options` says so.
pub const logFn = @import("src/log.zig").logFn;

/// Runs an operator natively, as the host would.
pub const testing = @import("src/testing.zig");

/// Exports an operator; for the files in `worlds/`.
pub const component = @import("src/component.zig");
