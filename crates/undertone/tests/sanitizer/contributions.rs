//! Contributions of tokens to the layer's columns.

use super::{KINDS, config, model};
use undertone::explain::contribution::{positional, shares, token_contributions};
use undertone::model::architecture::Architecture;
use undertone::model::layer::head::Pick;
use undertone::model::layer::sanitizer::{NoiseLayer, Rows};
use undertone::model::sanitized::set;

#[test]
fn contributions_multiply_and_sum_to_one() {
    // Two layers by hand: |W1| = [[1, 3], [1, 1]] and |W2| = [[2, 6]] as [outputs, inputs].
    let config = config(NoiseLayer::Output, Rows::First, &[2, 1]);
    let mut by_hand = model(Architecture::Bert, &config);
    let layer = by_hand.network.sanitizer.clone().unwrap();
    let mut first = vec![0.0; 2 * 16];
    (first[0], first[1], first[16], first[17]) = (1.0, -3.0, -1.0, 1.0);
    set(&mut by_hand, layer.encoder[0].weight, first).unwrap();
    set(&mut by_hand, layer.encoder[1].weight, vec![-2.0, 6.0]).unwrap();
    let r1 = shares(&layer.encoder[0], &by_hand.parameters).unwrap();
    let r2 = shares(&layer.encoder[1], &by_hand.parameters).unwrap();
    assert_eq!((r1[(0, 0)], r1[(1, 0)], r1[(0, 1)], r1[(1, 1)]), (0.25, 0.75, 0.5, 0.5));
    assert_eq!((r2[(0, 0)], r2[(1, 0)]), (0.25, 0.75));
    let both = r1 * r2;
    assert!((both[(0, 0)] - (0.25 * 0.25 + 0.5 * 0.75)).abs() < 1e-12);
    assert!((both[(1, 0)] - (0.75 * 0.25 + 0.5 * 0.75)).abs() < 1e-12);

    for architecture in KINDS {
        let model = model(architecture, &config);
        let last = model.network.head.pick == Pick::Last;
        let map = positional(&model, 12, last).unwrap();
        assert_eq!((map.heads, map.tokens), (4, 12));
        let contributions = token_contributions(&model, &map).unwrap();
        assert_eq!(contributions.shape(), (12, 1));
        for column in contributions.column_iter() {
            assert!((column.sum() - 1.0).abs() < 1e-9 && column.iter().all(|&x| x >= 0.0));
        }
    }
}
