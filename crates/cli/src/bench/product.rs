//! Times matrix products of random numbers.

use super::median;
use super::shape::within;
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::time::Instant;
use undertone::tensor::{self, Device, Matrix};

/// Time matrix products (GEMM)
#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone bench product --rows 2048 --inputs 384 --outputs 1536\n  \
     undertone bench product --of weight-gradient --rows 1024 --inputs 768 --outputs 3072 --json"
)]
pub struct ProductBench {
    /// Product of a linear layer to time
    #[arg(long = "of", value_enum, default_value = "output")]
    kind: Kind,
    /// Rows of the activations (tokens of a batch)
    #[arg(long, default_value_t = 2048)]
    rows: usize,
    /// Input features of the layer
    #[arg(long, default_value_t = 384)]
    inputs: usize,
    /// Output features of the layer
    #[arg(long, default_value_t = 384)]
    outputs: usize,
    /// Number of timed products, after three warm-up products
    #[arg(long, default_value_t = 20)]
    repeats: usize,
    #[command(flatten)]
    device: DeviceArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Output of the layer: x Wᵀ
    Output,
    /// Gradient of the input: e W, for output gradients e
    InputGradient,
    /// Gradient of the weights: eᵀ x
    WeightGradient,
}

impl ProductBench {
    pub fn run(self, output: Output) -> Outcome {
        for (name, size) in
            [("--rows", self.rows), ("--inputs", self.inputs), ("--outputs", self.outputs)]
        {
            within(name, size, 1..=1 << 17)?;
        }
        within("--repeats", self.repeats, 1..=1_000_000)?;
        let numbers = self.rows * (self.inputs + self.outputs) + self.inputs * self.outputs;
        if numbers > 1 << 30 {
            return Err(Failure::arguments(
                "the matrices must have at most 1073741824 elements in total",
            ));
        }
        let device = self.device.device()?;
        let times = device.compute(|| self.times(&device));
        let times = times.map_err(undertone::model::Error::from)?;
        let product_ms = median(times);
        let operations = 2.0 * self.rows as f64 * self.inputs as f64 * self.outputs as f64;
        let gflops = operations / product_ms / 1e6;
        if output.json {
            output::json(&json!({ "product_ms": product_ms, "gflops": gflops }));
        } else {
            output::rows(&[
                ("product", format!("{product_ms:.3} ms")),
                ("speed", format!("{gflops:.1} GF/s")),
            ]);
        }
        Ok(())
    }

    /// Milliseconds of each product.
    fn times(&self, device: &Device) -> tensor::Result<Vec<f64>> {
        let matrix = |rows: usize, columns: usize| {
            // The values do not affect the time.
            let number = |i: usize| (i.wrapping_mul(2_654_435_761) >> 8 & 0xffff) as f32 / 65_536.0;
            let numbers = (0..rows * columns).map(number).collect();
            Matrix::from_vec(rows, columns, numbers).to_device(device)
        };
        let x = matrix(self.rows, self.inputs)?;
        let e = matrix(self.rows, self.outputs)?;
        let w = matrix(self.outputs, self.inputs)?;
        let mut times = Vec::new();
        for number in 0..self.repeats + 3 {
            let begun = Instant::now();
            let product = match self.kind {
                Kind::Output => tensor::product(1.0, x.plain(), w.transposed())?,
                Kind::InputGradient => tensor::product(1.0, e.plain(), w.plain())?,
                Kind::WeightGradient => tensor::product(1.0, e.transposed(), x.plain())?,
            };
            device.synchronize()?;
            drop(product);
            if number >= 3 {
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(times)
    }
}
