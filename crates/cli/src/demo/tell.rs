//! The demo's output: one screen.

use super::attack::Attacked;
use super::corpus::{Patient, TOPICS};
use super::synthetic::SyntheticLetters;
use super::{Demo, Job, RUNS, Results};
use crate::output::{line, table, up};
use undertone::evaluate::Metrics;
use undertone::train::Summary;

/// Number of codes shown.
const SHOWN: usize = 6;
/// Characters shown of a letter.
const WIDTH: usize = 70;

/// Accuracy on the validation letters, for classifiers.
pub fn accuracy(summary: &Summary) -> Option<f64> {
    match &summary.metrics.validation {
        Some(Metrics::Classification(scores)) => Some(scores.accuracy),
        _ => None,
    }
}

/// The items that belong to the runs of a job, the non-private run first.
fn of<T>(job: Job, each: &[T]) -> Vec<&T> {
    RUNS.iter().zip(each).filter(|(run, _)| run.job == job).map(|(_, it)| it).collect()
}

/// Prints the results.
pub fn print(demo: &Demo, results: &Results) {
    let Results { summaries, patients, attacked, synthetic, report, seconds } = results;
    line(format_args!(
        "\nA hospital has {} letters. {} patients write often and mention the code of their file \
         each time.\n\n1. A model that sorts letters into {} topics, tested on new letters:\n",
        demo.letters(),
        patients.len(),
        TOPICS.len()
    ));
    let rows: Vec<Vec<String>> = RUNS
        .iter()
        .zip(summaries)
        .filter(|(run, _)| run.job == Job::Sort)
        .map(|(run, summary)| row(run.name, summary))
        .collect();
    table(&["run", "accuracy", "ε, proved", "δ", "noise multiplier"], &rows);
    if demo.quick {
        print_membership(&of(Job::Sort, attacked));
    } else {
        print_writers(patients, &of(Job::Write, attacked));
    }
    if let Some(synthetic) = synthetic {
        print_synthetic(synthetic, &of(Job::Sort, summaries));
    }
    line(format_args!(
        "\nThe guarantee covers everything that one patient wrote, against anyone who sees every \
         update and the final weights.\nReport: {}. Letters, run files and runs are in the same \
         folder; the demo took {seconds:.0} s.",
        report.display(),
    ));
    line(format_args!(
        "Try: undertone predict --model {0}/model --adapter {0}/sort-epsilon-8/adapter --data \
         {0}/validation.tsv --out said.jsonl",
        demo.out.display()
    ));
}

/// What the language models reveal.
fn print_writers(patients: &[Patient], written: &[&Attacked]) {
    line(
        "\n2. A model that writes like the patients. How does it continue \"my name is … and the \
         code of my file is\"?\n",
    );
    let rows = patients.iter().enumerate().take(SHOWN).map(|(i, patient)| {
        let said = written.iter().map(|attacked| {
            let said = &attacked.said[i];
            let mark = if *said == patient.code { " ← given away" } else { "" };
            // The codes are aligned in columns.
            let width = if attacked.given_away(patients) > 0 { 24 } else { 0 };
            format!("{:width$}", format!("{said}{mark}"))
        });
        [patient.name.clone(), patient.code.clone()].into_iter().chain(said).collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    table(&["patient", "code", "non-private", "at ε = 8"], &rows);
    line("");
    let mut attacks = vec![vec!["codes given away".to_owned()]];
    attacks.push(vec![format!("exposure of a code, of {:.1} bits", most(written))]);
    for attacked in written {
        attacks[0].push(format!("{} of {}", attacked.given_away(patients), patients.len()));
        attacks[1].push(format!("{:.1}", mean_bits(attacked)));
    }
    attacks.push(membership(written));
    table(&["attack", "non-private", "at ε = 8"], &attacks);
}

/// Synthetic letters beside real ones, and what a classifier learns from them.
fn print_synthetic(synthetic: &SyntheticLetters, sorted: &[&Summary]) {
    line(format_args!(
        "\n3. {} synthetic letters at ε ≤ {}, which may be shared:\n",
        synthetic.letters,
        up(synthetic.epsilon)
    ));
    let cut = |text: &str| match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{} …", text[..end].trim_end()),
        None => text.to_owned(),
    };
    for pair in &synthetic.pairs {
        line(format_args!("  {:12}  real       {}", pair.topic, cut(&pair.real)));
        line(format_args!("  {:12}  synthetic  {}", "", cut(&pair.synthetic)));
    }
    line("");
    let percent = |accuracy: Option<f64>| {
        accuracy.map_or("–".to_owned(), |accuracy| format!("{:.1} %", 100.0 * accuracy))
    };
    let mut rows: Vec<Vec<String>> = ["real letters, non-private", "real letters, ε = 8"]
        .iter()
        .zip(sorted)
        .map(|(name, summary)| vec![(*name).to_owned(), percent(accuracy(summary))])
        .collect();
    rows.push(vec!["synthetic letters, ε = 8".to_owned(), percent(synthetic.accuracy)]);
    table(&["a classifier that learned from", "accuracy on new letters"], &rows);
}

/// What membership inference finds in the classifiers.
fn print_membership(sorted: &[&Attacked]) {
    line("\n2. Does the model reveal which letters it was trained on?\n");
    table(&["attack", "non-private", "at ε = 8"], &[membership(sorted)]);
    line(
        "\nThe demo without --quick also trains models that write, extracts patients' codes, and makes \
         synthetic letters.",
    );
}

/// The AUC of membership inference for each run.
fn membership(attacked: &[&Attacked]) -> Vec<String> {
    let title = "AUC: was a letter trained on? (0.5 is guessing)".to_owned();
    let each = attacked.iter().map(|it| format!("{:.3}", it.membership[1].auc.estimate));
    [title].into_iter().chain(each).collect()
}

fn row(name: &str, summary: &Summary) -> Vec<String> {
    let accuracy = accuracy(summary).map_or("–".to_owned(), |it| format!("{:.1} %", 100.0 * it));
    let (epsilon, delta) = match &summary.guarantee {
        Some(guarantee) => (up(guarantee.epsilon.upper), format!("{:e}", guarantee.delta)),
        None => ("none".to_owned(), "–".to_owned()),
    };
    let noise = summary.resolved.noise_multipliers.first();
    let noise = noise.map_or("–".to_owned(), |noise| format!("{noise:.3}"));
    vec![name.to_owned(), accuracy, epsilon, delta, noise]
}

fn mean_bits(attacked: &Attacked) -> f64 {
    let bits = attacked.exposure.iter().map(|exposure| exposure.bits);
    bits.sum::<f64>() / attacked.exposure.len().max(1) as f64
}

/// The largest possible exposure, that of a code that ranks first.
fn most(written: &[&Attacked]) -> f64 {
    written.iter().flat_map(|it| &it.exposure).map(|exposure| exposure.most).fold(0.0, f64::max)
}
