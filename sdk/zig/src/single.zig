//! A value without a key.

const std = @import("std");
const Allocator = std.mem.Allocator;
const codec = @import("codec.zig");
const host = @import("host.zig");
const Chunks = @import("chunk.zig").Chunks;
const State = @import("state.zig").State;
const Task = @import("operator.zig").Task;

/// A value of this subtask alone: the job refuses another parallelism.
pub fn SubtaskValue(comptime V: type) type {
    return Single(V, .subtask);
}

/// A value that every subtask has alike, as rules that all received: any one copy goes to all, so all must have come to the same.
pub fn SharedValue(comptime V: type) type {
    return Single(V, .shared);
}

fn Single(comptime V: type, comptime scope: host.Scope) type {
    return struct {
        const Self = @This();
        pub const weir_part = true;

        state: *State,
        value: V,
        /// It was asked for to be changed, or restored.
        is_set: bool = false,

        pub fn init(task: *const Task, initial: V) Self {
            return .{ .state = task.state, .value = initial };
        }

        /// Frees it; only tests have to.
        pub fn deinit(self: *Self) void {
            codec.deinit(V, &self.value, self.state.gpa);
        }

        pub fn get(self: *const Self) *const V {
            return &self.value;
        }

        /// It, to be changed in this call.
        pub fn getPtr(self: *Self) Allocator.Error!*V {
            try self.state.touch(self.state.scopePlace(scope));
            self.is_set = true;
            return &self.value;
        }

        // ---- As a part of the state

        pub fn encodePlace(self: *Self, place: u32, to: *Chunks) Allocator.Error!void {
            if (self.isLive(place)) try to.put("", "", V, &self.value);
        }

        pub fn isLive(self: *const Self, place: u32) bool {
            return self.is_set and place == self.state.scopePlace(scope);
        }

        pub fn restore(self: *Self, place: u32, _: []const u8, encoded: []const u8, state_version: u32) codec.Error!void {
            if (place != self.state.scopePlace(scope)) return self.state.damaged("it holds a value that belongs to another scope");
            const new = try self.state.decode(V, encoded, state_version);
            codec.deinit(V, &self.value, self.state.gpa);
            self.value = new;
            self.is_set = true;
        }

        /// A value is never written as gone.
        pub fn restoreRemoved(_: *Self, _: u32, _: []const u8) void {}
    };
}
