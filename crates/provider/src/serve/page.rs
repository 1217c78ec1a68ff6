//! The provider's page: one page without scripts, made anew for each request.

use super::app::App;
use super::problem::Problem;
use crate::hex::hex;
use crate::store::{Counts, now};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, header};
use std::fmt::Write;
use std::sync::Arc;

/// Nothing is loaded but the style sheet, from here.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// `GET /style.css`
pub async fn style() -> Response<Body> {
    let mut response = Response::new(Body::from(include_str!("style.css")));
    let css = HeaderValue::from_static("text/css; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, css);
    response
}

/// `GET /`
pub async fn page(State(app): State<Arc<App>>) -> Result<Response<Body>, Problem> {
    let (counts, owners) = app.read(|store| Ok((store.counts()?, store.owners()?))).await?;
    let task = &app.folder.task;
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><meta http-equiv=\"refresh\" content=\"10\"><title>{0} · \
         Undertone</title><link rel=\"stylesheet\" href=\"style.css\"></head><body><h1>{0}</h1>\
         <p class=\"promise\">{1}</p><dl>",
        escape(&task.name),
        escape(&task.promise()),
    );
    let first = counts.of_epoch(0);
    let model = app.predictor.current();
    let accuracy = model.as_ref().and_then(|model| model.accuracy);
    let facts = [
        ("Owners", counts.owners.to_string()),
        ("Texts", first.to_string()),
        ("Releases", counts.releases.iter().map(|(.., count)| count).sum::<u64>().to_string()),
        ("Learnt from", model.as_ref().map_or("–".into(), |model| model.releases.to_string())),
        ("Accuracy", accuracy.map_or("–".into(), |share| format!("{:.1} %", 100.0 * share))),
        ("Store", "answers".to_owned()),
    ];
    for (name, value) in facts {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>");
    out.push_str(&labels(&counts, &task.labels));
    out.push_str(&hours(&counts, now() / 3600));
    out.push_str("<h2>Owners</h2><table><tr><th>name</th><th>releases</th><th>token</th></tr>");
    const SHOWN: usize = 200;
    for owner in owners.iter().rev().take(SHOWN) {
        let token = if owner.revoked { "revoked" } else { "valid" };
        let name = escape(&owner.name);
        let _ = write!(out, "<tr><td>{name}</td><td>{}</td><td>{token}</td></tr>", owner.releases);
    }
    out.push_str("</table>");
    if owners.len() > SHOWN {
        let _ = write!(out, "<p>{} earlier owners are not shown.</p>", owners.len() - SHOWN);
    }
    let _ = write!(out, "<p class=\"hash\">task {}</p></body></html>", hex(&app.folder.hash));
    let mut response = Response::new(Body::from(out));
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(response)
}

/// Bars of the texts by the label that was sent, which randomised response has changed.
fn labels(counts: &Counts, names: &[String]) -> String {
    let first = counts.releases.iter().filter(|(epoch, ..)| *epoch == 0);
    let rows = first.map(|(_, label, count)| {
        (names.get(*label as usize).map_or("?", String::as_str).to_owned(), *count)
    });
    bars("Texts by the label that was sent", &rows.collect::<Vec<_>>())
}

/// Bars of the texts of the last 24 hours.
fn hours(counts: &Counts, now: u64) -> String {
    let rows = (0..24).rev().map(|ago| {
        let hour = now.saturating_sub(ago);
        let count =
            counts.by_hour.iter().find(|(at, _)| *at == hour).map_or(0, |(_, count)| *count);
        (format!("{:02}:00", hour % 24), count)
    });
    bars("Texts of the last 24 hours (UTC)", &rows.collect::<Vec<_>>())
}

fn bars(title: &str, rows: &[(String, u64)]) -> String {
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let mut out = format!("<h2>{}</h2><table class=\"bars\">", escape(title));
    for (name, count) in rows {
        // Styles inside of elements are refused by the policy; a meter needs none.
        let _ = write!(
            out,
            "<tr><th>{}</th><td><meter min=\"0\" max=\"{most}\" value=\"{count}\"></meter></td>\
             <td>{count}</td></tr>",
            escape(name)
        );
    }
    out.push_str("</table>");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
