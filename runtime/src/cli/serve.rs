//! `weir serve`: the host of many tenants, over HTTP.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::output::with_unit;
use super::pipeline::{cache_dir, plugin_host_for};
use super::run::{block_on, interrupted};
use crate::api::{self, Tls};
use crate::checkpoint::Store;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::plan::duration;
use crate::serve::{Fault, FaultKind, ServeOptions, Server};
use crate::storage::{Scheme, StoreUrl};
use crate::tenant::{Taken, TenantGrants, Token};

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// `weir serve`.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The URL of the store, in which everything lies: a folder, or a bucket
    #[arg(long, value_name = "URL", default_value = "file://./.weir")]
    store: String,
    /// An option of the store, as in checkpoint.store_options; may be repeated
    #[arg(long = "store-option", value_name = "KEY=VALUE", value_parser = super::inspect::parse_option)]
    store_options: Vec<(String, String)>,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// A certificate chain in PEM: speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen on an address of the network without TLS: only behind something that speaks it
    #[arg(long)]
    plain_http: bool,
    /// One tenant, `default`, without tokens, for programs of this machine only
    #[arg(long, conflicts_with_all = ["reset_admin_token", "tls_cert", "plain_http"])]
    dev: bool,
    /// With --dev: the directory in which `file` sources and sinks work
    #[arg(long, value_name = "DIR", requires = "dev")]
    directory: Option<PathBuf>,
    /// Where the first token of an admin is put, when the store is served for the first time
    #[arg(long, value_name = "FILE", default_value = "weir-admin-token")]
    admin_token_file: PathBuf,
    /// Make a new token of an admin, and take all other tokens of the server back
    #[arg(long)]
    reset_admin_token: bool,
    /// How long jobs may take for their last checkpoints when the server stops
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    grace: Duration,
    /// How many instances of plugins may live at once
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    instances: u32,
    /// Linear memory of all plugins together, such as 8GiB; beyond it the instance of whoever is most over their share ends [default: three quarters of
    /// the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    plugin_memory: Option<u64>,
    /// How logs are written
    #[arg(long, value_enum, default_value_t)]
    pub(super) log_format: LogFormat,
}

impl ServeArgs {
    pub(super) fn run(self) -> Result<(), Error> {
        self.check_address()?;
        block_on(self.serve())
    }

    /// Tokens in plain text are for everybody who listens.
    fn check_address(&self) -> Result<(), Error> {
        let is_local = self.listen.ip().is_loopback();
        if self.dev && !is_local {
            let message = format!("--dev is for programs of this machine, and {} is for others, too", self.listen);
            return Err(
                Error::new(ErrorKind::Usage, message).help("leave --listen out, or serve with tokens, without --dev")
            );
        }
        if !is_local && self.tls_cert.is_none() && !self.plain_http {
            let message =
                format!("{} is for others, too, and tokens would go over the network in plain text", self.listen);
            return Err(Error::new(ErrorKind::Usage, message)
                .help("give --tls-cert and --tls-key; or --plain-http, if something before it speaks TLS"));
        }
        Ok(())
    }

    async fn serve(self) -> Result<(), Error> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(Tls { certificate: certificate.clone(), key: key.clone() }),
            _ => None,
        };
        let listening = api::listen(self.listen, tls.as_ref()).await?;
        let dir = std::env::current_dir()
            .map_err(|e| Error::new(ErrorKind::Usage, "the working directory cannot be read").caused_by(e))?;
        let store_options = self.store_options.iter().cloned().collect();
        let store = Store::open_with(&self.store, &dir, &store_options)?;
        let mut taken = Taken { directories: cache_dir().into_iter().collect(), ..Taken::default() };
        match StoreUrl::parse(&self.store).ok() {
            Some(url) if url.scheme == Scheme::File => taken.directories.push(dir.join(&url.path)),
            url => taken.store = url,
        }
        taken.directories.extend([&self.tls_cert, &self.tls_key].into_iter().flatten().map(|file| dir.join(file)));
        if !self.dev {
            taken.directories.push(dir.join(&self.admin_token_file));
        }
        let directory = self.directory.as_ref().map(|directory| dir.join(directory));
        let dev = self.dev.then(|| TenantGrants { directory, clock: true, random: true, ..TenantGrants::default() });
        let options = ServeOptions {
            store,
            host: plugin_host_for(self.instances, self.plugin_memory.or_else(most_memory))?,
            clock: Clock::system(),
            dev,
            taken,
        };
        let file = self.admin_token_file.clone();
        let server = Server::open(options, self.reset_admin_token, |token| keep(&file, token)).await.map_err(error)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let jobs: usize = server.tenants().iter().map(|tenant| tenant.jobs().len()).sum();
        tracing::info!(
            tenants = server.tenants().len(),
            jobs,
            "serving {} on {scheme}://{}",
            shown(&self.store),
            listening.address
        );
        let (stopper, stop) = tokio::sync::watch::channel(false);
        let served = tokio::spawn(api::serve(listening, api::router(server.clone()), stop));
        interrupted().await?;
        tracing::info!("stopping: every job takes a last checkpoint; interrupt again to stop at once");
        let given_up = tokio::select! {
            given_up = server.close(self.grace) => given_up,
            again = interrupted() => {
                again?;
                return Err(Error::new(ErrorKind::Job, "interrupted again before every job had its last checkpoint")
                    .help("nothing is lost: the next server goes on from the last complete checkpoints"));
            }
        };
        stopper.send_replace(true);
        let _ = served.await;
        if given_up > 0 {
            return Err(Error::new(
                ErrorKind::Job,
                format!("{given_up} jobs had no last checkpoint within {:?}", self.grace),
            )
            .help("nothing is lost: the next server goes on from the last complete ones; a longer --grace may help"));
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// A number of bytes.
fn size(text: &str) -> Result<u64, String> {
    let found = with_unit(text).or_else(|| text.trim().parse().ok());
    found
        .filter(|&bytes| bytes >= 64 << 10)
        .ok_or_else(|| "write a size from 64KiB on, such as 512MiB or 8GiB".to_owned())
}

/// Three quarters of what this process may use: of the machine's memory, or of what its control group allows.
fn most_memory() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    let most = machine.into_iter().chain(group).min()?;
    Some(most / 4 * 3)
}

/// An address without what may be a secret.
fn shown(store: &str) -> String {
    StoreUrl::parse(store).map_or_else(|_| "the store".into(), |url| url.to_string())
}

/// Writes the first token where only its owner can read it. What is there is replaced if it is such a token, and nothing else.
fn keep(file: &Path, token: &Token) -> Result<(), Fault> {
    let is_other = |text: &[u8]| std::str::from_utf8(text).ok().is_none_or(|text| Token::parse(text.trim()).is_err());
    let write = || {
        match read_start(file) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
            Ok(there) if is_other(&there) => {
                return Err(std::io::Error::other("there is a file of that name that is no token"));
            }
            Ok(_) => {}
        }
        let mut staged = file.as_os_str().to_owned();
        staged.push(format!(".{}", std::process::id()));
        let staged = PathBuf::from(staged);
        let written = (|| {
            let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
            writeln!(out, "{}", token.expose())?;
            out.sync_all()?;
            std::fs::rename(&staged, file)
        })();
        if written.is_err() {
            let _ = std::fs::remove_file(&staged);
        }
        written
    };
    write().map_err(|e| {
        Fault::new(FaultKind::Invalid, format!("the first token cannot be written to {}: {e}", file.display()))
            .help("name a file that can be made with --admin-token-file")
    })?;
    tracing::info!(file = %file.display(), "a token of an admin is in this file, and nowhere else");
    Ok(())
}

/// The beginning of a file, longer than a token.
fn read_start(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut start = Vec::new();
    std::fs::File::open(file)?.take(4 << 10).read_to_end(&mut start)?;
    Ok(start)
}

fn error(fault: Fault) -> Error {
    let kind = match fault.kind {
        FaultKind::Unavailable => ErrorKind::Store,
        FaultKind::Invalid => ErrorKind::Usage,
        _ => ErrorKind::State,
    };
    let error = Error::new(kind, fault.message);
    match fault.help {
        Some(help) => error.help(help),
        None => error,
    }
}
