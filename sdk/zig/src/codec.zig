//! How a value of any type is written and read: numbers little-endian, structs field by field, slices and lists with their length before them. No
//! padding and no address gets into it, so equal values are equal bytes.
//!
//! A type that wants it otherwise has three functions of its own:
//!
//!     pub fn encode(value: *const T, to: *weir.Bytes, gpa: Allocator) Allocator.Error!void
//!     pub fn decode(from: *[]const u8, gpa: Allocator, state_version: u32) weir.codec.Error!T
//!     pub fn deinit(value: *T, gpa: Allocator) void
//!
//! `state_version` is that of the plugin which wrote the value: an older one is brought up to date there.

const std = @import("std");
const Allocator = std.mem.Allocator;

pub const Error = error{ Damaged, OutOfMemory };
pub const Bytes = std.ArrayList(u8);

/// Appends a number, 7 bits a byte, the lowest first.
pub fn putVarint(to: *Bytes, gpa: Allocator, number: u64) Allocator.Error!void {
    var rest = number;
    while (rest >= 0x80) : (rest >>= 7) try to.append(gpa, @as(u8, @truncate(rest)) | 0x80);
    try to.append(gpa, @intCast(rest));
}

pub fn takeVarint(from: *[]const u8) error{Damaged}!u64 {
    var number: u64 = 0;
    for (0..10) |i| {
        const byte = (try take(from, 1))[0];
        number |= std.math.shl(u64, byte & 0x7f, 7 * i);
        if (byte & 0x80 == 0) return number;
    }
    return error.Damaged;
}

pub fn take(from: *[]const u8, len: u64) error{Damaged}![]const u8 {
    if (len > from.len) return error.Damaged;
    const n: usize = @intCast(len);
    defer from.* = from.*[n..];
    return from.*[0..n];
}

fn isList(comptime T: type) bool {
    return @typeInfo(T) == .@"struct" and @hasField(T, "items") and @hasField(T, "capacity") and @hasDecl(T, "Slice");
}

fn hasOwn(comptime T: type, comptime name: []const u8) bool {
    return switch (@typeInfo(T)) {
        .@"struct", .@"enum", .@"union" => @hasDecl(T, name),
        else => false,
    };
}

fn IntOf(comptime bits: u16) type {
    return @Int(.unsigned, (bits + 7) / 8 * 8);
}

pub fn encode(comptime T: type, value: *const T, to: *Bytes, gpa: Allocator) Allocator.Error!void {
    if (comptime isList(T)) return encodeSlice(@typeInfo(T.Slice).pointer.child, value.items, to, gpa);
    if (comptime hasOwn(T, "encode")) return value.encode(to, gpa);
    switch (@typeInfo(T)) {
        .void => {},
        .bool => try to.append(gpa, @intFromBool(value.*)),
        .int => |int| {
            const Whole = IntOf(int.bits);
            var bytes: [@sizeOf(Whole)]u8 = undefined;
            const Same = @Int(.unsigned, int.bits);
            std.mem.writeInt(Whole, &bytes, @as(Same, @bitCast(value.*)), .little);
            try to.appendSlice(gpa, &bytes);
        },
        .float => |float| {
            const bits: @Int(.unsigned, float.bits) = @bitCast(value.*);
            try encode(@TypeOf(bits), &bits, to, gpa);
        },
        .@"enum" => |info| {
            const tag: info.tag_type = @intFromEnum(value.*);
            try encode(info.tag_type, &tag, to, gpa);
        },
        .optional => |optional| {
            try to.append(gpa, @intFromBool(value.* != null));
            if (value.*) |*some| try encode(optional.child, some, to, gpa);
        },
        .array => |array| for (value) |*item| try encode(array.child, item, to, gpa),
        .pointer => |pointer| {
            if (pointer.size != .slice) @compileError("a value of state has no pointer but slices: " ++ @typeName(T));
            try encodeSlice(pointer.child, value.*, to, gpa);
        },
        .@"struct" => inline for (comptime std.meta.fieldNames(T)) |name| {
            try encode(@FieldType(T, name), &@field(value, name), to, gpa);
        },
        else => @compileError("a value of state cannot be a " ++ @typeName(T) ++ ": give it encode, decode and deinit"),
    }
}

fn encodeSlice(comptime Item: type, items: []const Item, to: *Bytes, gpa: Allocator) Allocator.Error!void {
    try putVarint(to, gpa, items.len);
    if (Item == u8) return to.appendSlice(gpa, items);
    for (items) |*item| try encode(Item, item, to, gpa);
}

/// Takes a value off the front of `from`. On an error nothing stays allocated.
pub fn decode(comptime T: type, from: *[]const u8, gpa: Allocator, state_version: u32) Error!T {
    if (comptime isList(T)) {
        const items = try decodeSlice(@typeInfo(T.Slice).pointer.child, from, gpa, state_version);
        return T.fromOwnedSlice(items);
    }
    if (comptime hasOwn(T, "decode")) return T.decode(from, gpa, state_version);
    switch (@typeInfo(T)) {
        .void => return {},
        .bool => return switch ((try take(from, 1))[0]) {
            0 => false,
            1 => true,
            else => error.Damaged,
        },
        .int => |int| {
            const Whole = IntOf(int.bits);
            const whole = std.mem.readInt(Whole, (try take(from, @sizeOf(Whole)))[0..@sizeOf(Whole)], .little);
            const Same = @Int(.unsigned, int.bits);
            return @bitCast(std.math.cast(Same, whole) orelse return error.Damaged);
        },
        .float => |float| return @bitCast(try decode(@Int(.unsigned, float.bits), from, gpa, state_version)),
        .@"enum" => |info| {
            const tag = try decode(info.tag_type, from, gpa, state_version);
            return std.enums.fromInt(T, tag) orelse error.Damaged;
        },
        .optional => |optional| {
            if (!try decode(bool, from, gpa, state_version)) return null;
            return try decode(optional.child, from, gpa, state_version);
        },
        .array => |array| {
            var items: T = undefined;
            var done: usize = 0;
            errdefer for (items[0..done]) |*item| deinit(array.child, item, gpa);
            while (done < array.len) : (done += 1) items[done] = try decode(array.child, from, gpa, state_version);
            return items;
        },
        .pointer => |pointer| return decodeSlice(pointer.child, from, gpa, state_version),
        .@"struct" => {
            var value: T = undefined;
            const names = comptime std.meta.fieldNames(T);
            var done: usize = 0;
            errdefer inline for (names, 0..) |name, i| if (i < done) deinit(@FieldType(T, name), &@field(value, name), gpa);
            inline for (names) |name| {
                @field(value, name) = try decode(@FieldType(T, name), from, gpa, state_version);
                done += 1;
            }
            return value;
        },
        else => @compileError("a value of state cannot be a " ++ @typeName(T)),
    }
}

fn decodeSlice(comptime Item: type, from: *[]const u8, gpa: Allocator, state_version: u32) Error![]Item {
    const len = try takeVarint(from);
    if (Item == u8) return gpa.dupe(u8, try take(from, len));
    // An item takes a byte at least, unless it is empty: more than there are bytes is damage, and no reason to allocate.
    if (len > from.len) return error.Damaged;
    const items = try gpa.alloc(Item, @intCast(len));
    var done: usize = 0;
    errdefer {
        for (items[0..done]) |*item| deinit(Item, item, gpa);
        gpa.free(items);
    }
    while (done < items.len) : (done += 1) items[done] = try decode(Item, from, gpa, state_version);
    return items;
}

/// Frees what a value owns.
pub fn deinit(comptime T: type, value: *T, gpa: Allocator) void {
    if (comptime isList(T)) {
        for (value.items) |*item| deinit(@TypeOf(item.*), item, gpa);
        return value.deinit(gpa);
    }
    if (comptime hasOwn(T, "deinit")) return value.deinit(gpa);
    switch (@typeInfo(T)) {
        .optional => |optional| if (value.*) |*some| deinit(optional.child, some, gpa),
        .array => |array| for (value) |*item| deinit(array.child, item, gpa),
        .pointer => |pointer| {
            if (pointer.child != u8) for (@constCast(value.*)) |*item| deinit(pointer.child, item, gpa);
            gpa.free(value.*);
        },
        .@"struct" => inline for (comptime std.meta.fieldNames(T)) |name| deinit(@FieldType(T, name), &@field(value, name), gpa),
        else => {},
    }
}
