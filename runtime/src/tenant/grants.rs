//! What a tenant may see of the world outside. The default is nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::plan::HttpHost;
use crate::storage::{Scheme, StoreUrl};

/// How many entries each list may have.
const ENTRIES_MAX: usize = 1_000;
/// How long a name, a value or an address may be, in bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// What the pipelines and the operators of a tenant may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TenantGrants {
    /// A directory on the server, absolute: `file` sources and sinks may use what is below it, and nothing else. Paths in a pipeline begin
    /// there. Default none: no `file` connector.
    #[schema(value_type = Option<String>)]
    pub directory: Option<PathBuf>,
    /// Where `object` sinks may write. Default nowhere.
    pub objects: Vec<ObjectGrant>,
    /// Operators may ask for a real clock: `grants = ["clock"]`.
    pub clock: bool,
    /// Operators may ask for real randomness: `grants = ["random"]`.
    pub random: bool,
    /// Variables that operators may ask for by name, `grants = ["env:NAME"]`, with their values: shown to an admin of the server alone.
    pub environment: BTreeMap<String, String>,
    /// Hosts to which operators may ask to send requests: `grants = ["http:HOST"]`. Default none.
    pub http: Vec<HttpGrant>,
}

/// A place for `object` sinks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectGrant {
    /// `s3://BUCKET/PATH`, `gs://…` or `az://…`: everything below it. The server's credentials are used.
    pub url: String,
    /// The `options` that such a sink has to name, exactly: where the store is, and no secrets.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// A host to which operators may send requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpGrant {
    /// `HOST` or `HOST:PORT`; `*.example.com` for all below it.
    pub host: String,
    /// It may have an address of this machine or of a private network. Default no: such an address is refused, whatever its name.
    #[serde(default)]
    pub private: bool,
}

/// What no grant may touch.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Directories and files: those of the server, and what other tenants were granted.
    pub directories: Vec<PathBuf>,
    /// The server's own store, if it is in a bucket.
    pub store: Option<StoreUrl>,
    /// What other tenants were granted.
    pub objects: Vec<ObjectGrant>,
}

impl TenantGrants {
    /// Says what is wrong with them.
    ///
    /// # Errors
    ///
    /// A clause that names the entry.
    pub fn check(&self, taken: &Taken) -> Result<(), String> {
        let lengths =
            [("objects", self.objects.len()), ("environment", self.environment.len()), ("http", self.http.len())];
        for (name, entries) in lengths {
            if entries > ENTRIES_MAX {
                return Err(format!("{name} has {entries} entries, and {ENTRIES_MAX} are the most"));
            }
        }
        if let Some(directory) = &self.directory {
            check_directory(directory, &taken.directories)?;
        }
        for grant in &self.objects {
            grant.check(taken).map_err(|fault| format!("objects: {:?} {fault}", grant.url))?;
        }
        for (name, value) in &self.environment {
            if name.is_empty() || name.len() + value.len() > TEXT_BYTES_MAX || name.contains(['=', '\0']) {
                return Err(format!("environment: {name:?} is not a name of a variable, or too long with its value"));
            }
        }
        for grant in &self.http {
            grant.parse().map_err(|fault| format!("http: {:?} {fault}", grant.host))?;
        }
        Ok(())
    }

    /// Whether operators may send requests to a host.
    pub fn allows_http(&self, host: &HttpHost) -> bool {
        self.http.iter().any(|grant| grant.parse().is_ok_and(|granted| granted.covers(host)))
    }

    /// Whether an `object` sink may write to a place with these options.
    pub fn allows_object(&self, url: &StoreUrl, options: &BTreeMap<String, String>) -> bool {
        self.objects.iter().any(|grant| {
            grant.place().is_ok_and(|granted| {
                granted.scheme == url.scheme
                    && granted.bucket == url.bucket
                    && is_below(&granted.path, &url.path)
                    && grant.options == *options
            })
        })
    }
}

impl HttpGrant {
    fn parse(&self) -> Result<HttpHost, String> {
        HttpHost::parse(&self.host, self.private)
    }
}

impl ObjectGrant {
    /// Its address, taken apart.
    fn place(&self) -> Result<StoreUrl, String> {
        if self.url.len() > TEXT_BYTES_MAX {
            return Err(format!("is longer than {TEXT_BYTES_MAX} bytes"));
        }
        let url = StoreUrl::parse(&self.url).map_err(|fault| fault.fault)?;
        if url.scheme == Scheme::File {
            return Err("is a folder of the server: grant a `directory` and use the `file` sink".into());
        }
        Ok(url)
    }

    fn check(&self, taken: &Taken) -> Result<(), String> {
        let place = self.place()?;
        // Whatever the options say: those of the server may come from its environment.
        if taken.store.as_ref().is_some_and(|store| store.overlaps(&place)) {
            return Err("overlaps the store of the server, where the state of all tenants lies".into());
        }
        let is_same = |other: &&Self| {
            let at = |grant: &Self, option: &str| grant.options.get(option).cloned();
            other.place().is_ok_and(|other| other.overlaps(&place))
                && ["endpoint", "account"].iter().all(|option| at(self, option) == at(other, option))
        };
        match taken.objects.iter().find(is_same) {
            Some(other) => Err(format!("overlaps {:?}, which another tenant was granted", other.url)),
            None => Ok(()),
        }
    }
}

/// Whether a path of names lies below another, name by name, or is it.
fn is_below(above: &str, path: &str) -> bool {
    let names = |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let (above, path) = (names(above), names(path));
    path.iter().all(|name| name != ".." && name != ".") && path.starts_with(&above)
}

/// Whether a directory may be granted: absolute, there, and neither above nor below one that is not to be touched.
fn check_directory(directory: &Path, forbidden: &[PathBuf]) -> Result<(), String> {
    let shown = directory.display();
    if !directory.is_absolute() {
        return Err(format!("directory {shown} is not absolute"));
    }
    let real = directory.canonicalize().map_err(|error| format!("directory {shown} cannot be used: {error}"))?;
    if !real.is_dir() {
        return Err(format!("directory {shown} is not a directory"));
    }
    if real.parent().is_none() {
        return Err(format!("directory {shown} is the root of this machine"));
    }
    for other in forbidden {
        let other = other.canonicalize().unwrap_or_else(|_| other.clone());
        if real.starts_with(&other) || other.starts_with(&real) {
            return Err(format!(
                "directory {shown} overlaps {}, which is the server's own or another tenant's",
                other.display()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(url: &str) -> TenantGrants {
        let objects = vec![ObjectGrant { url: url.into(), options: BTreeMap::new() }];
        TenantGrants { objects, ..TenantGrants::default() }
    }

    #[test]
    fn an_object_grant_covers_what_is_below_it_and_nothing_beside_it() {
        let granted = grants("s3://bucket/a/b");
        for (url, allowed) in [
            ("s3://bucket/a/b", true),
            ("s3://bucket/a/b/c", true),
            ("s3://bucket/a/bc", false),
            ("s3://bucket/a", false),
            ("s3://other/a/b", false),
            ("gs://bucket/a/b", false),
        ] {
            let url = StoreUrl::parse(url).expect(url);
            assert_eq!(granted.allows_object(&url, &BTreeMap::new()), allowed, "{url}");
        }
        let elsewhere = [("endpoint".to_owned(), "http://elsewhere".to_owned())].into();
        assert!(!granted.allows_object(&StoreUrl::parse("s3://bucket/a/b").expect("it is one"), &elsewhere));
        assert!(!is_below("a/b", "a/b/../c"));
    }

    #[test]
    fn a_directory_may_not_touch_what_is_not_the_tenants() {
        let root = tempfile::tempdir().expect("a folder");
        let (store, mine) = (root.path().join("store"), root.path().join("mine"));
        let file = root.path().join("secret/token");
        std::fs::create_dir_all(root.path().join("secret")).expect("it is made");
        std::fs::write(&file, "token").expect("it is written");
        std::fs::create_dir_all(store.join("below")).expect("it is made");
        std::fs::create_dir_all(&mine).expect("it is made");
        std::os::unix::fs::symlink(&store, root.path().join("link")).expect("it is made");
        let check = |directory: PathBuf| {
            let grants = TenantGrants { directory: Some(directory), ..TenantGrants::default() };
            grants.check(&Taken { directories: vec![store.clone(), file.clone()], ..Taken::default() })
        };
        assert_eq!(check(mine), Ok(()));
        for wrong in [
            store.clone(),
            store.join("below"),
            root.path().to_owned(),
            root.path().join("link"),
            root.path().join("secret"),
            PathBuf::from("/"),
            PathBuf::from("relative"),
            root.path().join("missing"),
        ] {
            assert!(check(wrong.clone()).is_err(), "{}", wrong.display());
        }
    }

    #[test]
    fn an_object_grant_may_not_touch_the_store_nor_what_is_anothers() {
        let theirs = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            vec![ObjectGrant { url: "s3://theirs/a".into(), options }]
        };
        let taken =
            Taken { store: StoreUrl::parse("s3://state/weir").ok(), objects: theirs(&[]), directories: Vec::new() };
        for (url, is_free) in [
            ("s3://state", false),
            ("s3://state/weir/tenants", false),
            ("s3://state/weird", true),
            ("gs://state/weir", true),
            ("s3://theirs", false),
            ("s3://theirs/a/b", false),
            ("s3://theirs/b", true),
        ] {
            assert_eq!(grants(url).check(&taken).is_ok(), is_free, "{url}");
        }
        let elsewhere = Taken { objects: theirs(&[("endpoint", "http://elsewhere")]), ..Taken::default() };
        assert_eq!(grants("s3://theirs/a").check(&elsewhere), Ok(()));
    }

    #[test]
    fn entries_that_mean_nothing_are_refused_by_name() {
        assert!(grants("file:///etc").check(&Taken::default()).is_err());
        assert!(grants("nonsense").check(&Taken::default()).is_err());
        for host in ["", "a/b", "a:b", "*.", "user@host", "a*b.example.com"] {
            let http = vec![HttpGrant { host: host.into(), private: false }];
            let fault = TenantGrants { http, ..TenantGrants::default() }.check(&Taken::default()).expect_err(host);
            assert!(fault.contains("http:"), "{fault}");
        }
        for host in ["example.com", "example.com:8080", "*.example.com", "127.0.0.1:1"] {
            let http = vec![HttpGrant { host: host.into(), private: false }];
            assert_eq!(TenantGrants { http, ..TenantGrants::default() }.check(&Taken::default()), Ok(()));
        }
    }
}
