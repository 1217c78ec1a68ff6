//! Metrics compared with sacrebleu, mteval, rouge_score, pycocoevalcap and scikit-learn, whose
//! results fixtures/scores/make.py recorded.

use serde_json::Value;
use undertone::data::{Example, Target};
use undertone::evaluate::{
    Bleu, Cider, Meter, Metrics, Nist, Prediction, Ranking, RougeL, by_class,
};
use undertone::model::TaskHead;

fn peers() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/scores/scores.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn assert_near(ours: f64, theirs: &Value, what: &str) {
    let theirs = theirs.as_f64().unwrap();
    assert!((ours - theirs).abs() < 1e-9 * theirs.abs().max(1.0), "{what}: {ours}, not {theirs}");
}

#[test]
fn metrics_of_texts_are_those_of_the_packages() {
    let peers = peers();
    for case in peers["texts"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let (mut bleu, mut rouge) = (Bleu::default(), RougeL::default());
        let (mut nist, mut cider) = (Nist::default(), Cider::default());
        let pairs =
            case["said"].as_array().unwrap().iter().zip(case["references"].as_array().unwrap());
        for (said, references) in pairs {
            let references = references.as_array().unwrap().iter();
            let references: Vec<&str> = references.map(|text| text.as_str().unwrap()).collect();
            bleu.add(said.as_str().unwrap(), &references);
            rouge.add(said.as_str().unwrap(), &references);
            nist.add(said.as_str().unwrap(), &references);
            cider.add(said.as_str().unwrap(), &references);
        }
        assert_near(bleu.score(), &case["bleu"], name);
        assert_near(bleu.brevity_penalty(), &case["brevity_penalty"], name);
        assert_near(rouge.mean(), &case["rouge_l"], name);
        assert_near(nist.score(), &case["nist"], name);
        assert_near(cider.score(), &case["cider"], name);
    }
}

#[test]
fn classes_and_areas_are_those_of_scikit_learn() {
    for case in peers()["classes"].as_array().unwrap() {
        let rows = case["logits"].as_array().unwrap();
        let classes = rows[0].as_array().unwrap().len();
        let mut meter = Meter::new(TaskHead::SequenceClassification, classes);
        let mut ranking = Ranking::default();
        for (truth, row) in numbers(&case["truth"]).into_iter().zip(rows) {
            let example = Example { target: Target::Class(truth as u32), ..Example::default() };
            let logits = numbers(row).into_iter().map(|x| x as f32).collect();
            let prediction = Prediction { loss: Some(1.0), predictions: 1, logits };
            meter.add(&example, &prediction);
            ranking.add(&example, &prediction);
        }
        let Metrics::Classification(scores) = meter.metrics() else { unreachable!() };
        assert_near(ranking.auc().unwrap(), &case["auc"], "AUC");
        for (class, ours) in by_class(&scores.confusion, &[]).iter().enumerate() {
            let what = format!("class {class} of {classes}");
            assert_near(ours.precision, &case["precision"][class], &what);
            assert_near(ours.recall, &case["recall"][class], &what);
            assert_near(ours.f1, &case["f1"][class], &what);
            assert_eq!(case["examples"][class], ours.examples, "{what}");
        }
    }
}
