//! What a pipeline can say about windows.

use weir_sdk::{Failure, Timestamp, json};

use crate::aggregate::{Aggregate, Aggregates};
use crate::field::Pointer;
use crate::time::write_rfc3339;

pub(crate) const SCHEMA: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["size"],
  "properties": {
    "size": {
      "description": "length of a window: a number and ms, s, m, h or d",
      "type": "string",
      "pattern": "^[1-9][0-9]*(ms|s|m|h|d)$"
    },
    "field": {
      "description": "JSON pointer to the number that is aggregated; without it, records are counted and values are not looked at",
      "type": "string",
      "pattern": "^(/([^~]|~[01])*)?$"
    },
    "aggregates": {
      "description": "what to compute; without it, all that applies",
      "type": "array",
      "items": { "enum": ["count", "sum", "mean", "min", "max"] },
      "minItems": 1,
      "uniqueItems": true
    },
    "format": {
      "description": "json, or binary: 8 bytes each, little-endian, for count, values, sum, mean, min, max as far as they are asked for",
      "enum": ["json", "binary"],
      "default": "json"
    },
    "key_name": {
      "description": "under which name the key stands in the output",
      "type": "string",
      "minLength": 1,
      "default": "key"
    }
  }
}"#;

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    #[default]
    Json,
    Binary,
}

/// The configuration as it is written.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    size: String,
    field: Option<String>,
    aggregates: Option<Vec<String>>,
    #[serde(default)]
    format: Format,
    key_name: Option<String>,
}

/// The configuration as it is used.
#[derive(Debug)]
pub(crate) struct Config {
    /// Microseconds.
    pub(crate) size: i64,
    pub(crate) field: Option<Pointer>,
    pub(crate) aggregates: Aggregates,
    pub(crate) format: Format,
    /// The name of the key as JSON.
    key_name: Vec<u8>,
}

/// Names that a result has already.
const TAKEN: [&str; 8] = ["window_start", "window_end", "count", "values", "sum", "mean", "min", "max"];

impl Config {
    pub(crate) fn parse(written: Written) -> Result<Self, Failure> {
        let size = duration(&written.size)?;
        let field = written.field.as_deref().map(Pointer::parse).transpose().map_err(Failure::invalid)?;
        let aggregates = match &written.aggregates {
            None => Aggregates::all(field.is_some()),
            Some(names) => Aggregates::parse(names, field.is_some()).map_err(Failure::invalid)?,
        };
        let key_name = written.key_name.unwrap_or_else(|| "key".into());
        if TAKEN.contains(&key_name.as_str()) {
            return Err(Failure::invalid(format!("key_name {key_name:?} is the name of a result; choose another")));
        }
        let mut name = Vec::new();
        json::push_text(&mut name, &key_name);
        Ok(Self { size, field, aggregates, format: written.format, key_name: name })
    }

    /// Writes a result as a JSON object.
    pub(crate) fn write_json(
        &self,
        to: &mut Vec<u8>,
        key: &[u8],
        end: Timestamp,
        count: u64,
        values: Option<&Aggregate>,
    ) {
        to.extend_from_slice(b"{\"window_start\":\"");
        write_rfc3339(to, end - self.size);
        to.extend_from_slice(b"\",\"window_end\":\"");
        write_rfc3339(to, end);
        to.extend_from_slice(b"\",");
        to.extend_from_slice(&self.key_name);
        to.push(b':');
        json::push_text(to, &String::from_utf8_lossy(key));
        if self.aggregates.count {
            to.extend_from_slice(b",\"count\":");
            json::push_number(to, count);
        }
        if let Some(values) = values {
            values.write_json(to, self.aggregates);
        }
        to.push(b'}');
    }
}

/// A duration in microseconds.
fn duration(text: &str) -> Result<i64, Failure> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let micros = match unit {
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(Failure::invalid(format!("size {text:?} is not a number and ms, s, m, h or d, as \"1h\""))),
    };
    // A thousand years: more would be a mistake, and windows must stay on the time line.
    const LONGEST: i64 = 365_250 * 86_400_000_000;
    match number.parse::<i64>().ok().and_then(|number| number.checked_mul(micros)) {
        Some(size @ 1..=LONGEST) => Ok(size),
        _ => Err(Failure::invalid(format!("size {text:?} is not between 1ms and 365250d"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(config: &str) -> Result<Config, String> {
        json::config(config).and_then(Config::parse).map_err(|failure| failure.message)
    }

    #[test]
    fn sizes_are_a_number_and_a_unit() {
        for (size, micros) in [("250ms", 250_000), ("10s", 10_000_000), ("1h", 3_600_000_000), ("2d", 172_800_000_000)]
        {
            assert_eq!(parse(&format!(r#"{{"size":"{size}"}}"#)).map(|config| config.size), Ok(micros));
        }
        for size in ["", "1", "h", "0s", "-1s", "1 h", "1.5h", "9999999999999d", "1w"] {
            let refused = parse(&format!(r#"{{"size":"{size}"}}"#)).expect_err(size);
            assert!(refused.contains(&format!("size {size:?}")), "{refused}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_remedy() {
        for (config, part) in [
            (r#"{}"#, "size"),
            (r#"{"size":"1h","sise":1}"#, "sise"),
            (r#"{"size":"1h","field":"dep_delay"}"#, "write \"/dep_delay\""),
            (r#"{"size":"1h","aggregates":["sum"]}"#, "needs a field"),
            (r#"{"size":"1h","field":"/x","aggregates":["median"]}"#, "median"),
            (r#"{"size":"1h","field":"/x","aggregates":[]}"#, "empty"),
            (r#"{"size":"1h","key_name":"count"}"#, "choose another"),
        ] {
            let refused = parse(config).expect_err(config);
            assert!(refused.contains(part), "{config}: {refused}");
        }
    }
}
