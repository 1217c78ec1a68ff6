//! Parts of the book that tests generate, between the lines `<!-- generated: NAME … -->` and
//! `<!-- end -->` of a page.

use std::fs;
use std::path::Path;

/// Fails unless the generated part of a page equals this text. With `UNDERTONE_SNAPSHOTS=write`,
/// updates the page instead.
#[track_caller]
pub fn assert_generated(page: &str, name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let kept = fs::read_to_string(&path).unwrap();
    let start = kept.find(&format!("<!-- generated: {name}")).expect("a start marker");
    let start = start + kept[start..].find("-->\n").unwrap() + 4;
    let end = start + kept[start..].find("<!-- end -->").expect("an end marker");
    let text = format!("\n{}\n\n", text.trim());
    if kept[start..end] == text {
        return;
    }
    if std::env::var("UNDERTONE_SNAPSHOTS").is_ok_and(|value| value == "write") {
        return fs::write(&path, [&kept[..start], &text, &kept[end..]].concat()).unwrap();
    }
    let differs = kept[start..end].lines().zip(text.lines()).find(|(kept, new)| kept != new);
    panic!(
        "{page} is stale; UNDERTONE_SNAPSHOTS=write cargo test reference updates it. The first \
         line that differs: {differs:?}"
    );
}
