//! The routes of the server.

use super::app::App;
use super::contribute::{contribute, json_response};
use super::files::pre_file;
use super::page;
use super::predict::predict;
use super::problem::Problem;
use crate::frame::frame_length;
use crate::hex::hex;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

/// The description of the API in OpenAPI format.
const OPENAPI: &str = include_str!("openapi.json");

/// The routes for owners.
pub fn owners(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/v1/task", get(task))
        .route("/v1/pre/{name}", get(pre_file))
        .route("/v1/enrol", post(enrol))
        .route("/v1/contributions", post(contribute))
        .route("/v1/status", get(status))
        .route("/v1/predict", post(predict))
        .route("/v1/openapi.json", get(openapi));
    finished(router, app)
}

/// The routes for the provider only.
pub fn admin(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/", get(page::page))
        .route("/style.css", get(page::style))
        .route("/favicon.ico", get(page::no_icon))
        .route("/metrics", get(metrics));
    finished(router, app)
}

fn finished(router: Router<Arc<App>>, app: Arc<App>) -> Router {
    router
        .route("/healthz", get(health))
        .fallback(missing)
        .method_not_allowed_fallback(not_allowed_here)
        .layer(from_fn_with_state(app.clone(), around))
        .with_state(app)
}

/// Adds headers to every response, counts refusals, and writes a log line. The line has the route
/// instead of the path, in which a client may have written anything.
async fn around(State(app): State<Arc<App>>, request: Request, next: Next) -> Response<Body> {
    let begun = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    let (status, ms) = (response.status().as_u16(), begun.elapsed().as_millis() as u64);
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    tracing::info!(%method, route, status, ms, "answered");
    if response.status().is_client_error() || response.status().is_server_error() {
        app.measured.refused();
    }
    let headers = response.headers_mut();
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn missing() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "missing", "there is nothing at this path")
}

async fn not_allowed_here() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this path needs another method")
}

/// `GET /v1/task`: the bytes that are hashed as the task.
async fn task(State(app): State<Arc<App>>) -> Response<Body> {
    let mut response = Response::new(Body::from(app.folder.bytes.clone()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// `POST /v1/enrol`: whether a token is valid, and what its owner may send.
async fn enrol(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response<Body>, Problem> {
    let (owner, _) = app.owner(&headers).await?;
    Ok(json_response(&json!({
        "owner": owner.name,
        "task": hex(&app.folder.hash),
        "limit": owner.limit,
        "frame_bytes": frame_length(&app.folder.task),
    })))
}

/// `GET /v1/status`: what is stored for the token's owner.
async fn status(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let (owner, _) = app.owner(&headers).await?;
    Ok(json_response(&json!({
        "owner": owner.name,
        "task": hex(&app.folder.hash),
        "releases": owner.releases,
        "limit": owner.limit,
    })))
}

async fn openapi() -> Response<Body> {
    let mut response = Response::new(Body::from(OPENAPI));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// `GET /healthz`: whether the store responds.
async fn health(State(app): State<Arc<App>>) -> Result<Response<Body>, Problem> {
    app.read(|store| store.owner_of(&[0; 32])).await?;
    Ok(json_response(&json!({ "status": "ok" })))
}

/// `GET /metrics`
async fn metrics(State(app): State<Arc<App>>) -> Result<Response<Body>, Problem> {
    let counts = app.read(|store| store.counts()).await?;
    let text = app.measured.text(&counts, &app.folder.task.labels);
    let mut response = Response::new(Body::from(text));
    let plain = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}
