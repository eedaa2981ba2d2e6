//! What of the world outside an operator may see. Each grant makes a replay differ, so each is in the manifest, as it
//! is written.
//!
//! A grant names a thing and never holds a secret: the value of a variable comes from whoever runs the pipeline.

use std::fmt;

/// The most grants of one operator: a manifest holds them all.
pub const GRANTS_MAX: usize = 32;

/// `grants = [ … ]`: what of the world outside an operator may see. Default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// `clock`: WASI clocks tell the real time, not that of the call.
    pub clock: bool,
    /// `random`: WASI randomness is real.
    pub random: bool,
    /// `env:NAME`: these variables are in its environment, if whoever runs it gives them a value.
    pub environment: Vec<String>,
    /// `http:HOST`: it may send requests to these hosts.
    pub http: Vec<HttpHost>,
}

/// A host to which requests may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpHost {
    /// In lower case; without the `*.` of one that stands for all names below it.
    name: String,
    /// It stands for all names below `name`, and not for `name`.
    is_wildcard: bool,
    /// None: that of the scheme.
    port: Option<u16>,
    /// `http-private:`: its addresses may be such that only this machine or its network know.
    pub private: bool,
}

impl HttpHost {
    /// Whether whatever is granted by another is granted by this: the same host, or one below it where it is a wildcard; the same port.
    pub fn covers(&self, other: &Self) -> bool {
        let below =
            |name: &str| name.strip_suffix(&self.name).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1);
        let named = match (self.is_wildcard, other.is_wildcard) {
            (true, true) => other.name == self.name || below(&other.name),
            (true, false) => below(&other.name),
            (false, is_wildcard) => !is_wildcard && other.name == self.name,
        };
        named && self.port == other.port && (self.private || !other.private)
    }

    /// Reads one, as it is written after the colon of a grant.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a clause about it.
    pub fn parse(text: &str, private: bool) -> Result<Self, String> {
        let refuse = |what: &str| {
            format!(
                "{what}: write a name or an address and perhaps a port, such as \"http:api.example.com\", \
                 \"http:*.example.com\" or \"http:api.example.com:8443\""
            )
        };
        let (is_wildcard, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        // Read as the address of a request will be, so that both are written alike.
        let url = url::Url::parse(&format!("http://{rest}/")).map_err(|_| refuse("is not a host"))?;
        let plain = url.username().is_empty() && url.password().is_none() && url.path() == "/" && url.query().is_none();
        let name =
            url.host_str().filter(|_| plain && url.fragment().is_none()).ok_or_else(|| refuse("is not a host"))?;
        if name.contains('*') || (is_wildcard && !matches!(url.host(), Some(url::Host::Domain(_)))) {
            return Err(refuse("has a * elsewhere than before the first dot of a name"));
        }
        if is_wildcard && !name.contains('.') {
            return Err(refuse("stands for every name below a name without a dot"));
        }
        // The port of the scheme is left out by the reader.
        let has_port = rest
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
        let port = has_port.then(|| url.port_or_known_default()).flatten();
        Ok(Self { name: name.to_owned(), is_wildcard, port, private })
    }

    /// Whether a request to this host and port is one to it. `of_scheme`: the port of the request's scheme.
    pub fn is(&self, host: &str, port: u16, of_scheme: u16) -> bool {
        let below = |name: &str| host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1);
        let named = if self.is_wildcard { below(&self.name) } else { host == self.name };
        named && port == self.port.unwrap_or(of_scheme)
    }
}

impl fmt::Display for HttpHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_wildcard { "*." } else { "" };
        write!(f, "{star}{}", self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Grants {
    /// As they are written in a pipeline; those that end with a colon are followed by a name.
    pub const WORDS: [&str; 5] = ["clock", "random", "env:", "http:", "http-private:"];

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Those that are given, as they are written.
    pub fn words(&self) -> Vec<String> {
        let plain = [("clock", self.clock), ("random", self.random)].into_iter().filter(|(_, given)| *given);
        let environment = self.environment.iter().map(|name| format!("env:{name}"));
        let http = self.http.iter().map(|host| format!("http{}:{host}", if host.private { "-private" } else { "" }));
        plain.map(|(word, _)| word.to_owned()).chain(environment).chain(http).collect()
    }

    /// What of the real world an operator with these words sees, for people.
    pub fn in_words<T: AsRef<str>>(words: &[T]) -> String {
        let real = |word: &T| match word.as_ref().split_once(':') {
            None if word.as_ref() == "clock" => "a real clock".to_owned(),
            None if word.as_ref() == "random" => "real randomness".to_owned(),
            Some(("env", name)) => format!("the variable {name}"),
            Some(("http", host)) => format!("requests to {host}"),
            Some(("http-private", host)) => format!("requests to {host}, also where that is private"),
            _ => word.as_ref().to_owned(),
        };
        words.iter().map(real).collect::<Vec<_>>().join(" and ")
    }

    /// Gives one.
    ///
    /// # Errors
    ///
    /// What is wrong with it, as a clause about the word. Nothing is said of one that is not known at all.
    pub fn give(&mut self, word: &str) -> Result<(), Option<String>> {
        match word.split_once(':') {
            None if word == "clock" => self.clock = true,
            None if word == "random" => self.random = true,
            Some(("env", name)) => {
                let good = |(i, byte): (usize, u8)| {
                    byte == b'_' || byte.is_ascii_alphabetic() || (i > 0 && byte.is_ascii_digit())
                };
                if name.is_empty() || name.len() > 128 || !name.bytes().enumerate().all(good) {
                    return Err(Some("is not the name of a variable: write 1 to 128 letters, digits and _".to_owned()));
                }
                if !self.environment.iter().any(|other| other == name) {
                    self.environment.push(name.to_owned());
                }
            }
            Some((kind @ ("http" | "http-private"), host)) => {
                let host = HttpHost::parse(host, kind == "http-private").map_err(Some)?;
                if !self.http.contains(&host) {
                    self.http.push(host);
                }
            }
            _ => return Err(None),
        }
        if self.environment.len() + self.http.len() > GRANTS_MAX - 2 {
            return Err(Some(format!("is one too many: an operator has at most {GRANTS_MAX} grants")));
        }
        Ok(())
    }

    /// Whether a request to this host may be sent, and if so, whether its addresses may be private.
    pub fn http_to(&self, host: &str, port: u16, of_scheme: u16) -> Option<bool> {
        let named = || self.http.iter().filter(|granted| granted.is(host, port, of_scheme));
        named().next()?;
        Some(named().any(|granted| granted.private))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_covers_itself_and_what_is_below_its_wildcard_at_the_same_port() {
        let host = |text: &str, private| HttpHost::parse(text, private).expect("it is a host");
        for (granted, asked, covered) in [
            ("a.example.com", "a.example.com", true),
            ("a.example.com", "A.example.com", true),
            ("a.example.com", "b.example.com", false),
            ("a.example.com", "*.a.example.com", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "*.a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "badexample.com", false),
            ("a.example.com", "a.example.com:8443", false),
            ("a.example.com:8443", "a.example.com:8443", true),
        ] {
            assert_eq!(host(granted, false).covers(&host(asked, false)), covered, "{granted} {asked}");
        }
        assert!(!host("a.example.com", false).covers(&host("a.example.com", true)));
        assert!(host("a.example.com", true).covers(&host("a.example.com", false)));
    }

    fn grants(words: &[&str]) -> Grants {
        let mut grants = Grants::default();
        words.iter().for_each(|word| grants.give(word).unwrap_or_else(|fault| panic!("{word}: {fault:?}")));
        grants
    }

    #[test]
    fn grants_are_read_as_they_are_written() {
        let words =
            ["clock", "env:API_TOKEN", "http:api.example.com", "http:*.example.org:8443", "http-private:[::1]:80"];
        let given = grants(&words);
        assert_eq!(given.words(), words);
        assert_eq!(grants(&given.words().iter().map(String::as_str).collect::<Vec<_>>()), given);
        let shown = Grants::in_words(&grants(&["random", "env:A", "http:b.c"]).words());
        assert_eq!(shown, "real randomness and the variable A and requests to b.c");
        assert!(!given.is_empty() && Grants::default().is_empty());
    }

    #[test]
    fn what_is_no_grant_is_refused_with_the_remedy() {
        let mut grants = Grants::default();
        for word in ["time", "env", "http", "", "env :A"] {
            assert_eq!(grants.give(word), Err(None), "{word}");
        }
        for word in [
            "env:",
            "env:1A",
            "env:A=B",
            "http:",
            "http:a b",
            "http:a/b",
            "http:a@b",
            "http:*",
            "http:*.com",
            "http:a.*.c",
            "http:*.1.2.3.4",
            "http:a?b",
            "http:a:99999",
            "http:https://a",
        ] {
            assert!(matches!(grants.give(word), Err(Some(_))), "{word}");
        }
        assert!(grants.is_empty());
        for n in 0..GRANTS_MAX - 2 {
            assert_eq!(grants.give(&format!("env:V{n}")), Ok(()));
        }
        assert!(grants.give("env:ONE_MORE").is_err());
    }

    #[test]
    fn a_request_goes_only_to_a_host_that_is_named_at_its_port() {
        let given =
            grants(&["http:API.example.com", "http:*.example.org", "http-private:localhost:8080", "http:0x7f.1"]);
        for (host, port, of_scheme, is) in [
            ("api.example.com", 443, 443, Some(false)),
            ("api.example.com", 80, 80, Some(false)),
            ("api.example.com", 8443, 443, None),
            ("example.com", 443, 443, None),
            ("evil-api.example.com", 443, 443, None),
            ("a.example.org", 443, 443, Some(false)),
            ("a.b.example.org", 443, 443, Some(false)),
            ("example.org", 443, 443, None),
            (".example.org", 443, 443, None),
            ("evilexample.org", 443, 443, None),
            ("localhost", 8080, 80, Some(true)),
            ("localhost", 80, 80, None),
            ("127.0.0.1", 80, 80, Some(false)),
        ] {
            assert_eq!(given.http_to(host, port, of_scheme), is, "{host}:{port}");
        }
    }
}
