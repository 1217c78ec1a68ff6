//! Non-finite numbers and matrices in JSON.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Deserializes null as NaN: serde_json writes null for NaN and infinity, such as the loss of a
/// diverged run.
pub(crate) fn null_as_nan<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(d)?.unwrap_or(f64::NAN))
}

/// Deserializes a square matrix.
pub(crate) fn square<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Vec<u64>>, D::Error> {
    let rows = Vec::<Vec<u64>>::deserialize(d)?;
    match rows.iter().all(|row| row.len() == rows.len()) {
        true => Ok(rows),
        false => Err(D::Error::custom("a confusion matrix must have as many columns as rows")),
    }
}
