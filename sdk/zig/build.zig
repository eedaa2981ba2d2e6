//! `zig build test`: the tests of the SDK and of its examples.

const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const weir = b.createModule(.{ .root_source_file = b.path("weir.zig"), .target = target });
    const step = b.step("test", "Run the tests of the SDK and of its examples");
    for ([_][]const u8{ "tests/all.zig", "examples/upper/upper.zig", "examples/tally/tally.zig", "examples/visits/visits.zig" }) |path| {
        const module = b.createModule(.{
            .root_source_file = b.path(path),
            .target = target,
            .imports = &.{.{ .name = "weir", .module = weir }},
        });
        const run = b.addRunArtifact(b.addTest(.{ .name = std.fs.path.stem(path), .root_module = module }));
        step.dependOn(&run.step);
    }
}
