//! Routes about jobs.

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
use crate::job::{Change, Changed, UpgradeReport};
use crate::serve::{
    Deployed, Deployment, JobSummary, JobView, RescaleRequest, SavepointView, Server, StartRequest, StopRequest,
    StoppedView, UpgradeAsked,
};
use crate::tenant::Role;

type Answer<T> = Result<Json<T>, ApiError>;

/// A checkpoint that was asked for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct CheckpointView {
    /// Which one it was.
    epoch: u64,
}

/// A savepoint that is asked for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSavepoint {
    /// Its name.
    name: String,
}

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, deploy, delete))
        .routes(routes!(stop))
        .routes(routes!(start))
        .routes(routes!(rescale))
        .routes(routes!(upgrade))
        .routes(routes!(checkpoint))
        .routes(routes!(set))
        .routes(routes!(savepoints, make_savepoint))
        .routes(routes!(delete_savepoint))
}

/// The jobs of a tenant.
#[utoipa::path(get, operation_id = "jobs_list", path = "/v1/tenants/{tenant}/jobs", tag = "jobs", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant")),
    responses((status = 200, body = [JobSummary]), Refusals))]
async fn list(State(server): State<Server>, Auth(caller): Auth, At(tenant): At<String>) -> Answer<Vec<JobSummary>> {
    let jobs = server.tenant(&caller, &tenant, Role::Read)?.jobs();
    Ok(Json(jobs.iter().map(|job| job.summary()).collect()))
}

/// A job: where it is, its graph with rates and watermarks, its checkpoints, and why it is not what it is to be.
#[utoipa::path(get, operation_id = "jobs_show", path = "/v1/tenants/{tenant}/jobs/{job}", tag = "jobs", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 200, body = JobView), Refusals))]
async fn show(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
) -> Answer<JobView> {
    let job = server.tenant(&caller, &tenant, Role::Read)?.job(&job)?;
    Ok(Json(job.view().await))
}

/// Makes a job or changes one. The same again changes nothing. A running job goes on from a savepoint that is taken for the purpose.
#[utoipa::path(put, operation_id = "jobs_deploy", path = "/v1/tenants/{tenant}/jobs/{job}", tag = "jobs", security(("token" = [])), request_body = Deployment,
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job: the `name` of the pipeline")),
    responses((status = 200, body = Deployed), Refusals))]
async fn deploy(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
    Body(asked): Body<Deployment>,
) -> Answer<Deployed> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    Ok(Json(Server::detached(async move { server.deploy(&tenant, &caller, &job, asked).await }).await?))
}

/// Deletes a job that does not run, with all its state.
#[utoipa::path(delete, operation_id = "jobs_delete", path = "/v1/tenants/{tenant}/jobs/{job}", tag = "jobs", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 204, description = "It is gone"), Refusals))]
async fn delete(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    Server::detached(async move { server.delete_job(&tenant, &caller, &job).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Stops a job with a last checkpoint.
#[utoipa::path(post, operation_id = "jobs_stop", path = "/v1/tenants/{tenant}/jobs/{job}/stop", tag = "jobs", security(("token" = [])), request_body = StopRequest,
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 200, body = StoppedView), Refusals))]
async fn stop(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
    Body(asked): Body<StopRequest>,
) -> Answer<StoppedView> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    Ok(Json(Server::detached(async move { server.stop(&tenant, &caller, &job, asked).await }).await?))
}

/// Starts a job that does not run: from its newest checkpoint, or from where it is said.
#[utoipa::path(post, operation_id = "jobs_start", path = "/v1/tenants/{tenant}/jobs/{job}/start", tag = "jobs", security(("token" = [])), request_body = StartRequest,
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 200, body = JobSummary), Refusals))]
async fn start(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
    Body(asked): Body<StartRequest>,
) -> Answer<JobSummary> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    let handle = tenant.job(&job)?;
    Server::detached(async move { server.start(&tenant, &caller, &job, asked).await }).await?;
    Ok(Json(handle.summary()))
}

/// Gives a node another number of subtasks, by way of a savepoint.
#[utoipa::path(post, operation_id = "jobs_rescale", path = "/v1/tenants/{tenant}/jobs/{job}/rescale", tag = "jobs", security(("token" = [])),
    request_body = RescaleRequest,
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 200, body = Deployed), Refusals))]
async fn rescale(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
    Body(asked): Body<RescaleRequest>,
) -> Answer<Deployed> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    Ok(Json(Server::detached(async move { server.rescale(&tenant, &caller, &job, asked).await }).await?))
}

/// Puts another version of an operator in its place while the job runs. Answers when a checkpoint holds it, or when it is refused or taken back.
#[utoipa::path(post, operation_id = "jobs_upgrade", path = "/v1/tenants/{tenant}/jobs/{job}/upgrade", tag = "jobs", security(("token" = [])),
    request_body = UpgradeAsked,
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 200, body = UpgradeReport), Refusals))]
async fn upgrade(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
    Body(asked): Body<UpgradeAsked>,
) -> Answer<UpgradeReport> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    Ok(Json(Server::detached(async move { server.upgrade(&tenant, &caller, &job, asked).await }).await?))
}

/// Has a running job take a checkpoint.
#[utoipa::path(post, operation_id = "jobs_checkpoint", path = "/v1/tenants/{tenant}/jobs/{job}/checkpoints", tag = "jobs", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 200, body = CheckpointView), Refusals))]
async fn checkpoint(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
) -> Answer<CheckpointView> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    let epoch = Server::detached(async move { server.checkpoint(&tenant, &job).await }).await?;
    Ok(Json(CheckpointView { epoch }))
}

/// Changes settings of the checkpoints of a running job, until it is started again.
#[utoipa::path(put, operation_id = "jobs_set", path = "/v1/tenants/{tenant}/jobs/{job}/settings", tag = "jobs", security(("token" = [])), request_body = Change,
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 200, body = [Changed]), Refusals))]
async fn set(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
    Body(change): Body<Change>,
) -> Answer<Vec<Changed>> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    Ok(Json(Server::detached(async move { server.set(&tenant, &job, change).await }).await?))
}

/// The savepoints of a job.
#[utoipa::path(get, operation_id = "jobs_savepoints", path = "/v1/tenants/{tenant}/jobs/{job}/savepoints", tag = "jobs", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 200, body = [SavepointView]), Refusals))]
async fn savepoints(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
) -> Answer<Vec<SavepointView>> {
    let tenant = server.tenant(&caller, &tenant, Role::Read)?;
    Ok(Json(server.savepoints(&tenant, &job).await?))
}

/// Keeps a checkpoint under a name: a fresh one of a running job, else the newest.
#[utoipa::path(post, operation_id = "jobs_make_savepoint", path = "/v1/tenants/{tenant}/jobs/{job}/savepoints", tag = "jobs", security(("token" = [])),
    request_body = NewSavepoint,
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job")),
    responses((status = 201, body = SavepointView), Refusals))]
async fn make_savepoint(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job)): At<(String, String)>,
    Body(asked): Body<NewSavepoint>,
) -> Result<(StatusCode, Json<SavepointView>), ApiError> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    let made = Server::detached(async move { server.make_savepoint(&tenant, &job, &asked.name).await }).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Deletes a savepoint.
#[utoipa::path(delete, operation_id = "jobs_delete_savepoint", path = "/v1/tenants/{tenant}/jobs/{job}/savepoints/{name}", tag = "jobs", security(("token" = [])),
    params(("tenant" = String, Path, description = "The tenant"), ("job" = String, Path, description = "The job"),
        ("name" = String, Path, description = "The savepoint")),
    responses((status = 204, description = "It is gone"), Refusals))]
async fn delete_savepoint(
    State(server): State<Server>,
    Auth(caller): Auth,
    At((tenant, job, name)): At<(String, String, String)>,
) -> Result<StatusCode, ApiError> {
    let tenant = server.tenant(&caller, &tenant, Role::Deploy)?;
    Server::detached(async move { server.delete_savepoint(&tenant, &job, &name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
