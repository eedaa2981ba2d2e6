//! JavaScript and TypeScript: esbuild makes one module of the operator and the SDK, componentize-qjs puts it into a component with QuickJS.
//!
//! Both are packages of the project (`npm install`), of the versions that its `package.json` names: they are looked for in `node_modules` of its folder
//! and of those above it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::tool::{Tool, Wanted, run};
use super::{BuildError, BuildOptions, Builder, contract_folder};
use crate::plugin::project::Project;

const ESBUILD: (&str, &str) = ("esbuild", "0.28.2");
const COMPONENTIZE: (&str, &str) = ("componentize-qjs", "0.4.5");

const NODE: Wanted = Wanted {
    name: "node",
    variable: "WEIR_NODE",
    beside: &[],
    programs: &["node"],
    ask: &["--version"],
    needed: "version 20.6 or newer",
    accepts: |version| super::tool::version(version).is_some_and(|version| version >= [20, 6, 0]),
    get: "install Node.js 20.6 or newer (nodejs.org)",
};

/// Node, and where the packages are.
#[derive(Debug)]
pub(super) struct Js {
    node: Tool,
    esbuild: PathBuf,
    componentize: PathBuf,
}

impl Js {
    pub(super) fn find(project: &Project) -> Result<Self, BuildError> {
        let node = NODE.find(&project.dir)?;
        let package = |package| find_package(&project.dir, package);
        Ok(Self { node, esbuild: package(ESBUILD)?, componentize: package(COMPONENTIZE)? })
    }

    /// A program of a package, which finds the node that we have found.
    fn command(&self, program: &Path, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(dir);
        let path = env::var_os("PATH").unwrap_or_default();
        let first = self.node.program.parent().map(Path::to_owned);
        if let Ok(path) = env::join_paths(first.into_iter().chain(env::split_paths(&path))) {
            command.env("PATH", path);
        }
        command
    }
}

impl Builder for Js {
    fn describe(&self) -> String {
        let of = |(name, version): (&str, &str)| format!("{name} {version}");
        format!("node {}, {}, {}", self.node.version, of(ESBUILD), of(COMPONENTIZE))
    }

    fn build(&self, project: &Project, _: &BuildOptions) -> Result<Vec<u8>, BuildError> {
        let dir = &project.dir;
        let world = project.world();
        let entry = project.entry()?;
        let target = dir.join("target");
        fs::create_dir_all(&target).map_err(|source| BuildError::write(&target, source))?;
        let module = target.join(format!("{}.js", project.name));
        let component = target.join(format!("{}.component.wasm", project.name));

        let mut esbuild = self.command(&self.esbuild, dir);
        esbuild.arg(format!("vendor/weir/src/component/{world}.js"));
        esbuild.args(["--bundle", "--format=esm", "--target=es2023", "--log-level=warning", "--external:weir:*"]);
        esbuild.arg(format!("--alias:weir-operator=./{}", entry.display()));
        esbuild.arg(format!("--outfile={}", module.display()));
        run(&mut esbuild)?;

        let contract = contract_folder()?;
        let mut componentize = self.command(&self.componentize, dir);
        componentize.arg("--wit").arg(contract.path()).args(["--world", &world.to_string()]);
        componentize.arg("--js").arg(&module).args(["--sync", "--stub-wasi"]).arg("--output").arg(&component);
        run(&mut componentize)?;
        fs::read(&component).map_err(|source| BuildError::read(&component, source))
    }
}

/// What matters of a package's description.
#[derive(Deserialize)]
struct Package {
    version: String,
}

/// The program that npm has linked for a package of just this version.
fn find_package(dir: &Path, (name, version): (&'static str, &'static str)) -> Result<PathBuf, BuildError> {
    let dir = std::path::absolute(dir).map_err(|source| BuildError::read(dir, source))?;
    for folder in dir.ancestors().map(|folder| folder.join("node_modules").join(name)) {
        let path = folder.join("package.json");
        let Ok(text) = fs::read(&path) else { continue };
        let package: Package = serde_json::from_slice(&text).map_err(|e| BuildError::read(&path, e.into()))?;
        if package.version != version {
            return Err(BuildError::Version {
                program: folder,
                found: package.version,
                needed: version.to_owned(),
                get: format!("run `npm install --save-dev --save-exact {name}@{version}`"),
            });
        }
        return Ok(folder.with_file_name(".bin").join(name));
    }
    Err(BuildError::NoProgram {
        program: format!("{name} {version}"),
        get: "run `npm install` in the project".to_owned(),
        source: std::io::Error::from(std::io::ErrorKind::NotFound),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_found_above_and_another_version_or_none_is_said_with_the_command_that_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("a/b");
        fs::create_dir_all(&project).unwrap();
        let error = find_package(&project, ESBUILD).unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.remedy().as_str()),
            ("cannot run esbuild 0.28.2", "run `npm install` in the project",)
        );
        let package = dir.path().join("node_modules/esbuild");
        fs::create_dir_all(&package).unwrap();
        let put = |text: &str| fs::write(package.join("package.json"), text).unwrap();
        put(r#"{"version":"0.28.2","bin":{"esbuild":"bin/esbuild"}}"#);
        let found = find_package(&project, ESBUILD).unwrap();
        assert!(found.ends_with("node_modules/.bin/esbuild"), "{}", found.display());
        put(r#"{"version":"0.1.0","bin":"x"}"#);
        let error = find_package(&project, ESBUILD).unwrap_err();
        assert!(error.to_string().ends_with("is version 0.1.0; 0.28.2 is needed"), "{error}");
        assert!(error.remedy().contains("npm install --save-dev --save-exact esbuild@0.28.2"), "{}", error.remedy());
        put("{");
        assert!(matches!(find_package(&project, ESBUILD).unwrap_err(), BuildError::File { .. }));
    }
}
