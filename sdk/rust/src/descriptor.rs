//! Says what a plugin is, port by port.

use crate::bindings::types;

pub use types::StateKind;

/// What a plugin says about itself, made step by step:
///
/// ```
/// use weir_sdk::{Descriptor, StateKind};
///
/// let descriptor = Descriptor::new("count", "1.0.0")
///     .summary("Counts records by key.")
///     .keyed_input("in", "what is counted")
///     .keyed_output("out", "the count so far, one record for each that came in")
///     .state(StateKind::Keyed, 1);
/// # let _ = descriptor;
/// ```
#[derive(Clone, Debug)]
pub struct Descriptor(types::Descriptor);

impl Descriptor {
    /// A plugin without ports and without state. Name: 1 to 63 lower-case letters, digits and hyphens. Version: semantic, usually
    /// `env!("CARGO_PKG_VERSION")`.
    pub fn new(name: &str, version: &str) -> Self {
        Self(types::Descriptor {
            name: name.into(),
            version: version.into(),
            summary: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            state: StateKind::Stateless,
            state_version: 0,
            oldest_state_version: 0,
            config_schema: None,
            attributes: Vec::new(),
        })
    }

    /// One line for people.
    #[must_use]
    pub fn summary(mut self, summary: &str) -> Self {
        self.0.summary = summary.into();
        self
    }

    /// Adds an input port; the first is number 0.
    #[must_use]
    pub fn input(mut self, name: &str, summary: &str) -> Self {
        self.0.inputs.push(port(name, summary, false));
        self
    }

    /// Adds an input port whose records come partitioned by key, with hashes.
    #[must_use]
    pub fn keyed_input(mut self, name: &str, summary: &str) -> Self {
        self.0.inputs.push(port(name, summary, true));
        self
    }

    /// Adds an output port; the first is number 0.
    #[must_use]
    pub fn output(mut self, name: &str, summary: &str) -> Self {
        self.0.outputs.push(port(name, summary, false));
        self
    }

    /// Adds an output port on which every record has a key.
    #[must_use]
    pub fn keyed_output(mut self, name: &str, summary: &str) -> Self {
        self.0.outputs.push(port(name, summary, true));
        self
    }

    /// What kind of state it has, and the version of the format it is written in.
    #[must_use]
    pub fn state(mut self, kind: StateKind, version: u32) -> Self {
        self.0.state = kind;
        self.0.state_version = version;
        self.0.oldest_state_version = version;
        self
    }

    /// The oldest state version that it still reads; at most the version that it writes, which is also the default.
    #[must_use]
    pub fn oldest_state(mut self, version: u32) -> Self {
        self.0.oldest_state_version = version;
        self
    }

    /// A JSON Schema (2020-12) for the configuration, at most 64 KiB.
    #[must_use]
    pub fn config_schema(mut self, schema: &str) -> Self {
        self.0.config_schema = Some(schema.into());
        self
    }

    /// Another named fact.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: &str) -> Self {
        self.0.attributes.push(types::Attribute { name: name.into(), value: value.into() });
        self
    }

    #[doc(hidden)]
    pub fn into_wit(self) -> types::Descriptor {
        self.0
    }
}

fn port(name: &str, summary: &str, keyed: bool) -> types::Port {
    types::Port { name: name.into(), summary: summary.into(), keyed }
}
