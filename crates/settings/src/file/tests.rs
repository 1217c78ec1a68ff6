use super::*;

const FILE: &str = r#"
[model]
path = "models/a"
tuning = { lora = { rank = 8, alpha = 16, targets = ["query", "value"] } }
[data]
task = "classification"
train = "train.tsv"
text = ["sentence"]
max_tokens = 64
[privacy]
method = "dp-sgd"
epsilon = 8.0
delta = 1e-5
clip = "automatic"
schedule = "uniform"
[training]
epochs = 3
batch = 1024
learning_rate = 5e-4
optimizer = "adamw"
"#;

fn changed(changes: &[&str]) -> Result<RunFile> {
    RunFile::parse(FILE, &changes.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn refused(changes: &[&str], sentence: &str) {
    let error = changed(changes).unwrap_err().to_string();
    assert!(error.contains(sentence) && !error.contains('\n'), "{changes:?}: {error}");
}

#[test]
fn a_run_file_is_read_with_defaults_and_changes() {
    let file = changed(&[]).unwrap();
    assert_eq!(
        (file.privacy.epsilon, file.privacy.clip, file.data.label.as_str()),
        (Some(8.0), Clip::Automatic, "label")
    );
    let file = changed(&[
        "privacy.epsilon=2",
        "privacy.clip=0.5",
        "model.tuning=full",
        "data.text=[\"a\", \"b\"]",
    ])
    .unwrap();
    assert_eq!((file.privacy.epsilon, file.privacy.clip), (Some(2.0), Clip::Flat(0.5)));
    assert_eq!((file.model.tuning, file.data.text.len()), (Tuning::Full, 2));
    let per_layer = changed(&["privacy.clip={ per_layer = 2.0 }"]).unwrap().privacy.clip;
    assert_eq!(per_layer, Clip::PerLayer(2.0));
}

#[test]
fn keys_can_be_removed() {
    let none = ["privacy.epsilon", "privacy.delta", "privacy.clip", "privacy.schedule"];
    let mut changes: Vec<String> = none.iter().map(|key| format!("-{key}")).collect();
    changes.push("privacy.method=none".to_owned());
    let file = RunFile::parse(FILE, &changes).unwrap();
    assert_eq!((file.privacy.method, file.privacy.epsilon), (MethodName::None, None));
    refused(&["-privacy.epsilom"], "--unset privacy.epsilom");
    refused(&["-privacy.anadp.beta1"], "no such key");
}

#[test]
fn what_is_written_is_read_again() {
    for changes in [
        vec!["privacy.clip=0.5", "data.author=who"],
        vec!["privacy.method=ew-ft", "privacy.local.dims=[4]", "model.tuning=head"],
        vec!["privacy.method=anadp", "privacy.anadp.beta1=0.5", "training.optimizer=sgd"],
    ] {
        let file = changed(&changes).unwrap();
        let text = file.to_toml().unwrap();
        assert_eq!(RunFile::parse(&text, &[]).unwrap(), file, "{text}");
        let with_answer = format!("{text}\n[resolved]\nunits = 3\n");
        assert_eq!(RunFile::parse(&with_answer, &[]).unwrap(), file);
    }
}

/// A plan written by a run is read as is, but keys that are set on top of it must apply.
#[test]
fn plans_of_other_versions_are_refused() {
    let plan = format!("format = {FORMAT_VERSION}\n{FILE}[resolved]\nunits = 3\n");
    let set = ["privacy.rap_ft.beta=0.5".to_owned()];
    assert!(RunFile::parse(&plan, &[]).is_ok());
    assert!(RunFile::parse(&plan, &set).is_err(), "a key without effect is set anew");
    for (format, other) in [(FORMAT_VERSION + 1, "a newer"), (FORMAT_VERSION - 1, "the older")] {
        let text = format!("format = {format}\n{FILE}");
        let error = RunFile::parse(&text, &[]).unwrap_err().to_string();
        assert!(error.contains(&format!("use {other} undertone")), "{error}");
    }
}

#[test]
fn mistakes_are_named() {
    for (change, sentence) in [
        ("privacy.epsilon", "key=value"),
        ("privacy.epsilom=2", "epsilom"),
        ("privacy.clip=-1", "privacy.clip"),
        ("privacy.clip=high", "clip is"),
        ("training.epochs=0", "training.epochs is 0, but must be from 1"),
        ("training.epochs=4000000000", "training.epochs"),
        ("training.batch=-1", "training.batch:"),
        ("privacy.epsilon=true", "privacy.epsilon:"),
        ("privacy.epsilon=1e308", "privacy.epsilon is 1e308,"),
        ("privacy.delta=1", "privacy.delta is 1, but"),
        ("privacy.clip=1e300", "privacy.clip"),
        ("privacy.clip=1e-40", "privacy.clip"),
        ("model.tuning.lora.alpha=1e300", "model.tuning.lora.alpha"),
        ("data.max_tokens=0", "data.max_tokens"),
        ("data.labels=[]", "data.labels"),
        ("training.learning_rate=nan", "learning_rate"),
        ("data.task=guessing", "guessing"),
        ("model.tuning.full.x=1", ""),
    ] {
        refused(&[change], sentence);
    }
    for (changes, sentence) in [
        (["privacy.schedule=ewpba", "privacy.reserve=-1"], "privacy.reserve"),
        (["privacy.schedule=ewpba", "privacy.step_distance=nan"], "privacy.step_distance"),
        (["privacy.method=rap-ft", "privacy.rap_ft.alpha=-5"], "privacy.rap_ft.alpha"),
        (["privacy.method=ew-ft", "privacy.local.dims=[100000]"], "privacy.local.dims"),
        (["privacy.method=mvg", "privacy.mvg.spread=inf"], "privacy.mvg.spread"),
        (["privacy.method=anadp", "privacy.anadp.alpha=2.0"], "anadp.alpha"),
        (["data.author=who", "data.most_per_author=0"], "data.most_per_author"),
    ] {
        refused(&changes, sentence);
    }
    for (initial, sentence) in [
        ("privacy.rap_ft.initial={ top_p = 7.0 }", "privacy.rap_ft.initial.top_p"),
        ("privacy.rap_ft.initial={ beam = 0 }", "privacy.rap_ft.initial.beam"),
    ] {
        let generation = ["privacy.method=rap-ft", "data.task=language-modeling", initial];
        refused(&generation, sentence);
    }
    let line = 1 + FILE.lines().position(|line| line.starts_with("batch")).unwrap();
    let said = |batch: &str| {
        let text = FILE.replace("batch = 1024", batch);
        RunFile::parse(&text, &[]).unwrap_err().to_string()
    };
    let error = said("batch = \"many\"");
    assert!(error.contains(&format!("line {line}: training.batch:")), "{error}");
    let error = said("batch = 1\ntrolley = 2");
    assert!(error.contains(&format!("line {}: training.trolley", line + 1)), "{error}");
}

#[test]
fn keys_without_effect_are_refused() {
    for (change, sentence) in [
        ("privacy.anadp.beta1=0.85", "[privacy.anadp] is for the method anadp"),
        ("privacy.rap_ft.alpha=1.0", "the method rap-ft"),
        ("privacy.adaclip.beta=0.9", "the method adaclip"),
        ("privacy.local.dims=[4]", "dp-forward, ew-ft and mvg"),
        ("privacy.mvg.width=20", "the method mvg"),
        ("privacy.step_distance=2", "schedules other than uniform"),
        ("privacy.reserve=1", "ewpba"),
        ("data.most_per_author=3", "data.author"),
        ("data.prompt=a", "completion"),
        ("data.long_texts=cut", "language-modeling"),
        ("training.momentum=0.5", "the optimizer sgd"),
    ] {
        refused(&[change], sentence);
    }
    refused(&["training.optimizer=sgd", "training.betas=[0.5, 0.5]"], "adamw");
    refused(&["privacy.method=none"], "privacy.method is \"none\"");
    let rap_ft = ["privacy.method=rap-ft", "privacy.mode=paper"];
    refused(&[&rap_ft[..], &["privacy.rap_ft.relevance={ public = \"f\" }"]].concat(), "raw maps");
    refused(&["privacy.method=rap-ft", "privacy.rap_ft.examples=9"], "relevance.noised.examples");
    refused(&["privacy.method=dp-forward", "privacy.paper.noise_is=norm"], "mode = \"paper\"");
    refused(&["privacy.method=mvg", "privacy.mvg.attention_examples=9"], "atten-dp");
}
