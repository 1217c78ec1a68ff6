//! Non-finite numbers in JSON.

use serde::{Deserialize, Deserializer};

/// Reads null as NaN: serde_json writes null for NaN and infinity, such as the loss of a run that
/// diverged.
pub(crate) fn null_as_nan<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(d)?.unwrap_or(f64::NAN))
}
