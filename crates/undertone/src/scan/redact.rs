//! A record with placeholders in place of the findings.

use super::Finding;
use crate::data::read::RawRecord;

/// The text of a record in which each finding is replaced by the placeholder of its kind.
///
/// `findings` has the findings in each of the record's values. All other bytes are unchanged;
/// placeholders need neither quotes nor escapes in any format. A JSON number that contains a
/// finding becomes the placeholder as a string.
pub fn redacted(record: &RawRecord, findings: &[Vec<Finding>]) -> String {
    let mut text = String::with_capacity(record.text.len());
    let mut at = 0;
    for (value, findings) in record.values.iter().zip(findings) {
        if let (true, Some(first)) = (value.is_number, findings.first()) {
            let whole = value.raw(0..value.value.len());
            text.push_str(&record.text[at..whole.start]);
            text.push_str(&format!("\"{}\"", first.kind.placeholder()));
            at = whole.end;
            continue;
        }
        for finding in findings {
            let raw = value.raw(finding.range.clone());
            text.push_str(&record.text[at..raw.start]);
            text.push_str(finding.kind.placeholder());
            at = raw.end;
        }
    }
    text.push_str(&record.text[at..]);
    text
}
