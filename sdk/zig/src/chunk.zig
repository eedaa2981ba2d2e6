//! The bytes of keyed state in a snapshot: chunks, each of which can be decoded alone. The same format as the Rust SDK's:
//!
//!     chunk    = format (1)  section*
//!     section  = operation, name length, name, namespace (zigzag varint), hint (varint), body length (4 bytes), body
//!     body     = (key length (varint), key, value length (varint), value)*     without values for DELETE
//!
//! An entry that is too large for one chunk goes as FRAGMENTs, which are joined before they are read.

const std = @import("std");
const Allocator = std.mem.Allocator;
const codec = @import("codec.zig");

const format = 1;
/// No chunk is longer.
const chunk_bytes_max = 256 << 10;

const Operation = enum(u8) { put = 0, delete = 1, fragment = 4, last_of_put = 5, last_of_delete = 6, _ };

/// The chunks of one segment, one after the other.
pub const Chunks = struct {
    gpa: Allocator,
    bytes: codec.Bytes = .empty,
    /// Where each chunk ends.
    ends: std.ArrayList(usize) = .empty,
    item: codec.Bytes = .empty,
    name: []const u8 = "",
    /// Where the open section's body begins; 0 when none is open.
    body: usize = 0,
    /// Where the open chunk begins.
    start: usize = 0,

    pub fn deinit(chunks: *Chunks) void {
        chunks.bytes.deinit(chunks.gpa);
        chunks.ends.deinit(chunks.gpa);
        chunks.item.deinit(chunks.gpa);
    }

    pub fn get(chunks: *const Chunks, index: usize) []const u8 {
        const from = if (index == 0) 0 else chunks.ends.items[index - 1];
        return chunks.bytes.items[from..chunks.ends.items[index]];
    }

    /// What comes next belongs to this collection.
    pub fn section(chunks: *Chunks, name: []const u8) void {
        chunks.endSection();
        chunks.name = name;
    }

    /// Adds an entry, whose key is `prefix` and then `key`.
    pub fn put(chunks: *Chunks, prefix: []const u8, key: []const u8, comptime V: type, value: *const V) Allocator.Error!void {
        const gpa, const item = .{ chunks.gpa, &chunks.item };
        // The value first, since its length comes before it.
        item.clearRetainingCapacity();
        try codec.encode(V, value, item, gpa);
        const value_len = item.items.len;
        try codec.putVarint(item, gpa, prefix.len + key.len);
        try item.appendSlice(gpa, prefix);
        try item.appendSlice(gpa, key);
        try codec.putVarint(item, gpa, value_len);
        std.mem.rotate(u8, item.items, value_len);
        try chunks.putItem();
    }

    fn putItem(chunks: *Chunks) Allocator.Error!void {
        const item = chunks.item.items;
        const around = 1 + 2 + chunks.name.len + 2 + 4;
        if (chunks.bytes.items.len - chunks.start + around + item.len > chunk_bytes_max) try chunks.end();
        if (around + item.len <= chunk_bytes_max) {
            if (chunks.body == 0) try chunks.beginSection(.put);
            return chunks.bytes.appendSlice(chunks.gpa, item);
        }
        var parts = std.mem.window(u8, item, chunk_bytes_max - around, chunk_bytes_max - around);
        while (parts.next()) |part| {
            const last = part.ptr + part.len == item.ptr + item.len;
            try chunks.beginSection(if (last) .last_of_put else .fragment);
            try chunks.bytes.appendSlice(chunks.gpa, part);
            try chunks.end();
        }
    }

    /// Ends the last chunk.
    pub fn end(chunks: *Chunks) Allocator.Error!void {
        chunks.endSection();
        if (chunks.bytes.items.len == chunks.start) return;
        chunks.start = chunks.bytes.items.len;
        try chunks.ends.append(chunks.gpa, chunks.start);
    }

    fn beginSection(chunks: *Chunks, operation: Operation) Allocator.Error!void {
        const gpa, const to = .{ chunks.gpa, &chunks.bytes };
        if (to.items.len == chunks.start) try to.append(gpa, format);
        try to.append(gpa, @intFromEnum(operation));
        try to.append(gpa, @intCast(chunks.name.len));
        try to.appendSlice(gpa, chunks.name);
        try to.appendNTimes(gpa, 0, 2 + 4); // namespace, hint, and the length to come
        chunks.body = to.items.len;
    }

    fn endSection(chunks: *Chunks) void {
        if (chunks.body == 0) return;
        const len: u32 = @intCast(chunks.bytes.items.len - chunks.body);
        std.mem.writeInt(u32, chunks.bytes.items[chunks.body - 4 ..][0..4], len, .little);
        chunks.body = 0;
    }
};

pub const Section = struct {
    name: []const u8,
    put: bool,
    body: []const u8,

    pub const Entry = struct { key: []const u8, value: []const u8 };

    /// The next entry; of a delete its value is empty.
    pub fn next(section: *Section) error{Damaged}!?Entry {
        if (section.body.len == 0) return null;
        const key = try codec.take(&section.body, try codec.takeVarint(&section.body));
        const value = if (section.put) try codec.take(&section.body, try codec.takeVarint(&section.body)) else "";
        return .{ .key = key, .value = value };
    }
};

/// Takes the sections off chunks.
pub const Reader = struct {
    gpa: Allocator,
    rest: []const u8 = &.{},
    joined: codec.Bytes = .empty,
    joining: bool = false,
    /// What is wrong, after an error.
    wrong: []const u8 = "",

    pub fn deinit(reader: *Reader) void {
        reader.joined.deinit(reader.gpa);
    }

    pub fn begin(reader: *Reader, chunk: []const u8) error{Damaged}!void {
        reader.rest = chunk;
        if (chunk.len == 0) return;
        if (chunk[0] != format) return reader.damaged("a chunk is not in format 1, the only one that this SDK reads: build the plugin with a newer SDK");
        reader.rest = chunk[1..];
    }

    /// The next section, valid until the next call; none at the end of the chunk.
    pub fn next(reader: *Reader) codec.Error!?Section {
        if (!reader.joining) reader.joined.clearRetainingCapacity();
        while (reader.rest.len > 0) {
            const operation, const name, const namespace, const body = reader.take() catch return reader.damaged("a section is cut short");
            if (namespace != 0) return reader.damaged("a section holds windows, which this SDK keeps as timers");
            const is_part = switch (operation) {
                .put, .delete => false,
                .fragment, .last_of_put, .last_of_delete => true,
                else => return reader.damaged("a section has an operation that this SDK does not know"),
            };
            if (reader.joining and !is_part) return reader.damaged("the parts of an entry are not together");
            const is_put = operation == .put or operation == .last_of_put;
            if (!is_part) return .{ .name = name, .put = is_put, .body = body };
            reader.joining = operation == .fragment;
            try reader.joined.appendSlice(reader.gpa, body);
            if (!reader.joining) return .{ .name = name, .put = is_put, .body = reader.joined.items };
        }
        return null;
    }

    fn take(reader: *Reader) error{Damaged}!struct { Operation, []const u8, u64, []const u8 } {
        const operation: Operation = @enumFromInt((try codec.take(&reader.rest, 1))[0]);
        const name = try codec.take(&reader.rest, (try codec.take(&reader.rest, 1))[0]);
        const namespace = try codec.takeVarint(&reader.rest);
        _ = try codec.takeVarint(&reader.rest);
        const len = std.mem.readInt(u32, (try codec.take(&reader.rest, 4))[0..4], .little);
        return .{ operation, name, namespace, try codec.take(&reader.rest, len) };
    }

    fn damaged(reader: *Reader, wrong: []const u8) error{Damaged} {
        reader.wrong = wrong;
        return error.Damaged;
    }
};
