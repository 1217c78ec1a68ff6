//! Users whose examples are sampled one by one (`Event::MixtureOfGaussians`), compared with
//! quadrature, with experiments, with another accountant and with weaker bounds.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use undertone_accounting::certificate::{Target, certify};
use undertone_accounting::schedule::{Passes, Shape, shaped};
use undertone_accounting::selection::NumberOfRuns;
use undertone_accounting::{
    Accountant, Adjacency, Bounds, Composition, Error, Event, delta, epsilon,
};

fn users(noise_multiplier: f64, sampling_rate: f64, examples_per_user: u64) -> Event {
    Event::MixtureOfGaussians { noise_multiplier, sampling_rate, examples_per_user }
}

fn steps(event: Event, count: u64) -> Composition {
    Composition::new(Adjacency::AddRemove).with(event, count)
}

fn at(event: Event, count: u64, delta: f64) -> Bounds {
    epsilon(&steps(event, count), delta, Accountant::Auto).unwrap().epsilon
}

fn binomial(k: u64, q: f64) -> Vec<f64> {
    let mut weights = vec![(1.0 - q).powi(k as i32)];
    for i in 1..=k {
        let last = weights[weights.len() - 1];
        weights.push(last * q / (1.0 - q) * (k - i + 1) as f64 / i as f64);
    }
    weights
}

fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt()
}

/// The densities of P and Q on a grid of the output, in units of the noise, and the grid's step.
fn densities(sigma: f64, q: f64, k: u64, per_unit: u32) -> (Vec<[f64; 2]>, f64) {
    let weights = binomial(k, q);
    let (low, high) = (-9.0, k as f64 / sigma + 9.0);
    let count = ((high - low) * f64::from(per_unit)).ceil();
    let step = (high - low) / count;
    let both = |i: u32| {
        let z = low + step * f64::from(i);
        let of = |(i, w): (usize, &f64)| w * density(z - i as f64 / sigma);
        [weights.iter().enumerate().map(of).sum(), density(z)]
    };
    ((0..=count as u32).map(both).collect(), step)
}

fn excess([p, q]: [f64; 2], epsilon: f64) -> [f64; 2] {
    [(p - epsilon.exp() * q).max(0.0), (q - epsilon.exp() * p).max(0.0)]
}

fn assert_holds(bounds: Bounds, truth: f64, error: f64, what: &str) {
    let slack = error * truth + 1e-13;
    assert!(
        bounds.lower <= truth + slack && truth <= bounds.upper + slack,
        "{what}: {bounds:?} does not hold {truth:e}"
    );
}

#[test]
fn one_example_per_user_is_the_poisson_sampled_gaussian() {
    for (sigma, q, count) in [(0.8, 0.02, 500), (2.0, 0.3, 40), (0.5, 1e-4, 1)] {
        let unit = Event::PoissonGaussian { noise_multiplier: sigma, sampling_rate: q };
        assert_eq!(at(users(sigma, q, 1), count, 1e-6), at(unit, count, 1e-6));
    }
}

#[test]
fn all_examples_in_every_step_are_a_gaussian_of_that_sensitivity() {
    for k in [1, 4, 16] {
        let gaussian = Event::Gaussian { noise_multiplier: 30.0, sensitivity: k as f64 };
        let exact = at(gaussian, 20, 1e-6);
        for accountant in [Accountant::Auto, Accountant::Prv] {
            let all = steps(users(30.0, 1.0, k), 20);
            let bounds = epsilon(&all, 1e-6, accountant).unwrap().epsilon;
            assert!(bounds.lower <= exact.upper * (1.0 + 1e-9));
            assert!(bounds.upper >= exact.lower * (1.0 - 1e-9));
            assert!(bounds.gap() < 2e-3 * exact.upper.max(1.0), "{bounds:?}");
        }
    }
}

/// ∫(P − e^ε Q)₊ of one step, in both directions.
#[test]
fn one_step_is_the_integral_of_its_definition() {
    for (sigma, q, k) in [
        (1.0, 0.1, 2),
        (1.0, 0.02, 4),
        (2.0, 0.3, 4),
        (4.0, 0.05, 16),
        (1.0, 0.01, 16),
        (8.0, 0.5, 16),
        (20.0, 0.2, 64),
    ] {
        let (grid, step) = densities(sigma, q, k, 4000);
        for e in [0.05, 0.3, 1.0, 2.5] {
            let both = grid.iter().map(|&at| excess(at, e));
            let [present, absent] =
                both.fold([0.0; 2], |[a, b], [c, d]| [a + step * c, b + step * d]);
            let bounds = delta(&steps(users(sigma, q, k), 1), e, Accountant::Auto).unwrap().delta;
            assert_holds(
                bounds,
                present.max(absent),
                1e-5,
                &format!("σ={sigma} q={q} k={k} ε={e}"),
            );
            let narrow = bounds.upper - bounds.lower <= 0.05 * bounds.upper + 1e-12;
            assert!(narrow, "σ={sigma} q={q} k={k} ε={e}: {bounds:?}");
        }
    }
}

/// The same for two steps, over the plane.
#[test]
fn two_steps_are_the_integral_over_the_plane() {
    for (sigma, q, k) in [(1.5, 0.1, 4), (5.0, 0.2, 16)] {
        let (grid, step) = densities(sigma, q, k, 60);
        for e in [0.3, 1.5] {
            let mut sums = [0.0; 2];
            for first in &grid {
                for second in &grid {
                    let [c, d] = excess([first[0] * second[0], first[1] * second[1]], e);
                    sums = [sums[0] + step * step * c, sums[1] + step * step * d];
                }
            }
            let bounds = delta(&steps(users(sigma, q, k), 2), e, Accountant::Auto).unwrap().delta;
            let truth = sums[0].max(sums[1]);
            assert_holds(bounds, truth, 1e-3, &format!("σ={sigma} q={q} k={k} ε={e}"));
        }
    }
}

/// Another accountant's bounds for many steps (fixtures/make_example_sampling.py).
#[test]
fn another_accountant_agrees() {
    let rows = include_str!("fixtures/example_sampling.csv").lines().skip(1);
    for row in rows {
        let v: Vec<f64> = row.split(',').map(|x| x.parse().unwrap()).collect();
        let [sigma, q, k, count, delta, low, high] = v[..] else { panic!("{row}") };
        let bounds = at(users(sigma, q, k as u64), count as u64, delta);
        assert!(
            bounds.lower <= high * (1.0 + 1e-9) && low * (1.0 - 1e-9) <= bounds.upper,
            "{row}: {bounds:?}"
        );
        assert!(bounds.gap() <= 1e-3 * bounds.upper.max(1.0), "{row}: {bounds:?}");
        // The other's upper bound is close to its estimate of the truth.
        assert!((bounds.estimate - high).abs() <= 5e-4 * high.max(1.0), "{row}: {bounds:?}");
    }
}

struct Draws(ChaCha20Rng);

impl Draws {
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A vector of the plane with a norm of at most 1.
    fn vector(&mut self) -> [f64; 2] {
        let (norm, angle) = (self.uniform().sqrt(), std::f64::consts::TAU * self.uniform());
        [norm * angle.cos(), norm * angle.sin()]
    }
}

/// The statement that is proved: no user does worse than one whose examples are all the same.
/// Hockey-stick divergences of random users with vectors in the plane, by quadrature; fewer or
/// shorter or diverging vectors never exceed the certified bound, and equal ones attain it.
#[test]
fn equal_vectors_are_the_worst_case() {
    let mut draws = Draws(ChaCha20Rng::seed_from_u64(11));
    let (q, k) = (0.3, 3_usize);
    let step = 0.05;
    let points: Vec<f64> = (-170..=170).map(|i| step * f64::from(i)).collect();
    for user in 0..12 {
        let vectors: Vec<[f64; 2]> = match user {
            0 => vec![[1.0, 0.0]; k],
            1 => vec![[1.0, 0.0]; k - 1],
            2 => vec![[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]],
            _ => (0..k).map(|_| draws.vector()).collect(),
        };
        // Every set of examples, with its probability and the sum of its vectors.
        let sets: Vec<(f64, [f64; 2])> = (0..1_u32 << vectors.len())
            .map(|set| {
                let is_in = |i: usize| set >> i & 1 == 1;
                let mut weight = 1.0;
                let mut sum = [0.0; 2];
                for (i, vector) in vectors.iter().enumerate() {
                    weight *= if is_in(i) { q } else { 1.0 - q };
                    if is_in(i) {
                        sum = [sum[0] + vector[0], sum[1] + vector[1]];
                    }
                }
                (weight, sum)
            })
            .collect();
        for e in [0.2, 1.0, 2.0] {
            let mut sums = [0.0; 2];
            for &x in &points {
                for &y in &points {
                    let of = |(w, v): &(f64, [f64; 2])| w * density(x - v[0]) * density(y - v[1]);
                    let both = [sets.iter().map(of).sum(), density(x) * density(y)];
                    let [c, d] = excess(both, e);
                    sums = [sums[0] + step * step * c, sums[1] + step * step * d];
                }
            }
            let bounds =
                delta(&steps(users(1.0, q, k as u64), 1), e, Accountant::Auto).unwrap().delta;
            let truth = sums[0].max(sums[1]);
            assert!(truth <= bounds.upper * (1.0 + 2e-3) + 1e-9, "user {user}: {truth} {bounds:?}");
            let is_attained = truth >= bounds.lower * (1.0 - 2e-3) - 1e-9;
            assert_eq!(is_attained, user == 0, "user {user}: {truth} {bounds:?}");
        }
    }
}

/// The mechanism itself, run many times, as in `sampling.rs`.
#[test]
fn the_experiment_does_not_contradict_the_curve() {
    let (sigma, q, k, count) = (1.5, 0.1, 6_u64, 5);
    let weights = binomial(k, q);
    let mut draws = Draws(ChaCha20Rng::seed_from_u64(20_261_119));
    let loss_of = |output: f64| -> f64 {
        let of = |(i, w): (usize, &f64)| {
            let i = i as f64;
            w * (i * (2.0 * output - i) / (2.0 * sigma * sigma)).exp()
        };
        weights.iter().enumerate().map(of).sum::<f64>().ln()
    };
    let (trials, epsilons) = (100_000, [0.2, 1.0, 2.0, 4.0]);
    let error = 4.0 * (0.5 / f64::from(trials)).sqrt();
    let mut seen = [[0_u32; 2]; 4];
    for _ in 0..trials {
        for (side, present) in [true, false].into_iter().enumerate() {
            let mut loss = 0.0;
            for _ in 0..count {
                let sampled = (0..k).filter(|_| draws.uniform() < q).count();
                let signal = if present { sampled as f64 } else { 0.0 };
                loss += loss_of(signal + sigma * draws.normal());
            }
            let (loss, u) = (if present { loss } else { -loss }, draws.uniform());
            for (count, e) in seen.iter_mut().zip(epsilons) {
                count[side] += u32::from(u < 1.0 - (e - loss).exp());
            }
        }
    }
    for (seen, e) in seen.iter().zip(epsilons) {
        let worse = f64::from(seen[0].max(seen[1])) / f64::from(trials);
        let bounds = delta(&steps(users(sigma, q, k), count), e, Accountant::Prv).unwrap().delta;
        assert!(
            (bounds.lower - error..=bounds.upper + error).contains(&worse),
            "δ({e}) was {worse:.4} in the experiment, certified {bounds:?}"
        );
    }
}

/// ε of generic group privacy: an (ε₁, δ₁) for one example is (kε₁, δ₁(e^{kε₁} − 1)/(e^{ε₁} − 1))
/// for k of them.
fn by_group_privacy(sigma: f64, q: f64, k: u64, count: u64, target: f64) -> f64 {
    let one = Event::PoissonGaussian { noise_multiplier: sigma, sampling_rate: q };
    let meets = |e: f64| {
        let of_one = delta(&steps(one, count), e, Accountant::Auto).unwrap().delta.lower;
        of_one * (k as f64 * e).exp_m1() / e.exp_m1() <= target
    };
    let (mut low, mut high) = (0.01, 20.0);
    while high - low > 0.01 {
        let middle = 0.5 * (low + high);
        if meets(middle) { high = middle } else { low = middle }
    }
    k as f64 * low
}

/// The tight ε lies between that of one example and those of weaker arguments.
#[test]
fn it_is_tighter_than_group_privacy() {
    let (q, count, target) = (0.01, 1_000, 1e-6);
    for (sigma, k) in [(1.0, 2), (2.0, 4), (4.0, 8), (8.0, 16)] {
        let tight = at(users(sigma, q, k), count, target);
        let one = at(users(sigma, q, 1), count, target);
        assert!(one.upper < tight.lower, "k={k}: {one:?} {tight:?}");
        let group = by_group_privacy(sigma, q, k, count, target);
        // A user with any sampled example counted as one with all examples sampled.
        let sampling_rate = -(k as f64 * (-q).ln_1p()).exp_m1();
        let noise_multiplier = sigma / k as f64;
        let all = at(Event::PoissonGaussian { noise_multiplier, sampling_rate }, count, target);
        println!(
            "σ={sigma} k={k}: ε = {:.4}, one example {:.4}, group privacy {group:.2}, all at once \
             {:.4}",
            tight.upper, one.upper, all.upper
        );
        assert!(tight.upper < all.lower && tight.upper < group, "{tight:?} {all:?} {group}");
    }
}

#[test]
fn more_examples_more_sampling_or_less_noise_cost_more() {
    let epsilon = |sigma: f64, q: f64, k: u64| at(users(sigma, q, k), 200, 1e-6);
    for (sigma, q, k) in [(1.0, 0.01, 3), (4.0, 0.05, 16), (30.0, 0.3, 40)] {
        let here = epsilon(sigma, q, k);
        for more in
            [epsilon(sigma, q, k + 1), epsilon(sigma, 1.1 * q, k), epsilon(0.9 * sigma, q, k)]
        {
            assert!(more.lower > here.upper, "σ={sigma} q={q} k={k}: {here:?} {more:?}");
        }
        // Twice the clipping norm is half the noise.
        let doubled = epsilon(0.5 * sigma, q, k);
        assert!(doubled.lower > 1.5 * here.upper, "{here:?} {doubled:?}");
    }
}

/// Answers in the whole range, without a panic: bounds in order, or a typed error.
#[test]
fn every_setting_gets_a_sound_answer_or_a_typed_error() {
    let mut draws = Draws(ChaCha20Rng::seed_from_u64(3));
    let mut answered = 0;
    for i in 0..60 {
        let k = 256_f64.powf(draws.uniform()).round() as u64;
        let sigma = 0.05 * (2e4 * k as f64).powf(draws.uniform());
        let event = users(sigma, 1e-7_f64.powf(draws.uniform()), k);
        let count = 1e5_f64.powf(draws.uniform()) as u64;
        let target = 0.5 * 2e-12_f64.powf(draws.uniform());
        match epsilon(&steps(event, count), target, Accountant::Auto) {
            Ok(answer) => {
                let e = answer.epsilon;
                assert!(e.upper.is_finite() && 0.0 <= e.lower && e.lower <= e.upper, "{i}: {e:?}");
                answered += 1;
            }
            Err(Error::LossTooLarge { .. } | Error::GridTooLarge { .. }) => {}
            Err(error) => panic!("{i}: {error} for {event:?}"),
        }
    }
    assert!(answered > 30, "{answered}");
}

#[test]
fn noise_is_calibrated_to_the_user() {
    let passes = Passes { examples_per_user: Some(8), ..Passes::over(20_000, 200, 3).unwrap() };
    let schedule = shaped(Shape::Uniform, &passes, 1.0, 2.0, 1e-6).unwrap();
    let upper = schedule.answer.epsilon.upper;
    assert!(upper <= 2.0 && upper > 1.99, "{upper}");
    let of_one = Passes { examples_per_user: None, ..passes };
    let less = shaped(Shape::Uniform, &of_one, 1.0, 2.0, 1e-6).unwrap();
    assert!(schedule.noise_multipliers[0] > 2.0 * less.noise_multipliers[0]);
    assert!(schedule.noise_multipliers[0] < 8.0 * less.noise_multipliers[0]);
}

#[test]
fn what_is_not_proved_is_refused() {
    let event = users(2.0, 0.05, 4);
    let replaced = Composition::new(Adjacency::ReplaceOne).with(event, 10);
    let runs = NumberOfRuns::Poisson { mean: 3.0 };
    let selection = Event::Selection { runs, noise_multiplier: 2.0, sampling_rate: 0.1, steps: 3 };
    let selected = steps(event, 10).with(selection, 1);
    for (composition, accountant, what) in [
        (&replaced, Accountant::Auto, "replace-one adjacency"),
        (&steps(event, 10), Accountant::Rdp, "the rdp accountant"),
        (&steps(event, 10), Accountant::Gdp, "the gdp accountant"),
        (&selected, Accountant::Auto, "Rényi DP"),
    ] {
        let error = epsilon(composition, 1e-6, accountant).unwrap_err().to_string();
        assert!(error.starts_with(what) && error.contains("one by one"), "{error}");
        let error = delta(composition, 1.0, accountant).unwrap_err().to_string();
        assert!(error.starts_with(what), "{error}");
    }
    let error = certify(&steps(event, 10), Target::Delta(1e-6)).unwrap_err().to_string();
    assert!(error.starts_with("no certificate can be made"), "{error}");
    for (event, about) in [
        (users(2.0, 0.05, 0), "number of examples per user is 0"),
        (users(2.0, 0.05, 257), "number of examples per user is 257"),
        (users(2.0, 1.5, 4), "sampling rate is 1.5"),
        (users(2.0, f64::NAN, 4), "sampling rate is NaN"),
        (users(0.01, 0.1, 4), "noise multiplier is 0.01"),
        (users(5e3, 0.1, 4), "noise multiplier is 5000"),
        (users(f64::NAN, 0.1, 4), "noise multiplier is NaN"),
    ] {
        let error = event.validate().unwrap_err().to_string();
        assert!(error.contains(about), "{error}");
    }
    assert!(users(5e3, 0.1, 8).validate().is_ok());
}

#[test]
fn entries_are_compared_in_all_parameters() {
    let event = users(2.0, 0.05, 4);
    for less in [users(2.1, 0.05, 4), users(2.0, 0.04, 4), users(2.0, 0.05, 3), event] {
        assert!(less.no_worse_than(&event));
    }
    for more in [users(1.9, 0.05, 4), users(2.0, 0.06, 4), users(2.0, 0.05, 5)] {
        assert!(!more.no_worse_than(&event));
    }
    let one = Event::PoissonGaussian { noise_multiplier: 2.0, sampling_rate: 0.05 };
    assert!(!event.no_worse_than(&one) && !one.no_worse_than(&event));
    let text = serde_json::to_string(&event).unwrap();
    let expected = r#"{"kind":"mixture-of-gaussians","noise_multiplier":2.0,"sampling_rate":0.05,"examples_per_user":4}"#;
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
}
