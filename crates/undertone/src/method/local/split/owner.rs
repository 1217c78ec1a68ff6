//! The owner's half: from texts to releases.

use super::super::EmbeddingNoise;
use crate::data::{Batch, Example, Tokeniser, pieces};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::model::folder::{LoadOptions, load};
use crate::model::layer::sanitiser::{Bounding, Perturb};
use crate::model::sanitised::{SanitiserConfig, read_config};
use crate::noise::Secret;
use crate::tensor::Device;
use std::path::Path;
use undertone_run::ReleaseKind;

/// pre(·), loaded from the folder that an owner was given.
///
/// The folder's maker need not be trusted: whatever the weights are, the rows of a text have a
/// norm of at most C, and it is the owner who adds the noise.
#[derive(Debug)]
pub struct OwnerHalf {
    model: Model,
    config: SanitiserConfig,
    rows: usize,
}

impl OwnerHalf {
    /// Loads the folder; refuses one whose releases nothing bounds, or whose number of rows
    /// depends on the text.
    pub fn load(folder: &Path, device: &Device) -> Result<Self> {
        let config = read_config(folder)?;
        let Some(config) = config else {
            return Err(Error::folder(folder, "has no sanitiser, so nothing bounds a text"));
        };
        if config.bounding == Bounding::Box {
            return Err(Error::folder(folder, "has a sanitiser that does not bound a text's norm"));
        }
        let Some(rows) = config.rows.in_every_release() else {
            return Err(Error::folder(folder, "has releases whose number of rows shows the text"));
        };
        let mut model = load(folder, &LoadOptions::default())?;
        model.to_device(device)?;
        Ok(Self { model, config, rows })
    }

    /// The sanitiser's configuration.
    pub fn config(&self) -> &SanitiserConfig {
        &self.config
    }

    /// How many numbers a release has.
    pub fn width(&self) -> usize {
        let hidden = self.model.network.head.width();
        let columns = self.model.network.sanitiser.as_ref().map_or(0, |layer| layer.width(hidden));
        self.rows * columns
    }

    /// The tokenizer of the folder, which cuts texts at `max_tokens`.
    pub fn tokeniser(&self, folder: &Path, max_tokens: usize) -> Result<Tokeniser> {
        Ok(self.model.tokeniser(folder, max_tokens)?)
    }

    /// The releases of some examples: for each the numbers of every epoch. An example's noise is a
    /// function of its own secret, with standard deviations in units of the norm bound C.
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
        let mut found = vec![Vec::new(); examples.len()];
        for piece in pieces(examples, 64, 4096) {
            let batch = Batch::pack(piece.iter().map(|&i| &examples[i]));
            let (bounded, starts) = self.model.bounded_rows(&batch)?;
            let Some(layer) = &self.model.network.sanitiser else { break };
            let of = |&i: &usize| EmbeddingNoise::new(&secrets[i], kind, stds.clone());
            let noise: Vec<EmbeddingNoise> = piece.iter().map(of).collect();
            for epoch in 0..epochs {
                let noise = OwnNoise { noise: &noise, epoch };
                let released = layer.released(bounded.clone(), &starts, Some(&noise));
                let width = self.rows * released.columns();
                let dense = released.dense();
                for (&i, numbers) in piece.iter().zip(dense.chunks_exact(width)) {
                    found[i].push(numbers.to_vec());
                }
            }
        }
        Ok(found)
    }
}

/// The noise of each sequence of a batch, from a secret of its own.
#[derive(Debug)]
struct OwnNoise<'a> {
    noise: &'a [EmbeddingNoise],
    epoch: usize,
}

impl Perturb for OwnNoise<'_> {
    fn perturb(&self, sequence: usize, rows: &mut [f32]) {
        self.noise[sequence].perturb(0, self.epoch, rows);
    }
}
