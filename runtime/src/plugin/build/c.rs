//! C and C++: clang and lld make a core module for WASI's C library.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tool::{Tool, Wanted, run};
use super::{BuildError, BuildOptions, Builder};
use crate::plugin::project::Project;

/// Where Debian's packages put the C library; a sysroot of another kind is said by `WEIR_WASI_SYSROOT`.
const SYSROOT: &str = "/usr";
const GET_C: &str = "on Debian `apt-get install clang-22 lld-22 wasi-libc libclang-rt-22-dev-wasm32`, elsewhere LLVM and wasi-libc with WEIR_WASI_SYSROOT";
const GET_CXX: &str = "on Debian `apt-get install libc++-22-dev-wasm32 libc++abi-22-dev-wasm32`";

const CLANG: Wanted = Wanted {
    name: "clang",
    variable: "WEIR_CLANG",
    beside: &[],
    programs: &["clang-22", "clang-23", "clang-21", "clang-20", "clang-19", "clang"],
    ask: &["--version"],
    needed: "version 19 or newer",
    accepts: is_new,
    get: GET_C,
};
const CLANGXX: Wanted = Wanted {
    name: "clang++",
    variable: "WEIR_CLANGXX",
    programs: &["clang++-22", "clang++-23", "clang++-21", "clang++-20", "clang++-19", "clang++"],
    ..CLANG
};

fn is_new(version: &str) -> bool {
    super::tool::version(version).is_some_and(|version| version >= [19, 0, 0])
}

/// The compilers.
#[derive(Debug)]
pub(super) struct C {
    clang: Tool,
    /// Where there is a source in C++.
    clangxx: Option<Tool>,
    sysroot: PathBuf,
    sources: Vec<PathBuf>,
}

impl C {
    pub(super) fn find(project: &Project) -> Result<Self, BuildError> {
        let entry = project.dir.join(project.entry()?);
        let sources = sources(entry.parent().unwrap_or(&project.dir))?;
        let has_cxx = sources.iter().any(|source| is_cxx(source));
        let sysroot = std::env::var_os("WEIR_WASI_SYSROOT").filter(|path| !path.is_empty());
        let sysroot = PathBuf::from(sysroot.unwrap_or_else(|| SYSROOT.into()));
        let include = sysroot.join("include/wasm32-wasi");
        for (header, is_wanted, get) in [("stdio.h", true, GET_C), ("c++/v1", has_cxx, GET_CXX)] {
            let path = include.join(header);
            if let Err(source) = path.metadata()
                && is_wanted
            {
                let program = format!("the library for WebAssembly: {} is not there", path.display());
                return Err(BuildError::NoProgram { program, get: get.to_owned(), source });
            }
        }
        let clangxx = has_cxx.then(|| CLANGXX.find(&project.dir)).transpose()?;
        Ok(Self { clang: CLANG.find(&project.dir)?, clangxx, sysroot, sources })
    }

    fn command(&self, tool: &Tool, dir: &Path) -> Command {
        let mut command = tool.command(dir);
        // Debian's library lies under the old name of the target.
        command.args(["--target=wasm32-wasi", "-Wno-deprecated"]).arg(joined("--sysroot=", &self.sysroot));
        command.args(["-O2", "-flto"]);
        command
    }
}

impl Builder for C {
    fn describe(&self) -> String {
        self.clang.version.clone()
    }

    fn build(&self, project: &Project, _: &BuildOptions) -> Result<Vec<u8>, BuildError> {
        let dir = &project.dir;
        let world = project.world();
        let folder = dir.join("build/wasm");
        fs::create_dir_all(&folder).map_err(|source| BuildError::write(&folder, source))?;
        let sdk = dir.join("vendor/weir");
        let own = self.sources.iter().map(|source| std::path::absolute(source).unwrap_or_else(|_| source.clone()));
        let sdks = [sdk.join("weir.c"), sdk.join(format!("worlds/{world}.c"))];
        let mut objects = Vec::new();
        for (number, source) in own.chain(sdks).enumerate() {
            let object = folder.join(format!("{number}.o"));
            let mut compile = match self.clangxx.as_ref().filter(|_| is_cxx(&source)) {
                Some(clangxx) => {
                    let mut compile = self.command(clangxx, dir);
                    compile.args(["-std=c++23", "-fno-exceptions", "-fno-rtti"]);
                    compile
                }
                None => {
                    let mut compile = self.command(&self.clang, dir);
                    compile.arg("-std=c11");
                    compile
                }
            };
            compile.args(["-Wall", "-Wextra"]).arg(joined("-I", &sdk)).arg("-c").arg(&source).arg("-o").arg(&object);
            run(&mut compile)?;
            objects.push(object);
        }
        let module = folder.join("module.wasm");
        let mut link = self.command(self.clangxx.as_ref().unwrap_or(&self.clang), dir);
        link.args(["-mexec-model=reactor", "-Wl,--strip-debug", "-Wl,--stack-first", "-Wl,-z,stack-size=131072"]);
        link.args(objects).arg("-o").arg(&module);
        run(&mut link)?;
        fs::read(&module).map_err(|source| BuildError::read(&module, source))
    }
}

fn joined(option: &str, path: &Path) -> OsString {
    let mut joined = OsString::from(option);
    joined.push(path);
    joined
}

fn is_cxx(source: &Path) -> bool {
    source.extension() == Some(OsStr::new("cpp"))
}

/// The sources of a folder that are not tests, in the order of their names.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let failed = |source: io::Error| BuildError::read(folder, source);
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_source = path.extension().is_some_and(|extension| extension == "c" || extension == "cpp");
        let is_test = path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("_test"));
        if is_source && !is_test {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_in_order_and_tests_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.c", "a.cpp", "a_test.c", "a.h", "x.cpp.bak", "b_test.cpp"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found = sources(dir.path()).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a.cpp", "b.c"]);
        assert!(sources(&dir.path().join("nowhere")).is_err());
    }
}
