//! What a plugin says about itself, and which part of a job an instance works on (`wit/types.wit`).

use serde::{Deserialize, Serialize};

/// What kind of state an operator has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateKind {
    /// None.
    Stateless,
    /// State of the subtask as a whole.
    Whole,
    /// State by key, which follows the key groups.
    Keyed,
}

/// An input or an output of a plugin. Its number is its place in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// By which pipelines name it.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// Of an input: records must come partitioned by key. Of an output: every record has a key.
    pub keyed: bool,
}

/// What a plugin says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its name.
    pub name: String,
    /// Its semantic version.
    pub version: String,
    /// One line for people.
    pub summary: String,
    /// At least one.
    pub inputs: Vec<Port>,
    /// May be none.
    pub outputs: Vec<Port>,
    /// What kind of state it has.
    pub state: StateKind,
    /// The version of the format that it writes.
    pub state_version: u32,
    /// The oldest format that it still reads.
    pub oldest_state_version: u32,
    /// A JSON Schema for its configuration.
    pub config_schema: Option<String>,
}

/// Which part of which job an instance works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Name of the job.
    pub job: String,
    /// Name of the node.
    pub node: String,
    /// Number of this subtask, from 0.
    pub subtask: u32,
    /// How many subtasks the node has.
    pub parallelism: u32,
    /// How many key groups the job has.
    pub key_groups: u32,
    /// This subtask's key groups.
    pub groups: std::ops::Range<u32>,
    /// The same for this subtask in every run of the job.
    pub seed: u64,
}
