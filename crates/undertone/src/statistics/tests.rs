use super::*;
use crate::data::Format;
use undertone_accounting::ledger::Ledger;
use undertone_accounting::{Accountant, Composition, epsilon};

fn columns(author: bool) -> Columns {
    Columns {
        text: vec!["text".to_owned()],
        label: Some("label".to_owned()),
        author: author.then(|| "who".to_owned()),
    }
}

fn request(unit: Unit, statistics: &[Statistic]) -> Request {
    let has_vocabulary = statistics.contains(&Statistic::Vocabulary);
    Request {
        unit,
        author: (unit == Unit::User).then(|| "who".to_owned()),
        lengths_in: LengthUnit::Bytes,
        labels: vec!["a".to_owned(), "b".to_owned()],
        statistics: statistics.to_vec(),
        words_per_unit: 20,
        budget: split(1.0, 1e-6, statistics.len(), has_vocabulary).unwrap(),
    }
}

const ALL: [Statistic; 6] = [
    Statistic::Units,
    Statistic::RowsPerUnit,
    Statistic::Labels,
    Statistic::Lengths,
    Statistic::Quality,
    Statistic::Vocabulary,
];

fn collected(name: &str, bytes: &str, author: bool) -> Collected {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let format = Format::from_extension(&path).unwrap();
    let request = request(if author { Unit::User } else { Unit::Example }, &ALL);
    collect(&path, format, &columns(author), &request, &|text| text.len() as u64, 7).unwrap()
}

/// All sums as one vector for each statistic, in units.
fn vectors(collected: &Collected, words: &[String]) -> Vec<Vec<f64>> {
    let scale = |sums: &[i64]| -> Vec<f64> {
        sums.iter().map(|sum| *sum as f64 / contribution::ONE as f64).collect()
    };
    let of_word = |word: &String| collected.words.get(word).copied().unwrap_or(0);
    let words: Vec<i64> = words.iter().map(of_word).collect();
    vec![
        scale(&[collected.units]),
        scale(&collected.row_counts),
        scale(&collected.labels),
        scale(&collected.lengths),
        scale(&collected.quality),
        scale(&words),
    ]
}

/// The module's statement: whatever a unit's rows are, adding it moves no sum by more than 1.
/// Without the bounds, the unit with 500 long rows would move sums by hundreds.
#[test]
fn adding_a_unit_moves_every_sum_by_at_most_1() {
    let others = "who,text,label\nx,the cat,a\ny,,b\nx,a dog sat,c\n";
    let long = "word ".repeat(300);
    let many: String =
        (0..500).map(|i| format!("z,{long} w{i},{}\n", ["a", "b", "q"][i % 3])).collect();
    for unit in ["z,the cat,a\n", "z,,\n", "z,short\n", many.as_str()] {
        for author in [true, false] {
            // Without an author column, the unit is one row; with one, it is all rows of the
            // author.
            let unit = if author { unit } else { unit.lines().next().unwrap_or_default() };
            let with = collected("a.csv", &format!("{others}{unit}\n"), author);
            let without = collected("a.csv", others, author);
            let words: Vec<String> = with.words.keys().cloned().collect();
            let all = vectors(&with, &words).into_iter().zip(vectors(&without, &words));
            for (i, (with, without)) in all.enumerate() {
                let moved: f64 = with.iter().zip(&without).map(|(a, b)| (a - b).powi(2)).sum();
                assert!(moved <= 1.0 + 1e-12, "{i}, author {author}: {moved}");
            }
        }
    }
}

#[test]
fn sums_are_those_of_the_rows() {
    let rows = "who,text,label\nx,abc,a\nx,abcd,b\ny,,a\ny,abc,zzz\nx,torn\n";
    let of = |author| collected("a.csv", rows, author);
    let unit = contribution::ONE;
    let by_row = of(false);
    assert_eq!((by_row.units, &by_row.row_counts[..2]), (5 * unit, &[5 * unit, 0][..]));
    assert_eq!(by_row.labels, [2 * unit, unit, unit]);
    assert_eq!(by_row.quality, [3 * unit, unit, unit]);
    assert_eq!((by_row.lengths[0], by_row.lengths[3], by_row.lengths[4]), (unit, 2 * unit, unit));
    // A torn row has no reliable author.
    let by_author = of(true);
    assert_eq!((by_author.units, &by_author.row_counts[..2]), (2 * unit, &[0, 2 * unit][..]));
    assert_eq!(by_author.labels, [unit, unit / 2, unit / 2]);
    assert_eq!(by_author.quality, [3 * unit / 2, unit / 2, 0]);
    let json = "[{\"text\": \"abc\",\n \"label\": \"a\", \"who\": 1}, {\"text\": \"\",\n\
                \"label\": \"b\"}, {\"label\": \"a\"}]";
    let array = collected("a.json", json, false);
    assert_eq!((array.units, &array.quality[..]), (3 * unit, &[unit, unit, unit][..]));
    let lines = "{\"text\": \"abc\", \"label\": \"a\"}\n{\"text\"\n";
    assert_eq!(collected("a.jsonl", lines, false).quality, [unit, 0, unit]);
}

fn released(path: &std::path::Path, request: &Request, seed: u64) -> (Statistics, Ledger) {
    let rows: String = (0..4000)
        .map(|i| format!("{},the cat {i},{}\n", i % 1000, ["a", "b"][i % 4 / 3]))
        .collect();
    let collected = collected("a.csv", &format!("who,text,label\n{rows}"), true);
    let terms = request.terms("id".to_owned());
    let file = path.join(format!("ledger-{seed}.jsonl"));
    let mut ledger = RunLedger::alone(Ledger::create(&file, terms).unwrap(), &file, 1e-6);
    let mut noise = NoiseSource::from_seed(seed);
    let statistics = request.release(&collected, &mut ledger, &mut noise).unwrap();
    drop(ledger);
    (statistics, Ledger::read(&file).unwrap())
}

#[test]
fn every_release_is_in_the_ledger_and_all_keep_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let request = request(Unit::User, &ALL);
    let (statistics, ledger) = released(folder.path(), &request, 1);
    assert_eq!(ledger.entries(), 7);
    assert!(ledger.guarantee(1e-6).unwrap().epsilon.upper <= 1.0);
    let near = |value: f64, truth: f64, spread: f64| (value - truth).abs() < spread;
    let std = statistics.noise_std;
    assert!(near(statistics.units.unwrap(), 1000.0, 6.0 * std), "{statistics:?}");
    let rows = statistics.rows_per_unit.as_ref().unwrap();
    assert_eq!((rows.median, rows.p90.is_some()), (Some(4), true));
    let labels = statistics.labels.as_ref().unwrap();
    assert_eq!(labels.len(), 3);
    assert!(near(labels[0].share, 0.75, 0.1) && labels[2].label.is_none(), "{labels:?}");
    assert_eq!(statistics.length.as_ref().unwrap().median, Some(15));
    assert!(statistics.quality.as_ref().unwrap().usable > 0.9);
    let words: Vec<&str> =
        statistics.vocabulary.as_ref().unwrap().iter().map(|word| word.word.as_str()).collect();
    assert!(words.len() == 2 && words.contains(&"cat") && words.contains(&"the"), "{words:?}");
    let json = serde_json::to_string(&statistics).unwrap();
    assert_eq!(Statistics::parse(&json).unwrap(), statistics);
    assert!(Statistics::parse("{}").is_err());
}

/// The noise that is actually added has the std that the ledger states: distinguishing 1,000 from
/// 1,001 units succeeds no more often than the guarantee allows.
#[test]
fn releases_have_the_noise_of_the_ledger() {
    let request = request(Unit::Example, &[Statistic::Units]);
    let sigma = request.budget.noise_multiplier;
    let alone = Composition::new(Adjacency::AddRemove).with(request.event(), 1);
    assert!(epsilon(&alone, 1e-6, Accountant::Auto).unwrap().epsilon.upper <= 1.0);
    let folder = tempfile::tempdir().unwrap();
    let mut noise = NoiseSource::from_seed(9);
    let collected = Collected { units: 1000 * contribution::ONE, ..Collected::default() };
    let trials = 400;
    let mut squares = 0.0;
    for trial in 0..trials {
        let file = folder.path().join(format!("{trial}.jsonl"));
        let terms = request.terms(trial.to_string());
        let mut ledger = RunLedger::alone(Ledger::create(&file, terms).unwrap(), &file, 1e-6);
        let statistics = request.release(&collected, &mut ledger, &mut noise).unwrap();
        squares += (statistics.units.unwrap() - 1000.0).powi(2);
    }
    let ratio = squares / f64::from(trials) / sigma.powi(2);
    assert!((ratio - 1.0).abs() < 0.4, "{ratio}");
}

#[test]
fn nothing_is_released_that_is_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.jsonl");
    let mut costlier = request(Unit::Example, &[Statistic::Units]);
    let terms = costlier.terms(String::new());
    costlier.budget.noise_multiplier *= 0.5;
    let mut ledger = RunLedger::alone(Ledger::create(&file, terms).unwrap(), &file, 1e-6);
    let mut noise = NoiseSource::from_seed(9);
    assert!(costlier.release(&Collected::default(), &mut ledger, &mut noise).is_err());
}
