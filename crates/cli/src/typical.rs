//! The length of a typical text, from which the time of a run is estimated. It must not come from
//! private rows, because an estimate is easily shared.

use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::PathBuf;
use undertone::Plan;
use undertone::train::typical_tokens;

/// The length of a typical text.
#[derive(Args, Clone, Default)]
pub struct TypicalArguments {
    /// Number of tokens of a typical text, for the time estimate [default: a quarter of the
    /// maximum]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    typical_tokens: Option<u32>,
    /// Public file with the same columns, whose mean text length is used for the time estimate
    #[arg(long, value_name = "FILE", conflicts_with = "typical_tokens")]
    sample: Option<PathBuf>,
}

/// A typical length and its source.
pub struct Typical {
    /// Number of tokens; `None` if it is assumed.
    pub tokens: Option<usize>,
    /// The source in words.
    pub source: String,
}

impl TypicalArguments {
    pub fn is_empty(&self) -> bool {
        self.typical_tokens.is_none() && self.sample.is_none()
    }

    /// The given length, or that of a public file: the sample, or a validation file declared
    /// public.
    pub fn length(&self, plan: &Plan) -> Outcome<Typical> {
        if let Some(tokens) = self.typical_tokens {
            let most = plan.data.max_tokens;
            if tokens as usize > most {
                return Err(Failure::arguments(format!(
                    "--typical-tokens is {tokens}, but longer texts are cut to {most} tokens \
                     (data.max_tokens)"
                )));
            }
            return Ok(Typical { tokens: Some(tokens as usize), source: "as given".to_owned() });
        }
        let data = &plan.data;
        let public = data.validation.as_ref().filter(|_| data.validation_is_public);
        match self.sample.as_ref().or(public) {
            Some(file) => Ok(Typical {
                tokens: Some(typical_tokens(plan, file)?),
                source: format!("the mean of {}", file.display()),
            }),
            None => Ok(Typical {
                tokens: None,
                source: "assumed; --typical-tokens or --sample says better".to_owned(),
            }),
        }
    }
}
