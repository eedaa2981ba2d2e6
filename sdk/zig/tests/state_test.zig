//! State: snapshots in steps against a twin that took its own at once, restores, other parallelisms, damaged bytes, timers in order.

const std = @import("std");
const weir = @import("weir");
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;

const Everything = struct {
    pub const descriptor: weir.Descriptor = .{
        .name = "everything",
        .version = "1.0.0",
        .inputs = &.{.{ .name = "in", .keyed = true }},
        .state = .keyed,
        .state_version = 2,
        .oldest_state_version = 1,
    };

    numbers: weir.KeyedState(u64),
    texts: weir.KeyedState([]const u8),
    timers: weir.EventTimers(void),
    windows: weir.EventTimers(u32),
    mine: weir.SubtaskValue(u64),
    ours: weir.SharedValue(std.ArrayList(u16)),
    gpa: std.mem.Allocator,
    restored_from: u32 = 0,

    pub fn open(_: []const u8, task: *const weir.Task) weir.Error!Everything {
        return .{
            .numbers = try .init(task),
            .texts = try .init(task),
            .timers = try .init(task),
            .windows = try .init(task),
            .mine = .init(task, 0),
            .ours = .init(task, .empty),
            .gpa = task.gpa,
        };
    }

    pub fn process(_: *Everything, _: u32, _: *const weir.Batch, _: weir.Output) weir.Error!weir.Progress {
        return .done;
    }

    pub fn restored(op: *Everything, state_version: u32) weir.Error!void {
        op.restored_from = state_version;
    }
};

const Harness = weir.testing.Harness(Everything);

var names: [4][64]u8 = undefined;
var turn: usize = 0;

fn keyOf(n: usize) weir.Key {
    turn += 1;
    const prefix = if (n % 5 == 0) "a rather long key that no word holds " else "k";
    return .of(std.fmt.bufPrint(&names[turn % 4], "{s}{d}", .{ prefix, n }) catch unreachable);
}

/// Some change of some collection.
fn change(op: *Everything, random: std.Random) !void {
    const key = keyOf(random.uintLessThan(usize, 200));
    switch (random.uintLessThan(u8, 10)) {
        0, 1 => (try op.numbers.value(key, 0)).* += random.uintLessThan(u64, 9) + 1,
        2 => _ = try op.numbers.remove(key),
        3 => try op.texts.put(key, try std.fmt.allocPrint(op.gpa, "text {d}", .{random.uintLessThan(u32, 1000)})),
        4 => _ = try op.texts.remove(key),
        5 => _ = try op.timers.set(random.intRangeLessThan(i64, -25, 25), key, {}),
        6 => _ = try op.timers.cancel(random.intRangeLessThan(i64, -25, 25), key),
        7 => (try op.windows.set(random.uintLessThan(u8, 10), key, 0)).* += 1,
        8 => if (random.uintLessThan(u8, 8) == 0) {
            _ = try op.windows.due(random.uintLessThan(u8, 10));
        },
        else => {
            if (random.boolean()) (try op.mine.getPtr()).* += 1;
            if (random.boolean()) try (try op.ours.getPtr()).append(op.gpa, random.int(u16));
        },
    }
}

test "snapshots in steps hold the state of the cut, and restore to it" {
    for (1..30) |seed| {
        var prng = std.Random.DefaultPrng.init(seed);
        var twin_prng = prng;
        const random, const twin_random = .{ prng.random(), twin_prng.random() };
        const harness = try Harness.open("{}");
        defer harness.deinit();
        const twin = try Harness.open("{}");
        defer twin.deinit();
        for (0..6) |epoch| {
            for (0..300) |_| try change(harness.op(), random);
            for (0..300) |_| try change(twin.op(), twin_random);
            const at_once = try twin.snapshot(.full);
            harness.beginSnapshot(if (epoch % 3 == 0) .full else .incremental);
            var between: usize = 40;
            while (try harness.snapshotStep(1 + seed % 3) == .more) {
                for (0..2) |_| if (between > 0) {
                    try change(harness.op(), random);
                    between -= 1;
                };
            }
            for (0..between) |_| try change(harness.op(), random);
            for (0..40) |_| try change(twin.op(), twin_random);
            try expect(at_once.eql(harness.checkpoint.?));
            const after = try Harness.restore("{}", harness.checkpoint.?);
            defer after.deinit();
            try expectEqual(2, after.op().restored_from);
            try expect(at_once.eql(try after.snapshot(.full)));
        }
    }
}

test "an incremental snapshot writes only key groups that have changed" {
    const harness = try Harness.open("{}");
    defer harness.deinit();
    for (0..1000) |i| _ = try harness.op().numbers.value(keyOf(i), i);
    _ = try harness.snapshot(.full);
    try expectEqual(128, harness.written.items.len);
    _ = try harness.snapshot(.incremental);
    try expectEqual(0, harness.written.items.len);
    (try harness.op().numbers.getPtr(keyOf(7))).?.* += 1;
    try expect(harness.op().numbers.get(keyOf(8)) != null);
    try expect(!try harness.op().numbers.remove(keyOf(5000)));
    _ = try harness.snapshot(.incremental);
    try expectEqual(1, harness.written.items.len);
}

test "a key group that has become empty is cleared, and an abandoned snapshot is followed by a full one" {
    const harness = try Harness.open("{}");
    defer harness.deinit();
    _ = try harness.op().numbers.value(keyOf(1), 1);
    _ = try harness.op().numbers.value(keyOf(2), 2);
    _ = try harness.snapshot(.incremental);
    _ = try harness.op().numbers.remove(keyOf(1));
    try expectEqual(1, (try harness.snapshot(.incremental)).chunks.len);
    for (3..100) |i| _ = try harness.op().numbers.value(keyOf(i), i);
    harness.beginSnapshot(.incremental);
    try expectEqual(.more, try harness.snapshotStep(1));
    (try harness.op().numbers.getPtr(keyOf(2))).?.* = 77;
    const after = try Harness.restore("{}", try harness.snapshot(.incremental));
    defer after.deinit();
    try expect(after.op().numbers.count() == 98 and after.op().numbers.get(keyOf(2)).?.* == 77);
}

test "state of an older version is written anew after it was read" {
    const harness = try Harness.open("{}");
    defer harness.deinit();
    for (0..500) |i| _ = try harness.op().numbers.value(keyOf(i), i);
    var old = (try harness.snapshot(.full)).*;
    old.state_version = 1;
    const after = try Harness.restore("{}", &old);
    defer after.deinit();
    try expectEqual(1, after.op().restored_from);
    for (1..500) |i| _ = try after.op().numbers.remove(keyOf(i));
    try expectEqual(1, (try after.snapshot(.incremental)).chunks.len);
    try expectEqual(130, after.written.items.len);
}

test "chunks have at most 256 KiB, and larger entries come in parts" {
    const harness = try Harness.open("{}");
    defer harness.deinit();
    const sizes = [_]usize{ 700_000, 262_144, 262_143, 262_100, 100, 0, 131_000 };
    const gpa = std.testing.allocator;
    var in_group: usize = 0;
    for (0..100_000) |n| {
        const key = keyOf(n);
        if (weir.keyGroup(key.hash, 128) != 3) continue;
        const text = try gpa.alloc(u8, sizes[in_group % sizes.len]);
        @memset(text, @intCast('a' + in_group % sizes.len));
        try harness.op().texts.put(key, text);
        in_group += 1;
        if (in_group == 14) break;
    }
    const checkpoint = try harness.snapshot(.full);
    for (checkpoint.chunks) |chunk| try expect(chunk.data.len <= 256 << 10);
    const after = try Harness.restore("{}", checkpoint);
    defer after.deinit();
    try expectEqual(14, after.op().texts.count());
    try expect(checkpoint.eql(try after.snapshot(.full)));
}

test "state follows its keys to another parallelism and back" {
    var prng = std.Random.DefaultPrng.init(5);
    const random = prng.random();
    const whole = try Harness.open("{}");
    defer whole.deinit();
    for (0..3000) |_| {
        const key = keyOf(random.uintLessThan(usize, 400));
        (try whole.op().numbers.value(key, 0)).* += 1;
        _ = try whole.op().timers.set(random.uintLessThan(u8, 20), key, {});
    }
    try (try whole.op().ours.getPtr()).append(std.testing.allocator, 9);
    const before = try whole.snapshot(.full);
    var parts: [7]*Harness = undefined;
    var from: [7]*const weir.testing.Checkpoint = undefined;
    from[0] = before;
    var count: usize = 1;
    for ([_]u32{ 3, 7, 2, 1 }) |parallelism| {
        var keys: usize = 0;
        var next: [7]*Harness = undefined;
        for (0..parallelism) |subtask| {
            next[subtask] = try Harness.restoreSubtask("{}", @intCast(subtask), parallelism, from[0..count]);
            keys += next[subtask].op().numbers.count();
            try std.testing.expectEqualSlices(u16, &.{9}, next[subtask].op().ours.get().items);
        }
        if (count > 1) for (parts[0..count]) |part| part.deinit();
        count = parallelism;
        for (0..parallelism) |subtask| {
            parts[subtask] = next[subtask];
            from[subtask] = try next[subtask].snapshot(.full);
        }
        try expectEqual(whole.op().numbers.count(), keys);
    }
    try expect(before.eql(from[0]));
    parts[0].deinit();
}

test "timers come due by time, then by the bytes of the key" {
    const ordered = [_]struct { i64, []const u8 }{
        .{ std.math.minInt(i64) + 1, "z" }, .{ -5, "b" }, .{ 0, "" },         .{ 0, "a" },         .{ 0, "aa" },       .{ 0, "b" },
        .{ 0, "\xff" },                     .{ 7, "12345678" }, .{ 7, "123456789" }, .{ 7, "12345679" }, .{ weir.end_of_time, "a" },
    };
    const harness = try Harness.open("{}");
    defer harness.deinit();
    const timers = &harness.op().timers;
    for (0..ordered.len) |i| {
        const time, const key = ordered[i * 7 % ordered.len];
        for (0..2) |_| _ = try timers.set(time, .of(key), {});
    }
    try expectEqual(ordered.len, timers.count());
    try expectEqual(ordered[0][0], timers.earliest().?);
    for (ordered) |expected| {
        try expect(try timers.due(expected[0] - 1) == null);
        const due = (try timers.due(expected[0])).?;
        try expectEqual(expected[0], due.time);
        try std.testing.expectEqualStrings(expected[1], due.key.bytes);
    }
    try expect(try timers.due(weir.end_of_time) == null and timers.earliest() == null);
}

test "damaged state is refused or read, and never worse" {
    const harness = try Harness.open("{}");
    defer harness.deinit();
    _ = try harness.op().numbers.value(keyOf(1), 5);
    try harness.op().texts.put(keyOf(1), try std.testing.allocator.dupe(u8, "some text"));
    _ = try harness.op().timers.set(17, keyOf(1), {});
    _ = try harness.op().windows.set(18, keyOf(1), 3);
    (try harness.op().mine.getPtr()).* = 1;
    const good = try harness.snapshot(.full);
    try expectEqual(2, good.chunks.len);
    var refused: usize = 0;
    for (0..2) |which| {
        const data = good.chunks[which].data;
        for (0..data.len) |at| {
            // Cut short there, and with bits changed there.
            for ([_]u8{ 0, 1, 7, 128, 255 }) |flip| {
                const copy = try std.testing.allocator.dupe(u8, data);
                defer std.testing.allocator.free(copy);
                copy[at] ^= flip;
                var chunks = [_]@TypeOf(good.chunks[0]){ good.chunks[0], good.chunks[1] };
                chunks[which].data = if (flip == 0) copy[0..at] else copy;
                const after = Harness.restore("{}", &.{ .state_version = 2, .chunks = &chunks }) catch |wrong| {
                    try expectEqual(error.Invalid, wrong);
                    try expect(std.mem.startsWith(u8, weir.testing.failureMessage(), "state cannot be read: "));
                    refused += 1;
                    continue;
                };
                after.deinit();
            }
        }
    }
    try expect(refused > 400);
}

const Fewer = struct {
    pub const descriptor = Everything.descriptor;
    numbers: weir.KeyedState(u16),

    pub fn open(_: []const u8, task: *const weir.Task) weir.Error!Fewer {
        return .{ .numbers = try .init(task) };
    }

    pub fn process(_: *Fewer, _: u32, _: *const weir.Batch, _: weir.Output) weir.Error!weir.Progress {
        return .done;
    }
};

test "what is wrong with state is said with its place" {
    const harness = try Harness.open("{}");
    defer harness.deinit();
    _ = try harness.op().numbers.value(keyOf(1), 5);
    const numbers = try harness.snapshot(.full);
    try std.testing.expectError(error.Invalid, weir.testing.Harness(Fewer).restore("{}", numbers));
    try expect(std.mem.find(u8, weir.testing.failureMessage(), "collection \"numbers\": a value does not decode") != null);
    _ = try harness.op().numbers.remove(keyOf(1));
    _ = try harness.op().timers.set(1, keyOf(1), {});
    try std.testing.expectError(error.Invalid, weir.testing.Harness(Fewer).restore("{}", try harness.snapshot(.full)));
    try expect(std.mem.find(u8, weir.testing.failureMessage(), "collection \"timers\": this plugin has no such collection") != null);
}
