//! The server itself: is it there, does it work, and its numbers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::Auth;
use super::error::{ApiError, Refusals};
use crate::metrics;
use crate::serve::{Fault, FaultKind, Server};
use crate::tenant::Role;

/// How a server is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct Health {
    /// `ok`, or `stopping`.
    status: String,
    /// Its version.
    version: String,
}

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(numbers))
        .routes(routes!(document))
}

fn health(status: &str) -> Json<Health> {
    Json(Health { status: status.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// The process answers.
#[utoipa::path(get, operation_id = "system_healthz", path = "/healthz", tag = "system", responses((status = 200, body = Health)))]
async fn healthz() -> Json<Health> {
    health("ok")
}

/// It takes requests that change something: not while it stops.
#[utoipa::path(get, operation_id = "system_readyz", path = "/readyz", tag = "system", responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn readyz(State(server): State<Server>) -> Response {
    match server.is_open() {
        true => health("ok").into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, health("stopping")).into_response(),
    }
}

/// All numbers, in the OpenMetrics format; with a token of a tenant those of its jobs alone.
#[utoipa::path(get, operation_id = "system_numbers", path = "/metrics", tag = "system", security(("token" = [])),
    responses((status = 200, content_type = "application/openmetrics-text", body = String), Refusals)
)]
async fn numbers(State(server): State<Server>, Auth(caller): Auth) -> Result<Response, ApiError> {
    if let Some(tenant) = &caller.tenant {
        caller.may(tenant, Role::Read)?;
    }
    let made = tokio::task::spawn_blocking(move || server.numbers(caller.tenant.as_deref()));
    let text = made.await.map_err(|panic| Fault::new(FaultKind::Internal, format!("no numbers: {panic}")))?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// What you read: the description of all of this.
#[utoipa::path(get, operation_id = "system_document", path = "/openapi.json", tag = "system", responses((status = 200, body = serde_json::Value)))]
async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(super::document())
}
