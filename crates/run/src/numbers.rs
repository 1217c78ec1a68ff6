//! Numbers that JSON cannot hold.

use serde::{Deserialize, Deserializer};

/// JSON has no NaN and no infinity, as the loss of a run that diverged; serde_json writes null.
pub(crate) fn null_as_nan<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(d)?.unwrap_or(f64::NAN))
}
