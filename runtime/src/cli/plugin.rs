//! `weir plugin`: make a plugin, build it, look into it, try it, measure it.
//!
//! What was made or found goes to standard output, as a list for people or as JSON; cargo's progress and everything else goes to standard
//! error. A component that breaks the contract ends with the exit code of a plugin that cannot be used.

mod bench;
mod schema;
mod subject;
mod test;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::remote::{PluginAtArgs, PluginsArgs, PullArgs, PushArgs};
use crate::error::{Error, ErrorKind};
use crate::model::Descriptor;
use crate::plugin::build::{BuildError, BuildOptions, SETUP_SCRIPT, build_with, builder, replace};
use crate::plugin::component::{COMPONENT_BYTES_MAX, Capability, Inspection, World, componentize, inspect, validate};
use crate::plugin::project::{Lang, Project};
use crate::plugin::scaffold::scaffold;

/// What can be done with plugins.
#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    /// Make a project for a new plugin, with a test and a pipeline that runs it
    New(NewArgs),
    /// Build a plugin's sources into a component, and check it against the contract
    Build(BuildArgs),
    /// Make a component of a core module that another toolchain has built
    Componentize(ComponentizeArgs),
    /// Show what a component is, imports and exports
    Inspect(InspectArgs),
    /// Try an operator on records of yours: does it survive snapshots, restores, other batches, other subtasks, odd records
    Test(test::TestArgs),
    /// Measure an operator on records of yours, by batch size
    Bench(bench::BenchArgs),
    /// Get a toolchain that can build plugins, where rustup has none
    Setup(SetupArgs),
    /// Bring a plugin to a server, under a name and a version
    Push(PushArgs),
    /// List the plugins of a tenant on a server
    List(PluginsArgs),
    /// Show a plugin on a server
    Show(PluginAtArgs),
    /// Get the bytes of a plugin from a server
    Pull(PullArgs),
    /// Delete a plugin on a server; refused while a job uses it
    Delete(PluginAtArgs),
}

/// `weir plugin new`.
#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// Its name: lower-case letters, digits and hyphens
    name: String,
    /// What it is to be written in
    #[arg(long, default_value = "rust")]
    lang: Lang,
    /// The folder in which its folder is made
    #[arg(long, value_name = "DIR", default_value = ".")]
    path: PathBuf,
}

/// `weir plugin build`.
#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    /// The folder of the sources
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Where the component goes [default: NAME.wasm in that folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Cargo's target folder; crates that share one build their dependencies once
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `weir plugin componentize`.
#[derive(Debug, Args)]
pub(super) struct ComponentizeArgs {
    /// A core module; one that imports wasi_snapshot_preview1 gets an adapter that imports nothing but weir's log
    module: PathBuf,
    /// Which world it implements, where it does not say so itself
    #[arg(long)]
    world: Option<World>,
    /// Where the component goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `weir plugin inspect`.
#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// A component
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `weir plugin setup`.
#[derive(Debug, Args)]
pub(super) struct SetupArgs {
    /// Fill the cache even if the active toolchain will do
    #[arg(long)]
    cached: bool,
}

impl PluginCommand {
    /// Carries the command out.
    ///
    /// # Errors
    ///
    /// Of kind [`ErrorKind::Usage`] for a bad name or a folder that exists, otherwise [`ErrorKind::Plugin`].
    pub(super) fn run(self) -> Result<(), Error> {
        match self {
            Self::New(args) => args.run(),
            Self::Build(args) => args.run(),
            Self::Componentize(args) => args.run(),
            Self::Inspect(args) => args.run(),
            Self::Test(args) => args.run(),
            Self::Bench(args) => args.run(),
            Self::Setup(args) => args.run(),
            Self::Push(args) => args.run(),
            Self::List(args) => args.run(),
            Self::Show(args) => args.show(),
            Self::Pull(args) => args.run(),
            Self::Delete(args) => args.delete(),
        }
    }
}

impl NewArgs {
    fn run(self) -> Result<(), Error> {
        let dir = self.path.join(&self.name);
        scaffold(&self.name, self.lang, &dir).map_err(|e| {
            let error = Error::new(ErrorKind::Usage, format!("plugin {:?} was not made", self.name)).help(e.remedy());
            error.caused_by(e)
        })?;
        let shown = dir.strip_prefix("./").unwrap_or(&dir).display();
        print(&format!("{shown}\n"))?;
        eprintln!(
            "made a plugin; {shown}/README.md says how to test it and which tools it takes; then:\n  weir plugin build {shown}\n  weir run {shown}/pipeline.toml"
        );
        Ok(())
    }
}

impl BuildArgs {
    fn run(self) -> Result<(), Error> {
        let options = BuildOptions { output: self.output, target_dir: self.target_dir };
        let built = Project::open(&self.dir).map_err(BuildError::from).and_then(|project| {
            let builder = builder(&project)?;
            eprintln!("building with {}", builder.describe());
            build_with(&project, builder.as_ref(), &options)
        });
        let built = built.map_err(|e| {
            let error = Error::new(ErrorKind::Plugin, format!("no plugin was built from {}", self.dir.display()));
            error.help(e.remedy()).caused_by(e)
        })?;
        show(&built.path, &built.inspection, None, self.json)
    }
}

impl ComponentizeArgs {
    fn run(self) -> Result<(), Error> {
        let failed = || Error::new(ErrorKind::Plugin, format!("no plugin was made of {}", self.module.display()));
        let module = read(&self.module)?;
        let made = componentize(&module, self.world).and_then(|component| Ok((validate(&component)?, component)));
        let (inspection, component) = made.map_err(|e| failed().help(e.remedy()).caused_by(e))?;
        replace(&self.output, &component).map_err(|e| {
            let help = "check that the folder exists and is writable";
            failed().help(help).caused_by(e)
        })?;
        show(&self.output, &inspection, None, self.json)
    }
}

impl InspectArgs {
    fn run(self) -> Result<(), Error> {
        let unusable = || Error::new(ErrorKind::Plugin, format!("{} is not a plugin", self.file.display()));
        let bytes = read(&self.file)?;
        let inspection = inspect(&bytes).map_err(|e| unusable().help(e.remedy()).caused_by(e))?;
        let descriptor = if inspection.problems.is_empty() { describe(&bytes)? } else { None };
        show(&self.file, &inspection, descriptor, self.json)?;
        if inspection.problems.is_empty() {
            return Ok(());
        }
        let broken = crate::plugin::component::ComponentError::Contract(inspection.problems);
        Err(unusable().help(broken.remedy()).caused_by(broken))
    }
}

impl SetupArgs {
    fn run(self) -> Result<(), Error> {
        let failed = || Error::new(ErrorKind::Plugin, "no toolchain was set up").help("see the messages above");
        let mut command = Command::new("bash");
        command.args(["-s", "--"]).args(self.cached.then_some("--cached")).stdin(Stdio::piped());
        let mut script = command.spawn().map_err(|e| failed().help("install bash").caused_by(e))?;
        if let Some(mut stdin) = script.stdin.take() {
            stdin.write_all(SETUP_SCRIPT.as_bytes()).map_err(|e| failed().caused_by(e))?;
        }
        let status = script.wait().map_err(|e| failed().caused_by(e))?;
        if status.success() { Ok(()) } else { Err(failed()) }
    }
}

/// What a plugin says about itself, asked on an instance of its own.
fn describe(component: &[u8]) -> Result<Option<Descriptor>, Error> {
    super::run::block_on(async {
        let plugin = super::pipeline::plugin_host()?.load(component).await?;
        Ok(Some(plugin.descriptor().clone()))
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = || Error::new(ErrorKind::Plugin, format!("cannot read {}", path.display()));
    let file = File::open(path).map_err(|e| failed().caused_by(e))?;
    let mut bytes = Vec::new();
    file.take(COMPONENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| failed().caused_by(e))?;
    if bytes.len() as u64 > COMPONENT_BYTES_MAX {
        let message = format!("{} is larger than a plugin may be, {COMPONENT_BYTES_MAX} bytes", path.display());
        return Err(Error::new(ErrorKind::Plugin, message).help("build it without debug information"));
    }
    Ok(bytes)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    path: &'a Path,
    #[serde(flatten)]
    inspection: &'a Inspection,
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptor: Option<Descriptor>,
}

fn show(path: &Path, inspection: &Inspection, descriptor: Option<Descriptor>, json: bool) -> Result<(), Error> {
    if json {
        let shown = Shown { path, inspection, descriptor };
        let text = serde_json::to_string_pretty(&shown)
            .map_err(|e| Error::new(ErrorKind::Plugin, "the answer cannot be written as JSON").caused_by(e))?;
        return print(&format!("{text}\n"));
    }
    let mut text = String::new();
    let mut line = |label: &str, value: &str| text.push_str(&format!("{label:<14}{value}\n"));
    line("component", &path.display().to_string());
    line("digest", &inspection.digest);
    line("size", &format!("{} bytes", inspection.size));
    line("world", &inspection.world.map_or_else(|| "none".to_owned(), |world| world.to_string()));
    let width = inspection.imports.iter().map(String::len).max().unwrap_or_default();
    for (i, Capability { import, meaning, grant }) in inspection.capabilities.iter().enumerate() {
        let grant = grant.map(|grant| format!(" (grants = [\"{grant}\"])")).unwrap_or_default();
        line(if i == 0 { "imports" } else { "" }, &format!("{import:width$}  {meaning}{grant}"));
    }
    let mut list = |label: &str, values: &[String]| {
        for (i, value) in values.iter().enumerate() {
            line(if i == 0 { label } else { "" }, value);
        }
    };
    list("exports", &inspection.exports);
    list("also exports", &inspection.extra_exports);
    list("problems", &inspection.problems);
    if let Some(descriptor) = descriptor {
        line("name", &format!("{} {}", descriptor.name, descriptor.version));
        line("summary", &descriptor.summary);
        let kind = serde_json::to_value(descriptor.state).ok();
        let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
        let (newest, oldest) = (descriptor.state_version, descriptor.oldest_state_version);
        line("state", &format!("{kind}, version {newest}, reads from version {oldest}"));
        for (label, ports) in [("input", &descriptor.inputs), ("output", &descriptor.outputs)] {
            for port in ports {
                let keyed = if port.keyed { " (keyed)" } else { "" };
                line(label, &format!("{}{keyed}  {}", port.name, port.summary));
            }
        }
        let config = descriptor.config_schema.as_deref().map_or_else(Vec::new, schema::lines);
        for (i, setting) in config.iter().enumerate() {
            line(if i == 0 { "config" } else { "" }, setting);
        }
    }
    print(&text)
}

/// Prints to standard output. A reader that has gone is no error.
fn print(text: &str) -> Result<(), Error> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorKind::Store, "standard output cannot be written to").caused_by(e))
        }
        _ => Ok(()),
    }
}
