//! What the documentation says about pipeline files, against the parser: its examples parse, and every key has its row in the
//! right table, and no row is of a key that does not exist.
//!
//! Which keys a table has is asked of the parser itself: an unknown key is answered with those that are known.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use weir::plan::{Diagnostic, parse};

fn read(name: &str) -> String {
    fs::read_to_string(weir_tests::root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// What is wrong with a text.
fn faults(text: &str) -> Vec<Diagnostic> {
    parse(text, Path::new("pipeline.toml")).map_or_else(|faults| faults.list().to_vec(), |_| Vec::new())
}

/// The code blocks of a page in a language: what stands after the language, and the text.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<(&'a str, &'a str)> {
    let fenced = page.split("\n```").collect::<Vec<_>>();
    let opening = fenced.iter().skip(1).step_by(2);
    let split = opening.map(|block| block.split_once('\n').unwrap_or((block, "")));
    split.filter_map(|(info, text)| Some((info.strip_prefix(language)?.trim(), text))).collect()
}

#[test]
fn every_pipeline_in_the_documentation_parses() {
    for name in ["README.md", "docs/pipeline.md", "docs/replay.md", "docs/sinks.md", "docs/stores.md"] {
        let page = read(name);
        let mut complete = 0;
        for (mark, text) in blocks(&page, "toml") {
            let mut faults = faults(text);
            match mark {
                "" => complete += 1,
                // The rest of the pipeline is left out: nothing else may be wrong.
                "fragment" => faults.retain(|fault| {
                    let missing = ["the pipeline has no key", "a node that does not exist", "nobody reads source"];
                    !missing.iter().any(|part| fault.message.contains(part))
                }),
                other => panic!("{name}: a block of TOML is marked {other:?}; write ```toml or ```toml fragment"),
            }
            assert!(faults.is_empty(), "{name}:\n{text}\n{faults:#?}");
        }
        assert!(complete > 0 || name == "docs/replay.md", "{name} shows a whole pipeline");
    }
}

#[test]
fn the_pipelines_of_the_examples_parse() {
    for name in ["flight-delays/pipeline.toml", "flight-delays/year.toml", "word-count/pipeline.toml"] {
        let faults = faults(&read(&format!("examples/{name}")));
        assert!(faults.is_empty(), "{name}: {faults:#?}");
    }
}

/// Tables of a pipeline file: one with an unknown key in it, and the headings under which `docs/pipeline.md` has its keys.
const TABLES: [(&str, &[&str]); 14] = [
    ("unknown-key = 1", &["## The top of the file"]),
    ("[checkpoint]\nunknown-key = 1", &["### `[checkpoint]`"]),
    ("[restart]\nunknown-key = 1", &["### `[restart]`"]),
    ("[batch]\nunknown-key = 1", &["### `[batch]`"]),
    ("[channel]\nunknown-key = 1", &["### `[channel]`"]),
    ("[source.s]\nconnector = \"file\"\nunknown-key = 1", &["## Sources", "### `connector = \"file\"`"]),
    ("[source.s]\nconnector = \"file\"\ncsv = { unknown-key = 1 }", &["#### `csv`"]),
    ("[source.s]\nconnector = \"generator\"\nunknown-key = 1", &["## Sources", "### `connector = \"generator\"`"]),
    ("[operator.o]\nunknown-key = 1", &["## Operators"]),
    ("[operator.o]\nlimits = { unknown-key = 1 }", &["### `limits`"]),
    ("[operator.o]\ninputs = [{ unknown-key = 1 }]", &["## Inputs"]),
    ("[sink.k]\ninputs = [{ unknown-key = 1 }]", &["## Inputs"]),
    ("[sink.k]\nconnector = \"file\"\nunknown-key = 1", &["## Sinks"]),
    ("[sink.k]\nunknown-key = 1", &["## Sinks", "### `connector = \"object\"`"]),
];

/// The keys that the parser knows in a table, from its answer to one that it does not know.
fn known_keys(text: &str) -> BTreeSet<String> {
    let faults = faults(text);
    let fault = faults.iter().find(|fault| fault.message.starts_with("unknown key \"unknown-key\""));
    let fault = fault.unwrap_or_else(|| panic!("{text:?} has no unknown key: {faults:#?}"));
    let (_, list) = fault.help.split_once(" are ").unwrap_or_else(|| panic!("no keys in {:?}", fault.help));
    let keys = list.replace(" and ", ", ");
    keys.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
}

/// The keys with a row in the table under a heading.
fn documented_keys(page: &str, heading: &str) -> BTreeSet<String> {
    let at = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = page[at + 1 + heading.len()..].split("\n#").next().unwrap();
    let (_, table) = section.split_once("| key |").unwrap_or_else(|| panic!("no table of keys under {heading:?}"));
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.strip_prefix("| `")?.split_once('`').map(|(key, _)| key.to_owned())).collect()
}

#[test]
fn every_key_of_the_parser_has_its_row_and_every_row_is_of_such_a_key() {
    let page = read("docs/pipeline.md");
    for (text, headings) in TABLES {
        let known = known_keys(text);
        assert!(known.len() > 1, "{known:?}");
        let documented: BTreeSet<String> =
            headings.iter().flat_map(|heading| documented_keys(&page, heading)).collect();
        assert_eq!(known, documented, "{headings:?}");
    }
    for connector in ["object", "stdout", "blackhole"] {
        let known = known_keys(&format!("[sink.k]\nconnector = \"{connector}\"\nunknown-key = 1"));
        let mut documented = documented_keys(&page, "## Sinks");
        documented.extend(documented_keys(&page, "### `connector = \"object\"`"));
        assert!(known.is_subset(&documented), "{connector}: {known:?}");
    }
}

#[test]
fn links_within_a_page_lead_to_its_headings() {
    let page = read("docs/pipeline.md");
    let slug = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
    };
    let headings: BTreeSet<String> = page.lines().filter(|line| line.starts_with('#')).map(slug).collect();
    let links: Vec<&str> = page.split("](#").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect();
    assert!(links.len() > 20, "{links:?}");
    for link in links {
        assert!(headings.contains(link), "no heading for #{link}; there are {headings:?}");
    }
}
