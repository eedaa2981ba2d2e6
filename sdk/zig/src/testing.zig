//! Runs an operator in plain `zig test`, as the host would: no WebAssembly, no runtime.
//!
//!     const harness = try weir.testing.Harness(Operator).open("{}");
//!     defer harness.deinit();
//!     try harness.process(0, &.{.{ .time = 5, .key = "roof", .value = "3.0" }});
//!     try harness.expect(0, &.{.{ .time = 5, .key = "roof", .value = "3.0" }});
//!
//! The operator gets `std.testing.allocator`, so what it leaks fails the test; `deinit` of the operator, where it has one, frees what is no collection.
//! What the host refuses panics here: an emit outside of a call, a port that does not exist, a record without a key on a keyed port, a chunk
//! that is too large. What the harness returns lives as long as it does.

const std = @import("std");
const Allocator = std.mem.Allocator;
const batches = @import("batch.zig");
const host = @import("host.zig");
const operator = @import("operator.zig");
const states = @import("state.zig");
const Instance = @import("instance.zig").Instance;
const Batch = batches.Batch;
const Error = operator.Error;

const key_groups = 128;
const chunk_bytes_max = 1 << 20;

pub const Header = batches.Header;
pub const Level = host.Level;

/// A record as tests write and compare it.
pub const Row = struct {
    time: ?i64 = null,
    key: ?[]const u8 = null,
    value: ?[]const u8 = null,
    headers: []const Header = &.{},

    fn of(record: batches.Record, arena: Allocator) Allocator.Error!Row {
        var headers: std.ArrayList(Header) = .empty;
        var all = record.headers();
        while (all.next()) |header| try headers.append(arena, .{ .name = try arena.dupe(u8, header.name), .value = try arena.dupe(u8, header.value) });
        return .{
            .time = record.time(),
            .key = if (record.key()) |key| try arena.dupe(u8, key.bytes) else null,
            .value = if (record.value()) |value| try arena.dupe(u8, value) else null,
            .headers = headers.items,
        };
    }
};

/// Why the last call failed.
pub fn failureMessage() []const u8 {
    return operator.failureMessage(error.Fatal);
}

/// The state of one subtask, as it would be restored.
pub const Checkpoint = struct {
    state_version: u32,
    /// In the order in which they are read.
    chunks: []const host.Chunk,

    /// Whether both hold the same bytes in the same segments.
    pub fn eql(a: *const Checkpoint, b: *const Checkpoint) bool {
        if (a.chunks.len != b.chunks.len) return false;
        for (a.chunks, b.chunks) |x, y| if (!sameSegment(x, y) or !std.mem.eql(u8, x.data, y.data)) return false;
        return true;
    }
};

fn sameSegment(a: host.Chunk, b: host.Chunk) bool {
    return a.scope == b.scope and a.group == b.group;
}

fn isBefore(_: void, a: host.Chunk, b: host.Chunk) bool {
    if (a.scope != b.scope) return @intFromEnum(a.scope) < @intFromEnum(b.scope);
    return a.group < b.group;
}

pub const Mode = enum { full, incremental };

fn firstGroup(subtask: u32, parallelism: u32) u32 {
    return (subtask * key_groups + parallelism - 1) / parallelism;
}

/// An operator with a host around it.
pub fn Harness(comptime Op: type) type {
    return struct {
        const Self = @This();
        const Call = enum { none, open, process, data, snapshot, restore };
        const Rejected = struct { row: Row, reason: []const u8 };
        const Emitted = struct { port: u32, row: Row };
        const Logged = struct { level: Level, text: []const u8 };

        host: host.Host,
        memory: std.heap.ArenaAllocator,
        instance: Instance(Op) = undefined,
        call: Call = .none,
        input: ?*const Batch = null,
        outputs: [Op.descriptor.outputs.len]std.ArrayList(Row) = @splat(.empty),
        pending: std.ArrayList(Emitted) = .empty,
        pending_rejected: std.ArrayList(Rejected) = .empty,
        rejected: std.ArrayList(Rejected) = .empty,
        log: std.ArrayList(Logged) = .empty,
        metrics: std.StringArrayHashMapUnmanaged(f64) = .empty,
        /// How many calls of `resume` there were.
        resumed: usize = 0,
        now: i64 = 0,
        wake_at: ?i64 = null,
        asked_wake: ?i64 = null,
        checkpoint: ?*const Checkpoint = null,
        mode: ?Mode = null,
        epoch: u64 = 0,
        written: std.ArrayList(host.Chunk) = .empty,
        budget: usize = 0,
        chunks_read: usize = 0,

        /// The operator, for looking into it.
        pub fn op(self: *Self) *Op {
            return &self.instance.op;
        }

        /// Opens an operator that has all of 128 key groups; `config` is a JSON object.
        pub fn open(config: []const u8) Error!*Self {
            return openSubtask(config, 0, 1);
        }

        /// Opens one of several subtasks.
        pub fn openSubtask(config: []const u8, subtask: u32, parallelism: u32) Error!*Self {
            const gpa = std.testing.allocator;
            const self = try gpa.create(Self);
            errdefer gpa.destroy(self);
            self.* = .{ .host = plays, .memory = .init(gpa) };
            errdefer self.memory.deinit();
            self.begin(.open);
            defer self.end();
            try self.instance.open(config, .{
                .job = "test",
                .node = "operator",
                .subtask = subtask,
                .parallelism = parallelism,
                .key_groups = key_groups,
                .first_key_group = firstGroup(subtask, parallelism),
                .end_key_group = firstGroup(subtask + 1, parallelism),
                .seed = 0x5eed + @as(u64, subtask),
                .gpa = gpa,
                .state = undefined,
            });
            return self;
        }

        /// Opens an operator and lets it take over a checkpoint.
        pub fn restore(config: []const u8, checkpoint: *const Checkpoint) Error!*Self {
            return restoreSubtask(config, 0, 1, &.{checkpoint});
        }

        /// Opens one subtask and lets it take over its part of the checkpoints of all subtasks of an earlier run, which may have been more or fewer.
        pub fn restoreSubtask(config: []const u8, subtask: u32, parallelism: u32, checkpoints: []const *const Checkpoint) Error!*Self {
            const self = try openSubtask(config, subtask, parallelism);
            errdefer self.deinit();
            const task = &self.instance.task;
            var mine: std.ArrayList(host.Chunk) = .empty;
            var has_shared = false;
            for (checkpoints, 0..) |from, number| {
                var shared_here = false;
                for (from.chunks) |chunk| {
                    const take = switch (chunk.scope) {
                        .key_group => chunk.group >= task.first_key_group and chunk.group < task.end_key_group,
                        .subtask => take: {
                            if (checkpoints.len != parallelism) std.debug.panic("a value of the subtask refuses another parallelism: {d} before, {d} now", .{ checkpoints.len, parallelism });
                            break :take number == subtask;
                        },
                        .shared => take: {
                            shared_here = true;
                            break :take !has_shared;
                        },
                        .item => false,
                    };
                    if (take) try mine.append(self.arena(), .{ .scope = chunk.scope, .group = chunk.group, .data = try self.arena().dupe(u8, chunk.data) });
                }
                has_shared = has_shared or shared_here;
            }
            std.mem.sort(host.Chunk, mine.items, {}, isBefore);
            const merged = try self.arena().create(Checkpoint);
            merged.* = .{ .state_version = checkpoints[0].state_version, .chunks = mine.items };
            self.checkpoint = merged;
            self.begin(.restore);
            defer self.end();
            try self.instance.restore(merged.state_version);
            if (self.chunks_read < mine.items.len) std.debug.panic("restore left {d} chunks unread", .{mine.items.len - self.chunks_read});
            return self;
        }

        pub fn deinit(self: *Self) void {
            const gpa = std.testing.allocator;
            if (@hasDecl(Op, "deinit")) self.op().deinit();
            states.deinitParts(Op, self.op());
            self.instance.task.state.destroy();
            self.memory.deinit();
            gpa.destroy(self);
        }

        /// Hands a batch to an input port, and calls `resume` until the operator has no more to say. Where a call fails, what it emitted is dropped.
        pub fn process(self: *Self, port: u32, in: []const Row) Error!void {
            var builder: batches.BatchBuilder = .init(std.testing.allocator);
            defer builder.deinit();
            const hashes = try std.testing.allocator.alloc(u64, in.len);
            defer std.testing.allocator.free(hashes);
            for (in, hashes) |row, *hash| {
                try builder.push(row.time, row.key, row.value);
                for (row.headers) |header| try builder.header(header.name, header.value);
                hash.* = batches.Key.of(row.key orelse "").hash;
            }
            var batch = builder.view();
            if (Op.descriptor.inputs[port].keyed) batch.hashes = hashes;
            return self.processBatch(port, &batch);
        }

        pub fn processBatch(self: *Self, port: u32, batch: *const Batch) Error!void {
            if (port >= Op.descriptor.inputs.len) std.debug.panic("there is no input port {d}", .{port});
            if (batch.len() == 0) @panic("a batch that comes in has at least one record");
            checkBatch(batch);
            self.begin(.process);
            self.input = batch;
            return self.run(self.instance.process(port, batch));
        }

        pub fn advance(self: *Self, watermark: i64) Error!void {
            self.begin(.data);
            return self.run(self.instance.advance(watermark));
        }

        pub fn finish(self: *Self, port: u32) Error!void {
            self.begin(.data);
            return self.run(self.instance.finish(port));
        }

        /// Processing time moves; if it comes to what the operator asked for, it is woken.
        pub fn setTime(self: *Self, now: i64) Error!void {
            self.now = @max(self.now, now);
            if (self.wake_at == null or self.wake_at.? > self.now) return;
            self.wake_at = null;
            self.begin(.data);
            return self.run(self.instance.wake());
        }

        /// What was emitted on a port and not yet taken.
        pub fn rows(self: *Self, port: u32) []const Row {
            return self.outputs[port].items;
        }

        /// Takes all of it, which has to be this.
        pub fn expect(self: *Self, port: u32, expected: []const Row) !void {
            defer self.outputs[port] = .empty;
            const emitted = self.outputs[port].items;
            for (expected[0..@min(expected.len, emitted.len)], emitted[0..@min(expected.len, emitted.len)]) |row, found| try std.testing.expectEqualDeep(row, found);
            try std.testing.expectEqual(expected.len, emitted.len);
        }

        /// Why a record was rejected.
        pub fn reason(self: *Self, index: usize) []const u8 {
            return if (index < self.rejected.items.len) self.rejected.items[index].reason else "(not so many records were rejected)";
        }

        /// Whether a line that was logged has this text in it.
        pub fn logged(self: *Self, level: Level, text: []const u8) bool {
            for (self.log.items) |line| if (line.level == level and std.mem.find(u8, line.text, text) != null) return true;
            return false;
        }

        /// A counter or gauge, or the last observation.
        pub fn metric(self: *Self, name: []const u8) ?f64 {
            return self.metrics.get(name);
        }

        /// Takes a whole snapshot at once and returns the checkpoint after it.
        pub fn snapshot(self: *Self, mode: Mode) Error!*const Checkpoint {
            self.beginSnapshot(mode);
            while (try self.snapshotStep(std.math.maxInt(usize)) == .more) {}
            return self.checkpoint.?;
        }

        /// Begins a snapshot that is taken in steps. One that is open is abandoned; then, and the first time, this one is full.
        pub fn beginSnapshot(self: *Self, mode: Mode) void {
            self.mode = if (self.mode != null or self.checkpoint == null) .full else mode;
            self.epoch += 1;
            self.written = .empty;
        }

        /// One step: after `chunks` chunks the operator is asked to stop. When it is done, `checkpoint` has it.
        pub fn snapshotStep(self: *Self, chunks: usize) Error!operator.Progress {
            const mode = self.mode orelse @panic("beginSnapshot comes before snapshotStep");
            self.begin(.snapshot);
            defer self.end();
            self.budget = chunks;
            if (try self.instance.snapshot(self.epoch, mode == .full) == .more) return .more;
            self.mode = null;
            var all: std.ArrayList(host.Chunk) = .empty;
            if (mode == .incremental) for (self.checkpoint.?.chunks) |chunk| {
                for (self.written.items) |new| {
                    if (sameSegment(chunk, new)) break;
                } else try all.append(self.arena(), chunk);
            };
            for (self.written.items) |new| if (new.data.len > 0) try all.append(self.arena(), new);
            std.mem.sort(host.Chunk, all.items, {}, isBefore);
            const checkpoint = try self.arena().create(Checkpoint);
            checkpoint.* = .{ .state_version = Op.descriptor.state_version, .chunks = all.items };
            self.checkpoint = checkpoint;
            return .done;
        }

        fn arena(self: *Self) Allocator {
            return self.memory.allocator();
        }

        fn begin(self: *Self, call: Call) void {
            host.current = &self.host;
            self.call = call;
            self.asked_wake = null;
            self.pending = .empty;
            self.pending_rejected = .empty;
        }

        fn end(self: *Self) void {
            self.call = .none;
            host.current = null;
        }

        fn run(self: *Self, first: Error!operator.Progress) Error!void {
            defer self.end();
            var progress = try first;
            try self.commit();
            while (progress == .more) {
                self.begin(.data);
                self.resumed += 1;
                progress = try self.instance.@"resume"();
                try self.commit();
            }
        }

        /// The call has gone well: what it said takes effect.
        fn commit(self: *Self) Error!void {
            for (self.pending.items) |item| try self.outputs[item.port].append(self.arena(), item.row);
            try self.rejected.appendSlice(self.arena(), self.pending_rejected.items);
            if (self.asked_wake) |asked| self.wake_at = @min(asked, self.wake_at orelse asked);
        }

        // ---- The host

        const plays: host.Host = .{
            .emit = emit,
            .reject = reject,
            .rejectBatch = rejectBatch,
            .log = logLine,
            .metric = setMetric,
            .now = nowOf,
            .wakeAt = wakeAt,
            .write = write,
            .read = read,
        };

        fn of(from: *host.Host) *Self {
            return @fieldParentPtr("host", from);
        }

        fn allow(self: *Self, comptime what: []const u8, comptime calls: []const Call) void {
            inline for (calls) |call| if (self.call == call) return;
            std.debug.panic(what ++ " was called in {t}", .{self.call});
        }

        fn emit(from: *host.Host, port: u32, batch: *const Batch) void {
            const self = of(from);
            self.allow("emit", &.{ .process, .data });
            if (port >= Op.descriptor.outputs.len) std.debug.panic("a batch was emitted on output port {d}, and there are {d}", .{ port, Op.descriptor.outputs.len });
            checkBatch(batch);
            var records = batch.records();
            while (records.next()) |record| {
                if (Op.descriptor.outputs[port].keyed and record.key() == null) std.debug.panic("record {d} of a batch has no key, and output port {d} is keyed", .{ record.index, port });
                const row = Row.of(record, self.arena()) catch @panic("out of memory");
                self.pending.append(self.arena(), .{ .port = port, .row = row }) catch @panic("out of memory");
            }
        }

        fn pushRejected(self: *Self, record: batches.Record, why: []const u8) void {
            const row = Row.of(record, self.arena()) catch @panic("out of memory");
            const kept = self.arena().dupe(u8, why) catch @panic("out of memory");
            self.pending_rejected.append(self.arena(), .{ .row = row, .reason = kept }) catch @panic("out of memory");
        }

        fn reject(from: *host.Host, row: u32, why: []const u8) void {
            const self = of(from);
            self.allow("reject", &.{.process});
            if (row >= self.input.?.len()) std.debug.panic("record {d} was rejected, and the batch has {d}", .{ row, self.input.?.len() });
            self.pushRejected(self.input.?.record(row), why);
        }

        fn rejectBatch(from: *host.Host, batch: *const Batch, why: []const u8) void {
            const self = of(from);
            self.allow("rejectBatch", &.{ .process, .data });
            checkBatch(batch);
            var records = batch.records();
            while (records.next()) |record| self.pushRejected(record, why);
        }

        fn logLine(from: *host.Host, level: Level, text: []const u8) void {
            const self = of(from);
            const kept = self.arena().dupe(u8, text) catch @panic("out of memory");
            self.log.append(self.arena(), .{ .level = level, .text = kept }) catch @panic("out of memory");
        }

        fn setMetric(from: *host.Host, kind: host.MetricKind, name: []const u8, value: f64) void {
            const self = of(from);
            if (name.len < 1 or name.len > 64) std.debug.panic("the name of a metric has {d} bytes, not 1 to 64", .{name.len});
            for (name) |c| if (!std.ascii.isLower(c) and !std.ascii.isDigit(c) and c != '_') std.debug.panic("\"{s}\" is no name for a metric: lower-case letters, digits and underscores", .{name});
            const slot = self.metrics.getOrPut(self.arena(), self.arena().dupe(u8, name) catch @panic("out of memory")) catch @panic("out of memory");
            slot.value_ptr.* = if (kind == .count and slot.found_existing) slot.value_ptr.* + value else value;
        }

        fn nowOf(from: *host.Host) i64 {
            const self = of(from);
            return if (self.call == .open) 0 else self.now;
        }

        fn wakeAt(from: *host.Host, time: i64) void {
            const self = of(from);
            self.allow("wakeAt", &.{ .process, .data });
            self.asked_wake = @min(time, self.asked_wake orelse time);
        }

        fn write(from: *host.Host, chunk: host.Chunk) bool {
            const self = of(from);
            self.allow("a write of state", &.{.snapshot});
            const task = &self.instance.task;
            if (chunk.data.len > chunk_bytes_max) std.debug.panic("a chunk has {d} bytes, and a host may take no more than {d}", .{ chunk.data.len, chunk_bytes_max });
            if (chunk.scope == .key_group and (chunk.group < task.first_key_group or chunk.group >= task.end_key_group)) std.debug.panic("key group {d} is none of this subtask's", .{chunk.group});
            var kept = chunk;
            kept.data = self.arena().dupe(u8, chunk.data) catch @panic("out of memory");
            self.written.append(self.arena(), kept) catch @panic("out of memory");
            self.budget -|= 1;
            return self.budget > 0;
        }

        fn read(from: *host.Host) ?host.Chunk {
            const self = of(from);
            self.allow("a read of state", &.{.restore});
            const chunks = self.checkpoint.?.chunks;
            if (self.chunks_read == chunks.len) return null;
            defer self.chunks_read += 1;
            return chunks[self.chunks_read];
        }
    };
}

fn checkColumn(name: []const u8, column: batches.Column, rows: usize) void {
    if (column.offsets.len == 0) {
        if (column.bytes.len + column.nulls.len > 0) std.debug.panic("the {s} of a batch have bytes or nulls and no offsets", .{name});
        return;
    }
    if (column.offsets.len != rows + 1 or column.offsets[0] != 0 or column.offsets[rows] != column.bytes.len) {
        std.debug.panic("the offsets of the {s} of a batch do not go from 0 to {d} in {d} steps", .{ name, column.bytes.len, rows });
    }
    if (column.nulls.len != 0 and column.nulls.len != (rows + 7) / 8) std.debug.panic("the {s} of a batch have {d} bytes of nulls, not {d}", .{ name, column.nulls.len, (rows + 7) / 8 });
    for (0..rows) |row| {
        if (column.offsets[row] > column.offsets[row + 1]) std.debug.panic("an offset of the {s} of a batch is smaller than the one before", .{name});
        if (column.get(row) == null and column.offsets[row] != column.offsets[row + 1]) std.debug.panic("record {d} of a batch has bytes among the {s} and is marked as none", .{ row, name });
    }
    if (column.nulls.len > 0 and rows % 8 != 0 and column.nulls[rows / 8] >> @intCast(rows % 8) != 0) std.debug.panic("unused bits of the nulls of the {s} of a batch are set", .{name});
}

fn checkBatch(batch: *const Batch) void {
    checkColumn("keys", batch.keys, batch.len());
    checkColumn("values", batch.values, batch.len());
    checkColumn("headers", batch.headers, batch.len());
}
