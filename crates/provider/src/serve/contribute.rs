//! Frames of releases: reads, checks, stores and acknowledges them.

use super::app::App;
use super::problem::Problem;
use crate::frame::{Frame, Kind, frame_hash, frame_length};
use crate::hex::hex;
use crate::receipt::Receipt;
use crate::store::{Contribution, Stored, WriterError, now};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

/// The frame of a request. The task determines its length, so a body of a different length is
/// refused before it is read.
pub async fn read_frame(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    kind: Kind,
) -> Result<(Frame, Vec<u8>), Problem> {
    let task = &app.folder.task;
    let length = frame_length(task);
    let given = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let Some(given) = given.and_then(|value| value.parse::<usize>().ok()) else {
        let detail = "a frame needs a Content-Length";
        return Err(Problem::new(StatusCode::LENGTH_REQUIRED, "length", detail));
    };
    if given != length {
        let detail = format!("a frame of this task has {length} bytes, not {given}");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "length", detail));
    }
    let reading = Limited::new(body, length).collect();
    let bytes = match tokio::time::timeout(app.limits.body, reading).await {
        Err(_) => {
            let detail = "the frame did not arrive in time";
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", detail));
        }
        Ok(Err(_)) => {
            let detail = "the frame was truncated in transit; send it again";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "frame", detail));
        }
        Ok(Ok(body)) => body.to_bytes().to_vec(),
    };
    let frame = Frame::decode(&bytes, kind, task, &app.folder.hash)
        .map_err(|why| Problem::new(StatusCode::BAD_REQUEST, "frame", why))?;
    Ok((frame, bytes))
}

/// `POST /v1/contributions`
pub async fn contribute(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, Problem> {
    let begun = Instant::now();
    let (_, token) = app.owner(&headers).await?;
    let (frame, bytes) = read_frame(&app, &headers, body, Kind::Contribution).await?;
    let (epoch, count) = (frame.epoch, frame.releases.len() as u32);
    let contribution = Contribution { token, epoch, releases: frame.releases };
    // A contribution that times out here may still be stored; if resent, it counts once.
    let storing = tokio::time::timeout(app.limits.store, app.writer.store(contribution));
    let stored = storing.await.unwrap_or_else(|_| {
        Err(WriterError::Away("a contribution waited too long to be stored".into()))
    });
    let (owner, new) = match stored {
        Ok(Stored::Yes { owner, new }) => (owner, new),
        Ok(Stored::NotAllowed) => return Err(Problem::not_allowed()),
        Ok(Stored::Full) => {
            let detail = "the owner or the task has reached its limit of releases; nothing of this \
                          frame was stored";
            return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, "full", detail));
        }
        Ok(Stored::Conflict) => {
            let detail = "a release differs from the one sent earlier with its id; nothing of this \
                          frame was stored";
            return Err(Problem::new(StatusCode::CONFLICT, "conflict", detail));
        }
        Err(WriterError::Busy) => {
            return Err(Problem::busy(
                "too many contributions are waiting to be stored; send it \
                                      again",
            ));
        }
        Err(WriterError::Away(why)) => return Err(app.away(&why)),
    };
    let receipt = app.key.sign(Receipt {
        task: hex(&app.folder.hash),
        owner: owner.name,
        epoch,
        frame: frame_hash(&bytes).map(|hash| hex(&hash)).unwrap_or_default(),
        releases: count,
        at: now(),
        signature: String::new(),
    });
    tracing::info!(owner = receipt.owner, epoch, releases = count, new, "stored");
    app.measured.contributed(new, u64::from(count) - new, begun.elapsed());
    Ok(json_response(&json!({ "receipt": receipt, "new": new })))
}

/// A response in JSON.
pub fn json_response(value: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    let json = axum::http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
