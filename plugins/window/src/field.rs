//! One number in a JSON document, found by a JSON pointer (RFC 6901) without building the document.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use weir_sdk::json;

/// A parsed JSON pointer.
#[derive(Clone, Debug)]
pub(crate) struct Pointer {
    text: String,
    steps: Vec<String>,
}

impl Pointer {
    /// Parses a pointer such as `/delay`; the empty one is the whole document.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(format!("field {text:?} does not begin with a slash; write \"/{text}\""));
        }
        let tilde_is_escape = |step: &str| step.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        if !text.split('/').all(tilde_is_escape) {
            return Err(format!("field {text:?} has a ~ that is not ~0 (a tilde) or ~1 (a slash)"));
        }
        let steps = text.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        Ok(Self { text: text.into(), steps })
    }

    /// The number in a record's value; none where the record has no value, or there is nothing or `null` at the field.
    ///
    /// # Errors
    ///
    /// The reason to reject the record: its value is not JSON, or something else than a number is there.
    pub(crate) fn number(&self, value: Option<&[u8]>) -> Result<Option<f64>, String> {
        let Some(value) = value else { return Ok(None) };
        match json::read_with(value, Descend(&self.steps)) {
            Ok(Found::Nothing) => Ok(None),
            Ok(Found::Number(number)) => Ok(Some(number)),
            Ok(Found::Other(what)) => Err(format!("at {:?} is {what}, not a number", self.text)),
            Err(error) => Err(format!("the value is not JSON: {error}")),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Found {
    Nothing,
    Number(f64),
    Other(&'static str),
}

/// Goes down one step at a time. Where a name stands twice in an object, the last one counts, as in most parsers.
struct Descend<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Descend<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Found, D::Error> {
        parser.deserialize_any(self)
    }
}

impl Descend<'_> {
    /// What a scalar is: the value, if this is where the pointer ends.
    fn scalar(&self, found: Found) -> Found {
        if self.0.is_empty() { found } else { Found::Nothing }
    }
}

impl<'de> Visitor<'de> for Descend<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut found = if self.0.is_empty() { Found::Other("an object") } else { Found::Nothing };
        while let Some(here) = map.next_key_seed(NameIs(self.0.first().map(String::as_str)))? {
            if here {
                found = map.next_value_seed(Descend(&self.0[1..]))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Found, A::Error> {
        let wanted = match self.0.first().map(String::as_str) {
            None => None,
            Some("0") => Some(0),
            Some(step) if step.starts_with(['0', '+']) => None,
            Some(step) => step.parse::<usize>().ok(),
        };
        let mut found = if self.0.is_empty() { Found::Other("an array") } else { Found::Nothing };
        for at in 0_usize.. {
            if Some(at) == wanted {
                match seq.next_element_seed(Descend(&self.0[1..]))? {
                    Some(value) => found = value,
                    None => break,
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_f64<E>(self, number: f64) -> Result<Found, E> {
        Ok(self.scalar(Found::Number(number)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Found, E> {
        Ok(self.scalar(Found::Number(number as f64)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Found, E> {
        Ok(self.scalar(Found::Number(number as f64)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
        Ok(self.scalar(Found::Other("a boolean")))
    }

    fn visit_str<E>(self, _: &str) -> Result<Found, E> {
        Ok(self.scalar(Found::Other("a string")))
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(Found::Nothing)
    }
}

/// Compares an object's name without keeping it.
struct NameIs<'p>(Option<&'p str>);

impl<'de> DeserializeSeed<'de> for NameIs<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<bool, D::Error> {
        parser.deserialize_str(self)
    }
}

impl Visitor<'_> for NameIs<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(Some(name) == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(pointer: &str, value: &str) -> Result<Option<f64>, String> {
        Pointer::parse(pointer)?.number(Some(value.as_bytes()))
    }

    #[test]
    fn numbers_are_found_where_the_pointer_points() {
        let value = r#"{"a":{"b":[10,{"c":-2.5e3},null,true]},"m~n":1,"s/t":2,"a2":"x","":7}"#;
        for (pointer, found) in [
            ("/a/b/0", Some(10.0)),
            ("/a/b/1/c", Some(-2500.0)),
            ("/a/b/2", None),
            ("/a/b/9", None),
            ("/a/b/00", None),
            ("/a/b/0/x", None),
            ("/nope", None),
            ("/a2/x", None),
            ("/m~0n", Some(1.0)),
            ("/s~1t", Some(2.0)),
            ("/", Some(7.0)),
        ] {
            assert_eq!(number(pointer, value), Ok(found), "{pointer}");
        }
        assert_eq!(number("", "4"), Ok(Some(4.0)));
        assert_eq!(number("/a", r#"{"a":1,"a":2}"#), Ok(Some(2.0)), "the last one counts");
        assert_eq!(Pointer::parse("/a").unwrap().number(None), Ok(None), "a tombstone has no number");
    }

    #[test]
    fn what_is_no_number_is_named() {
        for (value, part) in [
            (r#"{"a":"NA"}"#, "a string"),
            (r#"{"a":true}"#, "a boolean"),
            (r#"{"a":[1]}"#, "an array"),
            (r#"{"a":{}}"#, "an object"),
            ("", "not JSON"),
            (r#"{"a":1"#, "not JSON"),
            (r#"{"a":1} x"#, "not JSON"),
            ("\u{fffd}", "not JSON"),
        ] {
            let refused = number("/a", value).expect_err(value);
            assert!(refused.contains(part), "{value}: {refused}");
        }
    }

    #[test]
    fn pointers_that_are_none_are_refused() {
        assert!(Pointer::parse("/a~2").is_err() && Pointer::parse("/a~").is_err() && Pointer::parse("a").is_err());
        assert!(Pointer::parse("/a~0~1").is_ok());
    }
}
