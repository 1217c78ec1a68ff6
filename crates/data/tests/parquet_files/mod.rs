//! Small Parquet files for the tests.

use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

type Writer = SerializedFileWriter<Vec<u8>>;

fn writer(schema: &str) -> Writer {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties =
        WriterProperties::builder().set_compression(parquet::basic::Compression::SNAPPY);
    SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap()
}

fn texts(values: &[&str]) -> Vec<ByteArray> {
    values.iter().map(|&text| ByteArray::from(text)).collect()
}

/// Columns `text`, `number` and `truth`, in two row groups if there are enough rows.
pub fn written(text: &[&str], number: &[i64], truth: &[bool]) -> Vec<u8> {
    let schema =
        "message m { required binary text (UTF8); required int64 number; required boolean truth; }";
    let mut writer = writer(schema);
    for rows in [0..text.len() / 2, text.len() / 2..text.len()] {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&texts(&text[rows.clone()]), None, None)
            .unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&number[rows.clone()], None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<BoolType>().write_batch(&truth[rows], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// An optional column `text` whose second value is null.
pub fn with_a_gap() -> Vec<u8> {
    let mut writer = writer("message m { optional binary text (UTF8); }");
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column
        .typed::<ByteArrayType>()
        .write_batch(&texts(&["a", "c"]), Some(&[1, 0, 1]), None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// A column `outer` that contains another column.
pub fn nested() -> Vec<u8> {
    let mut writer = writer("message m { required group outer { required int64 inner; } }");
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[1, 2], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// Two conversations of two turns: a column `messages`, a list of groups of role and content.
pub fn conversations() -> Vec<u8> {
    let mut writer = writer(
        "message m { optional group messages (LIST) { repeated group list { optional group element \
         { optional binary role (UTF8); optional binary content (UTF8); } } } }",
    );
    let mut group = writer.next_row_group().unwrap();
    for values in [["user", "assistant", "user", "assistant"], ["a", "b", "c", "d"]] {
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&texts(&values), Some(&[4; 4]), Some(&[0, 1, 0, 1]))
            .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}
