//! Every fused kernel against candle's plain operations over random shapes, and whole models
//! against finite differences.

mod common;

use common::{batch, difference, fixture};
use proptest::prelude::*;
use undertone::data::Batch;
use undertone::model::folder::{LoadOptions, load};
use undertone::model::{Gradients, Model, Weighting};
use undertone::tensor::{
    self, Activation, AttentionShape, Device, Dropout, Matrix, NormKind, product,
};

/// Numbers that look random and are the same in every run.
fn numbers(rows: usize, columns: usize, seed: u64) -> Matrix {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    Matrix::from_vec(rows, columns, (0..rows * columns).map(|_| 1.5 * next()).collect())
}

fn there(matrix: &Matrix) -> Matrix {
    matrix.to_device(&Device::candle_cpu()).unwrap()
}

fn same(what: &str, ours: &Matrix, reference: &Matrix) {
    assert_eq!((ours.rows(), ours.columns()), (reference.rows(), reference.columns()), "{what}");
    let found = difference(&ours.to_vec().unwrap(), &reference.to_vec().unwrap());
    assert!(found < 2e-5, "{what} differs by {found:e}");
}

const ACTIVATIONS: [Activation; 5] =
    [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu, Activation::Tanh];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn normalisation(rows in 1_usize..70, columns in 1_usize..90, seed: u64, residual: bool, kind: bool) {
        let kind = if kind { NormKind::Layer } else { NormKind::RootMeanSquare };
        let (x, r, w, b) = (numbers(rows, columns, seed), numbers(rows, columns, seed ^ 1), numbers(1, columns, seed ^ 2), numbers(1, columns, seed ^ 3));
        let dy = numbers(rows, columns, seed ^ 4);
        let (tx, tr, tw, tb) = (there(&x), there(&r), there(&w), there(&b));
        let ours = tensor::normalise(kind, &x, residual.then_some(&r), &w, Some(&b), 1e-3).unwrap();
        let theirs = tensor::normalise(kind, &tx, residual.then_some(&tr), &tw, Some(&tb), 1e-3).unwrap();
        same("norm", &ours.output, &theirs.output);
        same("normalised", &ours.normalised, &theirs.normalised);
        let back = tensor::normalise_backward(kind, &ours.normalised, &ours.inverse_deviation, &w, &dy).unwrap();
        let reference = tensor::normalise_backward(kind, &theirs.normalised, &theirs.inverse_deviation, &tw, &there(&dy)).unwrap();
        same("norm backward", &back, &reference);
    }

    #[test]
    fn activations(rows in 1_usize..40, columns in 1_usize..70, seed: u64) {
        let (x, u, dy) = (numbers(rows, columns, seed), numbers(rows, columns, seed ^ 1), numbers(rows, columns, seed ^ 2));
        let (tx, tu, ty) = (there(&x), there(&u), there(&dy));
        for kind in ACTIVATIONS {
            same("f", &tensor::activate(kind, &x).unwrap(), &tensor::activate(kind, &tx).unwrap());
            same("f'", &tensor::activate_backward(kind, &x, &dy).unwrap(), &tensor::activate_backward(kind, &tx, &ty).unwrap());
            same("gate", &tensor::gate(kind, &x, &u).unwrap(), &tensor::gate(kind, &tx, &tu).unwrap());
            let ((a, b), (ta, tb)) = (tensor::gate_backward(kind, &x, &u, &dy).unwrap(), tensor::gate_backward(kind, &tx, &tu, &ty).unwrap());
            same("gate'", &a, &ta);
            same("up'", &b, &tb);
        }
    }

    #[test]
    fn attention(lengths in prop::collection::vec(1_usize..150, 1..4), key_heads in 1_usize..3, group in 1_usize..3, width in 1_usize..20, causal: bool, dropped: bool, seed: u64) {
        let mut starts = vec![0];
        for length in &lengths {
            starts.push(starts[starts.len() - 1] + length);
        }
        let tokens = starts[starts.len() - 1];
        let dropout = dropped.then_some(Dropout { rate: 0.3, seed });
        let shape = AttentionShape { starts: &starts, heads: key_heads * group, key_heads, width, causal, dropout };
        let qkv = numbers(tokens, shape.columns(), seed);
        let dy = numbers(tokens, shape.heads * width, seed ^ 1);
        let (out, sums) = tensor::attend(&qkv, &shape).unwrap();
        let (reference, nothing) = tensor::attend(&there(&qkv), &shape).unwrap();
        same("attention", &out, &reference);
        let back = tensor::attend_backward(&qkv, &out, &sums, &dy, &shape).unwrap();
        let reference = tensor::attend_backward(&there(&qkv), &reference, &nothing, &there(&dy), &shape).unwrap();
        same("attention backward", &back, &reference);
    }

    #[test]
    fn rotation(rows in 1_usize..30, heads in 1_usize..4, half in 1_usize..9, more in 0_usize..5, seed: u64) {
        let columns = heads * 2 * half;
        let x = numbers(rows, columns + more, seed);
        let frequencies: Vec<f32> = (0..half).map(|j| 1.0 / 10_f32.powi(j as i32)).collect();
        let positions: Vec<u32> = (0..rows as u32).map(|p| p * 3 % 17).collect();
        let ours = tensor::rotate(x.clone(), columns, &frequencies, &positions, 1.0).unwrap();
        let theirs = tensor::rotate(there(&x), columns, &frequencies, &positions, 1.0).unwrap();
        same("rotation", &ours, &theirs);
        same("rotation undone", &tensor::rotate(ours, columns, &frequencies, &positions, -1.0).unwrap(), &x);
    }

    #[test]
    fn rows_and_loss(rows in 1_usize..60, columns in 2_usize..90, seed: u64) {
        let (x, y) = (numbers(rows, columns, seed), numbers(rows, columns, seed ^ 1));
        let (tx, ty) = (there(&x), there(&y));
        let indices: Vec<u32> = (0..rows as u32).map(|i| i.wrapping_mul(7) % rows as u32).collect();
        same("add", &tensor::add(&x, &y).unwrap(), &tensor::add(&tx, &ty).unwrap());
        same("gather", &tensor::gather(&x, &indices).unwrap(), &tensor::gather(&tx, &indices).unwrap());
        same("scatter", &tensor::scatter(&x, &indices, rows).unwrap(), &tensor::scatter(&tx, &indices, rows).unwrap());
        same("sums", &tensor::column_sums(&x).unwrap(), &tensor::column_sums(&tx).unwrap());
        same("product sums", &tensor::column_sums_of_product(&x, &y).unwrap(), &tensor::column_sums_of_product(&tx, &ty).unwrap());
        same("softmax", &tensor::softmax(&x).unwrap(), &tensor::softmax(&tx).unwrap());
        let factors: Vec<f32> = (0..rows).map(|i| i as f32 * 0.1).collect();
        same("scale", &tensor::scale_rows(&x, &factors).unwrap(), &tensor::scale_rows(&tx, &factors).unwrap());
        let dropout = Dropout { rate: 0.4, seed };
        same("dropout", &tensor::drop_out(dropout, &x).unwrap(), &tensor::drop_out(dropout, &tx).unwrap());
        let targets: Vec<u32> = (0..rows as u32).map(|i| i % columns as u32).collect();
        let (losses, gradient) = tensor::cross_entropy(&x, &targets, Some(&factors)).unwrap();
        let (reference, reference_gradient) = tensor::cross_entropy(&tx, &targets, Some(&factors)).unwrap();
        prop_assert!(difference(&losses, &reference) < 1e-5);
        prop_assert!(difference(&tensor::cross_entropy(&x, &targets, None).unwrap().0, &losses) < 1e-5);
        same("loss gradient", &gradient.unwrap(), &reference_gradient.unwrap());
    }

    /// Products of every size class (few rows, tiles, the rest), against double precision.
    #[test]
    fn products(m in 1_usize..140, k in 1_usize..700, n in 1_usize..140, turn_left: bool, turn_right: bool, seed: u64) {
        let left = if turn_left { numbers(k, m, seed) } else { numbers(m, k, seed) };
        let right = if turn_right { numbers(n, k, seed ^ 1) } else { numbers(k, n, seed ^ 1) };
        let found = product(0.5, left.plain().turned(turn_left), right.plain().turned(turn_right)).unwrap().to_vec().unwrap();
        let (a, b) = (left.to_vec().unwrap(), right.to_vec().unwrap());
        let at = |values: &[f32], turned: bool, row: usize, column: usize, rows: usize, columns: usize| {
            f64::from(if turned { values[column * rows + row] } else { values[row * columns + column] })
        };
        for (i, j) in [(0, 0), (m - 1, n - 1), (m / 2, n / 3), (m / 3, n / 2), (0, n - 1), (m - 1, 0)] {
            let (mut want, mut size) = (0.0, 0.0);
            for d in 0..k {
                let term = 0.5 * at(&a, turn_left, i, d, m, k) * at(&b, turn_right, d, j, k, n);
                want += term;
                size += term.abs();
            }
            let wrong = (f64::from(found[i * n + j]) - want).abs();
            prop_assert!(wrong <= 2e-7 * size + 1e-30, "{m}×{k}×{n} at {i},{j}: off by {wrong:e} \
             of {size:e}");
        }
    }
}

/// The tiles must not lose what f32 keeps: numbers of very different size in one product, and
/// special values.
#[test]
fn products_keep_large_and_small_numbers_apart() {
    let (m, k, n) = (64, 256, 64);
    let scale = |i: usize| 10_f32.powi((i % 13) as i32 - 6);
    let a: Vec<f32> = numbers(m, k, 1)
        .to_vec()
        .unwrap()
        .iter()
        .enumerate()
        .map(|(i, v)| v * scale(i / k))
        .collect();
    let b: Vec<f32> = numbers(k, n, 2)
        .to_vec()
        .unwrap()
        .iter()
        .enumerate()
        .map(|(i, v)| v * scale(i % n))
        .collect();
    let found = product(
        1.0,
        Matrix::from_vec(m, k, a.clone()).plain(),
        Matrix::from_vec(k, n, b.clone()).plain(),
    );
    let found = found.unwrap().to_vec().unwrap();
    for i in 0..m {
        for j in 0..n {
            let terms = (0..k).map(|d| f64::from(a[i * k + d]) * f64::from(b[d * n + j]));
            let (want, size) = terms.fold((0.0, 0.0), |(w, s), t| (w + t, s + t.abs()));
            assert!((f64::from(found[i * n + j]) - want).abs() <= 2e-7 * size);
        }
    }
    let mut broken = a;
    broken[5] = f32::NAN;
    let found =
        product(1.0, Matrix::from_vec(m, k, broken).plain(), Matrix::from_vec(k, n, b).plain())
            .unwrap();
    let row = found.to_vec().unwrap();
    assert!(
        row[..n].iter().all(|v| v.is_nan()) && row[n..].iter().all(|v| v.is_finite()),
        "a NaN stays in its row"
    );
}

#[test]
fn an_empty_batch_has_empty_results() {
    let none = Matrix::zeros(0, 8);
    let weight = Matrix::zeros(1, 8);
    assert_eq!(
        tensor::normalise(NormKind::Layer, &none, None, &weight, None, 1e-5).unwrap().output.rows(),
        0
    );
    assert_eq!(tensor::activate(Activation::Gelu, &none).unwrap().rows(), 0);
    let shape = AttentionShape {
        starts: &[0],
        heads: 2,
        key_heads: 2,
        width: 4,
        causal: false,
        dropout: None,
    };
    assert_eq!(tensor::attend(&Matrix::zeros(0, 24), &shape).unwrap().0.rows(), 0);
    assert!(tensor::column_sums(&none).unwrap().to_vec().unwrap().iter().all(|s| *s == 0.0));
    let product = product(1.0, none.transposed(), none.plain()).unwrap();
    assert!(product.to_vec().unwrap().iter().all(|s| *s == 0.0));
}

fn total_loss(model: &Model, batch: &Batch, seed: Option<u64>) -> f64 {
    let mut ignored = Gradients::new(&model.parameters);
    let losses = model.train(batch, Weighting::SumOfUnits, seed, &mut ignored).unwrap();
    losses.iter().map(|loss| f64::from(*loss)).sum()
}

/// Moves every parameter along its gradient a little, forward and back: the loss must change by the
/// gradient's square.
fn directional_derivative(model: &Model, batch: &Batch, seed: Option<u64>) -> (f64, f64) {
    let mut gradients = Gradients::new(&model.parameters);
    model.train(batch, Weighting::SumOfUnits, seed, &mut gradients).unwrap();
    let square: f64 = model
        .parameters
        .iter()
        .filter_map(|(id, _)| gradients.get(id))
        .flat_map(|g| g.to_vec().unwrap())
        .map(|g| f64::from(g) * f64::from(g))
        .sum();
    let step = 2e-3 / square.sqrt();
    let moved = |sign: f64| {
        let mut model = model.clone();
        for (id, parameter) in model.parameters.iter_mut() {
            let Some(gradient) = gradients.get(id) else { continue };
            let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
            let values =
                parameter.value.to_vec().unwrap().into_iter().zip(gradient.to_vec().unwrap());
            let values =
                values.map(|(v, g)| (f64::from(v) + sign * step * f64::from(g)) as f32).collect();
            parameter.value = Matrix::from_vec(rows, columns, values);
        }
        total_loss(&model, batch, seed)
    };
    ((moved(1.0) - moved(-1.0)) / (2.0 * step), square)
}

#[test]
fn gradients_equal_finite_differences_with_and_without_dropout() {
    for name in ["bert-classification", "roberta-masked-lm", "gpt2-causal-lm", "llama-causal-lm"] {
        let mut model = load(&fixture(name), &LoadOptions::default()).unwrap();
        let batch = batch(name, &model);
        for (rate, seed) in [(0.0, None), (0.2, Some(11))] {
            model.network.embeddings.dropout = rate;
            model.network.head.dropout = rate;
            for block in &mut model.network.blocks {
                block.dropout = rate;
                block.attention.dropout = rate;
            }
            let (found, expected) = directional_derivative(&model, &batch, seed);
            assert!(
                (found - expected).abs() < 0.01 * expected,
                "{name} at {rate}: {found} is not {expected}"
            );
        }
    }
}
