//! What the host does for a plugin: imports in a component, a table of functions that the test harness fills in natively.

const std = @import("std");
const builtin = @import("builtin");
const Batch = @import("batch.zig").Batch;

pub const is_component = builtin.cpu.arch.isWasm();

pub const Level = enum(u8) { trace, debug, info, warn, @"error" };
pub const Scope = enum(u8) { key_group, subtask, shared, item };
pub const Kind = enum(u8) { base, delta };

/// A piece of state. Its bytes are borrowed.
pub const Chunk = struct { scope: Scope, group: u32 = 0, kind: Kind = .base, data: []const u8 };

pub const MetricKind = enum { count, gauge, observe };

/// What a harness plays.
pub const Host = struct {
    emit: *const fn (*Host, port: u32, batch: *const Batch) void,
    reject: *const fn (*Host, row: u32, reason: []const u8) void,
    rejectBatch: *const fn (*Host, batch: *const Batch, reason: []const u8) void,
    log: *const fn (*Host, level: Level, message: []const u8) void,
    metric: *const fn (*Host, kind: MetricKind, name: []const u8, value: f64) void,
    now: *const fn (*Host) i64,
    wakeAt: *const fn (*Host, time: i64) void,
    write: *const fn (*Host, chunk: Chunk) bool,
    read: *const fn (*Host) ?Chunk,
};

/// The host of the call that runs.
pub var current: ?*Host = null;

fn native(comptime what: []const u8) *Host {
    return current orelse @panic(what ++ " while no call runs");
}

pub fn emit(port: u32, batch: *const Batch) void {
    if (!is_component) return native("emit").emit(native("emit"), port, batch);
    const lent: EmitParams = .{ .port = port, .batch = .of(batch) };
    imports.emit(&lent);
}

pub fn reject(row: u32, reason: []const u8) void {
    if (!is_component) return native("reject").reject(native("reject"), row, reason);
    imports.reject(row, reason.ptr, reason.len);
}

pub fn rejectBatch(batch: *const Batch, reason: []const u8) void {
    if (!is_component) return native("rejectBatch").rejectBatch(native("rejectBatch"), batch, reason);
    const lent: RejectParams = .{ .batch = .of(batch), .reason = .of(u8, reason) };
    imports.rejectBatch(&lent);
}

pub fn log(level: Level, message: []const u8) void {
    if (!is_component) return if (current) |host| host.log(host, level, message);
    imports.log(@intFromEnum(level), message.ptr, message.len);
}

pub fn logEnabled(level: Level) bool {
    return !is_component or imports.logEnabled(@intFromEnum(level));
}

pub fn count(name: []const u8, delta: u64) void {
    if (!is_component) return native("count").metric(native("count"), .count, name, @floatFromInt(delta));
    imports.count(name.ptr, name.len, delta);
}

pub fn gauge(name: []const u8, value: f64) void {
    if (!is_component) return native("gauge").metric(native("gauge"), .gauge, name, value);
    imports.gauge(name.ptr, name.len, value);
}

pub fn observe(name: []const u8, value: f64) void {
    if (!is_component) return native("observe").metric(native("observe"), .observe, name, value);
    imports.observe(name.ptr, name.len, value);
}

pub fn now() i64 {
    if (!is_component) return native("now").now(native("now"));
    return imports.now();
}

pub fn wakeAt(time: i64) void {
    if (!is_component) return native("wakeAt").wakeAt(native("wakeAt"), time);
    imports.wakeAt(time);
}

/// True: there is time for another chunk.
pub fn write(chunk: Chunk) bool {
    if (!is_component) return native("write").write(native("write"), chunk);
    return imports.write(@intFromEnum(chunk.scope), chunk.group, @intFromEnum(chunk.kind), chunk.data.ptr, chunk.data.len);
}

/// The next chunk; valid until the next call.
pub fn read() ?Chunk {
    if (!is_component) return native("read").read(native("read"));
    const last = &struct {
        var data: List = .{ .ptr = 0, .len = 0 };
    }.data;
    last.free(u8);
    last.* = .{ .ptr = 0, .len = 0 };
    var option: OptionChunk = undefined;
    imports.read(&option);
    if (option.some == 0) return null;
    last.* = option.data;
    return .{
        .scope = @enumFromInt(option.scope),
        .group = if (option.scope == 0) option.group else 0,
        .kind = @enumFromInt(option.kind),
        .data = option.data.slice(u8),
    };
}

// ---- The canonical ABI ---------------------------------------------------------------------------------------------

/// A list or a string as it lies in memory.
pub const List = extern struct {
    ptr: usize,
    len: usize,

    pub fn of(comptime T: type, items: []const T) List {
        return .{ .ptr = @intFromPtr(items.ptr), .len = items.len };
    }

    pub fn slice(list: List, comptime T: type) []const T {
        if (list.len == 0) return &.{};
        return @as([*]const T, @ptrFromInt(list.ptr))[0..list.len];
    }

    /// Gives back what the host has asked memory for.
    pub fn free(list: List, comptime T: type) void {
        if (list.len > 0) std.heap.wasm_allocator.free(list.slice(T));
    }
};

pub const BatchParams = extern struct {
    timestamps: List,
    hashes: List,
    key_offsets: List,
    keys: List,
    key_nulls: List,
    value_offsets: List,
    values: List,
    value_nulls: List,
    header_offsets: List,
    headers: List,

    fn of(batch: *const Batch) BatchParams {
        return .{
            .timestamps = .of(i64, batch.timestamps),
            .hashes = .of(u64, &.{}), // the host hashes anew
            .key_offsets = .of(u32, batch.keys.offsets),
            .keys = .of(u8, batch.keys.bytes),
            .key_nulls = .of(u8, batch.keys.nulls),
            .value_offsets = .of(u32, batch.values.offsets),
            .values = .of(u8, batch.values.bytes),
            .value_nulls = .of(u8, batch.values.nulls),
            .header_offsets = .of(u32, batch.headers.offsets),
            .headers = .of(u8, batch.headers.bytes),
        };
    }

    pub fn view(params: *const BatchParams) Batch {
        return .{
            .timestamps = params.timestamps.slice(i64),
            .hashes = params.hashes.slice(u64),
            .keys = .{ .offsets = params.key_offsets.slice(u32), .bytes = params.keys.slice(u8), .nulls = params.key_nulls.slice(u8) },
            .values = .{ .offsets = params.value_offsets.slice(u32), .bytes = params.values.slice(u8), .nulls = params.value_nulls.slice(u8) },
            .headers = .{ .offsets = params.header_offsets.slice(u32), .bytes = params.headers.slice(u8) },
        };
    }

    pub fn free(params: *const BatchParams) void {
        params.timestamps.free(i64);
        params.hashes.free(u64);
        params.key_offsets.free(u32);
        params.value_offsets.free(u32);
        params.header_offsets.free(u32);
        inline for (.{ params.keys, params.key_nulls, params.values, params.value_nulls, params.headers }) |list| list.free(u8);
    }
};

const EmitParams = extern struct { port: u32, batch: BatchParams };
const RejectParams = extern struct { batch: BatchParams, reason: List };
const OptionChunk = extern struct { some: u8, scope: u8 align(4), group: u32, kind: u8, origin: u32, data: List };

const imports = struct {
    const emit = @extern(*const fn (*const EmitParams) callconv(.c) void, .{ .name = "emit", .library_name = "weir:plugin/output@0.1.0" });
    const reject = @extern(*const fn (u32, [*]const u8, usize) callconv(.c) void, .{ .name = "reject", .library_name = "weir:plugin/output@0.1.0" });
    const rejectBatch = @extern(*const fn (*const RejectParams) callconv(.c) void, .{ .name = "reject-batch", .library_name = "weir:plugin/output@0.1.0" });
    const log = @extern(*const fn (u32, [*]const u8, usize) callconv(.c) void, .{ .name = "write", .library_name = "weir:plugin/log@0.1.0" });
    const logEnabled = @extern(*const fn (u32) callconv(.c) bool, .{ .name = "enabled", .library_name = "weir:plugin/log@0.1.0" });
    const count = @extern(*const fn ([*]const u8, usize, u64) callconv(.c) void, .{ .name = "count", .library_name = "weir:plugin/metrics@0.1.0" });
    const gauge = @extern(*const fn ([*]const u8, usize, f64) callconv(.c) void, .{ .name = "gauge", .library_name = "weir:plugin/metrics@0.1.0" });
    const observe = @extern(*const fn ([*]const u8, usize, f64) callconv(.c) void, .{ .name = "observe", .library_name = "weir:plugin/metrics@0.1.0" });
    const now = @extern(*const fn () callconv(.c) i64, .{ .name = "now", .library_name = "weir:plugin/timers@0.1.0" });
    const wakeAt = @extern(*const fn (i64) callconv(.c) void, .{ .name = "wake-at", .library_name = "weir:plugin/timers@0.1.0" });
    const write = @extern(*const fn (u32, u32, u32, [*]const u8, usize) callconv(.c) bool, .{ .name = "write", .library_name = "weir:plugin/snapshots@0.1.0" });
    const read = @extern(*const fn (*OptionChunk) callconv(.c) void, .{ .name = "read", .library_name = "weir:plugin/snapshots@0.1.0" });
};
