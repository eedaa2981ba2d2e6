//! Requests of guests over HTTP: `wit/http.wit`, for operators with a grant.
//!
//! ```text
//! request ─► is it one? ─► is its host granted? ─► resolve ─► is each address public? ─► connect to what was checked ─► answer, up to a size
//! ```
//!
//! The address is what counts: a name that is granted and leads into the private network, by mistake or on purpose,
//! gets no connection. The resolver of the client is the one that checks, so a name cannot mean one address when it is
//! looked at and another when it is connected to. Proxies of the environment are not used, for the same reason.
//! Redirections are not followed.

mod address;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Method, redirect};
use url::{Host, Url};
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower};

use super::host::HostState;
use super::limits::{bytes, clean};
use crate::plan::Grants;

const REQUEST_BYTES_MAX: usize = 1 << 20;
const RESPONSE_BYTES_MAX: usize = 4 << 20;
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 << 10;
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that are kept for the next request, for each host.
const IDLE_MAX: usize = 2;

/// What belongs to the connection, and not to a guest.
const RESERVED: [&str; 10] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "keep-alive",
    "proxy-connection",
];

#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift, Lower)]
#[component(record)]
struct Header {
    name: String,
    value: String,
}

#[derive(Clone, Debug, ComponentType, Lift)]
#[component(record)]
struct Request {
    method: String,
    url: String,
    headers: Vec<Header>,
    body: Vec<u8>,
    timeout: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lower)]
#[component(record)]
struct Response {
    status: u16,
    headers: Vec<Header>,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
enum ErrorKind {
    #[component(name = "refused")]
    Refused,
    #[component(name = "failed")]
    Failed,
    #[component(name = "timeout")]
    Timeout,
    #[component(name = "too-large")]
    TooLarge,
}

#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lower)]
#[component(record)]
struct Fault {
    kind: ErrorKind,
    message: String,
}

impl Fault {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// What a client says, with its causes: its own words alone say little.
    fn of(error: &reqwest::Error) -> Self {
        let mut cause: &dyn std::error::Error = error;
        let mut text = error.to_string();
        while let Some(source) = cause.source() {
            if source.is::<NotPublic>() {
                return Self::refused(source.to_string());
            }
            cause = source;
            text = format!("{text}: {cause}");
        }
        let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Failed };
        Self::new(kind, clean(&text, 1 << 10))
    }
}

/// A name leads to an address that only this machine or its network know.
#[derive(Debug, thiserror::Error)]
#[error("{name} has the address {address}, which is not public: it would have to be granted with http-private")]
struct NotPublic {
    name: String,
    address: IpAddr,
}

/// Resolves names, and refuses those that lead elsewhere than to the public network.
struct Resolver {
    private: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let private = self.private;
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // All of them: a name with a private address beside a public one is not one to be tried out.
            if let Some(address) = found.iter().map(SocketAddr::ip).find(|ip| !private && !address::is_public(*ip)) {
                return Err(NotPublic { name, address }.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The two clients of a process: one for public addresses, and one for any. Connections of one are never used by the
/// other.
#[derive(Debug, Default)]
pub(super) struct Clients {
    public: OnceLock<Result<Client, String>>,
    private: OnceLock<Result<Client, String>>,
}

impl Clients {
    fn get(&self, private: bool) -> Result<&Client, Fault> {
        let client = if private { &self.private } else { &self.public };
        let made = client.get_or_init(|| {
            let client = Client::builder()
                .no_proxy()
                .redirect(redirect::Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_max_idle_per_host(IDLE_MAX)
                .dns_resolver(Arc::new(Resolver { private }));
            client.build().map_err(|error| format!("{error:?}"))
        });
        made.as_ref().map_err(|error| Fault::new(ErrorKind::Failed, format!("there is no client: {error}")))
    }
}

/// A request that may be sent.
#[derive(Debug)]
struct Checked {
    request: reqwest::Request,
    private: bool,
    timeout: Duration,
}

/// Whether a request may be sent.
fn check(grants: &Grants, request: Request) -> Result<Checked, Fault> {
    let Request { method, url, headers, body, timeout } = request;
    let shown = || clean(&url, 200);
    let parsed = Url::parse(&url).map_err(|error| Fault::refused(format!("{} is no address: {error}", shown())))?;
    let of_scheme = match parsed.scheme() {
        "http" => 80,
        "https" => 443,
        _ => return Err(Fault::refused(format!("{} is neither http:// nor https://", shown()))),
    };
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(Fault::refused("an address with a user or a password: put them into a header"));
    }
    let (Some(host), port) = (parsed.host_str(), parsed.port().unwrap_or(of_scheme)) else {
        return Err(Fault::refused(format!("{} has no host", shown())));
    };
    let Some(private) = grants.http_to(host, port, of_scheme) else {
        let at = if port == of_scheme { String::new() } else { format!(":{port}") };
        return Err(Fault::refused(format!("no grant names this host: grants = [\"http:{host}{at}\"] would")));
    };
    // A client does not resolve what is an address already.
    let address = match parsed.host() {
        Some(Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => Some(IpAddr::V6(ip)),
        _ => None,
    };
    if let Some(address) = address.filter(|ip| !private && !address::is_public(*ip)) {
        return Err(Fault::refused(NotPublic { name: host.to_owned(), address }.to_string()));
    }
    let method = Method::from_bytes(method.as_bytes())
        .ok()
        .filter(|method| *method != Method::CONNECT && *method != Method::TRACE)
        .ok_or_else(|| Fault::refused(format!("method {:?} is none that may be used", clean(&method, 40))))?;
    if body.len() > REQUEST_BYTES_MAX {
        let (most, is) = (bytes(REQUEST_BYTES_MAX as u64), bytes(body.len() as u64));
        return Err(Fault::refused(format!("a body of {is}; the most is {most}")));
    }
    let header_bytes: usize = headers.iter().map(|header| header.name.len() + header.value.len()).sum();
    if headers.len() > HEADERS_MAX || header_bytes > HEADER_BYTES_MAX {
        let most = bytes(HEADER_BYTES_MAX as u64);
        let count = headers.len();
        return Err(Fault::refused(format!(
            "{count} headers of {header_bytes} bytes; the most is {HEADERS_MAX} of {most}"
        )));
    }
    let mut request = reqwest::Request::new(method, parsed);
    for Header { name, value } in headers {
        let malformed = || Fault::refused(format!("header {:?} is malformed", clean(&name, 100)));
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| malformed())?;
        if RESERVED.contains(&key.as_str()) {
            return Err(Fault::refused(format!("header {key} belongs to the connection: leave it out")));
        }
        let value = HeaderValue::from_str(&value).map_err(|_| malformed())?;
        request.headers_mut().append(key, value);
    }
    *request.body_mut() = Some(body.into());
    let asked = timeout.map(|millis| Duration::from_millis(millis.into()));
    Ok(Checked { request, private, timeout: asked.unwrap_or(TIMEOUT).min(TIMEOUT_MAX) })
}

/// Sends a request, and takes the whole answer.
async fn send(clients: &Clients, checked: Checked) -> Result<Response, Fault> {
    let Checked { request, private, timeout } = checked;
    let client = clients.get(private)?;
    let exchange = async {
        let mut answer = client.execute(request).await.map_err(|error| Fault::of(&error))?;
        let too_large = || {
            let most = bytes(RESPONSE_BYTES_MAX as u64);
            Fault::new(ErrorKind::TooLarge, format!("an answer of more than {most}"))
        };
        if answer.content_length().is_some_and(|length| length > RESPONSE_BYTES_MAX as u64) {
            return Err(too_large());
        }
        let headers = answer.headers().iter().map(|(name, value)| Header {
            name: name.as_str().to_owned(),
            value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
        });
        let (status, headers) = (answer.status().as_u16(), headers.collect());
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| Fault::of(&error))? {
            if body.len() + part.len() > RESPONSE_BYTES_MAX {
                return Err(too_large());
            }
            body.extend_from_slice(&part);
        }
        Ok(Response { status, headers, body })
    };
    let late = || Fault::new(ErrorKind::Timeout, format!("no answer within {timeout:?}"));
    tokio::time::timeout(timeout, exchange).await.unwrap_or_else(|_| Err(late()))
}

/// Defines the interface.
pub(super) fn link(linker: &mut Linker<HostState>, clients: &Arc<Clients>) -> wasmtime::Result<()> {
    let clients = Arc::clone(clients);
    let mut http = linker.instance("weir:plugin/http@0.1.0")?;
    http.func_wrap_async("send", move |store: StoreContextMut<'_, HostState>, (request,): (Request,)| {
        let clients = Arc::clone(&clients);
        Box::new(async move {
            let state = store.data();
            state.allow_output("http.send")?;
            let checked = match state.outside.is_live {
                true => check(&state.outside.grants, request),
                false => Err(Fault::refused("nothing is sent: this is a replay or a trial")),
            };
            Ok((match checked {
                Ok(checked) => send(&clients, checked).await,
                Err(fault) => Err(fault),
            },))
        })
    })
}

#[cfg(test)]
mod tests;
