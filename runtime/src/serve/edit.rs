//! A pipeline file with one thing changed, and everything else as its author wrote it.

use toml_edit::{DocumentMut, Item, TableLike, value};

/// Sets the parallelism of a node.
///
/// # Errors
///
/// If the text has no such node.
pub(super) fn set_parallelism(text: &str, node: &str, parallelism: u32) -> Result<String, String> {
    edit(text, node, &["source", "operator", "sink"], |table| {
        table.insert("parallelism", value(i64::from(parallelism)));
        Ok(())
    })
}

/// Sets the plugin of an operator, and its configuration if there is a new one.
///
/// # Errors
///
/// If the text has no such operator, or the configuration has something that TOML cannot say.
pub(super) fn set_plugin(
    text: &str,
    node: &str,
    plugin: &str,
    config: Option<&serde_json::Value>,
) -> Result<String, String> {
    edit(text, node, &["operator"], |table| {
        table.insert("plugin", value(plugin));
        if let Some(config) = config {
            table.insert("config", value(toml_value(config)?));
        }
        Ok(())
    })
}

fn edit(
    text: &str,
    node: &str,
    sections: &[&str],
    change: impl Fn(&mut dyn TableLike) -> Result<(), String>,
) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|e| format!("the pipeline cannot be edited: {e}"))?;
    for section in sections {
        let found = document.get_mut(section).and_then(Item::as_table_like_mut).and_then(|nodes| nodes.get_mut(node));
        if let Some(table) = found.and_then(Item::as_table_like_mut) {
            change(table)?;
            return Ok(document.to_string());
        }
    }
    Err(format!("the pipeline has no {} {node:?}", sections.join(" or ")))
}

fn toml_value(json: &serde_json::Value) -> Result<toml_edit::Value, String> {
    use serde_json::Value as Json;
    Ok(match json {
        Json::Null => return Err("null cannot be said in a pipeline file: leave the key out".into()),
        Json::Bool(flag) => (*flag).into(),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(float)) if !number.is_u64() => float.into(),
            _ => return Err(format!("{number} is too large for a pipeline file")),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(all) => all.iter().map(toml_value).collect::<Result<toml_edit::Array, _>>()?.into(),
        Json::Object(all) => {
            let mut table = toml_edit::InlineTable::new();
            for (key, json) in all {
                table.insert(key, toml_value(json)?);
            }
            table.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"j\" # mine\n\n[operator.count]\nplugin = \"./count.wasm\"   # the counter\ninputs = [\"s\"]\nparallelism = 2\n";

    #[test]
    fn one_thing_changes_and_the_rest_stays_as_it_was_written() {
        let wider = set_parallelism(TEXT, "count", 4).expect("it is there");
        assert_eq!(wider, TEXT.replace("parallelism = 2", "parallelism = 4"));
        let config = serde_json::json!({ "size": "1h", "deep": { "list": [1, 2.5, true] } });
        let other = set_plugin(TEXT, "count", "blake3:00", Some(&config)).expect("it is there");
        assert!(other.starts_with("name = \"j\" # mine\n") && other.contains("plugin = \"blake3:00\""), "{other}");
        let parsed: DocumentMut = other.parse().expect("it is TOML");
        assert_eq!(parsed["operator"]["count"]["config"]["deep"]["list"][1].as_float(), Some(2.5));
    }

    #[test]
    fn what_is_not_there_or_cannot_be_said_is_refused_by_name() {
        assert!(set_parallelism(TEXT, "other", 4).expect_err("it is not there").contains("\"other\""));
        let null = serde_json::json!({ "a": null });
        assert!(set_plugin(TEXT, "count", "x", Some(&null)).is_err());
        assert!(set_plugin("not toml [", "count", "x", None).is_err());
    }
}
