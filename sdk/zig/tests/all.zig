//! All tests of the SDK: `zig build test` in the folder above.

test {
    _ = @import("batch_test.zig");
    _ = @import("codec_test.zig");
    _ = @import("state_test.zig");
}
