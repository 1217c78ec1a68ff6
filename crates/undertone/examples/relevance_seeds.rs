//! How closely the relevance maps of two seeds agree, by tensor, and the ℓ2 norms of the examples'
//! maps.
//!
//!     cargo run --release --example relevance_seeds -- RUN.toml EXAMPLES PROBES
//!
//! The run file specifies the model, the fine-tuning method and the data; nothing is trained.

use std::path::Path;
use std::time::Instant;
use undertone::Plan;
use undertone::explain::relevance::{AlphaBeta, Explainer, Probes};
use undertone::method::central::{RelevanceMap, RelevanceSum};
use undertone::model::Origin;
use undertone::model::folder::{LoadOptions, load, locate};
use undertone::run::InitialRelevance;
use undertone::train::read_data;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, examples, probes] = &arguments[..] else {
        return Err("give a run file, a number of examples and a number of probes".into());
    };
    let plan = Plan::read(Path::new(file), &[])?;
    let options = LoadOptions {
        task_head: Some(plan.task_head()),
        labels: plan.data.labels.clone(),
        ..LoadOptions::default()
    };
    let mut model = load(&locate(&plan.model.name())?, &options)?;
    model.apply_tuning(&plan.model.tuning, 1)?;
    let mut data = read_data(&plan, None)?.examples;
    data.truncate(examples.parse()?);
    let initial = InitialRelevance::default();
    let mut maps: Vec<RelevanceMap> = Vec::new();
    for seed in [1, 2] {
        let probes = Probes { seed, count: probes.parse()? };
        let explainer = Explainer::new(&model, AlphaBeta::default(), initial, probes)?;
        let mut sum = RelevanceSum::new(&model.parameters);
        let (mut norms, begun) = (Vec::new(), Instant::now());
        for example in &data {
            let map = explainer.relevance(example)?.of;
            let squared: f64 = map.iter().flatten().map(|&x| f64::from(x).powi(2)).sum();
            norms.push(squared.sqrt());
            sum.add(&map);
        }
        norms.sort_by(f64::total_cmp);
        let quantile = |q: f64| norms[((norms.len() - 1) as f64 * q) as usize];
        println!(
            "seed {seed}: {:.3} s an example; norms {:.4} {:.4} {:.4} {:.4} {:.4} (0, 10, 50, 90, \
             100 %)",
            begun.elapsed().as_secs_f64() / data.len() as f64,
            quantile(0.0),
            quantile(0.1),
            quantile(0.5),
            quantile(0.9),
            quantile(1.0)
        );
        maps.push(sum.mean());
    }
    for (id, parameter) in model.parameters.iter() {
        if parameter.origin == Origin::Adapter && parameter.shape.len() > 1 {
            let (first, second) = (&maps[0].of[id.index()], &maps[1].of[id.index()]);
            println!("{:.4}  {}", correlation(first, second), parameter.name);
        }
    }
    let (first, second) = (maps[0].mask(0.7).concat(), maps[1].mask(0.7).concat());
    let differ = first.iter().zip(&second).filter(|(x, y)| x != y).count();
    println!("masks at β = 0.7 differ in {differ} of {} coordinates", first.len());
    Ok(())
}

/// Pearson's correlation.
fn correlation(x: &[f32], y: &[f32]) -> f64 {
    let mean = |v: &[f32]| v.iter().map(|&x| f64::from(x)).sum::<f64>() / v.len() as f64;
    let (of_x, of_y) = (mean(x), mean(y));
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (&x, &y) in x.iter().zip(y) {
        let (x, y) = (f64::from(x) - of_x, f64::from(y) - of_y);
        (xy, xx, yy) = (xy + x * y, xx + x * x, yy + y * y);
    }
    xy / (xx * yy).sqrt()
}
