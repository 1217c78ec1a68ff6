//! Lists and groups of Parquet files, such as the messages of a conversation, as JSON.

use parquet::record::Field;
use serde_json::{Map, Value};

/// Converts a value to JSON; `None` if it contains a date, a decimal or bytes, which have no unique
/// JSON representation.
pub(super) fn json(field: &Field) -> Option<Value> {
    Some(match field {
        Field::Null => Value::Null,
        Field::Str(text) => Value::from(text.as_str()),
        Field::Bytes(bytes) => Value::from(std::str::from_utf8(bytes.data()).ok()?),
        Field::Bool(truth) => Value::from(*truth),
        Field::Byte(number) => Value::from(*number),
        Field::Short(number) => Value::from(*number),
        Field::Int(number) => Value::from(*number),
        Field::Long(number) => Value::from(*number),
        Field::UByte(number) => Value::from(*number),
        Field::UShort(number) => Value::from(*number),
        Field::UInt(number) => Value::from(*number),
        Field::ULong(number) => Value::from(*number),
        Field::Float(number) => Value::from(*number),
        Field::Double(number) => Value::from(*number),
        Field::ListInternal(list) => {
            Value::Array(list.elements().iter().map(json).collect::<Option<_>>()?)
        }
        Field::Group(row) => {
            let member = |(name, value): (&String, &Field)| Some((name.clone(), json(value)?));
            Value::Object(row.get_column_iter().map(member).collect::<Option<Map<_, _>>>()?)
        }
        _ => return None,
    })
}
