//! JSON by serde: the configuration, and values of records (see [`crate::Record::json`] and [`crate::BatchBuilder::push_json`]).

use serde::de::DeserializeOwned;

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
