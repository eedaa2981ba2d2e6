//! The JSON Schema of a plugin's configuration, for people: a line for each setting. A schema that is not of that shape is shown as it is.

use serde_json::Value;

/// The longest name that others are lined up with.
const WIDTH_MAX: usize = 40;
/// What of a line is shown.
const LINE_CHARS_MAX: usize = 400;

/// What a plugin may be configured with.
pub(super) fn lines(schema: &str) -> Vec<String> {
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return vec![one_line(schema)] };
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|all| !all.is_empty()) else {
        let pretty = serde_json::to_string_pretty(&schema).unwrap_or_default();
        return pretty.lines().map(one_line).collect();
    };
    let is_required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    // Whoever wrote it is not trusted: no name is so long, and nothing moves the cursor.
    let width = properties.keys().map(|name| name.chars().count()).max().unwrap_or_default().min(WIDTH_MAX);
    let setting = |(name, property): (&String, &Value)| {
        let mut said = vec![kind(property)];
        said.extend(is_required(name).then(|| "required".to_owned()));
        for (key, word) in [
            ("default", "default"),
            ("minimum", "at least"),
            ("exclusiveMinimum", "more than"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "less than"),
        ] {
            said.extend(property.get(key).map(|value| format!("{word} {value}")));
        }
        let about = property["description"].as_str().map(|text| format!("  {text}")).unwrap_or_default();
        one_line(&format!("{name:width$}  {}{about}", said.join(", ")))
    };
    properties.iter().map(setting).collect()
}

/// Text on one line of no more than is read, without what a terminal would obey.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().take(LINE_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(LINE_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}

/// What a value has to be.
fn kind(property: &Value) -> String {
    if let Some(choices) = property["enum"].as_array() {
        return choices.iter().map(Value::to_string).collect::<Vec<_>>().join(" or ");
    }
    match &property["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "anything".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_listed_with_what_they_have_to_be() {
        let schema = r#"{"type": "object", "required": ["by"], "properties": {
            "by": {"enum": ["hour", "day"], "description": "what is counted"},
            "least": {"type": "number", "default": 0.5, "exclusiveMinimum": 0},
            "note": {"type": ["string", "null"]}, "x": {}}}"#;
        assert_eq!(
            lines(schema),
            [
                "by     \"hour\" or \"day\", required  what is counted",
                "least  number, default 0.5, more than 0",
                "note   string or null",
                "x      anything",
            ]
        );
    }

    #[test]
    fn another_schema_is_shown_as_it_is() {
        assert_eq!(lines("{\"type\": \"null\"}"), ["{", "  \"type\": \"null\"", "}"]);
        assert_eq!(lines("{"), ["{"]);
    }

    #[test]
    fn what_an_author_writes_stays_on_its_line() {
        let name = "n".repeat(70_000);
        let schema =
            format!("{{\"properties\": {{\"{name}\": {{}}, \"x\": {{\"description\": \"a\\n\\u001b[2Kb\"}}}}}}");
        let lines = lines(&schema);
        assert_eq!(lines.len(), 2);
        assert!(
            lines.iter().all(|line| line.chars().count() <= LINE_CHARS_MAX + 1 && !line.contains(['\n', '\u{1b}']))
        );
        assert!(lines[1].ends_with("a  [2Kb"), "{}", lines[1]);
    }
}
