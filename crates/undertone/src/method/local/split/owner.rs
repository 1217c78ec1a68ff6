//! The owner's half: computes releases from texts.

use super::super::EmbeddingNoise;
use crate::data::{Batch, Example, Tokenizer};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::model::folder::{LoadOptions, load};
use crate::model::layer::sanitizer::{Bounding, Perturb};
use crate::model::sanitized::{SanitizerConfig, read_config};
use crate::noise::Secret;
use crate::tensor::{Device, Host};
use std::path::Path;
use undertone_run::ReleaseKind;

/// pre(·), loaded from the folder given to an owner.
///
/// The author of the folder need not be trusted. Whatever the weights are, the rows of a text have
/// a norm of at most C, they are a function of this text alone, and the owner adds the noise.
#[derive(Debug)]
pub struct OwnerHalf {
    model: Model,
    config: SanitizerConfig,
    rows: usize,
}

impl OwnerHalf {
    /// Loads the folder. Rejects one whose releases are not bounded, or whose number of rows
    /// depends on the text.
    pub fn load(folder: &Path, device: &Device) -> Result<Self> {
        let config = read_config(folder)?;
        let Some(config) = config else {
            return Err(Error::folder(folder, "has no sanitizer, so embeddings are not bounded"));
        };
        if config.bounding == Bounding::Box {
            return Err(Error::folder(
                folder,
                "has a sanitizer that does not bound the norm of an \
                                              embedding",
            ));
        }
        if !config.is_in_range() {
            return Err(Error::folder(
                folder,
                "has a sanitizer whose norm, squash or direction is not from 1e-10 to 1e10",
            ));
        }
        let Some(rows) = config.rows.in_every_release() else {
            return Err(Error::folder(
                folder,
                "has releases whose number of rows depends on the \
                                              text",
            ));
        };
        let mut model = load(folder, &LoadOptions::default())?;
        model.to_device(device)?;
        Ok(Self { model, config, rows })
    }

    /// The sanitizer's configuration.
    pub fn config(&self) -> &SanitizerConfig {
        &self.config
    }

    /// Number of values in a release.
    pub fn width(&self) -> usize {
        let hidden = self.model.network.head.width();
        let columns = self.model.network.sanitizer.as_ref().map_or(0, |layer| layer.width(hidden));
        self.rows * columns
    }

    /// The tokenizer of the folder, which truncates texts at `max_tokens`.
    pub fn tokenizer(&self, folder: &Path, max_tokens: usize) -> Result<Tokenizer> {
        Ok(self.model.tokenizer(folder, max_tokens)?)
    }

    /// The placeholder for a text that cannot be tokenized: token 0, which every model has.
    pub fn placeholder() -> Example {
        Example { tokens: vec![0], ..Example::default() }
    }

    /// Whether pre(·) has embeddings for all tokens of an example.
    pub fn reads(&self, example: &Example) -> bool {
        self.model.check(&Batch::pack([example])).is_ok()
    }

    /// Runs pre(·) on the maximum number of tokens of a text, so that a model that this machine
    /// cannot run fails here, before any text is read, and not on a text that happens to be long.
    pub fn rehearse(&self, max_tokens: usize) -> Result<()> {
        let tokens = max_tokens.min(self.model.network.max_positions).max(1);
        self.bounded(&Example { tokens: vec![0; tokens], ..Example::default() }).map(drop)
    }

    /// The rows of an example before noise, with a norm of at most C.
    ///
    /// Each example is computed on its own. In a batch, the last digits of its rows would depend on
    /// the other examples, through the order of additions, and adversarial weights can amplify last
    /// digits to all of C: one text would then move every release of its batch.
    pub fn bounded(&self, example: &Example) -> Result<Host> {
        Ok(self.model.bounded_rows(&Batch::pack([example]))?.0)
    }

    /// The releases of some examples: for each example, the values of every epoch. An example's
    /// noise is a function of its own secret, with standard deviations in units of the norm bound
    /// C.
    pub fn release(
        &self,
        examples: &[Example],
        secrets: &[Secret],
        kind: ReleaseKind,
        noise_multipliers: &[f64],
    ) -> Result<Vec<Vec<Vec<f32>>>> {
        assert_eq!(examples.len(), secrets.len(), "a secret for each example");
        let norm = f64::from(self.config.norm);
        let stds: Vec<f64> = noise_multipliers.iter().map(|noise| noise * norm).collect();
        let epochs = if kind == ReleaseKind::Once { 1 } else { stds.len() };
        let Some(layer) = &self.model.network.sanitizer else {
            return Err(Error::plan("the model has no sanitizer"));
        };
        let of_example = |(example, secret): (&Example, &Secret)| -> Result<Vec<Vec<f32>>> {
            let bounded = self.bounded(example)?;
            let noise = EmbeddingNoise::new(secret, kind, stds.clone());
            let of_epoch = |epoch| {
                let noise = OwnNoise { noise: &noise, epoch };
                layer.released(bounded.clone(), &[0, self.rows], Some(&noise)).dense().to_vec()
            };
            Ok((0..epochs).map(of_epoch).collect())
        };
        let all = || examples.iter().zip(secrets).map(of_example).collect();
        self.model.device().compute(all)
    }
}

/// The noise of one example, derived from its own secret.
#[derive(Debug)]
struct OwnNoise<'a> {
    noise: &'a EmbeddingNoise,
    epoch: usize,
}

impl Perturb for OwnNoise<'_> {
    fn perturb(&self, _: usize, rows: &mut [f32]) {
        self.noise.perturb(0, self.epoch, rows);
    }
}
