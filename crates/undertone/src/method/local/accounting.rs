//! Accounting events for the releases of a perturbed embedding, epoch by epoch.

use undertone_accounting::{Adjacency, Composition, Event};
use undertone_run::{ReleaseKind, Releases};

/// The event that an epoch's release adds to the earlier ones; `None` if it repeats one of them.
fn event(releases: &Releases, epoch: usize) -> Option<Event> {
    // A release without noise, in paper mode, is not an event: the plan states that nothing covers
    // it.
    let noise = *releases.noise_multipliers.get(epoch).filter(|&&noise| noise > 0.0)?;
    let sensitivity = releases.sensitivity;
    match releases.release {
        ReleaseKind::Once if epoch > 0 => None,
        ReleaseKind::Once | ReleaseKind::Fresh => {
            Some(Event::Gaussian { noise_multiplier: noise, sensitivity })
        }
        ReleaseKind::Path => {
            let before =
                epoch.checked_sub(1).map_or(0.0, |e| releases.noise_multipliers[e].powi(-2));
            let more = noise.powi(-2) - before;
            // Round toward more privacy loss.
            (more > 0.0).then(|| Event::Gaussian {
                noise_multiplier: (more * (1.0 + 1e-12)).sqrt().recip(),
                sensitivity,
            })
        }
    }
}

/// The releases of all epochs in ledger order: epoch and event.
pub fn events(releases: &Releases) -> Vec<(usize, Event)> {
    let epochs = 0..releases.noise_multipliers.len();
    epochs.filter_map(|epoch| Some((epoch, event(releases, epoch)?))).collect()
}

/// The composition of all releases of a privacy unit's embeddings.
pub fn composition(releases: &Releases) -> Composition {
    let mut all = Composition::new(Adjacency::ReplaceOne);
    for (_, event) in events(releases) {
        all.push(event, releases.records_per_unit);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_accounting::{Accountant, epsilon};

    fn spent(release: ReleaseKind, noise: &[f64], sensitivity: f64) -> f64 {
        let releases = Releases {
            release,
            noise_multipliers: noise.to_vec(),
            sensitivity,
            records_per_unit: 1,
        };
        epsilon(&composition(&releases), 1e-5, Accountant::Auto).unwrap().epsilon.upper
    }

    #[test]
    fn the_published_settings_cost_what_the_lemma_says() {
        // σ of a Poisson accountant at ε = 8 for SST-2 with batches of 32 and three epochs.
        let uniform = [0.3900; 3];
        let fresh = spent(ReleaseKind::Fresh, &uniform, 2.0);
        assert!((fresh - 76.0).abs() < 1.5, "{fresh}");
        // The same, with noise proportional to the sensitivity.
        let fresh = spent(ReleaseKind::Fresh, &uniform, 1.0);
        assert!((fresh - 28.0).abs() < 1.0, "{fresh}");
    }

    #[test]
    fn a_path_costs_what_its_last_release_costs() {
        let path = [0.9, 0.6, 0.45];
        let all = spent(ReleaseKind::Path, &path, 2.0);
        let last = spent(ReleaseKind::Once, &[0.45], 2.0);
        assert!((all - last).abs() < 1e-6 && all >= last - 1e-9, "{all} {last}");
        let level = spent(ReleaseKind::Path, &[0.45; 3], 2.0);
        assert!((level - last).abs() < 1e-6);
        assert!(spent(ReleaseKind::Fresh, &path, 2.0) > all + 1.0);
    }
}
