//! A tool that a language needs: where it is looked for, and whether its version will do.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::BuildError;

/// What is looked for.
pub(super) struct Wanted {
    /// As people know it.
    pub(super) name: &'static str,
    /// The variable that says where it is, before all else.
    pub(super) variable: &'static str,
    /// Folders of the project that are looked into before `PATH`.
    pub(super) beside: &'static [&'static str],
    /// The names that it may have, the best first.
    pub(super) programs: &'static [&'static str],
    /// How it is asked for its version.
    pub(super) ask: &'static [&'static str],
    /// Which versions will do, for people.
    pub(super) needed: &'static str,
    /// Whether what it says is one of those.
    pub(super) accepts: fn(&str) -> bool,
    /// How to get it.
    pub(super) get: &'static str,
}

/// One that was found.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) program: PathBuf,
    /// What it says of itself: the first line.
    pub(super) version: String,
}

impl Wanted {
    /// The first one that is there and will do; if none does, the first that is there is complained about.
    pub(super) fn find(&self, dir: &Path) -> Result<Tool, BuildError> {
        let mut wrong = None;
        for program in self.candidates(dir) {
            let Ok(version) = self.version(&program, dir) else { continue };
            if (self.accepts)(&version) {
                return Ok(Tool { program, version });
            }
            let error = BuildError::Version {
                program,
                found: version,
                needed: self.needed.to_owned(),
                get: self.get.to_owned(),
            };
            wrong.get_or_insert(error);
        }
        Err(wrong.unwrap_or_else(|| BuildError::NoProgram {
            program: format!("{} ({})", self.name, self.needed),
            get: format!("{}; or say where it is with {}", self.get, self.variable),
            source: io::Error::from(io::ErrorKind::NotFound),
        }))
    }

    fn candidates(&self, dir: &Path) -> Vec<PathBuf> {
        if let Some(program) = env::var_os(self.variable).filter(|program| !program.is_empty()) {
            return vec![program.into()];
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let beside = self.beside.iter().filter_map(|folder| std::path::absolute(dir.join(folder)).ok());
        let folders: Vec<PathBuf> = beside.chain(env::split_paths(&path)).collect();
        let named = |program: &&str| folders.iter().map(|folder| folder.join(program)).collect::<Vec<_>>();
        self.programs.iter().flat_map(named).filter(|program| program.is_file()).collect()
    }

    fn version(&self, program: &Path, dir: &Path) -> io::Result<String> {
        let output = Command::new(program).args(self.ask).current_dir(dir).stdin(Stdio::null()).output()?;
        let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
        Ok(String::from_utf8_lossy(&said).lines().next().unwrap_or_default().trim().to_owned())
    }
}

/// The first three numbers with dots between them in what a tool says of itself; what is not there is 0.
pub(super) fn version(text: &str) -> Option<[u32; 3]> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = text[start..].split(|c: char| !c.is_ascii_digit() && c != '.').next()?.split('.');
    let mut next = || numbers.next().map_or(Some(0), |number| number.parse().ok());
    Some([next()?, next()?, next()?])
}

impl Tool {
    /// A command of it in a folder.
    pub(super) fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(dir);
        command
    }
}

/// Runs a command to its end.
pub(super) fn run(command: &mut Command) -> Result<(), BuildError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    // What it prints is for people: our own standard output is for what was made.
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|source| BuildError::NoProgram {
        program: tool.clone(),
        get: "check that it can be executed".to_owned(),
        source,
    })?;
    eprint!("{}", String::from_utf8_lossy(&output.stdout));
    if output.status.success() { Ok(()) } else { Err(BuildError::Failed { tool, status: output.status }) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const WANTED: Wanted = Wanted {
        name: "the made-up tool",
        variable: "WEIR_TEST_NO_SUCH_VARIABLE",
        beside: &["bin", "other"],
        programs: &["weir-test-tool-2", "weir-test-tool"],
        ask: &["--version"],
        needed: "version 2",
        accepts: |version| version.starts_with("2."),
        get: "make it up",
    };

    fn put(dir: &Path, path: &str, version: &str) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\necho {version}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_first_that_will_do_is_taken_else_the_first_is_complained_about_else_it_is_said_how_to_get_one() {
        let dir = tempfile::tempdir().unwrap();
        let error = WANTED.find(dir.path()).unwrap_err();
        assert_eq!(error.to_string(), "cannot run the made-up tool (version 2)");
        assert_eq!(error.remedy(), "make it up; or say where it is with WEIR_TEST_NO_SUCH_VARIABLE");
        put(dir.path(), "bin/weir-test-tool", "1.0");
        put(dir.path(), "other/weir-test-tool", "1.1");
        let error = WANTED.find(dir.path()).unwrap_err();
        assert!(error.to_string().ends_with("bin/weir-test-tool is version 1.0; version 2 is needed"), "{error}");
        assert_eq!(error.remedy(), "make it up");
        put(dir.path(), "other/weir-test-tool-2", "2.5");
        let tool = WANTED.find(dir.path()).unwrap();
        assert_eq!((tool.version.as_str(), tool.program.file_name().unwrap()), ("2.5", "weir-test-tool-2".as_ref()));
    }

    #[test]
    fn versions_are_found_in_what_tools_say() {
        assert_eq!(version("v20.20.2"), Some([20, 20, 2]));
        assert_eq!(version("Debian clang version 22.1.8 (++2026)"), Some([22, 1, 8]));
        assert_eq!(version("go version go1.27.3 linux/amd64"), Some([1, 27, 3]));
        assert_eq!(version("0.17"), Some([0, 17, 0]));
        assert_eq!(version("none"), None);
    }

    #[test]
    fn a_tool_that_fails_is_named() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "bin/weir-test-tool", "2.0; exit 3");
        let tool = WANTED.find(dir.path()).unwrap();
        let error = run(&mut tool.command(dir.path())).unwrap_err();
        assert!(error.to_string().ends_with("bin/weir-test-tool failed with exit status: 3"), "{error}");
    }
}
