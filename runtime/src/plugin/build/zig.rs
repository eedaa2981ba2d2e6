//! Zig: its compiler makes a core module without any system.

use std::fs;

use super::tool::{Tool, Wanted, run};
use super::{BuildError, BuildOptions, Builder};
use crate::plugin::project::Project;

const NEEDED: &str = "version 0.17.1";
const GET: &str = "`pip install ziglang==0.17.1` into a virtual environment, `.venv` in the project for one, or Zig 0.17.1 from ziglang.org";

const ZIG: Wanted = Wanted {
    name: "zig",
    variable: "WEIR_ZIG",
    beside: &[],
    programs: &["zig"],
    ask: &["version"],
    needed: NEEDED,
    accepts: is_right,
    get: GET,
};
/// The same as a package of Python's.
const PACKAGE: Wanted = Wanted {
    variable: "WEIR_ZIG_PYTHON",
    beside: &[".venv/bin"],
    programs: &["python3"],
    ask: &["-m", "ziglang", "version"],
    ..ZIG
};

fn is_right(version: &str) -> bool {
    super::tool::version(version) == Some([0, 17, 1])
}

/// The compiler.
#[derive(Debug)]
pub(super) struct Zig {
    tool: Tool,
    /// What comes before what is asked of it.
    before: &'static [&'static str],
}

impl Zig {
    pub(super) fn find(project: &Project) -> Result<Self, BuildError> {
        match ZIG.find(&project.dir) {
            Ok(tool) => Ok(Self { tool, before: &[] }),
            Err(error) => {
                let package = PACKAGE.find(&project.dir).map_err(|_| error)?;
                Ok(Self { tool: package, before: &["-m", "ziglang"] })
            }
        }
    }
}

impl Builder for Zig {
    fn describe(&self) -> String {
        format!("zig {}", self.tool.version)
    }

    fn build(&self, project: &Project, _: &BuildOptions) -> Result<Vec<u8>, BuildError> {
        let dir = &project.dir;
        let world = project.world();
        let entry = project.entry()?;
        let cache = dir.join(".zig-cache");
        fs::create_dir_all(&cache).map_err(|source| BuildError::write(&cache, source))?;
        let module = cache.join("module.wasm");
        let mut zig = self.tool.command(dir);
        zig.args(self.before).args(["build-exe", "-target", "wasm32-freestanding", "-O", "ReleaseSafe", "-fstrip"]);
        zig.args(["-fno-entry", "-rdynamic", "--stack", "131072"]);
        // What a module may import is said before the module.
        zig.args(["--dep", "weir", "--dep", "operator"]).arg(format!("-Mroot=vendor/weir/worlds/{world}.zig"));
        zig.arg("-Mweir=vendor/weir/weir.zig").args(["--dep", "weir"]);
        zig.arg(format!("-Moperator={}", entry.display())).arg(format!("-femit-bin={}", module.display()));
        run(&mut zig)?;
        fs::read(&module).map_err(|source| BuildError::read(&module, source))
    }
}
