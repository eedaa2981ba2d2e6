//! Components for tests: crates below `tests/guests` (or anywhere else), built once a test run by the very function behind `weir plugin build`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use weir::plugin::build::{BuildOptions, build};

static BUILT: Mutex<Option<HashMap<PathBuf, Vec<u8>>>> = Mutex::new(None);

/// The component of a crate in `tests/guests`.
///
/// # Panics
///
/// If it does not build: the test cannot go on.
pub fn guest(name: &str) -> Vec<u8> {
    component(&Path::new(env!("CARGO_MANIFEST_DIR")).join("guests").join(name))
}

/// The component of the crate in `dir`. Cargo decides whether there is anything to do; all crates share one target folder.
///
/// # Panics
///
/// If it does not build: the test cannot go on.
pub fn component(dir: &Path) -> Vec<u8> {
    // Held while building: cargo would serialise builds in one target folder anyway.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let built = built.get_or_insert_default();
    if let Some(bytes) = built.get(dir) {
        return bytes.clone();
    }
    let target = crate::cargo_target().join("guests");
    let output = tempfile::NamedTempFile::new().expect("a temporary file").into_temp_path();
    let options = BuildOptions { output: Some(output.to_path_buf()), target_dir: Some(target) };
    let bytes = match build(dir, &options) {
        Ok(made) => std::fs::read(made.path).expect("the component was written just now"),
        Err(error) => panic!("guest {} does not build: {error}; {}", dir.display(), error.remedy()),
    };
    built.insert(dir.to_owned(), bytes.clone());
    bytes
}

/// A component around another: it imports and exports the same, and all that it does is done by instances of the one within, of which it
/// makes two. The second idles. `also` are names of exports without content that it has besides.
///
/// It is what composing tools write. What the inner component says of its imports, before its first core module, is said again by the
/// outer one in the same words.
///
/// # Panics
///
/// If the component is not built as `weir plugin build` builds it.
pub fn nested(inner: &[u8], also: &[&str]) -> Vec<u8> {
    use wasm_encoder::{
        Alias, Component, ComponentAliasSection, ComponentExportKind, ComponentExportSection, ComponentInstanceSection,
        RawSection,
    };
    use wasmparser::{BinaryReader, ComponentImportSectionReader, ComponentTypeRef};

    const PROCESSOR: &str = "weir:plugin/processor@0.1.0";
    // Aliases, types, imports.
    const SAID_AGAIN: [u8; 3] = [6, 7, 10];
    let mut outer = Component::new();
    let mut reader = BinaryReader::new(inner, 0);
    reader.read_bytes(8).expect("a header");
    let mut imports = Vec::new();
    while !reader.eof() {
        let id = reader.read_u8().expect("a section");
        let len = reader.read_var_u32().expect("its length") as usize;
        let offset = reader.original_position();
        let data = reader.read_bytes(len).expect("its content");
        match id {
            0 => continue,
            id if SAID_AGAIN.contains(&id) => {}
            _ => break,
        }
        if id == 10 {
            for import in ComponentImportSectionReader::new(BinaryReader::new(data, offset)).expect("imports") {
                let import = import.expect("an import");
                assert!(matches!(import.ty, ComponentTypeRef::Instance(_)), "only interfaces are imported");
                imports.push(import.name.name.to_owned());
            }
        }
        outer.section(&RawSection { id, data });
    }
    outer.section(&RawSection { id: 4, data: inner });
    let mut instances = ComponentInstanceSection::new();
    for _ in 0..2 {
        let arguments = imports
            .iter()
            .zip(0..imports.len() as u32)
            .map(|(name, index)| (name.as_str(), ComponentExportKind::Instance, index));
        instances.instantiate(0, arguments);
    }
    for _ in also {
        let nothing: [(&str, ComponentExportKind, u32); 0] = [];
        instances.export_items(nothing);
    }
    outer.section(&instances);
    let (count, empty) = (imports.len() as u32, also.len() as u32);
    let mut aliases = ComponentAliasSection::new();
    aliases.alias(Alias::InstanceExport { instance: count, kind: ComponentExportKind::Instance, name: PROCESSOR });
    outer.section(&aliases);
    let mut exports = ComponentExportSection::new();
    exports.export(PROCESSOR, ComponentExportKind::Instance, count + 2 + empty, None);
    for (name, index) in also.iter().zip(count + 2..) {
        exports.export(*name, ComponentExportKind::Instance, index, None);
    }
    outer.section(&exports);
    outer.finish()
}
