//! `report` on the folders of `train` and `audit`, and the model cards of trained models.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use undertone_accounting::ledger::Ledger;
use undertone_accounting::rounded_up;

fn undertone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

fn done(arguments: &[&str]) -> String {
    let output = undertone(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A bench with an attacked private run, one whose noise differs between parameters, and a
/// non-private run.
fn three_runs() -> (Bench, [String; 3]) {
    let bench = Bench::classifier();
    bench.train("private", &[]);
    let lora = "model.tuning={ lora = { rank = 2, targets = [\"query\", \"value\"] } }";
    bench.train(
        "uneven",
        &["--set", "privacy.method=anadp", "--set", lora, "--set", "privacy.schedule=linear"],
    );
    let open = String::from_utf8(bench.bytes("run.toml")).unwrap();
    let open = open
        .replace("dp-sgd", "none")
        .replace("epsilon = 8.0\ndelta = 1e-3\nclip = \"automatic\"\n", "");
    fs::write(bench.path("run.toml"), open).unwrap();
    bench.train("open", &[]);
    let folders =
        ["private", "uneven", "open"].map(|name| bench.path(name).to_str().unwrap().to_owned());
    done(&["audit", "membership", "--run", &folders[0]]);
    (bench, folders)
}

#[test]
fn a_report_says_what_the_ledger_proves() {
    let (bench, folders) = three_runs();
    let [private, uneven, open] = &folders;
    let out = bench.path("report.html");
    let out = out.to_str().unwrap();
    let printed: Value =
        serde_json::from_str(&done(&["report", private, uneven, open, "--out", out, "--json"]))
            .unwrap();
    assert_eq!(printed["runs"][0]["private"], true);
    assert_eq!(printed["runs"][2]["guarantee"], Value::Null);
    let ledger = format!("{private}/ledger.jsonl");
    refused(&undertone(&["report", private, "--out", &ledger]), "is in a run folder");
    let html = fs::read_to_string(out).unwrap();
    for folder in [private, uneven] {
        let guarantee =
            Ledger::read(Path::new(folder).join("ledger.jsonl")).unwrap().guarantee(1e-3).unwrap();
        assert!(html.contains(&format!("{guarantee}.")), "{guarantee}");
        assert!(html.contains(&format!("at most {}", rounded_up(guarantee.epsilon.upper))));
    }
    assert!(html.contains("No guarantee") && html.contains("no noise was added"));
    for part in [
        "3 runs compared",
        "Accuracy against ε",
        "Noise schedule",
        "Noise by parameter",
        "attack: loss",
        "plan.toml",
    ] {
        assert!(html.contains(part), "{part}");
    }
    // The same folders give the same report.
    done(&["report", private, uneven, open, "--out", out]);
    assert!(fs::read_to_string(out).unwrap() == html);
    let markdown = bench.path("report.md");
    done(&["report", private, "--out", markdown.to_str().unwrap()]);
    let markdown = fs::read_to_string(markdown).unwrap();
    assert!(
        markdown.starts_with("# private\n") && markdown.contains("| Certified interval of ε |"),
        "{markdown}"
    );
}

#[test]
fn folders_that_prove_nothing_are_refused_in_one_sentence() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    bench.train("run", &["--set", "training.epochs=1"]);
    let (run, out) = (bench.path("run"), bench.path("report.html"));
    let report = || undertone(&["report", run.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    refused(
        &undertone(&["report", bench.path("model").to_str().unwrap(), "--out", "x.html"]),
        "no summary.json",
    );
    refused(&undertone(&["report", "--out", "x.html"]), "RUN");
    let summary = String::from_utf8(bench.bytes("run/summary.json")).unwrap();
    fs::write(run.join("summary.json"), summary.replace("\"upper\"", "\"lower2\"")).unwrap();
    refused(&report(), "missing field");
    fs::write(run.join("summary.json"), summary).unwrap();
    let ledger = String::from_utf8(bench.bytes("run/ledger.jsonl")).unwrap();
    fs::write(run.join("ledger.jsonl"), ledger.replacen("\"count\":1", "\"count\":2", 2)).unwrap();
    refused(&report(), "ledger");
    assert!(!out.exists(), "nothing half is left");
    sentences.assert("report");
}

/// The card agrees with summary.json and contains nothing beyond the guarantee.
#[test]
fn a_card_lies_beside_every_model() {
    let (bench, _) = three_runs();
    let read = |name: &str| fs::read_to_string(bench.path(name)).unwrap();
    let card = read("private/model/README.md");
    let guarantee =
        Ledger::read(bench.path("private/ledger.jsonl")).unwrap().guarantee(1e-3).unwrap();
    assert!(
        card.starts_with(
            "---\nlibrary_name: transformers\npipeline_tag: \
     text-classification\ntags:\n- undertone\n- differential-privacy\n- dp-sgd\n---\n"
        ),
        "{card}"
    );
    assert!(!card.contains("accuracy"), "the validation file is private: {card}");
    assert!(card.contains(&guarantee.to_string()) && card.contains("This holds if:"), "{card}");
    assert!(!card.contains(bench.folder.path().to_str().unwrap()), "no paths: {card}");
    assert!(card.contains("AutoModelForSequenceClassification.from_pretrained"));
    let card = read("uneven/adapter/README.md");
    assert!(
        card.contains("library_name: peft")
            && card.contains("- anadp")
            && card.contains("labels = [\"bad\",\"neutral\",\"good\"]"),
        "{card}"
    );
    let card = read("open/model/README.md");
    assert!(card.contains("**No guarantee:") && !card.contains("differential"), "{card}");
    assert!(card.contains("| accuracy |"), "{card}");
    // With a file declared public, the figures are post-processing of the model.
    let bench = Bench::classifier();
    let public = format!("data.validation={:?}", bench.public().to_str().unwrap());
    let declared = ["--set", &public, "--set", "data.validation_is_public=true"];
    bench.train("declared", &declared);
    let card = fs::read_to_string(bench.path("declared/model/README.md")).unwrap();
    assert!(card.contains("metrics:\n- accuracy\n- f1\n"), "{card}");
    assert!(card.contains("declared public:") && card.contains("| accuracy |"), "{card}");
}

/// Opens the report in a browser, if there is one.
#[test]
fn a_browser_finds_nothing_wrong() {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let installed = names.into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success())
    });
    let Some(browser) = installed else {
        println!("there is no chromium here, so nothing was looked at");
        return;
    };
    let (bench, folders) = three_runs();
    let look = |page: &Path| {
        let output = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--enable-logging=stderr",
                "--v=0",
                "--dump-dom",
            ])
            .arg(format!("--user-data-dir={}", bench.path("browser").display()))
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    // First a page with an error, to verify that errors are detected.
    let wrong = bench.path("wrong.html");
    fs::write(&wrong, "<!doctype html><script>console.error('seen')</script>").unwrap();
    let (dom, said) = look(&wrong);
    if dom.is_empty() || !said.contains("CONSOLE") {
        println!("{browser} cannot be used here, so nothing was looked at: {said}");
        return;
    }
    let page = bench.path("report.html");
    done(&["report", &folders[0], &folders[1], &folders[2], "--out", page.to_str().unwrap()]);
    let (dom, said) = look(&page);
    assert!(!said.contains("CONSOLE"), "{said}");
    let drawings: Vec<&str> =
        dom.split("<svg").skip(1).filter_map(|rest| rest.split("</svg>").next()).collect();
    assert_eq!(drawings.len(), fs::read_to_string(&page).unwrap().matches("<svg").count());
    for drawing in &drawings {
        let shapes = ["<polyline", "<rect", "<circle"]
            .iter()
            .map(|shape| drawing.matches(shape).count())
            .sum::<usize>();
        assert!(
            shapes > 2 && drawing.contains("<text") && drawing.contains("<title>"),
            "{drawing}"
        );
    }
    assert!(dom.contains("</footer>"), "the page was read to its end");
}
