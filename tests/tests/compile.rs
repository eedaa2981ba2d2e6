//! Compiling in a process of its own: what comes of it is the same, and what takes too much ends with the limit by name, and ends alone.

use std::path::{Path, PathBuf};

use wasm_encoder::{CodeSection, Function, FunctionSection, Instruction, Module, TypeSection, ValType};
use weir::plan::LimitsSpec;
use weir::plugin::compile::{CompileLimits, Compiler};
use weir::plugin::{HostOptions, PluginError, PluginHost};
use weir_tests::guests::guest;

fn host(program: &Path, limits: CompileLimits, cache_dir: Option<PathBuf>) -> PluginHost {
    let compiler = Some(Compiler { program: program.to_owned(), limits });
    PluginHost::new(HostOptions { cache_dir, compiler, instances_max: 4, ..HostOptions::default() }).expect("a host")
}

/// A guest that a compiler is busy with for many seconds: it has a core module more, which nobody uses.
fn laborious() -> Vec<u8> {
    const FUNCTIONS: u32 = 1_500;
    let (mut types, mut functions, mut code) = (TypeSection::new(), FunctionSection::new(), CodeSection::new());
    types.ty().function([ValType::I32], [ValType::I32]);
    for number in 0..FUNCTIONS {
        functions.function(0);
        let mut body = Function::new([]);
        body.instruction(&Instruction::LocalGet(0));
        for step in 0..2_000_i32 {
            body.instruction(&Instruction::I32Const(step.wrapping_mul(number.cast_signed() + 7)));
            body.instruction(if step % 2 == 0 { &Instruction::I32Mul } else { &Instruction::I32Xor });
        }
        body.instruction(&Instruction::End);
        code.function(&body);
    }
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&code);
    let module = module.finish();
    let mut component = guest("plain");
    // Section 1 of a component is a core module.
    component.push(1);
    let mut length = module.len();
    while length >= 0x80 {
        component.push((length & 0x7f | 0x80) as u8);
        length >>= 7;
    }
    component.push(length as u8);
    component.extend_from_slice(&module);
    component
}

#[tokio::test]
async fn what_a_process_of_its_own_compiles_runs_and_is_kept_for_the_next_host() {
    let cache = tempfile::tempdir().expect("a folder");
    let kept = || Some(cache.path().join("compiled"));
    let first = host(weir_tests::weir(), CompileLimits::default(), kept());
    let nowhere = host(Path::new("/nowhere/weir"), CompileLimits::default(), kept());
    // One that writes its state itself, and one whose state is an image of its memory.
    for name in ["plain", "simple-count"] {
        let bytes = guest(name);
        let error = nowhere.load(&bytes).await.expect_err("nobody can compile it");
        assert!(error.to_string().contains("cannot start a process"), "{error}");
        let plugin = first.load(&bytes).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let again = nowhere.load(&bytes).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(plugin.descriptor(), again.descriptor());
        assert_eq!(plugin.takes_images(), again.takes_images());
        let task = weir::model::TaskInfo {
            job: "job".into(),
            node: "node".into(),
            subtask: 0,
            parallelism: 1,
            key_groups: 128,
            groups: 0..128,
            seed: 1,
        };
        let opened = plugin.open(&LimitsSpec::default(), &serde_json::Value::Null, &task).await;
        opened.map(drop).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[tokio::test]
async fn what_takes_too_much_ends_with_the_limit_by_name_and_the_host_goes_on() {
    let default = CompileLimits::default();
    let laborious = laborious();
    for (limits, bytes, what, limit) in [
        (CompileLimits { memory_bytes: 32 << 20, ..default }, laborious.clone(), "memory", "32 MiB"),
        (CompileLimits { code_bytes: 1_000, ..default }, guest("plain"), "code", "1000 bytes"),
        (CompileLimits { cpu_seconds: 1, ..default }, laborious.clone(), "CPU time", "1 s"),
        (CompileLimits { wall_seconds: 1, ..default }, laborious, "time", "1 s"),
    ] {
        let host = host(weir_tests::weir(), limits, None);
        let error = host.load(&bytes).await.expect_err(what);
        let PluginError::CompileLimit { what: found, limit: at } = &error else { panic!("{what}: {error:?}") };
        assert_eq!((*found, at.as_str()), (what, limit), "{error}");
        assert!(!error.remedy().is_empty());
    }
    let host = host(weir_tests::weir(), default, None);
    host.load(&guest("plain")).await.expect("it is compiled all the same");
}
