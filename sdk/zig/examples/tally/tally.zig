//! Counts records by key in windows of a minute of event time.

const std = @import("std");
const weir = @import("weir");

const window_size = 60_000_000;

/// The end of the window that a time belongs to.
fn windowEnd(time: i64) i64 {
    return (@divFloor(time, window_size) + 1) * window_size;
}

pub const Operator = struct {
    pub const descriptor: weir.Descriptor = .{
        .name = "tally",
        .version = "0.1.0",
        .summary = "Counts records by key in windows of a minute.",
        .inputs = &.{.{ .name = "in", .summary = "what is counted", .keyed = true }},
        .outputs = &.{.{ .name = "out", .summary = "END COUNT TOTAL KEY, one for each window and key", .keyed = true }},
        .state = .keyed,
        .state_version = 1,
    };

    /// By end and key: how many records so far.
    windows: weir.EventTimers(u64),
    /// By key: the records of all windows that were emitted.
    totals: weir.KeyedState(u64),
    /// Of the call that `resume` goes on with.
    watermark: i64 = 0,
    out: weir.BatchBuilder,

    pub fn open(config: []const u8, task: *const weir.Task) weir.Error!Operator {
        _ = try weir.config(struct {}, config, task.gpa);
        return .{ .windows = try .init(task), .totals = try .init(task), .out = .init(task.gpa) };
    }

    pub fn deinit(op: *Operator) void {
        op.out.deinit();
    }

    pub fn process(op: *Operator, _: u32, batch: *const weir.Batch, out: weir.Output) weir.Error!weir.Progress {
        var records = batch.records();
        while (records.next()) |record| {
            const key = record.key() orelse {
                out.reject(record.index, "no key", .{});
                continue;
            };
            const time = record.time() orelse {
                out.reject(record.index, "no time", .{});
                continue;
            };
            const count = try op.windows.set(windowEnd(time), key, 0);
            count.* += 1;
        }
        return .done;
    }

    pub fn advance(op: *Operator, watermark: i64, out: weir.Output) weir.Error!weir.Progress {
        op.watermark = watermark;
        return op.@"resume"(out);
    }

    /// Emits the windows that have ended, a part of them where there are many.
    pub fn @"resume"(op: *Operator, out: weir.Output) weir.Error!weir.Progress {
        while (try op.windows.due(op.watermark)) |window| {
            const total = try op.totals.value(window.key, 0);
            total.* += window.value.*;
            const key = window.key.bytes;
            var text: [64]u8 = undefined;
            const numbers = std.fmt.bufPrint(&text, "{d} {d} {d} ", .{ window.time, window.value.*, total.* }) catch unreachable;
            try op.out.pushParts(window.time, key, &.{ numbers, key });
            if (out.emitLarge(0, &op.out)) return .more;
        }
        out.emitBuilder(0, &op.out);
        return .done;
    }
};

const Row = weir.testing.Row;
const Tally = weir.testing.Harness(Operator);
const rows = [_]Row{
    .{ .time = 59_999_999, .key = "b" },
    .{ .time = 0, .key = "b" },
    .{ .time = 60_000_000, .key = "a" },
    .{ .time = 1, .key = "a" },
    .{ .time = -1, .key = "a" },
    .{ .time = 5 },
    .{ .key = "a" },
};

test "windows end by time, then key, and totals add up" {
    const tally = try Tally.open("{}");
    defer tally.deinit();
    try tally.process(0, &rows);
    try tally.expect(0, &.{});
    try tally.advance(59_999_999);
    try tally.expect(0, &.{.{ .time = 0, .key = "a", .value = "0 1 1 a" }});
    try tally.advance(60_000_000);
    try tally.expect(0, &.{ .{ .time = 60_000_000, .key = "a", .value = "60000000 1 2 a" }, .{ .time = 60_000_000, .key = "b", .value = "60000000 2 2 b" } });
    try tally.process(0, rows[3..4]);
    try tally.advance(weir.end_of_time);
    try tally.expect(0, &.{ .{ .time = 60_000_000, .key = "a", .value = "60000000 1 3 a" }, .{ .time = 120_000_000, .key = "a", .value = "120000000 1 4 a" } });
    try std.testing.expectEqualStrings("no key", tally.reason(0));
    try std.testing.expectEqualStrings("no time", tally.reason(1));
}

test "a restored tally goes on where it was" {
    const before = try Tally.open("{}");
    defer before.deinit();
    try before.process(0, &rows);
    try before.advance(0);
    const after = try Tally.restore("{}", try before.snapshot(.incremental));
    defer after.deinit();
    try after.advance(60_000_000);
    try after.expect(0, &.{ .{ .time = 60_000_000, .key = "a", .value = "60000000 1 2 a" }, .{ .time = 60_000_000, .key = "b", .value = "60000000 2 2 b" } });
}

test "much output comes in parts" {
    const tally = try Tally.open("{}");
    defer tally.deinit();
    var names: [40_000][5]u8 = undefined;
    var many: [names.len]Row = undefined;
    for (&names, &many, 0..) |*name, *row, i| row.* = .{ .time = 1, .key = try std.fmt.bufPrint(name, "{d:0>5}", .{i}) };
    try tally.process(0, &many);
    try tally.advance(weir.end_of_time);
    try std.testing.expect(tally.resumed > 0);
    try std.testing.expectEqual(names.len, tally.rows(0).len);
    for (tally.rows(0), &names) |row, *name| try std.testing.expectEqualStrings(name, row.key.?);
}
