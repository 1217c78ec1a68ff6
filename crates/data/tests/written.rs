//! Written rows are read back as they were.

use std::fs;
use undertone_data::{Format, check_columns, read, write_rows};

#[test]
fn rows_are_read_as_they_were_written() {
    let texts = [
        "plain",
        "a, b; c",
        "\"quoted\"",
        "two\nlines\r\nand a third",
        " space around ",
        "tab\there",
        "日本語 🙂",
        "{\"json\": [1]}",
        "'",
    ];
    let rows: Vec<Vec<String>> =
        texts.iter().map(|text| vec![text.to_string(), "no".to_owned()]).collect();
    let columns = ["text; or so".to_owned(), "label".to_owned()];
    let folder = tempfile::tempdir().unwrap();
    for (name, format) in
        [("a.csv", Format::Csv), ("a.jsonl", Format::Jsonl), ("a.parquet", Format::Parquet)]
    {
        let path = folder.path().join(name);
        let mut bytes = Vec::new();
        write_rows(&mut bytes, format, &columns, &rows).unwrap();
        fs::write(&path, bytes).unwrap();
        let named: Vec<&str> = columns.iter().map(String::as_str).collect();
        let read_rows = read::rows(&path, format, &named).unwrap();
        let values: Vec<Vec<String>> = read_rows.map(|row| row.unwrap().values).collect();
        assert_eq!(values, rows, "{name}");
        let mut names = read::columns(&path, format).unwrap();
        names.sort();
        assert_eq!(names, ["label", "text; or so"], "{name}");
    }
    assert!(write_rows(&mut Vec::new(), Format::Tsv, &columns, &rows).is_err());
    assert!(check_columns(&columns).is_ok());
    assert!(check_columns(&[columns[0].clone(), columns[0].clone()]).is_err());
    assert!(check_columns(&[]).is_err());
}
