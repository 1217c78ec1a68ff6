//! The provider's page: a page without scripts, rendered for each request.

use super::app::App;
use super::predict::Current;
use crate::hex::hex;
use crate::store::{Counts, Owner, now};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, header};
use std::fmt::Write;
use std::sync::Arc;

/// Only the style sheet is loaded, from this server. Bars have their lengths as SVG attributes,
/// because inline styles are blocked.
const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Maximum number of owners shown.
const SHOWN: usize = 200;

/// `GET /style.css`
pub async fn style() -> Response<Body> {
    let mut response = Response::new(Body::from(include_str!("style.css")));
    let css = HeaderValue::from_static("text/css; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, css);
    response
}

/// `GET /favicon.ico`: there is no icon, which is not a client error.
pub async fn no_icon() -> axum::http::StatusCode {
    axum::http::StatusCode::NO_CONTENT
}

/// `GET /`
pub async fn page(State(app): State<Arc<App>>) -> Response<Body> {
    let read = app.read(|store| Ok((store.counts()?, store.owners()?))).await;
    let task = &app.folder.task;
    let now = now();
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><meta http-equiv=\"refresh\" content=\"10\"><title>{0} · \
         Undertone</title><link rel=\"stylesheet\" href=\"style.css\"></head><body><h1>{0}</h1>\
         <p class=\"promise\">{1}</p>",
        escape(&task.name),
        escape(&task.promise()),
    );
    let counts = read.as_ref().ok().map(|(counts, _)| counts);
    out.push_str(&facts(counts, app.predictor.current().as_ref(), now));
    if let Ok((counts, owners)) = &read {
        out.push_str("<div class=\"charts\">");
        out.push_str(&labels(counts, &task.labels));
        out.push_str(&hours(counts, now / 3600));
        out.push_str("</div>");
        out.push_str(&table_of(owners));
    }
    let _ = write!(out, "<p class=\"hash\">task {}</p></body></html>", hex(&app.folder.hash));
    let mut response = Response::new(Body::from(out));
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    if let Err(problem) = &read {
        *response.status_mut() = problem.status;
    }
    response
}

/// Key figures; without counts if the store does not answer.
fn facts(counts: Option<&Counts>, model: Option<&Current>, now: u64) -> String {
    let known = |number: Option<u64>| number.map_or("–".to_owned(), grouped);
    let owners = known(counts.map(|counts| counts.owners));
    let texts = known(counts.map(|counts| counts.of_epoch(0)));
    let all = counts.map(|counts| counts.releases.iter().map(|(.., count)| count).sum());
    let store = match counts {
        Some(_) => ("Store", "answers".to_owned(), " class=\"ok\"", String::new()),
        None => {
            ("Store", "away".to_owned(), " class=\"bad\"", "owners are told to wait".to_owned())
        }
    };
    let accuracy = model.and_then(|model| model.accuracy);
    let accuracy = accuracy.map_or("–".to_owned(), |share| format!("{:.1} %", 100.0 * share));
    let trained = model.map_or("no model yet".to_owned(), |model| {
        format!("on {} texts, {}", grouped(model.releases), ago(now.saturating_sub(model.at)))
    });
    let facts = [
        ("Owners", owners, "", "with a valid token".to_owned()),
        ("Texts", texts, "", format!("{} releases", known(all))),
        ("Accuracy", accuracy, "", trained),
        store,
    ];
    let mut out = String::from("<dl>");
    for (name, value, class, more) in facts {
        let _ =
            write!(out, "<div><dt>{name}</dt><dd{class}>{value}<small>{more}</small></dd></div>");
    }
    out + "</dl>"
}

/// Bars of the texts by the label that was sent, after randomized response.
fn labels(counts: &Counts, names: &[String]) -> String {
    let of = |label: usize| {
        let entry =
            counts.releases.iter().find(|(epoch, of, _)| (*epoch, *of as usize) == (0, label));
        entry.map_or(0, |(.., count)| *count)
    };
    let most = (0..names.len()).map(of).max().unwrap_or(0).max(1);
    let mut out = String::from("<section class=\"labels\"><h2>Texts by label</h2><table>");
    for (label, name) in names.iter().enumerate() {
        let count = of(label);
        let _ = write!(
            out,
            "<tr><th>{}</th><td><svg viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\"><rect \
             width=\"{:.2}\" height=\"1\"/></svg></td><td class=\"number\">{}</td></tr>",
            escape(name),
            100.0 * count as f64 / most as f64,
            grouped(count)
        );
    }
    out + "</table><p class=\"note\">As they were sent, after randomized response.</p></section>"
}

/// Bars of the texts in the last 24 hours.
fn hours(counts: &Counts, now: u64) -> String {
    let of = |hour: u64| {
        counts.by_hour.iter().find(|(at, _)| *at == hour).map_or(0, |(_, count)| *count)
    };
    let hours: Vec<u64> = (0..24).rev().map(|ago| now.saturating_sub(ago)).collect();
    let most = hours.iter().map(|hour| of(*hour)).max().unwrap_or(0).max(1);
    let mut out = String::from(
        "<section class=\"hours\"><h2>Texts by hour (UTC)</h2><svg viewBox=\"0 0 240 100\" \
         preserveAspectRatio=\"none\"><line x1=\"0\" x2=\"240\" y1=\"100\" y2=\"100\"/>",
    );
    for (column, hour) in hours.iter().enumerate() {
        let count = of(*hour);
        let height = 100.0 * count as f64 / most as f64;
        let _ = write!(
            out,
            "<rect x=\"{}\" y=\"{:.2}\" width=\"8\" height=\"{height:.2}\"><title>{:02}:00: \
             {}</title></rect>",
            10 * column + 1,
            100.0 - height,
            hour % 24,
            grouped(count)
        );
    }
    let name = |hour: Option<&u64>| format!("{:02}:00", hour.copied().unwrap_or(0) % 24);
    let _ = write!(
        out,
        "</svg><p class=\"axis\"><span>{}</span><span>{}</span><span>{}</span></p>",
        name(hours.first()),
        name(hours.get(12)),
        name(hours.last())
    );
    out + "</section>"
}

fn table_of(owners: &[Owner]) -> String {
    let mut out = String::from(
        "<section class=\"owners\"><h2>Owners</h2><table><tr><th>name</th><th class=\"number\">\
         releases</th><th class=\"number\">at most, an epoch</th><th>token</th></tr>",
    );
    for owner in owners.iter().rev().take(SHOWN) {
        let token = if owner.revoked { "revoked" } else { "valid" };
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td>{token}</td></tr>",
            escape(&owner.name),
            grouped(owner.releases),
            grouped(owner.limit)
        );
    }
    out.push_str("</table>");
    if owners.is_empty() {
        out.push_str(
            "<p class=\"note\">None yet: create a token with undertone-provider tokens \
                      new.</p>",
        );
    }
    if owners.len() > SHOWN {
        let more = grouped((owners.len() - SHOWN) as u64);
        let _ = write!(out, "<p class=\"note\">{more} earlier owners are not shown.</p>");
    }
    out + "</section>"
}

/// A number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => "just now".to_owned(),
        60..120 => "a minute ago".to_owned(),
        120..7200 => format!("{} minutes ago", seconds / 60),
        7200..172_800 => format!("{} hours ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_easy_to_read() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [5, 60, 7300, 200_000].map(ago),
            ["just now", "a minute ago", "2 hours ago", "2 days ago"]
        );
    }
}
