//! The error that leaves the crate: few kinds, each saying what the caller can do next.
//!
//! Rooms have small enums of their own and turn them into this at their door. The message names the thing, the value
//! and the limit; `help` is the remedy; the cause is in the chain and not repeated in the text.

use std::error::Error as StdError;
use std::fmt;

/// What the caller can do about an error. Each kind has an exit code of the `weir` command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The command line, the pipeline file or the configuration of a node: change it.
    Usage,
    /// A plugin could not be found, built, compiled or opened.
    Plugin,
    /// A source, a sink or a plugin failed while the job ran, more often than its restarts allow.
    Job,
    /// What is stored cannot be used: damaged, missing, of another version or of another shape. Nothing was changed.
    State,
    /// The object store or a file system did not answer as it must.
    Store,
    /// A newer run of the same job took over. Nothing to do: that one goes on.
    Superseded,
    /// A replay did not come to what is recorded: a source has changed, or a node is not deterministic.
    Differs,
}

impl ErrorKind {
    /// The exit code of the command.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Job => 1,
            Self::Usage => 2,
            Self::Plugin => 3,
            Self::State => 4,
            Self::Store => 5,
            Self::Superseded => 6,
            Self::Differs => 7,
        }
    }
}

/// An error at the edge of the crate.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    help: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error with a message: lower case, one clause, the values that disagree.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), help: None, source: None }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The remedy, if there is one to name.
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The message and its causes in one line.
    pub fn chain(&self) -> String {
        let mut text = self.message.clone();
        let mut cause = StdError::source(self);
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        text
    }

    /// The message, its causes and the remedy, a line each: what the command prints.
    pub fn report(&self) -> String {
        let mut text = format!("error: {}", self.message);
        let mut cause = StdError::source(self);
        while let Some(error) = cause {
            text.push_str(&format!("\n  cause: {}", error.to_string().trim_end().replace('\n', "\n         ")));
            cause = error.source();
        }
        if let Some(help) = &self.help {
            text.push_str(&format!("\n  help: {help}"));
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// The result of what can fail at the edge of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
