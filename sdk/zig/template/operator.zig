//! Hands on a reading only when it differs by at least `least` from the last one handed on, for each key.

const std = @import("std");
const weir = @import("weir");

/// What may stand under `config` in the pipeline file.
const Config = struct {
    /// By how much a value has to differ.
    least: f64 = 0,
};

/// The value of a record. Other members of the object are of no interest here, and go on with it.
const Reading = struct { value: f64 };

/// The operator. What it has to remember between two calls lies in here, and nowhere else.
pub const Operator = struct {
    pub const descriptor: weir.Descriptor = .{
        .name = "{{name}}",
        .version = "0.1.0",
        .summary = "Hands on a reading when it has changed.",
        // Keyed: all records of a key come to the same subtask, in order, with the hash of the key.
        .inputs = &.{.{ .name = "in", .summary = "readings: JSON objects with a number under `value`", .keyed = true }},
        .outputs = &.{.{ .name = "out", .summary = "those that have changed, as they came in", .keyed = true }},
        // Raise the version when you change what the state looks like.
        .state = .keyed,
        .state_version = 1,
        // For people and their tools; `open` checks the configuration in any case.
        .config_schema =
        \\{"type":"object","properties":{"least":{"type":"number","minimum":0}},"additionalProperties":false}
        ,
    };

    least: f64,
    /// The value that was handed on last, by key. This is the state: it is in every checkpoint and survives crashes. The name
    /// of the field is how it is found again; never change it.
    last: weir.KeyedState(f64),
    /// What a call emits. It is kept only for its memory.
    out: weir.BatchBuilder,
    /// For the JSON of one record.
    scratch: std.heap.ArenaAllocator,

    pub fn open(json: []const u8, task: *const weir.Task) weir.Error!Operator {
        const config = try weir.config(Config, json, task.gpa);
        if (!(config.least >= 0)) return weir.fail(error.Invalid, "the configuration's \"least\" is {d} and must not be negative", .{config.least});
        return .{ .least = config.least, .last = try .init(task), .out = .init(task.gpa), .scratch = .init(task.gpa) };
    }

    /// For tests, which look for leaks.
    pub fn deinit(op: *Operator) void {
        op.out.deinit();
        op.scratch.deinit();
    }

    /// Called for each batch of records. What it emits takes effect when it returns no error: the call is a transaction.
    pub fn process(op: *Operator, _: u32, batch: *const weir.Batch, out: weir.Output) weir.Error!weir.Progress {
        var records = batch.records();
        while (records.next()) |record| {
            // A record that cannot be processed is no failure: put it aside, with the reason, and go on.
            const key = record.key() orelse {
                out.reject(record.index, "it has no key", .{});
                continue;
            };
            _ = op.scratch.reset(.retain_capacity);
            const reading = record.json(Reading, op.scratch.allocator()) catch |wrong| {
                out.reject(record.index, "it is no reading: {t}", .{wrong});
                continue;
            };
            const last = op.last.get(key);
            if (last == null or @abs(reading.value - last.?.*) >= op.least) {
                try op.last.put(key, reading.value);
                try op.out.pushRecord(record);
            }
        }
        // Once for the whole batch: that is cheaper than once a record.
        out.emitBuilder(0, &op.out);
        return .done;
    }
};

// Plain native tests: no WebAssembly and no runtime, but a host that keeps the contract.

const Row = weir.testing.Row;
const Changes = weir.testing.Harness(Operator);

test "hands on what has changed enough" {
    const changes = try Changes.open("{\"least\":0.5}");
    defer changes.deinit();
    const rows = [_]Row{
        .{ .key = "roof", .value = "{\"value\":3.0}" },
        .{ .key = "roof", .value = "{\"value\":3.4}" },
        .{ .key = "cellar", .value = "{\"value\":3.4}" },
        .{ .key = "roof", .value = "{\"value\":3.5}" },
    };
    try changes.process(0, &rows);
    try changes.expect(0, &.{ rows[0], rows[2], rows[3] });
}

test "puts aside what it cannot read" {
    const changes = try Changes.open("{}");
    defer changes.deinit();
    const rows = [_]Row{ .{ .key = "roof", .value = "wind" }, .{ .key = "roof", .value = "{\"value\":1}" } };
    try changes.process(0, &rows);
    try changes.expect(0, rows[1..]);
    try std.testing.expectEqual(1, changes.rejected.items.len);
}

test "goes on after a restore as if nothing had happened" {
    const config = "{\"least\":0.5}";
    const before = try Changes.open(config);
    defer before.deinit();
    try before.process(0, &.{.{ .key = "roof", .value = "{\"value\":3.0}" }});

    const after = try Changes.restore(config, try before.snapshot(.incremental));
    defer after.deinit();
    const rows = [_]Row{ .{ .key = "roof", .value = "{\"value\":3.1}" }, .{ .key = "roof", .value = "{\"value\":9.0}" } };
    try after.process(0, &rows);
    try after.expect(0, rows[1..]);
}

// The state is written in steps while records go on coming, and dealt out to three subtasks.
test "what comes after the cut is not in the snapshot" {
    const before = try Changes.open("{\"least\":1}");
    defer before.deinit();
    const keys = [_][]const u8{ "roof", "cellar", "attic" };
    for (keys) |key| try before.process(0, &.{.{ .key = key, .value = "{\"value\":1}" }});
    before.beginSnapshot(.incremental);
    try std.testing.expectEqual(.more, try before.snapshotStep(1));
    for (keys) |key| try before.process(0, &.{.{ .key = key, .value = "{\"value\":9}" }});
    while (try before.snapshotStep(1) == .more) {}

    var emitted: usize = 0;
    for (0..3) |subtask| {
        const after = try Changes.restoreSubtask("{\"least\":1}", @intCast(subtask), 3, &.{before.checkpoint.?});
        defer after.deinit();
        for (keys) |key| {
            // Only the subtask that has the key may be asked for it.
            if (weir.keyGroup(weir.Key.of(key).hash, 128) * 3 / 128 != subtask) continue;
            try after.process(0, &.{.{ .key = key, .value = "{\"value\":9}" }});
        }
        emitted += after.rows(0).len;
    }
    try std.testing.expectEqual(3, emitted);
}

test "refuses a configuration with a typing error" {
    try std.testing.expectError(error.Invalid, Changes.open("{\"laest\":0.5}"));
}
