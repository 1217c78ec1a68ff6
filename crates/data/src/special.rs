//! The end-of-text and mask tokens, from the files next to a tokenizer.

use super::error::{Error, Result};
use serde_json::Value;
use std::path::Path;

/// Files that specify special tokens, in order of precedence.
const FILES: [&str; 2] = ["tokenizer_config.json", "special_tokens_map.json"];

/// Common end-of-text tokens, for models whose files do not specify one.
pub(crate) const ENDS: [&str; 5] =
    ["<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|im_end|>"];

/// Common mask tokens.
pub(crate) const MASKS: [&str; 2] = ["[MASK]", "<mask>"];

/// The special token for a role (`eos_token`, `mask_token`) specified by a file in the folder.
pub(crate) fn stated(folder: &Path, role: &str) -> Result<Option<String>> {
    for name in FILES {
        let file = folder.join(name);
        let Ok(bytes) = undertone_settings::read_bytes(&file, undertone_settings::MOST_OF_SETTINGS)
        else {
            continue;
        };
        let settings: Value = serde_json::from_slice(&bytes)
            .map_err(|e| Error::Tokenizer { file: file.clone(), reason: e.to_string() })?;
        // A string, or an object with the string in `content`.
        let token = &settings[role];
        if let Some(token) = token.as_str().or_else(|| token["content"].as_str()) {
            return Ok(Some(token.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_and_both_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let role = || stated(folder.path(), "eos_token");
        assert_eq!(role(), Ok(None));
        std::fs::write(folder.path().join(FILES[1]), r#"{"eos_token": {"content": "<b>"}}"#)
            .unwrap();
        assert_eq!(role(), Ok(Some("<b>".into())));
        std::fs::write(folder.path().join(FILES[0]), r#"{"eos_token": "<a>"}"#).unwrap();
        assert_eq!(role(), Ok(Some("<a>".into())));
        std::fs::write(folder.path().join(FILES[0]), r#"{"eos_token": null}"#).unwrap();
        assert_eq!(role(), Ok(Some("<b>".into())));
        std::fs::write(folder.path().join(FILES[0]), "[1, 2]").unwrap();
        assert_eq!(role(), Ok(Some("<b>".into())));
        std::fs::write(folder.path().join(FILES[0]), "{").unwrap();
        assert!(matches!(role(), Err(Error::Tokenizer { .. })));
    }
}
