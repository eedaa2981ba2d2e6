//! The HTTP door of a server: routes, who may use them, what goes in and what comes out.
//!
//! Every route is written once: path, method, bodies and answers are taken from the handler into the OpenAPI document
//! (`GET /openapi.json`), and a test holds the two together. Every answer that is no success has one shape, [`error::ErrorBody`]. What comes
//! in is bounded in size and in time; nothing is decompressed.

mod auth;
mod body;
mod error;
mod jobs;
mod listen;
mod logs;
mod plugins;
mod system;
mod tenants;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

pub use error::{ErrorBody, ErrorDetail};
pub use listen::{Listening, Tls, listen, serve};

use crate::serve::{Fault, FaultKind, Server};
use error::ApiError;

/// What the document says of the whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "weir",
        description = "The host of weir: tenants, their plugins and their jobs. Times are in microseconds since the Unix epoch.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    modifiers(&Bearer),
    components(schemas(ErrorBody, ErrorDetail)),
    tags(
        (name = "tenants", description = "Who there is, what they may have and see, and who speaks for them"),
        (name = "plugins", description = "Components: immutable, by digest, and by name and version"),
        (name = "jobs", description = "Pipelines that run"),
        (name = "system", description = "The server itself")
    )
)]
struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme =
            HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("a token of `weir tenant token`"));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme.build()));
    }
}

fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(system::routes())
        .merge(tenants::routes())
        .merge(plugins::routes())
        .merge(jobs::routes())
        .merge(logs::routes())
}

/// The OpenAPI document.
pub fn document() -> utoipa::openapi::OpenApi {
    routes().split_for_parts().1
}

/// All routes of a server.
pub fn router(server: Server) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(|| async {
            ApiError(
                Fault::new(FaultKind::NotFound, "there is nothing at this address")
                    .help("GET /openapi.json says what there is"),
            )
        })
        .method_not_allowed_fallback(|| async {
            ApiError(
                Fault::new(FaultKind::Method, "this address does not take this method")
                    .help("GET /openapi.json says which it takes"),
            )
        })
        .layer(middleware::from_fn_with_state(server.clone(), auth::guard))
        .layer(middleware::from_fn(log))
        .with_state(server)
}

/// Logs what was asked, by whom, and what came of it.
async fn log(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    // As it was sent: it is percent-encoded, so it has no line breaks.
    let path: String = request.uri().path().chars().take(500).collect();
    let tenant = path.strip_prefix("/v1/tenants/").and_then(|rest| rest.split('/').next()).unwrap_or("-").to_owned();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let by = response.extensions().get::<auth::By>().map_or("-", |by| by.0.as_str()).to_owned();
    if status >= 500 {
        tracing::error!(target: "weir::api", tenant, %method, path, status, by, "request");
    } else if status >= 400 {
        tracing::warn!(target: "weir::api", tenant, %method, path, status, by, "request refused");
    } else if method != axum::http::Method::GET {
        tracing::info!(target: "weir::api", tenant, %method, path, status, by, "request");
    } else {
        tracing::debug!(target: "weir::api", tenant, %method, path, status, by, "request");
    }
    response.into_response()
}
