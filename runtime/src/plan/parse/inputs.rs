//! `inputs` of an operator or a sink: what it reads, from which port, spread how.

use toml_span::value::{Value, ValueInner};

use super::reader::{Context, Section, kind_of};
use crate::model::NodeName;
use crate::plan::diagnostic::{listed, quote};
use crate::plan::{ExchangeKind, InputSpec, OnError, Span};

/// How many entries one node may have.
const INPUTS_MAX: usize = 1_000;

const KEYS: [&str; 6] = ["from", "port", "to", "key", "exchange", "on_error"];

/// An entry, with the places that later checks point at.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) spec: InputSpec,
    pub(super) from_span: Span,
    pub(super) exchange_span: Span,
}

/// The entries of a node, and whether all of them could be read.
pub(super) fn read(cx: &mut Context<'_>, node: &Section<'_, '_>) -> (Vec<Input>, bool) {
    let example = "inputs = [\"NODE\"] or inputs = [{ from = \"NODE\", key = \"/user\" }]";
    node.require(cx, "inputs", &format!("what it reads: {example}"));
    let Some((_, value)) = node.get("inputs") else { return (Vec::new(), !cx.partial) };
    let Some(list) = value.as_array() else {
        let help = match value.as_str() {
            Some(name) => format!("write inputs = [{}]", quote(name)),
            None if value.as_table().is_some() => "put the table in brackets: inputs = [{ from = \"NODE\" }]".into(),
            None => format!("write {example}"),
        };
        cx.error(value.span, format!("`inputs` of {} must be a list, not {}", node.what, kind_of(value)), help);
        return (Vec::new(), false);
    };
    if list.is_empty() {
        cx.error(value.span, format!("{} reads nothing: `inputs` is empty", node.what), format!("write {example}"));
    }
    if list.len() > INPUTS_MAX {
        let message = format!("{} has {} inputs, more than {INPUTS_MAX}", node.what, list.len());
        cx.error(value.span, message, "put a node in between that brings some of them together");
        return (Vec::new(), false);
    }
    let inputs: Vec<Input> = list.iter().filter_map(|entry| entry_of(cx, node, entry)).collect();
    let whole = inputs.len() == list.len();
    (inputs, whole)
}

fn entry_of(cx: &mut Context<'_>, node: &Section<'_, '_>, entry: &Value<'_>) -> Option<Input> {
    let span = Span::from(entry.span);
    match entry.as_ref() {
        ValueInner::String(from) => {
            let spec = InputSpec {
                span: span.clone(),
                from: NodeName::new(from.as_ref()),
                port: None,
                port_span: span.clone(),
                to: None,
                to_span: span.clone(),
                key: None,
                exchange: None,
                on_error: OnError::Fail,
            };
            Some(Input { spec, from_span: span.clone(), exchange_span: span })
        }
        ValueInner::Table(table) => {
            let mut s = Section::new(format!("an input of {}", node.what), span.clone(), table);
            let aliases = [("node", "from"), ("source", "from"), ("name", "from"), ("input", "from")];
            s.allow(cx, &KEYS, &aliases, |_| None);
            s.require(cx, "from", "the node that it reads: from = \"NODE\"");
            let key = s.pointer(cx, "key");
            let exchange = s.choice(
                cx,
                "exchange",
                &[
                    ("forward", ExchangeKind::Forward),
                    ("keyed", ExchangeKind::Keyed),
                    ("broadcast", ExchangeKind::Broadcast),
                    ("rebalance", ExchangeKind::Rebalance),
                ],
            );
            let on_error = on_error(cx, &s);
            let port = s.filled(cx, "port", "port = \"NAME\", an output of the node that is read");
            let to = s.filled(cx, "to", "to = \"NAME\", an input of this node");
            let from = s.filled(cx, "from", "from = \"NODE\"")?;
            let spec = InputSpec {
                span,
                from: NodeName::new(from),
                port: port.map(str::to_owned),
                port_span: s.span_of("port"),
                to: to.map(str::to_owned),
                to_span: s.span_of("to"),
                key,
                exchange,
                on_error,
            };
            Some(Input { spec, from_span: s.span_of("from"), exchange_span: s.span_of("exchange") })
        }
        _ => {
            let message = format!("an input of {} must be a node's name or a table, not {}", node.what, kind_of(entry));
            cx.error(span, message, "write \"NODE\" or { from = \"NODE\" }");
            None
        }
    }
}

/// What happens when the key cannot be found. There is no port for such records, so no dead letter.
fn on_error(cx: &mut Context<'_>, s: &Section<'_, '_>) -> OnError {
    if s.get("on_error").is_some_and(|(_, value)| value.as_str() == Some("dead-letter")) {
        let message = format!("`on_error` of {} is \"dead-letter\", which an input does not have", s.what);
        let help = "write \"fail\" or \"skip\"; to keep such records, let the source put them aside (format = \"json\" \
                    and on_error = \"dead-letter\")";
        cx.error(s.span_of("on_error"), message, help);
        return OnError::Fail;
    }
    let choice = s.choice(cx, "on_error", &[("fail", OnError::Fail), ("skip", OnError::Skip)]);
    if choice.is_some() && !s.has("key") {
        let message = format!("`on_error` of {} has no effect without `key`", s.what);
        let help = "it says what is done when the key is not found: add key = \"/...\", or remove on_error";
        cx.error(s.span_of("on_error"), message, help);
    }
    choice.unwrap_or(OnError::Fail)
}

/// Names in quotes, for a help that lists nodes; at most ten.
pub(super) fn some_names<'a>(names: impl Iterator<Item = &'a NodeName>) -> String {
    let mut shown: Vec<String> = names.take(11).map(|name| quote(name.as_str())).collect();
    if shown.len() > 10 {
        shown[10] = "others".into();
    }
    listed(&shown, "and")
}
