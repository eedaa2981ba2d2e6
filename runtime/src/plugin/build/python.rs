//! Python: componentize-py puts the interpreter, the SDK and the operator into a component.

use std::fs;

use super::tool::{Tool, Wanted, run};
use super::{BuildError, BuildOptions, Builder, contract_folder, scratch};
use crate::plugin::project::Project;

const COMPONENTIZE: Wanted = Wanted {
    name: "componentize-py",
    variable: "WEIR_COMPONENTIZE_PY",
    beside: &[".venv/bin"],
    programs: &["componentize-py"],
    ask: &["--version"],
    needed: "version 0.25.1",
    accepts: |version| super::tool::version(version) == Some([0, 25, 1]),
    get: "run `python3 -m venv .venv && .venv/bin/pip install -r requirements.txt` in the project",
};

/// The tool that has the interpreter in it.
#[derive(Debug)]
pub(super) struct Python(Tool);

impl Python {
    pub(super) fn find(project: &Project) -> Result<Self, BuildError> {
        Ok(Self(COMPONENTIZE.find(&project.dir)?))
    }
}

impl Builder for Python {
    fn describe(&self) -> String {
        self.0.version.clone()
    }

    fn build(&self, project: &Project, _: &BuildOptions) -> Result<Vec<u8>, BuildError> {
        let dir = &project.dir;
        let world = project.world();
        let entry = dir.join(project.entry()?);
        let vendor = dir.join("vendor");
        // The tool follows no link out of a folder that it is given.
        let sdk = vendor.join("weir");
        let sdk = fs::canonicalize(&sdk).map_err(|source| BuildError::read(&sdk, source))?;
        let contract = contract_folder()?;
        let folder = scratch()?;
        let component = folder.path().join("component.wasm");
        let mut python = self.0.command(dir);
        python.arg("-q").arg("-d").arg(contract.path()).arg("-w").arg(world.to_string());
        python.args(["componentize", "--stub-wasi", "-p"]).arg(entry.parent().unwrap_or(dir));
        for path in sdk.parent().into_iter().chain((!sdk.starts_with(&vendor)).then_some(vendor.as_path())) {
            python.arg("-p").arg(path);
        }
        python.arg(entry.file_stem().unwrap_or_default()).arg("-o").arg(&component);
        python.env_remove("VIRTUAL_ENV").env_remove("PYTHONPATH");
        run(&mut python)?;
        fs::read(&component).map_err(|source| BuildError::read(&component, source))
    }
}
