//! `[source.NAME]`: the keys of each connector, and those that all have.

use std::path::Path;
use std::time::Duration;

use super::nodes::{Draft, Kind, on_error, parallelism};
use super::paths::{below, root_of_glob};
use super::reader::{Context, Section};
use super::values::DURATION_MAX;
use crate::model::{NodeName, RECORD_BYTES_MAX};
use crate::plan::diagnostic::quote;
use crate::plan::{
    Compression, CsvSpec, Distribution, FileSourceSpec, GeneratorFormat, GeneratorSpec, OnError, SourceConnector,
    SourceFormat, SourceSpec, TimeUnit,
};
use crate::pointer::Pointer;

const FILE_KEYS: [&str; 13] = [
    "connector",
    "path",
    "format",
    "csv",
    "compression",
    "follow",
    "event_time",
    "event_time_unit",
    "out_of_orderness",
    "idle_after",
    "on_error",
    "parallelism",
    "rate",
];

const GENERATOR_KEYS: [&str; 12] = [
    "connector",
    "rate",
    "seed",
    "records",
    "keys",
    "distribution",
    "value_bytes",
    "format",
    "event_time_step",
    "out_of_orderness",
    "idle_after",
    "parallelism",
];

#[derive(Clone, Copy, PartialEq)]
enum Which {
    File,
    Generator,
}

pub(super) fn source(
    cx: &mut Context<'_>,
    name: NodeName,
    s: &mut Section<'_, '_>,
    key_groups: Option<u32>,
) -> (Draft, Option<SourceSpec>) {
    let which = s.choice(cx, "connector", &[("file", Which::File), ("generator", Which::Generator)]);
    check_keys(cx, s, which);
    s.require(cx, "connector", "where records come from: connector = \"file\" or \"generator\"");
    let parallelism = parallelism(cx, s, key_groups);
    let out_of_orderness = s.duration(cx, "out_of_orderness", Duration::ZERO..=DURATION_MAX).unwrap_or_default();
    let idle_after = s.duration(cx, "idle_after", Duration::from_millis(1)..=DURATION_MAX);
    let rate = rate(cx, s);
    let file = which == Some(Which::File);
    let (on_error, dead_letter) = if file { on_error(cx, s, "on_error") } else { (OnError::Fail, None) };
    let (event_time, event_time_unit) = if file { event_time(cx, s) } else { (None, None) };

    let mut path = None;
    let connector = match which {
        Some(Which::File) => {
            let spec = file_source(cx, s);
            path = spec.as_ref().map(|spec| (below(cx.dir, root_of_glob(&spec.path)), s.span_of("path")));
            spec.map(SourceConnector::File)
        }
        Some(Which::Generator) => Some(SourceConnector::Generator(generator(cx, s))),
        None => None,
    };
    let spec = connector.map(|connector| SourceSpec {
        name: name.clone(),
        span: s.place.clone(),
        parallelism: parallelism.unwrap_or(1),
        connector,
        event_time,
        event_time_unit,
        out_of_orderness,
        idle_after,
        rate,
        on_error,
    });
    let (kind, span) = (Kind::Source, s.place.clone());
    (
        Draft {
            kind,
            name,
            span,
            parallelism,
            inputs: Vec::new(),
            inputs_whole: true,
            dead_letter,
            path,
            bucket: None,
        },
        spec,
    )
}

/// Reports unknown keys. Where the connector is not known, a key of any is right.
fn check_keys(cx: &mut Context<'_>, s: &mut Section<'_, '_>, which: Option<Which>) {
    let both: Vec<&str> = FILE_KEYS.iter().chain(&GENERATOR_KEYS).copied().collect();
    let (keys, others, other): (&[&str], &[&str], _) = match which {
        Some(Which::File) => (&FILE_KEYS, &GENERATOR_KEYS, "generator"),
        Some(Which::Generator) => (&GENERATOR_KEYS, &FILE_KEYS, "file"),
        None => (&both, &[], ""),
    };
    let aliases = [("type", "connector"), ("file", "path"), ("timestamp", "event_time"), ("time", "event_time")];
    s.allow(cx, keys, &aliases, |key| match key {
        "inputs" => Some("a source reads no other node;".into()),
        "event_time" | "event_time_unit" if which == Some(Which::Generator) => {
            Some("the generator gives its own event time, `event_time_step` apart;".into())
        }
        key if others.contains(&key) => Some(format!("it is a key of connector = \"{other}\";")),
        _ => None,
    });
}

fn event_time(cx: &mut Context<'_>, s: &Section<'_, '_>) -> (Option<Pointer>, Option<TimeUnit>) {
    let units = [("s", TimeUnit::Seconds), ("ms", TimeUnit::Millis), ("us", TimeUnit::Micros), ("ns", TimeUnit::Nanos)];
    let unit = s.choice(cx, "event_time_unit", &units);
    for key in ["event_time_unit", "out_of_orderness"] {
        if s.has(key) && !s.has("event_time") && !cx.partial {
            let message = format!("`{key}` of {} has no effect without `event_time`", s.what);
            let help = format!("add where the time is: event_time = \"/time\", or remove {key}");
            cx.error(s.span_of(key), message, help);
        }
    }
    (s.pointer(cx, "event_time"), unit)
}

fn file_source(cx: &mut Context<'_>, s: &Section<'_, '_>) -> Option<FileSourceSpec> {
    s.require(cx, "path", "what it reads, a file or a glob: path = \"data/*.csv\"");
    s.require(cx, "format", "what stands in it: format = \"lines\", \"json\" or \"csv\"");
    let formats =
        [("lines", SourceFormat::Lines), ("json", SourceFormat::Json), ("csv", SourceFormat::Csv(CsvSpec::default()))];
    let names: Vec<(&str, usize)> = formats.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
    let mut format = s.choice(cx, "format", &names).map(|at| formats[at].1.clone());
    let csv = csv(cx, s);
    match (&mut format, csv) {
        (Some(SourceFormat::Csv(spec)), Some(csv)) => *spec = csv,
        (Some(_), Some(_)) => {
            let message = format!("`csv` of {} has no effect on another format", s.what);
            cx.error(s.span_of("csv"), message, "write format = \"csv\", or remove csv");
        }
        _ => {}
    }
    let packed = [("auto", Compression::Auto), ("none", Compression::None), ("gzip", Compression::Gzip)];
    let compression = s.choice(cx, "compression", &packed).unwrap_or(Compression::Auto);
    let follow = s.flag(cx, "follow", false);
    let path = s.filled(cx, "path", "path = \"data/*.csv\"").and_then(|text| glob(cx, s, text));
    Some(FileSourceSpec { path: path?, format: format?, compression, follow, root: None })
}

/// The glob as it is written, if it is one. It starts at the folder of the pipeline file, or at the root.
fn glob(cx: &mut Context<'_>, s: &Section<'_, '_>, text: &str) -> Option<String> {
    if let Err(fault) = glob::Pattern::new(text) {
        let message = format!("`path` of {} is {}, which is not a glob: {}", s.what, quote(text), fault.msg);
        cx.error(s.span_of("path"), message, "write [[] for a bracket, [*] for a star and [?] for a question mark");
        return None;
    }
    if Path::new(text).is_relative() && cx.dir.to_str().is_none() {
        let message = format!("the folder {:?} of the pipeline file has a name that is not UTF-8", cx.dir);
        cx.error(s.span_of("path"), message, "rename the folder, or write an absolute path");
        return None;
    }
    Some(text.to_owned())
}

impl Default for CsvSpec {
    fn default() -> Self {
        Self { delimiter: b',', nulls: vec![String::new(), "NA".into()], text: Vec::new() }
    }
}

fn csv(cx: &mut Context<'_>, node: &Section<'_, '_>) -> Option<CsvSpec> {
    let what = format!("csv of {}", node.what);
    let mut s = Section::of(cx, node, "csv", what, "csv = { delimiter = \";\", nulls = [\"\"] }");
    if !node.has("csv") {
        return None;
    }
    s.allow(cx, &["delimiter", "nulls", "text"], &[], |_| None);
    let mut spec = CsvSpec::default();
    if let Some(text) = s.text(cx, "delimiter", "delimiter = \";\"") {
        match text.as_bytes() {
            [b'"' | b'\n' | b'\r' | 128..] | [] | [_, _, ..] => {
                let message = format!("`delimiter` of {} is {}, which is not one ASCII character", s.what, quote(text));
                let help = "write a character other than a quote or a line end, such as \";\" or \"\\t\"";
                cx.error(s.span_of("delimiter"), message, help);
            }
            [byte] => spec.delimiter = *byte,
        }
    }
    spec.nulls = s.texts(cx, "nulls", "nulls = [\"\", \"NA\"]").unwrap_or(spec.nulls);
    spec.text = s.texts(cx, "text", "text = [\"zip_code\"]").unwrap_or(spec.text);
    Some(spec)
}

fn generator(cx: &mut Context<'_>, s: &Section<'_, '_>) -> GeneratorSpec {
    let any = 0..=i64::MAX.cast_unsigned();
    let spread =
        [("uniform", Distribution::Uniform), ("zipf", Distribution::Zipf), ("sequential", Distribution::Sequential)];
    let values = [("binary", GeneratorFormat::Binary), ("json", GeneratorFormat::Json)];
    let step = s.duration(cx, "event_time_step", Duration::ZERO..=Duration::from_secs(86_400));
    let value_bytes = s.size(cx, "value_bytes", 8..=RECORD_BYTES_MAX as u64);
    GeneratorSpec {
        seed: s.integer(cx, "seed", any.clone()).unwrap_or(0),
        records: s.integer(cx, "records", any),
        keys: s.integer(cx, "keys", 1..=i64::MAX.cast_unsigned()).unwrap_or(1_000),
        distribution: s.choice(cx, "distribution", &spread).unwrap_or(Distribution::Uniform),
        value_bytes: value_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(84),
        format: s.choice(cx, "format", &values).unwrap_or(GeneratorFormat::Binary),
        event_time_step: step.and_then(|step| i64::try_from(step.as_micros()).ok()).unwrap_or(10),
    }
}

fn rate(cx: &mut Context<'_>, s: &Section<'_, '_>) -> Option<f64> {
    let (_, value) = s.get("rate")?;
    #[allow(clippy::cast_precision_loss)]
    let rate = value.as_float().or(value.as_integer().map(|number| number as f64));
    let sound = rate.filter(|rate| rate.is_finite() && (1e-6..=1e12).contains(rate));
    if sound.is_none() {
        let message = format!("`rate` of {} must be a number from 0.000001 to 1e12", s.what);
        cx.error(
            value.span,
            message,
            "write records a second, such as rate = 1000, or remove it for as fast as possible",
        );
    }
    sound
}
