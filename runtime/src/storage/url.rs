//! The address of a store.
//!
//! ```text
//! file://./relative    file:///absolute       a folder; the path as it is written, without percent-decoding
//! s3://bucket/prefix   gs://bucket/prefix     az://container/prefix
//! ```

use std::fmt;

use super::StoreFault;

/// What kinds of stores there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A folder.
    File,
    /// Amazon S3, and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage.
    Az,
}

impl Scheme {
    /// All of them, as they are written.
    pub const ALL: [(&'static str, Self); 4] =
        [("file", Self::File), ("s3", Self::S3), ("gs", Self::Gs), ("az", Self::Az)];

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Az => "az",
        }
    }
}

/// An address that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl {
    /// What kind of store it is.
    pub scheme: Scheme,
    /// The bucket, or what Azure calls a container; empty for a folder.
    pub bucket: String,
    /// The folder; or the prefix of all names, without slashes at its ends.
    pub path: String,
}

pub(super) const HELP: &str = "write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, \
                               file:///absolute/path or file://./relative/path";
const SECRETS_HELP: &str = "credentials belong in the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
                            GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY";

impl StoreUrl {
    /// Reads an address.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a clause. An address that may hold a secret is not repeated.
    pub fn parse(url: &str) -> Result<Self, StoreFault> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(StoreFault::new("is not a URL", HELP));
        };
        let Some((_, scheme)) = Scheme::ALL.iter().copied().find(|(word, _)| *word == scheme) else {
            let fault = format!("has the scheme {scheme:?}, and the schemes are \"file\", \"s3\", \"gs\" and \"az\"");
            return Err(StoreFault::new(fault, HELP));
        };
        if scheme == Scheme::File {
            return match rest {
                "" => Err(StoreFault::new("names no directory", HELP)),
                path => Ok(Self { scheme, bucket: String::new(), path: path.to_owned() }),
            };
        }
        if rest.contains(['?', '#']) || rest.split('/').next().is_some_and(|host| host.contains('@')) {
            return Err(StoreFault::new("has more than a bucket and a path", SECRETS_HELP).secret());
        }
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if bucket.is_empty() || !bucket.chars().all(good) {
            let fault = format!("has the bucket {bucket:?}, which is no name of one");
            return Err(StoreFault::new(fault, format!("{HELP}; a port or a host is the option `endpoint`")));
        }
        let path = path.trim_matches('/');
        if path.split('/').any(|part| part == "." || part == ".." || part.is_empty() && !path.is_empty()) {
            return Err(StoreFault::new("has a path with an empty, \".\" or \"..\" step", HELP));
        }
        if path.chars().any(char::is_control) {
            return Err(StoreFault::new("has a control character in its path", HELP));
        }
        Ok(Self { scheme, bucket: bucket.to_owned(), path: path.to_owned() })
    }

    /// Whether the names of one can be among those of the other. Folders are compared by whoever knows where they start.
    pub fn overlaps(&self, other: &Self) -> bool {
        let inside = |one: &str, other: &str| {
            other.is_empty() || one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.scheme != Scheme::File
            && self.scheme == other.scheme
            && self.bucket == other.bucket
            && (inside(&self.path, &other.path) || inside(&other.path, &self.path))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.scheme, self.path.is_empty()) {
            (Scheme::File, _) => write!(f, "file://{}", self.path),
            (scheme, true) => write!(f, "{}://{}", scheme.word(), self.bucket),
            (scheme, false) => write!(f, "{}://{}/{}", scheme.word(), self.bucket, self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_shown() {
        for (url, shown, path) in [
            ("file://./.weir", "file://./.weir", "./.weir"),
            ("file:///var/lib/weir", "file:///var/lib/weir", "/var/lib/weir"),
            ("s3://bucket", "s3://bucket", ""),
            ("s3://bucket/a/b/", "s3://bucket/a/b", "a/b"),
            ("gs://my.bucket/x y", "gs://my.bucket/x y", "x y"),
            ("az://container/a", "az://container/a", "a"),
        ] {
            let read = StoreUrl::parse(url).unwrap();
            assert_eq!((read.to_string().as_str(), read.path.as_str()), (shown, path), "{url}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_a_secret_is_not_repeated() {
        for (url, fault) in [
            ("bucket", "not a URL"),
            ("ftp://x", "\"ftp\""),
            ("file://", "no directory"),
            ("s3://", "bucket \"\""),
            ("s3://host:9000/x", "bucket \"host:9000\""),
            ("s3://b/../x", "\"..\""),
            ("s3://b/a//x", "empty"),
            ("s3://key:verysecret@b/x", "more than a bucket"),
            ("az://c/x?sig=verysecret", "more than a bucket"),
            ("s3://b/\u{1}", "control"),
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert!(error.fault.contains(fault), "{url}: {error}");
            assert!(!format!("{error:?}").contains("verysecret"), "{error:?}");
        }
    }

    #[test]
    fn addresses_overlap_when_one_holds_the_other() {
        let of = |url| StoreUrl::parse(url).unwrap();
        for (one, other, overlap) in [
            ("s3://b/x", "s3://b/x", true),
            ("s3://b/x", "s3://b/x/y", true),
            ("s3://b", "s3://b/y", true),
            ("s3://b/x", "s3://b/xy", false),
            ("s3://b/x", "s3://c/x", false),
            ("s3://b/x", "gs://b/x", false),
        ] {
            assert_eq!(of(one).overlaps(&of(other)), overlap, "{one} {other}");
            assert_eq!(of(other).overlaps(&of(one)), overlap, "{other} {one}");
        }
    }
}
