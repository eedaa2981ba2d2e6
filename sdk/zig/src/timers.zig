//! Times in event time, each with a key and a value: timers, or windows with what was gathered in them.

const std = @import("std");
const Allocator = std.mem.Allocator;
const codec = @import("codec.zig");
const Chunks = @import("chunk.zig").Chunks;
const Key = @import("batch.zig").Key;
const State = @import("state.zig").State;
const Table = @import("table.zig").Table;
const Task = @import("operator.zig").Task;

const Moments = std.Treap(i64, std.math.order);

/// Timers by time and key, which come due in `advance`, by time, then by the bytes of the key. A field of the operator, as `KeyedState`.
/// `V` is void for timers without a value.
///
/// Each time that some timer is set for is a moment of a treap, with the timers of that time; they are put in order when it comes due, all at once.
/// So a window of many keys costs no tree, and many windows no search.
pub fn EventTimers(comptime V: type) type {
    return struct {
        const Self = @This();
        const Entries = Table(V, true, struct { moment: *Moment, place: u32 });
        const Entry = Entries.Entry;
        pub const weir_part = true;

        const Moment = struct {
            node: Moments.Node,
            timers: std.ArrayList(*Entry) = .empty,
            /// The last is the first to fire.
            in_order: bool = true,

            fn of(node: *Moments.Node) *Moment {
                return @fieldParentPtr("node", node);
            }
        };

        /// A timer that is due.
        pub const Due = struct { time: i64, key: Key, value: *V };

        state: *State,
        tables: []Entries,
        moments: Moments = .{},
        /// Where the last timer was set.
        near: ?*Moment = null,
        /// What `due` gave out last.
        fired: ?*Entry = null,
        len: usize = 0,

        pub fn init(task: *const Task) Allocator.Error!Self {
            const tables = try task.gpa.alloc(Entries, task.state.groups);
            @memset(tables, .{});
            return .{ .state = task.state, .tables = tables };
        }

        /// Frees it; only tests have to.
        pub fn deinit(self: *Self) void {
            if (self.fired) |entry| self.free(entry);
            for (self.tables, 0..) |*table, place| {
                while (table.len > 0) {
                    const entry = for (table.slots) |slot| {
                        if (slot.entry) |entry| break entry;
                    } else unreachable;
                    self.take(@intCast(place), entry);
                    self.free(entry);
                }
                table.deinit(self.state.gpa);
            }
            self.state.gpa.free(self.tables);
        }

        /// Sets a timer if it is not set, and returns its value, to be changed; `initial` for a new one.
        pub fn set(self: *Self, time: i64, key: Key, initial: V) Allocator.Error!*V {
            const place = self.state.placeOf(key.hash);
            const found = self.tables[place].find(key, time);
            if (V == void and found != null) return &found.?.value; // nothing changes
            try self.state.touch(place);
            if (found) |entry| return &entry.value;
            const entry = try self.add(place, time, key);
            entry.value = initial;
            return &entry.value;
        }

        /// The value of a timer, if it is set.
        pub fn get(self: *const Self, time: i64, key: Key) ?*const V {
            const entry = self.tables[self.state.placeOf(key.hash)].find(key, time) orelse return null;
            return &entry.value;
        }

        /// Takes a timer back. False if it was not set.
        pub fn cancel(self: *Self, time: i64, key: Key) Allocator.Error!bool {
            const place = self.state.placeOf(key.hash);
            const entry = self.tables[place].find(key, time) orelse return false;
            try self.state.touch(place);
            self.take(place, entry);
            self.free(entry);
            return true;
        }

        /// The time of the earliest timer.
        pub fn earliest(self: *const Self) ?i64 {
            return if (self.moments.getMin()) |node| node.key else null;
        }

        pub fn count(self: *const Self) usize {
            return self.len;
        }

        /// Takes the earliest timer that is due at a watermark. Valid until the next call of `due`.
        pub fn due(self: *Self, watermark: i64) Allocator.Error!?Due {
            if (self.fired) |entry| self.free(entry);
            self.fired = null;
            const node = self.moments.getMin() orelse return null;
            if (node.key > watermark) return null;
            const moment = Moment.of(node);
            putInOrder(moment);
            const entry = moment.timers.items[moment.timers.items.len - 1];
            const place = self.state.placeOf(entry.hash);
            try self.state.touch(place);
            self.take(place, entry);
            self.fired = entry;
            return .{ .time = entry.time, .key = .{ .bytes = entry.key(), .hash = entry.hash }, .value = &entry.value };
        }

        fn putInOrder(moment: *Moment) void {
            if (moment.in_order) return;
            const timers = moment.timers.items;
            std.mem.sortUnstable(*Entry, timers, {}, struct {
                fn after(_: void, a: *Entry, b: *Entry) bool {
                    return Entry.order({}, b, a);
                }
            }.after);
            for (timers, 0..) |entry, i| entry.extra.place = @intCast(i);
            moment.in_order = true;
        }

        fn momentAt(self: *Self, time: i64) Allocator.Error!*Moment {
            if (self.near) |near| if (near.node.key == time) return near;
            var slot = self.moments.getEntryFor(time);
            const moment = if (slot.node) |node| Moment.of(node) else new: {
                const moment = try self.state.gpa.create(Moment);
                moment.* = .{ .node = undefined };
                slot.set(&moment.node);
                break :new moment;
            };
            self.near = moment;
            return moment;
        }

        /// Its value is not set.
        fn add(self: *Self, place: u32, time: i64, key: Key) Allocator.Error!*Entry {
            const moment = try self.momentAt(time);
            try moment.timers.ensureUnusedCapacity(self.state.gpa, 1);
            const entry = try self.tables[place].add(self.state.gpa, key, time);
            entry.extra = .{ .moment = moment, .place = @intCast(moment.timers.items.len) };
            moment.timers.appendAssumeCapacity(entry);
            moment.in_order = moment.timers.items.len == 1;
            self.len += 1;
            return entry;
        }

        /// Takes a timer out of its table and its moment; it is not freed.
        fn take(self: *Self, place: u32, entry: *Entry) void {
            const moment = entry.extra.moment;
            self.tables[place].remove(entry);
            const last = moment.timers.pop().?;
            if (last != entry) {
                moment.timers.items[entry.extra.place] = last;
                last.extra.place = entry.extra.place;
                moment.in_order = false;
            }
            self.len -= 1;
            if (moment.timers.items.len > 0) return;
            var slot = self.moments.getEntryForExisting(&moment.node);
            slot.set(null);
            if (self.near == moment) self.near = null;
            moment.timers.deinit(self.state.gpa);
            self.state.gpa.destroy(moment);
        }

        fn free(self: *const Self, entry: *Entry) void {
            codec.deinit(V, &entry.value, self.state.gpa);
            entry.free(self.state.gpa);
        }

        // ---- As a part of the state: the key of an entry is the time, so that it orders as bytes do, and the key.

        const sign: u64 = 1 << 63;

        pub fn encodePlace(self: *Self, place: u32, to: *Chunks) Allocator.Error!void {
            if (place >= self.state.groups) return;
            const entries = try self.tables[place].sorted(self.state.gpa);
            defer self.state.gpa.free(entries);
            for (entries) |entry| {
                var prefix: [8]u8 = undefined;
                std.mem.writeInt(u64, &prefix, @as(u64, @bitCast(entry.time)) ^ sign, .big);
                try to.put(&prefix, entry.key(), V, &entry.value);
            }
        }

        pub fn isLive(self: *const Self, place: u32) bool {
            return place < self.state.groups and self.tables[place].len > 0;
        }

        fn split(bytes: []const u8) ?struct { i64, Key } {
            if (bytes.len < 8) return null;
            const time: i64 = @bitCast(std.mem.readInt(u64, bytes[0..8], .big) ^ sign);
            return .{ time, .of(bytes[8..]) };
        }

        pub fn restore(self: *Self, place: u32, bytes: []const u8, encoded: []const u8, state_version: u32) codec.Error!void {
            const time, const key = split(bytes) orelse return self.state.damaged("a timer is cut short");
            try self.state.checkGroup(place, key.hash);
            var new = try self.state.decode(V, encoded, state_version);
            errdefer codec.deinit(V, &new, self.state.gpa);
            self.restoreRemoved(place, bytes);
            (try self.add(place, time, key)).value = new;
        }

        pub fn restoreRemoved(self: *Self, place: u32, bytes: []const u8) void {
            const time, const key = split(bytes) orelse return;
            if (place >= self.state.groups) return;
            const entry = self.tables[place].find(key, time) orelse return;
            self.take(place, entry);
            self.free(entry);
        }
    };
}
