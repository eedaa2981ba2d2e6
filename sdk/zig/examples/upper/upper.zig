//! Hands records on with the ASCII letters of their values as capitals.

const std = @import("std");
const weir = @import("weir");

const value_bytes_max = 80;

pub const Operator = struct {
    pub const descriptor: weir.Descriptor = .{
        .name = "upper",
        .version = "0.1.0",
        .summary = "Hands records on with the ASCII letters of their values as capitals.",
        .inputs = &.{.{ .name = "in", .summary = "any records" }},
        .outputs = &.{.{ .name = "out", .summary = "the same in capitals" }},
    };

    out: weir.BatchBuilder,

    pub fn open(config: []const u8, task: *const weir.Task) weir.Error!Operator {
        _ = try weir.config(struct {}, config, task.gpa);
        return .{ .out = .init(task.gpa) };
    }

    pub fn deinit(op: *Operator) void {
        op.out.deinit();
    }

    pub fn process(op: *Operator, _: u32, batch: *const weir.Batch, out: weir.Output) weir.Error!weir.Progress {
        var records = batch.records();
        while (records.next()) |record| {
            const value = record.value() orelse {
                try op.out.pushRecord(record);
                continue;
            };
            if (value.len > value_bytes_max) {
                out.reject(record.index, "the value has {d} bytes, more than {d}", .{ value.len, value_bytes_max });
                continue;
            }
            var upper: [value_bytes_max]u8 = undefined;
            const key = if (record.key()) |key| key.bytes else null;
            try op.out.push(record.time(), key, std.ascii.upperString(&upper, value));
        }
        out.emitBuilder(0, &op.out);
        return .done;
    }
};

test "letters become capitals and nothing else changes" {
    const upper = try weir.testing.Harness(Operator).open("{}");
    defer upper.deinit();
    const rows = [_]weir.testing.Row{ .{ .time = 1, .key = "k", .value = "az{`AZ é" }, .{ .value = "" }, .{ .time = 3, .key = "gone" } };
    try upper.process(0, &rows);
    try upper.expect(0, &.{ .{ .time = 1, .key = "k", .value = "AZ{`AZ é" }, rows[1], rows[2] });
}

test "a value that is too long is rejected" {
    const upper = try weir.testing.Harness(Operator).open("{}");
    defer upper.deinit();
    const small: [81]u8 = @splat('x');
    const large: [80]u8 = @splat('X');
    try upper.process(0, &.{ .{ .time = 1, .key = "k", .value = small[0..80] }, .{ .value = &small } });
    try upper.expect(0, &.{.{ .time = 1, .key = "k", .value = &large }});
    try std.testing.expectEqualStrings("the value has 81 bytes, more than 80", upper.reason(0));
}

test "there is nothing to configure" {
    try std.testing.expectError(error.Invalid, weir.testing.Harness(Operator).open("{\"size\":1}"));
}
