//! Noise multipliers of perturbed embeddings by epoch, calibrated to ε.

use super::accounting;
use super::plan::{LocalPlan, Target};
use crate::error::{Error, Result};
use crate::method::central::{AllocationPlan, Budget, CentralPlan};
use undertone_accounting::calibrate::least_noise;
use undertone_accounting::schedule::Passes;
use undertone_accounting::{Accountant, Adjacency, Composition, Event, gaussian};
use undertone_run::{
    AccountedBatch, Adaptation, AttentionSource, Clip, NoiseIs, ReleaseKind, Releases, Resolved,
    TrainingSection,
};

impl LocalPlan {
    /// The event of randomized response on one label.
    pub fn label_event(&self, classes: usize) -> Option<Event> {
        let epsilon = self.settings.label_epsilon?;
        Some(Event::RandomizedResponse { epsilon, categories: classes as u64 })
    }

    /// The release of a noisy attention map, which by itself costs `attention_epsilon`.
    fn attention_event(&self) -> Result<Option<Event>> {
        let Some(mvg) = self.mvg().filter(|mvg| mvg.attention == AttentionSource::AttenDp) else {
            return Ok(None);
        };
        let shift = gaussian::largest_mu(mvg.attention_epsilon, self.delta)?;
        let sensitivity = self.examples_per_unit as f64;
        let noise_multiplier = sensitivity / shift * (1.0 + 1e-11);
        Ok(Some(Event::Gaussian { noise_multiplier, sensitivity }))
    }

    /// DP-SGD on the private examples, with noise such that it spends its own share of ε.
    fn adaptation(&self, units: usize) -> Result<Option<Adaptation>> {
        let Some(adapt) = &self.adapt else { return Ok(None) };
        let (Some(share), &Target::Epsilon(target)) = (adapt.share, &self.target) else {
            return Ok(None);
        };
        let batch = adapt.batch().min(units as u64);
        let passes = Passes::over(units as u64, batch, adapt.epochs())?;
        let steps = passes.steps_per_epoch * u64::from(adapt.epochs());
        let sampling_rate = passes.sampling_rate;
        let compose = |noise_multiplier: f64| {
            let mut all = Composition::new(Adjacency::ReplaceOne);
            all.push(Event::PoissonGaussian { noise_multiplier, sampling_rate }, steps);
            all
        };
        let range = (0.1, 1e3);
        let calibrated = least_noise(share * target, self.delta, Accountant::Auto, range, compose)?;
        Ok(Some(Adaptation { noise_multiplier: calibrated.noise, sampling_rate, steps }))
    }

    /// Calibrates the plan for a given number of privacy units and classes. The noise of MVG as
    /// published depends on the model and is filled in later.
    pub fn calibrate(
        &self,
        training: &TrainingSection,
        units: usize,
        classes: usize,
    ) -> Result<Resolved> {
        let before = self.attention_event()?;
        let adaptation = self.adaptation(units)?;
        let settings = &self.settings;
        let sensitivity = if self.mvg().is_some() { std::f64::consts::SQRT_2 } else { 2.0 };
        let releases = |noise_multipliers: Vec<f64>| Releases {
            release: settings.release,
            noise_multipliers,
            sensitivity,
            records_per_unit: self.examples_per_unit,
        };
        let resolved = |planned: Releases| Resolved {
            units,
            steps_per_epoch: (units as u64).div_ceil(training.batch).max(1),
            sampling_rate: None,
            examples: None,
            noise_multipliers: planned.noise_multipliers.clone(),
            adaptation,
            before,
            evaluation: None,
            releases: Some(planned),
            registered: None,
        };
        let check_path = |noise: &[f64]| {
            let rises = noise.windows(2).any(|pair| pair[0] < pair[1]);
            if settings.release == ReleaseKind::Path && rises {
                return Err(Error::plan(
                    "with release = \"path\" the noise must not rise from epoch to epoch; choose a \
                     step_distance of at least 1, or release = \"fresh\"",
                ));
            }
            Ok(())
        };
        if self.is_published() {
            let claimed = self.claimed_noise(training, units)?;
            check_path(&claimed)?;
            let scale = if settings.noise_is == NoiseIs::Sensitivity { 2.0 } else { 1.0 };
            return Ok(resolved(releases(claimed.iter().map(|noise| scale * noise).collect())));
        }
        let &Target::Epsilon(target) = &self.target else {
            return Err(Error::plan("[privacy] needs epsilon"));
        };
        let once = settings.release == ReleaseKind::Once;
        let factors = match once {
            true => vec![1.0; training.epochs as usize],
            false => {
                let passes = Passes::over(units as u64, training.batch, training.epochs)?;
                self.schedule.factors(&passes, target, self.delta)?
            }
        };
        check_path(&factors)?;
        let at = |noise: f64| releases(factors.iter().map(|factor| factor * noise).collect());
        let labels = self.label_event(classes);
        let compose = |noise: f64| {
            let mut all = accounting::composition(&at(noise));
            adaptation.iter().for_each(|adaptation| all.push(adaptation.event(), adaptation.steps));
            before.into_iter().for_each(|event| all.push(event, 1));
            labels.into_iter().for_each(|event| all.push(event, self.examples_per_unit));
            all
        };
        let calibrated = least_noise(target, self.delta, Accountant::Auto, (0.02, 1e4), compose)?;
        Ok(resolved(at(calibrated.noise)))
    }

    /// The training parameters reported to the papers' accountant.
    fn accounted(&self, training: &TrainingSection) -> TrainingSection {
        let batch = match self.settings.accounted_batch {
            AccountedBatch::Training => training.batch,
            AccountedBatch::One => 1,
        };
        TrainingSection { batch, ..training.clone() }
    }

    /// Noise multipliers from the papers' own accounting, which claims amplification by sampling.
    fn claimed_noise(&self, training: &TrainingSection, units: usize) -> Result<Vec<f64>> {
        let epsilon = match &self.target {
            Target::Epsilon(epsilon) => *epsilon,
            Target::NoiseMultipliers(list) => return Ok(list.clone()),
            Target::Tokens => return Ok(vec![1.0; training.epochs as usize]),
        };
        let training = &self.accounted(training);
        let gradients = CentralPlan {
            allocation: AllocationPlan::DpSgd,
            clip: Clip::Automatic,
            examples_per_user: None,
            bands: None,
            statistics: None,
            evaluation: None,
            budget: Budget::Epsilon { epsilon, schedule: self.schedule },
            delta: self.delta,
        };
        Ok(gradients.calibrate(training, units.into())?.noise_multipliers)
    }

    /// ε from the papers' own accounting, plus that of the labels' randomized response and of a
    /// noisy attention map; `None` if some epoch has no noise.
    pub fn claimed_epsilon(&self, training: &TrainingSection, units: usize) -> Result<Option<f64>> {
        if self.has_epochs_without_noise() {
            return Ok(None);
        }
        let labels = self.settings.label_epsilon.unwrap_or(0.0);
        if let Some(mvg) = self.mvg() {
            let noisy_map = mvg.attention == AttentionSource::AttenDp;
            let attention = if noisy_map { mvg.attention_epsilon } else { 0.0 };
            return Ok(Some(mvg.epsilon_max + attention + labels));
        }
        let batch = self.accounted(training).batch;
        let passes = Passes::over(units as u64, batch, training.epochs)?;
        let mut nominal = Composition::new(Adjacency::AddRemove);
        for noise_multiplier in self.claimed_noise(training, units)? {
            let sampling_rate = passes.sampling_rate;
            let event = Event::PoissonGaussian { noise_multiplier, sampling_rate };
            nominal.push(event, passes.steps_per_epoch);
        }
        let answer = undertone_accounting::epsilon(&nominal, self.delta, Accountant::Auto)?;
        Ok(Some(answer.epsilon.upper + labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Method, Plan};

    const RUN: &str = r#"
        [model]
        path = "bert"
        [data]
        task = "classification"
        train = "train.tsv"
        text = "sentence"
        [privacy]
        method = "dp-forward"
        epsilon = 8.0
        delta = 1e-5
        [training]
        epochs = 3
        batch = 32
        learning_rate = 2e-5
    "#;

    fn spent(changes: &[&str]) -> (f64, f64, Vec<f64>) {
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        let plan = Plan::parse(RUN, &changes).unwrap();
        let Method::Local(local) = &plan.method else { panic!("a local method") };
        let resolved = local.calibrate(&plan.training, 67_349, 2).unwrap();
        let released = resolved.releases.unwrap();
        let mut all = accounting::composition(&released);
        resolved
            .adaptation
            .iter()
            .for_each(|adaptation| all.push(adaptation.event(), adaptation.steps));
        local
            .label_event(2)
            .into_iter()
            .for_each(|event| all.push(event, released.records_per_unit));
        let spent_epsilon =
            undertone_accounting::epsilon(&all, 1e-5, Accountant::Auto).unwrap().epsilon.upper;
        let claimed = local.claimed_epsilon(&plan.training, 67_349).unwrap().unwrap();
        (claimed, spent_epsilon, resolved.noise_multipliers)
    }

    /// The local DP guarantee of an example with the published settings: SST-2, batches of 32,
    /// three epochs, claimed ε = 8.
    #[test]
    fn the_published_settings_cost_more_than_they_claim() {
        let paper = "privacy.mode=paper";
        let double = "privacy.paper.noise_is=sensitivity";
        let path = "privacy.local.release=path";
        let ew_ft = ["privacy.method=ew-ft", "privacy.schedule=ewpba", "privacy.step_distance=2"];
        let cases: [(&[&str], f64); 6] = [
            (&[paper], 76.0),
            (&[paper, double], 28.0),
            (&[paper, ew_ft[0], ew_ft[1], ew_ft[2]], 71.0),
            (&[paper, double, ew_ft[0], ew_ft[1], ew_ft[2]], 26.0),
            (&[paper, path, ew_ft[0], ew_ft[1], ew_ft[2]], 37.0),
            (&[paper, double, path, ew_ft[0], ew_ft[1], ew_ft[2]], 15.0),
        ];
        for (changes, wanted) in cases {
            let (claimed, local, noise) = spent(changes);
            println!("{changes:?}: claimed {claimed:.4}, local {local:.2}, noise {noise:?}");
            assert!((claimed - 8.0).abs() < 0.01, "{changes:?} claims {claimed}");
            assert!((local - wanted).abs() < 1.0, "{changes:?}: {local}, not {wanted}");
        }
    }

    /// DP-Forward's code reports batches of one example to the accountant: less noise for the same
    /// claim, and so a larger ε for the example.
    #[test]
    fn the_accountant_may_be_told_of_batches_of_one() {
        let paper = "privacy.mode=paper";
        let (claimed, local, noise) = spent(&[paper, "privacy.paper.accounted_batch=one"]);
        println!("claimed {claimed:.4}, local {local:.2}, noise {noise:?}");
        assert!((claimed - 8.0).abs() < 0.01, "{claimed}");
        let (_, less, more) = spent(&[paper, "privacy.paper.accounted_batch=training"]);
        assert!(noise[0] < more[0] && local > less, "{noise:?} {more:?}");
        // With Rényi DP, too, the claim equals the accountant's result for that number of steps at
        // that sampling rate.
        let mut nominal = Composition::new(Adjacency::AddRemove);
        let event =
            Event::PoissonGaussian { noise_multiplier: noise[0], sampling_rate: 1.0 / 67_349.0 };
        nominal.push(event, 3 * 67_349);
        let answer = undertone_accounting::epsilon(&nominal, 1e-5, Accountant::Rdp).unwrap();
        assert!(answer.epsilon.upper >= claimed - 1e-6, "{answer:?}");
        let refused = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            Plan::parse(RUN, &changes).unwrap_err().to_string()
        };
        let batch_of_one = "privacy.paper.accounted_batch=one";
        assert!(refused(&[batch_of_one]).contains("mode = \"paper\""));
        assert!(
            refused(&[batch_of_one, paper, "privacy.method=mvg", "-privacy.epsilon"])
                .contains("ew-ft")
        );
    }

    /// EW-FT's table 1: noise in only one epoch.
    #[test]
    fn noise_multipliers_are_taken_as_given() {
        let asked = |list: &str| {
            let list = format!("privacy.noise_multipliers={list}");
            let changes = ["privacy.mode=paper", "-privacy.epsilon", &list];
            Plan::parse(RUN, &changes.map(str::to_owned))
        };
        let plan = asked("[0.0, 0.39, 0.0]").unwrap();
        let Method::Local(local) = &plan.method else { panic!("a local method") };
        let resolved = local.calibrate(&plan.training, 67_349, 2).unwrap();
        assert_eq!(resolved.noise_multipliers, [0.0, 0.39, 0.0]);
        // The ledger contains only the noisy epoch, and states that it does not contain the others.
        let events = accounting::events(resolved.releases.as_ref().unwrap());
        let noisy = Event::Gaussian { noise_multiplier: 0.39, sensitivity: 2.0 };
        assert_eq!(events, [(1, noisy)]);
        assert_eq!(local.claimed_epsilon(&plan.training, 67_349).unwrap(), None);
        assert!(local.unaccounted().unwrap().contains("without noise"));
        // With noise in every epoch, the paper's accounting yields a value.
        let plan = asked("[0.39, 0.39, 0.39]").unwrap();
        let Method::Local(local) = &plan.method else { panic!("a local method") };
        let claimed = local.claimed_epsilon(&plan.training, 67_349).unwrap().unwrap();
        assert!((claimed - 8.0).abs() < 0.05, "{claimed}");
        for (list, sentence) in [
            ("[0.39]", "one number for each epoch"),
            ("[0.0, 0.0, 0.0]", "method = \"none\""),
            ("[0.01, 0.39, 0.39]", "privacy.noise_multipliers is 0.01"),
            ("[-1.0, 0.39, 0.39]", "privacy.noise_multipliers is -1"),
        ] {
            let error = asked(list).unwrap_err().to_string();
            assert!(error.contains(sentence), "{list}: {error}");
        }
        let list = "privacy.noise_multipliers=[1.0, 1.0, 1.0]";
        for (changes, sentence) in [
            (vec![list], "paper mode"),
            (vec![list, "privacy.mode=paper"], "either epsilon or noise_multipliers"),
            (vec![list, "privacy.mode=paper", "privacy.method=mvg", "-privacy.epsilon"], "ew-ft"),
            (vec![list, "privacy.mode=paper", "privacy.schedule=linear"], "without"),
            (
                vec![list, "privacy.mode=paper", "-privacy.epsilon", "privacy.local.release=path"],
                "fresh",
            ),
        ] {
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            let error = Plan::parse(RUN, &changes).unwrap_err().to_string();
            assert!(error.contains(sentence), "{changes:?}: {error}");
        }
    }

    /// DP-Forward's aMGM, the analytic matrix Gaussian mechanism, adds noise of std Δ/μ to a matrix
    /// of sensitivity Δ = 2C, with the largest μ for which a Gaussian mechanism is (ε, δ)-DP. A
    /// single release is exactly this mechanism.
    #[test]
    fn a_release_once_is_the_analytic_matrix_gaussian_mechanism() {
        for epsilon in [0.5, 2.0, 8.0] {
            let target = format!("privacy.epsilon={epsilon}");
            let changes = [target.as_str(), "privacy.local.label_epsilon=0"];
            let (_, spent, noise) = spent(&changes);
            let wanted = 2.0 / gaussian::largest_mu(epsilon, 1e-5).unwrap();
            assert!(noise.iter().all(|noise| (noise / wanted - 1.0).abs() < 1e-3), "{noise:?}");
            assert!(noise[0] >= wanted * (1.0 - 1e-9) && spent <= epsilon, "{noise:?} {wanted}");
        }
    }

    #[test]
    fn a_claim_has_the_labels_and_the_attention_map_in_it() {
        let claimed = |changes: &[&str]| {
            let paper = ["privacy.mode=paper"].iter().chain(changes);
            let changes: Vec<String> = paper.map(ToString::to_string).collect();
            let plan = Plan::parse(RUN, &changes).unwrap();
            let Method::Local(local) = &plan.method else { panic!("a local method") };
            local.claimed_epsilon(&plan.training, 67_349).unwrap().unwrap()
        };
        let labels = "privacy.local.label_epsilon=1.5";
        assert!((claimed(&[]) - 8.0).abs() < 0.01 && (claimed(&[labels]) - 9.5).abs() < 0.01);
        let mvg = ["privacy.method=mvg", "-privacy.epsilon", "privacy.mvg.epsilon_max=10"];
        let noisy = ["privacy.mvg.attention=atten-dp", "privacy.mvg.attention_epsilon=0.75"];
        assert_eq!(claimed(&mvg), 10.0);
        assert_eq!(claimed(&[&mvg[..], &["privacy.mvg.attention=raw"]].concat()), 10.0);
        assert_eq!(claimed(&[&mvg[..], &noisy].concat()), 10.75);
        assert_eq!(claimed(&[&mvg[..], &noisy, &[labels]].concat()), 12.25);
    }

    #[test]
    fn proved_settings_meet_the_target_with_their_labels() {
        for changes in [
            vec!["privacy.epsilon=4"],
            vec!["privacy.local.label_epsilon=0"],
            vec!["privacy.local.adapt={ share = 0.5 }", "model.tuning=head"],
            vec!["privacy.local.release=fresh"],
            vec!["privacy.method=ew-ft", "privacy.local.release=path", "privacy.schedule=ewpba"],
            vec!["privacy.method=mvg", "privacy.epsilon=2"],
            vec!["data.author=who", "data.most_per_author=3"],
        ] {
            let (_, epsilon, _) = spent(&changes);
            let target = if changes[0].ends_with("=4") {
                4.0
            } else if changes.contains(&"privacy.epsilon=2") {
                2.0
            } else {
                8.0
            };
            assert!(epsilon <= target && epsilon > target - 0.01, "{changes:?}: {epsilon}");
        }
    }
}
