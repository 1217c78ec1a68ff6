//! Layer-wise relevance propagation (LRP) to trainable parameters (Rap-FT, equations 2 to 17).
//!
//! Relevance starts at the model's output ([`InitialRelevance`]) and is propagated back to the
//! embeddings, one operation at a time ([`rules`]): through linear layers by the α–β rule or LRP-0;
//! through residual sums and the matrix products of attention by splitting and renormalizing; and
//! unchanged through softmax and normalizations. Along the way, relevance is read off at the
//! trainable parameters: weights of linear layers, LoRA and adapters, factors of (IA)³, soft
//! prompts and biases.
//!
//! **Activations** pass relevance unchanged by default. Equation 7, as published, is the rule of a
//! linear layer restricted to q, the positive contributions x_j w_ji. An activation function acts
//! on each unit by itself, so w is the identity: unit j has the one contribution x_j, which gets
//! all of the relevance where x_j > 0, and where x_j ≤ 0 the sum is empty and the relevance is lost
//! ([`ActivationRule::Positive`]). For ReLU both are the same: a unit with x_j ≤ 0 outputs 0 and
//! contributes nothing to the next layer, so no rule gives it any relevance.
//!
//! **(IA)³** multiplies a unit by a factor, y_j = l_j x_j. As an operation with a weight (equations
//! 6 and 13) it has one contribution per unit, so x_j and l_j both get R_j, the factor summed over
//! tokens.
//!
//! LoRA and adapter weights that are still zero get the mean relevance over random draws
//! ([`Probes`]).

mod attention;
mod block;
mod head;
mod initial;
mod layers;
mod probe;
pub mod rules;

use initial::initial_relevance;
pub use probe::Probes;
use probe::{ExampleProbes, zero_weights};
pub use rules::{AlphaBeta, LinearRule, Shares};
pub use undertone_settings::ActivationRule;

use crate::{Model, Objective, ParameterId, Pass, Result};
use rules::total;
use undertone_data::{Batch, Example};
use undertone_settings::InitialRelevance;
use undertone_tensor::Host;

/// Computes relevance by layer-wise relevance propagation.
#[derive(Debug)]
pub struct Explainer {
    model: Model,
    rule: LinearRule,
    activations: ActivationRule,
    initial: InitialRelevance,
    probes: Probes,
    /// Indexed by parameter: whether it is zero and therefore drawn at random.
    probed: Vec<bool>,
}

/// The relevance of every trainable parameter for one example, and the total relevance at each
/// stage of the backward propagation.
#[derive(Clone, Debug)]
pub struct Relevance {
    /// Indexed by parameter; empty for parameters that are not trainable.
    pub of: Vec<Vec<f32>>,
    /// Total relevance at the output, below the task head, and below each block from the last to
    /// the first.
    pub flow: Vec<f64>,
    /// Total relevance of each token's embedding, with those of a soft prompt.
    pub tokens: Vec<f64>,
}

/// Relevance collected during the backward propagation of one example, and the random draws for it.
struct Collected {
    relevance: Relevance,
    probes: ExampleProbes,
}

impl Collected {
    fn new(model: &Model, probes: ExampleProbes) -> Self {
        let of = model.parameters.iter().map(|(_, parameter)| match parameter.trainable {
            true => vec![0.0; parameter.len()],
            false => Vec::new(),
        });
        let (flow, tokens) = (Vec::new(), Vec::new());
        Self { relevance: Relevance { of: of.collect(), flow, tokens }, probes }
    }

    fn add(&mut self, parameter: ParameterId, relevance: &[f32]) {
        let sums = &mut self.relevance.of[parameter.index()];
        sums.iter_mut().zip(relevance).for_each(|(sum, r)| *sum += r);
    }

    fn point(&mut self, relevance: &Host) {
        self.relevance.flow.push(total(relevance));
    }
}

impl Explainer {
    /// Creates an explainer for a copy of the model; `probes` are drawn for zero LoRA and adapter
    /// weights.
    pub fn new(
        model: &Model,
        rule: impl Into<LinearRule>,
        initial: InitialRelevance,
        probes: Probes,
    ) -> Result<Self> {
        let mut model = model.clone();
        model.to_device(&undertone_tensor::Device::Cpu)?;
        let probed = zero_weights(&model)?;
        let activations = ActivationRule::default();
        Ok(Self { model, rule: rule.into(), activations, initial, probes, probed })
    }

    /// Sets how relevance passes activation functions.
    pub fn with_activations(self, activations: ActivationRule) -> Self {
        Self { activations, ..self }
    }

    /// The relevance of every trainable parameter for one example.
    pub fn relevance(&self, example: &Example) -> Result<Relevance> {
        let batch = Batch::pack(std::slice::from_ref(example));
        self.model.check(&batch)?;
        let batch = &*self.model.prompted(&batch);
        let network = &self.model.network;
        let objective = Objective::of(batch, network.head.task_head)?;
        let positions: Vec<u32> = (0..batch.tokens.len() as u32).collect();
        let pass = Pass {
            parameters: &self.model.parameters,
            starts: &batch.starts,
            positions: &positions,
            visible: None,
            dropout_seed: None,
            keep: false,
            panels: None,
        };
        let mut collected = Collected::new(&self.model, self.probes.of(example));
        let mut x =
            network.embeddings.forward(&pass, &batch.tokens, &batch.segments)?.0.to_host()?;
        let mut traces = Vec::new();
        for block in &network.blocks {
            let trace = self.trace_block(&pass, block, x)?;
            x = trace.output.clone();
            traces.push(trace);
        }
        let last = x;
        let normed = match &network.last_norm {
            Some(norm) => self.norm(&pass, norm, &last)?,
            None => last,
        };
        let head = self.trace_head(&pass, &normed, &objective.rows)?;
        let start = initial_relevance(
            self.initial,
            &head.logits(),
            &objective.targets,
            network.head.task_head,
        );
        collected.point(&start);
        let mut relevance = self.through_head(&head, start, &mut collected)?;
        collected.point(&relevance);
        if let Some(norm) = &network.last_norm {
            self.through_norm(norm, &normed, &relevance, &mut collected)?;
        }
        for (block, trace) in network.blocks.iter().zip(&traces).rev() {
            relevance = self.through_block(block, trace, relevance, &mut collected)?;
            collected.point(&relevance);
        }
        if let Some(norm) = &network.embeddings.norm {
            let embedded = &traces.first().map_or(normed, |trace| trace.input.clone());
            self.through_norm(norm, embedded, &relevance, &mut collected)?;
        }
        let of_token = |t| relevance.row(t).iter().map(|&r| f64::from(r)).sum();
        collected.relevance.tokens = (0..relevance.rows()).map(of_token).collect();
        self.through_prompt(&pass, batch, &relevance, &mut collected)?;
        Ok(collected.relevance)
    }

    /// A soft prompt's row is one term of its token's embedding: equation 13 for a sum.
    fn through_prompt(
        &self,
        pass: &Pass,
        batch: &Batch,
        relevance: &Host,
        collected: &mut Collected,
    ) -> Result<()> {
        let embeddings = &self.model.network.embeddings;
        let Some(prompt) = embeddings.prompt.filter(|p| self.is_trainable(p.table)) else {
            return Ok(());
        };
        let sums = embeddings.sum(pass, &batch.tokens, &batch.segments)?.to_host()?;
        let table = self.value(prompt.table)?;
        for (t, token) in batch.tokens.iter().enumerate().filter(|(_, t)| **t >= prompt.first) {
            let row = (token - prompt.first) as usize;
            let parts = table.row(row).iter().zip(sums.row(t)).zip(relevance.row(t));
            let parts: Vec<f32> = parts.map(|((p, z), r)| p * rules::divided(*r, *z)).collect();
            let mut whole = vec![0.0; table.rows() * table.columns()];
            whole[row * table.columns()..][..table.columns()].copy_from_slice(&parts);
            collected.add(prompt.table, &whole);
        }
        Ok(())
    }

    fn value(&self, id: ParameterId) -> Result<Host> {
        Ok(self.model.parameters.value(id).to_host()?)
    }

    fn is_probed(&self, id: ParameterId) -> bool {
        self.probed[id.index()]
    }

    fn is_trainable(&self, id: ParameterId) -> bool {
        self.model.parameters.is_trainable(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskHead;
    use crate::architecture::{Architecture, Dimensions};
    use crate::tuning::{Ia3Settings, Tuning};
    use undertone_data::Target;
    use undertone_tensor::Matrix;

    /// Conservation alone does not show that the right quantities are conserved: the traced forward
    /// pass must equal the model's, block by block, with weights for which every part matters.
    #[test]
    fn the_traced_forward_pass_is_the_models() {
        let dimensions = Dimensions {
            layers: 3,
            hidden: 16,
            heads: 4,
            inner: 40,
            vocabulary: 60,
            positions: 100,
            key_heads: None,
        };
        let labels = ["a".to_owned(), "b".to_owned()];
        let classifier = TaskHead::SequenceClassification;
        for (architecture, task_head) in [
            (Architecture::Bert, classifier),
            (Architecture::MpNet, classifier),
            (Architecture::ModernBert, classifier),
            (Architecture::Llama, TaskHead::CausalLanguageModel),
            (Architecture::Qwen3, TaskHead::CausalLanguageModel),
            (Architecture::Gemma2, TaskHead::CausalLanguageModel),
            (Architecture::Gemma3, TaskHead::CausalLanguageModel),
            (Architecture::Phi3, TaskHead::CausalLanguageModel),
        ] {
            let mut model = architecture.random(dimensions, task_head, &labels, 5).unwrap();
            // Factors of keys, values and inner activations, which the wave moves away from 1.
            model.apply_tuning(&Tuning::Ia3(Ia3Settings::default()), 1).unwrap();
            for (_, parameter) in model.parameters.iter_mut() {
                let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
                let wave = |(i, x): (usize, &f32)| 10.0 * x + 0.3 * (i as f32).sin();
                let numbers = parameter.value.to_vec().unwrap();
                let numbers = numbers.iter().enumerate().map(wave).collect();
                parameter.value = Matrix::from_vec(rows, columns, numbers);
            }
            let example = Example {
                tokens: (0..9).map(|t| (t * t + 3) % 50).collect(),
                target: Target::Class(1),
                ..Example::default()
            };
            let batch = Batch::pack([&example]);
            let states = model.hidden_states(&batch).unwrap();
            let probes = Probes { seed: 7, count: 1 };
            let explainer =
                Explainer::new(&model, AlphaBeta::default(), Default::default(), probes).unwrap();
            let positions: Vec<u32> = (0..9).collect();
            let pass = Pass {
                starts: &batch.starts,
                positions: &positions,
                ..Pass::plain(&model.parameters)
            };
            let mut x = states[0].to_host().unwrap();
            for (block, state) in model.network.blocks.iter().zip(&states[1..]) {
                x = explainer.trace_block(&pass, block, x).unwrap().output;
                let state = state.to_host().unwrap();
                let largest = state.dense().iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                for (ours, wanted) in x.dense().iter().zip(state.dense().iter()) {
                    let off = (ours - wanted).abs();
                    assert!(off <= 1e-4 * largest, "{architecture:?}: {ours}, not {wanted}");
                }
            }
        }
    }
}
