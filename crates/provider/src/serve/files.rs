//! Files of pre(·), whole or in ranges, streamed from disk.

use super::app::App;
use super::problem::Problem;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::{Bytes, Frame, SizeHint};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// `GET /v1/pre/{name}`
pub async fn pre_file(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    // Only files that the task lists.
    let Some(file) = app.folder.task.files.iter().find(|file| file.name == name) else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "missing", "pre(·) has no such file"));
    };
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let (status, range) = match range.map(|range| parse_range(range, file.bytes)) {
        None | Some(Asked::Nothing) => (StatusCode::OK, 0..file.bytes),
        Some(Asked::Part(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(Asked::Outside) => {
            let detail = format!("{name} has {} bytes", file.bytes);
            return Err(Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", detail));
        }
    };
    let path = app.folder.pre().join(&file.name);
    let body = FileBody::open(path, range.clone());
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = status;
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", file.sha256)) {
        out.insert(header::ETAG, tag);
    }
    if status == StatusCode::PARTIAL_CONTENT {
        let range_header =
            format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), file.bytes);
        if let Ok(range_header) = HeaderValue::from_str(&range_header) {
            out.insert(header::CONTENT_RANGE, range_header);
        }
    }
    Ok(response)
}

/// The range requested by a Range header.
#[derive(Debug, PartialEq)]
enum Asked {
    /// Not understood, so the whole file is sent.
    Nothing,
    Part(Range<u64>),
    /// A range outside the file.
    Outside,
}

fn parse_range(text: &str, bytes: u64) -> Asked {
    let Some((first, last)) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-'))
    else {
        return Asked::Nothing;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = match (first.trim(), last.trim()) {
        ("", last) => match number(last) {
            Some(count) => bytes.saturating_sub(count)..bytes,
            None => return Asked::Nothing,
        },
        (first, "") => match number(first) {
            Some(first) => first..bytes,
            None => return Asked::Nothing,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(bytes),
            _ => return Asked::Nothing,
        },
    };
    if range.start >= range.end { Asked::Outside } else { Asked::Part(range) }
}

/// A part of a file. A thread reads it no faster than it is sent.
struct FileBody {
    chunks: mpsc::Receiver<std::io::Result<Bytes>>,
    left: u64,
}

const CHUNK: u64 = 256 << 10;

impl FileBody {
    fn open(path: std::path::PathBuf, range: Range<u64>) -> Self {
        let (sender, chunks) = mpsc::channel(4);
        let left = range.end - range.start;
        tokio::task::spawn_blocking(move || {
            let read = || -> std::io::Result<()> {
                let mut file = undertone_run::open_regular(&path)?;
                file.seek(SeekFrom::Start(range.start))?;
                let mut left = range.end - range.start;
                while left > 0 {
                    let mut chunk = vec![0; left.min(CHUNK) as usize];
                    file.read_exact(&mut chunk)?;
                    left -= chunk.len() as u64;
                    if sender.blocking_send(Ok(chunk.into())).is_err() {
                        break;
                    }
                }
                Ok(())
            };
            if let Err(e) = read() {
                let _ = sender.blocking_send(Err(e));
            }
        });
        Self { chunks, left }
    }
}

impl hyper::body::Body for FileBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.chunks.poll_recv(context).map(|chunk| {
            let chunk = chunk?;
            if let Ok(bytes) = &chunk {
                self.left -= bytes.len() as u64;
            }
            Some(chunk.map(Frame::data))
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_file() {
        for (text, asked) in [
            ("bytes=0-9", Asked::Part(0..10)),
            ("bytes=5-", Asked::Part(5..100)),
            ("bytes=-7", Asked::Part(93..100)),
            ("bytes=-700", Asked::Part(0..100)),
            ("bytes=90-900", Asked::Part(90..100)),
            ("bytes=100-", Asked::Outside),
            ("bytes=9-5", Asked::Nothing),
            ("bytes=a-b", Asked::Nothing),
            ("lines=1-2", Asked::Nothing),
            ("bytes=0-18446744073709551615", Asked::Part(0..100)),
        ] {
            assert_eq!(parse_range(text, 100), asked, "{text}");
        }
    }
}
