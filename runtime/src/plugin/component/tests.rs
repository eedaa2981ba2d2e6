//! Components are made here from the contract's own text, changed in one place, so each test says what is wrong in one line.

use wasm_encoder::{
    CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, ImportSection, MemorySection, MemoryType, Module, TypeSection, ValType,
};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Resolve, SourceMap, WorldItem};

use super::*;

/// The contract with one text replaced by another, which must occur.
pub(in crate::plugin) fn contract_with(replace: &str, by: &str) -> Vec<(String, String)> {
    let mut seen = false;
    let files = contract_files().map(|(name, text)| {
        seen |= text.contains(replace);
        (name.to_owned(), text.replace(replace, by))
    });
    assert!(seen, "{replace:?} is not in the contract");
    files.to_vec()
}

fn contract() -> Vec<(String, String)> {
    contract_with("package weir:plugin@0.1.0;", "package weir:plugin@0.1.0;")
}

/// A module that exports what a world asks for, each function `unreachable`, and imports every function that it offers.
pub(in crate::plugin) fn module(files: &[(String, String)], world: &str, metadata: bool) -> Vec<u8> {
    let mut sources = SourceMap::default();
    for (name, text) in files {
        sources.push_str(name, text.clone());
    }
    let mut resolve = Resolve::default();
    let package = resolve.push_group(sources.parse().map_err(|(_, e)| e).unwrap()).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();

    let (mut types, mut functions, mut exports, mut code) =
        (TypeSection::new(), FunctionSection::new(), ExportSection::new(), CodeSection::new());
    let mut imports = ImportSection::new();
    let value = |ty: &WasmType| match ty {
        WasmType::I64 | WasmType::PointerOrI64 => ValType::I64,
        WasmType::F32 => ValType::F32,
        WasmType::F64 => ValType::F64,
        WasmType::I32 | WasmType::Pointer | WasmType::Length => ValType::I32,
    };
    let mut count = 0;
    for (key, item) in &resolve.worlds[world].imports {
        let WorldItem::Interface { id, .. } = item else { panic!("only interfaces are imported") };
        for (name, function) in &resolve.interfaces[*id].functions {
            let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
            types.ty().function(signature.params.iter().map(value), signature.results.iter().map(value));
            imports.import(&resolve.name_world_key(key), name, EntityType::Function(count));
            count += 1;
        }
    }
    let mut define = |name: &str, params: Vec<ValType>, results: Vec<ValType>| {
        types.ty().function(params, results);
        functions.function(count);
        exports.export(name, ExportKind::Func, count);
        let mut body = Function::new([]);
        body.instructions().unreachable().end();
        code.function(&body);
        count += 1;
    };
    for (key, item) in &resolve.worlds[world].exports {
        let WorldItem::Interface { id, .. } = item else { panic!("only interfaces are exported") };
        for (name, function) in &resolve.interfaces[*id].functions {
            let signature = resolve.wasm_signature(AbiVariant::GuestExport, function);
            let name = format!("{}#{name}", resolve.name_world_key(key));
            define(&name, signature.params.iter().map(value).collect(), signature.results.iter().map(value).collect());
        }
    }
    define("cabi_realloc", vec![ValType::I32; 4], vec![ValType::I32]);
    let mut memories = MemorySection::new();
    memories.memory(MemoryType { minimum: 1, maximum: None, memory64: false, shared: false, page_size_log2: None });
    exports.export("memory", ExportKind::Memory, 0);
    let mut globals = GlobalSection::new();
    globals.global(GlobalType { val_type: ValType::I32, mutable: true, shared: false }, &ConstExpr::i32_const(0));

    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&memories).section(&globals);
    module.section(&exports).section(&code);
    let mut bytes = module.finish();
    if metadata {
        embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8).unwrap();
    }
    bytes
}

fn problems(files: &[(String, String)], world: &str) -> Vec<String> {
    let component = componentize(&module(files, world, true), None).unwrap();
    match validate(&component) {
        Err(ComponentError::Contract(problems)) => problems,
        other => panic!("it should break the contract: {other:?}"),
    }
}

#[test]
fn both_worlds_of_the_contract_fulfil_it() {
    for (name, world) in [("simple-operator", World::SimpleOperator), ("stateful-operator", World::StatefulOperator)] {
        let component = componentize(&module(&contract(), name, true), None).unwrap();
        let inspection = validate(&component).unwrap();
        assert_eq!(inspection.world, Some(world));
        assert_eq!(inspection.size, component.len() as u64);
        assert_eq!(inspection.digest, blake3::hash(&component).to_hex().as_str());
        assert!(inspection.imports.contains(&"weir:plugin/output@0.1.0".to_owned()), "{inspection:?}");
        assert_eq!(inspection.exports.len(), if world == World::SimpleOperator { 1 } else { 2 });
        assert_eq!((inspection.wasi.len(), inspection.extra_exports.len()), (0, 0));
    }
}

#[test]
fn a_component_is_left_as_it_is() {
    let component = componentize(&module(&contract(), "simple-operator", true), None).unwrap();
    assert_eq!(componentize(&component, None).unwrap(), component);
}

#[test]
fn a_newer_patch_of_the_contract_is_accepted_unless_it_is_used() {
    let newer = contract_with("package weir:plugin@0.1.0;", "package weir:plugin@0.1.7;");
    let component = componentize(&module(&newer, "stateful-operator", true), None).unwrap();
    assert_eq!(validate(&component).unwrap().world, Some(World::StatefulOperator));

    let used =
        contract_with("enabled: func(level: level) -> bool;", "enabled: func(level: level) -> bool; flush: func();");
    assert_eq!(
        problems(&used, "simple-operator"),
        ["imports weir:plugin/log@0.1.0 with a function flush that weir:plugin@0.1.0 lacks"]
    );
}

#[test]
fn another_version_of_the_contract_is_refused_by_name() {
    let other = contract_with("package weir:plugin@0.1.0;", "package weir:plugin@0.2.0;");
    let problems = problems(&other, "simple-operator").join("\n");
    assert!(
        problems.contains("exports weir:plugin/processor@0.2.0, but this weir serves weir:plugin@0.1.0"),
        "{problems}"
    );
}

#[test]
fn a_missing_export_is_named_with_what_is_there() {
    let mut files = contract();
    files.push((
        "own.wit".into(),
        "package weir:plugin@0.1.0;\ninterface mine { f: func(); }\nworld wrong { export mine; }".into(),
    ));
    assert_eq!(
        problems(&files, "wrong"),
        ["lacks the export weir:plugin/processor@0.1.0; it exports weir:plugin/mine@0.1.0"]
    );
}

#[test]
fn checkpoint_alone_is_not_an_operator() {
    let mut files = contract();
    files.push((
        "own.wit".into(),
        "package weir:plugin@0.1.0;\nworld wrong { import snapshots; export checkpoint; }".into(),
    ));
    let problems = problems(&files, "wrong");
    assert!(problems[0].starts_with("lacks the export weir:plugin/processor@0.1.0"), "{problems:?}");
}

#[test]
fn an_export_with_another_signature_is_named_with_both() {
    let files = contract_with("finish: func(port: u32)", "finish: func(port: u64)");
    let problems = problems(&files, "simple-operator");
    assert_eq!(
        problems,
        ["the export weir:plugin/processor@0.1.0 has finish: func(port: u64) -> result<progress, failure> where \
          func(port: u32) -> result<progress, failure> is expected (u64 where u32 is expected)"]
    );
}

#[test]
fn a_function_that_is_missing_is_named_with_its_type() {
    let files = contract_with("@since(version = 0.1.0)\n  wake: func() -> result<progress, failure>;", "");
    assert_eq!(
        problems(&files, "simple-operator"),
        ["the export weir:plugin/processor@0.1.0 lacks wake: func() -> result<progress, failure>"]
    );
}

#[test]
fn a_type_that_differs_deep_inside_is_found() {
    let files = contract_with("values: list<u8>,", "values: string,");
    let problems = problems(&files, "simple-operator").join("\n");
    assert!(
        problems.contains("has another process")
            && problems.contains("field values of batch: string where list<u8> is expected"),
        "{problems}"
    );
    let files = contract_with("    fatal,\n", "    fatal,\n    later,\n");
    let problems = self::problems(&files, "simple-operator").join("\n");
    assert!(problems.contains("failure-kind is made of retry, invalid, fatal, later"), "{problems}");
}

#[test]
fn what_no_host_offers_may_not_be_imported_but_wasi_is_listed() {
    let files = contract_with("import timers;", "import timers; import disk;");
    let mut foreign = files.clone();
    foreign.push(("disk.wit".into(), "package weir:plugin@0.1.0;\ninterface disk { format: func(); }".into()));
    assert_eq!(
        problems(&foreign, "simple-operator"),
        ["imports weir:plugin/disk@0.1.0, which no host of this contract offers"]
    );

    let mut wasi = contract_with("import timers;", "import timers; import wasi:random/insecure@0.2.0;");
    let world = wasi.iter_mut().find(|(name, _)| name == "worlds.wit").unwrap();
    world.1.push_str("\npackage wasi:random@0.2.0 { interface insecure { get: func() -> u64; } }\n");
    let component = componentize(&module(&wasi, "simple-operator", true), None).unwrap();
    assert_eq!(validate(&component).unwrap().wasi, ["wasi:random/insecure@0.2.0"]);
}

#[test]
fn an_export_besides_the_contract_is_listed_and_tolerated() {
    let mut files = contract_with("export processor;", "export processor; export init;");
    files.push(("init.wit".into(), "package weir:plugin@0.1.0;\ninterface init { init: func(); }".into()));
    let component = componentize(&module(&files, "simple-operator", true), None).unwrap();
    assert_eq!(validate(&component).unwrap().extra_exports, ["weir:plugin/init@0.1.0"]);
}

#[test]
fn a_module_without_metadata_and_bytes_that_are_no_wasm_are_told_apart() {
    let plain = module(&contract(), "simple-operator", false);
    assert!(matches!(componentize(&plain, None), Err(ComponentError::NoMetadata)));
    assert!(matches!(inspect(&plain), Err(ComponentError::NoMetadata)));
    for bytes in [&b""[..], b"\0as", b"hello, world", b"\0asm\x01\0\0\0\xff"] {
        assert!(matches!(componentize(bytes, None), Err(ComponentError::NotWasm { .. })), "{bytes:?}");
        assert!(matches!(inspect(bytes), Err(ComponentError::NotWasm { .. })), "{bytes:?}");
    }
}

#[test]
fn no_damage_to_a_component_makes_looking_at_it_panic() {
    let component = componentize(&module(&contract(), "stateful-operator", true), None).unwrap();
    for position in (0..component.len()).step_by(7) {
        let mut damaged = component.clone();
        damaged[position] ^= 0x11;
        // Some bytes are names, and the component remains one.
        let _ = inspect(&damaged);
        // Cut between two sections at its end it is still whole.
        let _ = inspect(&component[..position]);
    }
}
