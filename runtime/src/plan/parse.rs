//! From the text of a pipeline file to a [`PipelineSpec`], or to everything that is wrong with the text.
//!
//! ```text
//!   text ─► syntax ─► a tree with places ─► settings, sources, nodes, inputs ─► drafts ─► graph ─► spec
//!                └───────────────┴───── what is wrong, with place and remedy ───────┘
//! ```
//!
//! Reading is strict: what is not known is refused. It does not stop at the first fault, and what follows from a fault is not
//! reported beside it. Nothing here looks at a disk or at a plugin.

mod graph;
mod inputs;
mod nodes;
mod paths;
mod reader;
mod settings;
mod sources;
mod syntax;
pub(super) mod values;

use std::path::Path;

use nodes::Kind;
use reader::{Context, Section};

use super::PipelineSpec;
use super::diagnostic::{Diagnostics, SourceText, quote};
use crate::model::{KEY_GROUPS_DEFAULT, KEY_GROUPS_MAX, name_fault};
use crate::storage::StoreUrl;

/// The largest pipeline file, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 << 10;

/// The most nodes of a pipeline.
pub const NODES_MAX: usize = 1_000;

const KEYS: [&str; 9] =
    ["name", "key_groups", "checkpoint", "restart", "batch", "channel", "source", "operator", "sink"];

/// Reads a pipeline file. `file` is its name: relative paths of the pipeline start at its folder, and messages name it.
///
/// # Errors
///
/// Everything that is wrong with the text, each at its place with its remedy.
pub fn parse(text: &str, file: &Path) -> Result<PipelineSpec, Diagnostics> {
    if text.len() > TEXT_BYTES_MAX {
        // Of such a text nothing is shown.
        let source = SourceText::new("", file);
        let message = format!("the file has {} bytes, more than {TEXT_BYTES_MAX}", text.len());
        let fault = source.error_at(&(0..0), message, "give the path of a pipeline file");
        return Err(Diagnostics::of(&source, fault));
    }
    let source = SourceText::new(text, file);
    let (found, mended) = syntax::mend(&source);
    let partial = !found.is_empty();
    let Some(mended) = mended else {
        return Err(Diagnostics::collect(&source, found).err().unwrap_or_else(|| unknown(&source)));
    };
    let Some(tree) = syntax::tree(&mended) else { return Err(unknown(&source)) };
    let Some(table) = tree.as_table() else { return Err(unknown(&source)) };

    let dir = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let mut cx = Context { source: &source, dir, partial, found };
    let mut root = Section::new("the pipeline".into(), 0..0, table);
    let spec = pipeline(&mut cx, &mut root);
    Diagnostics::collect(&source, cx.found)?;
    Ok(spec)
}

/// For what the parser of TOML promises not to do.
fn unknown(source: &SourceText) -> Diagnostics {
    Diagnostics::of(source, source.error_at(&(0..0), "the file is not TOML", "see https://toml.io for what is"))
}

fn pipeline(cx: &mut Context<'_>, root: &mut Section<'_, '_>) -> PipelineSpec {
    root.allow(cx, &KEYS, &[("sources", "source"), ("operators", "operator"), ("sinks", "sink")], |key| match key {
        "parallelism" => Some("each node has its own;".into()),
        "inputs" | "connector" | "plugin" => Some("it belongs in a node, below its [source.NAME] or the like;".into()),
        _ => None,
    });
    let example = "the name of the job at the top of the file: name = \"my-pipeline\"";
    root.require(cx, "name", example);
    let name = root.text(cx, "name", "name = \"my-pipeline\"");
    if let Some((name, fault)) = name.and_then(|name| Some((name, name_fault(name)?))) {
        cx.error(root.span_of("name"), format!("pipeline name {} {fault}", quote(name)), nodes::name_help(name));
    }
    let groups =
        root.integer(cx, "key_groups", 1..=u64::from(KEY_GROUPS_MAX)).and_then(|groups| u32::try_from(groups).ok());
    let known_groups = if root.has("key_groups") { groups } else { Some(KEY_GROUPS_DEFAULT) };
    let checkpoint = settings::checkpoint(cx, root);
    let restart = settings::restart(cx, root);
    let batch = settings::batch(cx, root);
    let channel = settings::channel(cx, root, batch.limit.bytes);
    let mut spec = PipelineSpec {
        text: cx.source.clone(),
        name: name.unwrap_or_default().to_owned(),
        dir: cx.dir.to_owned(),
        key_groups: groups.unwrap_or(KEY_GROUPS_DEFAULT),
        checkpoint,
        restart,
        batch,
        channel,
        sources: Vec::new(),
        operators: Vec::new(),
        sinks: Vec::new(),
    };

    let mut drafts = Vec::new();
    root.require(cx, "source", "one: [source.NAME] with connector = \"file\" or \"generator\"");
    for (name, mut section) in nodes::tables(cx, root, Kind::Source) {
        let (draft, source) = sources::source(cx, name, &mut section, known_groups);
        drafts.push(draft);
        spec.sources.extend(source);
    }
    for (name, mut section) in nodes::tables(cx, root, Kind::Operator) {
        let (draft, operator) = nodes::operator(cx, name, &mut section, known_groups);
        drafts.push(draft);
        spec.operators.extend(operator);
    }
    for (name, mut section) in nodes::tables(cx, root, Kind::Sink) {
        let (draft, sink) = nodes::sink(cx, name, &mut section, known_groups);
        drafts.push(draft);
        spec.sinks.extend(sink);
    }
    let bucket = StoreUrl::parse(&spec.checkpoint.store).ok();
    graph::check(cx, &drafts, spec.store_dir().as_deref(), bucket.as_ref());
    spec
}

#[cfg(test)]
mod tests;
