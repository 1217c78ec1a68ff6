//! Makes text from files, names and labels safe to display.
//!
//! The author of a file that we read must not be able to move a terminal's cursor, clear its
//! screen, or reverse the text direction so that a sentence reads as a different one.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character controls a terminal or the direction of surrounding text.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}

fn escape(
    text: &str,
    steers: impl Fn(char) -> bool,
    write: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if !text.chars().any(&steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if steers(c) {
            write(&mut shown, c);
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

fn escaped(text: &mut String, c: char) {
    let _ = write!(text, "{}", c.escape_default());
}

/// Makes multi-line text printable: control characters are escaped, except line breaks and tabs.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |c| steers(c) && c != '\n' && c != '\t', escaped)
}

/// Makes text printable on a single line: line breaks and tabs are escaped too.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    escape(text, steers, escaped)
}

/// JSON text with control characters written as JSON escapes, which preserves its meaning.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escape(
        json,
        |c| steers(c) && c != '\n',
        |text, c| {
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        },
    )
}

/// Escapes text so that Markdown shows it literally: no markup, no links, one line.
pub fn escape_markdown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable_line(text).chars() {
        match c {
            '\\' | '|' | '<' | '>' | '*' | '_' | '`' | '[' | ']' | '~' | '#' | '$' => {
                safe.extend(['\\', c]);
            }
            '&' => safe.push_str("&amp;"),
            c => safe.push(c),
        }
    }
    // Renderers turn bare URLs into links.
    safe.replace("://", "\\://").replace("www.", "www\\.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_shown_literally() {
        assert_eq!(escape_markdown("a|b <c> *d*"), "a\\|b \\<c\\> \\*d\\*");
        assert_eq!(escape_markdown("https://a.b, www.c.d"), "https\\://a.b, www\\.c.d");
        assert_eq!(escape_markdown("one\ntwo & \u{202e}"), "one\\\\ntwo &amp; \\\\u{202e}");
    }

    #[test]
    fn what_steers_is_escaped() {
        assert_eq!(printable("plain, ε ≤ 8\nnext\tcell"), "plain, ε ≤ 8\nnext\tcell");
        assert_eq!(printable("\u{1b}[2Jgone"), "\\u{1b}[2Jgone");
        assert_eq!(printable("a\u{202e}b\u{2066}c\u{9b}d"), "a\\u{202e}b\\u{2066}c\\u{9b}d");
        assert_eq!(printable_line("two\nlines\r"), "two\\nlines\\r");
        let json = "{\"name\":\"a\u{202e}b\"}";
        let shown = printable_json(json);
        assert_eq!(shown, "{\"name\":\"a\\u202eb\"}");
        let same: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(same, serde_json::from_str::<serde_json::Value>(json).unwrap());
    }
}
