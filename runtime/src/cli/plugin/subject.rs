//! What `weir plugin test` and `weir plugin bench` work on: a plugin as a pipeline would configure it, and records as a source would read
//! them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use futures::FutureExt;

use crate::clock::Clock;
use crate::conformance::{Input, Subject};
use crate::error::{Error, ErrorKind};
use crate::flow::{Keying, OperatorCode};
use crate::model::NodeName;
use crate::plan::{
    Compression, CsvSpec, FileSourceSpec, LimitsSpec, OnError, PluginRef, SourceConnector, SourceFormat, SourceSpec,
    TimeUnit, duration,
};
use crate::plugin::component::empty_operator;
use crate::plugin::registry::{Found, PluginFolders};
use crate::plugin::{IMAGE_VERSION, Plugin, PluginHost};
use crate::pointer::Pointer;

/// A plugin and its input.
#[derive(Debug, Args)]
pub(super) struct SubjectArgs {
    /// A .wasm file, the folder of a plugin that was built, or the name of a ready plugin
    plugin: PathBuf,
    /// The records to try it with: a path or a glob, gzip if it ends in .gz
    #[arg(long, value_name = "FILE")]
    input: String,
    /// What a record is: a line, a line of JSON, or a CSV row, which becomes a JSON object [default: by the ending of FILE]
    #[arg(long)]
    format: Option<Format>,
    /// Where the key is in a JSON value, such as /user/id
    #[arg(long, value_name = "POINTER")]
    key: Option<String>,
    /// Where the event time is in a JSON value
    #[arg(long, value_name = "POINTER")]
    event_time: Option<String>,
    /// The unit of an event time that is a number
    #[arg(long, value_name = "UNIT")]
    event_time_unit: Option<Unit>,
    /// How far watermarks stay behind the largest event time, such as 24h
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    out_of_orderness: String,
    /// The plugin's configuration, a JSON object
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// The input port that gets the records [default: the first]
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// How many records of the input are used at most
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    records_max: usize,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// As in a pipeline file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Lines,
    Json,
    Csv,
}

/// As in a pipeline file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unit {
    S,
    Ms,
    Us,
    Ns,
}

/// What the arguments mean.
pub(super) struct Prepared {
    pub(super) subject: Subject,
    pub(super) input: Input,
    pub(super) path: PathBuf,
    pub(super) digest: String,
    pub(super) host: PluginHost,
    component: Vec<u8>,
    config: serde_json::Value,
}

impl Prepared {
    /// Loads the plugin on another host, as another process would.
    pub(super) async fn load_on(&self, host: &PluginHost) -> Result<Subject, Error> {
        let plugin = host.load(&self.component).await?;
        Ok(subject(plugin, self.config.clone(), self.subject.port))
    }
}

impl SubjectArgs {
    /// What was said, or what the name of the input says.
    fn format(&self) -> Result<Format, Error> {
        let name = self.input.strip_suffix(".gz").unwrap_or(&self.input);
        let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match (self.format, ending) {
            (Some(format), _) => Ok(format),
            (None, "jsonl" | "ndjson" | "json") => Ok(Format::Json),
            (None, "csv") => Ok(Format::Csv),
            (None, "txt" | "log") => Ok(Format::Lines),
            (None, _) => Err(usage(format!("--input {}: its ending does not say what a record is", self.input))
                .help("add --format lines, json or csv")),
        }
    }

    /// How the records are given, for people.
    pub(super) fn described_input(&self) -> &str {
        &self.input
    }

    /// Loads the plugin and reads the input. With `measured` its instances have a stopwatch.
    pub(super) async fn prepare(&self, measured: bool) -> Result<Prepared, Error> {
        if self.records_max == 0 {
            return Err(usage("--records-max is 0".to_owned()).help("give at least one record"));
        }
        let config = match &self.config {
            None => serde_json::Value::Null,
            Some(text) => {
                serde_json::from_str(text).map_err(|e| usage("--config is not JSON".to_owned()).caused_by(e))?
            }
        };
        if !config.is_object() && !config.is_null() {
            return Err(usage(format!("--config is {config}, not a JSON object")).help("such as '{\"size\":\"1h\"}'"));
        }
        let spec = self.source()?;
        let pointer = |name: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => Pointer::parse(text).map(Some).map_err(|fault| usage(format!("--{name}: {fault}"))),
        };
        let key = pointer("key", &self.key)?;
        let host = super::super::pipeline::plugin_host()?;
        let Found { plugin, bytes: component, path } = self.find(&host).await?;
        let descriptor = plugin.descriptor();
        let port = match &self.port {
            None => 0,
            Some(name) => descriptor.inputs.iter().position(|port| port.name == *name).ok_or_else(|| {
                let names: Vec<&str> = descriptor.inputs.iter().map(|port| port.name.as_str()).collect();
                usage(format!("the plugin has no input port {name:?}"))
                    .help(format!("its input ports are {}", names.join(", ")))
            })?,
        };
        let hash = descriptor.inputs.get(port).is_some_and(|port| port.keyed);
        let keying = Keying { key, hash, on_error: OnError::Fail, edge: format!("input -> {}", descriptor.name) };
        let input = Input::read(&spec, Path::new("."), &keying, self.records_max).await?;
        let digest = plugin.digest();
        let plugin = if measured { plugin.with_stopwatch() } else { plugin };
        let subject = subject(plugin, config.clone(), u32::try_from(port).unwrap_or_default());
        Ok(Prepared { subject, input, path: path.unwrap_or_default(), digest, host, component, config })
    }

    /// The records as a source of a pipeline.
    fn source(&self) -> Result<SourceSpec, Error> {
        let event_time = match &self.event_time {
            None => None,
            Some(text) => Some(Pointer::parse(text).map_err(|fault| usage(format!("--event-time: {fault}")))?),
        };
        let out_of_orderness =
            duration(&self.out_of_orderness).map_err(|fault| usage(format!("--out-of-orderness: {fault}")))?;
        let format = match self.format()? {
            Format::Lines => SourceFormat::Lines,
            Format::Json => SourceFormat::Json,
            Format::Csv => SourceFormat::Csv(CsvSpec::default()),
        };
        let file = FileSourceSpec {
            path: self.input.clone(),
            format,
            compression: Compression::Auto,
            follow: false,
            root: None,
        };
        Ok(SourceSpec {
            name: NodeName::new("input"),
            span: 0..0,
            parallelism: 1,
            connector: SourceConnector::File(file),
            event_time,
            event_time_unit: self.event_time_unit.map(|unit| match unit {
                Unit::S => TimeUnit::Seconds,
                Unit::Ms => TimeUnit::Millis,
                Unit::Us => TimeUnit::Micros,
                Unit::Ns => TimeUnit::Nanos,
            }),
            out_of_orderness,
            idle_after: None,
            rate: None,
            on_error: OnError::Fail,
        })
    }

    /// The plugin, its component, and where it was.
    async fn find(&self, host: &PluginHost) -> Result<Found, Error> {
        let text = self.plugin.display().to_string();
        if !self.plugin.is_dir() && !text.contains('/') && !text.ends_with(".wasm") {
            let reference = PluginRef::Named { name: text, version: None };
            let fetch = |_: &str| async { Ok(None) }.boxed();
            return Ok(PluginFolders::standard().find(host, &reference, Path::new("."), &fetch).await?);
        }
        let path = if self.plugin.is_dir() { built(&self.plugin)? } else { self.plugin.clone() };
        let bytes = super::read(&path)?;
        Ok(Found { plugin: host.load(&bytes).await?, bytes, path: Some(path) })
    }
}

/// The component in the folder of a plugin.
fn built(dir: &Path) -> Result<PathBuf, Error> {
    let failed = |message: String| Error::new(ErrorKind::Plugin, message);
    let entries = std::fs::read_dir(dir)
        .map_err(|e| failed(format!("the folder {} cannot be read", dir.display())).caused_by(e))?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "wasm"));
    found.sort();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(failed(format!("there is no component in {}", dir.display()))
            .help(format!("build it: weir plugin build {}", dir.display()))),
        several => {
            let names: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            Err(failed(format!("there are {} components in {}", several.len(), dir.display()))
                .help(format!("name one of them: {}", names.join(", "))))
        }
    }
}

/// A plugin with a configuration, and with the default limits.
pub(super) fn subject(plugin: Plugin, config: serde_json::Value, port: u32) -> Subject {
    let code = OperatorCode {
        descriptor: plugin.descriptor().clone(),
        digest: [0; 32],
        image: plugin.takes_images().then_some(IMAGE_VERSION),
        open: Arc::new(move |task| {
            let (plugin, config) = (plugin.clone(), config.clone());
            async move { plugin.open(&LimitsSpec::default(), &config, &task).await }.boxed()
        }),
    };
    Subject { code, port, clock: Clock::system() }
}

/// The operator that does nothing.
pub(super) async fn empty(host: &PluginHost) -> Result<Subject, Error> {
    let component =
        empty_operator().map_err(|e| Error::new(ErrorKind::Plugin, "weir's own operator is damaged").caused_by(e))?;
    Ok(subject(host.load(&component).await?, serde_json::Value::Null, 0))
}

fn usage(message: String) -> Error {
    Error::new(ErrorKind::Usage, message)
}
