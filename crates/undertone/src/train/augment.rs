//! Augmentation of the training data before a run: `data.augment`.

use crate::data::{Batch, Dataset, Example, Infill, LeaveMasks, Masking, Tokeniser, fraction};
use crate::error::{Error, Result};
use crate::model::folder::{LoadOptions, load, locate};
use crate::model::{Model, TaskHead};
use crate::noise::{Secret, purpose};
use crate::tensor::{self, Device};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use undertone_run::Augment;

/// Adds copies of every example with some tokens replaced.
pub(super) fn augment(
    data: &mut Dataset,
    settings: &Augment,
    tokeniser: &Tokeniser,
    secret: &Secret,
    device: &Device,
) -> Result<()> {
    let masking = Masking::new(tokeniser, settings.share)?;
    let key = secret.key(purpose::AUGMENTATION);
    let Some(name) = &settings.infill else {
        return match data.augment(&masking, settings.copies, key, &LeaveMasks) {
            Ok(()) => Ok(()),
            Err(never) => match never {},
        };
    };
    let infill = MaskedModel::load(name, tokeniser, key, device)?;
    data.augment(&masking, settings.copies, key, &infill)
}

/// A masked language model that draws a token for each hidden one.
struct MaskedModel {
    model: Model,
    special: Vec<u32>,
    key: [u8; 32],
}

impl MaskedModel {
    fn load(name: &str, tokeniser: &Tokeniser, key: [u8; 32], device: &Device) -> Result<Self> {
        let folder = locate(name)?;
        let task_head = Some(TaskHead::MaskedLanguageModel);
        let mut model = load(&folder, &LoadOptions { task_head, ..LoadOptions::default() })?;
        if let Some(missing) = model.fresh.first() {
            return Err(Error::plan(format!(
                "data.augment.infill: {name} has no masked-language-modelling head ({missing} is \
                 missing)"
            )));
        }
        let own = Tokeniser::load(&folder)?;
        let same = (0..tokeniser.vocabulary().max(own.vocabulary()) as u32)
            .all(|id| tokeniser.token(id) == own.token(id));
        if !same {
            return Err(Error::plan(format!(
                "data.augment.infill: {name} has another vocabulary than the model that is trained"
            )));
        }
        model.to_device(device)?;
        Ok(Self { model, special: tokeniser.special(), key })
    }

    /// A token by its probability, special ones left out.
    fn draw(&self, probabilities: &mut [f32], random: &mut ChaCha20Rng) -> u32 {
        for &special in &self.special {
            if let Some(probability) = probabilities.get_mut(special as usize) {
                *probability = 0.0;
            }
        }
        let all: f64 = probabilities.iter().map(|&p| f64::from(p)).sum();
        let mut left = fraction(random) * all;
        let chosen = probabilities.iter().position(|&p| {
            left -= f64::from(p);
            left < 0.0
        });
        chosen.unwrap_or_default() as u32
    }
}

/// Copies whose gaps are filled together.
const TOGETHER: usize = 32;

impl Infill for MaskedModel {
    type Error = Error;

    fn fill(&self, copies: &mut [(Example, Vec<u32>)], first: u64) -> Result<()> {
        for (i, some) in copies.chunks_mut(TOGETHER).enumerate() {
            let batch = Batch::pack(some.iter().map(|(example, _)| example));
            let rows: Vec<u32> = some
                .iter()
                .zip(&batch.starts)
                .flat_map(|((_, hidden), &start)| hidden.iter().map(move |&at| start as u32 + at))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let logits = self.model.logits(&batch, Some(&rows))?;
            let columns = logits.columns();
            let probabilities = tensor::softmax(&logits).and_then(|p| p.to_vec());
            let mut probabilities = probabilities.map_err(crate::model::Error::from)?;
            let mut next = probabilities.chunks_exact_mut(columns);
            for (j, (example, hidden)) in some.iter_mut().enumerate() {
                // The stream of the gaps themselves has the same number under the same key, so
                // these begin at its second half.
                let mut random = ChaCha20Rng::from_seed(self.key);
                random.set_stream((first + (i * TOGETHER + j) as u64) | (1 << 63));
                for (&at, probabilities) in hidden.iter().zip(next.by_ref()) {
                    example.tokens[at as usize] = self.draw(probabilities, &mut random);
                }
            }
        }
        Ok(())
    }
}
