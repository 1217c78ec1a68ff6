//! A hostile provider with an honest owner, and a hostile owner with an honest provider, over the
//! network.

use super::world::{World, limits};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use undertone::tensor::Device;
use undertone_provider::owner::{Bound, Contribute, Endpoint, Provider, contribute};
use undertone_provider::store::Location;
use undertone_provider::{hash, hex, train};

/// Modifies the tokenizer of a task, and the task's SHA-256 of it.
fn forge_tokenizer(folder: &Path, change: impl FnOnce(&mut Value)) {
    let read = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let (file, task) = (folder.join("pre/tokenizer.json"), folder.join("task.json"));
    let mut tokenizer = read(&file);
    change(&mut tokenizer);
    let bytes = tokenizer.to_string().into_bytes();
    let mut public = read(&task);
    for named in public["files"].as_array_mut().unwrap() {
        if named["name"] == "tokenizer.json" {
            named["bytes"] = json!(bytes.len());
            named["sha256"] = json!(hex(&hash(&bytes)));
        }
    }
    fs::write(file, bytes).unwrap();
    fs::write(task, public.to_string()).unwrap();
}

/// Contributes texts from a new owner's folder; returns the number of releases that the provider
/// then has.
fn stored_of(world: &World, texts: &[String]) -> u64 {
    let file = world.folder.path().join("rows.jsonl");
    let row = |text: &String| format!("{}\n", json!({ "text": text, "label": "bad" }));
    fs::write(&file, texts.iter().map(row).collect::<String>()).unwrap();
    let asked = Contribute {
        provider: Provider {
            endpoint: Endpoint::parse(&world.ready.url).unwrap(),
            token: Some(world.token.clone()),
            fingerprint: None,
            authorities: None,
            identity: None,
            task: None,
        },
        home: world.folder.path().join("owner"),
        data: file,
        format: None,
        text: vec!["text".into()],
        label: "label".into(),
        bound: Bound { epsilon: 5.0, delta: 1e-5 },
        dry_run: false,
    };
    let done = contribute(&asked, &Device::Cpu, &mut |_| ()).unwrap();
    assert_eq!((done.rows, done.new), (texts.len() as u64, texts.len() as u64));
    let mut store = Location::Sqlite(world.task.store()).open(&world.task.hash).unwrap();
    store.counts().unwrap().of_epoch(0)
}

/// Regression: with a tokenizer that maps all texts without a word to one text, the provider could
/// count the texts that contain it. With one that maps texts with the word to nothing, `contribute`
/// failed.
#[test]
fn a_tokenizer_counts_nothing() {
    for (pattern, content) in
        [("^(?![\\s\\S]*HIV)[\\s\\S]*$", "a"), ("^(?=[\\s\\S]*HIV)[\\s\\S]*$", "")]
    {
        let world = World::forged(limits(), None, |folder| {
            forge_tokenizer(folder, |tokenizer| {
                let pattern = json!({ "Regex": pattern });
                tokenizer["normalizer"] =
                    json!({ "type": "Replace", "pattern": pattern, "content": content });
                tokenizer["post_processor"] = Value::Null;
            });
        });
        let text =
            |i: usize| if i.is_multiple_of(5) { format!("HIV {i}") } else { format!("text {i}") };
        let texts: Vec<String> = (0..60).map(text).collect();
        assert_eq!(stored_of(&world, &texts), 60, "{pattern}");
    }
}

/// A release too large for any noise is refused, and training continues. Earlier, it was stored,
/// and no training succeeded after it.
#[test]
fn a_release_that_is_too_large_is_refused() {
    let world = World::start(limits());
    for id in 1..5 {
        assert!(world.contribute(id).starts_with("HTTP/1.1 200"));
    }
    for number in [3.4e38, 1e19, -1e19, 1e3] {
        let answer = world.send(&world.frame_of(9, number));
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("larger"), "{answer}");
    }
    let store = Location::Sqlite(world.task.store()).open(&world.task.hash).unwrap();
    let out = world.folder.path().join("run");
    assert_eq!(train(&world.task, store, &out, &Device::Cpu, None).unwrap().releases, 4);
}
