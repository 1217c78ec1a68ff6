//! The promises of the ledger: what it detects, refuses and counts.

use std::fs;
use std::path::{Path, PathBuf};
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::{
    Accountant, Adjacency, Composition, Error, Event, Mode, Part, Threat, Unit, epsilon,
};

const STEP: Event = Event::PoissonGaussian { noise_multiplier: 1.0, sampling_rate: 0.01 };

fn terms() -> Terms {
    Terms {
        id: String::new(),
        run: None,
        unit: Unit::Example,
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        mode: Mode::Proved,
        assumptions: vec!["Poisson sampling".to_owned()],
        announced: vec![Part { event: STEP, count: 100 }],
    }
}

/// A ledger of three entries, and its folder.
fn three_entries() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let mut ledger = Ledger::create(&path, terms()).unwrap();
    for count in [10, 20, 30] {
        ledger.append(STEP, count).unwrap();
    }
    (folder, path)
}

fn problem(path: &Path) -> String {
    match (Ledger::read(path), Ledger::open(path)) {
        (Err(Error::Ledger { problem, .. }), Err(Error::Ledger { .. })) => problem,
        (read, _) => panic!("should be refused: {read:?}"),
    }
}

#[test]
fn the_guarantee_is_computed_from_the_file() {
    let (_folder, path) = three_entries();
    let ledger = Ledger::read(&path).unwrap();
    assert_eq!(ledger.spent().releases(), 60);
    let guarantee = ledger.guarantee(1e-5).unwrap();
    let direct = epsilon(&Composition::dp_sgd(1.0, 0.01, 60), 1e-5, Accountant::Auto).unwrap();
    assert_eq!(guarantee.epsilon, direct.epsilon);
    assert_eq!(
        (guarantee.unit, guarantee.threat, guarantee.mode),
        (Unit::Example, Threat::Central, Mode::Proved)
    );
}

#[test]
fn its_history_ends_with_the_guarantee() {
    let (_folder, path) = three_entries();
    let whole = Ledger::read(&path).unwrap().guarantee(1e-5).unwrap();
    let history = Ledger::history(&path, 1e-5, 10).unwrap();
    assert_eq!(history.iter().map(|(entries, _)| *entries).collect::<Vec<_>>(), [1, 2, 3]);
    for ((_, guarantee), steps) in history.iter().zip([10, 30, 60]) {
        let direct =
            epsilon(&Composition::dp_sgd(1.0, 0.01, steps), 1e-5, Accountant::Auto).unwrap();
        assert_eq!(guarantee.epsilon, direct.epsilon);
    }
    assert_eq!(history[2].1, whole);
    let thinned = Ledger::history(&path, 1e-5, 2).unwrap();
    assert_eq!(thinned.iter().map(|(entries, _)| *entries).collect::<Vec<_>>(), [1, 2, 3]);
    let ends = Ledger::history(&path, 1e-5, 1).unwrap();
    assert_eq!(ends.iter().map(|(entries, _)| *entries).collect::<Vec<_>>(), [1, 3]);
    // A torn line at the end counts as spent.
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend(b"{\"spent\"");
    fs::write(&path, bytes).unwrap();
    let torn = Ledger::history(&path, 1e-5, 10).unwrap();
    assert!(torn.last().unwrap().1.epsilon.upper > whole.epsilon.upper);
}

#[test]
fn a_paper_run_is_never_stated_as_a_guarantee() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let mut ledger = Ledger::create(&path, Terms { mode: Mode::Paper, ..terms() }).unwrap();
    ledger.append(STEP, 10).unwrap();
    let said = ledger.guarantee(1e-5).unwrap().to_string();
    assert!(said.starts_with("no guarantee") && !said.contains("differential privacy"), "{said}");
}

#[test]
fn it_goes_on_after_being_closed() {
    let (_folder, path) = three_entries();
    let before = Ledger::read(&path).unwrap().hash().to_owned();
    Ledger::open(&path).unwrap().append(STEP, 40).unwrap();
    let ledger = Ledger::read(&path).unwrap();
    assert_eq!((ledger.entries(), ledger.spent().releases(), ledger.torn_lines()), (4, 100, 0));
    assert_ne!(ledger.hash(), before);
}

#[test]
fn an_edited_line_is_noticed() {
    let (_folder, path) = three_entries();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"count\":20", "\"count\":2")).unwrap();
    assert!(problem(&path).contains("line 3 was changed"));
}

#[test]
fn a_removed_an_inserted_and_a_swapped_line_are_noticed() {
    let (_folder, path) = three_entries();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for order in [vec![0, 1, 3], vec![0, 1, 1, 2, 3], vec![0, 2, 1, 3]] {
        let changed: String = order.iter().map(|&i| format!("{}\n", lines[i])).collect();
        fs::write(&path, changed).unwrap();
        problem(&path);
    }
}

#[test]
fn a_ledger_that_was_cut_off_is_noticed() {
    let (_folder, path) = three_entries();
    let text = fs::read_to_string(&path).unwrap();
    let kept: String = text.lines().take(3).map(|l| format!("{l}\n")).collect();
    fs::write(&path, kept).unwrap();
    assert!(problem(&path).contains("was cut off"));
    fs::write(&path, "").unwrap();
    problem(&path);
}

#[test]
fn another_ledger_in_its_place_is_noticed() {
    let (_folder, path) = three_entries();
    let (_other_folder, other) = three_entries();
    let mut ledger = Ledger::open(&other).unwrap();
    ledger.append(STEP, 1).unwrap();
    drop(ledger);
    let mut text = fs::read_to_string(&other).unwrap();
    text = text.replace("Poisson sampling", "something else");
    fs::write(&path, text).unwrap();
    problem(&path);
    fs::remove_file(path.with_extension("jsonl.head")).unwrap();
    assert!(
        problem(&path).contains("not that of an intact ledger")
            || problem(&path).contains("missing")
    );
}

/// A crash may leave any part of a line: whatever is left counts as the costliest entry.
#[test]
fn a_torn_line_is_counted_as_spent_wherever_it_was_torn() {
    let (folder, path) = three_entries();
    let whole = fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|&b| b == b'\n').unwrap() + 1;
    let head = path.with_extension("jsonl.head");
    // The crash came before the head was written, so the head still names the previous entry.
    let short = folder.path().join("short.jsonl");
    fs::write(&short, &whole[..last]).unwrap();
    let lines: Vec<&str> = std::str::from_utf8(&whole).unwrap().lines().collect();
    let hash = lines[2].rsplit("\"hash\":\"").next().unwrap().trim_end_matches("\"}");
    let earlier = format!("{{\"entries\":2,\"hash\":\"{hash}\"}}");
    for torn_at in last + 1..whole.len() - 1 {
        fs::write(&path, &whole[..torn_at]).unwrap();
        fs::write(&head, &earlier).unwrap();
        let seen = Ledger::read(&path).unwrap();
        assert_eq!(
            (seen.spent().releases(), seen.torn_lines()),
            (130, 1),
            "torn at byte {torn_at}"
        );
        let warning = seen.warning().unwrap();
        assert!(warning.contains("1 line of") && warning.contains("ε is higher"), "{warning}");
        let mut ledger = Ledger::open(&path).unwrap();
        assert_eq!(
            (ledger.spent().releases(), ledger.torn_lines()),
            (130, 1),
            "torn at byte {torn_at}"
        );
        ledger.append(STEP, 5).unwrap();
        drop(ledger);
        let again = Ledger::read(&path).unwrap();
        assert_eq!((again.spent().releases(), again.torn_lines(), again.entries()), (135, 1, 4));
    }
    // Only the line break is missing: nothing is lost.
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    fs::write(&head, &earlier).unwrap();
    assert_eq!(Ledger::open(&path).unwrap().spent().releases(), 60);
    // A block of zeros, as some file systems leave after a crash.
    let mut zeros = whole[..last].to_vec();
    zeros.extend([0; 64]);
    fs::write(&path, &zeros).unwrap();
    fs::write(&head, &earlier).unwrap();
    assert_eq!(Ledger::open(&path).unwrap().spent().releases(), 130);
}

#[test]
fn a_costlier_entry_than_announced_is_refused() {
    let (_folder, path) = three_entries();
    let mut ledger = Ledger::open(&path).unwrap();
    let quieter = Event::PoissonGaussian { noise_multiplier: 0.9, sampling_rate: 0.01 };
    let likelier = Event::PoissonGaussian { noise_multiplier: 1.0, sampling_rate: 0.02 };
    let other = Event::Gaussian { noise_multiplier: 5.0, sensitivity: 1.0 };
    for (event, count) in [(quieter, 1), (likelier, 1), (other, 1), (STEP, 101)] {
        assert!(ledger.append(event, count).is_err(), "{event:?} × {count}");
    }
    let cheaper = Event::PoissonGaussian { noise_multiplier: 2.0, sampling_rate: 0.001 };
    ledger.append(cheaper, 100).unwrap();
}

#[test]
fn one_writer_at_a_time() {
    let (_folder, path) = three_entries();
    let first = Ledger::open(&path).unwrap();
    let second = Ledger::open(&path);
    assert!(matches!(second, Err(Error::Ledger { problem, .. }) if problem.contains("in use")));
    assert_eq!(Ledger::read(&path).unwrap().entries(), 3, "readers are not excluded");
    drop(first);
    Ledger::open(&path).unwrap();
}

#[test]
fn an_existing_ledger_is_not_overwritten() {
    let (_folder, path) = three_entries();
    assert!(Ledger::create(&path, terms()).is_err());
    assert_eq!(Ledger::read(&path).unwrap().entries(), 3);
}

#[test]
fn numbers_survive_the_file_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let event =
        Event::PoissonGaussian { noise_multiplier: 0.1 + 0.2, sampling_rate: 32.0 / 67_349.0 };
    let terms = Terms { announced: vec![Part { event, count: 7 }], ..terms() };
    Ledger::create(&path, terms).unwrap().append(event, 7).unwrap();
    assert_eq!(Ledger::read(&path).unwrap().spent().parts()[0], Part { event, count: 7 });
}

/// Several threads create one ledger at the same moment, as processes may: every successful append
/// is in it.
#[test]
fn of_several_who_begin_a_ledger_none_is_forgotten() {
    for _ in 0..200 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        let start = std::sync::Barrier::new(4);
        let answered = std::thread::scope(|scope| {
            let answer = || {
                start.wait();
                let mut ledger = Ledger::open_or_create(&path, terms())?;
                ledger.append(STEP, 1)
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(answer)).collect();
            let ends = threads.into_iter().map(|thread| thread.join().unwrap());
            ends.filter(|end| end.is_ok()).count() as u64
        });
        let ledger = Ledger::read(&path).unwrap();
        assert!(answered >= 1, "nobody could begin");
        assert_eq!(ledger.entries(), answered);
        assert_eq!(ledger.spent().releases(), answered);
    }
}

#[test]
fn a_ledger_is_not_begun_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let elsewhere = folder.path().join("elsewhere");
    #[cfg(unix)]
    for name in ["ledger.jsonl", "ledger.jsonl.new"] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        assert!(Ledger::create(&path, terms()).is_err(), "{name}");
        fs::remove_file(&link).unwrap();
        assert!(!elsewhere.exists());
    }
    Ledger::create(&path, terms()).unwrap();
    assert!(!folder.path().join("ledger.jsonl.new").exists(), "the file on the way is left");
}

/// A ledger in `folder` with `steps` recorded steps.
fn of_steps(folder: &Path, name: &str, steps: u64, terms: Terms) -> Ledger {
    let path = folder.join(name);
    Ledger::create(&path, terms).unwrap().append(STEP, steps).unwrap();
    Ledger::read(&path).unwrap()
}

#[test]
fn ledgers_together_are_the_composition_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let with_id = |id: &str| Terms { id: id.into(), ..terms() };
    let first = of_steps(folder.path(), "one", 40, with_id("1"));
    let second = of_steps(folder.path(), "two", 60, with_id("2"));
    let total = Ledger::together(&[&first, &second], 1e-5).unwrap();
    let whole = epsilon(&Composition::dp_sgd(1.0, 0.01, 100), 1e-5, Accountant::Auto).unwrap();
    assert_eq!(total.epsilon, whole.epsilon);
    assert!(total.epsilon.upper > second.guarantee(1e-5).unwrap().epsilon.upper);
    // Both ledgers state the same assumption, and the total adds that neither run was chosen by the
    // other's results.
    assert_eq!(total.assumptions.len(), 2);
    assert_eq!(Ledger::together(&[&first], 1e-5).unwrap(), first.guarantee(1e-5).unwrap());
    // Seeded noise in one ledger removes the guarantee from all.
    let seeded = Terms { mode: Mode::Seeded, ..with_id("3") };
    let seeded = of_steps(folder.path(), "seeded", 1, seeded);
    assert_eq!(Ledger::together(&[&first, &seeded], 1e-5).unwrap().mode, Mode::Seeded);
}

#[test]
fn what_is_not_about_the_same_change_is_not_added_up() {
    let folder = tempfile::tempdir().unwrap();
    let first = of_steps(folder.path(), "one", 40, terms());
    let copy = of_steps(folder.path(), "copy", 40, terms());
    let user = of_steps(folder.path(), "user", 40, Terms { unit: Unit::User, ..terms() });
    let replaced = Terms { adjacency: Adjacency::ReplaceOne, ..terms() };
    let replaced = of_steps(folder.path(), "replaced", 40, replaced);
    let local = of_steps(folder.path(), "local", 40, Terms { threat: Threat::Local, ..terms() });
    for (other, about) in [
        (&copy, "twice"),
        (&user, "another privacy unit"),
        (&replaced, "another adjacency"),
        (&local, "another threat model"),
    ] {
        match Ledger::together(&[&first, other], 1e-5) {
            Err(Error::Ledger { problem, .. }) => assert!(problem.contains(about), "{problem}"),
            other => panic!("{about}: {other:?}"),
        }
    }
    assert!(Ledger::together(&[], 1e-5).is_err());
}
