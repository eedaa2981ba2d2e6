//! One operator at work: the calls from the host. What an operator does not have is not called.

const std = @import("std");
const operator = @import("operator.zig");
const Batch = @import("batch.zig").Batch;
const State = @import("state.zig").State;
const Task = operator.Task;
const Error = operator.Error;
const Progress = operator.Progress;

pub fn Instance(comptime Op: type) type {
    return struct {
        const Self = @This();

        op: Op,
        task: Task,

        /// Makes it at a place where it stays. Takes over the texts of `task`.
        pub fn open(self: *Self, config: []const u8, task: Task) Error!void {
            operator.clearFailure();
            self.task = task;
            self.task.state = try State.create(&self.task);
            errdefer self.task.state.destroy();
            self.op = try Op.open(config, &self.task);
            self.task.state.attach(Op, &self.op);
        }

        pub fn process(self: *Self, port: u32, batch: *const Batch) Error!Progress {
            operator.clearFailure();
            return self.op.process(port, batch, .{});
        }

        pub fn advance(self: *Self, watermark: i64) Error!Progress {
            operator.clearFailure();
            return if (@hasDecl(Op, "advance")) self.op.advance(watermark, .{}) else .done;
        }

        pub fn wake(self: *Self) Error!Progress {
            operator.clearFailure();
            return if (@hasDecl(Op, "wake")) self.op.wake(.{}) else .done;
        }

        pub fn finish(self: *Self, port: u32) Error!Progress {
            operator.clearFailure();
            return if (@hasDecl(Op, "finish")) self.op.finish(port, .{}) else .done;
        }

        pub fn @"resume"(self: *Self) Error!Progress {
            operator.clearFailure();
            return if (@hasDecl(Op, "resume")) self.op.@"resume"(.{}) else .done;
        }

        pub fn snapshot(self: *Self, epoch: u64, full: bool) Error!Progress {
            operator.clearFailure();
            return self.task.state.snapshot(epoch, full);
        }

        pub fn restore(self: *Self, state_version: u32) Error!void {
            operator.clearFailure();
            try self.task.state.restore(state_version, state_version != Op.descriptor.state_version);
            if (@hasDecl(Op, "restored")) try self.op.restored(state_version);
        }
    };
}
