//! Errors as `application/problem+json` (RFC 9457).

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

/// The reason why a request is refused: one sentence, and a word for programs to compare.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// The end of the type's URI.
    pub kind: &'static str,
    pub detail: String,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self { status, kind, detail: detail.into() }
    }

    /// The token is missing, unknown or revoked; the answer does not say which.
    pub fn not_allowed() -> Self {
        let detail = "the token is missing, unknown or revoked; ask the provider for a new one";
        Self::new(StatusCode::UNAUTHORIZED, "not-allowed", detail)
    }

    /// Try again later.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
    }

    /// The HTTP response.
    pub fn response(&self) -> Response<Body> {
        let text = json!({
            "type": format!("urn:undertone:problem:{}", self.kind),
            "title": self.status.canonical_reason().unwrap_or("problem"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        })
        .to_string();
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let retries = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
        if retries.contains(&self.status) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl axum::response::IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        self.response()
    }
}
