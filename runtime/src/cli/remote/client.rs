//! The client of a server's API: one request after the other, each answered or refused in words.

use std::path::Path;
use std::time::Duration;

use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::ErrorBody;
use crate::error::{Error, ErrorKind};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether a server that says nothing is still there: what is asked may take long.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How much of an answer that is none of a server is shown.
const SHOWN: usize = 200;

/// See the module.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Client {
    http: reqwest::Client,
    server: Url,
    token: Option<String>,
    tenant: Option<String>,
}

/// A part of an address, with everything escaped that means something there.
pub(in crate::cli) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(byte.into()),
            // Whole segments of dots mean something else.
            b'.' if text.bytes().any(|b| b != b'.') => out.push('.'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

impl Client {
    pub(super) fn new(
        server: &str,
        token: Option<String>,
        tenant: Option<String>,
        ca_cert: Option<&Path>,
    ) -> Result<Self, Error> {
        let wrong = |what: &str| {
            Error::new(ErrorKind::Usage, format!("the address of the server, {server:?}, {what}"))
                .help("write it as http://127.0.0.1:7400 or https://weir.example.com")
        };
        let url = Url::parse(server).map_err(|e| wrong(&format!("is none: {e}")))?;
        let host = url.host_str().ok_or_else(|| wrong("names no host"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is neither http nor https"));
        }
        let is_local = host == "localhost"
            || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            // A token goes where it was meant to go.
            .redirect(reqwest::redirect::Policy::none());
        if is_local {
            builder = builder.no_proxy();
        }
        if let Some(path) = ca_cert {
            let unusable = |e: String| {
                Error::new(ErrorKind::Usage, format!("{} cannot be used as a certificate: {e}", path.display()))
                    .help("name a file in PEM")
            };
            let pem = std::fs::read(path).map_err(|e| unusable(e.to_string()))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| unusable(e.to_string()))?;
            builder = builder.tls_certs_merge(certificates);
        }
        let http = builder.build().map_err(|e| Error::new(ErrorKind::Store, "no client can be made").caused_by(e))?;
        Ok(Self { http, server: url, token, tenant })
    }

    /// The address below that of the tenant.
    pub(in crate::cli) fn of_tenant(&self, rest: &str) -> Result<String, Error> {
        Ok(format!("/v1/tenants/{}{rest}", segment(self.tenant()?)))
    }

    /// Which tenant is meant.
    pub(in crate::cli) fn tenant(&self) -> Result<&str, Error> {
        self.tenant.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::Usage, "no tenant is named, and the token is good for all of them")
                .help("add --tenant NAME, or set WEIR_TENANT")
        })
    }

    fn request(&self, method: Method, path: &str) -> Result<reqwest::RequestBuilder, Error> {
        let url = format!("{}{path}", self.server.as_str().trim_end_matches('/'));
        let url = Url::parse(&url)
            .map_err(|e| Error::new(ErrorKind::Usage, format!("{url:?} is no address")).caused_by(e))?;
        let request = self.http.request(method, url);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, Error> {
        request.send().await.map_err(|e| {
            let what = if e.is_connect() { "does not answer" } else { "did not answer to the end" };
            Error::new(ErrorKind::Store, format!("the server at {} {what}", self.server))
                .help("start it with `weir serve`, or name another with --server or WEIR_SERVER")
                .caused_by(e)
        })
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, Error> {
        taken(self.answer(request).await?).await
    }

    async fn json<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Result<T, Error> {
        self.read(self.send(request).await?).await
    }

    async fn read<T: DeserializeOwned>(&self, response: reqwest::Response) -> Result<T, Error> {
        let bytes = response.bytes().await.map_err(|e| self.broken(e))?;
        serde_json::from_slice(&bytes).map_err(|e| {
            let message = format!("the server at {} answered something else than was expected", self.server);
            Error::new(ErrorKind::Store, message).help("use the same version of weir on both sides").caused_by(e)
        })
    }

    fn broken(&self, error: reqwest::Error) -> Error {
        Error::new(ErrorKind::Store, format!("the answer of the server at {} did not come whole", self.server))
            .help("ask again")
            .caused_by(error)
    }

    pub(in crate::cli) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.json(self.request(Method::GET, path)?).await
    }

    /// None, if there is none.
    pub(in crate::cli) async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Error> {
        let response = self.answer(self.request(Method::GET, path)?).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.read(taken(response).await?).await.map(Some)
    }

    pub(in crate::cli) async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.json(self.request(Method::PUT, path)?.json(body)).await
    }

    pub(in crate::cli) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        self.json(self.request(Method::POST, path)?.json(body)).await
    }

    pub(in crate::cli) async fn delete(&self, path: &str) -> Result<(), Error> {
        self.send(self.request(Method::DELETE, path)?).await.map(drop)
    }

    /// Sends a component.
    pub(in crate::cli) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        bytes: Vec<u8>,
        signature: Option<&str>,
    ) -> Result<T, Error> {
        let mut request = self.request(Method::PUT, path)?.header("Content-Type", "application/wasm").body(bytes);
        if let Some(signature) = signature {
            request = request.header("Weir-Signature", signature);
        }
        self.json(request).await
    }

    /// The bytes of an answer.
    pub(in crate::cli) async fn download(&self, path: &str) -> Result<Vec<u8>, Error> {
        let response = self.send(self.request(Method::GET, path)?).await?;
        Ok(response.bytes().await.map_err(|e| self.broken(e))?.to_vec())
    }

    /// An answer that comes piece by piece.
    pub(in crate::cli) async fn stream(&self, path: &str) -> Result<reqwest::Response, Error> {
        self.send(self.request(Method::GET, path)?).await
    }
}

/// An answer that is no refusal.
async fn taken(response: reqwest::Response) -> Result<reqwest::Response, Error> {
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let text = response.text().await.unwrap_or_default();
    Err(refusal(status, &text))
}

/// What a server refused, in its words.
fn refusal(status: StatusCode, text: &str) -> Error {
    let kind = match status.as_u16() {
        422 => ErrorKind::Job,
        500.. => ErrorKind::Store,
        _ => ErrorKind::Usage,
    };
    match serde_json::from_str::<ErrorBody>(text) {
        Ok(ErrorBody { error }) => {
            if let Some(details) = &error.details {
                eprint!("{}{}", details, if details.ends_with('\n') { "" } else { "\n" });
            }
            let refused = Error::new(kind, error.message);
            match error.help {
                Some(help) => refused.help(help),
                None => refused,
            }
        }
        Err(_) => {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
            Error::new(kind, format!("the server answered {status}: {shown:?}"))
                .help("is it a server of weir? name another with --server or WEIR_SERVER")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_changes_the_address() {
        for (name, escaped) in [
            ("a-b", "a-b"),
            ("1.2.3", "1.2.3"),
            ("..", "%2E%2E"),
            ("a/../b", "a%2F..%2Fb"),
            ("a?b#c", "a%3Fb%23c"),
            ("ä", "%C3%A4"),
        ] {
            assert_eq!(segment(name), escaped);
        }
    }
}
