//! `weir plugin push`, `list`, `show`, `pull`, `delete`: the plugins of a tenant on a server.

use std::path::{Path, PathBuf};

use clap::Args;

use super::jobs::confirm;
use super::{Client, RemoteArgs, segment};
use crate::cli::output::{Table, bytes, print, print_json, time};
use crate::cli::run::block_on;
use crate::error::{Error, ErrorKind};
use crate::plugin::component::COMPONENT_BYTES_MAX;
use crate::serve::{PluginView, Pushed};

/// `weir plugin push`.
#[derive(Debug, Args)]
pub(in crate::cli) struct PushArgs {
    /// The component, as `weir plugin build` writes it
    file: PathBuf,
    /// Its name on the server
    #[arg(long)]
    name: String,
    /// Its version there, as 1.2.3; it never changes
    #[arg(long)]
    version: String,
    /// Sign it with this private key (ed25519, PEM, as `openssl genpkey -algorithm ed25519` makes one)
    #[arg(long, value_name = "FILE")]
    sign: Option<PathBuf>,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir plugin list`.
#[derive(Debug, Args)]
pub(in crate::cli) struct PluginsArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir plugin show` and `delete`.
#[derive(Debug, Args)]
pub(in crate::cli) struct PluginAtArgs {
    /// The plugin
    #[arg(value_name = "NAME@VERSION")]
    plugin: String,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    /// Of delete: do not ask
    #[arg(long)]
    yes: bool,
}

/// `weir plugin pull`.
#[derive(Debug, Args)]
pub(in crate::cli) struct PullArgs {
    /// The plugin
    #[arg(value_name = "NAME@VERSION")]
    plugin: String,
    /// The file to write; there must be none
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Reads a component.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let unread = |e: std::io::Error| {
        Error::new(ErrorKind::Usage, format!("plugin {} cannot be read", path.display()))
            .help("build it with `weir plugin build`")
            .caused_by(e)
    };
    let length = std::fs::metadata(path).map_err(unread)?.len();
    if length > COMPONENT_BYTES_MAX {
        let message = format!("plugin {} has {length} bytes, and {COMPONENT_BYTES_MAX} are the most", path.display());
        return Err(Error::new(ErrorKind::Usage, message).help("build it without debug information"));
    }
    std::fs::read(path).map_err(unread)
}

/// The digest of a component in hexadecimal, and its signature with a key.
pub(super) fn sign(component: &[u8], key: Option<&Path>) -> Result<(String, Option<String>), Error> {
    let digest = blake3::hash(component);
    let Some(path) = key else { return Ok((digest.to_hex().to_string(), None)) };
    let wrong = |what: String| {
        Error::new(ErrorKind::Usage, format!("key {}: {what}", path.display()))
            .help("make one with `openssl genpkey -algorithm ed25519 -out KEY.pem`")
    };
    let pem = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let (signature, _) = crate::tenant::sign(&pem, digest.as_bytes()).map_err(|e| wrong(e.to_string()))?;
    Ok((digest.to_hex().to_string(), Some(signature)))
}

/// The address of `NAME@VERSION`.
fn address(client: &Client, plugin: &str, rest: &str) -> Result<String, Error> {
    let (name, version) = plugin.split_once('@').ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("{plugin:?} names no version"))
            .help("write NAME@VERSION; `weir plugin list` shows what there is")
    })?;
    client.of_tenant(&format!("/plugins/{}/{}{rest}", segment(name), segment(version)))
}

impl PushArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let component = read(&self.file)?;
            let (_, signature) = sign(&component, self.sign.as_deref())?;
            let address = address(&client, &format!("{}@{}", self.name, self.version), "")?;
            let pushed: Pushed = client.upload(&address, component, signature.as_deref()).await?;
            if self.json {
                return print_json(&pushed);
            }
            let PluginView { name, version, digest, .. } = &pushed.plugin;
            let how = if pushed.created { "is on the server" } else { "was on the server already" };
            print(format_args!("{name}@{version} {how}: blake3:{digest}\n"))
        })
    }
}

impl PluginsArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let plugins: Vec<PluginView> = client.get(&client.of_tenant("/plugins")?).await?;
            if self.json {
                return print_json(&plugins);
            }
            if plugins.is_empty() {
                eprintln!("tenant {:?} has no plugin", client.tenant()?);
                return Ok(());
            }
            let mut table = Table::new(&["plugin", "version", ">size", "signed", "pushed", "used by"]);
            for plugin in plugins {
                table.row(vec![
                    plugin.name,
                    plugin.version,
                    bytes(plugin.bytes),
                    if plugin.signed { "yes" } else { "no" }.into(),
                    time(plugin.pushed_at),
                    plugin.used_by.join(", "),
                ]);
            }
            print(table)
        })
    }
}

impl PluginAtArgs {
    pub(in crate::cli) fn show(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let plugin: PluginView = client.get(&address(&client, &self.plugin, "")?).await?;
            if self.json {
                return print_json(&plugin);
            }
            let users = if plugin.used_by.is_empty() { "no job".to_owned() } else { plugin.used_by.join(", ") };
            print(format_args!(
                "{}@{}\n  digest            blake3:{}\n  size              {}\n  world             {}\n  calls itself      {}\n  imports           {}\n  pushed            {} by {}\n  signed            {}\n  used by           {users}\n",
                plugin.name,
                plugin.version,
                plugin.digest,
                bytes(plugin.bytes),
                plugin.world,
                plugin.describes_itself,
                plugin.imports.join(", "),
                time(plugin.pushed_at),
                plugin.pushed_by,
                if plugin.signed { "yes" } else { "no" },
            ))
        })
    }

    pub(in crate::cli) fn delete(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let address = address(&client, &self.plugin, "")?;
            confirm(&format!("plugin {} of tenant {}", self.plugin, client.tenant()?), self.yes)?;
            client.delete(&address).await?;
            print(format_args!("plugin {} is deleted\n", self.plugin))
        })
    }
}

impl PullArgs {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            let client = self.remote.client()?;
            let view: PluginView = client.get(&address(&client, &self.plugin, "")?).await?;
            let component = client.download(&address(&client, &self.plugin, "/content")?).await?;
            let is = blake3::hash(&component).to_hex();
            if is.as_str() != view.digest {
                let message = format!("what came has the digest {is}, and {} was expected", view.digest);
                return Err(Error::new(ErrorKind::State, message).help("ask again"));
            }
            let write = || {
                let mut out = std::fs::OpenOptions::new().write(true).create_new(true).open(&self.output)?;
                std::io::Write::write_all(&mut out, &component)
            };
            write().map_err(|e| {
                Error::new(ErrorKind::Usage, format!("{} cannot be written", self.output.display()))
                    .help("name a file that is not there")
                    .caused_by(e)
            })?;
            print(format_args!("{} is in {}\n", self.plugin, self.output.display()))
        })
    }
}
