//! What is asked of a server: which one, with which token, for which tenant.
//!
//! `--server`, `--token-file` and `--tenant` say so, or `WEIR_SERVER`, `WEIR_TOKEN` (or `WEIR_TOKEN_FILE`) and `WEIR_TENANT`. A token says whose it is, so
//! `--tenant` is for tokens of the server alone.

mod client;
mod jobs;
mod plugins;
mod tenants;

use std::path::PathBuf;

use clap::Args;

pub(super) use client::{Client, segment};
pub(super) use jobs::{DeleteArgs, DeployArgs, ListArgs, LogsArgs, RescaleArgs, StartArgs, show_job, stop};
pub(super) use plugins::{PluginAtArgs, PluginsArgs, PullArgs, PushArgs};
pub(super) use tenants::TenantCommand;

use crate::checkpoint::DEFAULT_TENANT;
use crate::error::{Error, ErrorKind};
use crate::tenant::Token;

/// Where a server listens if nothing else is said.
const SERVER: &str = "http://127.0.0.1:7400";
/// The largest file with a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 4 << 10;

/// Which server, and who asks.
#[derive(Clone, Debug, Args)]
pub(super) struct RemoteArgs {
    /// The address of the server; or WEIR_SERVER [default: http://127.0.0.1:7400]
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
    /// A file with the token; or WEIR_TOKEN_FILE, or the token itself in WEIR_TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The tenant; or WEIR_TENANT [default: the token's]
    #[arg(long, value_name = "NAME")]
    pub(super) tenant: Option<String>,
    /// A certificate in PEM to trust beside those of the system
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl RemoteArgs {
    /// Whether a server is meant, of a command that also works without one.
    pub(super) fn is_meant(&self) -> bool {
        self.server.is_some() || self.tenant.is_some() || self.token_file.is_some() || variable("WEIR_SERVER").is_some()
    }

    fn token(&self) -> Result<Option<String>, Error> {
        let file = self.token_file.clone();
        let file =
            file.or_else(|| variable("WEIR_TOKEN").is_none().then(|| variable("WEIR_TOKEN_FILE"))?.map(PathBuf::from));
        let Some(file) = file else { return Ok(variable("WEIR_TOKEN")) };
        let wrong = |what: String| {
            Error::new(ErrorKind::Usage, format!("the token cannot be read from {}: {what}", file.display()))
                .help("name a file with a token of `weir tenant token`")
        };
        let length = std::fs::metadata(&file).map_err(|e| wrong(e.to_string()))?.len();
        if length > TOKEN_BYTES_MAX {
            return Err(wrong(format!("it has {length} bytes, and no token has more than {TOKEN_BYTES_MAX}")));
        }
        let text = std::fs::read_to_string(&file).map_err(|e| wrong(e.to_string()))?;
        Ok(Some(text.trim().to_owned()))
    }

    /// Who asks the server.
    pub(super) fn client(&self) -> Result<Client, Error> {
        let token = self.token()?;
        let own = token.as_deref().and_then(|token| Token::parse(token).ok());
        let tenant = self.tenant.clone().or_else(|| variable("WEIR_TENANT"));
        let tenant = tenant.or_else(|| match (&token, own) {
            (None, _) => Some(DEFAULT_TENANT.to_owned()),
            (Some(_), own) => own.and_then(|own| own.tenant),
        });
        let server = self.server.clone().or_else(|| variable("WEIR_SERVER")).unwrap_or_else(|| SERVER.to_owned());
        Client::new(&server, token, tenant, self.ca_cert.as_deref())
    }
}
