//! Finds one value in a JSON document by a JSON pointer (RFC 6901), without building the document.
//!
//! Keys and event times are named this way in a pipeline. The whole document is checked to be JSON, everything that
//! the pointer does not pass through is skipped by the parser.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A parsed JSON pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    steps: Vec<String>,
}

/// What stands where a pointer points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// Nothing, or `null`.
    Nothing,
    /// A string, unescaped.
    Text(Cow<'a, str>),
    /// A number, a boolean, an array or an object, as it is written.
    Raw(&'a str),
}

impl<'a> Found<'a> {
    /// The bytes that stand for it as a key: of a string its text, of anything else its JSON as it is written.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Nothing => None,
            Self::Text(text) => Some(text.as_bytes()),
            Self::Raw(json) => Some(json.as_bytes()),
        }
    }
}

impl Pointer {
    /// Parses a pointer such as `/user/id`; the empty one is the whole document.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a clause.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(format!("JSON pointer {text:?} does not begin with a slash; write \"/{text}\""));
        }
        let mut steps = Vec::new();
        for step in text.split('/').skip(1) {
            let mut rest = step;
            while let Some(at) = rest.find('~') {
                rest = &rest[at + 1..];
                if !rest.starts_with(['0', '1']) {
                    return Err(format!("JSON pointer {text:?} has a ~ that is not ~0 (a tilde) or ~1 (a slash)"));
                }
            }
            steps.push(step.replace("~1", "/").replace("~0", "~"));
        }
        Ok(Self { text: text.into(), steps })
    }

    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Finds the value in `document`.
    ///
    /// # Errors
    ///
    /// If `document` is not JSON.
    pub fn find<'a>(&self, document: &'a [u8]) -> Result<Found<'a>, serde_json::Error> {
        let mut parser = serde_json::Deserializer::from_slice(document);
        let raw = Descend(&self.steps).deserialize(&mut parser)?;
        parser.end()?;
        let Some(raw) = raw.map(RawValue::get) else { return Ok(Found::Nothing) };
        match raw.as_bytes() {
            b"null" => Ok(Found::Nothing),
            [b'"', inner @ .., b'"'] if memchr::memchr(b'\\', inner).is_none() => {
                Ok(Found::Text(Cow::Borrowed(&raw[1..raw.len() - 1])))
            }
            [b'"', ..] => serde_json::from_str::<String>(raw).map(|text| Found::Text(Cow::Owned(text))),
            _ => Ok(Found::Raw(raw)),
        }
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Goes down one step at a time. Where a name stands twice in an object, the last one counts, as in most parsers.
struct Descend<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Descend<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return serde::Deserialize::deserialize(parser).map(Some);
        }
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Descend<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(matches) = map.next_key_seed(NameIs(&self.0[0]))? {
            if matches {
                found = map.next_value_seed(Descend(&self.0[1..]))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let index = match self.0[0].as_str() {
            "0" => Some(0),
            step if step.starts_with(['0', '+']) => None,
            step => step.parse::<usize>().ok(),
        };
        let mut at = 0;
        let mut found = None;
        loop {
            if Some(at) == index {
                match seq.next_element_seed(Descend(&self.0[1..]))? {
                    Some(value) => found = value,
                    None => return Ok(found),
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            at += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Compares an object's name without keeping it.
struct NameIs<'p>(&'p str);

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
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pointer: &str, document: &str) -> Result<Option<String>, String> {
        let pointer = Pointer::parse(pointer)?;
        let found = pointer.find(document.as_bytes()).map_err(|e| e.to_string())?;
        Ok(found.as_bytes().map(|b| String::from_utf8_lossy(b).into_owned()))
    }

    #[test]
    fn values_are_found_where_the_pointer_points() {
        let document = r#"{"a":{"b":[10,{"c":"x\ty"},null,true]},"m~n":1.50,"s/t":"é","a2":[[1 , 2]]}"#;
        for (pointer, value) in [
            ("/a/b/0", Some("10")),
            ("/a/b/1/c", Some("x\ty")),
            ("/a/b/2", None),
            ("/a/b/3", Some("true")),
            ("/a/b/4", None),
            ("/a/b/01", None),
            ("/a/b/-", None),
            ("/a/nope", None),
            ("/m~0n", Some("1.50")),
            ("/m~0n/deeper", None),
            ("/s~1t", Some("é")),
            ("/a2", Some("[[1 , 2]]")),
        ] {
            assert_eq!(find(pointer, document), Ok(value.map(str::to_owned)), "{pointer}");
        }
        assert_eq!(find("", "\"whole\""), Ok(Some("whole".into())));
    }

    #[test]
    fn what_is_not_json_is_an_error_wherever_it_breaks() {
        for broken in ["", "{", r#"{"a":1,}"#, r#"{"a":1} x"#, "\u{fffd}", r#"{"b":tru,"a":1}"#] {
            assert!(find("/a", broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn pointers_that_are_none_are_refused_with_the_remedy() {
        assert!(Pointer::parse("carrier").is_err_and(|e| e.contains("write \"/carrier\"")));
        assert!(Pointer::parse("/a~2").is_err());
        assert!(Pointer::parse("/a~").is_err());
    }
}
