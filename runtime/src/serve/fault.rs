//! Why the server does not do what it was asked: what happened, for whom it is to mend, and with what.

use serde::Serialize;

use crate::checkpoint::CheckpointError;
use crate::error::{Error, ErrorKind};
use crate::job::Refusal;
use crate::model::name_fault;
use crate::plan::Diagnostics;
use crate::plugin::PluginError;
use crate::tenant::{QuotaRefusal, SignatureFault, TokenFault, write_record};

/// What the caller can do about it. Each kind has a status of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Nobody, or nobody that is known, asks: bring a token.
    Unauthenticated,
    /// The token is not good for this.
    Forbidden,
    /// There is none of that name.
    NotFound,
    /// It is there already and is another, is in use, or was changed by somebody else meanwhile.
    Conflict,
    /// What was asked makes no sense as it is written.
    Invalid,
    /// A quota of the tenant would be crossed.
    Quota,
    /// It is larger than it may be.
    TooLarge,
    /// Its body is of a type that is not taken here, or compressed.
    MediaType,
    /// It took too long to come.
    TooSlow,
    /// This address does not take this method.
    Method,
    /// The job or the plugin refuses.
    Refused,
    /// The store does not answer, or the server is about to stop: ask again later.
    Unavailable,
    /// It is ours to mend.
    Internal,
}

/// A refusal.
#[derive(Clone, Debug, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What the caller can do.
    pub kind: FaultKind,
    /// One clause.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
    /// More lines, such as all that is wrong with a pipeline, each at its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

impl Fault {
    /// A refusal of a kind.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), help: None, details: None }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// There is none of that name.
    pub fn not_found(what: &str, name: &str, list: &str) -> Self {
        Self::new(FaultKind::NotFound, format!("there is no {what} {name:?}"))
            .help(format!("see what there is: {list}"))
    }

    /// What somebody else changed meanwhile.
    pub fn changed(what: &str) -> Self {
        Self::new(FaultKind::Conflict, format!("{what} was changed by somebody else meanwhile"))
            .help("look at it again, and repeat what is still wanted; two servers must not run on one store")
    }
}

/// How much of what somebody wrote is repeated to them, in characters.
const SHOWN: usize = 80;

/// What somebody wrote, as it is repeated to them.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Fails for what cannot be the name of a tenant, a plugin or a job.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), Fault> {
    let Some(fault) = name_fault(name) else { return Ok(()) };
    Err(Fault::new(FaultKind::Invalid, format!("{what} name {:?} {fault}", shown(name)))
        .help("use lower-case letters, digits and hyphens, at most 63"))
}

/// A record as it is written into the store.
pub(super) fn written(record: &impl Serialize) -> Result<String, Fault> {
    write_record(record)
        .map_err(|fault| Fault::new(FaultKind::Internal, format!("a record cannot be written: {fault}")))
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Usage => FaultKind::Invalid,
            ErrorKind::Store => FaultKind::Unavailable,
            ErrorKind::Superseded => FaultKind::Conflict,
            ErrorKind::Plugin | ErrorKind::Job | ErrorKind::State | ErrorKind::Differs => FaultKind::Refused,
        };
        let chain = error.chain();
        if kind == FaultKind::Unavailable {
            // Where the store lies, and how it is spoken to, is nobody's business outside.
            tracing::warn!("the store: {chain}");
            let help = error.remedy().unwrap_or("ask again later; the log of the server has the cause").to_owned();
            return Self::new(kind, error.to_string()).help(help);
        }
        // A message is one clause in one line; what a plugin has said may be more.
        let (message, rest) = chain.split_once(['\n', '\r']).map_or((chain.as_str(), None), |(m, r)| (m, Some(r)));
        let (message, details) = (message.trim_end().to_owned(), rest.map(str::to_owned));
        Self { kind, message, help: error.remedy().map(str::to_owned), details }
    }
}

impl From<CheckpointError> for Fault {
    fn from(error: CheckpointError) -> Self {
        Error::from(error).into()
    }
}

impl From<PluginError> for Fault {
    fn from(error: PluginError) -> Self {
        let kind = if matches!(error, PluginError::TooLarge { .. }) { FaultKind::TooLarge } else { FaultKind::Refused };
        Self { kind, ..Error::from(error).into() }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let kind = if refusal.code == ErrorKind::Usage.exit_code() { FaultKind::Invalid } else { FaultKind::Refused };
        Self { kind, message: refusal.message, help: refusal.help, details: None }
    }
}

impl From<QuotaRefusal> for Fault {
    fn from(refusal: QuotaRefusal) -> Self {
        Self::new(FaultKind::Quota, refusal.to_string()).help(refusal.remedy())
    }
}

impl From<SignatureFault> for Fault {
    fn from(fault: SignatureFault) -> Self {
        Self::new(FaultKind::Invalid, fault.to_string())
            .help("sign the digest of exactly these bytes with a key of the tenant: `weir plugin push --sign KEY.pem`")
    }
}

impl From<TokenFault> for Fault {
    fn from(fault: TokenFault) -> Self {
        Self::new(FaultKind::Unauthenticated, fault.to_string())
            .help("send `Authorization: Bearer TOKEN` with a token that `weir tenant token TENANT --role ROLE` made")
    }
}

impl From<Diagnostics> for Fault {
    fn from(diagnostics: Diagnostics) -> Self {
        let details = Some(diagnostics.to_string());
        Self { details, ..Self::new(FaultKind::Invalid, diagnostics.summary()).help("mend the pipeline file") }
    }
}
