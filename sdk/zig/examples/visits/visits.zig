//! Sessions by key: records that are at most half a minute apart belong together.

const std = @import("std");
const weir = @import("weir");

const gap = 30_000_000;

const Visit = struct { start: i64, end: i64, count: u64 };

pub const Operator = struct {
    pub const descriptor: weir.Descriptor = .{
        .name = "visits",
        .version = "0.1.0",
        .summary = "Joins records of a key that are at most 30 seconds apart.",
        .inputs = &.{.{ .name = "in", .summary = "what somebody did, by key", .keyed = true }},
        .outputs = &.{.{ .name = "out", .summary = "START END COUNT KEY, one for each visit", .keyed = true }},
        .state = .keyed,
        .state_version = 1,
    };

    /// By key: its open visits, by start. They are more than the gap apart.
    open_visits: weir.KeyedState(std.ArrayList(Visit)),
    /// By end and key: when a visit is over, but for the gap.
    ends: weir.EventTimers(void),
    /// Of the call that `resume` goes on with.
    watermark: i64 = 0,
    out: weir.BatchBuilder,
    task: *const weir.Task,

    pub fn open(config: []const u8, task: *const weir.Task) weir.Error!Operator {
        _ = try weir.config(struct {}, config, task.gpa);
        return .{ .open_visits = try .init(task), .ends = try .init(task), .out = .init(task.gpa), .task = task };
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
            try op.add(key, time);
        }
        return .done;
    }

    /// Adds a record: opens a visit, or extends one, or joins all that it brings together.
    fn add(op: *Operator, key: weir.Key, time: i64) weir.Error!void {
        const visits = try op.open_visits.value(key, .empty);
        var added: Visit = .{ .start = time, .end = time, .count = 1 };
        var first: usize = 0;
        while (first < visits.items.len and visits.items[first].end < time -| gap) first += 1;
        var after = first;
        while (after < visits.items.len and visits.items[after].start <= time +| gap) : (after += 1) {
            const joined = visits.items[after];
            added.start = @min(added.start, joined.start);
            added.end = @max(added.end, joined.end);
            added.count += joined.count;
            _ = try op.ends.cancel(joined.end, key);
        }
        try visits.replaceRange(op.task.gpa, first, after - first, &.{added});
        _ = try op.ends.set(added.end, key, {});
    }

    pub fn advance(op: *Operator, watermark: i64, out: weir.Output) weir.Error!weir.Progress {
        op.watermark = watermark;
        return op.@"resume"(out);
    }

    /// Emits the visits that are over, a part of them where there are many.
    pub fn @"resume"(op: *Operator, out: weir.Output) weir.Error!weir.Progress {
        const last = if (op.watermark == weir.end_of_time) weir.end_of_time else op.watermark -| gap;
        while (try op.ends.due(last)) |due| {
            const visits = (try op.open_visits.getPtr(due.key)).?;
            const index = for (visits.items, 0..) |visit, i| {
                if (visit.end == due.time) break i;
            } else unreachable;
            const over = visits.orderedRemove(index);
            if (visits.items.len == 0) _ = try op.open_visits.remove(due.key);
            var text: [64]u8 = undefined;
            const numbers = std.fmt.bufPrint(&text, "{d} {d} {d} ", .{ over.start, over.end, over.count }) catch unreachable;
            try op.out.pushParts(over.end, due.key.bytes, &.{ numbers, due.key.bytes });
            if (out.emitLarge(0, &op.out)) return .more;
        }
        out.emitBuilder(0, &op.out);
        return .done;
    }
};

const Row = weir.testing.Row;
const Visits = weir.testing.Harness(Operator);
const seconds = 1_000_000;

test "records within the gap are one visit, in whatever order they come" {
    const times = [_]i64{ 0, 30, 61, 45, 200 };
    // All orders of five records: 0, 30, 45 and 61 seconds belong together, by what lies between them.
    for (0..120) |order| {
        const visits = try Visits.open("{}");
        defer visits.deinit();
        var left: std.ArrayList(i64) = .empty;
        defer left.deinit(std.testing.allocator);
        try left.appendSlice(std.testing.allocator, &times);
        var rest = order;
        while (left.items.len > 0) {
            const nth = rest % left.items.len;
            rest /= left.items.len;
            try visits.process(0, &.{.{ .time = left.orderedRemove(nth) * seconds, .key = "k" }});
        }
        try visits.advance(91 * seconds - 1);
        try visits.expect(0, &.{});
        try visits.advance(91 * seconds);
        try visits.expect(0, &.{.{ .time = 61 * seconds, .key = "k", .value = "0 61000000 4 k" }});
        try visits.advance(weir.end_of_time);
        try visits.expect(0, &.{.{ .time = 200 * seconds, .key = "k", .value = "200000000 200000000 1 k" }});
    }
}

test "visits end by time, then key" {
    const visits = try Visits.open("{}");
    defer visits.deinit();
    try visits.process(0, &.{ .{ .time = 2, .key = "a" }, .{ .time = 1, .key = "b" }, .{ .time = 1, .key = "aa" }, .{ .time = 50 * seconds, .key = "b" }, .{ .time = 1 }, .{ .key = "a" } });
    try visits.advance(weir.end_of_time);
    try visits.expect(0, &.{
        .{ .time = 1, .key = "aa", .value = "1 1 1 aa" },
        .{ .time = 1, .key = "b", .value = "1 1 1 b" },
        .{ .time = 2, .key = "a", .value = "2 2 1 a" },
        .{ .time = 50 * seconds, .key = "b", .value = "50000000 50000000 1 b" },
    });
    try std.testing.expectEqualStrings("no key", visits.reason(0));
    try std.testing.expectEqualStrings("no time", visits.reason(1));
}

test "open visits survive" {
    const before = try Visits.open("{}");
    defer before.deinit();
    try before.process(0, &.{ .{ .time = 1 * seconds, .key = "a" }, .{ .time = 90 * seconds, .key = "a" }, .{ .time = 20 * seconds, .key = "b" } });
    const after = try Visits.restore("{}", try before.snapshot(.incremental));
    defer after.deinit();
    try after.process(0, &.{ .{ .time = 31 * seconds, .key = "a" }, .{ .time = 60 * seconds, .key = "a" } });
    try after.advance(weir.end_of_time);
    try after.expect(0, &.{ .{ .time = 20 * seconds, .key = "b", .value = "20000000 20000000 1 b" }, .{ .time = 90 * seconds, .key = "a", .value = "1000000 90000000 4 a" } });
}
