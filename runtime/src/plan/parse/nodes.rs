//! `[operator.NAME]` and `[sink.NAME]`, and what all three kinds of nodes have in common.

use std::path::PathBuf;
use std::time::Duration;

use toml_span::value::{Key, Value, ValueInner};

use super::inputs::{self, Input};
use super::paths::below;
use super::reader::{Context, Section, kind_of};
use super::settings;
use super::values::DURATION_MAX;
use crate::model::{NodeName, name_fault};
use crate::plan::diagnostic::{listed, nearest, quote};
use crate::plan::{
    FileSinkSpec, Grants, InputSpec, LimitsSpec, ObjectSinkSpec, OnError, OperatorSpec, PluginRef, SinkConnector,
    SinkFormat, SinkSpec, Span,
};
use crate::storage::{Scheme, StoreUrl};

/// How deep a plugin's configuration may be nested, so that nothing that reads it runs out of stack.
const CONFIG_DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Source,
    Operator,
    Sink,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Operator => "operator",
            Self::Sink => "sink",
        }
    }
}

/// What is known of a node, whatever is wrong with the rest of it: what the checks of the graph need.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) name: NodeName,
    pub(super) span: Span,
    /// None if it is faulty.
    pub(super) parallelism: Option<u32>,
    pub(super) inputs: Vec<Input>,
    /// Whether `inputs` are all that were meant.
    pub(super) inputs_whole: bool,
    /// Where it asks for dead letters.
    pub(super) dead_letter: Option<Span>,
    /// The folder that a sink writes, and the path or the glob that a source reads.
    pub(super) path: Option<(PathBuf, Span)>,
    /// The part of a bucket that a sink writes.
    pub(super) bucket: Option<(StoreUrl, Span)>,
}

/// The nodes of one kind: the tables below `[source]`, `[operator]` or `[sink]`, in the order of the file.
pub(super) fn tables<'t, 'de>(
    cx: &mut Context<'_>,
    root: &Section<'t, 'de>,
    kind: Kind,
) -> Vec<(NodeName, Section<'t, 'de>)> {
    let word = kind.word();
    let Some((_, value)) = root.get(word) else { return Vec::new() };
    let help = format!("give the {word} a name: [{word}.NAME]");
    if value.as_table().is_none() {
        cx.error(value.span, format!("`{word}` must be tables with names, not {}", kind_of(value)), help);
        return Vec::new();
    }
    let all = Section::of(cx, root, word, format!("[{word}]"), "");
    let mut nodes = Vec::new();
    let mut nameless = false;
    for (key, value) in all.entries() {
        let what = format!("[{word}.{}]", key.name);
        if let Some(table) = value.as_table() {
            check_name(cx, key, word);
            nodes.push((NodeName::new(key.name.as_ref()), Section::new(what, key.span.into(), table)));
        } else if !nameless {
            // One line for the table, not one for each of its keys.
            nameless = true;
            let message = format!("{} stands in [{word}], which has no name", quote(&key.name));
            cx.error(key.span, message, help.clone());
        }
    }
    nodes
}

fn check_name(cx: &mut Context<'_>, key: &Key<'_>, word: &str) {
    if let Some(fault) = name_fault(&key.name) {
        let message = format!("{word} name {} {fault}", quote(&key.name));
        cx.error(key.span, message, name_help(&key.name));
    }
}

/// The remedy for a bad name, with one that is good where it can be made.
pub(super) fn name_help(name: &str) -> String {
    let rule = "lower-case letters, digits and hyphens, at most 63 of them, the first no hyphen";
    let lower = name.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).take(32).collect();
    let good = words.join("-");
    if name_fault(&good).is_none() {
        format!("call it \"{good}\": {rule}")
    } else {
        format!("a name is made of {rule}")
    }
}

/// `parallelism`, at most the number of key groups where that is known.
pub(super) fn parallelism(cx: &mut Context<'_>, s: &Section<'_, '_>, key_groups: Option<u32>) -> Option<u32> {
    let Some((_, value)) = s.get("parallelism") else { return Some(1) };
    let limit = key_groups.unwrap_or(crate::model::KEY_GROUPS_MAX);
    if let Some(number) = value.as_integer().filter(|number| *number > i64::from(limit)) {
        let message = format!("`parallelism` of {} is {number}, more than the {limit} key groups of the job", s.what);
        let most = crate::model::KEY_GROUPS_MAX;
        let help = if number <= i64::from(most) && key_groups.is_some() {
            format!("write at most {limit}, or raise key_groups (before the job's first run: it is fixed then)")
        } else {
            format!("write at most {limit}")
        };
        cx.error(value.span, message, help);
        return None;
    }
    s.integer(cx, "parallelism", 1..=u64::from(limit)).and_then(|number| u32::try_from(number).ok())
}

const ON_ERROR: [(&str, OnError); 3] =
    [("fail", OnError::Fail), ("skip", OnError::Skip), ("dead-letter", OnError::DeadLetter)];

/// `on_error` or `on_reject`, and where it is written if it asks for dead letters.
pub(super) fn on_error(cx: &mut Context<'_>, s: &Section<'_, '_>, key: &str) -> (OnError, Option<Span>) {
    let choice = s.choice(cx, key, &ON_ERROR).unwrap_or(OnError::Fail);
    (choice, (choice == OnError::DeadLetter).then(|| s.span_of(key)))
}

pub(super) fn operator(
    cx: &mut Context<'_>,
    name: NodeName,
    s: &mut Section<'_, '_>,
    key_groups: Option<u32>,
) -> (Draft, Option<OperatorSpec>) {
    let keys = ["plugin", "inputs", "parallelism", "config", "limits", "on_reject", "grants"];
    let aliases = [("wasm", "plugin"), ("component", "plugin"), ("path", "plugin"), ("input", "inputs")];
    s.allow(cx, &keys, &aliases, |key| {
        (key == "on_error").then(|| "an operator has `on_reject`, for records that the plugin rejects;".into())
    });
    let example = "plugin = \"my.wasm\", \"NAME\", \"NAME@1.2.3\" or \"blake3:...\"";
    s.require(cx, "plugin", &format!("the code that it runs: {example}"));
    let plugin = s.filled(cx, "plugin", example).and_then(|text| plugin(cx, s, text));
    let (inputs, inputs_whole) = inputs::read(cx, s);
    let parallelism = parallelism(cx, s, key_groups);
    let config = config(cx, s);
    let limits = limits(cx, s);
    let (on_reject, dead_letter) = on_error(cx, s, "on_reject");
    let grants = grants(cx, s);
    let spec = plugin.map(|plugin| OperatorSpec {
        name: name.clone(),
        span: s.place.clone(),
        plugin,
        plugin_span: s.span_of("plugin"),
        inputs: specs(&inputs),
        parallelism: parallelism.unwrap_or(1),
        config,
        config_span: s.span_of("config"),
        limits,
        limits_span: s.span_of("limits"),
        on_reject,
        grants,
    });
    let (kind, span) = (Kind::Operator, s.place.clone());
    (Draft { kind, name, span, parallelism, inputs, inputs_whole, dead_letter, path: None, bucket: None }, spec)
}

/// `grants`: what an operator may see of the world outside.
fn grants(cx: &mut Context<'_>, s: &Section<'_, '_>) -> Grants {
    let mut grants = Grants::default();
    for word in s.texts(cx, "grants", "grants = [\"clock\"]").unwrap_or_default() {
        let Err(fault) = grants.give(&word) else { continue };
        if let Some(fault) = fault {
            let (what, help) = fault.split_once(": ").unwrap_or((&fault, "remove it"));
            cx.error(s.span_of("grants"), format!("`grants` of {}: {} {what}", s.what, quote(&word)), help);
        } else {
            let shown = |word: &&str| match *word {
                "env:" => "\"env:NAME\"".to_owned(),
                "http:" | "http-private:" => format!("\"{word}HOST\""),
                word => format!("\"{word}\""),
            };
            let all: Vec<String> = Grants::WORDS.iter().map(shown).collect();
            let hint = nearest(&word, Grants::WORDS.into_iter())
                .map_or_else(String::new, |meant| format!("did you mean \"{meant}\"? "));
            let message = format!("`grants` of {} has {}, and there is no such grant", s.what, quote(&word));
            cx.error(s.span_of("grants"), message, format!("{hint}the grants are {}", listed(&all, "and")));
        }
    }
    grants
}

fn specs(inputs: &[Input]) -> Vec<InputSpec> {
    inputs.iter().map(|input| input.spec.clone()).collect()
}

fn plugin(cx: &mut Context<'_>, s: &Section<'_, '_>, text: &str) -> Option<PluginRef> {
    match PluginRef::parse(text) {
        Ok(reference) => Some(reference),
        Err((fault, help)) => {
            cx.error(s.span_of("plugin"), format!("`plugin` of {} is {}, {fault}", s.what, quote(text)), help);
            None
        }
    }
}

fn limits(cx: &mut Context<'_>, node: &Section<'_, '_>) -> LimitsSpec {
    let mut s = Section::of(cx, node, "limits", format!("limits of {}", node.what), "limits = { memory = \"256MiB\" }");
    s.allow(cx, &["memory", "soft_memory", "cpu", "wall", "output", "state", "log_lines"], &[], |_| None);
    let default = LimitsSpec::default();
    let ms = Duration::from_millis(1);
    let cpu = s.duration(cx, "cpu", ms..=DURATION_MAX);
    let wall = s.duration(cx, "wall", ms..=DURATION_MAX);
    let limits = LimitsSpec {
        memory_bytes: s.size(cx, "memory", 64 << 10..=4 << 30).unwrap_or(default.memory_bytes),
        soft_memory_bytes: s.size(cx, "soft_memory", 64 << 10..=4 << 30),
        cpu: cpu.unwrap_or(default.cpu),
        wall: wall.unwrap_or(default.wall),
        output_bytes: s.size(cx, "output", 1 << 10..=1 << 40).unwrap_or(default.output_bytes),
        state_bytes: s.size(cx, "state", 0..=4 << 30).unwrap_or(default.state_bytes),
        log_lines: s.count(cx, "log_lines", default.log_lines, 0..=1_000_000),
    };
    if let Some(soft) = limits.soft_memory_bytes
        && soft >= limits.memory_bytes
    {
        let message = format!("`soft_memory` of {} is not below `memory`, so it is never reached", s.what);
        let help = "raise memory or lower soft_memory; memory is \"1GiB\" where it is not written";
        cx.error(s.span_of("soft_memory"), message, help);
    }
    let read = |key: &str, value: Option<Duration>| value.is_some() || !s.has(key);
    if read("cpu", cpu) && read("wall", wall) && limits.cpu > limits.wall {
        let message = format!("`cpu` of {} is more than `wall`, so it is never reached", s.what);
        let help = "raise wall as well or lower cpu; wall is \"1m\" and cpu \"10s\" where they are not written";
        cx.error(s.span_of(if cpu.is_some() { "cpu" } else { "wall" }), message, help);
    }
    limits
}

fn config(cx: &mut Context<'_>, s: &Section<'_, '_>) -> serde_json::Value {
    let empty = || serde_json::Value::Object(serde_json::Map::new());
    let Some((_, value)) = s.get("config") else { return empty() };
    if value.as_table().is_none() {
        let message = format!("`config` of {} must be a table, not {}", s.what, kind_of(value));
        cx.error(value.span, message, format!("write config = {{ key = \"value\" }}, or a table {}", config_table(s)));
        return empty();
    }
    json(cx, s, value, 0)
}

fn config_table(s: &Section<'_, '_>) -> String {
    format!("{}.config]", s.what.trim_end_matches(']'))
}

/// TOML as JSON. Infinities and NaN have no form in JSON.
fn json(cx: &mut Context<'_>, s: &Section<'_, '_>, value: &Value<'_>, depth: usize) -> serde_json::Value {
    if depth > CONFIG_DEPTH_MAX {
        let message = format!("`config` of {} is nested more than {CONFIG_DEPTH_MAX} deep", s.what);
        cx.error(value.span, message, "flatten it");
        return serde_json::Value::Null;
    }
    match value.as_ref() {
        ValueInner::String(text) => text.as_ref().into(),
        ValueInner::Integer(number) => (*number).into(),
        ValueInner::Boolean(flag) => (*flag).into(),
        ValueInner::Float(number) => match serde_json::Number::from_f64(*number) {
            Some(number) => number.into(),
            None => {
                let message = format!("`config` of {} has {number}, which JSON cannot say", s.what);
                cx.error(value.span, message, "write a finite number, or text that the plugin understands");
                serde_json::Value::Null
            }
        },
        ValueInner::Array(list) => list.iter().map(|item| json(cx, s, item, depth + 1)).collect(),
        ValueInner::Table(table) => {
            table.iter().map(|(key, item)| (key.name.to_string(), json(cx, s, item, depth + 1))).collect()
        }
    }
}

const SINK_FORMATS: [(&str, SinkFormat); 3] =
    [("lines", SinkFormat::Lines), ("json", SinkFormat::Json), ("csv", SinkFormat::Csv)];

pub(super) fn sink(
    cx: &mut Context<'_>,
    name: NodeName,
    s: &mut Section<'_, '_>,
    key_groups: Option<u32>,
) -> (Draft, Option<SinkSpec>) {
    #[derive(Clone, Copy, PartialEq)]
    enum Which {
        File,
        Object,
        Stdout,
        Blackhole,
    }
    let choices =
        [("file", Which::File), ("object", Which::Object), ("stdout", Which::Stdout), ("blackhole", Which::Blackhole)];
    let which = s.choice(cx, "connector", &choices);
    let all = ["connector", "inputs", "parallelism", "path", "url", "store_options", "format"];
    let (keys, called): (&[&str], _) = match which {
        Some(Which::File) => (&["connector", "inputs", "parallelism", "path", "format"], "file"),
        Some(Which::Object) => (&["connector", "inputs", "parallelism", "url", "store_options", "format"], "object"),
        Some(Which::Stdout) => (&["connector", "inputs", "parallelism", "format"], "stdout"),
        Some(Which::Blackhole) => (&["connector", "inputs", "parallelism"], "blackhole"),
        None => (&all, "file"),
    };
    let aliases = [("type", "connector"), ("input", "inputs"), ("dir", "path"), ("folder", "path")];
    s.allow(cx, keys, &aliases, |key| all.contains(&key).then(|| format!("connector = \"{called}\" has no `{key}`;")));
    s.require(cx, "connector", "where records go to: connector = \"file\", \"object\", \"stdout\" or \"blackhole\"");
    let format = if which == Some(Which::Blackhole) { None } else { s.choice(cx, "format", &SINK_FORMATS) };
    let format = format.unwrap_or(SinkFormat::Lines);
    let mut path = None;
    if which == Some(Which::File) {
        s.require(cx, "path", "the folder that it writes: path = \"out\"");
        path = s.filled(cx, "path", "path = \"out\"").map(str::to_owned);
    }
    let mut object = None;
    if which == Some(Which::Object) {
        let example = "url = \"s3://bucket/prefix\"";
        s.require(cx, "url", &format!("where its objects go: {example}"));
        object = s.filled(cx, "url", example).map(|url| settings::store_url(cx, s, "url", url));
        // A folder is compared with other folders; the rest by the names in their buckets.
        path = object.as_deref().and_then(|url| url.strip_prefix("file://")).map(str::to_owned);
    }
    let options = settings::store_options(cx, s, "store_options", object.as_deref().unwrap_or_default());
    let bucket = object.as_deref().and_then(|url| StoreUrl::parse(url).ok()).filter(|url| url.scheme != Scheme::File);
    let bucket = bucket.map(|url| (url, s.span_of("url")));
    let (inputs, inputs_whole) = inputs::read(cx, s);
    let parallelism = parallelism(cx, s, key_groups);
    let connector = match which {
        Some(Which::File) => {
            path.clone().map(|path| SinkConnector::File(FileSinkSpec { path: path.into(), format, root: None }))
        }
        Some(Which::Object) => object.map(|url| SinkConnector::Object(ObjectSinkSpec { url, options, format })),
        Some(Which::Stdout) => Some(SinkConnector::Stdout(format)),
        Some(Which::Blackhole) => Some(SinkConnector::Blackhole),
        None => None,
    };
    let spec = connector.map(|connector| SinkSpec {
        name: name.clone(),
        span: s.place.clone(),
        inputs: specs(&inputs),
        parallelism: parallelism.unwrap_or(1),
        connector,
    });
    let (kind, span) = (Kind::Sink, s.place.clone());
    let path_key = if which == Some(Which::Object) { "url" } else { "path" };
    let path = path.map(|path| (below(cx.dir, &path), s.span_of(path_key)));
    (Draft { kind, name, span, parallelism, inputs, inputs_whole, dead_letter: None, path, bucket }, spec)
}
