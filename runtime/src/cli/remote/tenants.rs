//! `weir tenant`: who there is on a server, what they may, who speaks for them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::jobs::confirm;
use super::{RemoteArgs, segment};
use crate::cli::output::{Table, bytes, count, print, print_json, time, with_unit};
use crate::cli::run::block_on;
use crate::error::{Error, ErrorKind};
use crate::serve::{KeysView, NewToken, TenantView, TokenMade, TokenView};
use crate::tenant::{HttpGrant, ObjectGrant, Quotas, Role, TenantGrants};

/// `weir tenant`.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum TenantCommand {
    /// Make a tenant, and print the token of its first admin
    Create(CreateArgs),
    /// List tenants, with what they have
    List(ListArgs),
    /// Show a tenant: quotas, grants, keys
    Show(NameArgs),
    /// Change how much a tenant may have
    Limits(LimitsArgs),
    /// Change what a tenant may see of the world outside
    Grants(GrantsArgs),
    /// Change by which keys its plugins may be signed, and whether they must
    Keys(KeysArgs),
    /// Make, list, rotate and revoke tokens
    Token(TokenArgs),
    /// Delete a tenant with everything that it has
    Delete(DeleteArgs),
}

/// `weir tenant create`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CreateArgs {
    /// Its name: lower-case letters, digits and hyphens
    name: String,
    /// Put the token into this file, for its owner alone, instead of printing it
    #[arg(long, value_name = "FILE")]
    token_out: Option<PathBuf>,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// `weir tenant list`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir tenant show`.
#[derive(Debug, Args)]
pub(in crate::cli) struct NameArgs {
    /// The tenant
    name: String,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir tenant limits`.
#[derive(Debug, Args)]
pub(in crate::cli) struct LimitsArgs {
    /// The tenant
    name: String,
    /// A quota and its value, or `none`; may be repeated. Without it the quotas are shown
    #[arg(long, value_name = "QUOTA=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir tenant grants`.
#[derive(Debug, Args)]
pub(in crate::cli) struct GrantsArgs {
    /// The tenant
    name: String,
    /// The directory of the server in which its `file` sources and sinks work; `none` takes it away
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// A place for its `object` sinks, such as s3://bucket/path; may be repeated
    #[arg(long = "object", value_name = "URL")]
    objects: Vec<String>,
    /// Its operators may ask for a real clock
    #[arg(long)]
    clock: bool,
    /// Its operators may ask for real randomness
    #[arg(long)]
    random: bool,
    /// A value for the environment of its operators; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = crate::cli::inspect::parse_option)]
    environment: Vec<(String, String)>,
    /// A host to which its operators may send requests; may be repeated
    #[arg(long = "http", value_name = "HOST[:PORT]")]
    http: Vec<String>,
    /// The same, of a host that may be on this machine or in a private network
    #[arg(long = "http-private", value_name = "HOST[:PORT]")]
    http_private: Vec<String>,
    /// All grants as JSON from a file, instead of what there is
    #[arg(long, value_name = "FILE", conflicts_with_all = ["directory", "objects", "clock", "random", "environment", "http"])]
    file: Option<PathBuf>,
    /// Take every grant away first
    #[arg(long)]
    clear: bool,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir tenant keys`.
#[derive(Debug, Args)]
pub(in crate::cli) struct KeysArgs {
    /// The tenant
    name: String,
    /// An ed25519 public key, 32 bytes in base64, or the file of a private key in PEM whose public half is meant; may be repeated, and replaces what there is
    #[arg(long = "key", value_name = "KEY|FILE")]
    keys: Vec<String>,
    /// Refuse plugins without a signature by one of them
    #[arg(long)]
    require: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// `weir tenant token`.
#[derive(Debug, Args)]
pub(in crate::cli) struct TokenArgs {
    /// The tenant; `--server-wide` instead of it for tokens that are good for all
    #[arg(required_unless_present = "server_wide")]
    name: Option<String>,
    /// Tokens of the server instead of a tenant's
    #[arg(long, conflicts_with = "name")]
    server_wide: bool,
    /// Make one with this role
    #[arg(long, value_enum, group = "what")]
    role: Option<Role>,
    /// Take this one back, at once
    #[arg(long, value_name = "ID", group = "what")]
    revoke: Option<String>,
    /// Replace this one by another with the same role
    #[arg(long, value_name = "ID", group = "what", conflicts_with = "server_wide")]
    rotate: Option<String>,
    /// With --role: what it is for
    #[arg(long, requires = "role", default_value = "")]
    note: String,
    /// With --role: after how long it is good for nothing, such as 90d
    #[arg(long, requires = "role", value_name = "DURATION", value_parser = lifetime)]
    expires: Option<u32>,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// `weir tenant delete`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DeleteArgs {
    /// The tenant
    name: String,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// A duration in whole seconds; days are `d`.
fn lifetime(text: &str) -> Result<u32, String> {
    let seconds = match text.strip_suffix('d').map(str::parse::<u32>) {
        Some(Ok(days)) => days.checked_mul(86_400).map(u64::from),
        _ => Some(crate::plan::duration(text)?.as_secs()),
    };
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok()).filter(|&seconds| seconds > 0);
    seconds.ok_or_else(|| "write a time from 1s to 49000d".to_owned())
}

impl TenantCommand {
    pub(in crate::cli) fn run(self) -> Result<(), Error> {
        block_on(async {
            match self {
                Self::Create(args) => args.run().await,
                Self::List(args) => args.run().await,
                Self::Show(args) => args.run().await,
                Self::Limits(args) => args.run().await,
                Self::Grants(args) => args.run().await,
                Self::Keys(args) => args.run().await,
                Self::Token(args) => args.run().await,
                Self::Delete(args) => args.run().await,
            }
        })
    }
}

fn address(name: &str, rest: &str) -> String {
    format!("/v1/tenants/{}{rest}", segment(name))
}

impl CreateArgs {
    async fn run(self) -> Result<(), Error> {
        let client = self.remote.client()?;
        // Before there is a token that could not be kept.
        let out = self.token_out.as_ref().map(|path| {
            use std::os::unix::fs::OpenOptionsExt as _;
            let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            made.map_err(|e| {
                Error::new(ErrorKind::Usage, format!("{} cannot be written", path.display()))
                    .help("name a file that is not there")
                    .caused_by(e)
            })
        });
        let out = out.transpose()?;
        let created: Result<TokenMade, Error> =
            client.post("/v1/tenants", &serde_json::json!({ "name": self.name })).await;
        let made = created.inspect_err(|_| {
            if let Some(path) = &self.token_out {
                let _ = std::fs::remove_file(path);
            }
        })?;
        match out {
            None => {
                eprintln!("tenant {} is made; this is the token of its first admin, shown once:", self.name);
                print(format_args!("{}\n", made.token))
            }
            Some(mut file) => {
                use std::io::Write as _;
                writeln!(file, "{}", made.token).and_then(|()| file.sync_all()).map_err(|e| {
                    Error::new(ErrorKind::Store, "the token cannot be written")
                        .help("make another with `weir tenant token NAME --role admin`")
                        .caused_by(e)
                })?;
                print(format_args!("tenant {} is made\n", self.name))
            }
        }
    }
}

impl ListArgs {
    async fn run(self) -> Result<(), Error> {
        let tenants: Vec<TenantView> = self.remote.client()?.get("/v1/tenants").await?;
        if self.json {
            return print_json(&tenants);
        }
        let mut table = Table::new(&["tenant", ">jobs", ">to run", ">subtasks", ">plugins", "made", "note"]);
        for tenant in tenants {
            table.row(vec![
                tenant.name,
                count(tenant.jobs),
                count(tenant.jobs_wanted),
                count(tenant.subtasks),
                bytes(tenant.plugins_bytes),
                time(tenant.created_at),
                if tenant.deleting { "is being deleted" } else { "" }.into(),
            ]);
        }
        print(table)
    }
}

/// A value as a line of `name value`.
fn lines(value: &Value, indent: &str) -> String {
    let Value::Object(entries) = value else { return format!("{indent}{value}\n") };
    let width = entries.keys().map(String::len).max().unwrap_or(0);
    let line = |(name, value): (&String, &Value)| {
        let shown = match value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{indent}{name:width$}  {shown}\n")
    };
    entries.iter().map(line).collect()
}

fn show(view: &TenantView) -> Result<(), Error> {
    let value = serde_json::to_value(view)
        .map_err(|e| Error::new(ErrorKind::State, "the answer cannot be shown").caused_by(e))?;
    print(format_args!(
        "tenant {}, made {}\nquotas:\n{}grants:\n{}keys:\n{}",
        view.name,
        time(view.created_at),
        lines(&value["quotas"], "  "),
        lines(&value["grants"], "  "),
        lines(&value["keys"], "  ")
    ))
}

impl NameArgs {
    async fn run(self) -> Result<(), Error> {
        let view: TenantView = self.remote.client()?.get(&address(&self.name, "")).await?;
        if self.json { print_json(&view) } else { show(&view) }
    }
}

impl LimitsArgs {
    async fn run(self) -> Result<(), Error> {
        let client = self.remote.client()?;
        let mut view: TenantView = client.get(&address(&self.name, "")).await?;
        if !self.set.is_empty() {
            let quotas = changed(&view.quotas, &self.set)?;
            view = client.put(&address(&self.name, "/quotas"), &quotas).await?;
        }
        if self.json { print_json(&view.quotas) } else { show(&view) }
    }
}

/// Quotas with some of them changed.
fn changed(quotas: &Quotas, set: &[String]) -> Result<Quotas, Error> {
    let unreadable = |e| Error::new(ErrorKind::State, "the quotas cannot be read").caused_by(e);
    let mut value = serde_json::to_value(quotas).map_err(unreadable)?;
    for entry in set {
        let wrong = |what: String| Error::new(ErrorKind::Usage, format!("--set {entry}: {what}"));
        let (name, text) =
            entry.split_once('=').ok_or_else(|| wrong("has no =".into()).help("write it as --set jobs=200"))?;
        let Some(place) = value.get_mut(name) else {
            let names: Vec<String> = value.as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default();
            return Err(
                wrong(format!("there is no quota {name:?}")).help(format!("the quotas are {}", names.join(", ")))
            );
        };
        *place = match text {
            "none" => Value::Null,
            text => quantity(text)
                .ok_or_else(|| wrong(format!("{text:?} is no number")).help("write 200, 0.5, 64MiB or none"))?,
        };
    }
    serde_json::from_value(value).map_err(|e| {
        Error::new(ErrorKind::Usage, format!("these are no quotas: {e}")).help("`weir tenant limits NAME` shows them")
    })
}

/// A number, which may have a unit of bytes.
fn quantity(text: &str) -> Option<Value> {
    if let Some(bytes) = with_unit(text) {
        return Some(bytes.into());
    }
    serde_json::from_str(text).ok().filter(Value::is_number)
}

impl GrantsArgs {
    async fn run(self) -> Result<(), Error> {
        let client = self.remote.client()?;
        let mut view: TenantView = client.get(&address(&self.name, "")).await?;
        let before = view.grants.clone();
        let grants = match &self.file {
            Some(path) => {
                let wrong = |e: String| {
                    Error::new(ErrorKind::Usage, format!("grants {}: {e}", path.display()))
                        .help("write what `weir tenant grants NAME --json` prints")
                };
                let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
                serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?
            }
            None => self.added(if self.clear { TenantGrants::default() } else { before.clone() }),
        };
        if grants != before {
            view = client.put(&address(&self.name, "/grants"), &grants).await?;
        }
        if self.json { print_json(&view.grants) } else { show(&view) }
    }

    fn added(&self, mut grants: TenantGrants) -> TenantGrants {
        match &self.directory {
            Some(directory) if directory.as_os_str() == "none" => grants.directory = None,
            Some(directory) => grants.directory = Some(directory.clone()),
            None => {}
        }
        for url in &self.objects {
            grants.objects.retain(|grant| grant.url != *url);
            grants.objects.push(ObjectGrant { url: url.clone(), options: Default::default() });
        }
        grants.clock |= self.clock;
        grants.random |= self.random;
        grants.environment.extend(self.environment.iter().cloned());
        for (hosts, private) in [(&self.http, false), (&self.http_private, true)] {
            for host in hosts {
                grants.http.retain(|grant| grant.host != *host);
                grants.http.push(HttpGrant { host: host.clone(), private });
            }
        }
        grants
    }
}

impl KeysArgs {
    async fn run(self) -> Result<(), Error> {
        let client = self.remote.client()?;
        if self.keys.is_empty() && !self.require {
            let view: TenantView = client.get(&address(&self.name, "")).await?;
            return print_json(&view.keys);
        }
        let mut keys = Vec::new();
        for key in &self.keys {
            let path = PathBuf::from(key);
            if !path.is_file() {
                keys.push(key.clone());
                continue;
            }
            let wrong = |e: String| Error::new(ErrorKind::Usage, format!("key {}: {e}", path.display()));
            let pem = std::fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
            let (_, public) = crate::tenant::sign(&pem, &[0; 32]).map_err(|e| wrong(e.to_string()))?;
            keys.push(public);
        }
        let keys: KeysView =
            client.put(&address(&self.name, "/keys"), &KeysView { keys, required: self.require }).await?;
        print_json(&keys)
    }
}

impl TokenArgs {
    async fn run(self) -> Result<(), Error> {
        let client = self.remote.client()?;
        let base = match &self.name {
            Some(name) => address(name, "/tokens"),
            None => "/v1/tokens".to_owned(),
        };
        if let Some(role) = self.role {
            let asked = NewToken { role, note: self.note.clone(), expires_in_seconds: self.expires };
            return self.made(client.post(&base, &asked).await?);
        }
        if let Some(id) = &self.rotate {
            let made = client.post(&format!("{base}/{}/rotate", segment(id)), &serde_json::json!({})).await?;
            return self.made(made);
        }
        if let Some(id) = &self.revoke {
            client.delete(&format!("{base}/{}", segment(id))).await?;
            return print(format_args!("token {id} is good for nothing any more\n"));
        }
        let tokens: Vec<TokenView> = client.get(&base).await?;
        if self.json {
            return print_json(&tokens);
        }
        let mut table = Table::new(&["token", "role", "made", "expires", "note"]);
        for token in tokens {
            let expires = token.expires_at.map_or_else(|| "never".into(), time);
            table.row(vec![token.id, token.role.to_string(), time(token.created_at), expires, token.note]);
        }
        print(table)
    }

    fn made(&self, made: TokenMade) -> Result<(), Error> {
        if self.json {
            return print_json(&made);
        }
        eprintln!("token {} with the role {}, shown once:", made.id, made.role);
        print(format_args!("{}\n", made.token))
    }
}

impl DeleteArgs {
    async fn run(self) -> Result<(), Error> {
        let client = self.remote.client()?;
        let view: TenantView = client.get(&address(&self.name, "")).await?;
        confirm(&format!("tenant {} with {} jobs and all that they have", view.name, view.jobs), self.yes)?;
        client.delete(&address(&self.name, "")).await?;
        print(format_args!("tenant {} is deleted\n", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_set_by_name_with_units() {
        let set = |entries: &[&str]| {
            let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
            changed(&Quotas::default(), &entries)
        };
        let quotas =
            set(&["jobs=7", "memory_bytes=64MiB", "cpu_cores=0.5", "store_bytes_per_second=none"]).expect("they are");
        assert_eq!((quotas.jobs, quotas.memory_bytes, quotas.cpu_cores), (7, 64 << 20, Some(0.5)));
        for (wrong, named) in
            [("job=7", "no quota \"job\""), ("jobs", "no ="), ("jobs=many", "no number"), ("jobs=none", "no quotas")]
        {
            assert!(set(&[wrong]).expect_err(wrong).to_string().contains(named), "{wrong}");
        }
        assert_eq!(lifetime("90d"), Ok(90 * 86_400));
        assert!(lifetime("0s").is_err() && lifetime("100000d").is_err());
    }
}
