//! A value for each key.

const std = @import("std");
const Allocator = std.mem.Allocator;
const codec = @import("codec.zig");
const Chunks = @import("chunk.zig").Chunks;
const Key = @import("batch.zig").Key;
const State = @import("state.zig").State;
const Table = @import("table.zig").Table;
const Task = @import("operator.zig").Task;

/// A value for each key of this subtask's key groups. A field of the operator: it is found again in a snapshot by the field's name, never change that.
/// `V` is anything that `codec` can write; what a value owns must come from `task.gpa`.
///
/// A pointer to a value is valid until the value is removed. One that may be changed counts as a change and is for this call: ask
/// for it anew in the next.
pub fn KeyedState(comptime V: type) type {
    return struct {
        const Self = @This();
        const Entries = Table(V, false, void);
        pub const weir_part = true;

        state: *State,
        tables: []Entries,

        pub fn init(task: *const Task) Allocator.Error!Self {
            const tables = try task.gpa.alloc(Entries, task.state.groups);
            @memset(tables, .{});
            return .{ .state = task.state, .tables = tables };
        }

        /// Frees it; only tests have to.
        pub fn deinit(self: *Self) void {
            for (self.tables) |*table| {
                for (table.slots) |slot| if (slot.entry) |entry| self.free(entry);
                table.deinit(self.state.gpa);
            }
            self.state.gpa.free(self.tables);
        }

        /// The value of a key.
        pub fn get(self: *const Self, key: Key) ?*const V {
            const entry = self.tables[self.state.placeOf(key.hash)].find(key, {}) orelse return null;
            return &entry.value;
        }

        /// The value of a key, to be changed.
        pub fn getPtr(self: *Self, key: Key) Allocator.Error!?*V {
            const place = self.state.placeOf(key.hash);
            const entry = self.tables[place].find(key, {}) orelse return null;
            try self.state.touch(place);
            return &entry.value;
        }

        /// The value of a key, to be changed; `initial` where there was none.
        pub fn value(self: *Self, key: Key, initial: V) Allocator.Error!*V {
            const place = self.state.placeOf(key.hash);
            try self.state.touch(place);
            const table = &self.tables[place];
            const entry = table.find(key, {}) orelse new: {
                const entry = try table.add(self.state.gpa, key, {});
                entry.value = initial;
                break :new entry;
            };
            return &entry.value;
        }

        /// Sets the value of a key; an old one is freed.
        pub fn put(self: *Self, key: Key, new: V) Allocator.Error!void {
            if (try self.getPtr(key)) |old| {
                codec.deinit(V, old, self.state.gpa);
                old.* = new;
            } else {
                _ = try self.value(key, new);
            }
        }

        /// Removes a key and frees its value. False where there was none.
        pub fn remove(self: *Self, key: Key) Allocator.Error!bool {
            const place = self.state.placeOf(key.hash);
            const entry = self.tables[place].find(key, {}) orelse return false;
            try self.state.touch(place);
            self.tables[place].remove(entry);
            self.free(entry);
            return true;
        }

        pub fn count(self: *const Self) usize {
            var sum: usize = 0;
            for (self.tables) |table| sum += table.len;
            return sum;
        }

        /// Calls `each(context, key, value)` with all keys by key group, then by their bytes: an order that depends on the content alone. It must
        /// not change the map.
        pub fn forEach(self: *const Self, context: anytype, comptime each: fn (@TypeOf(context), Key, *const V) void) Allocator.Error!void {
            for (self.tables) |*table| {
                const entries = try table.sorted(self.state.gpa);
                defer self.state.gpa.free(entries);
                for (entries) |entry| each(context, .{ .bytes = entry.key(), .hash = entry.hash }, &entry.value);
            }
        }

        fn free(self: *const Self, entry: *Entries.Entry) void {
            codec.deinit(V, &entry.value, self.state.gpa);
            entry.free(self.state.gpa);
        }

        // ---- As a part of the state

        pub fn encodePlace(self: *Self, place: u32, to: *Chunks) Allocator.Error!void {
            if (place >= self.state.groups) return;
            const entries = try self.tables[place].sorted(self.state.gpa);
            defer self.state.gpa.free(entries);
            for (entries) |entry| try to.put("", entry.key(), V, &entry.value);
        }

        pub fn isLive(self: *const Self, place: u32) bool {
            return place < self.state.groups and self.tables[place].len > 0;
        }

        pub fn restore(self: *Self, place: u32, bytes: []const u8, encoded: []const u8, state_version: u32) codec.Error!void {
            const key: Key = .of(bytes);
            try self.state.checkGroup(place, key.hash);
            var new = try self.state.decode(V, encoded, state_version);
            errdefer codec.deinit(V, &new, self.state.gpa);
            self.restoreRemoved(place, bytes);
            (try self.tables[place].add(self.state.gpa, key, {})).value = new;
        }

        pub fn restoreRemoved(self: *Self, place: u32, bytes: []const u8) void {
            if (place >= self.state.groups) return;
            const entry = self.tables[place].find(.of(bytes), {}) orelse return;
            self.tables[place].remove(entry);
            self.free(entry);
        }
    };
}
