//! `weir check` on pipeline files with the mistakes that users make, and on sound ones.
//!
//! Each folder of `golden/check` has a `pipeline.toml` and what is to be said about it. After a change of a message run with
//! `UPDATE_GOLDEN=1`, and read the difference: it must point at the right line and name the remedy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weir::model::{Descriptor, NodeName, Port, StateKind};
use weir::plan::{CheckReport, Diagnostics, OperatorSpec, PipelineSpec, Plan, PluginRef};

fn ports(names: &[&str], keyed: bool) -> Vec<Port> {
    names.iter().map(|name| Port { name: (*name).into(), summary: String::new(), keyed }).collect()
}

/// What the plugins of these pipelines would say about themselves.
fn descriptor(operator: &OperatorSpec) -> Descriptor {
    let name = match &operator.plugin {
        PluginRef::Named { name, .. } => name.clone(),
        PluginRef::Path(path) => path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned()),
        PluginRef::Digest(_) => "count".into(),
    };
    let (inputs, outputs, state) = match name.as_str() {
        "filter" => (ports(&["in"], false), ports(&["out"], false), StateKind::Stateless),
        "count" | "simple-count" => (ports(&["in"], true), ports(&["out"], true), StateKind::Keyed),
        "window" | "delays" => (ports(&["in"], true), ports(&["out", "late"], true), StateKind::Keyed),
        "join" => (ports(&["left", "right"], true), ports(&["out"], false), StateKind::Keyed),
        other => panic!("no plugin {other:?}"),
    };
    Descriptor {
        name,
        version: "0.1.0".into(),
        summary: String::new(),
        inputs,
        outputs,
        state,
        state_version: 1,
        oldest_state_version: 1,
        config_schema: None,
    }
}

fn check(text: &str) -> Result<CheckReport, Diagnostics> {
    let spec: PipelineSpec = weir::plan::parse(text, Path::new("pipeline.toml"))?;
    let descriptors: BTreeMap<NodeName, Descriptor> =
        spec.operators.iter().map(|operator| (operator.name.clone(), descriptor(operator))).collect();
    let plan = Plan::build(&spec, &descriptors)?;
    assert_eq!(plan.check(&spec, &descriptors), Ok(()));
    let snapshots = descriptors.iter().map(|(node, d)| (node.clone(), d.name != "simple-count")).collect();
    let guarantees = weir::plan::guarantees(&spec, &plan, &descriptors, &snapshots)?;
    Ok(CheckReport::new(&spec, &plan, &descriptors, &snapshots, guarantees))
}

#[test]
fn each_pipeline_gets_the_answer_that_its_folder_expects() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/check");
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("the golden folder").map(|entry| entry.expect("an entry").path()).collect();
    cases.sort();
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut broken = 0;
    let mut different = Vec::new();
    for case in &cases {
        let name = case.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(case.join("pipeline.toml")).expect("a pipeline");
        let answer = match check(&text) {
            Ok(report) => {
                assert!(name.contains("-good-"), "{name} has mistakes and passes");
                let json = serde_json::to_value(&report).expect("a report is JSON");
                assert_eq!(json["nodes"].as_array().map(Vec::len), Some(report.nodes.len()), "{name}");
                weir::plan::render_check(&report)
            }
            Err(diagnostics) => {
                broken += 1;
                let json = serde_json::to_value(&diagnostics).expect("diagnostics are JSON");
                assert_eq!(json["diagnostics"][0]["line"], diagnostics.list()[0].line, "{name}");
                assert!(!name.contains("-good-"), "{name}:\n{diagnostics}");
                diagnostics.to_string()
            }
        };
        let file = case.join("expected.txt");
        if update {
            std::fs::write(&file, &answer).expect("the expected text can be written");
        } else if std::fs::read_to_string(&file).unwrap_or_default() != answer {
            different.push(format!("== {name}\n{answer}"));
        }
    }
    assert!(broken >= 20, "only {broken} broken pipelines");
    assert!(cases.len() >= broken + 3, "only {} sound pipelines", cases.len() - broken);
    assert!(different.is_empty(), "not as expected (UPDATE_GOLDEN=1 rewrites):\n{}", different.join("\n"));
}
