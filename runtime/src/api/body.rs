//! Bodies of requests: bounded in size and in time, and JSON read strictly.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header;
use axum::http::request::Parts;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::auth::Auth;
use super::error::ApiError;
use crate::serve::{Fault, FaultKind, Server, shown};

/// The largest JSON body: a pipeline file and its escapes.
const JSON_BYTES_MAX: u64 = 4 << 20;
/// How long a JSON body may take to come.
const JSON_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a component may take to come.
pub(super) const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// A JSON body. Nobody without a token is read from.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Server> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, server: &Server) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        Auth::from_request_parts(&mut parts, server).await?;
        check_type(&parts, "application/json")?;
        let bytes = read(body, JSON_BYTES_MAX, JSON_TIMEOUT).await?;
        let value = serde_json::from_slice(&bytes).map_err(|e| {
            Fault::new(FaultKind::Invalid, format!("the body is not what this takes: {e}"))
                .help("GET /openapi.json says what it takes")
        })?;
        Ok(Self(value))
    }
}

/// What stands in the address: UTF-8, however it is escaped.
pub(super) struct At<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Server> for At<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, ApiError> {
        // Nobody without a token is told anything about an address.
        Auth::from_request_parts(parts, server).await?;
        let Path(found) = Path::<T>::from_request_parts(parts, server).await.map_err(|e| {
            Fault::new(FaultKind::Invalid, format!("the address cannot be read: {e}"))
                .help("names have lower-case letters, digits and hyphens; what else is in an address is UTF-8, escaped")
        })?;
        Ok(Self(found))
    }
}

/// Fails if the body is of another type.
pub(super) fn check_type(parts: &Parts, expected: &str) -> Result<(), Fault> {
    let is = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let plain = is.split(';').next().unwrap_or_default().trim();
    if plain.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let message = format!("the body is said to be {:?}, and this takes {expected}", shown(is));
    Err(Fault::new(FaultKind::MediaType, message).help(format!("send it with `Content-Type: {expected}`")))
}

/// Reads a body to its end.
pub(super) async fn read(body: axum::body::Body, bytes_max: u64, within: Duration) -> Result<Bytes, Fault> {
    let limit = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let read = tokio::time::timeout(within, Limited::new(body, limit).collect()).await;
    let read = read.map_err(|_| {
        Fault::new(FaultKind::TooSlow, format!("the body was not there after {} s", within.as_secs()))
            .help("send it faster")
    })?;
    match read {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Fault::new(FaultKind::TooLarge, format!("the body has more than {bytes_max} bytes"))
                .help("send less; for a plugin it is the quota `plugin_bytes` of the tenant"))
        }
        Err(error) => {
            Err(Fault::new(FaultKind::Invalid, format!("the body did not come whole: {error}")).help("send it again"))
        }
    }
}
