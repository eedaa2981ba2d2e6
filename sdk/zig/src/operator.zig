//! What an operator says about itself and what it is given: the contract of `wit/` in Zig.

const std = @import("std");
const Allocator = std.mem.Allocator;
const host = @import("host.zig");
const batches = @import("batch.zig");
const State = @import("state.zig").State;

/// Whether a call has finished what it was called for; if not, the host passes on what there is and calls `resume`.
pub const Progress = enum(u8) { done, more };

/// Why a call fails: the same call later (only if nothing has changed in the operator); something that a person has to change;
/// start over from the last checkpoint. Memory that is not there counts as fatal. Made by `fail`.
pub const Error = error{ Retry, Invalid, Fatal, OutOfMemory };

pub const StateKind = enum(u8) { stateless, whole, keyed };

/// An input or an output; its number is its place in the list.
pub const Port = struct {
    /// 1 to 63 lower-case letters, digits and hyphens.
    name: []const u8,
    /// One line for people.
    summary: []const u8 = "",
    /// Of an input: records come partitioned by key, with hashes. Of an output: every record has a key.
    keyed: bool = false,
};

/// What a plugin says about itself.
pub const Descriptor = struct {
    /// 1 to 63 lower-case letters, digits and hyphens.
    name: []const u8,
    /// Semantic version.
    version: []const u8,
    /// One line for people.
    summary: []const u8 = "",
    inputs: []const Port,
    outputs: []const Port = &.{},
    state: StateKind = .stateless,
    /// Raise it when what the state looks like changes. 0 without state.
    state_version: u32 = 0,
    /// The oldest that is still read; by default `state_version`.
    oldest_state_version: ?u32 = null,
    /// A JSON Schema (2020-12) for the configuration, for people and their tools.
    config_schema: ?[]const u8 = null,
};

/// Which part of which job an instance works on. Valid for the life of the instance.
pub const Task = struct {
    job: []const u8,
    node: []const u8,
    subtask: u32,
    parallelism: u32,
    key_groups: u32,
    first_key_group: u32,
    end_key_group: u32,
    /// For whatever needs randomness.
    seed: u64,
    /// Where the SDK allocates, and the operator may.
    gpa: Allocator,
    /// The SDK's own.
    state: *State,
};

/// Takes what a call emits and rejects. All of it takes effect when the call goes well; if it fails or panics, none of it does.
pub const Output = struct {
    /// Hands a batch on through an output port. Emit once for each batch that came in, not once for each record. What a call may emit is limited, to 64 MiB
    /// unless the node's limits say otherwise: see `emitLarge`.
    pub fn emit(_: Output, port: u32, batch: *const batches.Batch) void {
        if (batch.len() > 0) host.emit(port, batch);
    }

    /// Emits what a builder holds and clears it.
    pub fn emitBuilder(out: Output, port: u32, builder: *batches.BatchBuilder) void {
        out.emit(port, &builder.view());
        builder.clear();
    }

    /// The same, but only if it holds 1 MiB or more; says whether it did. For calls with much to say: where it says true, note where
    /// you are and return `.more`; `resume` goes on from there.
    pub fn emitLarge(out: Output, port: u32, builder: *batches.BatchBuilder) bool {
        if (builder.byteLen() < 1 << 20) return false;
        out.emitBuilder(port, builder);
        return true;
    }

    /// Puts a record of the batch that is being processed aside, with the reason. Only within `process`. A record that cannot be processed
    /// is no failure.
    pub fn reject(_: Output, row: usize, comptime format: []const u8, args: anytype) void {
        var buffer: [reason_max]u8 = undefined;
        host.reject(@intCast(row), formatCut(&buffer, format, args));
    }

    /// Puts records aside that came in an earlier call.
    pub fn rejectBatch(_: Output, batch: *const batches.Batch, comptime format: []const u8, args: anytype) void {
        var buffer: [reason_max]u8 = undefined;
        if (batch.len() > 0) host.rejectBatch(batch, formatCut(&buffer, format, args));
    }
};

/// What the contract keeps of a message, and of a reason.
pub const message_max = 4096;
const reason_max = 1024;

/// Formats into a buffer, and cuts what is too long, between two characters of UTF-8.
pub fn formatCut(buffer: []u8, comptime format: []const u8, args: anytype) []const u8 {
    var writer: std.Io.Writer = .fixed(buffer);
    writer.print(format, args) catch {
        var len = writer.end;
        while (len > 0 and buffer[len - 1] & 0xc0 == 0x80) len -= 1;
        if (len > 0 and buffer[len - 1] >= 0xc0) {
            const whole = std.unicode.utf8ByteSequenceLength(buffer[len - 1]) catch 1;
            return buffer[0 .. if (writer.end - (len - 1) < whole) len - 1 else writer.end];
        }
        return buffer[0..writer.end];
    };
    return writer.buffered();
}

var failure: [message_max]u8 = undefined;
var failure_len: usize = 0;

/// Says why a call fails, for the person who reads the log: `return weir.fail(error.Invalid, "size is {d}, …", .{size})`.
pub fn fail(kind: Error, comptime format: []const u8, args: anytype) Error {
    failure_len = formatCut(&failure, format, args).len;
    return kind;
}

pub fn clearFailure() void {
    failure_len = 0;
}

/// Why the last call failed.
pub fn failureMessage(kind: Error) []const u8 {
    if (failure_len > 0) return failure[0..failure_len];
    return switch (kind) {
        error.OutOfMemory => "out of memory: raise the node's memory limit, or keep less state",
        else => "the operator gave no reason: return what weir.fail returns",
    };
}

/// Reads a configuration strictly: a JSON object with the fields of `T`, whose defaults stand for members that are not there. Texts and lists lie in
/// the arena.
pub fn config(comptime T: type, json: []const u8, arena: Allocator) Error!T {
    return std.json.parseFromSliceLeaky(T, arena, json, .{ .allocate = .alloc_always }) catch |wrong| switch (wrong) {
        error.OutOfMemory => error.OutOfMemory,
        error.UnknownField => fail(error.Invalid, "the configuration {s} has a member that this plugin does not know; it knows {s}", .{ shown(json), comptime names(T) }),
        error.MissingField => fail(error.Invalid, "the configuration {s} lacks a member; this plugin knows {s}", .{ shown(json), comptime names(T) }),
        else => fail(error.Invalid, "the configuration {s} cannot be read ({t}): it must be a JSON object with {s}", .{ shown(json), wrong, comptime described(T) }),
    };
}

fn shown(json: []const u8) []const u8 {
    return json[0..@min(json.len, 500)];
}

fn names(comptime T: type) []const u8 {
    comptime var text: []const u8 = "";
    inline for (std.meta.fieldNames(T)) |name| text = text ++ (if (text.len > 0) ", " else "") ++ "\"" ++ name ++ "\"";
    return if (text.len > 0) text else "none";
}

fn described(comptime T: type) []const u8 {
    comptime var text: []const u8 = "";
    inline for (std.meta.fieldNames(T)) |name| {
        text = text ++ (if (text.len > 0) ", " else "") ++ "\"" ++ name ++ "\" of type " ++ @typeName(@FieldType(T, name));
    }
    return if (text.len > 0) text else "no members";
}
