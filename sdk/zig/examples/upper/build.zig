//! Native tests: `zig build test`. `weir plugin build` makes the component.

const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const weir = b.createModule(.{ .root_source_file = b.path("vendor/weir/weir.zig"), .target = target });
    const operator = b.createModule(.{
        .root_source_file = b.path("upper.zig"),
        .target = target,
        .imports = &.{.{ .name = "weir", .module = weir }},
    });
    const run = b.addRunArtifact(b.addTest(.{ .root_module = operator }));
    b.step("test", "Run the operator's tests").dependOn(&run.step);
}
