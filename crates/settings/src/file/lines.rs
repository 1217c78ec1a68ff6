//! Finds the line of a run file on which a key appears.

/// The 1-based line on which the value of a key begins, or `None` if a line-by-line scan cannot
/// find it (for example, a key inside a multi-line value).
pub(super) fn line_of(text: &str, path: &str) -> Option<usize> {
    let mut section = String::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = name.trim().to_owned();
            if section == path {
                return Some(number + 1);
            }
            continue;
        }
        let Some((key, _)) = line.split_once('=') else { continue };
        let key = key.trim().trim_matches('"');
        let here = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        // A key of an inline table is on the table's line.
        let within = path.strip_prefix(&here).is_some_and(|rest| rest.starts_with('.'));
        if here == path || within {
            return Some(number + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_their_sections() {
        let text = "a = 1\n[model]\n# batch = 3\ntuning = { lora = { rank = 8 } }\n\
                    [training]\nbatch = 2\n[privacy.local]\ndims = [\n4]\n";
        for (path, line) in [
            ("a", Some(1)),
            ("model.tuning.lora.rank", Some(4)),
            ("training.batch", Some(6)),
            ("privacy.local", Some(7)),
            ("privacy.local.dims", Some(8)),
            ("training.epochs", None),
            ("batch", None),
        ] {
            assert_eq!(line_of(text, path), line, "{path}");
        }
    }
}
