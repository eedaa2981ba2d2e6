//! Hash tables, one for each key group of a collection: open addressing with linear probing, removal by moving back. A slot holds the lower
//! half of a hash, about which the key group says nothing. Entries stay where they are until they are removed.

const std = @import("std");
const Allocator = std.mem.Allocator;
const Key = @import("batch.zig").Key;

/// A table of values; with `timed`, a time belongs to the key.
pub fn Table(comptime V: type, comptime timed: bool, comptime Extra: type) type {
    return struct {
        const Self = @This();

        pub const Entry = struct {
            hash: u64,
            time: if (timed) i64 else void,
            extra: Extra = undefined,
            value: V,
            key_len: u32,

            /// Its key: the bytes behind it.
            pub inline fn key(entry: *const Entry) []const u8 {
                const at: [*]const u8 = @ptrCast(entry);
                return at[@sizeOf(Entry)..][0..entry.key_len];
            }

            pub fn order(_: void, a: *Entry, b: *Entry) bool {
                if (timed and a.time != b.time) return a.time < b.time;
                return std.mem.lessThan(u8, a.key(), b.key());
            }

            pub fn free(entry: *Entry, gpa: Allocator) void {
                const at: [*]align(@alignOf(Entry)) u8 = @ptrCast(entry);
                gpa.free(at[0 .. @sizeOf(Entry) + entry.key_len]);
            }
        };

        const Slot = struct { tag: u32, entry: ?*Entry };
        const Time = if (timed) i64 else void;

        slots: []Slot = &.{},
        len: usize = 0,

        pub fn deinit(table: *Self, gpa: Allocator) void {
            gpa.free(table.slots);
        }

        inline fn tagOf(hash: u64, time: Time) u32 {
            const low: u32 = @truncate(hash);
            if (!timed) return low;
            return low ^ @as(u32, @truncate((@as(u64, @bitCast(time)) *% 0x9E3779B97F4A7C15) >> 32));
        }

        /// By words: comparing bytes one by one is slow on wasm32.
        inline fn sameKey(a: []const u8, b: []const u8) bool {
            if (a.len != b.len) return false;
            if (a.len < 8) {
                for (a, b) |x, y| if (x != y) return false;
                return true;
            }
            var i: usize = 0;
            while (i + 8 < a.len) : (i += 8) {
                if (@as(u64, @bitCast(a[i..][0..8].*)) != @as(u64, @bitCast(b[i..][0..8].*))) return false;
            }
            return @as(u64, @bitCast(a[a.len - 8 ..][0..8].*)) == @as(u64, @bitCast(b[b.len - 8 ..][0..8].*));
        }

        pub inline fn find(table: *const Self, key: Key, time: Time) ?*Entry {
            if (table.slots.len == 0) return null;
            const mask = table.slots.len - 1;
            const tag = tagOf(key.hash, time);
            var at = tag & mask;
            while (table.slots[at].entry) |entry| : (at = (at + 1) & mask) {
                if (table.slots[at].tag != tag or entry.hash != key.hash) continue;
                if (timed and entry.time != time) continue;
                if (sameKey(entry.key(), key.bytes)) return entry;
            }
            return null;
        }

        /// Adds an entry for a key that is not there. Its value is not set.
        pub fn add(table: *Self, gpa: Allocator, key: Key, time: Time) Allocator.Error!*Entry {
            if (table.len + 1 > table.slots.len / 4 * 3) try table.grow(gpa);
            const memory = try gpa.alignedAlloc(u8, .of(Entry), @sizeOf(Entry) + key.bytes.len);
            const entry: *Entry = @ptrCast(memory.ptr);
            entry.* = .{ .hash = key.hash, .time = time, .value = undefined, .key_len = @intCast(key.bytes.len) };
            @memcpy(memory[@sizeOf(Entry)..], key.bytes);
            table.place(.{ .tag = tagOf(key.hash, time), .entry = entry });
            table.len += 1;
            return entry;
        }

        /// Takes an entry out; it is not freed.
        pub fn remove(table: *Self, entry: *const Entry) void {
            const mask = table.slots.len - 1;
            var at = tagOf(entry.hash, entry.time) & mask;
            while (table.slots[at].entry != entry) at = (at + 1) & mask;
            // What comes after and would not be found any more moves into the gap.
            var next = (at + 1) & mask;
            while (table.slots[next].entry != null) : (next = (next + 1) & mask) {
                const home = table.slots[next].tag & mask;
                if (((next -% home) & mask) >= ((next -% at) & mask)) {
                    table.slots[at] = table.slots[next];
                    at = next;
                }
            }
            table.slots[at].entry = null;
            table.len -= 1;
        }

        fn place(table: *Self, slot: Slot) void {
            const mask = table.slots.len - 1;
            var at = slot.tag & mask;
            while (table.slots[at].entry != null) at = (at + 1) & mask;
            table.slots[at] = slot;
        }

        fn grow(table: *Self, gpa: Allocator) Allocator.Error!void {
            const old = table.slots;
            table.slots = try gpa.alloc(Slot, if (old.len == 0) 8 else old.len * 2);
            @memset(table.slots, .{ .tag = 0, .entry = null });
            for (old) |slot| if (slot.entry != null) table.place(slot);
            gpa.free(old);
        }

        /// All entries, by time and the bytes of the key. To be freed.
        pub fn sorted(table: *const Self, gpa: Allocator) Allocator.Error![]*Entry {
            var entries = try gpa.alloc(*Entry, table.len);
            var len: usize = 0;
            for (table.slots) |slot| if (slot.entry) |entry| {
                entries[len] = entry;
                len += 1;
            };
            std.mem.sortUnstable(*Entry, entries, {}, Entry.order);
            return entries;
        }
    };
}
