//! Who asks: the token of a request, and what of a request is looked at before any route sees it.

use std::net::IpAddr;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use crate::serve::{Caller, Fault, FaultKind, Server};

/// Who asks. A route that takes it is for nobody without a token.
#[derive(Clone, Debug)]
pub(super) struct Auth(pub(super) Caller);

/// Who asked, for the log.
#[derive(Clone, Debug)]
pub(super) struct By(pub(super) String);

/// The token of a request.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<&str>, Fault> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let bearer = value.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    bearer.map(Some).ok_or_else(|| {
        Fault::new(FaultKind::Unauthenticated, "the header Authorization is not `Bearer TOKEN`")
            .help("send a token that `weir tenant token TENANT --role ROLE` made")
    })
}

impl FromRequestParts<Server> for Auth {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, ApiError> {
        // The guard has looked it up already.
        match parts.extensions.get::<Self>() {
            Some(auth) => Ok(auth.clone()),
            None => Ok(Self(server.authenticate(token(&parts.headers)?)?)),
        }
    }
}

/// Before any route: who asks, and nothing that a browser was talked into.
pub(super) async fn guard(State(server): State<Server>, mut request: Request, next: Next) -> Response {
    if server.is_dev()
        && let Err(fault) = check_local(request.headers(), request.uri())
    {
        return ApiError(fault).into_response();
    }
    // A compressed body may be anything but what its length says.
    let is_compressed =
        |value: &axum::http::HeaderValue| value.to_str().is_ok_and(|value| !value.eq_ignore_ascii_case("identity"));
    if request.headers().get(header::CONTENT_ENCODING).is_some_and(is_compressed) {
        let fault = Fault::new(FaultKind::MediaType, "the body is compressed, and nothing is decompressed here");
        return ApiError(fault.help("send it as it is, without Content-Encoding")).into_response();
    }
    let caller = token(request.headers()).and_then(|token| server.authenticate(token)).ok();
    let by = caller.as_ref().map(|caller| match &caller.tenant {
        Some(tenant) => format!("{tenant}/{}", caller.id),
        None => format!("server/{}", caller.id),
    });
    if let Some(caller) = caller {
        request.extensions_mut().insert(Auth(caller));
    }
    let mut response = next.run(request).await;
    response.extensions_mut().extend(
        by.map(By)
            .map(|by| {
                let mut extensions = axum::http::Extensions::new();
                extensions.insert(by);
                extensions
            })
            .unwrap_or_default(),
    );
    response
}

/// Without tokens everything that reaches the port is obeyed. A page in a browser reaches it too: under a name that its author made point here, or
/// from a form of its own. Both show.
fn check_local(headers: &HeaderMap, uri: &Uri) -> Result<(), Fault> {
    let refused = |what: &str| {
        Err(Fault::new(
            FaultKind::Forbidden,
            format!("without tokens the server obeys programs of this machine only: {what}"),
        )
        .help("use the commands of weir, or curl with the address 127.0.0.1; or run a server with tokens"))
    };
    if headers.contains_key(header::ORIGIN) {
        return refused("the request comes from a page in a browser");
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).or_else(|| uri.host());
    let Some(host) = host else { return refused("the request names no host") };
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_local = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if is_local { Ok(()) } else { refused("the request is for another host") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tokens_only_programs_of_this_machine_are_obeyed() {
        let check = |pairs: &[(header::HeaderName, &str)]| {
            let headers = pairs.iter().map(|(name, value)| (name.clone(), value.parse().expect("it is one"))).collect();
            check_local(&headers, &Uri::from_static("/v1/tenants")).is_ok()
        };
        for (host, fine) in [
            ("127.0.0.1:7400", true),
            ("localhost:7400", true),
            ("[::1]:7400", true),
            ("127.0.0.1", true),
            ("evil.example:7400", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1:7400", false),
        ] {
            assert_eq!(check(&[(header::HOST, host)]), fine, "{host}");
        }
        assert!(!check(&[(header::HOST, "127.0.0.1"), (header::ORIGIN, "http://evil.example")]));
        assert!(!check(&[]));
    }
}
