//! Makes a component of an operator: its one instance, and the exports of a world by the canonical ABI. Lists that come in were allocated by
//! `cabi_realloc` and are ours to free; what goes out lies in memory that stays.

const std = @import("std");
const host = @import("host.zig");
const operator = @import("operator.zig");
const Instance = @import("instance.zig").Instance;
const List = host.List;

const gpa = std.heap.wasm_allocator;

pub const panic = std.debug.FullPanic(@import("log.zig").panicFn);
/// All levels: the host says which are kept.
pub const std_options: std.Options = .{ .logFn = @import("log.zig").logFn, .log_level = .debug };

pub const World = enum { @"simple-operator", @"stateful-operator" };

/// A result: of progress or nothing where it went well.
const Result = extern struct { failed: u8, kind: u8 align(4) = 0, message: List = .{ .ptr = 0, .len = 0 } };

const PortRecord = extern struct { name: List, summary: List, keyed: u8 };

const DescriptorRecord = extern struct {
    name: List,
    version: List,
    summary: List,
    inputs: List,
    outputs: List,
    state: u8,
    state_version: u32,
    oldest_state_version: u32,
    has_config_schema: u8,
    config_schema: List,
    attributes: List,
};

const ProcessParams = extern struct { port: u32, batch: host.BatchParams };

pub fn Exports(comptime Op: type, comptime world: World) type {
    return struct {
        var instance: Instance(Op) = undefined;
        var result: Result = undefined;
        var answer: DescriptorRecord = undefined;
        var inputs: [Op.descriptor.inputs.len]PortRecord = undefined;
        var outputs: [Op.descriptor.outputs.len]PortRecord = undefined;

        fn failure(wrong: operator.Error) *const Result {
            result = .{ .failed = 1, .kind = switch (wrong) {
                error.Retry => 0,
                error.Invalid => 1,
                error.Fatal, error.OutOfMemory => 2,
            }, .message = .of(u8, operator.failureMessage(wrong)) };
            return &result;
        }

        fn done(outcome: operator.Error!operator.Progress) *const Result {
            const progress = outcome catch |wrong| return failure(wrong);
            result = .{ .failed = 0, .kind = @intFromEnum(progress) };
            return &result;
        }

        fn portRecords(to: []PortRecord, ports: []const operator.Port) List {
            for (to, ports) |*record, port| record.* = .{ .name = .of(u8, port.name), .summary = .of(u8, port.summary), .keyed = @intFromBool(port.keyed) };
            return .of(PortRecord, to);
        }

        fn describe() callconv(.c) *const DescriptorRecord {
            const is: operator.Descriptor = Op.descriptor;
            answer = .{
                .name = .of(u8, is.name),
                .version = .of(u8, is.version),
                .summary = .of(u8, is.summary),
                .inputs = portRecords(&inputs, is.inputs),
                .outputs = portRecords(&outputs, is.outputs),
                .state = @intFromEnum(is.state),
                .state_version = is.state_version,
                .oldest_state_version = is.oldest_state_version orelse is.state_version,
                .has_config_schema = @intFromBool(is.config_schema != null),
                .config_schema = .of(u8, is.config_schema orelse ""),
                .attributes = .{ .ptr = 0, .len = 0 },
            };
            return &answer;
        }

        fn open(config_ptr: usize, config_len: usize, job_ptr: usize, job_len: usize, node_ptr: usize, node_len: usize, subtask: u32, parallelism: u32, key_groups: u32, first_key_group: u32, end_key_group: u32, seed: u64, attributes_ptr: usize, attributes_len: usize) callconv(.c) *const Result {
            const Attribute = extern struct { name: List, value: List };
            const attributes: List = .{ .ptr = attributes_ptr, .len = attributes_len };
            for (attributes.slice(Attribute)) |attribute| {
                attribute.name.free(u8);
                attribute.value.free(u8);
            }
            attributes.free(Attribute);
            const config: List = .{ .ptr = config_ptr, .len = config_len };
            defer config.free(u8);
            const job: List = .{ .ptr = job_ptr, .len = job_len };
            const node: List = .{ .ptr = node_ptr, .len = node_len };
            instance.open(config.slice(u8), .{
                .job = job.slice(u8),
                .node = node.slice(u8),
                .subtask = subtask,
                .parallelism = parallelism,
                .key_groups = key_groups,
                .first_key_group = first_key_group,
                .end_key_group = end_key_group,
                .seed = seed,
                .gpa = gpa,
                .state = undefined,
            }) catch |wrong| return failure(wrong);
            return done(.done);
        }

        fn process(params: *ProcessParams) callconv(.c) *const Result {
            const batch = params.batch.view();
            const outcome = instance.process(params.port, &batch);
            params.batch.free();
            gpa.destroy(params);
            return done(outcome);
        }

        fn advance(watermark: i64) callconv(.c) *const Result {
            return done(instance.advance(watermark));
        }

        fn wake() callconv(.c) *const Result {
            return done(instance.wake());
        }

        fn finish(port: u32) callconv(.c) *const Result {
            return done(instance.finish(port));
        }

        fn @"resume"() callconv(.c) *const Result {
            return done(instance.@"resume"());
        }

        fn snapshot(epoch: u64, mode: u32) callconv(.c) *const Result {
            return done(instance.snapshot(epoch, mode == 0));
        }

        fn restore(state_version: u32) callconv(.c) *const Result {
            instance.restore(state_version) catch |wrong| return failure(wrong);
            return done(.done);
        }

        /// What the host writes its lists into. It never grows one.
        fn cabiRealloc(old: usize, old_len: usize, alignment: usize, len: usize) callconv(.c) usize {
            std.debug.assert(old == 0 and old_len == 0);
            if (len == 0) return alignment;
            const memory = gpa.rawAlloc(len, .fromByteUnits(alignment), @returnAddress()) orelse @panic("out of memory: raise the node's memory limit, or keep less state");
            return @intFromPtr(memory);
        }

        comptime {
            const processor = "weir:plugin/processor@0.1.0#";
            const checkpoint = "weir:plugin/checkpoint@0.1.0#";
            @export(&cabiRealloc, .{ .name = "cabi_realloc" });
            @export(&describe, .{ .name = processor ++ "describe" });
            @export(&open, .{ .name = processor ++ "open" });
            @export(&process, .{ .name = processor ++ "process" });
            @export(&advance, .{ .name = processor ++ "advance" });
            @export(&wake, .{ .name = processor ++ "wake" });
            @export(&finish, .{ .name = processor ++ "finish" });
            @export(&@"resume", .{ .name = processor ++ "resume" });
            if (world == .@"stateful-operator") {
                @export(&snapshot, .{ .name = checkpoint ++ "snapshot" });
                @export(&restore, .{ .name = checkpoint ++ "restore" });
            }
        }
    };
}
