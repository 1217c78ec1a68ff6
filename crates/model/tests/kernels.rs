//! Compares every kernel with its definition in double precision over random shapes on all devices,
//! and the gradients of whole models with finite differences.

use crate::common::{batch, devices, difference, fixture, on_each_device};
use crate::reference::{Wide, activation, attention, loss, norm, rows};
use proptest::prelude::*;
use undertone_data::Batch;
use undertone_model::folder::{LoadOptions, load};
use undertone_model::{Gradients, Model, Weighting};
use undertone_tensor::{
    self as tensor, Activation, AttentionShape, CpuLevel, Dropout, Error, Matrix, NormKind, Output,
    Relative, Scores, product,
};

/// Deterministic numbers that look random.
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

fn same(what: &str, ours: &Matrix, reference: &Wide) {
    close(what, ours, reference, reference.largest().max(1e-4));
}

/// Checks equality to within 2e-5 of `size`.
fn close(what: &str, ours: &Matrix, reference: &Wide, size: f64) {
    assert_eq!((ours.rows(), ours.columns()), (reference.rows, reference.columns), "{what}");
    let apart = Wide::of(ours).values.into_iter().zip(&reference.values).map(|(a, b)| {
        assert!(a.is_finite(), "{what}: a number that is not finite");
        (a - b).abs()
    });
    let apart = apart.fold(0.0, f64::max) / size;
    assert!(apart < 2e-5, "{what} on {} differs by {apart:e}", ours.device().name());
}

const ACTIVATIONS: [Activation; 5] =
    [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu, Activation::Tanh];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn normalization(
        size in (1_usize..70, 1_usize..90),
        seed: u64,
        residual: bool,
        kind in 0_usize..3,
    ) {
        let kind = [NormKind::Layer, NormKind::RootMeanSquare, NormKind::OffsetRootMeanSquare]
            [kind];
        let [x, r, dy] = [0, 1, 4].map(|salt| numbers(size.0, size.1, seed ^ salt));
        let [w, b] = [2, 3].map(|salt| numbers(1, size.1, seed ^ salt));
        let mut wide = [&x, &r, &dy, &w, &b].map(Wide::of);
        if kind == NormKind::OffsetRootMeanSquare {
            wide[3].values.iter_mut().for_each(|w| *w += 1.0);
        }
        let [wx, wr, wdy, ww, wb] = &wide;
        let (output, hat, inverse) =
            norm::forward(kind, wx, residual.then_some(wr), ww, wb, f64::from(1e-3_f32));
        let back = norm::backward(kind, &hat, &inverse, ww, wdy);
        // The terms of the gradient cancel; with a single column, all of them do.
        let terms = Wide::from_fn(size.0, size.1, |i, j| inverse[i] * ww[(0, j)] * wdy[(i, j)]);
        let size = terms.largest();
        on_each_device(|device| {
            let [x, r, dy, w, b] = [&x, &r, &dy, &w, &b].map(|m| m.to_device(&device).unwrap());
            let residual = residual.then_some(&r);
            let ours = tensor::normalize(kind, &x, residual, &w, Some(&b), 1e-3).unwrap();
            same("norm", &ours.output, &output);
            same("normalized", &ours.normalized, &hat);
            let inverse = &ours.inverse_std;
            let gradient = tensor::normalize_backward(kind, &ours.normalized, inverse, &w, &dy);
            close("norm backward", &gradient.unwrap(), &back, size);
        });
    }

    #[test]
    fn activations(size in (1_usize..40, 1_usize..70), seed: u64) {
        let [x, u, dy] = [0, 1, 2].map(|salt| numbers(size.0, size.1, seed ^ salt));
        let wide = [&x, &u, &dy].map(Wide::of);
        let [wx, wu, wdy] = &wide;
        for kind in ACTIVATIONS {
            let f = activation::forward(kind, wx);
            on_each_device(|device| {
                let [x, u, dy] = [&x, &u, &dy].map(|m| m.to_device(&device).unwrap());
                same("f", &tensor::activate(kind, &x).unwrap(), &f);
                let back = tensor::activate_backward(kind, &x, &dy).unwrap();
                same("f'", &back, &activation::backward(kind, wx, wdy));
                same("gate", &tensor::gate(kind, &x, &u).unwrap(), &rows::multiply(&f, wu));
                let (gate, up) = tensor::gate_backward(kind, &x, &u, &dy).unwrap();
                same("gate'", &gate, &activation::backward(kind, wx, &rows::multiply(wu, wdy)));
                same("up'", &up, &rows::multiply(&f, wdy));
            });
        }
    }

    #[test]
    fn soft_capping(size in (1_usize..40, 1_usize..70), cap in 0.3_f32..40.0, seed: u64) {
        let [x, dy] = [0, 1].map(|salt| numbers(size.0, size.1, seed ^ salt));
        let [wx, wdy] = [&x, &dy].map(Wide::of);
        let c = f64::from(cap);
        let y = Wide::from_fn(size.0, size.1, |i, j| c * (wx[(i, j)] / c).tanh());
        let slope = |i, j| 1.0 - (wx[(i, j)] / c).tanh().powi(2);
        let back = Wide::from_fn(size.0, size.1, |i, j| slope(i, j) * wdy[(i, j)]);
        on_each_device(|device| {
            let [x, dy] = [&x, &dy].map(|m| m.to_device(&device).unwrap());
            let capped = tensor::soft_cap(&x, cap).unwrap();
            same("soft-capping", &capped, &y);
            let gradient = tensor::soft_cap_backward(&capped, &dy, cap).unwrap();
            same("soft-capping backward", &gradient, &back);
        });
    }

    #[test]
    fn attention_of_packed_sequences(
        lengths in prop::collection::vec(1_usize..150, 1..4),
        key_heads in 1_usize..3,
        group in 1_usize..3,
        width in 1_usize..20,
        causal: bool,
        dropped: bool,
        scored: bool,
        seed: u64,
    ) {
        let mut starts = vec![0];
        for length in &lengths {
            starts.push(starts[starts.len() - 1] + length);
        }
        let tokens = starts[starts.len() - 1];
        let dropout = dropped.then_some(Dropout { rate: 0.3, seed });
        let heads = key_heads * group;
        // Windows from one token to longer than the sequence, and caps that affect most scores.
        let scores = match scored {
            false => Scores::default(),
            true => Scores {
                scale: seed.is_multiple_of(2).then_some(0.7),
                window: Some((seed % 170) as usize + 1).filter(|_| !seed.is_multiple_of(3)),
                soft_cap: (!seed.is_multiple_of(5)).then_some(0.5 + (seed % 7) as f32),
            },
        };
        let shape =
            AttentionShape { starts: &starts, heads, key_heads, width, causal, dropout, scores };
        let qkv = numbers(tokens, shape.columns(), seed);
        let dy = numbers(tokens, shape.heads * width, seed ^ 1);
        let output = attention::forward(&Wide::of(&qkv), None, &shape);
        let back = attention::backward(&Wide::of(&qkv), None, &Wide::of(&dy), &shape).qkv;
        on_each_device(|device| {
            let [qkv, dy] = [&qkv, &dy].map(|m| m.to_device(&device).unwrap());
            let (out, sums) = tensor::attend(&qkv, &shape).unwrap();
            same("attention", &out, &output);
            let gradient = tensor::attend_backward(&qkv, &out, &sums, &dy, &shape).unwrap();
            same("attention backward", &gradient, &back);
        });
    }

    #[test]
    fn attention_with_relative_positions(
        lengths in prop::collection::vec(1_usize..80, 1..4),
        heads in 1_usize..4,
        width in 1_usize..20,
        count in 1_u32..9,
        by_head: bool,
        with_keys: bool,
        causal: bool,
        dropped: bool,
        seed: u64,
    ) {
        let mut starts = vec![0];
        for length in &lengths {
            starts.push(starts[starts.len() - 1] + length);
        }
        let tokens = starts[starts.len() - 1];
        let longest = lengths.iter().copied().max().unwrap() as u32;
        // Distances of either sign, most of which share a bucket.
        let buckets: Vec<u32> = (0..2 * longest - 1).map(|d| (d * d / 3) % count).collect();
        let dropout = dropped.then_some(Dropout { rate: 0.3, seed });
        let scores = Scores { window: (seed % 3 == 0).then_some(30), ..Scores::default() };
        let starts = &starts[..];
        let shape =
            AttentionShape { starts, heads, key_heads: heads, width, causal, dropout, scores };
        let columns = heads * count as usize;
        let (head_stride, bucket_stride) =
            if by_head { (count as usize, 1) } else { (1, heads) };
        let qkv = numbers(tokens, shape.columns(), seed);
        let dy = numbers(tokens, heads * width, seed ^ 1);
        let [terms, more] = [2, 3].map(|salt| numbers(tokens, columns, seed ^ salt));
        let wide = [&qkv, &dy, &terms, &more].map(Wide::of);
        let [wq, wdy, wt, wm] = &wide;
        let relative = Relative {
            buckets: &buckets,
            of_queries: wt,
            of_keys: with_keys.then_some(wm),
            head_stride,
            bucket_stride,
        };
        let output = attention::forward(wq, Some(&relative), &shape);
        let back = attention::backward(wq, Some(&relative), wdy, &shape);
        on_each_device(|device| {
            let all = [&qkv, &dy, &terms, &more].map(|m| m.to_device(&device).unwrap());
            let [qkv, dy, terms, more] = &all;
            let relative = Relative {
                buckets: &buckets,
                of_queries: terms,
                of_keys: with_keys.then_some(more),
                head_stride,
                bucket_stride,
            };
            let (out, sums) = tensor::attend_relative(qkv, &relative, &shape).unwrap();
            same("attention", &out, &output);
            let gradients =
                tensor::attend_relative_backward(qkv, &relative, &out, &sums, dy, &shape).unwrap();
            same("attention backward", &gradients.qkv, &back.qkv);
            // The slopes of a row sum to 0; the remainder is compared with the size of one slope.
            let slope = 1.5 * width as f64;
            close("terms of queries", &gradients.of_queries, &back.of_queries, slope);
            assert_eq!(gradients.of_keys.is_some(), with_keys);
            if let (Some(keys), Some(wanted)) = (&gradients.of_keys, &back.of_keys) {
                close("terms of keys", keys, wanted, slope * f64::from(longest).sqrt());
            }
        });
    }

    #[test]
    fn rotation(
        count in 1_usize..30,
        heads in 1_usize..4,
        half in 1_usize..9,
        more in 0_usize..5,
        seed: u64,
    ) {
        let columns = heads * 2 * half;
        let x = numbers(count, columns + more, seed);
        let frequencies: Vec<f32> = (0..half).map(|j| 1.0 / 10_f32.powi(j as i32)).collect();
        let positions: Vec<u32> = (0..count as u32).map(|p| p * 3 % 17).collect();
        let turned = rows::rotate(&Wide::of(&x), columns, &frequencies, &positions);
        on_each_device(|device| {
            let turn = |x, direction| {
                tensor::rotate(x, columns, &frequencies, &positions, direction).unwrap()
            };
            let ours = turn(x.to_device(&device).unwrap(), 1.0);
            same("rotation", &ours, &turned);
            same("rotation undone", &turn(ours, -1.0), &Wide::of(&x));
        });
    }

    #[test]
    fn rows_and_loss(size in (1_usize..60, 2_usize..90), seed: u64) {
        let (count, columns) = size;
        let [x, y] = [0, 1].map(|salt| numbers(count, columns, seed ^ salt));
        let (wx, wy) = (Wide::of(&x), Wide::of(&y));
        let indices: Vec<u32> =
            (0..count as u32).map(|i| i.wrapping_mul(7) % count as u32).collect();
        let factors: Vec<f32> = (0..count.max(columns)).map(|i| i as f32 * 0.1).collect();
        let (by_row, by_column) = (&factors[..count], &factors[..columns]);
        let targets: Vec<u32> = (0..count as u32).map(|i| i % columns as u32).collect();
        let dropout = Dropout { rate: 0.4, seed };
        let (losses, loss_gradient) = loss::cross_entropy(&wx, &targets, by_row);
        let scattered = rows::scatter_onto(Wide::zeros(count, columns), &wx, &indices);
        on_each_device(|device| {
            let [x, y] = [&x, &y].map(|m| m.to_device(&device).unwrap());
            same("add", &tensor::add(&x, &y).unwrap(), &rows::add(&wx, &wy));
            let mixed = tensor::lerp(y.clone(), &x, 0.25).unwrap();
            same("lerp", &mixed, &rows::lerp(&wy, &wx, 0.25));
            // Reshaped to rows of a different length, and as a block between other columns.
            let flat = x.reshape_to_columns(1).unwrap();
            assert_eq!(flat.shape(), [count * columns, 1]);
            same("flat again", &flat.reshape_to_columns(columns).unwrap(), &wx);
            let part = x.column_range(0..1).unwrap().reshape_to_columns(1).unwrap();
            let mut beside = Output::new(&device, count, columns + 1);
            beside.add_block(1..columns + 1, &x).unwrap();
            beside.add_block(0..1, &part).unwrap();
            let beside = beside.finish().unwrap();
            same("block", &beside.column_range(1..columns + 1).unwrap(), &wx);
            assert_eq!(
                beside.column_range(0..1).unwrap().to_vec().unwrap(),
                part.to_vec().unwrap()
            );
            let gathered = tensor::gather(&x, &indices).unwrap();
            same("gather", &gathered, &rows::gather(&wx, &indices));
            same("scatter", &tensor::scatter(&x, &indices, count).unwrap(), &scattered);
            let onto = tensor::scatter_onto(y.clone(), &x, &indices).unwrap();
            same("scatter onto", &onto, &rows::add(&wy, &scattered));
            same("sums", &tensor::column_sums(&x).unwrap(), &rows::column_sums(&wx));
            let sums = tensor::column_sums_of_product(&x, &y).unwrap();
            same("product sums", &sums, &rows::column_sums(&rows::multiply(&wx, &wy)));
            same("softmax", &tensor::softmax(&x).unwrap(), &loss::softmax(&wx));
            let scaled = tensor::scale_rows(&x, by_row).unwrap();
            same("scale rows", &scaled, &rows::scale_rows(&wx, by_row));
            let scaled = tensor::scale_columns(&x, by_column).unwrap();
            same("scale columns", &scaled, &rows::scale_columns(&wx, by_column));
            let dropped = tensor::drop_out(dropout, &x).unwrap();
            same("dropout", &dropped, &rows::drop_out(dropout, &wx));
            let (computed, gradient) = tensor::cross_entropy(&x, &targets, Some(by_row)).unwrap();
            let computed = computed.to_vec().unwrap();
            assert!(difference(&computed, &losses) < 1e-5);
            let alone = tensor::cross_entropy(&x, &targets, None).unwrap().0.to_vec().unwrap();
            assert!(difference(&alone, &computed) < 1e-5);
            same("loss gradient", &gradient.unwrap(), &loss_gradient);
        });
    }

    /// Matrix products of every size class (few rows, AMX tiles, the rest).
    #[test]
    fn products(
        (m, k, n) in (1_usize..140, 1_usize..700, 1_usize..140),
        turn_left: bool,
        turn_right: bool,
        seed: u64,
    ) {
        let left = if turn_left { numbers(k, m, seed) } else { numbers(m, k, seed) };
        let right = if turn_right { numbers(n, k, seed ^ 1) } else { numbers(k, n, seed ^ 1) };
        let operands = (left.plain().turned(turn_left), right.plain().turned(turn_right));
        let (a, b) = (Wide::of(&left), Wide::of(&right));
        CpuLevel::each(|level| {
        let result = product(0.5, operands.0, operands.1).unwrap().to_vec().unwrap();
        // Without fused multiply-add, products are rounded as well.
        let fused = level > CpuLevel::Portable;
        let allowed = if fused { 4e-7 } else { 8e-7 };
        let corners =
            [(0, 0), (m - 1, n - 1), (m / 2, n / 3), (m / 3, n / 2), (0, n - 1), (m - 1, 0)];
        for (i, j) in corners {
            let (mut want, mut size) = (0.0, 0.0);
            for d in 0..k {
                let x = if turn_left { a[(d, i)] } else { a[(i, d)] };
                let y = if turn_right { b[(j, d)] } else { b[(d, j)] };
                want += 0.5 * x * y;
                size += (0.5 * x * y).abs();
            }
            let wrong = (f64::from(result[i * n + j]) - want).abs();
            assert!(
                wrong <= allowed * size + 1e-30,
                "{level:?}, {m}×{k}×{n} at {i},{j}: off by {wrong:e} of {size:e}"
            );
        }
        });
    }
}

/// Incompatible operands are errors that name the operands; nothing panics.
#[test]
fn what_does_not_go_together_is_an_error_with_its_operands() {
    let (x, y) = (numbers(3, 4, 1), numbers(5, 4, 2));
    let message = |error: Error| error.to_string();
    let sum = message(tensor::add(&x, &y).unwrap_err());
    assert!(sum.contains("[3, 4]") && sum.contains("[5, 4]"), "{sum}");
    let inner = product(1.0, x.plain(), y.plain()).unwrap_err();
    assert!(matches!(inner, Error::Shapes { left: [3, 4], right: [5, 4], .. }), "{inner}");
    let row = tensor::gather(&x, &[0, 7]).unwrap_err();
    assert!(matches!(row, Error::Index { index: 7, matrix: [3, 4], .. }), "{row}");
    let class = tensor::cross_entropy(&x, &[0, 1, 4], None).unwrap_err();
    assert!(matches!(class, Error::Index { index: 4, .. }), "{class}");
    let count = tensor::scale_rows(&x, &[1.0, 2.0]).unwrap_err();
    assert!(matches!(count, Error::Count { expected: 3, found: 2, .. }), "{count}");
    assert!(matches!(x.row_range(2..4), Err(Error::Index { index: 3, .. })));
    let shape = AttentionShape {
        starts: &[0, 2],
        heads: 3,
        key_heads: 2,
        width: 1,
        causal: false,
        dropout: None,
        scores: Scores::default(),
    };
    assert!(matches!(tensor::attend(&x, &shape), Err(Error::Layout { .. })), "two of three tokens");
    let shape = AttentionShape { starts: &[0, 3], ..shape };
    assert!(matches!(tensor::attend(&x, &shape), Err(Error::Layout { .. })), "3 heads on 2");
    let mut output = Output::new(&x.device(), 3, 4);
    assert!(matches!(output.add(&y), Err(Error::Shapes { .. })));
    let other = devices().into_iter().filter(|device| device.name() != x.device().name());
    for device in other {
        let on_device = x.to_device(&device).unwrap();
        let mixed = message(tensor::add(&x, &on_device).unwrap_err());
        assert!(mixed.contains("cpu") && mixed.contains(device.name()), "{mixed}");
        let mixed = product(1.0, x.transposed(), on_device.plain()).unwrap_err();
        assert!(matches!(mixed, Error::MixedDevices { .. }), "{mixed}");
        let mixed = tensor::scatter_onto(on_device, &x, &[0, 1, 2]).unwrap_err();
        assert!(matches!(mixed, Error::MixedDevices { .. }), "{mixed}");
    }
}

/// AMX tiles must preserve what f32 preserves: values of very different magnitude in one product,
/// and special values.
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
    CpuLevel::each(|level| {
        let allowed = if level > CpuLevel::Portable { 2e-7 } else { 4e-7 };
        let result = product(
            1.0,
            Matrix::from_vec(m, k, a.clone()).plain(),
            Matrix::from_vec(k, n, b.clone()).plain(),
        );
        let result = result.unwrap().to_vec().unwrap();
        for i in 0..m {
            for j in 0..n {
                let terms = (0..k).map(|d| f64::from(a[i * k + d]) * f64::from(b[d * n + j]));
                let (want, size) = terms.fold((0.0, 0.0), |(w, s), t| (w + t, s + t.abs()));
                assert!((f64::from(result[i * n + j]) - want).abs() <= allowed * size);
            }
        }
        let mut broken = a.clone();
        broken[5] = f32::NAN;
        let result = product(
            1.0,
            Matrix::from_vec(m, k, broken).plain(),
            Matrix::from_vec(k, n, b.clone()).plain(),
        )
        .unwrap();
        let row = result.to_vec().unwrap();
        assert!(
            row[..n].iter().all(|v| v.is_nan()) && row[n..].iter().all(|v| v.is_finite()),
            "a NaN stays in its row"
        );
    });
}

#[test]
fn an_empty_batch_has_empty_results() {
    CpuLevel::each(|_| empty_results());
}

fn empty_results() {
    let none = Matrix::zeros(0, 8);
    let weight = Matrix::zeros(1, 8);
    assert_eq!(
        tensor::normalize(NormKind::Layer, &none, None, &weight, None, 1e-5).unwrap().output.rows(),
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
        scores: Scores::default(),
    };
    assert_eq!(tensor::attend(&Matrix::zeros(0, 24), &shape).unwrap().0.rows(), 0);
    assert!(tensor::column_sums(&none).unwrap().to_vec().unwrap().iter().all(|s| *s == 0.0));
    let product = product(1.0, none.transposed(), none.plain()).unwrap();
    assert!(product.to_vec().unwrap().iter().all(|s| *s == 0.0));
}

fn total_loss(model: &Model, batch: &Batch, seed: Option<u64>) -> f64 {
    let mut ignored = Gradients::new(&model.parameters);
    let losses = model.train(batch, Weighting::SumOfUnits, seed, &mut ignored).unwrap();
    losses.by_example().unwrap().iter().map(|loss| f64::from(*loss)).sum()
}

/// Moves every parameter a little along its gradient, forward and back: the loss must change by the
/// squared norm of the gradient.
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
    CpuLevel::each(|_| gradients_equal_finite_differences());
}

fn gradients_equal_finite_differences() {
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
            let (derivative, expected) = directional_derivative(&model, &batch, seed);
            assert!(
                (derivative - expected).abs() < 0.01 * expected,
                "{name} at {rate}: {derivative} is not {expected}"
            );
        }
    }
}
