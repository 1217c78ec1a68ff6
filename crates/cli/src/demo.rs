//! `undertone demo`: what there is, at work on the settings that people know.

use crate::failure::{Failure, Outcome};
use crate::output::{down, line, table, up};
use crate::plot;
use clap::Args;
use std::path::PathBuf;
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::schedule::{Ewpba, Passes, Shape, ewpba, shaped};
use undertone_accounting::{
    Accountant, Adjacency, Composition, Event, Mode, Part, Threat, Unit, epsilon, trade_off,
};

#[derive(Args)]
pub struct Demo {
    /// Folder for the ledger and the charts; its earlier contents of those names are replaced
    #[arg(long, value_name = "FOLDER", default_value = "runs/demo")]
    out: PathBuf,
}

impl Demo {
    pub fn run(self) -> Outcome {
        std::fs::create_dir_all(&self.out).map_err(|e| Failure::write(&self.out, e))?;
        known_settings()?;
        let list = schedules(&self.out)?;
        local_model()?;
        ledger(&self.out, &list)?;
        line(format_args!("\nThe ledger and the charts are in {}.", self.out.display()));
        Ok(())
    }
}

fn known_settings() -> Outcome {
    line(
        "1. What known settings really cost. prv is certified on both sides; rdp is what most tools print; gdp is an",
    );
    line("   approximation that may lie below the truth (marked *).\n");
    let settings = [
        ("MNIST tutorial", 1.1, 256.0 / 60_000.0, 14_063, 1e-5),
        ("SST-2, batch 1024, 10 epochs", 0.8, 1024.0 / 67_349.0, 650, 1e-5),
        ("small rate, many steps", 2.0, 0.001, 50_000, 1e-6),
        ("little noise", 0.6, 0.01, 500, 1e-6),
    ];
    let mut rows = Vec::new();
    for (name, sigma, q, steps, delta) in settings {
        let composition = Composition::dp_sgd(sigma, q, steps);
        let certified = epsilon(&composition, delta, Accountant::Auto)?.epsilon;
        let renyi = epsilon(&composition, delta, Accountant::Rdp)?.epsilon.upper;
        let limit = epsilon(&composition, delta, Accountant::Gdp)?.epsilon.estimate;
        let mark = if limit < certified.lower { "*" } else { "" };
        rows.push(vec![
            name.to_owned(),
            format!("{sigma}"),
            format!("{q:.5}"),
            steps.to_string(),
            format!("{delta:e}"),
            format!("{} … {}", down(certified.lower), up(certified.upper)),
            up(renyi),
            format!("{limit:.4}{mark}"),
        ]);
    }
    table(&["setting", "σ", "q", "steps", "δ", "ε, certified", "ε by rdp", "ε by gdp"], &rows);
    Ok(())
}

fn schedules(out: &std::path::Path) -> Outcome<Vec<f64>> {
    line(
        "\n2. One budget, spent differently over the epochs: SST-2, ε = 8, δ = 1e-5, batches of 32, 3 epochs.\n",
    );
    let passes = Passes::over(67_349, 32, 3)?;
    let mut rows = Vec::new();
    let mut row = |name: &str, list: &[f64], upper: f64| {
        let mut cells = vec![name.to_owned()];
        cells.extend(list.iter().map(|s| format!("{s:.4}")));
        cells.push(up(upper));
        rows.push(cells);
    };
    for (name, shape) in [("uniform", Shape::Uniform), ("linear", Shape::Linear), ("cosine", Shape::Cosine)] {
        let found = shaped(shape, &passes, 2.0, 8.0, 1e-5)?;
        row(name, &found.noise_multipliers, found.answer.epsilon.upper);
    }
    let asked = Ewpba { epsilon: 8.0, delta: 1e-5, step_distance: 2.0, reserve: 1.0 };
    let (found, beginning) = ewpba(&asked, &passes)?;
    row("ewpba, S = 2", &found.noise_multipliers, found.answer.epsilon.upper);
    table(&["schedule", "σ, epoch 1", "epoch 2", "epoch 3", "ε, certified"], &rows);
    plot::schedule(&out.join("schedule.svg"), "ewpba", &found.noise_multipliers, Some(beginning))?;
    Ok(found.noise_multipliers)
}

fn local_model() -> Outcome {
    line(
        "\n3. The same noise on each record's embedding instead, seen by the provider in each of 3 epochs, is not ε = 8:\n",
    );
    let fresh = |sensitivity: f64, count: u64| -> Outcome<String> {
        let event = Event::Gaussian { noise_multiplier: 0.39, sensitivity };
        let composition = Composition::new(Adjacency::ReplaceOne).with(event, count);
        Ok(up(epsilon(&composition, 1e-5, Accountant::Auto)?.epsilon.upper))
    };
    table(
        &["noise", "ε of 3 fresh releases", "ε of one, used 3 times"],
        &[
            vec!["0.39 · C".to_owned(), fresh(2.0, 3)?, fresh(2.0, 1)?],
            vec!["0.39 · 2C".to_owned(), fresh(1.0, 3)?, fresh(1.0, 1)?],
        ],
    );
    Ok(())
}

fn ledger(out: &std::path::Path, noise: &[f64]) -> Outcome {
    line("\n4. A ledger: every release is on disk before it is made, and ε is computed from the file.\n");
    let path = out.join("ledger.jsonl");
    for old in [path.clone(), out.join("ledger.jsonl.head")] {
        if old.exists() {
            std::fs::remove_file(&old).map_err(|e| Failure::write(&old, e))?;
        }
    }
    let rate = 32.0 / 67_349.0;
    let event = |noise_multiplier: f64| Event::PoissonGaussian { noise_multiplier, sampling_rate: rate };
    let least = noise.iter().copied().fold(f64::INFINITY, f64::min);
    let terms = Terms {
        unit: Unit::Example,
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        mode: Mode::Proved,
        assumptions: vec!["every step samples each example on its own with the same probability".to_owned()],
        announced: vec![Part { event: event(least), count: 2_104 }],
    };
    let mut ledger = Ledger::create(&path, terms)?;
    let mut rows = Vec::new();
    for (epoch, &sigma) in noise.iter().enumerate() {
        ledger.append(event(sigma), 2_104)?;
        let spent = ledger.guarantee(1e-5)?.epsilon;
        rows.push(vec![(epoch + 1).to_string(), format!("{sigma:.4}"), "2104".to_owned(), up(spent.upper)]);
    }
    table(&["epoch", "σ", "steps", "ε spent"], &rows);
    line(format_args!("\n{}.", ledger.guarantee(1e-5)?));
    let rates: Vec<f64> = (0..=50).map(|i| f64::from(i) / 50.0).collect();
    let points = trade_off(ledger.spent(), &rates, Accountant::Auto)?;
    plot::trade_off(&out.join("tradeoff.svg"), &points)?;
    Ok(())
}
