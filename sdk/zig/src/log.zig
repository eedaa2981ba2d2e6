//! `std.log` to the log of weir. A line is only made where it would be kept.

const std = @import("std");
const host = @import("host.zig");
const operator = @import("operator.zig");

pub fn logFn(comptime level: std.log.Level, comptime scope: @EnumLiteral(), comptime format: []const u8, args: anytype) void {
    const as: host.Level = switch (level) {
        .err => .@"error",
        .warn => .warn,
        .info => .info,
        .debug => .debug,
    };
    if (!host.logEnabled(as)) return;
    var buffer: [operator.message_max]u8 = undefined;
    const prefix = if (scope == .default) "" else @tagName(scope) ++ ": ";
    host.log(as, operator.formatCut(&buffer, prefix ++ format, args));
}

/// Says why before the trap, which says no more than "unreachable".
pub fn panicFn(message: []const u8, _: ?usize) noreturn {
    host.log(.@"error", message);
    @trap();
}
