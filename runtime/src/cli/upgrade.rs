//! `weir upgrade`: both ends of it. The command asks the process that runs the job; that process loads the plugin
//! itself, so that what it runs is what it has read.
//!
//! The pipeline file stays as it is, and the next start goes by it: the command says what to write there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use futures::FutureExt;
use tokio::sync::Mutex;

use super::control::{TargetArgs, say, unexpected};
use super::output::{bytes, count, print, print_json};
use super::pipeline::{Pipeline, code_of, fetch};
use super::remote::{Client, job_path, send_component};
use crate::checkpoint::Store;
use crate::error::{Error, ErrorKind};
use crate::job::{Answer, Control, Refusal, Request, Upgrade, UpgradeReport, UpgradeRequest, UpgradeStatus};
use crate::model::NodeName;
use crate::plan::{OperatorSpec, PluginRef, duration, show_duration};
use crate::plugin::PluginHost;
use crate::plugin::registry::{Found, PluginFolders};
use crate::serve::UpgradeAsked;

/// `weir upgrade`.
#[derive(Debug, Args)]
pub(super) struct UpgradeArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The operator
    node: String,
    /// Its next plugin: a path, name@version or blake3:DIGEST; without one it keeps the one that it runs
    #[arg(required_unless_present = "config")]
    plugin: Option<String>,
    /// Its next configuration, a JSON object; without one it keeps its own
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// Run the new version beside the old one for so long and compare what they say, before it takes over
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    shadow: Option<Duration>,
    /// Upgrade so many of the subtasks first. Not yet possible
    #[arg(long, value_name = "N")]
    canary: Option<u32>,
    /// Give the new version up as too slow if it is behind the stream for so long. Default 1m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    catch_up: Option<Duration>,
}

impl UpgradeArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        super::run::block_on(self.ask())
    }

    async fn ask(self) -> Result<(), Error> {
        if let Some((client, job)) = self.target.remote()? {
            return self.ask_server(&client, &job).await;
        }
        let plugin = self.plugin.as_deref().map(absolute).transpose()?;
        let config = self.config.as_deref().map(parse_config).transpose()?;
        let micros = |time: Option<Duration>| time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        let request = Request::Upgrade(UpgradeRequest {
            node: self.node.clone(),
            plugin: plugin.clone(),
            config: config.clone(),
            shadow_us: micros(self.shadow),
            canary: self.canary,
            catch_up_us: micros(self.catch_up),
        });
        let answer = self.target.find()?.must_run().await?.ask(&request).await?;
        say(self.target.json, &answer, || match &answer {
            Answer::Upgraded(report) => Ok(describe(report, Some((plugin.is_some(), config.is_some())))),
            other => Err(unexpected(other)),
        })
    }
}

impl UpgradeArgs {
    /// Asks a server, to which a plugin that is named by a path is sent first.
    async fn ask_server(self, client: &Client, job: &str) -> Result<(), Error> {
        let config = self.config.as_deref().map(parse_config).transpose()?;
        let plugin = match &self.plugin {
            Some(text) => match PluginRef::parse(text) {
                Ok(PluginRef::Path(path)) => Some(format!("blake3:{}", send_component(client, &path, None).await?)),
                _ => Some(text.clone()),
            },
            None => None,
        };
        let millis = |time: Option<Duration>| time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let asked = UpgradeAsked {
            node: self.node.clone(),
            plugin,
            config,
            shadow_ms: millis(self.shadow),
            canary: self.canary,
            catch_up_ms: millis(self.catch_up),
        };
        let report: UpgradeReport = client.post(&job_path(client, job, "/upgrade")?, &asked).await?;
        if self.target.json {
            return print_json(&report);
        }
        print(describe(&report, None))
    }
}

/// A path as the other process finds it; what is no path stays as it is.
fn absolute(text: &str) -> Result<String, Error> {
    let reference = PluginRef::parse(text)
        .map_err(|(fault, help)| Error::new(ErrorKind::Usage, format!("the plugin is {text:?}, {fault}")).help(help))?;
    let PluginRef::Path(path) = reference else { return Ok(text.to_owned()) };
    let failed = |e| Error::new(ErrorKind::Usage, format!("plugin {text:?} cannot be found")).caused_by(e);
    let path = std::path::absolute(&path).map_err(failed)?;
    std::fs::metadata(&path).map_err(failed)?;
    path.into_os_string()
        .into_string()
        .map_err(|_| Error::new(ErrorKind::Usage, format!("the path of plugin {text:?} is not text")).help("move it"))
}

fn parse_config(text: &str) -> Result<serde_json::Value, Error> {
    let help = "write a JSON object, such as --config '{\"window\":\"1h\"}'";
    let wrong = |message: String| Error::new(ErrorKind::Usage, message).help(help);
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|e| wrong(format!("--config is not JSON: {e}")))?;
    if value.is_object() { Ok(value) } else { Err(wrong("--config is not a JSON object".into())) }
}

/// For people. `changed`: whether the plugin and whether the configuration is new, which a pipeline file does not know of.
fn describe(report: &UpgradeReport, changed: Option<(bool, bool)>) -> String {
    let UpgradeReport { node, from, to, compared, .. } = report;
    let micros = Duration::from_micros;
    let longest = report.pauses_us.iter().copied().max().unwrap_or_default();
    let what = if from == to {
        format!("goes on with {}", to.version)
    } else {
        format!("went from {} to {}", from.version, to.version)
    };
    let mut text = format!(
        "node {node} {what} at checkpoint {}, and checkpoint {} holds it; it took {}\n",
        report.swapped,
        report.confirmed,
        show_duration(Duration::from_millis(report.took_us / 1000))
    );
    text.push_str(&format!(
        "the stream stood still for {:.1} ms at most, in {} subtasks\n",
        micros(longest).as_secs_f64() * 1e3,
        report.pauses_us.len()
    ));
    text.push_str(&format!(
        "both versions worked on {} records in {} calls, and differed in {}\n",
        count(compared.records),
        count(compared.calls),
        count(compared.differing_calls)
    ));
    if let Some(first) = &compared.first_difference {
        text.push_str(&format!("the first difference: {first}\n"));
        for (port, numbers) in compared.ports.iter().enumerate() {
            text.push_str(&format!(
                "output port {port}: {} records, {} before; {} records, {} now\n",
                count(numbers.old_records),
                bytes(numbers.old_bytes),
                count(numbers.new_records),
                bytes(numbers.new_bytes)
            ));
        }
    }
    let Some((plugin, config)) = changed else { return text };
    let lines = [(plugin, format!("plugin = \"blake3:{}\"", to.digest)), (config, "its new config".to_owned())];
    let lines: Vec<String> = lines.into_iter().filter(|(changed, _)| *changed).map(|(_, line)| line).collect();
    text.push_str(&format!(
        "the pipeline file is as it was: before the next start write {} there\n",
        lines.join(" and ")
    ));
    text
}

/// What `weir status` says of an upgrade under way.
pub(super) fn line(upgrade: &UpgradeStatus) -> String {
    format!(
        "upgrade of node {} to {}: {}, {:.0} ms behind, {} records in both versions, {} calls differ\n",
        upgrade.node,
        upgrade.version,
        upgrade.phase,
        Duration::from_micros(upgrade.lag_us).as_secs_f64() * 1e3,
        count(upgrade.records),
        count(upgrade.differing_calls)
    )
}

/// Loads what upgrades name, for the process that runs the job, and remembers what each operator runs by now.
#[derive(Debug)]
pub(super) struct Loader {
    host: PluginHost,
    dir: PathBuf,
    store: Store,
    running: Mutex<BTreeMap<NodeName, (OperatorSpec, Found)>>,
}

impl Loader {
    pub(super) fn new(pipeline: &Pipeline, store: &Store) -> Self {
        let operators = pipeline.spec.operators.iter().filter_map(|operator| {
            let found = pipeline.plugins.get(&operator.name)?;
            Some((operator.name.clone(), (operator.clone(), found.clone())))
        });
        let running = Mutex::new(operators.collect());
        Self { host: pipeline.host.clone(), dir: pipeline.spec.dir.clone(), store: store.clone(), running }
    }

    /// Loads, asks the job, and waits until it is done.
    pub(super) async fn upgrade(&self, control: &Control, wish: UpgradeRequest) -> Result<Answer, Refusal> {
        let node = NodeName::new(wish.node.as_str());
        let running = self.running.lock().await.get(&node).cloned();
        let Some((mut operator, mut found)) = running else {
            let names: Vec<String> = self.running.lock().await.keys().map(NodeName::to_string).collect();
            return Err(Refusal {
                code: ErrorKind::Usage.exit_code(),
                message: format!("the job has no operator {:?}; its operators are: {}", wish.node, names.join(", ")),
                help: Some("name one of them".into()),
            });
        };
        if let Some(plugin) = &wish.plugin {
            found = self.find(plugin).await?;
            // What a checkpoint will name has to be there before it.
            self.store.put_plugin(found.bytes.clone().into()).await?;
        }
        if let Some(config) = wish.config {
            operator.config = config;
        }
        let micros = |time: Option<u64>| time.map(Duration::from_micros);
        let code = code_of(&operator, &found);
        let (shadow, canary, catch_up) = (micros(wish.shadow_us), wish.canary, micros(wish.catch_up_us));
        let report = control.upgrade(Upgrade { node: node.clone(), code, shadow, canary, catch_up }).await?;
        self.running.lock().await.insert(node, (operator, found));
        Ok(Answer::Upgraded(Box::new(report)))
    }

    async fn find(&self, plugin: &str) -> Result<Found, Refusal> {
        let reference = PluginRef::parse(plugin).map_err(|(fault, help)| Refusal {
            code: ErrorKind::Usage.exit_code(),
            message: format!("the plugin is {plugin:?}, {fault}"),
            help: Some(help),
        })?;
        let fetch = |digest: &str| {
            let (store, digest) = (Ok(self.store.clone()), digest.to_owned());
            async move { fetch(store, &digest).await }.boxed()
        };
        let dir: &Path = &self.dir;
        let found = PluginFolders::standard().find(&self.host, &reference, dir, &fetch).await;
        found.map_err(|error| Error::from(error).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Compared;
    use crate::job::CodeVersion;
    use crate::model::Epoch;

    #[test]
    fn what_is_no_configuration_and_no_plugin_is_refused_before_anything_is_asked() {
        for text in ["", "x", "3", "[]", "\"a\""] {
            assert!(parse_config(text).is_err(), "{text}");
        }
        assert!(parse_config("{\"a\":1}").is_ok());
        assert!(absolute("./nobody-has-this.wasm").is_err() && absolute("Bad Name").is_err());
        assert_eq!(absolute("count@1.0.0").expect("a name stays"), "count@1.0.0");
    }

    #[test]
    fn a_report_says_what_to_write_into_the_pipeline_file() {
        let version =
            |version: &str| CodeVersion { version: version.into(), digest: "ab".repeat(32), state_version: 1 };
        let report = UpgradeReport {
            node: "count".into(),
            from: version("1.0.0"),
            to: version("2.0.0"),
            restored: Epoch(3),
            swapped: Epoch(4),
            confirmed: Epoch(5),
            pauses_us: vec![1200, 3400],
            compared: Compared { first_difference: Some("in a call".into()), ..Compared::default() },
            took_us: 2_000_000,
        };
        let text = describe(&report, Some((true, false)));
        for part in ["from 1.0.0 to 2.0.0 at checkpoint 4", "3.4 ms at most, in 2 subtasks", "blake3:abab", "in a call"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("config"), "{text}");
    }
}
