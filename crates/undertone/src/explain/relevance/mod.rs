//! Layer-wise relevance propagation (LRP) to trainable parameters (Rap-FT, equations 2 to 17).
//!
//! Relevance starts at the model's output ([`InitialRelevance`]) and is propagated back to the
//! embeddings, one operation at a time ([`rules`]): through linear layers by the α–β rule or LRP-0,
//! through residual sums and the matrix products of attention split and renormalised, and through
//! activations, softmax and normalisations unchanged. On the way it is read off at the trainable
//! parameters: weights of linear layers, LoRA and adapters, and biases.
//!
//! **Parameters that are zero.** By the rules a weight of 0 has no relevance, and nothing behind it
//! has any. LoRA's B and the second layer of an adapter are initialised to 0, so before fine-tuning
//! both halves would have none. For the relevance alone they are set to random values
//! ([`Explainer::new`]); the result then says which inputs and outputs matter.

mod attention;
mod block;
mod initial;
mod layers;
pub mod rules;

use initial::initial_relevance;
pub use rules::{AlphaBeta, LinearRule, Shares};

use crate::data::{Batch, Example};
use crate::model::{Model, Objective, Origin, ParameterId, Pass, Result};
use crate::tensor::{Host, Matrix};
use rules::total;
use undertone_run::InitialRelevance;

/// Computes relevance by layer-wise relevance propagation.
#[derive(Debug)]
pub struct Explainer {
    model: Model,
    rule: LinearRule,
    initial: InitialRelevance,
}

/// The relevance of every trainable parameter for one example, and the total relevance at each
/// point of the backward propagation.
#[derive(Clone, Debug)]
pub struct Relevance {
    /// Indexed by parameter; empty for parameters that are not trainable.
    pub of: Vec<Vec<f32>>,
    /// Total relevance at the output, below the task head, and below each block from the last to
    /// the first.
    pub flow: Vec<f64>,
}

impl Relevance {
    fn empty(model: &Model) -> Self {
        let of = model.parameters.iter().map(|(_, parameter)| match parameter.trainable {
            true => vec![0.0; parameter.len()],
            false => Vec::new(),
        });
        Self { of: of.collect(), flow: Vec::new() }
    }

    fn add(&mut self, parameter: ParameterId, relevance: &[f32]) {
        self.of[parameter.index()].iter_mut().zip(relevance).for_each(|(sum, r)| *sum += r);
    }
}

impl Explainer {
    /// For a copy of the model, in which LoRA and adapter weights that are all zero are drawn at
    /// random from `seed`.
    pub fn new(
        model: &Model,
        rule: impl Into<LinearRule>,
        initial: InitialRelevance,
        seed: u64,
    ) -> Result<Self> {
        let rule = rule.into();
        let mut model = model.clone();
        model.to_device(&crate::tensor::Device::Cpu)?;
        let mut state = seed | 1;
        for (_, parameter) in model.parameters.iter_mut() {
            let zero = parameter.value.to_vec()?.iter().all(|&x| x == 0.0);
            if parameter.trainable
                && parameter.origin == Origin::Adapter
                && parameter.shape.len() > 1
                && zero
            {
                let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
                let width = (3.0 / columns as f32).sqrt();
                let values = (0..rows * columns).map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    width * ((state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0)
                });
                parameter.value = Matrix::from_vec(rows, columns, values.collect());
            }
        }
        Ok(Self { model, rule, initial })
    }

    /// The relevance of every trainable parameter for one example.
    pub fn relevance(&self, example: &Example) -> Result<Relevance> {
        let batch = Batch::pack(std::slice::from_ref(example));
        self.model.check(&batch)?;
        let network = &self.model.network;
        let objective = Objective::of(&batch, network.head.task_head)?;
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
        let mut found = Relevance::empty(&self.model);
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
        found.flow.push(total(&start));
        let mut relevance = self.through_head(&head, start, &mut found)?;
        found.flow.push(total(&relevance));
        if let Some(norm) = &network.last_norm {
            self.through_norm(norm, &normed, &relevance, &mut found)?;
        }
        for (block, trace) in network.blocks.iter().zip(&traces).rev() {
            relevance = self.through_block(block, trace, relevance, &mut found)?;
            found.flow.push(total(&relevance));
        }
        if let Some(norm) = &network.embeddings.norm {
            let embedded = &traces.first().map_or(normed, |trace| trace.input.clone());
            self.through_norm(norm, embedded, &relevance, &mut found)?;
        }
        Ok(found)
    }

    fn value(&self, id: ParameterId) -> Result<Host> {
        Ok(self.model.parameters.value(id).to_host()?)
    }

    fn is_trainable(&self, id: ParameterId) -> bool {
        self.model.parameters.is_trainable(id)
    }
}
