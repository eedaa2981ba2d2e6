//! Object stores by their URLs: what a URL and its options mean, and how long a request may take.
//!
//! In goes a URL (`file://`, `s3://`, `gs://`, `az://`) and options that are no secrets; out comes a store whose names start at
//! the URL's path, opened so that the protocols above it can rest on it: durable writes on a local disk, create-if-absent
//! switched on, every request bounded in time and repeated a bounded number of times. Credentials come from the environment
//! alone, and nothing here prints them: a store shows itself by its URL.
//!
//! Whether a store keeps its promises is not asked here: see [`Store::probe`](crate::checkpoint::Store::probe).

mod budget;
mod local;
mod options;
mod url;

use std::fmt;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::account::Account;
use budget::Budgeted;
pub(crate) use local::LocalRoot;
pub use options::StoreOptions;
pub use url::{Scheme, StoreUrl};

/// How long a connection to a store may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one request to a store may take, with its bytes, where `request_timeout` is not set.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a request is repeated below the protocols, which repeat it again where that is safe.
pub const RETRIES_MAX: usize = 4;
/// After this no request is repeated any more.
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
const BACKOFF: BackoffConfig =
    BackoffConfig { init_backoff: Duration::from_millis(50), max_backoff: Duration::from_secs(2), base: 2.0 };

/// What is wrong with the address or an option of a store, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct StoreFault {
    /// A clause whose subject is the address: "has no bucket".
    pub fault: String,
    /// The remedy.
    pub help: String,
    /// What was written may be a secret: it is not to be shown.
    pub secret: bool,
}

impl StoreFault {
    fn new(fault: impl Into<String>, help: impl Into<String>) -> Self {
        Self { fault: fault.into(), help: help.into(), secret: false }
    }

    fn secret(self) -> Self {
        Self { secret: true, ..self }
    }
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address or an option cannot be used.
    #[error(transparent)]
    Fault(#[from] StoreFault),
    /// The folder of a `file://` store cannot be made or opened.
    #[error("cannot open the folder")]
    Folder(#[source] std::io::Error),
    /// The client of a remote store cannot be made: mostly credentials that do not decode.
    #[error("cannot make a client")]
    Client(#[source] object_store::Error),
}

/// A store that was opened. Cheap to clone.
#[derive(Clone)]
pub struct Opened {
    /// Its names start at the path of the URL.
    pub objects: Arc<dyn ObjectStore>,
    /// Where it is on this machine, if it is: what a folder needs to be durable goes through this.
    pub(crate) local: Option<LocalRoot>,
    /// The URL, for messages.
    pub name: Arc<str>,
    /// An account pays for its use.
    pub(crate) is_paid_for: bool,
}

impl fmt::Debug for Opened {
    /// By its URL alone: a client's own form shows keys for some stores.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Opened").field(&self.name).finish()
    }
}

impl Opened {
    /// Any implementation, which has to be durable when it says so and consistent in its listings.
    pub fn of(objects: Arc<dyn ObjectStore>) -> Self {
        let name = objects.to_string().into();
        Self { objects, local: None, name, is_paid_for: false }
    }
}

impl Opened {
    /// The same store, whose use an account pays for: see its limits. One that is under an account stays under it.
    #[must_use]
    pub fn under(self, account: &Account) -> Self {
        if self.is_paid_for {
            return self;
        }
        Self { objects: Arc::new(Budgeted::new(self.objects, account.clone())), is_paid_for: true, ..self }
    }
}

/// Opens the store at `url`. A `file://` address is a path: absolute, or relative to `dir`; its folder is made.
///
/// What a task opens that runs under an account is [under](Opened::under) that.
///
/// Nothing is asked of a remote store: that its bucket is there, and that it may be written, shows in its first use.
///
/// # Errors
///
/// [`OpenError`]; none of them shows a secret.
pub fn open(url: &str, dir: &FsPath, options: &StoreOptions) -> Result<Opened, OpenError> {
    let opened = open_for_all(url, dir, options)?;
    Ok(match Account::current() {
        Some(account) => opened.under(&account),
        None => opened,
    })
}

fn open_for_all(url: &str, dir: &FsPath, options: &StoreOptions) -> Result<Opened, OpenError> {
    let url = StoreUrl::parse(url)?;
    options.check(url.scheme)?;
    let client = ClientOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout(options.request_timeout()?.unwrap_or(REQUEST_TIMEOUT));
    let retry = RetryConfig { backoff: BACKOFF, max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT };
    let name: Arc<str> = url.to_string().into();
    let objects: Arc<dyn ObjectStore> = match url.scheme {
        Scheme::File => {
            let (local, objects) = LocalRoot::open(&dir.join(&url.path)).map_err(OpenError::Folder)?;
            return Ok(Opened { objects: Arc::new(objects), local: Some(local), name, is_paid_for: false });
        }
        // The client's options first: what the environment and the pipeline say is put on top of them.
        Scheme::S3 => {
            let builder = AmazonS3Builder::new().with_client_options(client);
            let builder = environment::<AmazonS3ConfigKey>("AWS_").fold(builder, |b, (k, v)| b.with_config(k, v));
            let builder = options.of::<AmazonS3ConfigKey>(url.scheme).fold(builder, |b, (k, v)| b.with_config(k, v));
            let builder = builder.with_bucket_name(&url.bucket).with_retry(retry);
            // I6 rests on it, so nobody switches it off.
            let builder = builder.with_conditional_put(S3ConditionalPut::ETagMatch);
            Arc::new(builder.build().map_err(OpenError::Client)?)
        }
        Scheme::Gs => {
            let builder = GoogleCloudStorageBuilder::new().with_client_options(client);
            let builder = environment::<GoogleConfigKey>("GOOGLE_").fold(builder, |b, (k, v)| b.with_config(k, v));
            let builder = options.of::<GoogleConfigKey>(url.scheme).fold(builder, |b, (k, v)| b.with_config(k, v));
            let builder = builder.with_bucket_name(&url.bucket).with_retry(retry);
            Arc::new(builder.build().map_err(OpenError::Client)?)
        }
        Scheme::Az => {
            let builder = MicrosoftAzureBuilder::new().with_client_options(client);
            let builder = environment::<AzureConfigKey>("AZURE_").fold(builder, |b, (k, v)| b.with_config(k, v));
            let builder = options.of::<AzureConfigKey>(url.scheme).fold(builder, |b, (k, v)| b.with_config(k, v));
            let builder = builder.with_container_name(&url.bucket).with_retry(retry);
            Arc::new(builder.build().map_err(OpenError::Client)?)
        }
    };
    let prefix = Path::parse(&url.path)
        .map_err(|e| StoreFault::new(format!("has a path that cannot be used: {e}"), url::HELP))?;
    let objects = if prefix.as_ref().is_empty() { objects } else { Arc::new(PrefixStore::new(objects, prefix)) };
    Ok(Opened { objects, local: None, name, is_paid_for: false })
}

/// What the environment says to a client: variables with its prefix that it knows, as `object_store` documents them.
fn environment<K: std::str::FromStr>(prefix: &'static str) -> impl Iterator<Item = (K, String)> {
    std::env::vars_os().filter_map(move |(key, value)| {
        let key = key.to_str().filter(|key| key.starts_with(prefix))?.to_ascii_lowercase();
        Some((key.parse().ok()?, value.into_string().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_opened_shows_itself_by_its_url_and_nothing_else() {
        let options = StoreOptions::from_iter([("account", "me")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        let opened = open("az://container/a/b", FsPath::new("."), &options).unwrap();
        assert_eq!(format!("{opened:?}"), "Opened(\"az://container/a/b\")");
        assert!(opened.local.is_none());
    }
}
