//! Tests of `sample.rs`.

use super::*;
use undertone_run::{ClassWeight, RunFile};

const RUN: &str = "[model]\npath = \"m\"\n[data]\ntask = \"completion\"\ntrain = \"t.csv\"\n\
    prompt = \"{topic}: \"\ncompletion = \"text\"\n[privacy]\nmethod = \"none\"\n[training]\n\
    epochs = 1\nbatch = 1\nlearning_rate = 1e-3\n[synthesis]\nrows = 23\ncodes = { topic = \
    [\"a\", \"b\"] }\n";

fn statistics() -> Statistics {
    let class = |name: &str, weight| ClassWeight { values: vec![name.to_owned()], weight };
    Statistics {
        format: Summary::FORMAT,
        noise_std: Some(1.0),
        codes: vec!["topic".to_owned()],
        classes: vec![class("a", 30.0), class("b", 10.0)],
        lengths: vec![40.0, 0.0],
        tokens_per_bin: 8,
        sampling_seed: 7,
    }
}

/// A text depends only on its number and class; every third text is blank.
fn text(attempt: u64, class: usize) -> String {
    if attempt % 3 == 2 { String::new() } else { format!("text {attempt} of {class}") }
}

fn texts(first: u64, classes: &[usize]) -> Vec<String> {
    (first..).zip(classes).map(|(attempt, &class)| text(attempt, class)).collect()
}

/// Sampling that is killed after any round, with any part of a line written, gives the same result
/// as uninterrupted sampling: no row is sampled twice and none is lost.
#[test]
fn resumed_sampling_gives_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let file = RunFile::parse(RUN, &[]).unwrap();
    let (statistics, section) = (statistics(), file.synthesis.clone().unwrap());
    let (whole, broken) = (folder.path().join("a/journal"), folder.path().join("b/journal"));
    let of_rounds = |round, journal, rows| -> (Result<Sampled>, u64) {
        let data = &file.data;
        let sampling =
            Sampling { statistics: &statistics, section: &section, data, round, journal };
        let mut written = 0;
        let sampled = sample(
            &sampling,
            &mut |first, classes| {
                if written >= rows {
                    return Err(Error::plan("killed"));
                }
                written += classes.len() as u64;
                Ok(texts(first, classes))
            },
            &mut |_| (),
        );
        (sampled, written)
    };
    let sampling = |journal, rows| of_rounds(4, journal, rows);
    let (expected, all) = sampling(&whole, u64::MAX);
    let expected = expected.unwrap();
    assert_eq!((expected.rows_by_class.as_slice(), expected.attempts), (&[17, 6][..], all));
    assert_eq!(expected.rows[0], ["text 0 of 0", "a"]);
    assert_eq!(expected.rejected["blank"], all - 23);
    let complete = std::fs::read(&whole).unwrap();
    let first_line = complete.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    for kept in (first_line..complete.len()).step_by(13) {
        std::fs::create_dir_all(broken.parent().unwrap()).unwrap();
        std::fs::write(&broken, &complete[..kept]).unwrap();
        let (stopped, _) = sampling(&broken, 4);
        let _ = stopped;
        // On another device, rounds have another size; the journal keeps its own.
        let (rows, written) = of_rounds(if kept % 2 == 0 { 4 } else { 100 }, &broken, u64::MAX);
        assert_eq!(rows.unwrap(), expected, "{kept} bytes");
        assert!(written < all || kept < first_line + 40);
        assert!(std::fs::read(&broken).unwrap() == complete, "{kept} bytes");
    }
    // A finished journal is only read.
    assert_eq!(sampling(&whole, 0).0.unwrap(), expected);
    let other = SynthesisSection { temperature: 0.5, ..section.clone() };
    let data = &file.data;
    let other =
        Sampling { statistics: &statistics, section: &other, data, round: 4, journal: &whole };
    let refused = sample(&other, &mut |_, _| unreachable!(), &mut |_| ()).unwrap_err();
    assert!(refused.to_string().contains("other settings"), "{refused}");
}

#[test]
fn a_model_that_writes_no_rows_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = RunFile::parse(RUN, &[]).unwrap();
    let (statistics, section) = (statistics(), file.synthesis.clone().unwrap());
    let journal = &folder.path().join("journal");
    let sampling = Sampling {
        statistics: &statistics,
        section: &section,
        data: &file.data,
        round: 4,
        journal,
    };
    let mut blank = |_: u64, classes: &[usize]| Ok(vec![" ".to_owned(); classes.len()]);
    let error = sample(&sampling, &mut blank, &mut |_| ()).unwrap_err().to_string();
    assert!(
        error.contains("only 0 of 1000 sampled texts could be parsed as rows (1000 blank)"),
        "{error}"
    );
}

/// Any first part of the rows has the classes in the shares of the quotas.
#[test]
fn classes_are_interleaved() {
    let quotas = [147, 88, 65];
    let classes = next_round(&quotas, &[0, 0, 0], 300);
    assert_eq!(classes.len(), 300);
    for first in 1..=300 {
        for (class, quota) in quotas.iter().enumerate() {
            let count = classes[..first].iter().filter(|&&own| own == class).count() as f64;
            let share = first as f64 * *quota as f64 / 300.0;
            assert!((count - share).abs() <= 2.0, "{count} of class {class} in {first} rows");
        }
    }
    let mut by_rounds = Vec::new();
    let mut done = [0; 3];
    while by_rounds.len() < 300 {
        for class in next_round(&quotas, &done, 7) {
            done[class] += 1;
            by_rounds.push(class);
        }
    }
    assert_eq!(by_rounds, classes, "the size of rounds does not matter if no text is rejected");
}
