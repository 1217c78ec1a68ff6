//! The noise of each parameter during the training of a sweep's cells, as heat maps.

use crate::cells::Cells;
use crate::error::Result;
use std::path::Path;
use undertone_report::plot;
use undertone_run::{Record, RunPaths, read_metrics};

/// Noise std by parameter name, relative to the mean over all coordinates.
type Noise = Vec<(String, f64)>;

/// Writes `noise-<row>--<column>.svg` for each cell whose parameters get different noise: the mean
/// over the ends of its epochs and over its seeds. The run folder's noise.svg is of the last step
/// alone. Failed runs are left out.
pub fn draw(folder: &Path, cells: &Cells, runs: &Path) -> Result<()> {
    for of_cell in cells.of.iter().flatten().flatten() {
        let folders = of_cell.iter().map(|&run| cells.runs[run].folder.as_str());
        let records = folders.clone().filter_map(|name| {
            let paths = RunPaths::new(&runs.join(name));
            read_metrics(&paths.metrics()).ok()
        });
        let stds = mean(&records.flatten().collect::<Vec<Record>>());
        let cell = folders.clone().next().and_then(|name| name.split("--seed-").next());
        if let Some(cell) = cell.filter(|_| !stds.is_empty()) {
            let title = "Noise during training, relative to the mean";
            plot::heat_map(&folder.join(format!("noise-{cell}.svg")), title, &stds)?;
        }
    }
    Ok(())
}

/// The mean over the records that have noise, in the order of the first.
fn mean(records: &[Record]) -> Noise {
    let noisy = || records.iter().filter(|record| !record.noise_by_parameter.is_empty());
    let Some(first) = noisy().next() else { return Vec::new() };
    let of = |name: &str| {
        let values = noisy().filter_map(|record| {
            let all = &record.noise_by_parameter;
            all.iter().find(|(parameter, _)| parameter == name).map(|(_, noise)| *noise)
        });
        let values: Vec<f64> = values.collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    first.noise_by_parameter.iter().map(|(name, _)| (name.clone(), of(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_mean_over_epochs_and_seeds() {
        let record = |noise: &[f64]| {
            let names = ["a", "b"].iter().zip(noise);
            let noise: Vec<serde_json::Value> =
                names.map(|(name, noise)| serde_json::json!([name, noise])).collect();
            let text = serde_json::json!({
                "step": 1, "epoch": 1, "units": 1, "learning_rate": 0.1, "loss": null,
                "noise_by_parameter": noise,
            });
            serde_json::from_value::<Record>(text).unwrap()
        };
        // Only the last steps of epochs have noise.
        let records = [record(&[]), record(&[0.5, 1.5]), record(&[]), record(&[0.75, 1.25])];
        assert_eq!(mean(&records), [("a".to_owned(), 0.625), ("b".to_owned(), 1.375)]);
        assert_eq!(mean(&records[..1]), []);
    }
}
