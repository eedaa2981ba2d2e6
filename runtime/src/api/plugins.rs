//! Routes about plugins.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::Auth;
use super::body::{At, UPLOAD_TIMEOUT, check_type, read};
use super::error::{ApiError, Refusals};
use crate::serve::{ComponentView, Fault, FaultKind, PluginView, Pushed, Server, Tenant};
use crate::tenant::Role;

/// The type of a component's bytes.
const WASM: &str = "application/wasm";
/// The header with a signature: ed25519 over the blake3 digest, 64 bytes in base64.
const SIGNATURE: &str = "weir-signature";

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, push, delete))
        .routes(routes!(pull))
        .routes(routes!(has_component, put_component))
}

/// The signature that a request brings.
fn signature(headers: &HeaderMap) -> Result<Option<String>, Fault> {
    let Some(value) = headers.get(SIGNATURE) else { return Ok(None) };
    let text = value.to_str().map_err(|_| Fault::new(FaultKind::Invalid, "the header Weir-Signature is not base64"))?;
    Ok(Some(text.to_owned()))
}

/// The bytes of a component and its signature, from somebody who may bring one.
async fn upload(tenant: &Tenant, request: Request) -> Result<(bytes::Bytes, Option<String>), Fault> {
    let (parts, body) = request.into_parts();
    check_type(&parts, WASM)?;
    let signature = signature(&parts.headers)?;
    // Two at once: what is on its way is in memory.
    let _turn = tenant.uploads.try_acquire().map_err(|_| {
        Fault::new(FaultKind::Unavailable, format!("tenant {:?} sends as many plugins as it may at once", tenant.name))
            .help("send one after the other")
    })?;
    Ok((read(body, tenant.plugin_bytes_max(), UPLOAD_TIMEOUT).await?, signature))
}

/// The plugins of a tenant.
#[utoipa::path(get, operation_id = "plugins_list", path = "/v1/tenants/{tenant}/plugins", tag = "plugins", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = [PluginView]), Refusals))]
async fn list(
    State(server): State<Server>,
    Auth(caller): Auth,
    At(tenant): At<String>,
) -> Result<Json<Vec<PluginView>>, ApiError> {
    Ok(Json(server.tenant(&caller, &tenant, Role::Read)?.list_plugins()))
}

/// A plugin.
#[utoipa::path(get, operation_id = "plugins_show", path = "/v1/tenants/{tenant}/plugins/{name}/{version}", tag = "plugins", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("name" = String, Path, description = "The plugin"),
        ("version" = String, Path, description = "Its version")),
    responses((status = 200, body = PluginView), Refusals))]
async fn show(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, name, version)): At<(String, String, String)>,
) -> Result<Json<PluginView>, ApiError> {
    Ok(Json(server.tenant(&caller, &tenant, Role::Read)?.plugin(&name, &version)?))
}

/// Brings a plugin under a name and a version, which are its for good. The same bytes again change nothing.
#[utoipa::path(put, operation_id = "plugins_push", path = "/v1/tenants/{tenant}/plugins/{name}/{version}", tag = "plugins", security(("token" = [])),
    request_body(content = Vec<u8>, content_type = "application/wasm", description = "The component"),
    params(("tenant" = String, Path, description = "The tenant"), ("name" = String, Path, description = "The plugin"),
        ("version" = String, Path, description = "Its version, as 1.2.3"),
        ("Weir-Signature" = Option<String>, Header, description = "ed25519 over the blake3 digest of the bytes, in base64")),
    responses((status = 201, body = Pushed), (status = 200, body = Pushed, description = "Exactly this was there already"), Refusals))]
async fn push(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, name, version)): At<(String, String, String)>,
    request: Request,
) -> Result<(StatusCode, Json<Pushed>), ApiError> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    let (bytes, signature) = upload(&tenant, request).await?;
    let push =
        async move { server.push_plugin(&tenant, &caller, (&name, &version), bytes, signature.as_deref()).await };
    let pushed = Server::detached(push).await?;
    let status = if pushed.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(pushed)))
}

/// Deletes a name and version, unless a job uses it.
#[utoipa::path(delete, operation_id = "plugins_delete", path = "/v1/tenants/{tenant}/plugins/{name}/{version}", tag = "plugins", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("name" = String, Path, description = "The plugin"),
        ("version" = String, Path, description = "Its version")),
    responses((status = 204, description = "It is gone"), Refusals))]
async fn delete(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, name, version)): At<(String, String, String)>,
) -> Result<StatusCode, ApiError> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    Server::detached(async move { server.delete_plugin(&tenant, &caller, &name, &version).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The bytes of a plugin.
#[utoipa::path(get, operation_id = "plugins_pull", path = "/v1/tenants/{tenant}/plugins/{name}/{version}/content", tag = "plugins", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("name" = String, Path, description = "The plugin"),
        ("version" = String, Path, description = "Its version")),
    responses((status = 200, content_type = "application/wasm", body = Vec<u8>), Refusals))]
async fn pull(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, name, version)): At<(String, String, String)>,
) -> Result<Response, ApiError> {
    let bytes = server.tenant(&caller, &tenant, Role::Read)?.plugin_bytes(&name, &version).await?;
    Ok(([(CONTENT_TYPE, WASM)], bytes).into_response())
}

/// Whether the tenant has a component: then it need not be sent.
#[utoipa::path(get, operation_id = "plugins_has_component", path = "/v1/tenants/{tenant}/components/{digest}", tag = "plugins", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"),
        ("digest" = String, Path, description = "The blake3 of its bytes in 64 hexadecimal digits")),
    responses((status = 200, body = ComponentView), Refusals))]
async fn has_component(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, digest)): At<(String, String)>,
) -> Result<Json<ComponentView>, ApiError> {
    let tenant = server.tenant(&caller, &tenant, Role::Read)?;
    Ok(Json(server.component(&tenant, &digest).await?))
}

/// Brings a component without a name, for a deployment that names it by its digest. One that no job uses is deleted some time later.
#[utoipa::path(put, operation_id = "plugins_put_component", path = "/v1/tenants/{tenant}/components/{digest}", tag = "plugins", security(("token" = [])),
    request_body(content = Vec<u8>, content_type = "application/wasm", description = "The component"),
    params(("tenant" = String, Path, description = "The tenant"),
        ("digest" = String, Path, description = "The blake3 of its bytes in 64 hexadecimal digits"),
        ("Weir-Signature" = Option<String>, Header, description = "ed25519 over the blake3 digest of the bytes, in base64")),
    responses((status = 200, body = ComponentView), Refusals))]
async fn put_component(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, digest)): At<(String, String)>,
    request: Request,
) -> Result<Json<ComponentView>, ApiError> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    let (bytes, signature) = upload(&tenant, request).await?;
    let put = async move { server.put_component(&tenant, &digest, bytes, signature.as_deref()).await };
    Ok(Json(Server::detached(put).await?))
}
