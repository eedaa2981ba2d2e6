//! Which components of a pipeline are built from sources that are at hand, and building them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tokio::task::JoinHandle;

use super::watch::{Tree, Watched, Watcher};
use crate::error::{Error, ErrorKind};
use crate::model::NodeName;
use crate::plan::{PipelineSpec, PluginRef};
use crate::plugin::build::{BuildError, BuildOptions, build_with, builder};
use crate::plugin::project::{Project, ProjectError};

/// What is built for the operators of a pipeline.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// By the path of the component.
    projects: BTreeMap<PathBuf, Project>,
    /// Components that somebody else builds.
    ready: Vec<PathBuf>,
    pipeline: PathBuf,
    more: Vec<PathBuf>,
}

impl Sources {
    /// Finds the sources of a pipeline's operators: beside the component, in a project of its name, or where `named` says.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Usage`] for a name that is no operator, and a folder that is no project.
    pub(super) fn find(
        pipeline: &Path,
        spec: &PipelineSpec,
        named: &BTreeMap<NodeName, PathBuf>,
        more: &[PathBuf],
    ) -> Result<Self, Error> {
        if let Some(dir) = more.iter().find(|dir| !dir.is_dir()) {
            let message = format!("--watch names {}, which is no folder", dir.display());
            return Err(Error::new(ErrorKind::Usage, message).help("name a folder with sources"));
        }
        let more = more.iter().map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.clone())).collect();
        let mut sources = Self { pipeline: pipeline.to_owned(), more, ..Self::default() };
        if let Some(name) = named.keys().find(|name| spec.operators.iter().all(|operator| operator.name != **name)) {
            let message = format!("--source names {:?}, which is no operator of the pipeline", name.as_str());
            return Err(Error::new(ErrorKind::Usage, message).help("name an operator of the pipeline file"));
        }
        for operator in &spec.operators {
            let PluginRef::Path(path) = &operator.plugin else {
                if named.contains_key(&operator.name) {
                    let message =
                        format!("operator {:?} does not name the file of a component", operator.name.as_str());
                    let help = "write plugin = \"NAME.wasm\" for an operator that is built from sources";
                    return Err(Error::new(ErrorKind::Usage, message).help(help));
                }
                continue;
            };
            let path = spec.dir.join(path);
            let project = match named.get(&operator.name) {
                Some(dir) => Some(open(dir).map_err(|e| {
                    let message = format!("--source {}={} is no plugin's sources", operator.name, dir.display());
                    Error::new(ErrorKind::Usage, message).help(e.remedy()).caused_by(e)
                })?),
                None => beside(&path),
            };
            match project {
                Some(project) => {
                    sources.projects.insert(path, project);
                }
                None => sources.ready.push(path),
            }
        }
        Ok(sources)
    }

    /// What has to be watched.
    pub(super) fn watched(&self) -> Watched {
        let mut files = vec![self.pipeline.clone()];
        files.extend(self.ready.iter().filter(|path| !self.projects.contains_key(*path)).cloned());
        let trees = self.projects.values().map(|project| Tree { dir: project.dir.clone(), lang: Some(project.lang) });
        let more = self.more.iter().map(|dir| Tree { dir: dir.clone(), lang: None });
        Watched { files, trees: trees.chain(more).collect() }
    }

    /// For people: a line for each project.
    pub(super) fn describe(&self) -> Vec<String> {
        let line = |project: &Project| format!("{} ({}) in {}", project.name, project.lang.name(), shown(&project.dir));
        self.projects.values().map(line).collect()
    }

    /// Components that are not there or older than their sources.
    pub(super) fn stale(&self, watcher: &Watcher) -> Vec<PathBuf> {
        let is_stale = |(path, project): &(&PathBuf, &Project)| {
            let built = path.metadata().and_then(|data| data.modified()).ok();
            built.is_none() || built < watcher.newest(&project.dir)
        };
        self.projects.iter().filter(is_stale).map(|(path, _)| path.clone()).collect()
    }

    /// Components whose sources are among these files.
    pub(super) fn affected(&self, changed: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
        let is_source = |path: &&PathBuf| **path != self.pipeline && !self.ready.contains(*path);
        let is_in = |dir: &Path| changed.iter().filter(is_source).any(|path| path.starts_with(dir));
        let is_shared = self.more.iter().any(|dir| is_in(dir));
        let is_affected = |(_, project): &(&PathBuf, &Project)| is_shared || is_in(&project.dir);
        self.projects.iter().filter(is_affected).map(|(path, _)| path.clone()).collect()
    }

    /// Begins to build a component; none if it has no sources here. The tools speak on standard error.
    pub(super) fn build(&self, component: &Path) -> Option<JoinHandle<Result<(), Error>>> {
        let project = self.projects.get(component)?.clone();
        let options = BuildOptions { output: Some(component.to_owned()), ..BuildOptions::default() };
        Some(tokio::task::spawn_blocking(move || {
            // Its description may have changed with its sources.
            let built = Project::open(&project.dir).map_err(BuildError::from).and_then(|project| {
                let builder = builder(&project)?;
                build_with(&project, builder.as_ref(), &options)
            });
            built.map(drop).map_err(|error| {
                let failed = Error::new(ErrorKind::Plugin, format!("no plugin was built from {}", shown(&project.dir)));
                failed.help(error.remedy()).caused_by(error)
            })
        }))
    }
}

/// The project whose component would be written to this path, if its folder is one.
fn beside(component: &Path) -> Option<Project> {
    let project = open(component.parent()?).ok()?;
    let is_its = component.file_name()?.to_str()? == format!("{}.wasm", project.name);
    is_its.then_some(project)
}

/// The project in a folder, whose files are known by absolute paths: nothing else begins with one of them by chance.
fn open(dir: &Path) -> Result<Project, ProjectError> {
    Project::open(&std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()))
}

/// A path as people write it: from where they are.
pub(super) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let within = path.strip_prefix(&here).unwrap_or(path);
    match within.as_os_str().is_empty() {
        true => ".".to_owned(),
        false => within.strip_prefix(".").unwrap_or(within).display().to_string(),
    }
}
