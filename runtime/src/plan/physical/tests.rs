//! Sound pipelines give plans that hold all invariants, and a plan that breaks one is found out.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::model::{Port, StateKind};
use crate::plan::parse;

fn port(name: &str, keyed: bool) -> Port {
    Port { name: name.into(), summary: String::new(), keyed }
}

/// `plain`: one input, one output. `keyed`: the input is keyed. `two`: two inputs, two outputs. `end`: no output.
fn descriptors(spec: &PipelineSpec) -> BTreeMap<NodeName, Descriptor> {
    let of = |plugin: String| {
        let (inputs, outputs) = match plugin.as_str() {
            "plain" => (vec![port("in", false)], vec![port("out", false)]),
            "keyed" => (vec![port("in", true)], vec![port("out", true)]),
            "two" => (vec![port("left", false), port("right", false)], vec![port("out", true), port("more", false)]),
            "end" => (vec![port("in", false)], vec![]),
            other => panic!("no plugin {other}"),
        };
        Descriptor {
            name: plugin,
            version: "1.0.0".into(),
            summary: String::new(),
            inputs,
            outputs,
            state: StateKind::Stateless,
            state_version: 1,
            oldest_state_version: 1,
            config_schema: None,
        }
    };
    spec.operators.iter().map(|operator| (operator.name.clone(), of(operator.plugin.to_string()))).collect()
}

fn spec(nodes: &str) -> PipelineSpec {
    let text = format!("name = \"p\"\n[source.s]\nconnector = \"generator\"\n{nodes}");
    parse(&text, Path::new("p.toml")).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn plan(nodes: &str) -> Plan {
    let spec = spec(nodes);
    let plan = Plan::build(&spec, &descriptors(&spec)).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    assert_eq!(plan.check(&spec, &descriptors(&spec)), Ok(()));
    plan
}

fn node(kind: &str, name: &str, what: &str, parallelism: u32, inputs: &str) -> String {
    let key = if kind == "sink" { "connector" } else { "plugin" };
    format!("[{kind}.{name}]\n{key} = \"{what}\"\nparallelism = {parallelism}\ninputs = [{inputs}]\n")
}

#[test]
fn nodes_stand_in_the_order_of_the_data_and_not_of_the_file() {
    let plan = plan(
        &[
            node("operator", "c", "plain", 1, "\"b\""),
            node("operator", "b", "plain", 1, "\"a\""),
            node("operator", "a", "plain", 1, "\"s\""),
            node("sink", "k", "blackhole", 1, "\"c\""),
        ]
        .concat(),
    );
    let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["s", "a", "b", "c", "k"]);
    assert_eq!(plan.nodes[3].kind, NodeKind::Operator(0));
}

#[test]
fn exchanges_that_are_not_written_follow_from_key_port_and_parallelism() {
    for (plugin, parallelism, input, exchange, chained) in [
        ("plain", 1, "\"s\"", ExchangeKind::Forward, true),
        ("plain", 2, "\"s\"", ExchangeKind::Rebalance, false),
        ("plain", 2, "{ from = \"s\", key = \"/k\" }", ExchangeKind::Keyed, false),
        ("plain", 1, "{ from = \"s\", key = \"/k\" }", ExchangeKind::Keyed, true),
        ("plain", 1, "{ from = \"s\", exchange = \"rebalance\" }", ExchangeKind::Rebalance, false),
        ("plain", 1, "{ from = \"s\", exchange = \"broadcast\", key = \"/k\" }", ExchangeKind::Broadcast, false),
        ("keyed", 1, "\"s\"", ExchangeKind::Keyed, true),
        ("keyed", 3, "\"s\"", ExchangeKind::Keyed, false),
    ] {
        let plan =
            plan(&(node("operator", "o", plugin, parallelism, input) + &node("sink", "k", "blackhole", 1, "\"o\"")));
        assert_eq!(
            (plan.edges[0].exchange, plan.edges[0].chained),
            (exchange, chained),
            "{plugin} {parallelism} {input}"
        );
    }
}

#[test]
fn a_node_with_two_inputs_is_chained_to_none() {
    let plan = plan(
        &(node("operator", "o", "two", 1, "\"s\", { from = \"s\", to = \"right\" }")
            + &node("sink", "k", "blackhole", 1, "{ from = \"o\", port = \"more\" }, \"o\"")),
    );
    assert!(plan.edges.iter().all(|edge| edge.exchange == ExchangeKind::Forward && !edge.chained));
    let ports: Vec<(OutPort, u32)> = plan.edges.iter().map(|edge| (edge.port, edge.to_port)).collect();
    assert_eq!(ports, [(OutPort::Data(0), 0), (OutPort::Data(0), 1), (OutPort::Data(1), 0), (OutPort::Data(0), 0)]);
    assert_eq!(plan.port_name(&plan.edges[2]), "more");
}

#[test]
fn an_operator_without_outputs_may_be_the_end_and_cannot_be_read() {
    plan(&node("operator", "o", "end", 1, "\"s\""));
    let spec = spec(&(node("operator", "o", "end", 1, "\"s\"") + &node("sink", "k", "blackhole", 1, "\"o\"")));
    let diagnostics = Plan::build(&spec, &descriptors(&spec)).expect_err("it has no output");
    assert_eq!(diagnostics.list()[0].message, "\"o\" has no output");
    assert_eq!(diagnostics.list().len(), 1, "{diagnostics}");
}

#[test]
fn an_operator_without_a_descriptor_is_reported_once() {
    let spec = spec(&(node("operator", "o", "plain", 1, "\"s\"") + &node("sink", "k", "blackhole", 1, "\"o\"")));
    let diagnostics = Plan::build(&spec, &BTreeMap::new()).expect_err("nothing is known");
    assert_eq!(diagnostics.list().len(), 1, "{diagnostics}");
    assert_eq!(diagnostics.list()[0].line, 5);
}

#[test]
fn a_plan_that_breaks_an_invariant_is_found_out() {
    let nodes = [
        node("operator", "o", "keyed", 2, "\"s\""),
        "on_reject = \"dead-letter\"\n".into(),
        node("operator", "p", "plain", 2, "\"o\""),
        node("sink", "k", "blackhole", 2, "\"p\", { from = \"o\", port = \"rejected\" }"),
    ]
    .concat();
    let spec = spec(&nodes);
    let descriptors = descriptors(&spec);
    let sound = plan(&nodes);
    // s -> o keyed, o -> p forward and chained, p -> k forward, o:rejected -> k forward.
    assert_eq!(sound.edges.len(), 4);
    type Break = fn(&mut Plan);
    let breaks: [(&str, Break); 12] = [
        ("P1", |plan| plan.edges[1].to = plan.edges[1].from),
        ("P2", |plan| drop(plan.nodes.pop())),
        ("P2", |plan| plan.nodes[0].name = NodeName::new("k")),
        ("P3", |plan| plan.edges[1].port = OutPort::Data(1)),
        ("P3", |plan| plan.edges[1].to_port = 1),
        ("P4", |plan| plan.nodes[2].parallelism = 3),
        ("P5", |plan| plan.nodes[1].input_ports = 2),
        ("P6", |plan| plan.edges[0].exchange = ExchangeKind::Rebalance),
        ("P7", |plan| plan.edges[1].chained = false),
        ("P7", |plan| plan.edges[2].chained = true),
        ("P8", |plan| {
            plan.edges.remove(3);
            plan.edges[2].chained = true;
        }),
        ("P9", |plan| plan.edges.push(plan.edges[3].clone())),
    ];
    for (rule, break_it) in breaks {
        let mut broken = sound.clone();
        break_it(&mut broken);
        let found = broken.check(&spec, &descriptors).expect_err(rule);
        assert!(found.starts_with(rule), "{rule}: {found}");
    }
    let mut wide = sound;
    wide.nodes.iter_mut().for_each(|node| node.parallelism = 2_000);
    assert_eq!(wide.check(&spec, &descriptors), Err("P10: 4006000 channels".into()));
}

/// A random sound pipeline: operators read earlier nodes, and a sink reads what nobody else does.
fn pipelines() -> impl Strategy<Value = String> {
    let operator = (0usize..4, 1u32..4, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0usize..4);
    prop::collection::vec(operator, 0..12).prop_map(|operators| {
        let mut text = Vec::new();
        let mut names = vec!["s".to_owned()];
        let mut read = vec![false];
        for (at, (plugin, parallelism, one, other, how)) in operators.into_iter().enumerate() {
            let mut from = |index: prop::sample::Index| {
                let from = index.index(names.len());
                read[from] = true;
                names[from].clone()
            };
            let spread = ["", ", key = \"/k\"", ", exchange = \"keyed\"", ", exchange = \"rebalance\""][how];
            let plugin = ["plain", "keyed", "two", "plain"][plugin];
            let spread = if plugin == "keyed" && how == 3 { "" } else { spread };
            let mut inputs = format!("{{ from = \"{}\"{spread} }}", from(one));
            if plugin == "two" {
                inputs += &format!(", {{ from = \"{}\", to = \"right\"{spread} }}", from(other));
            }
            let name = format!("o{at}");
            text.push(node("operator", &name, plugin, parallelism, &inputs));
            names.push(name);
            read.push(false);
        }
        for (name, _) in names.iter().zip(&read).filter(|(_, read)| !**read) {
            text.push(node("sink", &format!("k-{name}"), "blackhole", 1, &format!("\"{name}\"")));
        }
        // The order of a file is its author's.
        text.reverse();
        text.concat()
    })
}

proptest! {
    #[test]
    fn every_sound_pipeline_has_a_plan_that_holds_the_invariants(text in pipelines()) {
        let spec = spec(&text);
        let descriptors = descriptors(&spec);
        match Plan::build(&spec, &descriptors) {
            Ok(plan) => prop_assert_eq!(plan.check(&spec, &descriptors), Ok(())),
            Err(diagnostics) => prop_assert!(false, "{}\n{}", text, diagnostics),
        }
    }
}
