//! Activations in bf16 and products in TF32 on a GPU, with `UNDERTONE_TEST_DEVICE=cuda`. Compares
//! every kernel with its definition in double precision, and the bounds on per-example norms with
//! what is actually added to the sum of gradients.

use crate::common::devices;
use crate::reference::{Wide, activation, attention, loss, norm, rows};
use std::ops::Range;
use undertone_tensor::Precision;
use undertone_tensor::unit_norms::{SquareWeights, UnitSums, add_weighted_products, gradients};
use undertone_tensor::{
    self as tensor, Activation, AttentionShape, CoordinateWeights, Device, Dropout, Matrix,
    NormKind, Output, Scores, product,
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

/// The GPU in every precision that rounds, if a GPU is tested.
fn rounding_devices() -> Vec<Device> {
    let gpus = devices().into_iter().filter(|device| device.name() == "cuda");
    let each = |gpu: Device| {
        [Precision::Tf32, Precision::Bf16].map(|p| gpu.clone().with_precision(p).unwrap())
    };
    gpus.flat_map(each).collect()
}

/// The matrix as activations on a device: in bf16 if that is its precision.
fn activations(matrix: &Matrix, device: &Device) -> Matrix {
    let all: Vec<u32> = (0..matrix.rows() as u32).collect();
    tensor::gather(&matrix.to_device(device).unwrap(), &all).unwrap()
}

/// Checks equality to within 2⁻⁶ of the largest value in bf16, and 2e-5 of it if only products are
/// rounded.
fn near(what: &str, ours: &Matrix, reference: &Wide, size: f64) {
    assert_eq!((ours.rows(), ours.columns()), (reference.rows, reference.columns), "{what}");
    let apart = Wide::of(ours).values.into_iter().zip(&reference.values).map(|(a, b)| {
        assert!(a.is_finite(), "{what}: a number that is not finite");
        (a - b).abs()
    });
    let apart = apart.fold(0.0, f64::max) / size.max(1e-4);
    let allowed = match (ours.device().precision(), what.starts_with("attention")) {
        (Precision::Bf16, _) => 1.0 / 64.0,
        // The products inside attention are rounded as well.
        (_, true) => 1.0 / 250.0,
        _ => 2e-5,
    };
    assert!(apart < allowed, "{what} in {} differs by {apart:e}", ours.device().precision());
}

const SIZES: [(usize, usize); 6] = [(1, 1), (3, 7), (5, 64), (33, 96), (64, 768), (2, 9000)];

#[test]
fn rows_in_bf16() {
    for device in rounding_devices() {
        for (seed, (count, columns)) in SIZES.into_iter().enumerate() {
            let seed = 10 * seed as u64;
            let matrix = |salt| activations(&numbers(count, columns, seed + salt), &device);
            let [x, y, dy] = [matrix(0), matrix(1), matrix(2)];
            let [wx, wy, wdy] = [&x, &y, &dy].map(Wide::of);
            let near = |what: &str, ours: &Matrix, reference: &Wide| {
                near(what, ours, reference, reference.largest());
            };
            near("add", &tensor::add(&x, &y).unwrap(), &rows::add(&wx, &wy));
            for kind in [Activation::Gelu, Activation::GeluTanh, Activation::Silu] {
                let f = activation::forward(kind, &wx);
                near("activation", &tensor::activate(kind, &x).unwrap(), &f);
                let back = tensor::activate_backward(kind, &x, &dy).unwrap();
                near("activation backward", &back, &activation::backward(kind, &wx, &wdy));
                near("gate", &tensor::gate(kind, &x, &y).unwrap(), &rows::multiply(&f, &wy));
                let (gate, up) = tensor::gate_backward(kind, &x, &y, &dy).unwrap();
                let want = activation::backward(kind, &wx, &rows::multiply(&wy, &wdy));
                near("gate backward", &gate, &want);
                near("up backward", &up, &rows::multiply(&f, &wdy));
            }
            let [w, b] = [3, 4].map(|salt| numbers(1, columns, seed + salt));
            let (ww, wb) = (Wide::of(&w), Wide::of(&b));
            let [w, b] = [&w, &b].map(|m| m.to_device(&device).unwrap());
            for kind in [NormKind::Layer, NormKind::RootMeanSquare] {
                let done = tensor::normalize(kind, &x, Some(&y), &w, Some(&b), 1e-3).unwrap();
                let (output, hat, inverse) = norm::forward(kind, &wx, Some(&wy), &ww, &wb, 1e-3);
                near("norm", &done.output, &output);
                near("normalized", &done.normalized, &hat);
                let back = norm::backward(kind, &Wide::of(&done.normalized), &inverse, &ww, &wdy);
                let terms = inverse.iter().fold(0.0, |most: f64, r| most.max(*r));
                let computed =
                    tensor::normalize_backward(kind, &done.normalized, &done.inverse_std, &w, &dy);
                let size = terms * ww.largest() * wdy.largest();
                super::precision::near("norm backward", &computed.unwrap(), &back, size);
            }
            let targets: Vec<u32> = (0..count as u32).map(|i| i % columns as u32).collect();
            let weights: Vec<f32> = (0..count).map(|i| 0.5 + i as f32 / 7.0).collect();
            let (losses, gradient) = loss::cross_entropy(&wx, &targets, &weights);
            let computed = tensor::cross_entropy(&x, &targets, Some(&weights)).unwrap();
            for (ours, want) in computed.0.to_vec().unwrap().iter().zip(&losses) {
                assert!((f64::from(*ours) - f64::from(*want)).abs() < 1e-4, "{ours} {want}");
            }
            near("loss gradient", &computed.1.unwrap(), &gradient);
            let dropout = Dropout { rate: 0.4, seed };
            let dropped = tensor::drop_out(dropout, &x).unwrap();
            near("dropout", &dropped, &rows::drop_out(dropout, &wx));
            let scaled = tensor::scale_rows(&x, &weights).unwrap();
            near("scaled rows", &scaled, &rows::scale_rows(&wx, &weights));
            // Sums are f32.
            let sums = tensor::column_sums(&x).unwrap();
            near("sums", &sums, &rows::column_sums(&wx));
            let indices: Vec<u32> = (0..count as u32).map(|i| (i / 40) * 3 % 5).collect();
            let scattered = tensor::scatter(&x, &indices, 5).unwrap();
            near(
                "scatter",
                &scattered,
                &rows::scatter_onto(Wide::zeros(5, columns), &wx, &indices),
            );
        }
    }
}

#[test]
fn attention_in_bf16() {
    for device in rounding_devices() {
        for (case, width) in [1, 16, 32, 48, 64, 80, 128, 256].into_iter().enumerate() {
            let starts = [0, 1, 6, 69, 133, 198, 328];
            let causal = case % 2 == 1;
            let dropout = (case % 3 == 1).then_some(Dropout { rate: 0.3, seed: 9 });
            let (heads, key_heads) = (4, [1, 2, 4][case % 3]);
            let scores = match case {
                4 => Scores { window: Some(17), ..Scores::default() },
                6 => Scores { soft_cap: Some(2.0), ..Scores::default() },
                _ => Scores::default(),
            };
            let shape = AttentionShape {
                starts: &starts,
                heads,
                key_heads,
                width,
                causal,
                dropout,
                scores,
            };
            let qkv = activations(&numbers(328, shape.columns(), case as u64), &device);
            let dy = activations(&numbers(328, heads * width, 99 + case as u64), &device);
            let (wq, wdy) = (Wide::of(&qkv), Wide::of(&dy));
            let (out, sums) = tensor::attend(&qkv, &shape).unwrap();
            let want = attention::forward(&wq, None, &shape);
            near("attention", &out, &want, want.largest());
            let computed = tensor::attend_backward(&qkv, &out, &sums, &dy, &shape).unwrap();
            let want = attention::backward(&wq, None, &wdy, &shape).qkv;
            near("attention backward", &computed, &want, want.largest());
        }
    }
}

/// Products, with sums of gradients in f32.
#[test]
fn products_in_every_precision() {
    for device in rounding_devices() {
        for (m, k, n) in [(1, 1, 1), (64, 300, 2), (130, 768, 96), (7, 33, 5), (256, 64, 3)] {
            let x = activations(&numbers(m, k, 5), &device);
            let w = numbers(n, k, 6).to_device(&device).unwrap();
            let computed = product(0.5, x.plain(), w.transposed()).unwrap();
            let (wx, ww) = (Wide::of(&x), Wide::of(&w));
            let want = Wide::from_fn(m, n, |i, j| {
                0.5 * (0..k).map(|d| wx[(i, d)] * ww[(j, d)]).sum::<f64>()
            });
            let apart = Wide::of(&computed).values.into_iter().zip(&want.values);
            let apart = apart.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1.5 * (k as f64).sqrt() / 64.0, "{m}×{k}×{n}: {apart}");
        }
    }
}

/// Σ_t e_t ⊗ a_t of some rows, and Σ_t ‖e_t‖‖a_t‖.
fn gradient(a: &Wide, e: &Wide, range: &Range<usize>) -> (Vec<f64>, f64) {
    let mut sum = vec![0.0; a.columns * e.columns];
    let mut most = 0.0;
    for t in range.clone() {
        let norm = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>().sqrt();
        most += norm(a.row(t)) * norm(e.row(t));
        for (out, e) in sum.chunks_exact_mut(a.columns).zip(e.row(t)) {
            out.iter_mut().zip(a.row(t)).for_each(|(out, a)| *out += e * a);
        }
    }
    (sum, most)
}

fn squared(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum()
}

const RANGES: [Range<usize>; 6] = [0..1, 1..1, 1..65, 65..130, 130..197, 197..330];

/// The amounts added for each unit of [`RANGES`], starting from zero.
fn summed(add: impl Fn(&mut UnitSums) -> tensor::Result<()>) -> Vec<f64> {
    let mut sums = UnitSums::new(RANGES.len());
    add(&mut sums).unwrap();
    sums.computed().unwrap()
}

/// A bound is never below the norm of what a unit actually adds to the sum, divided by its clipping
/// factor, and not far above the norm of its gradient.
#[test]
fn bounds_hold_for_what_is_really_added() {
    for device in rounding_devices() {
        for (d, p) in [(96, 200), (768, 64), (5, 3), (40, 8), (300, 1000)] {
            let a = activations(&numbers(330, d, 1), &device);
            // Gradients of equal sign add up, others cancel; the test covers both.
            let e = numbers(330, p, 2).to_vec().unwrap();
            let e = e.iter().enumerate().map(|(i, x)| if i % 2 == 0 { x.abs() } else { *x });
            let e = activations(&Matrix::from_vec(330, p, e.collect()), &device);
            let (wa, we) = (Wide::of(&a), Wide::of(&e));
            let products = |es: &[Matrix]| summed(|sums| sums.add_products(1.0, &a, es, &RANGES));
            let bounds = products(std::slice::from_ref(&e));
            let halves = [e.column_range(0..p / 2).unwrap(), e.column_range(p / 2..p).unwrap()];
            let shared = products(&halves);
            for (unit, range) in RANGES.iter().enumerate() {
                let (exact, most) = gradient(&wa, &we, range);
                let norm = squared(&exact).sqrt();
                for bound in [bounds[unit], shared[unit]] {
                    assert!(bound.sqrt() >= norm, "{range:?}: {bound} below {norm}²");
                    assert!(bound.sqrt() <= norm + 0.02 * most, "{range:?}: {bound} of {norm}²");
                }
                for clip in [1.0, 0.3713, 1e-3, 0.999] {
                    let mut factors = vec![0.0; 330];
                    factors[range.clone()].fill(clip);
                    let mut sum = Output::sum(&device, p, d);
                    sum.add_weighted_product(&e, &factors.into(), &a).unwrap();
                    let added = Wide::of(&sum.finish().unwrap());
                    let added = squared(&added.values).sqrt();
                    let most = f64::from(clip) * bounds[unit].sqrt();
                    assert!(added <= most, "{range:?}: {added} was added, above {most}");
                }
            }
        }
    }
}

/// Bounds with weights for single coordinates, on the CPU and on a GPU in every precision. They are
/// never below the norm, which is far below M here because tokens cancel each other.
#[test]
fn bounds_under_weights_are_never_too_small() {
    let all = devices().into_iter().chain(rounding_devices());
    for device in all {
        for (d, p) in [(40, 96), (130, 3), (64, 64), (1, 70)] {
            let canceling = |columns: usize, seed: u64, sign: f32| {
                let mut values = numbers(330, columns, seed).to_vec().unwrap();
                for t in (1..330).step_by(2) {
                    for j in 0..columns {
                        values[t * columns + j] = sign * values[(t - 1) * columns + j];
                    }
                }
                activations(&Matrix::from_vec(330, columns, values), &device)
            };
            let (a, e) = (canceling(d, 1, 1.0), canceling(p, 2, -1.0));
            let (wa, we) = (Wide::of(&a), Wide::of(&e));
            let weights: Vec<f32> = (0..d * p).map(|i| (i * 7 % 11) as f32 * 0.3).collect();
            let mask: Vec<f32> = (0..d * p).map(|i| f32::from(i % 3 == 0)).collect();
            let [mut first, mut second] = [0, 1].map(|_| UnitSums::new(RANGES.len()));
            let both = [&weights, &mask].map(|given| CoordinateWeights::from(given.clone()));
            let mut onto = [(&mut first, 1.0), (&mut second, 0.5)];
            let given = [&both[0], &both[1]];
            add_weighted_products(&mut onto, &e, &a, &RANGES, &given).unwrap();
            for (sums, times, given) in [(first, 1.0, &weights), (second, 0.5, &mask)] {
                let mut sums = sums;
                for (bound, range) in sums.computed().unwrap().iter().zip(&RANGES) {
                    let (exact, most) = gradient(&wa, &we, range);
                    let under = |(x, w): (&f64, &f32)| x * x * f64::from(*w);
                    let norm: f64 = exact.iter().zip(given).map(under).sum();
                    let norm = (times * norm).sqrt();
                    assert!(bound.sqrt() >= norm, "{range:?}: {bound} below {norm}²");
                    // Even for a gradient of zero, the bound is slightly above zero.
                    let most = norm + 5e-3 * most + 1e-18;
                    assert!(bound.sqrt() <= most, "{range:?}: {bound} of {norm}²");
                }
            }
        }
    }
}

/// Kept gradients on every device in every precision: they equal their definition, a unit's
/// gradient has the same bits in any batch on a GPU, and its norm and the clipped sum are computed
/// from the stored values.
#[test]
fn kept_gradients_are_what_is_added() {
    for device in devices().into_iter().chain(rounding_devices()) {
        // The shapes of LoRA's A and B, wider ones, and columns of a larger matrix.
        for (d, p, first) in
            [(768, 8, 0), (16, 1040, 0), (96, 200, 0), (5, 3, 0), (300, 72, 8), (70, 16, 3)]
        {
            let part = |columns: usize, seed: u64| {
                let all = activations(&numbers(330, columns + 2 * first, seed), &device);
                all.column_range(first..first + columns).unwrap()
            };
            let (a, e) = (part(d, 1), part(p, 2));
            let (wa, we) = (Wide::of(&a), Wide::of(&e));
            let kept = gradients(&e, &a, &RANGES).unwrap();
            let stored = Wide::of(&kept);
            let weights: Vec<f32> = (0..d * p).map(|i| (i * 7 % 11) as f32 * 0.3).collect();
            let (u, w): (Vec<f32>, Vec<f32>) = (
                (0..p).map(|i| i as f32 * 0.1).collect(),
                (0..d).map(|i| 1.0 / (1 + i) as f32).collect(),
            );
            let all = CoordinateWeights::from(weights.clone());
            let norms = |weights| summed(|sums| sums.add_squared_rows(2.0, &kept, weights));
            let kept_squares = [
                norms(SquareWeights::Ones),
                norms(SquareWeights::Coordinates(&all)),
                norms(SquareWeights::Factored { rows: &u, columns: &w }),
            ];
            for (unit, range) in RANGES.iter().enumerate() {
                let (exact, most) = gradient(&wa, &we, range);
                let row = stored.row(unit);
                for (x, y) in exact.iter().zip(row) {
                    assert!((x - y).abs() <= 1e-4 * most, "{range:?} {p} × {d}: {y} is not {x}");
                }
                let alone = gradients(&e, &a, std::slice::from_ref(range)).unwrap();
                let same = Wide::of(&alone).values.iter().zip(row).all(|(x, y)| x == y);
                assert!(same || device.name() != "cuda", "{range:?} {p} × {d} depends on others");
                let squares = |weight: &dyn Fn(usize) -> f64| -> f64 {
                    row.iter().enumerate().map(|(i, x)| 2.0 * weight(i) * x * x).sum()
                };
                let norms = [
                    squares(&|_| 1.0),
                    squares(&|i| f64::from(weights[i])),
                    squares(&|i| f64::from(u[i / d]) * f64::from(w[i % d])),
                ];
                for (norm, kept_squares) in norms.iter().zip(&kept_squares) {
                    let ratio = kept_squares[unit] / norm.max(1e-300);
                    let is_close = (1.0..1.0 + 2e-6).contains(&ratio) || *norm == 0.0;
                    assert!(is_close, "{range:?} {p} × {d}: {ratio}");
                }
                // A unit's contribution is no longer than its norm times its clipping factor.
                let mut factors = vec![0.0; RANGES.len()];
                factors[unit] = 0.371_35;
                let sum = tensor::vector_sums(&[&kept], &factors).unwrap().remove(0);
                let added = squared(&Wide::of(&sum).values).sqrt();
                let norm = f64::from(factors[unit]) * (kept_squares[0][unit] / 2.0).sqrt();
                assert!(added <= norm && added >= norm * (1.0 - 1e-6), "{added}, not {norm}");
            }
            let factors = [0.5, 1.0, 0.0, 0.25, 1e-3, 2.0];
            let sum = Wide::of(&tensor::vector_sums(&[&kept], &factors).unwrap()[0]);
            for (i, value) in sum.values.iter().enumerate() {
                let terms = factors.iter().enumerate();
                let terms = terms.map(|(unit, c)| f64::from(*c) * stored.row(unit)[i]);
                let (want, most) =
                    terms.fold((0.0, 0.0), |(sum, most), x| (sum + x, most + f64::abs(x)));
                assert!((value - want).abs() <= 1e-6 * most, "{value}, not {want}");
            }
        }
    }
}

/// The worst case of rounding: every value of c · e is rounded up as far as possible.
#[test]
fn a_bound_holds_where_all_numbers_are_rounded_up() {
    for device in rounding_devices() {
        for (d, p) in [(64, 256), (256, 64)] {
            let ones = |columns| Matrix::from_vec(1, columns, vec![1.0; columns]);
            let (a, e) = (activations(&ones(d), &device), activations(&ones(p), &device));
            let mut sums = UnitSums::new(1);
            let unit = 0..1;
            let es = std::slice::from_ref(&e);
            sums.add_products(1.0, &a, es, std::slice::from_ref(&unit)).unwrap();
            let bound = sums.computed().unwrap()[0].sqrt();
            for halfway in [257.0 / 256.0, 2049.0 / 2048.0, 1025.0 / 1024.0] {
                let clip = 0.5 * halfway * (1.0 + f32::EPSILON * 2.0);
                let mut sum = Output::sum(&device, p, d);
                sum.add_weighted_product(&e, &vec![clip].into(), &a).unwrap();
                let added = squared(&Wide::of(&sum.finish().unwrap()).values).sqrt();
                let most = f64::from(clip) * bound;
                assert!(added <= most, "{added} was added, above {most}");
            }
        }
    }
}

/// A unit's contribution does not depend on whether another unit is left out.
#[test]
fn a_unit_that_is_left_out_changes_no_other() {
    for device in rounding_devices() {
        for (d, p) in [(40, 96), (96, 40)] {
            let mut values = numbers(64, d, 1).to_vec().unwrap();
            let e = activations(&numbers(64, p, 2), &device);
            let sum_of = |weights: &[f32], values: &[f32]| {
                let a = activations(&Matrix::from_vec(64, d, values.to_vec()), &device);
                let mut sum = Output::sum(&device, p, d);
                sum.add_weighted_product(&e, &weights.to_vec().into(), &a).unwrap();
                sum.finish().unwrap().to_vec().unwrap()
            };
            // A weight so small that it adds nothing, and then a weight of zero.
            let mut weights = vec![0.37; 64];
            weights[63] = 1e-38;
            let with = sum_of(&weights, &values);
            weights[63] = 0.0;
            values[63 * d] = f32::NAN;
            let without = sum_of(&weights, &values);
            assert_eq!(with, without, "{d} and {p}");
        }
    }
}

#[test]
fn bounds_hold_for_tables_and_tied_weights() {
    for device in rounding_devices() {
        let (d, vocabulary) = (48, 37);
        let e = activations(&numbers(330, d, 3), &device);
        let left = activations(&numbers(330, vocabulary, 4), &device);
        let right = activations(&numbers(330, d, 5), &device);
        let indices: Vec<u32> = (0..330).map(|t| (t * t % 37) as u32).collect();
        let one_hot =
            Wide::from_fn(330, vocabulary, |t, j| f64::from(u8::from(indices[t] as usize == j)));
        let (we, wl, wr) = (Wide::of(&e), Wide::of(&left), Wide::of(&right));
        let of_table = summed(|sums| sums.add_table(&indices, &e, &RANGES));
        let table = (&indices[..], &e, &RANGES[..]);
        let product = (&left, &right, &RANGES[..]);
        let both = summed(|sums| sums.add_table_with_product(1.0, table, product));
        let twice = summed(|sums| sums.add_table_with_table(1.0, table, table));
        let product = (&right, &left, &RANGES[..]);
        let inner = summed(|sums| sums.add_inner_products(1.0, product, product));
        for (unit, range) in RANGES.iter().enumerate() {
            let (first, of_first) = gradient(&we, &one_hot, range);
            let (second, of_second) = gradient(&wr, &wl, range);
            let norm = squared(&first).sqrt();
            assert!(of_table[unit].sqrt() >= norm);
            assert!(of_table[unit].sqrt() <= norm + 0.02 * of_first);
            let exact: f64 = first.iter().zip(&second).map(|(x, y)| x * y).sum();
            assert!(both[unit] >= exact, "{} below {exact}", both[unit]);
            assert!(both[unit] <= exact + 0.02 * of_first * of_second);
            assert!(twice[unit] >= squared(&first));
            assert!(twice[unit] <= squared(&first) + 0.02 * of_first * of_first);
            assert!(inner[unit] >= squared(&second));
            assert!(inner[unit] <= squared(&second) + 0.02 * of_second * of_second);
        }
    }
}

/// A unit with non-finite values has a non-finite bound, and no other unit is affected.
#[test]
fn a_nan_stays_in_its_unit() {
    for device in rounding_devices() {
        for (d, p) in [(96, 200), (40, 8)] {
            let mut values = numbers(330, d, 1).to_vec().unwrap();
            values[100 * d + 3] = f32::NAN;
            values[140 * d + 1] = f32::INFINITY;
            let a = activations(&Matrix::from_vec(330, d, values), &device);
            let e = activations(&numbers(330, p, 2), &device);
            let indices: Vec<u32> = (0..330).map(|t| t % 7).collect();
            let es = [e];
            let products = summed(|sums| sums.add_products(1.0, &a, &es, &RANGES));
            let table = summed(|sums| sums.add_table(&indices, &a, &RANGES));
            let kept = gradients(&es[0], &a, &RANGES).unwrap();
            let kept = summed(|sums| sums.add_squared_rows(1.0, &kept, SquareWeights::Ones));
            for (unit, range) in RANGES.iter().enumerate() {
                let broken = range.contains(&100) || range.contains(&140);
                assert_eq!(products[unit].is_finite(), !broken, "{range:?}");
                assert_eq!(table[unit].is_finite(), !broken, "{range:?}");
                assert_eq!(kept[unit].is_finite(), !broken, "{range:?}");
            }
        }
    }
}

/// One more unit in a batch must not change how the products of the others are rounded.
#[test]
fn a_row_of_a_product_is_the_same_in_every_batch() {
    const ROWS: usize = 9001;
    let gpus = devices().into_iter().filter(|device| device.name() == "cuda");
    let each = |gpu: Device| {
        [Precision::F32, Precision::Tf32, Precision::Bf16]
            .map(|p| gpu.clone().with_precision(p).unwrap())
    };
    for device in gpus.flat_map(each) {
        for (inner, columns) in
            [(12, 36), (64, 16), (16, 768), (768, 768), (768, 3072), (3072, 768)]
        {
            let all = numbers(ROWS, inner, 3);
            let weights = numbers(inner, columns, 5).to_device(&device).unwrap();
            let turned = numbers(columns, inner, 6).to_device(&device).unwrap();
            let bias = numbers(1, columns, 7).to_device(&device).unwrap();
            let compute = |rows: usize| {
                let few: Vec<u32> = (0..rows as u32).collect();
                let left = activations(&tensor::gather(&all, &few).unwrap(), &device);
                device.compute_batch_invariant(|| {
                    let plain = product(0.5, left.plain(), weights.plain()).unwrap();
                    let mut out = Output::new(&device, rows, columns);
                    out.fill_rows(0..columns, &bias).unwrap();
                    out.add_product(0..columns, 1.0, left.plain(), turned.transposed()).unwrap();
                    let mut more = Output::onto(out.finish().unwrap());
                    more.add_product(0..columns, 1.0, left.plain(), weights.plain()).unwrap();
                    [Wide::of(&plain).values, Wide::of(&more.finish().unwrap()).values]
                })
            };
            let most = compute(ROWS);
            for rows in [1, 2, 5, 31, 64, 127, 129, 500, 2048, 8192] {
                for (few, most) in compute(rows).iter().zip(&most) {
                    let same = few.iter().zip(most).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(
                        same,
                        "{rows} rows of {inner} × {columns} in {} differ from those of {ROWS}",
                        device.precision()
                    );
                }
            }
        }
    }
}
