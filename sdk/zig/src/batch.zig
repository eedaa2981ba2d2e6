//! Batches in columns: views of what the host wrote into memory, and the builder of what goes out.

const std = @import("std");
const Allocator = std.mem.Allocator;

/// The event time of a record that has none, as it stands in a column. Times are microseconds since 1970-01-01T00:00:00Z.
pub const no_time: i64 = std.math.minInt(i64);
/// The last watermark of a stream: nothing will come any more.
pub const end_of_time: i64 = std.math.maxInt(i64);

/// A key with its hash, XXH3-64 with seed 0. The bytes are borrowed.
pub const Key = struct {
    bytes: []const u8,
    hash: u64,

    /// Hashes the bytes. `Batch.key` has the host's hash, which is free.
    pub fn of(bytes: []const u8) Key {
        return .{ .bytes = bytes, .hash = std.hash.XxHash3.hash(0, bytes) };
    }
};

/// The key group of a hash; at most 32,768 key groups.
pub inline fn keyGroup(hash: u64, key_groups: u32) u32 {
    return @intCast(((hash >> 32 & 0xffff) * key_groups) >> 16);
}

/// One byte string or none for each record. Empty when no record has one.
pub const Column = struct {
    /// One more than records, or none.
    offsets: []const u32 = &.{},
    bytes: []const u8 = &.{},
    /// A bit for each record, or none: set means that it has none.
    nulls: []const u8 = &.{},

    pub inline fn get(column: Column, row: usize) ?[]const u8 {
        if (column.offsets.len == 0) return null;
        if (column.nulls.len != 0 and column.nulls[row / 8] >> @intCast(row % 8) & 1 == 1) return null;
        return column.bytes[column.offsets[row]..column.offsets[row + 1]];
    }
};

/// Records in columns, borrowed: a batch that comes in is valid for the time of its call. A plain struct, so the same records with
/// other values are a copy of it with another column.
pub const Batch = struct {
    timestamps: []const i64,
    /// Of each key on a keyed input, else empty. Ignored in what is emitted.
    hashes: []const u64 = &.{},
    keys: Column = .{},
    values: Column = .{},
    headers: Column = .{},

    /// The number of records; at least one in a batch that comes in.
    pub inline fn len(batch: Batch) usize {
        return batch.timestamps.len;
    }

    pub inline fn record(batch: *const Batch, row: usize) Record {
        return .{ .batch = batch, .index = row };
    }

    /// All records, in order: `while (records.next()) |record|`.
    pub fn records(batch: *const Batch) Records {
        return .{ .batch = batch };
    }
};

pub const Records = struct {
    batch: *const Batch,
    index: usize = 0,

    pub inline fn next(all: *Records) ?Record {
        if (all.index == all.batch.len()) return null;
        defer all.index += 1;
        return .{ .batch = all.batch, .index = all.index };
    }
};

/// One record of a batch.
pub const Record = struct {
    batch: *const Batch,
    /// Its number in the batch: what `Output.reject` wants.
    index: usize,

    /// Its event time, if it has one.
    pub inline fn time(record: Record) ?i64 {
        const at = record.batch.timestamps[record.index];
        return if (at == no_time) null else at;
    }

    /// Its key with its hash, if it has one. An empty key is a key.
    pub inline fn key(record: Record) ?Key {
        const bytes = record.batch.keys.get(record.index) orelse return null;
        if (record.batch.hashes.len == 0) return .of(bytes);
        return .{ .bytes = bytes, .hash = record.batch.hashes[record.index] };
    }

    /// Its value; a record without one is a tombstone: what was known under its key is gone.
    pub inline fn value(record: Record) ?[]const u8 {
        return record.batch.values.get(record.index);
    }

    /// Its headers, in order; a name may come more than once.
    pub fn headers(record: Record) Headers {
        return .{ .rest = record.batch.headers.get(record.index) orelse &.{} };
    }

    /// Its value, parsed as JSON; what it allocates lies in `arena`. A record without a value reads as `null`. Members that `T` does not
    /// have are skipped.
    pub fn json(record: Record, comptime T: type, arena: Allocator) !T {
        return std.json.parseFromSliceLeaky(T, arena, record.value() orelse "null", .{ .ignore_unknown_fields = true });
    }
};

pub const Header = struct { name: []const u8, value: []const u8 };

pub const Headers = struct {
    rest: []const u8,

    pub fn next(headers: *Headers) ?Header {
        const name = headers.take(u16) orelse return null;
        const value = headers.take(u32) orelse return null;
        return .{ .name = name, .value = value };
    }

    fn take(headers: *Headers, comptime Length: type) ?[]const u8 {
        const prefix = @sizeOf(Length);
        if (headers.rest.len < prefix) return null;
        const len = std.mem.readInt(Length, headers.rest[0..prefix], .little);
        if (headers.rest.len - prefix < len) return null;
        defer headers.rest = headers.rest[prefix + len ..];
        return headers.rest[prefix..][0..len];
    }
};

/// Makes batches. Copies what it is given.
pub const BatchBuilder = struct {
    gpa: Allocator,
    timestamps: std.ArrayList(i64) = .empty,
    keys: ColumnBuilder = .{},
    values: ColumnBuilder = .{},
    headers: ColumnBuilder = .{},

    pub fn init(gpa: Allocator) BatchBuilder {
        return .{ .gpa = gpa };
    }

    pub fn deinit(builder: *BatchBuilder) void {
        builder.timestamps.deinit(builder.gpa);
        builder.keys.deinit(builder.gpa);
        builder.values.deinit(builder.gpa);
        builder.headers.deinit(builder.gpa);
        builder.* = undefined;
    }

    pub fn len(builder: *const BatchBuilder) usize {
        return builder.timestamps.items.len;
    }

    /// Adds a record.
    pub fn push(builder: *BatchBuilder, time: ?i64, key: ?[]const u8, value: ?[]const u8) Allocator.Error!void {
        return builder.pushAll(time orelse no_time, key, value, null);
    }

    /// Adds a record whose value is these parts, one after the other.
    pub fn pushParts(builder: *BatchBuilder, time: ?i64, key: ?[]const u8, parts: []const []const u8) Allocator.Error!void {
        try builder.push(time, key, if (parts.len > 0) parts[0] else "");
        const column = &builder.values;
        for (parts[@min(1, parts.len)..]) |part| try column.bytes.appendSlice(builder.gpa, part);
        column.offsets.items[builder.len()] = @intCast(column.bytes.items.len);
    }

    /// Adds a record of a batch as it is, headers too.
    pub fn pushRecord(builder: *BatchBuilder, record: Record) Allocator.Error!void {
        const batch, const row = .{ record.batch, record.index };
        return builder.pushAll(batch.timestamps[row], batch.keys.get(row), batch.values.get(row), batch.headers.get(row));
    }

    /// Adds a header to the record that was pushed last. A name has at most 65,535 bytes.
    pub fn header(builder: *BatchBuilder, name: []const u8, value: []const u8) Allocator.Error!void {
        const gpa, const column = .{ builder.gpa, &builder.headers };
        std.debug.assert(builder.len() > 0 and name.len <= std.math.maxInt(u16));
        if (!column.any) {
            try column.begin(gpa, builder.len() - 1);
            try column.offsets.append(gpa, 0);
            if ((builder.len() - 1) % 8 == 0) try column.nulls.append(gpa, 0);
        }
        var prefix: [4]u8 = undefined;
        std.mem.writeInt(u16, prefix[0..2], @intCast(name.len), .little);
        try column.bytes.appendSlice(gpa, prefix[0..2]);
        try column.bytes.appendSlice(gpa, name);
        std.mem.writeInt(u32, &prefix, @intCast(value.len), .little);
        try column.bytes.appendSlice(gpa, &prefix);
        try column.bytes.appendSlice(gpa, value);
        column.offsets.items[builder.len()] = @intCast(column.bytes.items.len);
    }

    /// The bytes of all columns, about.
    pub fn byteLen(builder: *const BatchBuilder) usize {
        return builder.timestamps.items.len * 8 + builder.keys.byteLen() + builder.values.byteLen() + builder.headers.byteLen();
    }

    /// What was pushed, as a batch: valid until the builder changes.
    pub fn view(builder: *const BatchBuilder) Batch {
        var headers = builder.headers.view();
        headers.nulls = &.{}; // a record without headers takes no bytes: this column has no nulls
        return .{ .timestamps = builder.timestamps.items, .keys = builder.keys.view(), .values = builder.values.view(), .headers = headers };
    }

    /// Forgets the records and keeps the memory.
    pub fn clear(builder: *BatchBuilder) void {
        builder.timestamps.clearRetainingCapacity();
        builder.keys.clear();
        builder.values.clear();
        builder.headers.clear();
    }

    fn pushAll(builder: *BatchBuilder, time: i64, key: ?[]const u8, value: ?[]const u8, headers: ?[]const u8) Allocator.Error!void {
        const row = builder.len();
        try builder.timestamps.append(builder.gpa, time);
        try builder.keys.push(builder.gpa, row, key);
        try builder.values.push(builder.gpa, row, value);
        const some = headers orelse "";
        try builder.headers.push(builder.gpa, row, if (some.len == 0) null else some);
    }
};

const ColumnBuilder = struct {
    offsets: std.ArrayList(u32) = .empty,
    bytes: std.ArrayList(u8) = .empty,
    nulls: std.ArrayList(u8) = .empty,
    any: bool = false,
    gaps: bool = false,

    fn deinit(column: *ColumnBuilder, gpa: Allocator) void {
        column.offsets.deinit(gpa);
        column.bytes.deinit(gpa);
        column.nulls.deinit(gpa);
    }

    /// Offsets are written once some record has something: for the records before, then.
    fn begin(column: *ColumnBuilder, gpa: Allocator, rows: usize) Allocator.Error!void {
        if (column.any) return;
        column.any = true;
        column.gaps = rows > 0;
        try column.offsets.appendNTimes(gpa, 0, rows + 1);
        try column.nulls.appendNTimes(gpa, 0xff, (rows + 7) / 8);
        if (rows % 8 != 0) column.nulls.items[rows / 8] = (@as(u8, 1) << @intCast(rows % 8)) - 1;
    }

    fn push(column: *ColumnBuilder, gpa: Allocator, row: usize, bytes: ?[]const u8) Allocator.Error!void {
        if (bytes == null and !column.any) return;
        try column.begin(gpa, row);
        if (bytes) |some| try column.bytes.appendSlice(gpa, some);
        try column.offsets.append(gpa, @intCast(column.bytes.items.len));
        if (row % 8 == 0) try column.nulls.append(gpa, 0);
        if (bytes == null) {
            column.nulls.items[row / 8] |= @as(u8, 1) << @intCast(row % 8);
            column.gaps = true;
        }
    }

    fn byteLen(column: *const ColumnBuilder) usize {
        return column.offsets.items.len * 4 + column.bytes.items.len + column.nulls.items.len;
    }

    fn view(column: *const ColumnBuilder) Column {
        if (!column.any) return .{};
        return .{ .offsets = column.offsets.items, .bytes = column.bytes.items, .nulls = if (column.gaps) column.nulls.items else &.{} };
    }

    fn clear(column: *ColumnBuilder) void {
        column.offsets.clearRetainingCapacity();
        column.bytes.clearRetainingCapacity();
        column.nulls.clearRetainingCapacity();
        column.any = false;
        column.gaps = false;
    }
};
