//! Every combination of the values of some keys, as rows and columns.

use crate::file::Line;
use std::collections::BTreeMap;
use toml::{Spanned, Value};

/// Rows and columns of a grid: ε, or else the first key, becomes the columns; every combination of
/// the others becomes a row.
pub fn spread(
    grid: BTreeMap<Spanned<String>, Vec<Value>>,
) -> Result<(Vec<Line>, Vec<Line>), String> {
    let mut keys: Vec<(Spanned<String>, Vec<Value>)> = grid.into_iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    let mut keys: Vec<(String, Vec<Value>)> =
        keys.into_iter().map(|(key, values)| (key.into_inner(), values)).collect();
    if let Some((key, _)) = keys.iter().find(|(_, values)| values.is_empty()) {
        return Err(format!("grid: {key} has no values"));
    }
    let across = keys.iter().position(|(key, _)| key == "privacy.epsilon").unwrap_or(0);
    let columns = combinations(&[keys.remove(across)]);
    let rows = if keys.is_empty() { Vec::new() } else { combinations(&keys) };
    Ok((rows, columns))
}

fn combinations(keys: &[(String, Vec<Value>)]) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    for (key, values) in keys {
        lines = lines
            .iter()
            .flat_map(|line| {
                values.iter().map(|value| {
                    let mut longer = line.clone();
                    let comma = if line.label.is_empty() { "" } else { ", " };
                    longer.label = format!("{}{comma}{}", line.label, name(key, value));
                    longer.set.insert(key.clone(), value.clone());
                    longer
                })
            })
            .collect();
    }
    lines
}

/// A value as a label: a text is clear on its own, a number needs its key.
fn name(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        _ if key == "privacy.epsilon" => format!("ε = {value}"),
        _ => format!("{} = {value}", key.rsplit('.').next().unwrap_or(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> (Vec<String>, Vec<String>) {
        let (rows, columns) = spread(toml::from_str(text).unwrap()).unwrap();
        let labels = |lines: Vec<Line>| lines.into_iter().map(|line| line.label).collect();
        (labels(rows), labels(columns))
    }

    #[test]
    fn a_grid_is_every_combination_in_the_order_of_the_file() {
        let (rows, columns) = labels(
            "\"training.batch\" = [20, 40]\n\"privacy.epsilon\" = [1.0, 8.0]\n\"privacy.method\" = \
             [\"dp-sgd\", \"anadp\"]",
        );
        assert_eq!(columns, ["ε = 1.0", "ε = 8.0"]);
        assert_eq!(
            rows,
            ["batch = 20, dp-sgd", "batch = 20, anadp", "batch = 40, dp-sgd", "batch = 40, anadp"]
        );
        let (rows, columns) = labels("\"training.batch\" = [20, 40]");
        assert_eq!((rows.len(), columns.len()), (0, 2));
    }
}
