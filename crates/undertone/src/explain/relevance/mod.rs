//! Layer-wise relevance propagation (LRP) to trainable parameters (Rap-FT, equations 2 to 17).
//!
//! Relevance starts at the model's output ([`InitialRelevance`]) and is propagated back to the
//! embeddings, one operation at a time ([`rules`]): through linear layers by the α–β rule or LRP-0,
//! through residual sums and the matrix products of attention split and renormalised, and through
//! activations, softmax and normalisations unchanged. On the way it is read off at the trainable
//! parameters: weights of linear layers, LoRA and adapters, and biases.
//!
//! Weights of LoRA and adapters that are still zero have the mean over random draws ([`Probes`]).

mod attention;
mod block;
mod initial;
mod layers;
mod probe;
pub mod rules;

use initial::initial_relevance;
pub use probe::Probes;
use probe::{ExampleProbes, zero_weights};
pub use rules::{AlphaBeta, LinearRule, Shares};

use crate::data::{Batch, Example};
use crate::model::{Model, Objective, ParameterId, Pass, Result};
use crate::tensor::Host;
use rules::total;
use undertone_run::InitialRelevance;

/// Computes relevance by layer-wise relevance propagation.
#[derive(Debug)]
pub struct Explainer {
    model: Model,
    rule: LinearRule,
    initial: InitialRelevance,
    probes: Probes,
    /// By parameter: whether it is drawn at random, since it is zero.
    probed: Vec<bool>,
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

/// What is read off on the way back for one example, and the random draws for it.
struct Found {
    relevance: Relevance,
    probes: ExampleProbes,
}

impl Found {
    fn new(model: &Model, probes: ExampleProbes) -> Self {
        let of = model.parameters.iter().map(|(_, parameter)| match parameter.trainable {
            true => vec![0.0; parameter.len()],
            false => Vec::new(),
        });
        Self { relevance: Relevance { of: of.collect(), flow: Vec::new() }, probes }
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
    /// For a copy of the model, in whose zero weights of LoRA and adapters `probes` are drawn.
    pub fn new(
        model: &Model,
        rule: impl Into<LinearRule>,
        initial: InitialRelevance,
        probes: Probes,
    ) -> Result<Self> {
        let mut model = model.clone();
        model.to_device(&crate::tensor::Device::Cpu)?;
        let probed = zero_weights(&model)?;
        Ok(Self { model, rule: rule.into(), initial, probes, probed })
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
        let mut found = Found::new(&self.model, self.probes.of(example));
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
        found.point(&start);
        let mut relevance = self.through_head(&head, start, &mut found)?;
        found.point(&relevance);
        if let Some(norm) = &network.last_norm {
            self.through_norm(norm, &normed, &relevance, &mut found)?;
        }
        for (block, trace) in network.blocks.iter().zip(&traces).rev() {
            relevance = self.through_block(block, trace, relevance, &mut found)?;
            found.point(&relevance);
        }
        if let Some(norm) = &network.embeddings.norm {
            let embedded = &traces.first().map_or(normed, |trace| trace.input.clone());
            self.through_norm(norm, embedded, &relevance, &mut found)?;
        }
        Ok(found.relevance)
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
