//! Routes about tenants: who there is, what they may, who speaks for them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::Auth;
use super::body::{At, Body};
use super::error::{ApiError, Refusals};
use crate::serve::{KeysView, NewToken, Server, TenantView, TokenMade, TokenView};
use crate::tenant::{Quotas, Role, TenantGrants};

type Answer<T> = Result<Json<T>, ApiError>;

/// A tenant that is to be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTenant {
    /// Its name: lower-case letters, digits and hyphens, at most 63.
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    name: String,
    /// Other quotas than the default ones.
    #[serde(default)]
    quotas: Option<Quotas>,
}

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, delete))
        .routes(routes!(set_quotas))
        .routes(routes!(set_grants))
        .routes(routes!(set_keys))
        .routes(routes!(list_tokens, make_token))
        .routes(routes!(revoke_token))
        .routes(routes!(rotate_token))
        .routes(routes!(list_server_tokens, make_server_token))
        .routes(routes!(revoke_server_token))
}

/// All tenants; with a token of a tenant that one.
#[utoipa::path(get, operation_id = "tenants_list", path = "/v1/tenants", tag = "tenants", security(("token" = [])),
    responses((status = 200, body = [TenantView]), Refusals))]
async fn list(State(server): State<Server>, Auth(caller): Auth) -> Answer<Vec<TenantView>> {
    let all = server.tenants();
    let mine = all.iter().filter(|tenant| caller.may(&tenant.name, Role::Read).is_ok());
    Ok(Json(mine.map(|tenant| tenant.view(&caller)).collect()))
}

/// Makes a tenant, with a first token for its admin.
#[utoipa::path(post, operation_id = "tenants_create", path = "/v1/tenants", tag = "tenants", security(("token" = [])), request_body = NewTenant,
    responses((status = 201, body = TokenMade), Refusals))]
async fn create(
    State(server): State<Server>,
    Auth(caller): Auth,
    Body(asked): Body<NewTenant>,
) -> Result<(StatusCode, Json<TokenMade>), ApiError> {
    let made = Server::detached(async move { server.create_tenant(&caller, &asked.name, asked.quotas).await }).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// A tenant.
#[utoipa::path(get, operation_id = "tenants_show", path = "/v1/tenants/{tenant}", tag = "tenants", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = TenantView), Refusals))]
async fn show(State(server): State<Server>, Auth(caller): Auth, At(tenant): At<String>) -> Answer<TenantView> {
    Ok(Json(server.tenant(&caller, &tenant, Role::Read)?.view(&caller)))
}

/// Deletes a tenant with everything that it has. Its jobs are stopped where they are.
#[utoipa::path(delete, operation_id = "tenants_delete", path = "/v1/tenants/{tenant}", tag = "tenants", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 204, description = "It is gone"), Refusals))]
async fn delete(
    State(server): State<Server>,
    Auth(caller): Auth,
    At(tenant): At<String>,
) -> Result<StatusCode, ApiError> {
    Server::detached(async move { server.delete_tenant(&caller, &tenant).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets how much a tenant may have: all quotas at once, what is left out has its default.
#[utoipa::path(put, operation_id = "tenants_set_quotas", path = "/v1/tenants/{tenant}/quotas", tag = "tenants", security(("token" = [])), request_body = Quotas,
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = TenantView), Refusals))]
async fn set_quotas(
    State(server): State<Server>,
    Auth(caller): Auth,
    At(tenant): At<String>,
    Body(quotas): Body<Quotas>,
) -> Answer<TenantView> {
    Ok(Json(Server::detached(async move { server.set_quotas(&caller, &tenant, quotas).await }).await?))
}

/// Sets what a tenant may see: all grants at once, what is left out is taken away.
#[utoipa::path(put, operation_id = "tenants_set_grants", path = "/v1/tenants/{tenant}/grants", tag = "tenants", security(("token" = [])), request_body = TenantGrants,
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = TenantView), Refusals))]
async fn set_grants(
    State(server): State<Server>,
    Auth(caller): Auth,
    At(tenant): At<String>,
    Body(grants): Body<TenantGrants>,
) -> Answer<TenantView> {
    Ok(Json(Server::detached(async move { server.set_grants(&caller, &tenant, grants).await }).await?))
}

/// Sets by which keys plugins of a tenant may be signed, and whether they must.
#[utoipa::path(put, operation_id = "tenants_set_keys", path = "/v1/tenants/{tenant}/keys", tag = "tenants", security(("token" = [])), request_body = KeysView,
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = KeysView), Refusals))]
async fn set_keys(
    State(server): State<Server>,
    Auth(caller): Auth,
    At(tenant): At<String>,
    Body(keys): Body<KeysView>,
) -> Answer<KeysView> {
    Ok(Json(Server::detached(async move { server.set_keys(&caller, &tenant, keys).await }).await?))
}

/// The tokens of a tenant, without their secrets.
#[utoipa::path(get, operation_id = "tenants_list_tokens", path = "/v1/tenants/{tenant}/tokens", tag = "tenants", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = [TokenView]), Refusals))]
async fn list_tokens(
    State(server): State<Server>,
    Auth(caller): Auth,
    At(tenant): At<String>,
) -> Answer<Vec<TokenView>> {
    Ok(Json(server.tenant(&caller, &tenant, Role::Admin)?.tokens()))
}

/// Makes a token of a tenant. It is shown once.
#[utoipa::path(post, operation_id = "tenants_make_token", path = "/v1/tenants/{tenant}/tokens", tag = "tenants", security(("token" = [])), request_body = NewToken,
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 201, body = TokenMade), Refusals))]
async fn make_token(
    State(server): State<Server>,
    Auth(caller): Auth,
    At(tenant): At<String>,
    Body(asked): Body<NewToken>,
) -> Result<(StatusCode, Json<TokenMade>), ApiError> {
    let made = Server::detached(async move { server.make_token(&caller, &tenant, asked).await }).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Takes a token of a tenant back, at once.
#[utoipa::path(delete, operation_id = "tenants_revoke_token", path = "/v1/tenants/{tenant}/tokens/{id}", tag = "tenants", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("id" = String, Path, description = "The token")),
    responses((status = 204, description = "It is good for nothing any more"), Refusals))]
async fn revoke_token(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, id)): At<(String, String)>,
) -> Result<StatusCode, ApiError> {
    Server::detached(async move { server.revoke_token(&caller, &tenant, &id).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a token with the role of another, which is taken back in the same moment.
#[utoipa::path(post, operation_id = "tenants_rotate_token", path = "/v1/tenants/{tenant}/tokens/{id}/rotate", tag = "tenants", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("id" = String, Path, description = "The token")),
    responses((status = 201, body = TokenMade), Refusals))]
async fn rotate_token(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, id)): At<(String, String)>,
) -> Result<(StatusCode, Json<TokenMade>), ApiError> {
    let made = Server::detached(async move { server.rotate_token(&caller, &tenant, &id).await }).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// The tokens of the server, without their secrets.
#[utoipa::path(get, operation_id = "tenants_list_server_tokens", path = "/v1/tokens", tag = "tenants", security(("token" = [])),
    responses((status = 200, body = [TokenView]), Refusals))]
async fn list_server_tokens(State(server): State<Server>, Auth(caller): Auth) -> Answer<Vec<TokenView>> {
    Ok(Json(server.server_tokens(&caller)?))
}

/// Makes a token of the server, which is good for all tenants. It is shown once.
#[utoipa::path(post, operation_id = "tenants_make_server_token", path = "/v1/tokens", tag = "tenants", security(("token" = [])), request_body = NewToken,
    responses((status = 201, body = TokenMade), Refusals))]
async fn make_server_token(
    State(server): State<Server>,
    Auth(caller): Auth,
    Body(asked): Body<NewToken>,
) -> Result<(StatusCode, Json<TokenMade>), ApiError> {
    let made = Server::detached(async move { server.make_server_token(&caller, asked).await }).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Takes a token of the server back, at once.
#[utoipa::path(delete, operation_id = "tenants_revoke_server_token", path = "/v1/tokens/{id}", tag = "tenants", security(("token" = [])),
    params(("id" = String, Path, description = "The token")),
    responses((status = 204, description = "It is good for nothing any more"), Refusals))]
async fn revoke_server_token(
    State(server): State<Server>,
    Auth(caller): Auth,
    At(id): At<String>,
) -> Result<StatusCode, ApiError> {
    Server::detached(async move { server.revoke_server_token(&caller, &id).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
