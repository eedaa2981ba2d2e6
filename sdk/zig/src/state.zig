//! The state of an operator: its collections together, because they share one segment for each key group. Collections are the fields of the operator
//! that are one, and are found again in a snapshot by the field's name.
//!
//! A snapshot writes each place (a key group, the subtask's values, the shared values) that has changed since the last one whole, as a base. At
//! the cut nothing is copied: a place that is still to be written is encoded when its turn comes, or just before it changes for the
//! first time. So later steps write the state of the cut, and the stream goes on meanwhile.

const std = @import("std");
const Allocator = std.mem.Allocator;
const host = @import("host.zig");
const operator = @import("operator.zig");
const codec = @import("codec.zig");
const Chunks = @import("chunk.zig").Chunks;
const Reader = @import("chunk.zig").Reader;
const Section = @import("chunk.zig").Section;
const keyGroup = @import("batch.zig").keyGroup;

const Mark = packed struct(u8) { dirty: bool = false, pending: bool = false, frozen: bool = false, _: u5 = 0 };

/// Whether a field of an operator is a collection.
fn isPart(comptime T: type) bool {
    return @typeInfo(T) == .@"struct" and @hasDecl(T, "weir_part");
}

/// Calls of the collections of one type of operator.
const Parts = struct {
    operator: *anyopaque,
    encode: *const fn (*anyopaque, place: u32, to: *Chunks) Allocator.Error!void,
    isLive: *const fn (*anyopaque, place: u32) bool,
    takeOver: *const fn (*anyopaque, state: *State, place: u32, section: *Section, state_version: u32) codec.Error!void,

    fn of(comptime Op: type, op: *Op) Parts {
        const calls = struct {
            fn self(erased: *anyopaque) *Op {
                return @ptrCast(@alignCast(erased));
            }

            fn encode(erased: *anyopaque, place: u32, to: *Chunks) Allocator.Error!void {
                inline for (comptime std.meta.fieldNames(Op)) |name| if (comptime isPart(@FieldType(Op, name))) {
                    to.section(name);
                    try @field(self(erased), name).encodePlace(place, to);
                };
                try to.end();
            }

            fn isLive(erased: *anyopaque, place: u32) bool {
                inline for (comptime std.meta.fieldNames(Op)) |name| if (comptime isPart(@FieldType(Op, name))) {
                    if (@field(self(erased), name).isLive(place)) return true;
                };
                return false;
            }

            fn takeOver(erased: *anyopaque, state: *State, place: u32, section: *Section, state_version: u32) codec.Error!void {
                inline for (comptime std.meta.fieldNames(Op)) |name| if (comptime isPart(@FieldType(Op, name))) {
                    if (std.mem.eql(u8, name, section.name)) {
                        const part = &@field(self(erased), name);
                        state.wrong = "an entry is cut short";
                        while (try section.next()) |entry| {
                            if (section.put) try part.restore(place, entry.key, entry.value, state_version) else part.restoreRemoved(place, entry.key);
                            state.wrong = "an entry is cut short";
                        }
                        return;
                    }
                };
                return state.damaged("this plugin has no such collection: declare a field of that name, or start without this state");
            }
        };
        return .{ .operator = op, .encode = calls.encode, .isLive = calls.isLive, .takeOver = calls.takeOver };
    }
};

/// Frees the collections of an operator; for tests.
pub fn deinitParts(comptime Op: type, op: *Op) void {
    inline for (comptime std.meta.fieldNames(Op)) |name| if (comptime isPart(@FieldType(Op, name))) @field(op, name).deinit();
}

pub const State = struct {
    gpa: Allocator,
    key_groups: u32,
    first: u32,
    /// Of this subtask.
    groups: u32,
    parts: Parts = undefined,
    /// By place: one for each key group, then the subtask's values, then the shared ones.
    marks: []Mark,
    /// By place: what an open snapshot has to write of it as it was at the cut.
    frozen: []?Chunks,
    /// The next snapshot writes everything.
    rewrite: bool = false,
    /// A snapshot is open, of this epoch.
    open: ?u64 = null,
    place: u32 = 0,
    writing: ?Chunks = null,
    written: usize = 0,
    /// What is wrong with state that is being restored.
    wrong: []const u8 = "",

    const place_count_more = 2;

    pub fn create(task: *const operator.Task) Allocator.Error!*State {
        const gpa = task.gpa;
        const state = try gpa.create(State);
        const groups = task.end_key_group - task.first_key_group;
        state.* = .{
            .gpa = gpa,
            .key_groups = task.key_groups,
            .first = task.first_key_group,
            .groups = groups,
            .marks = try gpa.alloc(Mark, groups + place_count_more),
            .frozen = try gpa.alloc(?Chunks, groups + place_count_more),
        };
        @memset(state.marks, .{});
        @memset(state.frozen, null);
        return state;
    }

    pub fn destroy(state: *State) void {
        for (state.frozen) |*frozen| if (frozen.*) |*chunks| chunks.deinit();
        if (state.writing) |*chunks| chunks.deinit();
        state.gpa.free(state.marks);
        state.gpa.free(state.frozen);
        state.gpa.destroy(state);
    }

    /// The operator whose fields are the state; it must not move after this.
    pub fn attach(state: *State, comptime Op: type, op: *Op) void {
        state.parts = .of(Op, op);
    }

    /// The place of a hash's key group.
    pub inline fn placeOf(state: *const State, hash: u64) u32 {
        const place = keyGroup(hash, state.key_groups) -% state.first;
        if (place >= state.groups) state.notOurs(hash);
        return place;
    }

    fn notOurs(state: *const State, hash: u64) noreturn {
        @branchHint(.cold);
        std.debug.panic("a key of key group {d} came to a subtask that has {d} to {d}: declare the input port as keyed", .{
            keyGroup(hash, state.key_groups), state.first, state.first + state.groups - 1,
        });
    }

    pub fn scopePlace(state: *const State, scope: host.Scope) u32 {
        return state.groups + @intFromBool(scope == .shared);
    }

    /// To be called before something changes in a place.
    pub inline fn touch(state: *State, place: u32) Allocator.Error!void {
        if (state.marks[place].pending) try state.keep(place);
        state.marks[place].dirty = true;
    }

    fn keep(state: *State, place: u32) Allocator.Error!void {
        @branchHint(.cold);
        state.frozen[place] = try state.encode(place);
        state.marks[place].pending = false;
        state.marks[place].frozen = true;
    }

    fn encode(state: *State, place: u32) Allocator.Error!Chunks {
        var chunks: Chunks = .{ .gpa = state.gpa };
        errdefer chunks.deinit();
        try state.parts.encode(state.parts.operator, place, &chunks);
        return chunks;
    }

    fn begin(state: *State, epoch: u64, asked_full: bool) void {
        const full = asked_full or state.open != null or state.rewrite;
        // Where less was asked for, the host keeps what is not written: what has become empty must be said, too.
        const say_empty = full and !asked_full;
        for (state.marks, state.frozen, 0..) |*mark, *frozen, place| {
            if (frozen.*) |*chunks| chunks.deinit();
            frozen.* = null;
            const wanted = if (full) say_empty or state.parts.isLive(state.parts.operator, @intCast(place)) else mark.dirty;
            mark.* = .{ .pending = wanted };
        }
        if (state.writing) |*chunks| chunks.deinit();
        state.writing = null;
        state.rewrite = false;
        state.open = epoch;
        state.place = 0;
    }

    /// Whether there is another chunk; finds it.
    fn findChunk(state: *State) Allocator.Error!bool {
        while (state.writing == null) {
            if (state.place == state.marks.len) return false;
            const place = state.place;
            const mark = &state.marks[place];
            if (mark.pending) {
                state.writing = try state.encode(place);
            } else if (mark.frozen) {
                state.writing = state.frozen[place];
                state.frozen[place] = null;
            }
            mark.* = .{ .dirty = mark.dirty };
            state.written = 0;
            state.place += 1;
        }
        return true;
    }

    /// Writes the next chunk. False: the host asks to stop soon.
    fn writeChunk(state: *State) bool {
        const place = state.place - 1;
        const chunks = &state.writing.?;
        var chunk: host.Chunk = .{ .scope = .key_group, .group = state.first + place, .data = "" };
        if (place >= state.groups) chunk = .{ .scope = if (place == state.groups) .subtask else .shared, .data = "" };
        const len = chunks.ends.items.len;
        // Without chunks it has become empty, which an empty base says.
        if (len > 0) chunk.data = chunks.get(state.written);
        const go_on = host.write(chunk);
        state.written += 1;
        if (state.written >= len) {
            chunks.deinit();
            state.writing = null;
        }
        return go_on;
    }

    pub fn snapshot(state: *State, epoch: u64, full: bool) operator.Error!operator.Progress {
        if (state.open != epoch) state.begin(epoch, full);
        var go_on = true;
        while (try state.findChunk()) {
            if (!go_on) return .more;
            go_on = state.writeChunk();
        }
        state.open = null;
        return .done;
    }

    pub fn damaged(state: *State, wrong: []const u8) error{Damaged} {
        state.wrong = wrong;
        return error.Damaged;
    }

    /// A key that is in the wrong key group is one whose bytes were damaged.
    pub fn checkGroup(state: *State, place: u32, hash: u64) error{Damaged}!void {
        if (place >= state.groups) return state.damaged("it holds keys, and is no key group");
        if (keyGroup(hash, state.key_groups) != state.first + place) return state.damaged("it holds a key of another key group");
    }

    /// A whole value.
    pub fn decode(state: *State, comptime V: type, bytes: []const u8, state_version: u32) codec.Error!V {
        state.wrong = "a value does not decode: has its type changed, and the state version not?";
        var rest = bytes;
        var value = try codec.decode(V, &rest, state.gpa, state_version);
        if (rest.len == 0) return value;
        codec.deinit(V, &value, state.gpa);
        return error.Damaged;
    }

    pub fn restore(state: *State, state_version: u32, rewrite: bool) operator.Error!void {
        var reader: Reader = .{ .gpa = state.gpa };
        defer reader.deinit();
        while (host.read()) |chunk| {
            var collection: ?[]const u8 = null;
            state.restoreChunk(&reader, chunk, state_version, &collection) catch |wrong| switch (wrong) {
                error.OutOfMemory => return error.OutOfMemory,
                error.Damaged => return cannotRead(chunk, collection, if (reader.wrong.len > 0) reader.wrong else state.wrong),
            };
        }
        if (reader.joining) return operator.fail(error.Invalid, "state cannot be read: the last part of an entry is missing", .{});
        // It counts as stored as it was read.
        @memset(state.marks, .{});
        state.rewrite = rewrite;
    }

    fn restoreChunk(state: *State, reader: *Reader, chunk: host.Chunk, state_version: u32, collection: *?[]const u8) codec.Error!void {
        const place = switch (chunk.scope) {
            .key_group => chunk.group -% state.first,
            .subtask, .shared => state.scopePlace(chunk.scope),
            .item => return state.damaged("this SDK writes no segment of that scope"),
        };
        if (chunk.scope == .key_group and place >= state.groups) return state.damaged("it is none of this subtask's");
        try reader.begin(chunk.data);
        while (try reader.next()) |found| {
            var section = found;
            collection.* = section.name;
            try state.parts.takeOver(state.parts.operator, state, place, &section, state_version);
            collection.* = null;
        }
    }

    fn cannotRead(chunk: host.Chunk, collection: ?[]const u8, wrong: []const u8) operator.Error {
        var where: [64]u8 = undefined;
        const segment = switch (chunk.scope) {
            .key_group => operator.formatCut(&where, "key group {d}", .{chunk.group}),
            else => operator.formatCut(&where, "scope {t}", .{chunk.scope}),
        };
        if (collection) |name| return operator.fail(error.Invalid, "state cannot be read: {s}, collection \"{s}\": {s}", .{ segment, name, wrong });
        return operator.fail(error.Invalid, "state cannot be read: {s}: {s}", .{ segment, wrong });
    }
};
