//! What a check found, in fields for programs and words for people.

use serde::Serialize;

use super::said::ShownRecord;
use super::state::StateDifference;
use crate::plugin::OperatorError;

/// One of the checks, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// It works through the input at all.
    Run,
    /// A restored instance goes on as an undisturbed one.
    Fidelity,
    /// The same again, however batches are cut and whatever time it is.
    Determinism,
    /// Other subtasks go on with its state.
    Rescale,
    /// What it uses.
    Limits,
    /// It takes what the contract allows.
    Manners,
}

impl Check {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Run, Self::Fidelity, Self::Determinism, Self::Rescale, Self::Limits, Self::Manners];

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Fidelity => "snapshot fidelity",
            Self::Determinism => "determinism",
            Self::Rescale => "rescale",
            Self::Limits => "limits",
            Self::Manners => "manners",
        }
    }
}

/// What came of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// Which.
    pub check: Check,
    /// How it went.
    pub outcome: Outcome,
    /// What was done, or why it was not, in a clause.
    pub summary: String,
    /// What is wrong, the first of each kind.
    pub findings: Vec<Finding>,
    /// What is not wrong and good to know.
    pub notes: Vec<String>,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing is wrong.
    Passed,
    /// Something is.
    Failed,
    /// It does not apply, or could not be made.
    Skipped,
}

impl Checked {
    /// Passed unless something was found.
    pub(super) fn new(check: Check, summary: impl Into<String>, findings: Vec<Finding>, notes: Vec<String>) -> Self {
        let outcome = if findings.is_empty() { Outcome::Passed } else { Outcome::Failed };
        Self { check, outcome, summary: summary.into(), findings, notes }
    }

    pub(super) fn skipped(check: Check, why: impl Into<String>) -> Self {
        Self { check, outcome: Outcome::Skipped, summary: why.into(), findings: Vec::new(), notes: Vec::new() }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Finding {
    /// Which kind, in a word or two that stay the same: for programs.
    pub kind: &'static str,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What was done differently when it showed: the cut, how batches were cut, the parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// How many records had come before the instance was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_after: Option<usize>,
    /// The output port, or `rejected`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The number of the first record on that port that differs, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<usize>,
    /// Input records that were being processed then: from and up to, numbers from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<(usize, usize)>,
    /// The call that said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The record of the undisturbed run; none where it has no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<ShownRecord>,
    /// The record of the other run; none where it has no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<ShownRecord>,
    /// Where the states differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateDifference>,
    /// The input record with which it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given: Option<ShownRecord>,
    /// What the host said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The guest's frames, innermost first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<String>,
    /// What usually causes it.
    pub hint: String,
}

impl Finding {
    pub(super) fn new(kind: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: hint.into(), ..Self::default() }
    }

    /// A call that failed.
    pub(super) fn failed(kind: &'static str, message: impl Into<String>, error: &OperatorError) -> Self {
        let backtrace = match error {
            OperatorError::Trap { backtrace, .. } if !backtrace.is_empty() => Some(backtrace.clone()),
            _ => None,
        };
        Self { error: Some(error.to_string()), backtrace, ..Self::new(kind, message, hint_for(error)) }
    }

    pub(super) fn setting(self, setting: impl Into<String>) -> Self {
        Self { setting: Some(setting.into()), ..self }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }
}

/// What usually leads to an error.
fn hint_for(error: &OperatorError) -> String {
    match error {
        OperatorError::Retry(_) => {
            "it asked for the same call again and again; a record that can never be processed is to be rejected".to_owned()
        }
        OperatorError::Invalid(_) | OperatorError::Unfit(_) => {
            "the configuration or the state is not what it expects: see --config, and whether `restore` reads all that \
             `snapshot` writes"
                .to_owned()
        }
        OperatorError::Fatal(_) => {
            "the operator gave up by itself; for a record that cannot be processed, reject it and go on".to_owned()
        }
        OperatorError::Trap { .. } => {
            "a panic, an index out of bounds, an unwrap of something that is not there: the first frames say where; \
             a record that cannot be processed is to be rejected"
                .to_owned()
        }
        OperatorError::Limit { setting, .. } if !setting.is_empty() => format!(
            "find out why it needs so much; if it has to, a pipeline raises it with limits = {{ {setting} = … }} on the operator"
        ),
        OperatorError::Quota { account, .. } => format!("nothing but the quota of {account} raises this limit"),
        OperatorError::Limit { .. } => "find out why it needs so much: nothing raises this limit".to_owned(),
        OperatorError::Contract { what, .. } if what.contains("output.emit") => {
            "the batch that it hands over breaks a rule of wit/types.wit: offsets begin with 0, do not decrease and end with the \
             length of the bytes, n + 1 for n records; null bits are one a record"
                .to_owned()
        }
        OperatorError::Contract { what, .. } if what.contains("chunks of state were read") => {
            "`restore` has to read on until `snapshots.read` gives no chunk: what is left would be lost".to_owned()
        }
        OperatorError::Contract { .. } => "see the rule in wit/, in the comment of what it called".to_owned(),
    }
}
