//! JSON by serde: the configuration, and values of records (see [`crate::Record::json`] and [`crate::BatchBuilder::push_json`]).

use serde::de::{DeserializeOwned, DeserializeSeed};

use crate::operator::Failure;

/// Parses the configuration that [`crate::Operator::open`] is given. Put `#[serde(deny_unknown_fields)]` on the type, so that a
/// typing error does not go unnoticed.
///
/// # Errors
///
/// A failure of kind `invalid` that says what is wrong and where.
pub fn config<T: DeserializeOwned>(config: &str) -> Result<T, Failure> {
    serde_json::from_str(config).map_err(|error| Failure::invalid(format!("configuration is not acceptable: {error}")))
}

/// Appends a string as JSON, with quotes.
pub fn push_text(to: &mut Vec<u8>, text: &str) {
    // Most text has nothing to escape, and is looked through faster than it is written byte by byte.
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        to.push(b'"');
        to.extend_from_slice(text.as_bytes());
        return to.push(b'"');
    }
    serde_json::to_writer(to, text).expect("a string can be written as JSON, and a Vec takes all bytes");
}

/// Appends a number as JSON. A float that is not finite, which JSON does not have, becomes `null`.
pub fn push_number(to: &mut Vec<u8>, number: impl serde::Serialize) {
    serde_json::to_writer(to, &number).expect("a number can be written as JSON, and a Vec takes all bytes");
}

/// Reads a JSON document with a seed of serde: for operators that want a part of a document without building it.
///
/// # Errors
///
/// If `document` is not JSON as a whole, or is refused by the seed.
pub fn read_with<'de, S: DeserializeSeed<'de>>(document: &'de [u8], seed: S) -> serde_json::Result<S::Value> {
    let mut parser = serde_json::Deserializer::from_slice(document);
    let value = seed.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}
