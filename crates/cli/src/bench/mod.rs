//! `undertone bench`: the speed of this machine.

mod generate;
mod product;
mod shape;
mod step;
mod text;

use crate::failure::Outcome;
use crate::output::Output;
use clap::Subcommand;

/// Measure the speed of this machine
#[derive(Subcommand)]
pub enum Bench {
    /// Time training steps of a model with random weights
    Step(step::StepBench),
    /// Time matrix products
    Product(product::ProductBench),
    /// Time the generation of text
    Generate(generate::Generate),
    /// Time the loading of a model and the tokenisation of a file
    Text(text::Text),
}

impl Bench {
    pub fn run(self, output: Output) -> Outcome {
        match self {
            Self::Step(step) => step.run(output),
            Self::Product(product) => product.run(output),
            Self::Generate(generate) => generate.run(output),
            Self::Text(text) => text.run(output),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 { f64::NAN } else { 0.5 * (values[(n - 1) / 2] + values[n / 2]) }
}
