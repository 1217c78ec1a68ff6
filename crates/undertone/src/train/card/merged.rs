//! The card of an adapter that was merged into its base model: the adapter's card, with
//! instructions for the merged model. Merging is post-processing, so the guarantee stays the same.

use super::loading::{HEADING, loading};
use super::saved::Saved;
use crate::error::Result;
use crate::model::TaskHead;
use std::path::Path;

/// Rewrites an adapter's card for the merged model in `folder`; `None` if no run wrote the card.
pub fn card_of_merged(card: &str, folder: &Path, task_head: TaskHead) -> Result<Option<String>> {
    let Some((metadata, body)) = parts(card) else { return Ok(None) };
    let Some((before, section)) = body.split_once(&format!("\n{HEADING}\n")) else {
        return Ok(None);
    };
    let saved = Saved::read(folder)?;
    let after = section.find("\n## ").map_or("", |at| &section[at + 1..]);
    let metadata: Vec<String> = metadata
        .lines()
        .map(|line| match line.starts_with("library_name: ") {
            true => format!("library_name: {}", saved.library.name()),
            false => line.to_owned(),
        })
        .collect();
    Ok(Some(format!(
        "---\n{}\n---\n{before}\nThe trained adapter was merged into its base model, which costs no \
         privacy.\n\n{}\n{after}",
        metadata.join("\n"),
        loading(task_head, &saved)
    )))
}

/// The metadata and the text of a card of a run.
fn parts(card: &str) -> Option<(&str, &str)> {
    let (metadata, body) = card.strip_prefix("---\n")?.split_once("\n---\n")?;
    metadata.lines().any(|line| line == "- undertone").then_some((metadata, body))
}
