//! What every answer looks like that is no success.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoResponses, ToSchema};

use crate::serve::{Fault, FaultKind};

/// A refusal.
#[derive(Debug)]
pub(super) struct ApiError(pub(super) Fault);

impl<T: Into<Fault>> From<T> for ApiError {
    fn from(fault: T) -> Self {
        Self(fault.into())
    }
}

/// The body of every answer that is no success.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: ErrorDetail,
}

/// What is wrong, and what can be done about it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs: `unauthenticated`, `forbidden`, `not-found`, `method`, `conflict`, `invalid`, `quota`, `too-large`, `media-type`, `too-slow`, `refused`,
    /// `unavailable` or `internal`.
    pub kind: String,
    /// One clause: the thing, the value and the limit.
    pub message: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// More lines, such as everything that is wrong with a pipeline, each at its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
}

/// The answers that any route may give.
#[derive(IntoResponses)]
#[allow(dead_code)]
pub(super) enum Refusals {
    /// The request makes no sense as it is.
    #[response(status = 400)]
    Invalid(ErrorBody),
    /// There is no token, or none that is known.
    #[response(status = 401)]
    Unauthenticated(ErrorBody),
    /// The token is not good for this, or a quota would be crossed.
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// There is none of that name.
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The address does not take this method.
    #[response(status = 405)]
    Method(ErrorBody),
    /// It took too long to come.
    #[response(status = 408)]
    TooSlow(ErrorBody),
    /// It is there already, is in use, or was changed meanwhile.
    #[response(status = 409)]
    Conflict(ErrorBody),
    /// It is larger than it may be.
    #[response(status = 413)]
    TooLarge(ErrorBody),
    /// The body is not of the type that the route takes, or it is compressed.
    #[response(status = 415)]
    MediaType(ErrorBody),
    /// The job or the plugin refuses.
    #[response(status = 422)]
    Refused(ErrorBody),
    /// It is the server's to mend.
    #[response(status = 500)]
    Internal(ErrorBody),
    /// The store does not answer, or the server is about to stop.
    #[response(status = 503)]
    Unavailable(ErrorBody),
}

/// The status and the word of a kind.
fn status(kind: FaultKind) -> (StatusCode, &'static str) {
    match kind {
        FaultKind::Unauthenticated => (StatusCode::UNAUTHORIZED, "unauthenticated"),
        FaultKind::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
        FaultKind::NotFound => (StatusCode::NOT_FOUND, "not-found"),
        FaultKind::Method => (StatusCode::METHOD_NOT_ALLOWED, "method"),
        FaultKind::Conflict => (StatusCode::CONFLICT, "conflict"),
        FaultKind::Invalid => (StatusCode::BAD_REQUEST, "invalid"),
        FaultKind::Quota => (StatusCode::FORBIDDEN, "quota"),
        FaultKind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too-large"),
        FaultKind::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type"),
        FaultKind::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too-slow"),
        FaultKind::Refused => (StatusCode::UNPROCESSABLE_ENTITY, "refused"),
        FaultKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        FaultKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Fault { kind, message, help, details } = self.0;
        let (status, word) = status(kind);
        if kind == FaultKind::Internal {
            tracing::error!(target: "weir::api", "{message}");
        }
        let body = ErrorBody { error: ErrorDetail { kind: word.to_owned(), message, help, details } };
        let mut response = (status, Json(body)).into_response();
        match kind {
            FaultKind::Unauthenticated => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            FaultKind::Unavailable => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}
