//! The tables that are about the job as a whole: `[checkpoint]`, `[restart]`, `[batch]`, `[channel]`.

use std::time::Duration;

use toml_span::value::{Key, Value};

use super::reader::{Context, Section, kind_of};
use super::values::{DURATION_MAX, show_size};
use crate::model::{BatchLimit, RECORD_BYTES_MAX};
use crate::plan::diagnostic::quote;
use crate::plan::{BatchSpec, ChannelSpec, CheckpointSpec, RestartSpec, Span};
use crate::storage::{StoreOptions, StoreUrl};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A manifest is one small object that is written each time.
const INLINE_BYTES_MAX: u64 = 1 << 20;
/// The store of a pipeline that names none.
const STORE: &str = "file://./.weir";

fn nowhere(_: &str) -> Option<String> {
    None
}

pub(super) fn checkpoint(cx: &mut Context<'_>, root: &Section<'_, '_>) -> CheckpointSpec {
    let mut s = Section::of(cx, root, "checkpoint", "[checkpoint]".into(), "[checkpoint] on a line of its own");
    let keys = [
        "store",
        "store_options",
        "interval",
        "timeout",
        "min_pause",
        "tolerated_failures",
        "retain",
        "upload_memory",
        "uploads",
        "inline",
    ];
    s.allow(cx, &keys, &[], nowhere);
    let store = s.filled(cx, "store", "store = \"file://./.weir\"").map(|url| store_url(cx, &s, "store", url));
    CheckpointSpec {
        store_options: store_options(cx, &s, "store_options", store.as_deref().unwrap_or(STORE)),
        store: store.unwrap_or_else(|| STORE.into()),
        interval: s.duration(cx, "interval", 10 * MS..=DURATION_MAX).unwrap_or(SECOND),
        timeout: s.duration(cx, "timeout", 10 * MS..=DURATION_MAX).unwrap_or(60 * SECOND),
        min_pause: s.duration(cx, "min_pause", Duration::ZERO..=DURATION_MAX).unwrap_or_default(),
        tolerated_failures: s.count(cx, "tolerated_failures", 3, 0..=1_000_000),
        retain: s.count(cx, "retain", 3, 1..=1_000_000),
        upload_memory: s.size(cx, "upload_memory", (8 << 20)..=(1 << 50)).unwrap_or(256 << 20),
        uploads: s.count(cx, "uploads", 4, 1..=1_000),
        inline: s.size(cx, "inline", 0..=INLINE_BYTES_MAX).unwrap_or(32 << 10),
    }
}

/// Checks a store's URL. What follows `file://` is a path as it is, below the pipeline file if it begins with a dot.
pub(super) fn store_url(cx: &mut Context<'_>, s: &Section<'_, '_>, key: &str, url: &str) -> String {
    let mut secret = false;
    let fault = match url.split_once("://") {
        None => {
            let path = if ["/", "./", "../"].iter().any(|start| url.starts_with(start)) {
                url.to_owned()
            } else {
                format!("./{url}")
            };
            Some(("is not a URL".to_owned(), format!("write {}", quote(&format!("file://{path}")))))
        }
        Some(("file", path)) if path.starts_with('/') || path.starts_with("./") || path.starts_with("../") => None,
        Some(("file", "." | "..")) => None,
        Some(("file", path)) => {
            let (relative, absolute) = (quote(&format!("file://./{path}")), quote(&format!("file:///{path}")));
            let help =
                format!("write {relative} for a folder beside the pipeline file, or {absolute} for an absolute one");
            Some(("does not say where its folder starts".to_owned(), help))
        }
        Some(_) => StoreUrl::parse(url).err().map(|fault| {
            secret = fault.secret;
            (fault.fault, fault.help)
        }),
    };
    if let Some((message, help)) = fault {
        // A message shows the line that it is about.
        cx.error(
            if secret { s.place.clone() } else { s.span_of(key) },
            format!("`{key}` of {} is {}, which {message}", s.what, quote(&shown(url))),
            help,
        );
    }
    url.to_owned()
}

/// An address without what may be a secret in it.
fn shown(url: &str) -> String {
    let shown = url.split(['?', '#']).next().unwrap_or_default();
    match (shown.split_once("://"), shown.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => shown.to_owned(),
    }
}

/// `store_options = { … }`: what may be said about the store at `url`.
pub(super) fn store_options(cx: &mut Context<'_>, s: &Section<'_, '_>, key: &str, url: &str) -> StoreOptions {
    let what = format!("`{key}` of {}", s.what);
    let table = Section::of(cx, s, key, what.clone(), &format!("{key} = {{ region = \"eu-west-1\" }}"));
    // What is wrong with the address is told there.
    let scheme = StoreUrl::parse(url).ok().map(|url| url.scheme);
    let check = |name: &str, text: &str| scheme.and_then(|scheme| StoreOptions::check_one(scheme, name, text).err());
    // A message shows the line that it is about: not if that may hold a secret.
    let is_secret = |(name, value): &(&Key<'_>, &Value<'_>)| {
        check(&name.name, value.as_str().unwrap_or_default()).is_some_and(|fault| fault.secret)
    };
    let hidden = table.entries().iter().any(is_secret);
    let place = |span: Span| if hidden { s.place.clone() } else { span };
    let mut options = Vec::new();
    for (name, value) in table.entries() {
        let text = match (value.as_str(), value.as_bool()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(flag)) => flag.to_string(),
            _ => {
                let message =
                    format!("{} in {what} must be text, true or false, not {}", quote(&name.name), kind_of(value));
                cx.error(place(value.span.into()), message, "write it as text, with quotes");
                continue;
            }
        };
        if let Some(fault) = check(&name.name, &text) {
            cx.error(place(name.span.into()), format!("{what}: {}", fault.fault), fault.help);
            continue;
        }
        options.push((name.name.to_string(), text));
    }
    options.into_iter().collect()
}

pub(super) fn restart(cx: &mut Context<'_>, root: &Section<'_, '_>) -> RestartSpec {
    let mut s = Section::of(cx, root, "restart", "[restart]".into(), "[restart] on a line of its own");
    s.allow(cx, &["attempts", "delay", "max_delay"], &[], nowhere);
    let delay = s.duration(cx, "delay", Duration::ZERO..=DURATION_MAX);
    let max_delay = s.duration(cx, "max_delay", Duration::ZERO..=DURATION_MAX);
    let spec = RestartSpec {
        attempts: s.count(cx, "attempts", 5, 0..=1_000_000),
        delay: delay.unwrap_or(100 * MS),
        max_delay: max_delay.unwrap_or(30 * SECOND),
    };
    let written = |key: &str, value: Option<Duration>| value.is_some() || !s.has(key);
    if written("delay", delay) && written("max_delay", max_delay) && spec.delay > spec.max_delay {
        let message = format!("`delay` of {} is more than `max_delay`, the longest delay", s.what);
        let help = "lower delay or raise max_delay; max_delay is \"30s\" where it is not written";
        cx.error(s.span_of(if delay.is_some() { "delay" } else { "max_delay" }), message, help);
    }
    spec
}

pub(super) fn batch(cx: &mut Context<'_>, root: &Section<'_, '_>) -> BatchSpec {
    let mut s = Section::of(cx, root, "batch", "[batch]".into(), "[batch] on a line of its own");
    s.allow(cx, &["records", "bytes", "delay"], &[], nowhere);
    let default = BatchLimit::default();
    let records = s.integer(cx, "records", 1..=1 << 20).map_or(default.records, to_usize);
    let bytes = s.size(cx, "bytes", 1 << 10..=RECORD_BYTES_MAX as u64).map_or(default.bytes, to_usize);
    let delay = s.duration(cx, "delay", Duration::ZERO..=60 * SECOND).unwrap_or(10 * MS);
    BatchSpec { limit: BatchLimit { records, bytes }, delay }
}

/// `batch_bytes` is what `[batch]` asks for: a channel holds at least one full batch.
pub(super) fn channel(cx: &mut Context<'_>, root: &Section<'_, '_>, batch_bytes: usize) -> ChannelSpec {
    let mut s = Section::of(cx, root, "channel", "[channel]".into(), "[channel] on a line of its own");
    s.allow(cx, &["bytes", "batches"], &[], nowhere);
    let written = s.size(cx, "bytes", 1 << 10..=1 << 36).map(to_usize);
    let bytes = written.unwrap_or(4 << 20);
    if bytes < batch_bytes && (written.is_some() || !s.has("bytes")) {
        let (span, what) = if written.is_some() {
            (s.span_of("bytes"), s.what.as_str())
        } else {
            (root.get("batch").map_or(root.place.clone(), |(key, _)| key.span.into()), "[channel]")
        };
        let batch = show_size(batch_bytes as u64);
        let message = format!("`bytes` of {what} is {}, less than a batch of {batch}", show_size(bytes as u64));
        cx.error(span, message, format!("raise it to \"{batch}\" at least, or lower `bytes` of [batch]"));
    }
    ChannelSpec { bytes, batches: s.integer(cx, "batches", 1..=1 << 20).map_or(64, to_usize) }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
