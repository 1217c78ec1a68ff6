//! File formats.

use super::error::{Error, Result};
use std::path::Path;

pub use undertone_settings::Format;

/// The given format, or the one implied by the file's extension.
pub fn format_of(path: &Path, stated: Option<Format>) -> Result<Format> {
    // A folder is treated as a set of Parquet shards.
    let of_folder = || path.is_dir().then_some(Format::Parquet);
    let format = stated.or_else(|| Format::from_extension(path)).or_else(of_folder);
    format.ok_or_else(|| Error::UnknownFormat { file: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_names_the_format() {
        for (name, format) in [
            ("a.tsv", Format::Tsv),
            ("a.CSV", Format::Csv),
            ("a.b.jsonl", Format::Jsonl),
            ("a.ndjson", Format::Jsonl),
            ("a.json", Format::Jsonl),
            ("a.parquet", Format::Parquet),
            ("a.txt", Format::Text),
            ("a.tsv.gz", Format::Tsv),
            ("b/a.b.CSV.GZ", Format::Csv),
            ("a.json.gz", Format::Jsonl),
            ("a.txt.gz", Format::Text),
            ("a.jsonl.zst", Format::Jsonl),
            ("data/*.csv", Format::Csv),
        ] {
            assert_eq!(format_of(Path::new(name), None), Ok(format));
        }
    }

    #[test]
    fn what_is_stated_wins() {
        assert_eq!(format_of(Path::new("a.tsv"), Some(Format::Csv)), Ok(Format::Csv));
        assert_eq!(format_of(Path::new("a"), Some(Format::Csv)), Ok(Format::Csv));
    }

    #[test]
    fn an_unknown_extension_is_refused() {
        for name in
            ["a", "a.docx", "", "a.gz", "a.parquet.gz", ".gz", "a.tsv.gz.gz", "a.parquet.zst"]
        {
            assert_eq!(
                format_of(Path::new(name), None),
                Err(Error::UnknownFormat { file: name.into() })
            );
        }
    }
}
