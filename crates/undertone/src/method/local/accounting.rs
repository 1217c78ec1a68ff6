//! What the releases of a record cost, epoch by epoch.

use serde::{Deserialize, Serialize};
use undertone_accounting::{Adjacency, Composition, Event};

/// How often a record is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// Once; every epoch uses the same release.
    #[default]
    Once,
    /// In every epoch, with noise that falls along one path.
    Path,
    /// In every epoch, with noise that has nothing to do with the others'.
    Fresh,
}

/// All releases of one record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Releases {
    /// How often.
    pub release: Release,
    /// Deviation of the noise over the norm, by epoch.
    pub noise_multipliers: Vec<f64>,
    /// How far replacing a record moves what is released, in norms.
    pub sensitivity: f64,
    /// How many records a privacy unit has at most.
    pub records_per_unit: u64,
}

impl Releases {
    /// What the releases of an epoch add to what was released before; nothing if all of it was.
    pub fn event(&self, epoch: usize) -> Option<Event> {
        let noise = *self.noise_multipliers.get(epoch)?;
        let sensitivity = self.sensitivity;
        match self.release {
            Release::Once if epoch > 0 => None,
            Release::Once | Release::Fresh => {
                Some(Event::Gaussian { noise_multiplier: noise, sensitivity })
            }
            Release::Path => {
                let before =
                    epoch.checked_sub(1).map_or(0.0, |e| self.noise_multipliers[e].powi(-2));
                let more = noise.powi(-2) - before;
                // Rounded towards more loss.
                (more > 0.0).then(|| Event::Gaussian {
                    noise_multiplier: (more * (1.0 + 1e-12)).sqrt().recip(),
                    sensitivity,
                })
            }
        }
    }

    /// Everything that all epochs release, in the order of the ledger: the epoch, and what is
    /// released in it by a unit.
    pub fn events(&self) -> Vec<(usize, Event)> {
        (0..self.noise_multipliers.len()).filter_map(|e| Some((e, self.event(e)?))).collect()
    }

    /// The same as one composition.
    pub fn composition(&self) -> Composition {
        let mut released = Composition::new(Adjacency::ReplaceOne);
        self.events()
            .into_iter()
            .for_each(|(_, event)| released.push(event, self.records_per_unit));
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_accounting::{Accountant, epsilon};

    fn spent(release: Release, noise: &[f64], sensitivity: f64) -> f64 {
        let releases = Releases {
            release,
            noise_multipliers: noise.to_vec(),
            sensitivity,
            records_per_unit: 1,
        };
        epsilon(&releases.composition(), 1e-5, Accountant::Auto).unwrap().epsilon.upper
    }

    #[test]
    fn the_published_settings_cost_what_the_lemma_says() {
        // σ of a Poisson accountant at ε = 8 for SST-2, batches of 32, three epochs.
        let uniform = [0.3900; 3];
        let fresh = spent(Release::Fresh, &uniform, 2.0);
        assert!((fresh - 76.0).abs() < 1.5, "{fresh}");
        // The same with noise in proportion to the sensitivity.
        let fresh = spent(Release::Fresh, &uniform, 1.0);
        assert!((fresh - 28.0).abs() < 1.0, "{fresh}");
    }

    #[test]
    fn a_path_costs_what_its_last_release_costs() {
        let path = [0.9, 0.6, 0.45];
        let all = spent(Release::Path, &path, 2.0);
        let last = spent(Release::Once, &[0.45], 2.0);
        assert!((all - last).abs() < 1e-6 && all >= last - 1e-9, "{all} {last}");
        let level = spent(Release::Path, &[0.45; 3], 2.0);
        assert!((level - last).abs() < 1e-6);
        assert!(spent(Release::Fresh, &path, 2.0) > all + 1.0);
    }
}
