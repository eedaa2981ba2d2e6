//! The root of a component of the world `simple-operator`: the operator of the module `operator`, exported.

const weir = @import("weir");

pub const panic = weir.component.panic;
pub const std_options = weir.component.std_options;

comptime {
    _ = weir.component.Exports(@import("operator").Operator, .@"simple-operator");
}
