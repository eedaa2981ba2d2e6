//! What a plugin logs, and why it ended, has to reach the log. What it does is the value of the record.

const std = @import("std");
const weir = @import("weir");

pub const Operator = struct {
    pub const descriptor: weir.Descriptor = .{ .name = "noisy", .version = "0.1.0", .inputs = &.{.{ .name = "in" }}, .outputs = &.{.{ .name = "out" }} };

    gpa: std.mem.Allocator,

    pub fn open(_: []const u8, task: *const weir.Task) weir.Error!Operator {
        std.log.info("opened {s} as {d} of {d}", .{ task.node, task.subtask, task.parallelism });
        return .{ .gpa = task.gpa };
    }

    fn says(value: []const u8, what: []const u8) bool {
        return std.mem.eql(u8, value, what);
    }

    pub fn process(op: *Operator, _: u32, batch: *const weir.Batch, out: weir.Output) weir.Error!weir.Progress {
        var records = batch.records();
        while (records.next()) |record| {
            const value = record.value() orelse continue;
            if (says(value, "log")) std.log.scoped(.noisy).warn("logged {s}", .{"this"});
            if (says(value, "panic")) std.debug.panic("panicked at row {d}", .{record.index});
            if (says(value, "bounds")) std.log.info("{c}", .{value[value.len + record.index]});
            if (says(value, "overflow")) std.log.info("{d}", .{record.index - value.len});
            if (says(value, "fail")) return weir.fail(error.Fatal, "failed at row {d}", .{record.index});
            if (says(value, "exhaust")) while (true) {
                _ = try op.gpa.alloc(u8, 1 << 20);
            };
        }
        weir.metrics.count("batches", 1);
        out.emit(0, batch);
        return .done;
    }
};
