//! Which format a file is in.

use super::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Tab-separated with a header and without quoting, as GLUE publishes its tasks.
    Tsv,
    /// Comma-separated with a header, quoted as RFC 4180 says.
    Csv,
    /// One JSON object a line.
    Jsonl,
    /// Apache Parquet, of which the plain columns are read.
    Parquet,
    /// One text a line, in a single column called `text`; blank lines are skipped.
    Text,
}

impl Format {
    /// The stated format, or else the one that the file's extension names.
    pub fn of(path: &Path, stated: Option<Format>) -> Result<Format> {
        if let Some(format) = stated {
            return Ok(format);
        }
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "tsv" => Ok(Format::Tsv),
            "csv" => Ok(Format::Csv),
            "jsonl" | "ndjson" | "json" => Ok(Format::Jsonl),
            "parquet" => Ok(Format::Parquet),
            "txt" => Ok(Format::Text),
            _ => Err(Error::UnknownFormat { file: path.into() }),
        }
    }
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
        ] {
            assert_eq!(Format::of(Path::new(name), None), Ok(format));
        }
    }

    #[test]
    fn what_is_stated_wins() {
        assert_eq!(Format::of(Path::new("a.tsv"), Some(Format::Csv)), Ok(Format::Csv));
        assert_eq!(Format::of(Path::new("a"), Some(Format::Csv)), Ok(Format::Csv));
    }

    #[test]
    fn an_unknown_extension_is_refused() {
        for name in ["a", "a.docx", ""] {
            assert_eq!(
                Format::of(Path::new(name), None),
                Err(Error::UnknownFormat { file: name.into() })
            );
        }
    }
}
