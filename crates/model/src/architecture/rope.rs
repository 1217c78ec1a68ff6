//! Rotary position embedding (RoPE) as described by `config.json`: frequencies and their scaling
//! for longer contexts.

use crate::Result;
use crate::folder::Config;
use serde_json::{Map, Value};
use std::f64::consts::TAU;

/// Frequencies of a layer's rotary embedding.
#[derive(Clone, Debug)]
pub(super) struct Rope {
    /// One frequency per pair of features.
    pub frequencies: Vec<f32>,
    /// Factor of sine and cosine (YaRN, LongRoPE). It applies to both queries and keys, so scores
    /// are multiplied by its square.
    pub attention_factor: f64,
    /// Maximum sequence length for which these frequencies are valid.
    pub positions: Option<usize>,
}

impl Rope {
    /// Scale of the dot products for heads of this width.
    pub fn scale(&self, width: usize) -> Option<f32> {
        let square = self.attention_factor * self.attention_factor;
        (square != 1.0).then(|| (square / (width as f64).sqrt()) as f32)
    }
}

/// Where a configuration stores the base frequency θ.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    /// The section of `rope_parameters` for this kind of layer, if kinds differ.
    pub section: Option<&'a str>,
    /// The key of θ outside `rope_parameters`, in older files.
    pub theta: &'a str,
    pub default_theta: f64,
    /// Whether `rope_scaling` in older files applies to these layers.
    pub is_scaled: bool,
}

impl Keys<'_> {
    /// Keys of a model with one kind of layer.
    pub fn plain(default_theta: f64) -> Self {
        Self { section: None, theta: "rope_theta", default_theta, is_scaled: true }
    }
}

/// Keys allowed in `rope_parameters` and `rope_scaling`.
const KNOWN: &[&str] = &[
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "short_factor",
    "long_factor",
    "partial_rotary_factor",
];

/// The section of the configuration for these layers.
fn section<'a>(config: &'a Config, keys: Keys) -> Option<&'a Map<String, Value>> {
    let map = config.as_map();
    // Newer files have `rope_parameters`; older ones have `rope_theta` and `rope_scaling`.
    if let Some(all) = map.get("rope_parameters").and_then(Value::as_object) {
        return match keys.section {
            Some(name) => all.get(name).and_then(Value::as_object),
            None => Some(all),
        };
    }
    map.get("rope_scaling").and_then(Value::as_object).filter(|_| keys.is_scaled)
}

/// Reads the rotary embedding for heads of this width.
pub(super) fn read(config: &Config, width: usize, keys: Keys) -> Result<Rope> {
    let section = section(config, keys);
    if let Some(unknown) =
        section.and_then(|map| map.keys().find(|key| !KNOWN.contains(&key.as_str())))
    {
        return Err(config.error(format!(
            "the rotary embedding has the key {unknown:?}, which is unknown; known are {}",
            KNOWN.join(", ")
        )));
    }
    let number = |key: &str| section.and_then(|map| map.get(key)).and_then(Value::as_f64);
    let partial = match number("partial_rotary_factor") {
        Some(factor) => factor,
        None => config.number_or("partial_rotary_factor", 1.0)?,
    };
    if partial != 1.0 {
        return Err(config.error(format!(
            "partial_rotary_factor is {partial}, but only fully rotated heads are supported"
        )));
    }
    let theta = match number("rope_theta") {
        Some(theta) => theta,
        None => config.number_or(keys.theta, keys.default_theta)?,
    };
    if theta.is_nan() || theta <= 1.0 {
        return Err(config.error(format!("{} is {theta}, but must be above 1", keys.theta)));
    }
    let plain: Vec<f64> =
        (0..width / 2).map(|j| 1.0 / theta.powf(2.0 * j as f64 / width as f64)).collect();
    let scaling = Scaling { config, section, theta, width, plain };
    let (frequencies, attention_factor, positions) = match scaling.kind() {
        None | Some("default") => (scaling.plain, 1.0, None),
        Some("linear") => {
            let factor = scaling.needed("factor")?;
            (scaling.plain.iter().map(|f| f / factor).collect(), 1.0, None)
        }
        Some("llama3") => (scaling.llama3()?, 1.0, None),
        Some("yarn") => {
            let (frequencies, factor) = scaling.yarn()?;
            (frequencies, factor, None)
        }
        // Early Phi-3 files call it "su".
        Some("longrope" | "su") => scaling.longrope()?,
        Some(other) => {
            return Err(config.error(format!(
                "rope scaling {other:?} is unknown; known are default, linear, llama3, yarn and \
                 longrope"
            )));
        }
    };
    let frequencies = frequencies.into_iter().map(|f| f as f32).collect();
    Ok(Rope { frequencies, attention_factor, positions })
}

/// Scaling applied to the plain frequencies.
struct Scaling<'a> {
    config: &'a Config,
    section: Option<&'a Map<String, Value>>,
    theta: f64,
    width: usize,
    /// θ^(−2j/width).
    plain: Vec<f64>,
}

impl<'a> Scaling<'a> {
    fn kind(&self) -> Option<&'a str> {
        let map = self.section?;
        map.get("rope_type").or_else(|| map.get("type")).and_then(Value::as_str)
    }

    /// A number, if the key is present and not null.
    fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.section.and_then(|map| map.get(key)).filter(|value| !value.is_null()) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|n| n.is_finite() && *n > 0.0) {
                Some(number) => Ok(Some(number)),
                None => Err(self.config.error(format!(
                    "{key} of the rope scaling is {value}, but must be a positive number"
                ))),
            },
        }
    }

    fn needed(&self, key: &str) -> Result<f64> {
        let missing = || self.config.error(format!("rope scaling needs a positive {key}"));
        self.number(key)?.ok_or_else(missing)
    }

    /// High frequencies are kept, low ones are divided by the factor, and those in between are
    /// interpolated.
    fn llama3(&self) -> Result<Vec<f64>> {
        let (factor, low, high) = (
            self.needed("factor")?,
            self.needed("low_freq_factor")?,
            self.needed("high_freq_factor")?,
        );
        let context = self.needed("original_max_position_embeddings")?;
        if high <= low {
            return Err(self.config.error("high_freq_factor must be above low_freq_factor"));
        }
        let stretch = |f: &f64| {
            let turns = context * f / TAU;
            if turns > high {
                return *f;
            }
            if turns < low {
                return f / factor;
            }
            let blend = (turns - low) / (high - low);
            (1.0 - blend) * f / factor + blend * f
        };
        Ok(self.plain.iter().map(stretch).collect())
    }

    /// The context length used in pretraining, before the context was extended.
    fn original_positions(&self) -> Result<f64> {
        match self.number("original_max_position_embeddings")? {
            Some(positions) => Ok(positions),
            None => {
                let key = "original_max_position_embeddings";
                let other = self.config.size("max_position_embeddings")?;
                Ok(self.config.size_or(key, other)? as f64)
            }
        }
    }

    /// Returns the frequencies and the factor of sine and cosine. Pairs that complete more than
    /// `beta_fast` rotations within the original context are kept, those that complete fewer than
    /// `beta_slow` are divided by the factor, and in between the share increases linearly with the
    /// index of the pair.
    fn yarn(&self) -> Result<(Vec<f64>, f64)> {
        let context = self.original_positions()?;
        let factor = match self.number("factor")? {
            Some(factor) => factor,
            None => self.config.size("max_position_embeddings")? as f64 / context,
        };
        let (fast, slow) =
            (self.number("beta_fast")?.unwrap_or(32.0), self.number("beta_slow")?.unwrap_or(1.0));
        let pair = |turns: f64| {
            self.width as f64 * (context / (turns * TAU)).ln() / (2.0 * self.theta.ln())
        };
        let truncate = self.section.and_then(|map| map.get("truncate")).and_then(Value::as_bool);
        let (mut low, mut high) = (pair(fast), pair(slow));
        if truncate.unwrap_or(true) {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(self.width as f64 - 1.0));
        if low == high {
            high += 0.001;
        }
        let stretched = self.plain.iter().enumerate().map(|(j, f)| {
            let share = ((j as f64 - low) / (high - low)).clamp(0.0, 1.0);
            share * f / factor + (1.0 - share) * f
        });
        let grown = |by: f64| if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
        let attention = match (
            self.number("attention_factor")?,
            self.number("mscale")?,
            self.number("mscale_all_dim")?,
        ) {
            (Some(stated), _, _) => stated,
            (None, Some(at_one), Some(at_all)) => grown(at_one) / grown(at_all),
            _ => grown(1.0),
        };
        Ok((stretched.collect(), attention))
    }

    /// Each frequency has its own divisor. There is one list for sequences up to the original
    /// context, which is used here, and one for longer sequences.
    fn longrope(&self) -> Result<(Vec<f64>, f64, Option<usize>)> {
        let context = self.original_positions()?;
        let divisors = self.section.and_then(|map| map.get("short_factor"));
        let divisors: Option<Vec<f64>> = divisors.and_then(Value::as_array).map(|list| {
            list.iter().filter_map(Value::as_f64).filter(|n| n.is_finite() && *n > 0.0).collect()
        });
        let Some(divisors) = divisors.filter(|list| list.len() == self.plain.len()) else {
            return Err(self.config.error(format!(
                "short_factor of the rope scaling must be {} positive numbers",
                self.plain.len()
            )));
        };
        let factor = match self.number("factor")? {
            Some(factor) => factor,
            None => self.config.size("max_position_embeddings")? as f64 / context,
        };
        let attention = match self.number("attention_factor")? {
            Some(stated) => stated,
            None if factor <= 1.0 => 1.0,
            None => (1.0 + factor.ln() / context.ln()).sqrt(),
        };
        let frequencies = self.plain.iter().zip(&divisors).map(|(f, by)| f / by).collect();
        Ok((frequencies, attention, Some(context as usize)))
    }
}
