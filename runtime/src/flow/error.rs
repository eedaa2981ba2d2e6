//! Why a task ended, and whether starting over can help.

use super::channel::Closed;
use super::exchange::KeyFault;
use super::inbox::InboxFault;
use crate::checkpoint::CheckpointError;
use crate::connector::{ConnectorError, ConnectorErrorKind};
use crate::error::{Error, ErrorKind};
use crate::model::TaskId;
use crate::plugin::OperatorError;

/// Why a task ended before the job did.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A neighbour has ended: not a cause, the neighbour's error is.
    #[error("a neighbouring task has ended")]
    Closed,
    /// The plugin failed.
    #[error("operator {task} failed")]
    Operator {
        /// Which subtask.
        task: TaskId,
        /// What it was given.
        while_doing: String,
        /// It was being opened or restored.
        opening: bool,
        /// Why.
        #[source]
        source: Box<OperatorError>,
    },
    /// The source or the sink failed.
    #[error("{task} failed")]
    Connector {
        /// Which subtask.
        task: TaskId,
        /// Why.
        #[source]
        source: Box<ConnectorError>,
    },
    /// The protocol between tasks was broken: a defect of weir.
    #[error("{task} got its elements out of order")]
    Inbox {
        /// Which subtask.
        task: TaskId,
        /// How.
        #[source]
        source: InboxFault,
    },
    /// A record has no key because it is not JSON.
    #[error("{task} cannot hand on a record")]
    Key {
        /// Which subtask.
        task: TaskId,
        /// Why.
        #[source]
        source: Box<KeyFault>,
    },
    /// Records were put aside and the node does not allow that.
    #[error("{task} rejected {count} records, the first because: {reason}")]
    Rejected {
        /// Which subtask.
        task: TaskId,
        /// How many.
        count: u64,
        /// Why the first.
        reason: String,
    },
    /// The task panicked: a defect of weir.
    #[error("{task} panicked, which is a defect of weir: {what}")]
    Panic {
        /// Which subtask was at the head of the task.
        task: TaskId,
        /// What the runtime says.
        what: String,
    },
    /// The store did not give back what a checkpoint holds for this task.
    #[error("the state of {task} cannot be read")]
    Unread {
        /// Which subtask.
        task: TaskId,
        /// Why.
        #[source]
        source: Box<Error>,
    },
    /// In a replay: it cannot do again what it did.
    #[error("{task} does not do again what it did: {reason}")]
    Diverged {
        /// Which subtask is at the head of the task.
        task: TaskId,
        /// What is different.
        reason: String,
    },
    /// Its next version did not take over where it was to.
    #[error("{task} was not upgraded: {reason}")]
    Upgrade {
        /// Which subtask.
        task: TaskId,
        /// Why.
        reason: String,
    },
    /// What a checkpoint holds for this task does not fit it.
    #[error("{task} cannot be restored: {reason}")]
    Restore {
        /// Which subtask.
        task: TaskId,
        /// Why.
        reason: String,
    },
}

impl From<Closed> for TaskError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl TaskError {
    pub(super) fn operator(task: &TaskId, while_doing: String, source: OperatorError) -> Self {
        Self::Operator { task: task.clone(), while_doing, opening: false, source: Box::new(source) }
    }

    pub(super) fn opening(task: &TaskId, while_doing: &str, source: OperatorError) -> Self {
        let (while_doing, source) = (while_doing.to_owned(), Box::new(source));
        Self::Operator { task: task.clone(), while_doing, opening: true, source }
    }

    pub(super) fn inbox(task: &TaskId, source: InboxFault) -> Self {
        Self::Inbox { task: task.clone(), source }
    }

    pub(super) fn key(task: &TaskId, source: KeyFault) -> Self {
        Self::Key { task: task.clone(), source: Box::new(source) }
    }

    pub(super) fn rejected(task: &TaskId, count: u64, reason: &str) -> Self {
        Self::Rejected { task: task.clone(), count, reason: reason.to_owned() }
    }

    pub(super) fn connector(task: &TaskId, source: ConnectorError) -> Self {
        Self::Connector { task: task.clone(), source: Box::new(source) }
    }

    /// The state of a task could not be had: a store that does not answer may answer later, and what is damaged stays so.
    pub(super) fn state(task: &TaskId, error: CheckpointError) -> Self {
        let reason = format!("its state cannot be read: {error}");
        let source = Error::from(error);
        match source.kind() {
            ErrorKind::Store => Self::Unread { task: task.clone(), source: Box::new(source) },
            _ => Self::Restore { task: task.clone(), reason },
        }
    }

    /// The subtask that it is about, if it is about one.
    pub fn task(&self) -> Option<&TaskId> {
        match self {
            Self::Closed => None,
            Self::Operator { task, .. }
            | Self::Connector { task, .. }
            | Self::Inbox { task, .. }
            | Self::Key { task, .. }
            | Self::Rejected { task, .. }
            | Self::Panic { task, .. }
            | Self::Unread { task, .. }
            | Self::Diverged { task, .. }
            | Self::Upgrade { task, .. }
            | Self::Restore { task, .. } => Some(task),
        }
    }

    /// Whether starting over from the last checkpoint may help. The same record would fail in the same way, and what
    /// a person has to change is not changed by waiting.
    pub fn may_pass(&self) -> bool {
        match self {
            // From any other call than these two, `invalid` is as good as `fatal`.
            Self::Operator { source, opening, .. } => {
                !(*opening && matches!(**source, OperatorError::Invalid(_) | OperatorError::Unfit(_)))
            }
            Self::Connector { source, .. } => source.kind == ConnectorErrorKind::Transient,
            Self::Closed | Self::Inbox { .. } | Self::Panic { .. } | Self::Unread { .. } | Self::Upgrade { .. } => true,
            Self::Key { .. } | Self::Rejected { .. } | Self::Restore { .. } | Self::Diverged { .. } => false,
        }
    }
}

impl From<TaskError> for Error {
    fn from(error: TaskError) -> Self {
        let message = match &error {
            TaskError::Operator { while_doing, .. } if !while_doing.is_empty() => format!("{error} {while_doing}"),
            _ => error.to_string(),
        };
        let (kind, help) = match &error {
            TaskError::Closed | TaskError::Inbox { .. } | TaskError::Panic { .. } | TaskError::Upgrade { .. } => {
                (ErrorKind::Job, None)
            }
            TaskError::Operator { source, .. } => (ErrorKind::Job, remedy(source)),
            TaskError::Connector { source, .. } => {
                let kind = match source.kind {
                    ConnectorErrorKind::Mismatch => ErrorKind::State,
                    ConnectorErrorKind::Transient | ConnectorErrorKind::Record => ErrorKind::Job,
                };
                (kind, source.help.clone())
            }
            TaskError::Key { .. } => {
                (ErrorKind::Job, Some("set on_error = \"skip\" on this input to count and skip such records".into()))
            }
            TaskError::Rejected { .. } => (
                ErrorKind::Job,
                Some(
                    "set on_reject = \"dead-letter\" on the operator and let a sink read its port \"rejected\", or \
                     on_reject = \"skip\" to count and drop such records"
                        .into(),
                ),
            ),
            TaskError::Unread { source, .. } => (source.kind(), source.remedy().map(str::to_owned)),
            TaskError::Diverged { .. } => (ErrorKind::Differs, None),
            TaskError::Restore { .. } => (
                ErrorKind::State,
                Some("run the pipeline as it was, or start anew with --fresh: nothing was changed".into()),
            ),
        };
        let mut outer = Error::new(kind, message);
        if let Some(help) = help {
            outer = outer.help(help);
        }
        match error {
            TaskError::Operator { source, .. } => outer.caused_by(with_backtrace(*source)),
            TaskError::Connector { source, .. } => outer.caused_by(source),
            TaskError::Inbox { source, .. } => outer.caused_by(source),
            TaskError::Key { source, .. } => outer.caused_by(source),
            TaskError::Unread { source, .. } => outer.caused_by(source),
            _ => outer,
        }
    }
}

/// What a person can do about a plugin that failed.
fn remedy(error: &OperatorError) -> Option<String> {
    match error {
        OperatorError::Limit { setting, .. } if !setting.is_empty() => Some(format!(
            "mend the plugin, or raise its limit in the pipeline file: limits = {{ {setting} = ... }} on the operator"
        )),
        OperatorError::Trap { .. } | OperatorError::Contract { .. } | OperatorError::Fatal(_) => {
            Some("mend the plugin: nothing that this call emitted has gone anywhere".into())
        }
        OperatorError::Quota { account, what, .. } => Some(format!(
            "make the plugin need less, or run fewer of it; whoever runs this server can raise the quota of \
             {account}: {what}"
        )),
        OperatorError::Unfit(_) => {
            Some("run the pipeline as it was when the checkpoint was taken, or start anew with --fresh".into())
        }
        OperatorError::Invalid(_) => Some("change the operator's config, or use a plugin that reads this state".into()),
        _ => None,
    }
}

/// The error in words, with the guest's frames below it.
fn with_backtrace(error: OperatorError) -> Box<dyn std::error::Error + Send + Sync> {
    match &error {
        OperatorError::Trap { backtrace, .. } if !backtrace.is_empty() => format!("{error}\n{backtrace}").into(),
        _ => error.into(),
    }
}
