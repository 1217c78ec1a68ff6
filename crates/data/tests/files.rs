//! Real-world files: every format and line ending, and an error with file and line for every
//! mistake.

use std::path::{Path, PathBuf};
use tempfile::TempDir;
use undertone_data::format_of;
use undertone_data::read::{self, Row};
use undertone_data::{Error, Format, Result};

use crate::parquet_files;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// A temporary folder with one file.
struct Given {
    _folder: TempDir,
    file: PathBuf,
}

fn given(name: &str, contents: impl AsRef<[u8]>) -> Given {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, contents).unwrap();
    Given { _folder: folder, file }
}

fn all(file: &Path, columns: &[&str]) -> Result<Vec<Row>> {
    read::rows(file, format_of(file, None)?, columns)?.collect()
}

fn gzipped(contents: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(contents.as_ref()).unwrap();
    encoder.finish().unwrap()
}

fn row(line: u64, values: &[&str]) -> Row {
    Row { line, values: values.iter().map(|value| value.to_string()).collect() }
}

#[test]
fn tsv_takes_quotes_as_they_are() {
    let given = given("a.tsv", "sentence\tlabel\n\"quoted\tyes\na \"b\tno\n\n\n");
    let rows = all(&given.file, &["label", "sentence"]).unwrap();
    assert_eq!(rows, [row(2, &["yes", "\"quoted"]), row(3, &["no", "a \"b"])]);
}

#[test]
fn csv_joins_quoted_lines_and_keeps_count() {
    let given = given(
        "a.csv",
        "text,n\r\n\"two\r\nlines, \"\"quoted\"\"\",1\r\n\r\nplain \"x\",2\r\n\"\",3",
    );
    let rows = all(&given.file, &["text", "n"]).unwrap();
    let expected = [
        row(2, &["two\r\nlines, \"quoted\"", "1"]),
        row(5, &["plain \"x\"", "2"]),
        row(6, &["", "3"]),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn jsonl_turns_values_to_text_and_follows_dots() {
    let lines = r#"{"a": "x", "b": {"c": 1.5, "d.e": true}}

{"a": 2, "b.c": "whole", "b": {"d": {"e": "deep"}}}"#;
    let given = given("a.jsonl", lines);
    let rows = all(&given.file, &["a", "b.c", "b.d.e"]).unwrap();
    assert_eq!(rows, [row(1, &["x", "1.5", "true"]), row(3, &["2", "whole", "deep"])]);
}

#[test]
fn text_has_one_column_and_skips_blank_lines() {
    let given = given("a.txt", "one\n\n  \ntwo\r\n");
    assert_eq!(all(&given.file, &["text"]).unwrap(), [row(1, &["one"]), row(4, &["two"])]);
    assert!(matches!(all(&given.file, &["label"]), Err(Error::MissingColumn { .. })));
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_tolerated() {
    for (name, contents) in [
        ("a.tsv", "\u{feff}text\tn\r\nx\t1\r\ny\t2\r\n"),
        ("a.csv", "\u{feff}text,n\r\nx,1\r\ny,2\r\n"),
        ("a.csv", "\u{feff}\"text\",n\r\n\"x\",1\r\ny,2"),
        ("a.jsonl", "\u{feff}{\"text\": \"x\", \"n\": 1}\r\n{\"text\": \"y\", \"n\": 2}\r\n"),
    ] {
        let given = given(name, contents);
        let values: Vec<_> =
            all(&given.file, &["text", "n"]).unwrap().into_iter().map(|r| r.values).collect();
        assert_eq!(values, [["x", "1"], ["y", "2"]], "{contents:?}");
    }
}

#[test]
fn the_formats_agree() {
    let texts = ["a plain text", "with, a comma", "with a \"quote\"", "Ünïcödé ✓", ""];
    let numbers = [3_i64, -1, 0, 7, i64::MAX];
    let truths = [true, false, true, true, false];
    let rows = || {
        texts.iter().zip(numbers).zip(truths).map(|((text, number), truth)| (text, number, truth))
    };

    let tsv: String = rows().map(|(t, n, b)| format!("{t}\t{n}\t{b}\n")).collect();
    let csv: String =
        rows().map(|(t, n, b)| format!("\"{}\",{n},{b}\n", t.replace('"', "\"\""))).collect();
    let json = |(text, number, truth)| {
        format!("{}\n", serde_json::json!({"text": text, "number": number, "truth": truth}))
    };
    let jsonl: String = rows().map(json).collect();
    let array = format!(" [\n{}\n]\n", jsonl.trim().replace("}\n{", "},\n{"));
    let pretty: Vec<serde_json::Value> = serde_json::from_str(&array).unwrap();
    let pretty = serde_json::to_string_pretty(&pretty).unwrap();
    let parquet = parquet_files::written(&texts, &numbers, &truths);
    let tsv = format!("text\tnumber\ttruth\n{tsv}");
    let with = |separator: &str| {
        let rows = rows().map(|(t, n, b)| {
            format!("\"{}\"{separator}{n}{separator}{b}\n", t.replace('"', "\"\""))
        });
        let header = ["text", "number", "truth"].join(separator);
        format!("{header}\n{}", rows.collect::<String>())
    };
    let (first, rest) = jsonl.split_at(40);

    let files = [
        given("a.tsv", &tsv),
        given("a.csv", format!("text,number,truth\n{csv}")),
        given("semicolons.csv", with(";")),
        given("a.jsonl", &jsonl),
        given("array.json", &array),
        given("pretty.json", &pretty),
        given("lines.json", &jsonl),
        given("a.parquet", parquet),
        given("a.tsv.gz", gzipped(&tsv)),
        given("a.csv.gz", gzipped(with(","))),
        given("semicolons.csv.gz", gzipped(with(";"))),
        // Two gzip members form one file, as `cat a.gz b.gz` produces.
        given("a.jsonl.gz", [gzipped(first), gzipped(rest)].concat()),
        given("array.json.gz", gzipped(&array)),
    ];
    let quoted = given("quoted.tsv", with("\t"));
    let values: Vec<Vec<String>> =
        read::rows(&quoted.file, Format::QuotedTsv, &["truth", "text", "number"])
            .unwrap()
            .map(|row| row.unwrap().values)
            .collect();
    let again = all(&files[0].file, &["truth", "text", "number"]).unwrap();
    assert_eq!(values, again.into_iter().map(|row| row.values).collect::<Vec<_>>());
    let expected: Vec<_> =
        rows().map(|(t, n, b)| [b.to_string(), t.to_string(), n.to_string()]).collect();
    for given in &files {
        let values: Vec<_> = all(&given.file, &["truth", "text", "number"])
            .unwrap()
            .into_iter()
            .map(|r| r.values)
            .collect();
        assert_eq!(values, expected, "{}", given.file.display());
        let mut columns =
            read::columns(&given.file, format_of(&given.file, None).unwrap()).unwrap();
        columns.sort();
        assert_eq!(columns, ["number", "text", "truth"]);
    }
}

#[test]
fn a_text_file_may_be_compressed() {
    let given = given("a.txt.gz", gzipped("one\n\ntwo\r\n"));
    assert_eq!(all(&given.file, &["text"]).unwrap(), [row(1, &["one"]), row(3, &["two"])]);
}

/// The first bytes decide whether a file is compressed, whatever its name.
#[test]
fn a_name_does_not_compress() {
    let plain = given("a.tsv.gz", "text\nx\n");
    assert_eq!(all(&plain.file, &["text"]).unwrap(), [row(2, &["x"])]);
    let packed = given("a.tsv", gzipped("text\nx\n"));
    assert_eq!(all(&packed.file, &["text"]).unwrap(), [row(2, &["x"])]);
}

#[test]
fn a_comma_in_the_header_decides_for_commas() {
    for (contents, columns, values) in [
        ("a;b\n1,5;x\n", &["a", "b"][..], &["1,5", "x"][..]),
        ("\"a,c\";b\n\"1;5\";x\n", &["a,c", "b"], &["1;5", "x"]),
        ("a,b;c\n1,x;y\n", &["a", "b;c"], &["1", "x;y"]),
        ("\"a;b\"\n1;5\n", &["a;b"], &["1;5"]),
    ] {
        let given = given("a.csv", contents);
        assert_eq!(read::columns(&given.file, Format::Csv).unwrap(), columns, "{contents}");
        assert_eq!(all(&given.file, columns).unwrap(), [row(2, values)], "{contents}");
    }
}

/// Quotes join fields and lines only if the format says so: GLUE's files contain stray ones.
#[test]
fn tsv_is_quoted_only_if_stated() {
    let contents = "text\tlabel\n\"a\tb\"\t\"x\"\"y\"\n\"two\nlines\"\tz\n";
    let given = given("a.tsv", contents);
    let rows: Vec<Row> = read::rows(&given.file, Format::QuotedTsv, &["text", "label"])
        .unwrap()
        .map(|row| row.unwrap())
        .collect();
    assert_eq!(rows, [row(2, &["a\tb", "x\"y"]), row(3, &["two\nlines", "z"])]);
    assert!(matches!(all(&given.file, &["text"]), Err(Error::TornRow { line: 2, .. })));
}

#[test]
fn a_damaged_or_endless_gzip_file_is_refused() {
    let whole = gzipped("text\n".repeat(1000));
    for (bytes, about) in [
        (whole[..whole.len() / 2].to_vec(), "compressed data are damaged"),
        ([&whole[..12], &[0xff; 40]].concat(), "compressed data are damaged"),
        // A hundred lines of one mebibyte each.
        (gzipped(("a".repeat(1 << 20) + "\n").repeat(100)), "more than 200 times its size"),
        // Millions of short rows in a file of 16 kB.
        (gzipped("a\n".repeat(8 << 20)), "more than 200 times its size"),
    ] {
        let given = given("a.txt.gz", bytes);
        let error = all(&given.file, &["text"]).unwrap_err().to_string();
        assert!(error.contains(about) && error.contains("a.txt.gz"), "{error}");
    }
    let long = given("a.txt", "a".repeat((64 << 20) + 1));
    assert!(matches!(all(&long.file, &["text"]), Err(Error::LineTooLong { line: 1, .. })));
}

#[test]
fn a_bad_element_of_an_array_says_where() {
    let good = r#"{"text": "a", "label": 1}"#;
    for bad in ["{]}", "3", "{\"text\": [1], \"label\": 1}", "{\"text\": nul}"] {
        let error = error("a.json", format!("[\n{good},\n{bad}]"));
        assert!(matches!(error, Error::BadJson { line: 3, .. }), "{bad}: {error}");
    }
    for bad in [format!("[{good}"), format!("[{good},]"), format!("[{good}] x")] {
        assert!(matches!(error("a.json", &bad), Error::BadArray { .. }), "{bad}");
    }
    // An error in the array itself is not skipped: no row after it can be trusted.
    let given = given("a.json", format!("[{good}, 3, {good},, {good}]"));
    let skip = undertone_settings::OnBadRow::Skip;
    let mut rows = read::rows_or_skip(&given.file, Format::Jsonl, &["text"], skip).unwrap();
    assert_eq!(rows.by_ref().filter(Result::is_ok).count(), 2);
    assert_eq!(rows.skipped(), 1);
}

/// The error from reading `text` and `label`, which must name the file.
fn error(name: &str, contents: impl AsRef<[u8]>) -> Error {
    let given = given(name, contents);
    let error = all(&given.file, &["text", "label"]).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with(&*given.file.to_string_lossy()), "{message}");
    assert!(message.contains(';') && !message.contains('\n'), "{message}");
    error
}

#[test]
fn a_file_without_rows_is_empty() {
    for (name, contents) in [
        ("a.tsv", ""),
        ("a.tsv", "text\tlabel\n"),
        ("a.csv", "text,label"),
        ("a.jsonl", "\n\n"),
        ("a.json", " [\n]"),
    ] {
        assert!(matches!(error(name, contents), Error::EmptyFile { .. }), "{name} {contents:?}");
    }
    assert!(matches!(error("a.parquet", ""), Error::EmptyFile { .. }));
    let headed = parquet_files::written(&[], &[], &[]);
    let given = given("b.parquet", headed);
    assert!(matches!(all(&given.file, &["text"]), Err(Error::EmptyFile { .. })));
}

#[test]
fn a_missing_file_or_a_folder_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.tsv", "a.csv", "a.jsonl", "a.parquet"] {
        let file = folder.path().join(name);
        assert_eq!(all(&file, &["x"]).unwrap_err(), Error::MissingFile { file: file.clone() });
        std::fs::create_dir(&file).unwrap();
        assert!(all(&file, &["x"]).is_err());
    }
}

#[test]
fn a_missing_column_names_the_others() {
    let available = |error: Error| match error {
        Error::MissingColumn { column, available, .. } => (column, available),
        other => panic!("{other}"),
    };
    let expected = ("label".to_owned(), vec!["text".to_owned(), "x".to_owned()]);
    assert_eq!(available(error("a.tsv", "text\tx\na\tb\n")), expected);
    assert_eq!(available(error("a.csv", "text,x\na,b\n")), expected);
    assert_eq!(available(error("a.jsonl", r#"{"text": "a", "x": 1}"#)), expected);
    let parquet = parquet_files::written(&["a"], &[1], &[true]);
    assert_eq!(available(error("a.parquet", parquet)).1, ["text", "number", "truth"]);
    assert!(matches!(error("a.tsv", "text\ttext\tlabel\na\tb\tc\n"), Error::RepeatedColumn { .. }));
}

#[test]
fn a_torn_row_says_where() {
    let torn = |error: Error| match error {
        Error::TornRow { line, expected, found, .. } => (line, expected, found),
        other => panic!("{other}"),
    };
    assert_eq!(torn(error("a.tsv", "text\tlabel\na\tb\nc\nd\te\n")), (3, 2, 1));
    assert_eq!(torn(error("a.tsv", "text\tlabel\na\tb\tc\n")), (2, 2, 3));
    assert_eq!(torn(error("a.tsv", "text\tlabel\na\tb\n\nc\td\n")), (3, 2, 0));
    assert_eq!(torn(error("a.csv", "text,label\n\"a\nb\",c\n\nd,e,f\n")), (5, 2, 3));
    assert_eq!(torn(error("a.csv", "text,label\na,b\nc\n")), (3, 2, 1));
}

#[test]
fn quotes_that_do_not_pair_up_say_where_the_row_began() {
    for contents in ["text,label\na,b\n\"never,closed\nx,y\n", "text,label\na,b\n\"a\" b,c\n"] {
        assert!(
            matches!(error("a.csv", contents), Error::BadQuote { line: 3, .. }),
            "{contents:?}"
        );
    }
}

#[test]
fn bad_bytes_say_where() {
    for (name, contents) in [
        ("a.tsv", b"text\tlabel\na\tb\n\xFF\tb\n".as_slice()),
        ("a.csv", b"text,label\na,b\n\xC3,b\n"),
        ("a.jsonl", b"{\"text\": \"a\", \"label\": 1}\n\n{\"text\": \"\xFF\"}\n"),
    ] {
        assert!(matches!(error(name, contents), Error::BadUtf8 { line: 3, .. }), "{name}");
    }
    // UTF-16, as some spreadsheets write it.
    assert!(matches!(error("a.tsv", b"\xFF\xFEt\0\n\0"), Error::BadUtf8 { line: 1, .. }));
}

#[test]
fn bad_json_says_where_and_what() {
    let good = r#"{"text": "a", "label": 1}"#;
    for bad in
        ["{", "[1]", "3", "{\"text\": [1], \"label\": 1}", "{\"text\": {}, \"label\": 1}", "{} {}"]
    {
        let error = error("a.jsonl", format!("{good}\n{bad}\n"));
        assert!(matches!(error, Error::BadJson { line: 2, .. }), "{bad}: {error}");
        assert!(!error.to_string().contains("line 1"), "{error}");
    }
    let deep = format!("{good}\n{}\n", "[".repeat(100_000));
    assert!(matches!(error("a.jsonl", deep), Error::BadJson { line: 2, .. }));
}

#[test]
fn a_missing_value_says_where() {
    let good = r#"{"text": "a", "label": 1}"#;
    for bad in [r#"{"text": "b"}"#, r#"{"text": "b", "label": null}"#] {
        let error = error("a.jsonl", format!("{good}\n\n{bad}\n"));
        assert!(
            matches!(error, Error::MissingValue { line: 3, ref column, .. } if column == "label"),
            "{error}"
        );
    }
    let given = given("a.parquet", parquet_files::with_a_gap());
    let error = all(&given.file, &["text"]).unwrap_err();
    assert!(matches!(error, Error::MissingValue { line: 2, .. }), "{error}");
}

#[test]
fn a_nested_parquet_column_is_refused() {
    let given = given("a.parquet", parquet_files::nested());
    let error = all(&given.file, &["outer"]).unwrap_err();
    assert!(
        matches!(error, Error::Parquet { .. }) && error.to_string().contains("nested"),
        "{error}"
    );
}

/// A page is decompressed as a whole, so its size is checked beforehand.
#[test]
fn a_parquet_page_beyond_the_limit_is_refused() {
    let text = "a".repeat((64 << 20) + 1);
    let given = given("a.parquet", parquet_files::written(&["b", &text], &[1, 2], &[true, true]));
    let error = all(&given.file, &["text"]).unwrap_err();
    assert!(error.to_string().contains("a page has 64 MB"), "{error}");
    assert_eq!(all(&given.file, &["number"]).unwrap().len(), 2, "other columns are read");
}

#[test]
fn nothing_follows_a_mistake() {
    let given = given("a.tsv", "text\tlabel\na\tb\nc\nd\te\n");
    let mut rows = read::rows(&given.file, Format::Tsv, &["text"]).unwrap();
    assert!(rows.next().unwrap().is_ok());
    assert!(rows.next().unwrap().is_err());
    assert!(rows.next().is_none());
}
