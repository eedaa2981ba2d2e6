//! Values of every kind, there and back; damage and memory that runs out leave nothing allocated.

const std = @import("std");
const weir = @import("weir");
const codec = weir.codec;

const Kind = enum(u8) { small = 3, large = 200 };
const Inner = struct { at: i64, ratio: f32, kind: Kind, flag: bool, tiny: u3 };
const Value = struct {
    name: []const u8,
    inner: Inner,
    list: std.ArrayList(Inner),
    texts: []const []const u8,
    maybe: ?[]const u8,
    none: ?u16,
    grid: [2]i16,
};

fn sample(gpa: std.mem.Allocator) !Value {
    const inner: Inner = .{ .at = -5, .ratio = 1.5, .kind = .large, .flag = true, .tiny = 5 };
    var list: std.ArrayList(Inner) = .empty;
    try list.appendNTimes(gpa, inner, 3);
    const texts = try gpa.alloc([]const u8, 2);
    texts[0] = try gpa.dupe(u8, "some");
    texts[1] = try gpa.dupe(u8, "");
    return .{ .name = try gpa.dupe(u8, "name"), .inner = inner, .list = list, .texts = texts, .maybe = try gpa.dupe(u8, "maybe"), .none = null, .grid = .{ -1, 300 } };
}

fn thereAndBack(gpa: std.mem.Allocator, bytes: []const u8) !void {
    var rest = bytes;
    var value = try codec.decode(Value, &rest, gpa, 1);
    defer codec.deinit(Value, &value, gpa);
    var again: weir.Bytes = .empty;
    defer again.deinit(gpa);
    try codec.encode(Value, &value, &again, gpa);
    try std.testing.expectEqualSlices(u8, bytes[0 .. bytes.len - rest.len], again.items);
}

test "values come back, and nothing leaks wherever memory runs out" {
    const gpa = std.testing.allocator;
    var value = try sample(gpa);
    defer codec.deinit(Value, &value, gpa);
    var bytes: weir.Bytes = .empty;
    defer bytes.deinit(gpa);
    try codec.encode(Value, &value, &bytes, gpa);
    var rest: []const u8 = bytes.items;
    var back = try codec.decode(Value, &rest, gpa, 1);
    defer codec.deinit(Value, &back, gpa);
    try std.testing.expectEqual(0, rest.len);
    try std.testing.expectEqualDeep(value.inner, back.inner);
    try std.testing.expectEqualDeep(value.list.items, back.list.items);
    try std.testing.expectEqualDeep(value.texts, back.texts);
    try std.testing.expect(std.mem.eql(u8, value.maybe.?, back.maybe.?) and back.none == null and back.grid[1] == 300);
    try std.testing.checkAllAllocationFailures(gpa, thereAndBack, .{@as([]const u8, bytes.items)});
}

test "damaged values are refused or read, and nothing leaks" {
    const gpa = std.testing.allocator;
    var value = try sample(gpa);
    defer codec.deinit(Value, &value, gpa);
    var bytes: weir.Bytes = .empty;
    defer bytes.deinit(gpa);
    try codec.encode(Value, &value, &bytes, gpa);
    for (0..bytes.items.len) |len| try std.testing.expectError(error.Damaged, thereAndBack(gpa, bytes.items[0..len]));
    var refused: usize = 0;
    for (bytes.items) |*byte| for (1..256) |flip| {
        byte.* ^= @intCast(flip);
        defer byte.* ^= @intCast(flip);
        var rest: []const u8 = bytes.items;
        var read = codec.decode(Value, &rest, gpa, 1) catch {
            refused += 1;
            continue;
        };
        codec.deinit(Value, &read, gpa);
    };
    try std.testing.expect(refused > 1000);
}
