//! A tenant: what it may use, what it may see of the world outside, and who may speak for it.
//!
//! Plain values, and pure decisions over them. [`TenantRecord`] is what the store keeps of a tenant, a revision for each change;
//! [`admit`] holds a pipeline against it; [`Token`] says who asks. Nothing here runs a job, reads a file or listens: `serve` does,
//! and passes the numbers on to those who enforce them while a job runs.

mod admit;
mod grants;
mod quota;
mod record;
mod signature;
mod token;

pub use admit::admit;
pub use grants::{HttpGrant, ObjectGrant, Taken, TenantGrants};
pub use quota::{QuotaRefusal, Quotas};
pub use record::{PluginRecord, RECORD_FORMAT, ServerRecord, TenantRecord};
pub(crate) use record::{read as read_record, write as write_record};
pub use signature::{SignatureFault, check_key, check_signature, sign};
pub use token::{Role, Token, TokenFault, TokenRecord};
