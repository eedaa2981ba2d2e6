//! What can only be said about nodes together: names, who reads whom, cycles, ports of sources, and paths on disk.
//!
//! Ports of operators are not known here; `Plan::build` checks them against the plugins.

use std::collections::BTreeMap;
use std::path::Path;

use super::NODES_MAX;
use super::inputs::some_names;
use super::nodes::{Draft, Kind};
use super::paths::{Overlap, overlap, plain};
use super::reader::Context;
use crate::model::NodeName;
use crate::plan::ExchangeKind;
use crate::plan::diagnostic::{nearest, quote};
use crate::plan::physical::{REJECTED, SOURCE_PORT};
use crate::storage::StoreUrl;

/// Checks all of it. `store` is the folder of the store, if it has one, or `bucket` its part of one.
pub(super) fn check(cx: &mut Context<'_>, drafts: &[Draft], store: Option<&Path>, bucket: Option<&StoreUrl>) {
    if drafts.len() > NODES_MAX {
        let message = format!("the pipeline has {} nodes, more than {NODES_MAX}", drafts.len());
        cx.error(drafts[NODES_MAX].span.clone(), message, "split it into several pipelines");
        return;
    }
    let by_name = names(cx, drafts);
    let mut links = Links { from: vec![Vec::new(); drafts.len()], ..Links::default() };
    for (at, draft) in drafts.iter().enumerate() {
        for (entry, input) in draft.inputs.iter().enumerate() {
            let Some(from) = by_name.get(&input.spec.from).copied() else {
                unknown_node(cx, drafts, draft, entry, &mut links);
                continue;
            };
            if drafts[from].kind == Kind::Sink {
                let message = format!("{} reads {}, which is a sink", name(draft), name(&drafts[from]));
                cx.error(input.from_span.clone(), message, "read the node that the sink reads");
                continue;
            }
            links.from[at].push((from, entry));
            edge(cx, &drafts[from], draft, entry);
        }
    }
    unread(cx, drafts, &links);
    cycles(cx, drafts, &links);
    folders(cx, drafts, store);
    buckets(cx, drafts, bucket);
}

/// Who reads whom, as far as the file says so.
#[derive(Default)]
struct Links {
    /// By reader: the node that is read, and the entry of `inputs` that says so.
    from: Vec<Vec<(usize, usize)>>,
    /// Names that an unknown one probably meant.
    meant: Vec<NodeName>,
    /// An entry could mean any node.
    unclear: bool,
}

fn name(draft: &Draft) -> String {
    quote(draft.name.as_str())
}

fn names<'d>(cx: &mut Context<'_>, drafts: &'d [Draft]) -> BTreeMap<&'d NodeName, usize> {
    // Sinks come last, so what is read by a name that is there twice is the node that can be read.
    let mut by_name: BTreeMap<&NodeName, usize> = BTreeMap::new();
    for (at, draft) in drafts.iter().enumerate() {
        let Some(first) = by_name.get(&draft.name).copied() else {
            by_name.insert(&draft.name, at);
            continue;
        };
        // The one that comes later in the file is at fault, whatever its kind.
        let (first, second) =
            if drafts[first].span.start < draft.span.start { (&drafts[first], draft) } else { (draft, &drafts[first]) };
        let line = cx.source.position(first.span.start).0;
        let message =
            format!("{} {} has the name of the {} in line {line}", second.kind.word(), name(second), first.kind.word());
        let help = "give one of them another name: a name is the node's identity in checkpoints, over all kinds";
        cx.error(second.span.clone(), message, help);
    }
    by_name
}

fn unknown_node(cx: &mut Context<'_>, drafts: &[Draft], reader: &Draft, entry: usize, links: &mut Links) {
    let input = &reader.inputs[entry];
    let written = input.spec.from.as_str();
    let readable = || drafts.iter().filter(|draft| draft.kind != Kind::Sink && draft.name != reader.name);
    let head = written.split(['.', ':', '/']).next().unwrap_or(written);
    let meant = nearest(written, readable().map(|draft| draft.name.as_str()).take_while(|_| !cx.is_full()));
    let help = if head != written
        && let Some(node) = readable().find(|draft| draft.name.as_str() == head)
    {
        links.meant.push(node.name.clone());
        let port = &written[head.len() + 1..];
        format!("to read a port, write {{ from = {}, port = {} }}", name(node), quote(port))
    } else if let Some(meant) = meant {
        links.meant.push(NodeName::new(meant));
        format!("did you mean {}?", quote(meant))
    } else {
        links.unclear = true;
        format!("the nodes that can be read are {}", some_names(readable().map(|draft| &draft.name)))
    };
    if !cx.partial {
        let message = format!("{} reads {}, a node that does not exist", name(reader), quote(written));
        cx.error(input.from_span.clone(), message, help);
    }
}

/// What can be said about one edge without knowing plugins.
fn edge(cx: &mut Context<'_>, from: &Draft, to: &Draft, entry: usize) {
    let input = &to.inputs[entry];
    if let Some(port) = &input.spec.port
        && from.kind == Kind::Source
        && ![SOURCE_PORT, REJECTED].contains(&port.as_str())
    {
        let message = format!("source {} has no port {}", name(from), quote(port));
        let help = format!("its ports are \"{SOURCE_PORT}\", which needs not be written, and \"{REJECTED}\"");
        cx.error(input.spec.port_span.clone(), message, help);
    }
    if let Some(port) = &input.spec.to
        && to.kind == Kind::Sink
    {
        let message = format!("sink {} has one input, without a name, and no {}", name(to), quote(port));
        cx.error(input.spec.to_span.clone(), message, "remove `to`");
    }
    if let (Some(ExchangeKind::Forward), Some(one), Some(other)) =
        (input.spec.exchange, from.parallelism, to.parallelism)
        && one != other
    {
        let message = format!(
            "exchange \"forward\" goes from subtask to subtask, but {} has parallelism {one} and {} has {other}",
            name(from),
            name(to)
        );
        let help = "give both the same parallelism, or write exchange = \"rebalance\"";
        cx.error(input.exchange_span.clone(), message, help);
    }
}

/// Sources that nobody reads, and dead letters that nobody reads.
fn unread(cx: &mut Context<'_>, drafts: &[Draft], links: &Links) {
    if cx.partial || links.unclear || drafts.iter().any(|draft| !draft.inputs_whole) {
        return;
    }
    for (at, draft) in drafts.iter().enumerate() {
        if links.meant.contains(&draft.name) {
            continue;
        }
        let read = |rejected: bool| {
            drafts.iter().zip(&links.from).any(|(reader, from)| {
                from.iter().any(|(from, entry)| {
                    let port = reader.inputs[*entry].spec.port.as_deref();
                    *from == at && (port == Some(REJECTED)) == rejected
                })
            })
        };
        if draft.kind == Kind::Source && !read(false) {
            let message = format!("nobody reads source {}", name(draft));
            let help = format!("add it to the `inputs` of a node: inputs = [{}], or remove it", name(draft));
            cx.error(draft.span.clone(), message, help);
        }
        if let Some(span) = &draft.dead_letter
            && !read(true)
        {
            let message = format!("dead letters of {} have no reader", name(draft));
            let help = format!(
                "add a sink that reads its port \"{REJECTED}\": inputs = [{{ from = {}, port = \"{REJECTED}\" }}]",
                name(draft)
            );
            cx.error(span.clone(), message, help);
        }
    }
}

/// Reports each cycle once. Nodes that no cycle goes through are taken away from both ends until only cycles and
/// what connects them are left; then one is walked, reported and taken away.
fn cycles(cx: &mut Context<'_>, drafts: &[Draft], links: &Links) {
    let mut alive: Vec<bool> = vec![true; drafts.len()];
    loop {
        trim(&mut alive, links);
        let Some(mut at) = alive.iter().position(|alive| *alive) else { return };
        // Each node that is left reads one that is left: going backwards comes back to where it was.
        let mut walk: Vec<(usize, usize)> = Vec::new();
        let start = loop {
            if let Some(seen) = walk.iter().position(|(node, _)| *node == at) {
                break seen;
            }
            let Some(&(from, entry)) = links.from[at].iter().find(|(from, _)| alive[*from]) else { return };
            walk.push((at, entry));
            at = from;
        };
        let cycle = &mut walk[start..];
        // Told from the node that comes first in the file, in the direction of the data.
        let first = (0..cycle.len()).min_by_key(|at| drafts[cycle[*at].0].span.start).unwrap_or(0);
        cycle.rotate_left(first);
        let (reader, entry) = cycle[0];
        let mut path: Vec<String> = cycle.iter().map(|(node, _)| drafts[*node].name.to_string()).collect();
        path.push(path[0].clone());
        path.reverse();
        let message = if cycle.len() == 1 {
            format!("{} reads itself", name(&drafts[reader]))
        } else {
            format!("nodes read each other in a cycle: {}", path.join(" -> "))
        };
        let help = "remove one of these inputs: data goes in one direction";
        cx.error(drafts[reader].inputs[entry].from_span.clone(), message, help);
        for (node, _) in cycle {
            alive[*node] = false;
        }
    }
}

/// Takes away nodes that read nobody who is left, and nodes that nobody who is left reads.
fn trim(alive: &mut [bool], links: &Links) {
    loop {
        let mut read = vec![false; alive.len()];
        for (at, from) in links.from.iter().enumerate().filter(|(at, _)| alive[*at]) {
            debug_assert!(alive[at]);
            from.iter().for_each(|(from, _)| read[*from] = true);
        }
        let mut changed = false;
        for at in 0..alive.len() {
            let reads = links.from[at].iter().any(|(from, _)| alive[*from]);
            if alive[at] && !(reads && read[at]) {
                alive[at] = false;
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

/// Two who write below one prefix of a bucket.
fn buckets(cx: &mut Context<'_>, drafts: &[Draft], store: Option<&StoreUrl>) {
    let sinks: Vec<_> = drafts.iter().filter_map(|draft| Some((draft, draft.bucket.as_ref()?))).collect();
    for (at, (sink, (url, span))) in sinks.iter().enumerate() {
        if let Some(store) = store.filter(|store| store.overlaps(url)) {
            let message =
                format!("`url` of sink {} is {url}, and the store is {store}: one holds the other", name(sink));
            cx.error(span.clone(), message, "give the sink a prefix of its own, such as s3://bucket/out");
        }
        for (other, (other_url, other_span)) in sinks.iter().skip(at + 1) {
            if !url.overlaps(other_url) {
                continue;
            }
            let (later, earlier, span) =
                if span.start > other_span.start { (sink, other, span) } else { (other, sink, other_span) };
            let line = cx.source.position(earlier.span.start).0;
            let message = format!("sink {} shares a prefix with sink {} in line {line}", name(later), name(earlier));
            cx.error(span.clone(), message, "give each sink a prefix of its own");
        }
    }
}

/// Two who write into one folder, or read what they write.
fn folders(cx: &mut Context<'_>, drafts: &[Draft], store: Option<&Path>) {
    let store = store.map(plain);
    let folders: Vec<_> = drafts
        .iter()
        .filter_map(|draft| draft.path.as_ref().map(|(path, span)| (draft, (plain(path), span))))
        .collect();
    let of = |kind: Kind| folders.iter().filter(move |(draft, _)| draft.kind == kind);
    for (at, (sink, (path, span))) in of(Kind::Sink).enumerate() {
        if let Some(how) = store.as_ref().and_then(|store| overlap(path, store)) {
            let how = match how {
                Overlap::Same => "is the folder of the store",
                Overlap::Inside => "is inside the folder of the store",
                Overlap::Around => "holds the folder of the store",
            };
            let message = format!("the folder of sink {} {how}", name(sink));
            cx.error((*span).clone(), message, "write to a folder of its own, such as path = \"out\"");
        }
        for (other, (other_path, other_span)) in of(Kind::Sink).skip(at + 1) {
            let Some(how) = overlap(path, other_path) else { continue };
            let (later, earlier, span) =
                if span.start > other_span.start { (sink, other, span) } else { (other, sink, other_span) };
            let line = cx.source.position(earlier.span.start).0;
            let what = if how == Overlap::Same { "writes the folder of" } else { "shares a folder with" };
            let message = format!("sink {} {what} sink {} in line {line}", name(later), name(earlier));
            cx.error((*span).clone(), message, "give each sink a folder of its own");
        }
        for (source, (read, span)) in of(Kind::Source) {
            if matches!(overlap(read, path), Some(Overlap::Same | Overlap::Inside)) {
                let message = format!("source {} reads what sink {} writes", name(source), name(sink));
                let help = "a pipeline that reads its own output does not end: give them different folders";
                cx.error((*span).clone(), message, help);
            }
        }
    }
}
