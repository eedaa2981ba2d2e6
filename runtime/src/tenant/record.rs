//! What the store keeps of a server, of a tenant and of a plugin: JSON, strict, with a version.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Quotas, TenantGrants, TokenRecord};
use crate::model::Timestamp;

/// The version of all of them.
pub const RECORD_FORMAT: u32 = 1;

/// What a server knows of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerRecord {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// Tokens for all tenants.
    pub tokens: Vec<TokenRecord>,
}

/// What a server knows of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantRecord {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// When it was made, in microseconds since the Unix epoch.
    pub created_at: Timestamp,
    /// How much it may have.
    pub quotas: Quotas,
    /// What it may see.
    pub grants: TenantGrants,
    /// Who may speak for it.
    pub tokens: Vec<TokenRecord>,
    /// By which keys its plugins may be signed, in base64.
    #[serde(default)]
    pub keys: Vec<String>,
    /// A plugin without a signature by one of them is refused.
    #[serde(default)]
    pub require_signature: bool,
    /// It is being deleted: nothing of it runs any more.
    #[serde(default)]
    pub deleting: bool,
}

/// A name and version of a plugin. It never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginRecord {
    /// [`RECORD_FORMAT`].
    pub format: u32,
    /// The blake3 of its bytes, in hexadecimal.
    pub digest: String,
    /// Its size.
    pub bytes: u64,
    /// The world that it implements.
    pub world: String,
    /// What it says its name and version are.
    pub describes_itself: String,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
    /// When it was pushed, in microseconds since the Unix epoch.
    pub pushed_at: Timestamp,
    /// By which token.
    pub pushed_by: String,
    /// Its signature, if it has one, in base64.
    #[serde(default)]
    pub signature: Option<String>,
}

impl TenantRecord {
    /// A tenant with nothing but defaults.
    pub fn new(created_at: Timestamp) -> Self {
        Self {
            format: RECORD_FORMAT,
            created_at,
            quotas: Quotas::default(),
            grants: TenantGrants::default(),
            tokens: Vec::new(),
            keys: Vec::new(),
            require_signature: false,
            deleting: false,
        }
    }
}

/// Reads a record, or says what is wrong with it.
///
/// # Errors
///
/// What is wrong, and where.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if format != RECORD_FORMAT {
        return Err(format!(
            "it is of format {format}, and this weir reads {RECORD_FORMAT}: use the weir that wrote it"
        ));
    }
    serde_json::from_str(text).map_err(|e| e.to_string())
}

/// Writes a record.
pub(crate) fn write(record: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(record).map_err(|e| e.to_string())
}
