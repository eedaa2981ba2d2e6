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
    let options =
        BuildOptions { output: Some(output.to_path_buf()), target_dir: Some(target), ..BuildOptions::default() };
    let bytes = match build(dir, &options) {
        Ok(made) => std::fs::read(made.path).expect("the component was written just now"),
        Err(error) => panic!("guest {} does not build: {error}; {}", dir.display(), error.remedy()),
    };
    built.insert(dir.to_owned(), bytes.clone());
    bytes
}
