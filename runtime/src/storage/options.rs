//! What a pipeline may say about a store beside its URL: where it answers and how it is spoken to, and never a secret.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Scheme, StoreFault};

/// How long `request_timeout` may be.
const REQUEST_TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

/// An option: as a pipeline writes it, as the client calls it, what it takes.
struct Known(&'static str, &'static str, Takes);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Text,
    Http,
    Flag,
}

const S3: &[Known] = &[
    Known("endpoint", "endpoint", Takes::Http),
    Known("region", "region", Takes::Text),
    Known("allow_http", "allow_http", Takes::Flag),
    Known("virtual_hosted_style", "virtual_hosted_style_request", Takes::Flag),
    Known("skip_signature", "skip_signature", Takes::Flag),
    Known("unsigned_payload", "unsigned_payload", Takes::Flag),
];
const GS: &[Known] = &[
    Known("endpoint", "base_url", Takes::Http),
    Known("allow_http", "allow_http", Takes::Flag),
    Known("skip_signature", "skip_signature", Takes::Flag),
];
const AZ: &[Known] = &[
    Known("account", "account_name", Takes::Text),
    Known("endpoint", "endpoint", Takes::Http),
    Known("allow_http", "allow_http", Takes::Flag),
    Known("use_emulator", "use_emulator", Takes::Flag),
    Known("skip_signature", "skip_signature", Takes::Flag),
];

fn known(scheme: Scheme) -> &'static [Known] {
    match scheme {
        Scheme::File => &[],
        Scheme::S3 => S3,
        Scheme::Gs => GS,
        Scheme::Az => AZ,
    }
}

const TIMEOUT: &str = "request_timeout";

/// Options by name. They are part of the pipeline file, so they hold no secrets; what they do not say, the environment does.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct StoreOptions(BTreeMap<String, String>);

impl FromIterator<(String, String)> for StoreOptions {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(options: T) -> Self {
        Self(options.into_iter().collect())
    }
}

impl StoreOptions {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The option that a pipeline wrote.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Checks all of them for a kind of store.
    ///
    /// # Errors
    ///
    /// The first that cannot be used.
    pub fn check(&self, scheme: Scheme) -> Result<(), StoreFault> {
        self.0.iter().try_for_each(|(key, value)| Self::check_one(scheme, key, value))
    }

    /// Checks one.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a clause about the option. The value of an unknown one is not repeated: it may be a secret.
    pub fn check_one(scheme: Scheme, key: &str, value: &str) -> Result<(), StoreFault> {
        let word = scheme.word();
        let names: Vec<&str> = known(scheme).iter().map(|known| known.0).chain([TIMEOUT]).collect();
        if scheme == Scheme::File {
            return Err(StoreFault::new(format!("`{key}` means nothing to a folder"), "remove it"));
        }
        if key == TIMEOUT {
            return timeout(value).map(|_| ());
        }
        let Some(Known(_, _, takes)) = known(scheme).iter().find(|known| known.0 == key) else {
            let lower = key.to_ascii_lowercase();
            let secret = ["secret", "key", "token", "password", "credential", "sas"];
            if secret.iter().any(|word| lower.contains(word)) {
                let variable = match scheme {
                    Scheme::Gs => "GOOGLE_SERVICE_ACCOUNT, the path of a key file,",
                    Scheme::Az => "AZURE_STORAGE_ACCOUNT_KEY or the like",
                    Scheme::S3 | Scheme::File => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                };
                let help = format!("take it out of the file and set {variable} in the environment");
                let fault = format!("`{key}` looks like a secret, and a pipeline file holds none");
                return Err(StoreFault::new(fault, help).secret());
            }
            let fault = format!("`{key}` is not an option of {word}://");
            return Err(StoreFault::new(fault, format!("the options of {word}:// are {}", names.join(", "))));
        };
        match takes {
            Takes::Text if value.is_empty() => {
                Err(StoreFault::new(format!("`{key}` is empty"), "write a value or remove it"))
            }
            Takes::Http => endpoint(key, value),
            Takes::Flag if !["true", "false"].contains(&value) => {
                Err(StoreFault::new(format!("`{key}` is {value:?}"), "write true or false"))
            }
            _ => Ok(()),
        }
    }

    /// How long a request may take, if the pipeline says so.
    pub(super) fn request_timeout(&self) -> Result<Option<Duration>, StoreFault> {
        self.0.get(TIMEOUT).map(|value| timeout(value)).transpose()
    }

    /// The options of a client, in its words.
    pub(super) fn of<K: std::str::FromStr>(&self, scheme: Scheme) -> impl Iterator<Item = (K, String)> {
        known(scheme)
            .iter()
            .filter_map(|Known(ours, theirs, _)| Some((theirs.parse().ok()?, self.0.get(*ours)?.clone())))
    }
}

fn endpoint(key: &str, value: &str) -> Result<(), StoreFault> {
    let help = "write it as \"https://host\" or, with allow_http = true, \"http://host:port\"";
    match ::url::Url::parse(value) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() || url.query().is_some() => {
            let fault = format!("`{key}` holds more than an address");
            Err(StoreFault::new(fault, "credentials belong in the environment").secret())
        }
        Ok(url) if ["http", "https"].contains(&url.scheme()) && url.has_host() => Ok(()),
        _ => Err(StoreFault::new(format!("`{key}` is {value:?}, which is not the address of a server"), help)),
    }
}

fn timeout(value: &str) -> Result<Duration, StoreFault> {
    let help = "write a time with its unit, from \"1s\" to \"10m\"";
    let fault = || StoreFault::new(format!("`{TIMEOUT}` is {value:?}"), help);
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let number: u64 = number.parse().map_err(|_| fault())?;
    let timeout = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60).ok_or_else(fault)?),
        _ => return Err(fault()),
    };
    if REQUEST_TIMEOUTS.contains(&timeout) { Ok(timeout) } else { Err(fault()) }
}

#[cfg(test)]
mod tests {
    use object_store::aws::AmazonS3ConfigKey;
    use object_store::azure::AzureConfigKey;
    use object_store::gcp::GoogleConfigKey;

    use super::*;

    /// A name that the client does not know would be dropped in silence.
    #[test]
    fn every_option_is_one_that_the_client_knows() {
        assert!(S3.iter().all(|known| known.1.parse::<AmazonS3ConfigKey>().is_ok()));
        assert!(GS.iter().all(|known| known.1.parse::<GoogleConfigKey>().is_ok()));
        assert!(AZ.iter().all(|known| known.1.parse::<AzureConfigKey>().is_ok()));
    }

    #[test]
    fn options_are_checked_and_a_secret_is_not_repeated() {
        let check = |scheme, key: &str, value: &str| StoreOptions::check_one(scheme, key, value);
        for (key, value) in [
            ("endpoint", "http://127.0.0.1:9000"),
            ("region", "eu-west-1"),
            ("allow_http", "true"),
            ("request_timeout", "1500ms"),
            ("request_timeout", "10m"),
        ] {
            assert_eq!(check(Scheme::S3, key, value), Ok(()), "{key}");
        }
        for (scheme, key, value, fault) in [
            (Scheme::S3, "secret_access_key", "verysecret", "looks like a secret"),
            (Scheme::Az, "sas", "verysecret", "looks like a secret"),
            (Scheme::S3, "endpoint", "http://me:verysecret@host", "more than an address"),
            (Scheme::S3, "endpoint", "host:9000", "not the address"),
            (Scheme::S3, "allow_http", "yes", "\"yes\""),
            (Scheme::S3, "colour", "verysecret", "not an option"),
            (Scheme::S3, "region", "", "empty"),
            (Scheme::Gs, "region", "x", "not an option"),
            (Scheme::File, "endpoint", "x", "means nothing"),
            (Scheme::S3, "request_timeout", "0s", "\"0s\""),
            (Scheme::S3, "request_timeout", "11m", "\"11m\""),
            (Scheme::S3, "request_timeout", "5", "\"5\""),
        ] {
            let error = check(scheme, key, value).unwrap_err();
            assert!(error.fault.contains(fault), "{key}: {error}");
            assert!(!format!("{error:?}").contains("verysecret"), "{error:?}");
        }
    }
}
