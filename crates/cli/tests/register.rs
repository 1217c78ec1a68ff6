//! How runs use the budgets of data sets: reserved before the data are read, settled at the end.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

/// A bench with a register: one data set of 120 examples, with a cap on ε.
struct World {
    bench: Bench,
}

impl World {
    fn new(epsilon: &str) -> Self {
        let world = Self { bench: Bench::classifier() };
        world.done(&["init"], &[]);
        world.add("letters@1", epsilon, &["--units", "120"]);
        world
    }

    fn add(&self, name: &str, epsilon: &str, more: &[&str]) {
        let budget = ["--covers", "our customers", "--epsilon", epsilon, "--delta", "1e-3"];
        let more = [&[name, "--approver", "the board"], &budget[..], more].concat();
        self.done(&["add"], &more);
    }

    fn file(&self) -> String {
        self.bench.path("budgets.jsonl").display().to_string()
    }

    /// `undertone register VERB FILE …`
    fn register(&self, verb: &[&str], more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.arg("register").args(verb).arg(self.file()).args(more).output().unwrap()
    }

    fn done(&self, verb: &[&str], more: &[&str]) {
        let output = self.register(verb, more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The data set in the output of `register show --json`.
    fn shown(&self) -> Value {
        let output = self.register(&["show"], &["letters", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        all["datasets"][0].clone()
    }

    fn statuses(&self) -> Vec<String> {
        let shown = self.shown();
        let runs = shown["runs"].as_array().unwrap();
        runs.iter().map(|run| run["status"].as_str().unwrap().to_owned()).collect()
    }

    /// Upper bounds on ε: of settled runs, and of settled runs and reservations.
    fn epsilons(&self) -> (f64, f64) {
        let shown = self.shown();
        let upper = |what: &str| shown[what]["upper"].as_f64().unwrap();
        (upper("spent"), upper("spent_or_reserved"))
    }

    fn with(&self, more: &[&str]) -> Vec<String> {
        let own = ["--register".to_owned(), self.file(), "--dataset".to_owned(), "letters".into()];
        own.into_iter().chain(more.iter().map(ToString::to_string)).collect()
    }

    /// `undertone train` with the register.
    fn train(&self, out: &str, more: &[&str]) -> Output {
        let all = self.with(more);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.bench.command(out, &all).output().unwrap()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Two runs are composed by their events. A third one is refused with the ε that would fit, and a
/// run with that ε fits.
#[test]
fn runs_spend_one_budget_until_nothing_fits() {
    let world = World::new("7");
    let set = ["--set", "privacy.epsilon=3"];
    let first = world.train("first", &set);
    assert!(first.status.success(), "{}", stderr(&first));
    assert!(stderr(&first).contains("budget of letters@1: settled"), "{}", stderr(&first));
    let (spent, committed) = world.epsilons();
    assert!(spent > 2.99 && spent <= 3.0 && spent == committed, "{spent} {committed}");
    assert!(world.train("second", &set).status.success());
    let (both, _) = world.epsilons();
    assert!(both > 3.5 && both < 5.99, "two runs of ε = 3 are cheaper than ε = 6: {both}");
    // The plan names the reservation, and so do ledger and report.
    let plan = String::from_utf8(world.bench.bytes("first/plan.toml")).unwrap();
    assert!(plan.contains("[resolved.registered]"), "{plan}");
    assert!(plan.contains("dataset = \"letters@1\"") && plan.contains("units = 120"), "{plan}");
    let too_much = world.train("third", &["--set", "privacy.epsilon=6"]);
    refused(&too_much, "over its cap of ε = 7");
    assert!(!world.bench.path("third").exists(), "nothing was read or written");
    let sentence = stderr(&too_much);
    let fits = sentence.split("privacy.epsilon = ").nth(1).unwrap().split(' ').next().unwrap();
    let fitting = world.train("third", &["--set", &format!("privacy.epsilon={fits}")]);
    assert!(fitting.status.success(), "{}", stderr(&fitting));
    let (all, _) = world.epsilons();
    assert!(all > 6.5 && all <= 7.0, "{all}");
    assert_eq!(world.statuses(), ["settled"; 3]);
    let folder = world.bench.path("first").display().to_string();
    world.done(&["verify"], &["--run", &folder]);
    let report = world.bench.path("report.md").display().to_string();
    let report_output = run(&["report", &folder, "--out", &report]);
    assert!(!report_output.is_empty());
    let report = fs::read_to_string(report).unwrap();
    assert!(report.contains("letters@1 in the register"), "{report}");
}

/// The training file is missing, which the run detects only after reserving: the reservation comes
/// first, and is released.
#[test]
fn the_cost_is_reserved_before_the_data_are_read() {
    let world = World::new("4");
    fs::remove_file(world.bench.path("rows.tsv")).unwrap();
    let unset = ["--unset", "data.validation"];
    let over = world.train("over", &[&unset[..], &["--set", "privacy.epsilon=5"]].concat());
    refused(&over, "over its cap");
    let without = world.train("without", &[&unset[..], &["--set", "privacy.epsilon=2"]].concat());
    refused(&without, "rows.tsv");
    assert_eq!(world.statuses(), ["given back"]);
    assert_eq!(world.epsilons(), (0.0, 0.0));
    // The register does not quote the data or the error.
    let register = String::from_utf8(world.bench.bytes("budgets.jsonl")).unwrap();
    assert!(!register.contains("rows.tsv"), "{register}");
}

/// A killed run keeps its reservation, and uses it again when resumed.
#[test]
fn a_crash_keeps_the_reservation_and_resume_continues_it() {
    let world = World::new("9");
    let all = world.with(&["--set", "training.epochs=40", "--set", "compute.checkpoint_every=1"]);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert!(world.bench.kill_after("run", &all, 5), "the run was killed");
    assert_eq!(world.statuses(), ["reserved"]);
    let (spent, committed) = world.epsilons();
    assert!(spent == 0.0 && committed > 7.9, "the whole plan counts: {committed}");
    refused(&world.train("other", &[]), "over its cap");
    let files = ["budgets.jsonl", "budgets.jsonl.head"];
    let before = files.map(|file| world.bench.bytes(file));
    world.bench.resume("run");
    assert_eq!(world.statuses(), ["settled"]);
    assert!((world.epsilons().0 - committed).abs() < 1e-6);
    // A run that was killed after its last step but before settling is settled when resumed.
    for (file, bytes) in files.iter().zip(before) {
        fs::write(world.bench.path(file), bytes).unwrap();
    }
    assert_eq!(world.statuses(), ["reserved"]);
    world.bench.resume_refused("run", "is finished");
    assert_eq!(world.statuses(), ["settled"]);
}

/// A run that is finished before its last step costs what its ledger contains.
#[test]
fn a_run_that_is_cut_short_settles_at_less_than_it_reserved() {
    let world = World::new("9");
    let all = world.with(&["--set", "training.epochs=40", "--set", "compute.checkpoint_every=1"]);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert!(world.bench.kill_after("run", &all, 5), "the run was killed");
    let (_, reserved) = world.epsilons();
    let folder = world.bench.path("run").display().to_string();
    run(&["train", "--out", &folder, "--finish"]);
    let (spent, committed) = world.epsilons();
    assert!(spent > 0.1 && spent < 0.8 * reserved && spent == committed, "{spent} {reserved}");
    assert_eq!(world.shown()["runs"][0]["cut_short"], true);
    world.done(&["verify"], &["--run", &folder]);
}

/// Runs that start at the same time share the remaining budget: some are refused, and the cap
/// holds.
#[test]
fn concurrent_runs_do_not_overspend() {
    let world = World::new("5");
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        let start = |number: usize| {
            let world = &world;
            scope.spawn(move || {
                world.train(&format!("run-{number}"), &["--set", "privacy.epsilon=3"])
            })
        };
        let runs: Vec<_> = (0..4).map(start).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let done = outputs.iter().filter(|output| output.status.success()).count();
    assert!((1..4).contains(&done), "{done} of 4 runs fit");
    let others = outputs.iter().filter(|output| !output.status.success());
    others.for_each(|output| refused(output, "over its cap of ε = 5"));
    assert_eq!(world.statuses(), vec!["settled"; done]);
    assert!(world.epsilons().1 <= 5.0);
    world.done(&["verify"], &[]);
}

/// A run that will not be resumed is settled at the cost of its ledger, and then cannot be resumed.
#[test]
fn an_abandoned_run_is_settled_at_the_cost_of_its_ledger() {
    let world = World::new("9");
    let all = world.with(&["--set", "training.epochs=40", "--set", "compute.checkpoint_every=1"]);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert!(world.bench.kill_after("run", &all, 5), "the run was killed");
    let folder = world.bench.path("run").display().to_string();
    world.done(&["settle"], &["--run", &folder]);
    let (spent, committed) = world.epsilons();
    assert!(spent > 0.1 && spent < 6.0 && spent == committed, "{spent} {committed}");
    assert_eq!(world.shown()["runs"][0]["cut_short"], true);
    world.bench.resume_refused("run", "was settled on");
    world.done(&["settle"], &["--run", &folder]);
    assert_eq!(world.epsilons().0, spent, "settled once");
}

#[test]
fn what_a_budget_cannot_pay_for_is_refused() {
    let sentences = Sentences::start();
    let world = World::new("9");
    refused(&world.train("a", &["--seed", "1"]), "a run with a seed has no guarantee");
    let local = ["--set", "privacy.method=dp-forward"];
    refused(&world.train("b", &local), "each owner has a budget of their own");
    let none = ["--set", "privacy.method=none"];
    refused(&world.train("c", &none), "has no guarantee, so no budget allows it");
    refused(&world.train("d", &["--set", "data.author=who"]), "protects users");
    refused(&world.train("e", &["--set", "privacy.delta=1e-2"]), "δ is 1e-2");
    refused(&world.train("f", &["--set", "privacy.units=100"]), "declares 120 units");
    world.bench.refused("g", &["--register", &world.file()], "--dataset");
    world.add("cards@1", "3", &[]);
    let cards = ["--register", &world.file(), "--dataset", "cards"];
    world.bench.refused("h", &cards, "declare the number of units");
    world.bench.refused("i", &["--register", "none.jsonl", "--dataset", "a"], "register init");
    let unknown = ["--register", &world.file(), "--dataset", "memos"];
    world.bench.refused("j", &unknown, "no data set memos; it has letters@1, cards@1");
    world.done(&["close"], &["letters", "--reason", "the study has ended"]);
    refused(&world.train("k", &[]), "is closed (the study has ended)");
    refused(&world.register(&["init"], &[]), "never overwritten");
    let lower = ["cards", "--epsilon", "-1", "--delta", "1e-3", "--approver", "the board"];
    refused(&world.register(&["cap"], &lower), "above 0");
    let twice = ["letters@2", "--covers", "us", "--epsilon", "1", "--delta", "1e-3"];
    let twice = [&twice[..], &["--approver", "the board"]].concat();
    refused(&world.register(&["add"], &twice), "--other-people");
    refused(&world.register(&["release"], &["0", "--reason", "none"]), "no reservation 0");
    let text = String::from_utf8(world.bench.bytes("budgets.jsonl")).unwrap();
    fs::write(world.bench.path("budgets.jsonl"), text.replace("customers", "clients")).unwrap();
    refused(&world.train("l", &[]), "line 2 was changed");
    refused(&world.register(&["verify"], &[]), "line 2 was changed");
    assert_eq!(fs::read_dir(world.bench.folder.path()).unwrap().count(), 5, "no run began");
    sentences.assert("register");
}

#[test]
fn a_database_needs_a_program_that_can_reach_it() {
    let world = World::new("9");
    let server = ["--register", "postgres://a/b", "--dataset", "a"];
    let lacking = match cfg!(feature = "postgres") {
        true => "sslmode=require",
        false => "--features postgres",
    };
    world.bench.refused("a", &server, lacking);
}

/// A register in a database pays as one in a file does. Skipped if PostgreSQL is not installed.
#[cfg(feature = "postgres")]
#[test]
fn machines_share_a_register_in_a_database() {
    let Some(database) = crate::postgres::Database::start() else { return };
    let (world, url) = (World::new("9"), database.make("budgets"));
    let register = |words: &[&str], more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        let output = command.arg("register").args(words).arg(&url).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    register(&["init"], &[]);
    let budget = ["letters@1", "--covers", "our customers", "--units", "120"];
    let cap = ["--epsilon", "9", "--delta", "1e-3", "--approver", "the board"];
    register(&["add"], &[&budget[..], &cap].concat());
    let pays = ["--register", &url, "--dataset", "letters"];
    world.bench.train("paid", &pays);
    let out = world.bench.path("paid");
    let out = out.to_str().unwrap();
    assert!(register(&["show"], &["letters"]).contains("settled"));
    register(&["verify"], &["--run", out]);
    world.bench.refused("second", &pays, "ε");
    register(&["report"], &["--out", world.bench.path("budgets.html").to_str().unwrap()]);
    let report = world.bench.path("report.md");
    let made = ["report", out, "--out", report.to_str().unwrap(), "--annex", "gdpr-dpia"];
    run(&made);
    assert!(fs::read_to_string(report).unwrap().contains("letters@1"));
}

/// Annexes are filled from the run and its budget, and never claim that organizational duties are
/// fulfilled.
#[test]
fn annexes_say_what_holds_and_what_must_be_shown() {
    let world = World::new("7");
    let made = world.train("run", &["--set", "privacy.epsilon=3"]);
    assert!(made.status.success(), "{}", stderr(&made));
    world.bench.train("open", &["--set", "privacy.method=none", "--unset", "privacy.epsilon"]);
    let report = |name: &str, annexes: &[&str], more: &[&str]| {
        let out = world.bench.path("annex.md").display().to_string();
        let folder = world.bench.path(name).display().to_string();
        let annexes: Vec<&str> = annexes.iter().flat_map(|name| ["--annex", name]).collect();
        run(&[&["report", &folder, "--out", &out], &annexes[..], more].concat());
        fs::read_to_string(out).unwrap()
    };
    let all = ["nist-800-226", "edpb-28-2024", "eu-ai-act", "gdpr-dpia"];
    let page = report("run", &all, &[]);
    let row = |page: &str, point: &str| {
        let line = page.lines().find(|line| line.starts_with(&format!("| {point}")));
        line.unwrap_or_else(|| panic!("{point} is not in {page}")).to_owned()
    };
    assert!(row(&page, "ε and δ are stated").contains("| holds |"), "{page}");
    assert!(row(&page, "Sizes and labels").contains("| holds |"), "declared units");
    let total = row(&page, "Registered runs on the same data");
    assert!(total.contains("| holds |") && total.contains("all registered runs on letters@1"));
    assert!(row(&page, "Access to raw data").contains("| you must show |"));
    assert!(row(&page, "Direct extraction").contains("| you must show |"), "never decided here");
    for text in ["our customers", "the board", "no attack was run", "Reviewer's checklist"] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    let public = report("run", &all, &["--public"]);
    assert!(public.contains("left out of this public report"), "{public}");
    assert!(!public.contains(world.bench.folder.path().to_str().unwrap()), "{public}");
    // Without access to the register, its total is not stated.
    fs::rename(world.file(), world.bench.path("elsewhere")).unwrap();
    let alone = report("run", &all, &[]);
    assert!(row(&alone, "Registered runs on the same data").contains("| does not apply |"));
    assert!(row(&page, "Every use of the same people's data").contains("| you must show |"));
    let open = report("open", &all, &[]);
    for point in ["ε and δ are stated", "The guarantee is proved", "Direct extraction"] {
        assert!(row(&open, point).contains("| does not hold |"), "{open}");
    }
    let folders = ["run", "open"].map(|run| world.bench.path(run).display().to_string());
    let out = world.bench.path("two.md").display().to_string();
    let mut two = Command::new(env!("CARGO_BIN_EXE_undertone"));
    two.args(["report", "--annex", "eu-ai-act", "--out", &out]).args(&folders);
    refused(&two.output().unwrap(), "an annex is about one run");
}

/// The page shows each data set with its runs, in one file without scripts.
#[test]
fn the_page_shows_what_was_spent_and_is_left() {
    let world = World::new("7");
    assert!(world.train("run", &["--set", "privacy.epsilon=3"]).status.success());
    let page = world.bench.path("budgets.html").display().to_string();
    world.done(&["report"], &["--out", &page]);
    let text = fs::read_to_string(page).unwrap();
    for part in ["letters@1", "Spent over time", "By run", "one more Gaussian release with ε up to"]
    {
        assert!(text.contains(part), "{part} is not in the page");
    }
    assert!(text.contains("<svg") && !text.contains("<script"));
    let markdown = world.bench.path("budgets.md").display().to_string();
    world.done(&["report"], &["letters", "--out", &markdown]);
    assert!(fs::read_to_string(markdown).unwrap().contains("| run | train |"));
    refused(&world.register(&["report"], &["--out", &world.file()]), "budgets.jsonl");
}

/// A sweep is refused before its first run unless all of its runs fit; each then settles.
#[test]
fn a_sweep_fits_as_a_whole_or_not_at_all() {
    let world = World::new("7");
    let sweep = world.bench.path("sweep.toml");
    let text = "base = \"run.toml\"\nmetric = \"accuracy\"\nrows = [\n{ label = \"low\", set = { \
                \"privacy.epsilon\" = 1.0 } },\n{ label = \"high\", set = { \"privacy.epsilon\" = \
                EPSILON } },\n]\n";
    let start = |epsilon: &str| {
        fs::write(&sweep, text.replace("EPSILON", epsilon)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.arg("sweep").arg(&sweep).arg("--out").arg(world.bench.path("sweep"));
        command.args(world.with(&[])).output().unwrap()
    };
    refused(&start("8.0"), "the 2 runs would bring letters@1 to");
    assert!(world.statuses().is_empty());
    let done = start("3.0");
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(world.statuses(), ["settled"; 2]);
    assert!(world.epsilons().0 < 4.0);
}

/// A private selection pays once for all of its runs, before the data are read, and not again when
/// the command is repeated.
#[test]
fn a_selection_pays_once_for_all_its_runs() {
    let world = World::new("60");
    let public = world.bench.public();
    let text = format!(
        "base = \"run.toml\"\nmetric = \"accuracy\"\nset = {{ \"training.epochs\" = 1, \
         \"data.validation\" = {public:?} }}\n[grid]\n\"training.learning_rate\" = [1e-4, \
         1e-2]\n[selection]\nruns = {{ negative_binomial = {{ eta = 0.0, gamma = 0.5 }} }}\n\
         validation = \"public\"\n"
    );
    fs::write(world.bench.path("sweep.toml"), text).unwrap();
    let select = |out: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.arg("sweep").arg(world.bench.path("sweep.toml")).arg("--private-selection");
        command.arg("--out").arg(world.bench.path(out)).args(["--jobs", "1"]);
        command.args(world.with(&[])).output().unwrap()
    };
    let rows = world.bench.bytes("rows.tsv");
    fs::remove_file(world.bench.path("rows.tsv")).unwrap();
    refused(&select("none"), "rows.tsv");
    assert_eq!(world.statuses(), ["given back"]);
    fs::write(world.bench.path("rows.tsv"), rows).unwrap();
    for _ in 0..2 {
        let done = select("best");
        assert!(done.status.success(), "{}", stderr(&done));
        assert_eq!(world.statuses(), ["given back", "settled"]);
    }
    let (spent, committed) = world.epsilons();
    assert!(spent > 8.0 && spent == committed, "{spent} {committed}");
    let cap = format!("{:.3}", spent + 0.01);
    let approved = ["--delta", "1e-3", "--approver", "the board"];
    world.done(&["cap"], &[&["letters", "--epsilon", &cap], &approved[..]].concat());
    refused(&select("another"), "over its cap");
}

/// An audit trains on the data, so its run costs as much as any other run.
#[test]
fn a_one_run_audit_is_paid_for() {
    let world = World::new("9");
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.args(["audit", "one-run", "--canaries", "20", "--run"]);
    command.arg(world.bench.path("run.toml")).arg("--out").arg(world.bench.path("audit"));
    let done = command.args(world.with(&[])).output().unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(world.shown()["runs"][0]["verb"], "audit one-run");
    assert!(world.epsilons().0 > 7.9);
}

/// `undertone stats` on the training file, with the register.
fn stats(world: &World, epsilon: &str, out: &str) -> Output {
    let (data, out) = (world.bench.path("rows.tsv"), world.bench.path(out));
    let more = world.with(&["--epsilon", epsilon, "--delta", "1e-4", "--text", "sentence"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.arg("stats").arg(data).arg("--out").arg(out).args(more).output().unwrap()
}

/// Statistics are paid for before the file is read, and settled at the cost of their ledger.
#[test]
fn statistics_are_paid_for() {
    let world = World::new("2");
    refused(&stats(&world, "3", "over"), "over its cap");
    assert!(!world.bench.path("over").exists(), "nothing was read or written");
    let output = stats(&world, "1", "stats");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(world.statuses(), ["settled"]);
    let (spent, committed) = world.epsilons();
    // At the register's δ, which is larger than that of the statistics.
    assert!(spent > 0.5 && spent <= 1.0 && spent == committed, "{spent} {committed}");

    // A file that cannot be read to its end releases nothing and costs nothing.
    let whole = fs::read(world.bench.path("rows.tsv")).unwrap();
    fs::write(world.bench.path("rows.tsv"), [&whole[..], &[0xff, 0xfe]].concat()).unwrap();
    refused(&stats(&world, "0.5", "broken"), "nothing was released");
    assert_eq!(world.statuses(), ["settled", "given back"]);
    assert_eq!(world.epsilons().0, spent);
}

/// Statistics that were killed before they settled keep their reservation, until it is settled at
/// the cost of the ledger.
#[test]
fn abandoned_statistics_are_settled_at_the_cost_of_their_ledger() {
    let world = World::new("2");
    let before = world.bench.bytes("budgets.jsonl");
    let head = world.bench.bytes("budgets.jsonl.head");
    assert!(stats(&world, "1", "stats").status.success());
    let (spent, _) = world.epsilons();
    // The register as it was after the reservation: without its last line.
    let text = String::from_utf8(world.bench.bytes("budgets.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), String::from_utf8(before).unwrap().lines().count() + 2);
    let reserved = lines[..lines.len() - 1].join("\n") + "\n";
    let last: Value = serde_json::from_str(lines[lines.len() - 2]).unwrap();
    let mut head: Value = serde_json::from_slice(&head).unwrap();
    head["lines"] = Value::from(lines.len() - 1);
    head["hash"] = last["hash"].clone();
    fs::write(world.bench.path("budgets.jsonl"), reserved).unwrap();
    fs::write(world.bench.path("budgets.jsonl.head"), head.to_string()).unwrap();
    assert_eq!(world.statuses(), ["reserved"]);
    let folder = world.bench.path("stats").display().to_string();
    // While they run, more may be released than the ledger says so far.
    let ledger = fs::File::options().write(true).open(world.bench.path("stats/ledger.jsonl"));
    let ledger = ledger.unwrap();
    ledger.lock().unwrap();
    refused(&world.register(&["settle"], &["--run", &folder]), "in use");
    assert_eq!(world.statuses(), ["reserved"]);
    drop(ledger);
    world.done(&["settle"], &["--run", &folder]);
    assert_eq!((world.statuses(), world.epsilons().0), (vec!["settled".to_owned()], spent));
}
