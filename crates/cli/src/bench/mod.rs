//! `undertone bench`: the speed of this machine.

mod generate;
mod product;
mod shape;
mod step;
mod text;

use crate::failure::Outcome;
use crate::output::Output;
use clap::Subcommand;

/// Benchmark training and generation on this machine
#[derive(Subcommand)]
pub enum Bench {
    Step(step::StepBench),
    Product(product::ProductBench),
    Generate(generate::Generate),
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
