//! How records are written: lines, JSON lines or CSV. Bytes in, bytes out; no file.
//!
//! - **lines**: the value and a newline. A value with a newline in it is refused: it would come back as two records.
//! - **json**: the value, which must be JSON, on a line of its own. One that spans lines is made compact; any other is
//!   written as it is, digit for digit.
//! - **csv** (RFC 4180, rows end with LF): the members of the value, a flat JSON object. The members of the first
//!   record are the header, and every later one must have the same, in any order. `null` is an empty field and an empty
//!   string is a quoted one. A row of one `null` is a quoted one too: an empty line would be no row.
//!
//! A record without a value (a tombstone) is `null` in json. The two others have no way to write it: it is left out
//! and counted.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::ConnectorError;
use super::json_text::{excerpt, push_compact};
use crate::plan::SinkFormat;

/// How much of a record an error shows, in bytes.
const EXCERPT_BYTES_MAX: usize = 200;

/// Writes the records of one part.
#[derive(Debug)]
pub(super) struct Encoder {
    format: SinkFormat,
    /// The columns, once there was a first record.
    header: Option<Vec<String>>,
    /// Records that were written.
    pub(super) records: u64,
    /// Records without a value that the format has no way to write.
    pub(super) skipped: u64,
}

impl Encoder {
    pub(super) fn new(format: SinkFormat) -> Self {
        Self { format, header: None, records: 0, skipped: 0 }
    }

    /// The ending of a file name.
    pub(super) fn extension(format: SinkFormat) -> &'static str {
        match format {
            SinkFormat::Lines => "txt",
            SinkFormat::Json => "jsonl",
            SinkFormat::Csv => "csv",
        }
    }

    /// Writes one record at the end of `out`. What it has written of one that it refuses is for the caller to drop.
    #[inline]
    pub(super) fn write(&mut self, value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), ConnectorError> {
        match (self.format, value) {
            (SinkFormat::Json, None) => out.extend_from_slice(b"null"),
            (SinkFormat::Lines | SinkFormat::Csv, None) => {
                self.skipped += 1;
                return Ok(());
            }
            (SinkFormat::Lines, Some(value)) => {
                if memchr::memchr(b'\n', value).is_some() {
                    return Err(refused("has a line break, and a line is a record", value)
                        .help("set format = \"json\", where line breaks are escaped"));
                }
                out.extend_from_slice(value);
            }
            (SinkFormat::Json, Some(value)) => write_json(value, out)?,
            (SinkFormat::Csv, Some(value)) => self.write_csv(value, out)?,
        }
        out.push(b'\n');
        self.records += 1;
        Ok(())
    }

    fn write_csv(&mut self, value: &[u8], out: &mut Vec<u8>) -> Result<(), ConnectorError> {
        let Members(members) =
            parse(value).map_err(|e| refused("is not a JSON object", value).caused_by(e).help(CSV_HELP))?;
        if let Some((name, _)) = members.iter().find(|(_, raw)| raw.get().starts_with(['{', '['])) {
            return Err(
                refused(&format!("has an object or an array in {name:?}, and CSV is flat"), value).help(CSV_HELP)
            );
        }
        let names = || members.iter().map(|(name, _)| name.as_ref());
        if self.header.is_none() {
            let mut sorted: Vec<&str> = names().collect();
            sorted.sort_unstable();
            if sorted.is_empty() || sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(refused("has no member, or two of the same name", value).help(CSV_HELP));
            }
            let single = members.len() == 1;
            for (at, name) in names().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                push_field(out, name.as_bytes(), single);
            }
            out.push(b'\n');
            self.header = Some(names().map(str::to_owned).collect());
        }
        let header = self.header.as_deref().unwrap_or_default();
        let in_order = names().eq(header.iter().map(String::as_str));
        for (at, column) in header.iter().enumerate() {
            let raw = if in_order { members.get(at) } else { members.iter().find(|(name, _)| name == column) };
            let Some((_, raw)) = raw.filter(|_| members.len() == header.len()) else {
                let list = |names: &mut dyn Iterator<Item = &str>| {
                    names.take(50).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
                };
                return Err(ConnectorError::record(format!(
                    "a record has the members {} and the header of its CSV file has {}",
                    list(&mut names()),
                    list(&mut header.iter().map(String::as_str))
                ))
                .help(
                    "let all records have the same members (null where there is nothing), or set format = \"json\"",
                ));
            };
            if at > 0 {
                out.push(b',');
            }
            let raw = raw.get();
            if raw == "null" {
                if header.len() == 1 {
                    out.extend_from_slice(b"\"\"");
                }
            } else if raw.starts_with('"') {
                let text: Text<'_> = parse(raw.as_bytes()).map_err(|e| refused("is not JSON", value).caused_by(e))?;
                push_field(out, text.0.as_bytes(), true);
            } else {
                out.extend_from_slice(raw.as_bytes());
            }
        }
        Ok(())
    }
}

const CSV_HELP: &str = "CSV needs flat JSON objects; set format = \"json\" for anything else";

fn refused(why: &str, value: &[u8]) -> ConnectorError {
    ConnectorError::record(format!("a value cannot be written: it {why}: {}", excerpt(value, EXCERPT_BYTES_MAX)))
}

fn write_json(value: &[u8], out: &mut Vec<u8>) -> Result<(), ConnectorError> {
    let help = "set format = \"lines\" for values that are not JSON";
    let text = std::str::from_utf8(value).map_err(|e| refused("is not UTF-8", value).caused_by(e).help(help))?;
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map_err(|e| refused("is not JSON", value).caused_by(e).help(help))?;
    if memchr::memchr(b'\n', value).is_some() {
        push_compact(out, value);
    } else {
        out.extend_from_slice(value);
    }
    Ok(())
}

/// A field, quoted where it must be; an empty one too if `quote_empty`.
fn push_field(out: &mut Vec<u8>, field: &[u8], quote_empty: bool) {
    let plain = !field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'));
    if plain && (!field.is_empty() || !quote_empty) {
        out.extend_from_slice(field);
        return;
    }
    out.push(b'"');
    for byte in field {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json)
}

/// The members of an object in their order, names unescaped, values as they are written.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// A string, borrowed where nothing in it is escaped.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;
        impl<'de> Visitor<'de> for One {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(One)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(format: SinkFormat, values: &[Option<&str>]) -> Result<String, ConnectorError> {
        let mut encoder = Encoder::new(format);
        let mut out = Vec::new();
        for value in values {
            encoder.write(value.map(str::as_bytes), &mut out)?;
        }
        assert_eq!(encoder.records + encoder.skipped, values.len() as u64);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn lines_are_values_as_they_are_and_one_value_is_one_line() {
        assert_eq!(encode(SinkFormat::Lines, &[Some("a"), None, Some("")]).unwrap(), "a\n\n");
        let error = encode(SinkFormat::Lines, &[Some("a\nb")]).unwrap_err();
        assert!(error.message.contains("a\\nb") && error.help.is_some_and(|help| help.contains("json")));
    }

    #[test]
    fn json_stays_as_it_is_written_unless_it_spans_lines() {
        let values =
            [Some(" {\"a\": 1.50}"), None, Some("{\n  \"a b\": \"x\\n \\\" y\",\r\n\"n\": 10000000000000000000001\n}")];
        assert_eq!(
            encode(SinkFormat::Json, &values).unwrap(),
            " {\"a\": 1.50}\nnull\n{\"a b\":\"x\\n \\\" y\",\"n\":10000000000000000000001}\n"
        );
        for bad in ["", "{", "{} {}", "tru"] {
            assert!(encode(SinkFormat::Json, &[Some(bad)]).is_err(), "{bad}");
        }
    }

    #[test]
    fn csv_has_one_header_and_quotes_what_it_must() {
        let values = [
            Some(r#"{"a":1.0,"b, c":"x"}"#),
            Some(r#"{"b, c":"say \"hi\"\n","a":null}"#),
            None,
            Some(r#"{"a":true,"b, c":""}"#),
        ];
        assert_eq!(encode(SinkFormat::Csv, &values).unwrap(), "a,\"b, c\"\n1.0,x\n,\"say \"\"hi\"\"\n\"\ntrue,\"\"\n");
        assert_eq!(encode(SinkFormat::Csv, &[Some(r#"{"a":null}"#)]).unwrap(), "a\n\"\"\n");
    }

    #[test]
    fn csv_refuses_what_does_not_fit_under_the_header_by_name() {
        for other in [r#"{"a":1,"c":2}"#, r#"{"a":1}"#, r#"{"a":1,"b":2,"c":3}"#, r#"{"a":1,"a":2}"#] {
            let error = encode(SinkFormat::Csv, &[Some(r#"{"a":1,"b":2}"#), Some(other)]).unwrap_err();
            assert!(error.message.contains("\"a\", \"b\""), "{other}: {}", error.message);
        }
        for bad in ["{}", "[]", "1", r#"{"a":{}}"#, r#"{"a":1,"a":2}"#, "x"] {
            assert!(encode(SinkFormat::Csv, &[Some(bad)]).is_err(), "{bad}");
        }
    }
}
