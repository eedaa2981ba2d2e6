//! Hashes against the reference implementation (xxhash 0.8, by its Python module), batches with everything that records may lack, the harness.

const std = @import("std");
const weir = @import("weir");
const expect = std.testing.expect;
const expectEqual = std.testing.expectEqual;

const vectors = [_]struct { usize, u64 }{
    .{ 0, 0x2d06800538d394c2 },
    .{ 1, 0xe12ef9d2eb86ceeb },
    .{ 2, 0x33b0814d4f061d86 },
    .{ 3, 0xa9088dda485b481c },
    .{ 4, 0x57648c318a7a307e },
    .{ 5, 0x239bb6b88222271d },
    .{ 8, 0xb0fb3e3c3f94990a },
    .{ 9, 0x8aca5cb309437c2e },
    .{ 12, 0xbb431ec91d8102e8 },
    .{ 16, 0x2bd926d88792965a },
    .{ 17, 0x621f018aad19b14a },
    .{ 31, 0x1c80db9a3e8ba043 },
    .{ 32, 0x8911535e799e4d99 },
    .{ 33, 0xb6d8b523db9b284c },
    .{ 64, 0x1b1bf114c7371f1b },
    .{ 65, 0xf0037f8ac0441cc4 },
    .{ 96, 0xcfb21e0d09d8ef29 },
    .{ 97, 0xe1415ca7902a74da },
    .{ 128, 0xe9549af9a74093e6 },
    .{ 129, 0xb54ad1cd8a4c84b9 },
    .{ 130, 0x52dc6001473ca9cb },
    .{ 143, 0xffbeca72453b86f9 },
    .{ 144, 0x3f50ca07e0dcde52 },
    .{ 145, 0xcedd46d037c8b99a },
    .{ 239, 0x318817637cd16359 },
    .{ 240, 0x3e136902ec966624 },
    .{ 241, 0xbd7d29b6ba966d6a },
    .{ 256, 0xff5a1cefade75bb9 },
    .{ 512, 0xf6fe51471f2fa1ec },
    .{ 1023, 0x0805f138405a64a4 },
    .{ 1024, 0xdc5acf0b043c445b },
    .{ 1025, 0xc856c953bbdbc807 },
    .{ 2048, 0x848d24cc268f7498 },
    .{ 2049, 0x036bbe6219dfccda },
    .{ 5000, 0x308f149a673a1625 },
};

test "hashes are those of the reference implementation" {
    var data: [5000]u8 = undefined;
    for (vectors) |vector| {
        const len, const hash = vector;
        for (data[0..len], 0..) |*byte, i| byte.* = @truncate(i * 7 + len);
        try expectEqual(hash, weir.Key.of(data[0..len]).hash);
    }
}

test "key groups are those of the contract" {
    const of = [_]u32{ 1, 2, 7, 128, 256, 4096, 32768 };
    const keys = [_]struct { []const u8, [7]u32 }{
        .{ "", .{ 0, 1, 3, 64, 128, 2048, 16386 } },
        .{ "a", .{ 0, 0, 1, 25, 50, 811, 6491 } },
        .{ "abc", .{ 0, 0, 2, 47, 95, 1529, 12234 } },
    };
    for (keys) |key| for (of, key[1]) |key_groups, group| try expectEqual(group, weir.keyGroup(weir.Key.of(key[0]).hash, key_groups));
}

test "what is pushed comes back, whatever records lack" {
    const gpa = std.testing.allocator;
    for (0..256) |seed| {
        var random = std.Random.DefaultPrng.init(seed);
        var rows: [40]weir.testing.Row = undefined;
        const len = 1 + seed % 40;
        for (rows[0..len], 0..) |*row, i| {
            const lacks: u4 = if (seed < 16) @intCast(seed) else random.random().int(u4);
            row.* = .{
                .time = if (lacks & 1 != 0) null else @intCast(i),
                .key = if (lacks & 2 != 0) null else "key"[0 .. i % 4],
                .value = if (lacks & 4 != 0) null else "value"[0 .. i % 6],
                .headers = if (lacks & 8 != 0) &.{} else &.{ .{ .name = "a", .value = "1" }, .{ .name = "", .value = "" } },
            };
        }
        var builder: weir.BatchBuilder = .init(gpa);
        defer builder.deinit();
        var copy: weir.BatchBuilder = .init(gpa);
        defer copy.deinit();
        for (rows[0..len]) |row| {
            try builder.push(row.time, row.key, row.value);
            for (row.headers) |header| try builder.header(header.name, header.value);
        }
        // And once more from the batch, into memory that was used before.
        const batch = builder.view();
        for (0..2) |_| {
            copy.clear();
            var records = batch.records();
            while (records.next()) |record| try copy.pushRecord(record);
        }
        for ([_]weir.Batch{ batch, copy.view() }) |view| {
            try expectEqual(len, view.len());
            for (rows[0..len], 0..) |row, i| {
                const record = view.record(i);
                try std.testing.expectEqualDeep(row.time, record.time());
                try std.testing.expectEqualDeep(row.key, if (record.key()) |key| key.bytes else null);
                try std.testing.expectEqualDeep(row.value, record.value());
                var headers = record.headers();
                for (row.headers) |header| try std.testing.expectEqualDeep(header, headers.next().?);
                try expect(headers.next() == null);
            }
        }
    }
}

test "columns that nobody has are empty" {
    var builder: weir.BatchBuilder = .init(std.testing.allocator);
    defer builder.deinit();
    try builder.push(1, null, null);
    try expect(builder.view().keys.offsets.len == 0 and builder.view().values.offsets.len == 0 and builder.view().headers.offsets.len == 0);
    try builder.push(2, "", null);
    const batch = builder.view();
    try std.testing.expectEqualSlices(u8, &.{1}, batch.keys.nulls);
    try expect(batch.record(0).key() == null and batch.record(1).key().?.bytes.len == 0 and batch.values.offsets.len == 0);
}

/// Does what the value of a record says.
const Calls = struct {
    pub const descriptor: weir.Descriptor = .{ .name = "calls", .version = "1.0.0", .inputs = &.{.{ .name = "in" }}, .outputs = &.{.{ .name = "out" }} };

    const Config = struct { ratio: f64 = 0.5, size: u32 = 10, names: []const []const u8 = &.{} };

    arena: std.heap.ArenaAllocator,
    config: Config,
    woken_at: i64 = 0,
    left: u32 = 0,

    pub fn open(config: []const u8, task: *const weir.Task) weir.Error!Calls {
        var arena: std.heap.ArenaAllocator = .init(task.gpa);
        errdefer arena.deinit();
        const read = try weir.config(Config, config, arena.allocator());
        return .{ .arena = arena, .config = read };
    }

    pub fn deinit(op: *Calls) void {
        op.arena.deinit();
    }

    pub fn process(op: *Calls, _: u32, batch: *const weir.Batch, out: weir.Output) weir.Error!weir.Progress {
        out.emit(0, batch);
        out.reject(0, "rejected {d}", .{5});
        out.rejectBatch(batch, "all of them", .{});
        weir.wakeAt(50);
        weir.metrics.count("seen", 1);
        weir.metrics.count("seen", 1);
        weir.metrics.gauge("level", 0.5);
        weir.logFn(.info, .default, "processed {d}", .{batch.len()});
        if (batch.record(0).value() != null) return weir.fail(error.Retry, "not now, but after {d}", .{3});
        op.left = 2;
        return .more;
    }

    pub fn @"resume"(op: *Calls, out: weir.Output) weir.Error!weir.Progress {
        out.emit(0, &.{ .timestamps = &.{op.left} });
        op.left -= 1;
        return if (op.left == 0) .done else .more;
    }

    pub fn wake(op: *Calls, _: weir.Output) weir.Error!weir.Progress {
        op.woken_at = weir.now();
        return .done;
    }
};

test "what a call says takes effect when it goes well" {
    const harness = try weir.testing.Harness(Calls).open("{\"ratio\":1,\"names\":[\"a\",\"b\"]}");
    defer harness.deinit();
    try expect(harness.op().config.ratio == 1 and harness.op().config.size == 10 and harness.op().config.names.len == 2);
    try harness.process(0, &.{.{ .time = 7 }});
    try harness.expect(0, &.{ .{ .time = 7 }, .{ .time = 2 }, .{ .time = 1 } });
    try std.testing.expectEqualStrings("rejected 5", harness.reason(0));
    try std.testing.expectEqualStrings("all of them", harness.reason(1));
    try expect(harness.metric("seen").? == 2 and harness.metric("level").? == 0.5 and harness.logged(.info, "processed 1"));
    try harness.setTime(49);
    try expectEqual(0, harness.op().woken_at);
    try harness.setTime(51);
    try expectEqual(51, harness.op().woken_at);
}

test "what a call says is dropped when it fails" {
    const harness = try weir.testing.Harness(Calls).open("{}");
    defer harness.deinit();
    try std.testing.expectError(error.Retry, harness.process(0, &.{.{ .value = "fail" }}));
    try std.testing.expectEqualStrings("not now, but after 3", weir.testing.failureMessage());
    try harness.expect(0, &.{});
    try expect(harness.rejected.items.len == 0 and harness.wake_at == null);
}

test "a configuration is read strictly" {
    const wrong = [_]struct { []const u8, []const u8 }{
        .{ "{\"sise\":1}", "a member that this plugin does not know; it knows \"ratio\", \"size\", \"names\"" },
        .{ "{\"size\":-1}", "\"size\" of type u32" },
        .{ "{\"ratio\":\"x\"}", "\"ratio\" of type f64" },
        .{ "[]", "must be a JSON object" },
        .{ "{", "must be a JSON object" },
    };
    for (wrong) |case| {
        try std.testing.expectError(error.Invalid, weir.testing.Harness(Calls).open(case[0]));
        try expect(std.mem.find(u8, weir.testing.failureMessage(), case[1]) != null);
    }
}

test "messages are cut between characters" {
    // Characters of two bytes, after a prefix of none or one: in one of both, the cut is within a character.
    var text: [5000]u8 = undefined;
    for (0..2500) |i| text[2 * i ..][0..2].* = "é".*;
    try std.testing.expect(weir.fail(error.Retry, "{s}", .{&text}) == error.Retry);
    try expectEqual(4096, weir.testing.failureMessage().len);
    try std.testing.expect(weir.fail(error.Retry, "x{s}", .{&text}) == error.Retry);
    try expectEqual(4095, weir.testing.failureMessage().len);
}
