//! Saving and loading models with the layer.

use super::{batch, config, model};
use crate::common::devices;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::layer::sanitizer::{NoiseLayer, Rows};
use undertone::model::sanitized::{load_sanitizer, save_sanitizer, set};
use undertone::model::{Model, ParameterId, TaskHead};

#[test]
fn models_with_a_sanitizer_come_back_from_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(NoiseLayer::Output, Rows::Mean, &[7, 4]);
    config.direction = Some(vec![1.0, 0.5, 2.0, 1.0]);
    for decoded in [true, false] {
        config.decoded = decoded;
        let first = model(Architecture::Bert, &config);
        save_sanitizer(&first, &config, folder.path()).unwrap();
        let dimensions = Dimensions {
            layers: 3,
            hidden: 16,
            heads: 4,
            inner: 40,
            vocabulary: 60,
            positions: 100,
            key_heads: None,
        };
        let labels = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let mut second = Architecture::Bert
            .random(dimensions, TaskHead::SequenceClassification, &labels, 5)
            .unwrap();
        let base: Vec<ParameterId> = second.parameters.iter().map(|(id, _)| id).collect();
        base.iter().for_each(|&id| {
            set(&mut second, id, first.parameters.value(id).to_vec().unwrap()).unwrap()
        });
        assert_eq!(load_sanitizer(&mut second, folder.path()).unwrap(), Some(config.clone()));
        let batch = batch(&[5, 3]);
        let logits = |model: &Model| model.logits(&batch, None).unwrap().to_vec().unwrap();
        assert_eq!(logits(&first), logits(&second));
        for device in devices() {
            second.to_device(&device).unwrap();
            for (a, b) in logits(&first).iter().zip(logits(&second)) {
                assert!((a - b).abs() < 1e-4, "{a} {b}");
            }
        }
    }
    std::fs::write(folder.path().join("sanitizer.json"), "{}").unwrap();
    let mut plain = model(Architecture::Bert, &config);
    assert!(
        load_sanitizer(&mut plain, folder.path()).unwrap_err().to_string().contains("sanitizer")
    );
}
