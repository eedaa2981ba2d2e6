//! What a plugin says about itself, checked: nothing of it is believed to be short, well-formed or unique.

use std::collections::HashSet;

use super::bindings::types;
use super::limits::clean;
use crate::model::{Descriptor, Port, StateKind, name_fault};

/// Input ports, and output ports.
pub(super) const PORTS_MAX: usize = 64;

/// A configuration schema, in bytes.
pub(super) const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// A summary is cut at this many bytes.
const SUMMARY_BYTES_MAX: usize = 1 << 10;

/// A version, in bytes.
const VERSION_BYTES_MAX: usize = 128;

/// The output port that a pipeline reads rejected records from; the host's own.
const REJECTED: &str = "rejected";

/// Turns what `describe` returned into a descriptor that the rest of the runtime relies on.
///
/// # Errors
///
/// The first rule that is broken, with the value.
pub(super) fn check(said: types::Descriptor) -> Result<Descriptor, String> {
    let name = name("name of the plugin", said.name)?;
    if said.version.len() > VERSION_BYTES_MAX || semver::Version::parse(&said.version).is_err() {
        return Err(format!("version {:?} is not a semantic version such as 1.0.0", clean(&said.version, 64)));
    }
    if said.inputs.is_empty() {
        return Err("it has no input port".to_owned());
    }
    let inputs = ports("input", said.inputs)?;
    let outputs = ports("output", said.outputs)?;
    if outputs.iter().any(|port| port.name == REJECTED) {
        return Err(format!("an output port is called {REJECTED:?}, which is where rejected records go"));
    }
    if said.oldest_state_version > said.state_version {
        return Err(format!(
            "oldest-state-version {} is after state-version {}",
            said.oldest_state_version, said.state_version
        ));
    }
    if let Some(schema) = &said.config_schema {
        let bytes = schema.len();
        if bytes > SCHEMA_BYTES_MAX {
            return Err(format!("config-schema has {bytes} bytes, more than {SCHEMA_BYTES_MAX}"));
        }
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(schema) {
            return Err(format!("config-schema is not JSON: {error}"));
        }
    }
    Ok(Descriptor {
        name,
        version: said.version,
        summary: clean(&said.summary, SUMMARY_BYTES_MAX),
        inputs,
        outputs,
        state: match said.state {
            types::StateKind::Stateless => StateKind::Stateless,
            types::StateKind::Whole => StateKind::Whole,
            types::StateKind::Keyed => StateKind::Keyed,
        },
        state_version: said.state_version,
        oldest_state_version: said.oldest_state_version,
        config_schema: said.config_schema,
    })
}

fn name(what: &str, name: String) -> Result<String, String> {
    match name_fault(&name) {
        None => Ok(name),
        Some(fault) => Err(format!("{what} {:?} {fault}", clean(&name, 64))),
    }
}

fn ports(kind: &str, said: Vec<types::Port>) -> Result<Vec<Port>, String> {
    if said.len() > PORTS_MAX {
        return Err(format!("it has {} {kind} ports, more than {PORTS_MAX}", said.len()));
    }
    let mut seen = HashSet::new();
    let mut ports = Vec::with_capacity(said.len());
    for port in said {
        let name = name(&format!("name of {kind} port {}", ports.len()), port.name)?;
        if !seen.insert(name.clone()) {
            return Err(format!("two {kind} ports are called {name:?}"));
        }
        ports.push(Port { name, summary: clean(&port.summary, SUMMARY_BYTES_MAX), keyed: port.keyed });
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> types::Port {
        types::Port { name: name.to_owned(), summary: String::new(), keyed: false }
    }

    fn good() -> types::Descriptor {
        types::Descriptor {
            name: "count".to_owned(),
            version: "1.2.3-rc.1".to_owned(),
            summary: String::new(),
            inputs: vec![port("in")],
            outputs: Vec::new(),
            state: types::StateKind::Keyed,
            state_version: 2,
            oldest_state_version: 1,
            config_schema: Some("{}".to_owned()),
            attributes: Vec::new(),
        }
    }

    #[test]
    fn a_good_descriptor_is_taken_as_it_is() {
        let descriptor = check(good()).expect("it is good");
        assert_eq!((descriptor.name.as_str(), descriptor.version.as_str()), ("count", "1.2.3-rc.1"));
        assert_eq!(descriptor.state, StateKind::Keyed);
    }

    #[test]
    fn each_rule_that_is_broken_is_named() {
        type Spoil = fn(&mut types::Descriptor);
        let cases: [(&str, Spoil); 11] = [
            ("lower-case letters", |d| d.name = "Count".to_owned()),
            ("longer than 63", |d| d.name = "a".repeat(64)),
            ("semantic version", |d| d.version = "1.0".to_owned()),
            ("no input port", |d| d.inputs.clear()),
            ("65 input ports", |d| d.inputs = (0..65).map(|i| port(&format!("in-{i}"))).collect()),
            ("two output ports", |d| d.outputs = vec![port("out"), port("out")]),
            ("name of output port 0", |d| d.outputs = vec![port("a/b")]),
            ("where rejected records go", |d| d.outputs = vec![port("rejected")]),
            ("is after state-version 2", |d| d.oldest_state_version = 3),
            ("is not JSON", |d| d.config_schema = Some("{".to_owned())),
            ("more than 262144", |d| d.config_schema = Some(" ".repeat(SCHEMA_BYTES_MAX + 1))),
        ];
        for (part, spoil) in cases {
            let mut said = good();
            spoil(&mut said);
            let error = check(said).expect_err(part);
            assert!(error.contains(part), "{error:?} should say {part:?}");
        }
    }
}
