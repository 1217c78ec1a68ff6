//! The normal flow without failures.

use super::world::{World, json, said};
use crate::bench::refused;
use std::fs;

/// Over HTTPS: owners contribute, the provider trains, owners query.
#[test]
fn owners_contribute_and_the_provider_trains_and_predicts() {
    let world = World::usual();
    let server = world.serve("127.0.0.1:0", &[]);
    let fingerprint = server.fingerprint.clone().unwrap();
    for (owner, count) in [("ada", 150), ("bob", 70)] {
        world.token(owner);
        world.texts(owner, count);
        let count = count as u64;
        // An untrusted certificate is refused until its fingerprint is given.
        refused(&world.contribute(owner, &server.url).output().unwrap(), "--fingerprint");
        let mut other = world.contribute(owner, &server.url);
        refused(&other.args(["--fingerprint", &"ab".repeat(32)]).output().unwrap(), "pinned");
        assert!(world.ledger(owner, "contribution").is_empty());
        let mut dry = world.contribute(owner, &server.url);
        let dry = json(dry.args(["--fingerprint", &fingerprint, "--dry-run"]));
        assert_eq!((dry["new"].as_u64(), dry["frames"].as_u64()), (Some(count), Some(0)));
        assert!(world.ledger(owner, "contribution").is_empty(), "a dry run spends nothing");
        // The fingerprint is now pinned.
        let done = json(&mut world.contribute(owner, &server.url));
        assert_eq!(done["new"].as_u64(), Some(count), "{done}");
        assert_eq!(done["frames"].as_u64(), Some(count.div_ceil(64)));
        let epsilon = done["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
        assert!(epsilon <= 8.0 && epsilon > 7.9, "{epsilon}");
        assert_eq!(done["guarantee"]["threat"], "local");
        // One entry for the label and one for the embedding, regardless of the number of texts.
        assert_eq!(world.ledger(owner, "contribution").len(), 2);
    }
    assert_eq!(world.stored(), [("ada".into(), 150), ("bob".into(), 70)]);
    let early = world.owner("query", "ada", &server.url).args(QUERY).output().unwrap();
    refused(&early, "has not trained");
    let trained = world.train("first");
    assert_eq!((trained["releases"].as_u64(), trained["owners"].as_u64()), (Some(220), Some(2)));
    let card = fs::read_to_string(world.bench.path("first/model/README.md")).unwrap();
    assert!(
        card.contains("Releases only: 220") && card.contains("1e-5)-differentially private"),
        "{card}"
    );
    // The trainer's verbs can read the model.
    let options = undertone::model::folder::LoadOptions::default();
    let model = undertone::model::folder::load(&world.bench.path("first/model"), &options).unwrap();
    assert!(model.network.sanitizer.is_some());
    assert!(trained["metrics"]["accuracy"].as_f64().is_some(), "{trained}");
    let answered = json(world.owner("query", "ada", &server.url).args(QUERY));
    let answer = &answered["answers"][0];
    assert!(["bad", "neutral", "good"].contains(&answer["label"].as_str().unwrap()));
    let shares = answer["probabilities"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap());
    assert!((shares.sum::<f64>() - 1.0).abs() < 1e-6);
    assert_eq!(world.ledger("ada", "query").len(), 1);
    // A repeated query sends the same release: the same answer, and no new entry.
    let again = json(world.owner("query", "ada", &server.url).args(QUERY));
    assert_eq!((&again["answers"], again["new"].as_u64()), (&answered["answers"], Some(0)));
    assert_eq!(world.ledger("ada", "query").len(), 1);
    // More releases arrive and are used for training.
    world.token("eve");
    world.texts("eve", 30);
    let mut command = world.contribute("eve", &server.url);
    json(command.args(["--fingerprint", &fingerprint]));
    assert_eq!(world.train("second")["releases"].as_u64(), Some(250));
    assert!(server.stop(), "a server that is told to stop ends without a failure");
}

const QUERY: [&str; 4] = ["--text", "the warm sun", "--epsilon-at-most", "20"];

/// A path of noise has one release per epoch, trained on by gradients; its ε is that of the last
/// release.
#[test]
fn releases_of_several_epochs_are_sent_and_learnt_from() {
    let world = World::new(
        "method = \"ew-ft\"\nepsilon = 8.0\ndelta = 1e-5\nschedule = \"linear\"\n[privacy.local]\n\
         dims = [4]\nrelease = \"path\"\nlearn = \"gradient\"\n[training]\nepochs = 3\nbatch = 32\n\
         learning_rate = 1e-2\n",
    );
    let server = world.insecure();
    world.token("ada");
    world.texts("ada", 100);
    let done = json(&mut world.contribute("ada", &server.url));
    assert_eq!(done["frames"].as_u64(), Some(3 * 2), "{done}");
    let epsilon = done["epsilon"].as_f64().unwrap();
    assert!(epsilon <= 8.0 && epsilon > 7.9, "{epsilon}");
    // The label, and the increment of each epoch.
    assert_eq!(world.ledger("ada", "contribution").len(), 4);
    assert_eq!(world.stored(), [("ada".into(), 300)]);
    assert_eq!(world.train("run")["releases"].as_u64(), Some(100));
    let answered = json(world.owner("query", "ada", &server.url).args(QUERY));
    assert_eq!(answered["answers"].as_array().unwrap().len(), 1);
}

/// New rows are released and known rows are not; each row counts, even if texts are equal.
#[test]
fn a_second_call_sends_what_is_new_and_nothing_else() {
    let world = World::usual();
    let server = world.insecure();
    world.token("ada");
    let file = world.texts("ada", 100);
    assert_eq!(json(&mut world.contribute("ada", &server.url))["new"].as_u64(), Some(100));
    let ledger = world.ledger("ada", "contribution");
    let again = json(&mut world.contribute("ada", &server.url));
    assert_eq!((again["new"].as_u64(), again["frames"].as_u64()), (Some(0), Some(0)));
    // One of the first rows again, and a text that occurs in two rows.
    let text = fs::read_to_string(&file).unwrap();
    let first = text.lines().nth(1).unwrap().replace("bad", "good");
    let more = "sun sun sun sun today\tgood\n";
    fs::write(&file, format!("{text}{first}\n{more}{more}")).unwrap();
    let more = json(&mut world.contribute("ada", &server.url));
    assert_eq!((more["new"].as_u64(), more["frames"].as_u64()), (Some(3), Some(1)), "{more}");
    assert_eq!(more["rows"].as_u64(), Some(103));
    assert_eq!(world.ledger("ada", "contribution"), ledger, "no row has cost more than before");
    assert_eq!(world.stored(), [("ada".into(), 103)]);
    // A changed label is not sent again.
    fs::write(&file, text.replace("\tbad", "\tgood")).unwrap();
    let changed = json(&mut world.contribute("ada", &server.url));
    assert_eq!((changed["new"].as_u64(), changed["rows"].as_u64()), (Some(0), Some(100)));
    let output = world.contribute("ada", &server.url).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}
