//! Every method on several ranks equals the method in one process: the same ledger, the same
//! weights up to the rounding of sums, and reproducible bits.

use super::Workshop;
use undertone::Plan;

const FULL: &str = "tuning = \"full\"";
const LORA: &str = "tuning = { lora = { rank = 2 } }";

/// Relative ℓ2 distance of two vectors.
pub fn apart(left: &[f32], right: &[f32]) -> f64 {
    assert_eq!(left.len(), right.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let distance: f64 = left.iter().zip(right).map(|(x, y)| square(x - y)).sum();
    (distance / left.iter().map(|&x| square(x)).sum::<f64>()).sqrt()
}

/// Trains on 1, 2 and 4 ranks, and on 2 again.
fn compare(workshop: &Workshop, name: &str, plan: &Plan) {
    let out = |ranks: &str| format!("{name}-{ranks}");
    let single = workshop.train(plan, &out("1"), 1);
    for ranks in [2, 4] {
        let run = out(&ranks.to_string());
        let summary = workshop.train(plan, &run, ranks);
        let epsilon = |summary: &undertone::run::Summary| {
            summary.guarantee.as_ref().map(|guarantee| guarantee.epsilon.upper.to_bits())
        };
        assert_eq!(epsilon(&single), epsilon(&summary), "{name}: ε");
        assert_eq!(single.resolved, summary.resolved, "{name}: units, steps and noise");
        assert_eq!(single.steps, summary.steps);
        let (first, events) = (workshop.events(&out("1")), workshop.events(&run));
        assert_eq!(first, events, "{name}: the ledger");
        let apart = apart(&workshop.weights(&out("1")), &workshop.weights(&run));
        assert!(apart <= 1e-6, "{name}: the weights of {ranks} ranks are {apart:.1e} away");
    }
    workshop.train(plan, &out("again"), 2);
    assert!(workshop.weights(&out("2")) == workshop.weights(&out("again")), "{name}: other bits");
}

/// 54 steps, or 18 for methods whose weights follow what was released: rounding differences then
/// grow from step to step, as they do with micro-batches of a different size.
fn compare_all(methods: &[(&str, &str)], tunings: &[(&str, &str)], data: &str) {
    let workshop = Workshop::new();
    for (name, privacy) in methods {
        let follows = ["adaclip", "anadp"].contains(name);
        let training = format!("epochs = {}\noptimizer = \"sgd\"", if follows { 3 } else { 9 });
        for (kind, tuning) in tunings {
            let plan = workshop.plan(tuning, privacy, data, &training);
            compare(&workshop, &format!("{name}-{kind}"), &plan);
        }
    }
}

const BUDGET: &str = "epsilon = 8.0\ndelta = 1e-3\n";

#[test]
fn gradient_methods_are_the_same_on_several_ranks() {
    let private = |more: &str| format!("{BUDGET}{more}");
    let adaptive = "{ adaptive = { quantile = 0.5, initial = 0.5, rate = 0.2 } }";
    let all = [
        ("dp-sgd", private("method = \"dp-sgd\"\nclip = 0.5")),
        ("adaptive", private(&format!("method = \"dp-sgd\"\nclip = {adaptive}"))),
        ("adaclip", private("method = \"adaclip\"")),
        ("anadp", private("method = \"anadp\"")),
        ("ewpba", private("method = \"dp-sgd\"\nschedule = \"ewpba\"")),
    ];
    let all: Vec<(&str, &str)> = all.iter().map(|(name, text)| (*name, text.as_str())).collect();
    compare_all(&all, &[("full", FULL)], "");
    // The other methods share this code.
    compare_all(&all[..1], &[("lora", LORA)], "");
    compare_all(&all[3..4], &[("lora", LORA)], "");
}

#[test]
fn rap_ft_and_non_private_training_are_the_same_on_several_ranks() {
    let rap_ft = format!("{BUDGET}method = \"rap-ft\"");
    compare_all(&[("rap-ft", &rap_ft)], &[("lora", LORA)], "");
    compare_all(&[("none", "method = \"none\"")], &[("full", FULL), ("lora", LORA)], "");
}

/// Each rank averages the weights that it updates; metrics use the average of all.
#[test]
fn averaged_weights_are_the_same_on_several_ranks() {
    let workshop = Workshop::new();
    let privacy = format!("{BUDGET}method = \"dp-sgd\"\nclip = 0.5");
    for (name, average) in [("ema", "{ ema = 0.9 }"), ("last", "{ last = 0.5 }")] {
        let training = format!("epochs = 3\noptimizer = \"sgd\"\naverage = {average}");
        compare(&workshop, name, &workshop.plan(FULL, &privacy, "", &training));
    }
}

/// One rank clips a user's gradient as a whole.
#[test]
fn users_are_the_same_on_several_ranks() {
    let privacy = format!("{BUDGET}method = \"dp-sgd\"\nclip = 0.5");
    compare_all(&[("users", &privacy)], &[("lora", LORA)], "author = \"who\"");
}

#[test]
fn local_methods_are_the_same_on_several_ranks() {
    let path = "schedule = \"ewpba\"\n[privacy.local]\ndims = [4]\nrelease = \"path\"\n";
    let methods = [("dp-forward", ""), ("ew-ft", path), ("mvg", "[privacy.mvg]\nwidth = 20\n")];
    let all = methods.map(|(name, more)| (name, format!("{BUDGET}method = \"{name}\"\n{more}")));
    let all: Vec<(&str, &str)> = all.iter().map(|(name, text)| (*name, text.as_str())).collect();
    compare_all(&all, &[("full", FULL)], "");
}
