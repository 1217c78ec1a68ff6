//! Relevance propagation rules, one per operation.
//!
//! Relevance is conserved: an operation distributes exactly the relevance of its output to its
//! inputs. If all inputs are 0, there are no proportions to distribute by, and the relevance is
//! lost.

use undertone_settings::ActivationRule;
use undertone_tensor::{self as tensor, Host, Matrix, Result};

/// The α–β rule: the shares of positive and negative contributions, α + β = 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlphaBeta {
    pub alpha: f32,
    pub beta: f32,
}

impl Default for AlphaBeta {
    /// Positive contributions only.
    fn default() -> Self {
        Self { alpha: 1.0, beta: 0.0 }
    }
}

/// How an output's relevance is shared among its contributions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shares {
    /// α to the positive and β to the negative contributions, each proportionally (equations 3 and
    /// 4).
    AlphaBeta(AlphaBeta),
    /// Proportionally, regardless of sign (equation 6).
    Lrp0,
}

/// How a linear layer propagates relevance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearRule {
    pub shares: Shares,
    /// Whether the bias counts as a contribution, as published. Its share is not propagated, so
    /// that relevance is lost.
    pub bias_in_z: bool,
}

impl From<AlphaBeta> for LinearRule {
    fn from(rule: AlphaBeta) -> Self {
        Self { shares: Shares::AlphaBeta(rule), bias_in_z: false }
    }
}

pub fn zip(a: &Host, b: &Host, f: impl Fn(f32, f32) -> f32) -> Host {
    let values = a.dense().iter().zip(b.dense().iter()).map(|(&x, &y)| f(x, y)).collect();
    Host::from_vec(a.rows(), a.columns(), values)
}

pub fn map(a: &Host, f: impl Fn(f32) -> f32) -> Host {
    Host::from_vec(a.rows(), a.columns(), a.dense().iter().map(|&x| f(x)).collect())
}

pub fn total(a: &Host) -> f64 {
    a.dense().iter().map(|&x| f64::from(x)).sum()
}

/// A B, A Bᵀ, Aᵀ B or Aᵀ Bᵀ.
pub fn product(a: &Host, transpose_a: bool, b: &Host, transpose_b: bool) -> Result<Host> {
    let (a, b) = (Matrix::Host(a.clone()), Matrix::Host(b.clone()));
    tensor::product(1.0, a.plain().turned(transpose_a), b.plain().turned(transpose_b))?.to_host()
}

fn add(a: &Host, b: &Host) -> Host {
    zip(a, b, |x, y| x + y)
}

fn positive(a: &Host) -> Host {
    map(a, |x| x.max(0.0))
}

fn negative(a: &Host) -> Host {
    map(a, |x| x.min(0.0))
}

/// Relevance of the inputs and of the weights of y = x Wᵀ.
pub struct Through {
    pub inputs: Host,
    /// In the layout `[outputs, inputs]`.
    pub weights: Option<Host>,
}

/// Linear layer, equations 4, 6 and 13: the relevance of output i is distributed over its
/// contributions z_ij = x_j w_ij, with share α over the positive and β over the negative ones, each
/// proportionally. If all contributions have the same sign, they receive all of it. The relevance
/// of a weight is that of its contributions, summed over tokens. A bias counts as a contribution if
/// the rule says so.
pub fn linear(
    rule: impl Into<LinearRule>,
    x: &Host,
    weight: &Host,
    bias: Option<&[f32]>,
    relevance: &Host,
    want_weights: bool,
) -> Result<Through> {
    let rule = rule.into();
    let bias = bias.filter(|_| rule.bias_in_z);
    match rule.shares {
        Shares::AlphaBeta(shares) => alpha_beta(shares, x, weight, bias, relevance, want_weights),
        Shares::Lrp0 => lrp_0(x, weight, bias, relevance, want_weights),
    }
}

/// Adds a number to each column.
fn add_to_columns(sums: &mut Host, numbers: impl Fn(usize) -> f32) {
    let columns = sums.columns().max(1);
    for row in sums.values_mut().chunks_exact_mut(columns) {
        row.iter_mut().enumerate().for_each(|(i, sum)| *sum += numbers(i));
    }
}

/// Equation 6: x_j Σ_i w_ij R_i / z_i, and for the weights w_ij x_j R_i / z_i (equation 13).
fn lrp_0(
    x: &Host,
    weight: &Host,
    bias: Option<&[f32]>,
    relevance: &Host,
    want_weights: bool,
) -> Result<Through> {
    let mut z = product(x, false, weight, true)?;
    if let Some(bias) = bias {
        add_to_columns(&mut z, |i| bias[i]);
    }
    let ratio = zip(relevance, &z, divided);
    let times = |a: &Host, b: &Host| zip(a, b, |x, y| x * y);
    let inputs = times(x, &product(&ratio, false, weight, false)?);
    let weights = match want_weights {
        true => Some(times(weight, &product(&ratio, true, x, false)?)),
        false => None,
    };
    Ok(Through { inputs, weights })
}

/// Equation 4.
fn alpha_beta(
    rule: AlphaBeta,
    x: &Host,
    weight: &Host,
    bias: Option<&[f32]>,
    relevance: &Host,
    want_weights: bool,
) -> Result<Through> {
    let (xp, xn, wp, wn) = (positive(x), negative(x), positive(weight), negative(weight));
    // Sums of positive and of negative contributions to each output.
    let mut up = add(&product(&xp, false, &wp, true)?, &product(&xn, false, &wn, true)?);
    let mut down = add(&product(&xp, false, &wn, true)?, &product(&xn, false, &wp, true)?);
    if let Some(bias) = bias {
        add_to_columns(&mut up, |i| bias[i].max(0.0));
        add_to_columns(&mut down, |i| bias[i].min(0.0));
    }
    let share = |own: f32, all: f32, other: f32, share: f32| {
        if own == 0.0 {
            0.0
        } else {
            let share = if other == 0.0 { 1.0 } else { share };
            all * share / own
        }
    };
    let both = |f: &dyn Fn(f32, f32, f32) -> f32| {
        let (up, down, all) = (up.dense(), down.dense(), relevance.dense());
        let values =
            up.iter().zip(down.iter()).zip(all.iter()).map(|((&u, &d), &r)| f(u, d, r)).collect();
        Host::from_vec(relevance.rows(), relevance.columns(), values)
    };
    let su = both(&|up, down, r| share(up, r, down, rule.alpha));
    let sd = both(&|up, down, r| share(down, r, up, rule.beta));
    // A contribution is positive if the signs of input and weight agree, and negative if they
    // differ.
    let to_positive = add(&product(&su, false, &wp, false)?, &product(&sd, false, &wn, false)?);
    let to_negative = add(&product(&su, false, &wn, false)?, &product(&sd, false, &wp, false)?);
    let times = |a: &Host, b: &Host| zip(a, b, |x, y| x * y);
    let inputs = add(&times(&xp, &to_positive), &times(&xn, &to_negative));
    let weights = if want_weights {
        let of_positive = add(&product(&su, true, &xp, false)?, &product(&sd, true, &xn, false)?);
        let of_negative = add(&product(&su, true, &xn, false)?, &product(&sd, true, &xp, false)?);
        Some(add(&times(&wp, &of_positive), &times(&wn, &of_negative)))
    } else {
        None
    };
    Ok(Through { inputs, weights })
}

/// Bias, equation 16: the share b/(z + b) of its output's relevance, summed over tokens. It is read
/// off without being subtracted from the propagated relevance.
pub fn bias(outputs: &Host, bias: &[f32], relevance: &Host) -> Vec<f32> {
    let mut sums = vec![0.0; bias.len()];
    for t in 0..outputs.rows() {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += bias[i] * divided(relevance.row(t)[i], outputs.row(t)[i]);
        }
    }
    sums
}

/// r/z, kept finite if z is near 0.
pub(super) fn divided(r: f32, z: f32) -> f32 {
    const SMALL: f32 = 1e-6;
    r / if z.abs() < SMALL { SMALL.copysign(z) } else { z }
}

/// Activation function with these inputs (equation 7 with w = I, or unchanged).
pub fn activation(rule: ActivationRule, inputs: &Host, relevance: Host) -> Host {
    match rule {
        ActivationRule::Unchanged => relevance,
        ActivationRule::Positive => zip(&relevance, inputs, |r, x| if x > 0.0 { r } else { 0.0 }),
    }
}

/// Residual sum z = x + y, equations 8 to 11: each term receives its share of each element, and
/// then both are renormalized.
pub fn sum(x: &Host, y: &Host, relevance: &Host) -> (Host, Host) {
    let z = add(x, y);
    let ratio = zip(relevance, &z, divided);
    let (of_x, of_y) = (zip(x, &ratio, |x, s| x * s), zip(y, &ratio, |y, s| y * s));
    renormalized(of_x, of_y, total(relevance))
}

/// Equation 11: scales both parts, in proportion to the magnitude of their totals, so that together
/// they sum to `whole`.
pub fn renormalized(x: Host, y: Host, whole: f64) -> (Host, Host) {
    let (of_x, of_y) = (total(&x), total(&y));
    let size = of_x.abs() + of_y.abs();
    let scaled = |part: Host, own: f64| {
        if own == 0.0 || size == 0.0 {
            return map(&part, |_| 0.0);
        }
        let factor = (own.abs() / size * whole / own) as f32;
        map(&part, |x| x * factor)
    };
    (scaled(x, of_x), scaled(y, of_y))
}

/// Matrix product z = A B of two activations, as in attention, equations 8 to 11.
pub fn features(a: &Host, b: &Host, transpose_b: bool, relevance: &Host) -> Result<(Host, Host)> {
    let z = product(a, false, b, transpose_b)?;
    let ratio = zip(relevance, &z, divided);
    let of_a = zip(a, &product(&ratio, false, b, !transpose_b)?, |x, s| x * s);
    let to_b = if transpose_b {
        product(&ratio, true, a, false)?
    } else {
        product(a, true, &ratio, false)?
    };
    let of_b = zip(b, &to_b, |x, s| x * s);
    Ok(renormalized(of_a, of_b, total(relevance)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(rows: usize, columns: usize, seed: u64) -> Host {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u64 << 24) as f32 - 0.5
        };
        Host::from_vec(rows, columns, (0..rows * columns).map(|_| next()).collect())
    }

    fn near(value: f64, expected: f64) {
        assert!(
            (value - expected).abs() <= 1e-4 * expected.abs().max(1.0),
            "{value}, not {expected}"
        );
    }

    #[test]
    fn every_rule_conserves_relevance() {
        let (x, w, r) = (random(5, 7, 1), random(4, 7, 2), random(5, 4, 3));
        let lrp_0 = LinearRule { shares: Shares::Lrp0, bias_in_z: false };
        for rule in [
            AlphaBeta::default().into(),
            AlphaBeta { alpha: 2.0, beta: -1.0 }.into(),
            AlphaBeta { alpha: 0.5, beta: 0.5 }.into(),
            lrp_0,
        ] {
            let rule: LinearRule = rule;
            let through = linear(rule, &x, &w, None, &r, true).unwrap();
            near(total(&through.inputs), total(&r));
            near(total(&through.weights.unwrap()), total(&r));
        }
        let (y, r) = (random(5, 7, 4), random(5, 7, 5));
        let (of_x, of_y) = sum(&x, &y, &r);
        near(total(&of_x) + total(&of_y), total(&r));
        let (a, b, r) = (random(5, 3, 6), random(6, 3, 7), random(5, 6, 8));
        let (of_a, of_b) = features(&a, &b, true, &r).unwrap();
        near(total(&of_a) + total(&of_b), total(&r));
        let (a, b, r) = (random(5, 6, 9), random(6, 3, 10), random(5, 3, 11));
        let (of_a, of_b) = features(&a, &b, false, &r).unwrap();
        near(total(&of_a) + total(&of_b), total(&r));
    }

    /// Equation 7 as it is printed, with the weights of an activation function, the identity:
    /// Σ_i x_j w_ji / (Σ_j′ x_j′ w_j′i over q) R_i, where q are the pairs with x_j w_ji > 0.
    #[test]
    fn an_activation_is_equation_7_with_the_identity() {
        let (x, r) = (random(5, 7, 1), random(5, 7, 2));
        let weight = |j: usize, i: usize| if i == j { 1.0 } else { 0.0 };
        let in_q = |t: usize, j: usize, i: usize| x.row(t)[j] * weight(j, i) > 0.0;
        let printed = |t: usize, j: usize| -> f32 {
            let share = |i: usize| {
                let all = (0..7).filter(|&k| in_q(t, k, i)).map(|k| x.row(t)[k] * weight(k, i));
                x.row(t)[j] * weight(j, i) / all.sum::<f32>() * r.row(t)[i]
            };
            (0..7).filter(|&i| in_q(t, j, i)).map(share).sum()
        };
        let propagated = activation(ActivationRule::Positive, &x, r.clone());
        for t in 0..5 {
            for j in 0..7 {
                assert_eq!(propagated.row(t)[j], printed(t, j));
            }
        }
        assert!(total(&propagated) != total(&r));
        let numbers = |host: &Host| host.dense().to_vec();
        let unchanged = activation(ActivationRule::Unchanged, &x, r.clone());
        assert_eq!(numbers(&unchanged), numbers(&r));
        // ReLU's output contributes nothing where it is 0, so that relevance is 0 there already.
        let (relu, w) = (positive(&x), random(4, 7, 3));
        let half = LinearRule::from(AlphaBeta { alpha: 0.5, beta: 0.5 });
        for rule in [half, LinearRule { shares: Shares::Lrp0, ..half }] {
            let of_relu = linear(rule, &relu, &w, None, &random(5, 4, 4), false).unwrap().inputs;
            let through = activation(ActivationRule::Positive, &x, of_relu.clone());
            assert_eq!(numbers(&through), numbers(&of_relu));
        }
    }

    /// One output, two inputs: z = 2·3 + 1·(−1) = 6 − 1. With α = 2 and β = −1, the positive
    /// contribution gets 2 and the negative one −1.
    #[test]
    fn a_linear_layer_by_hand() {
        let (x, w, r) = (
            Host::from_vec(1, 2, vec![2.0, 1.0]),
            Host::from_vec(1, 2, vec![3.0, -1.0]),
            Host::from_vec(1, 1, vec![10.0]),
        );
        let relevance =
            linear(AlphaBeta { alpha: 2.0, beta: -1.0 }, &x, &w, None, &r, true).unwrap();
        assert_eq!(relevance.inputs.dense().to_vec(), [20.0, -10.0]);
        assert_eq!(relevance.weights.unwrap().dense().to_vec(), [20.0, -10.0]);
        let relevance = linear(AlphaBeta::default(), &x, &w, None, &r, false).unwrap();
        assert_eq!(relevance.inputs.dense().to_vec(), [10.0, 0.0]);
        // α = ½, as in the paper: half to each sign.
        let half = AlphaBeta { alpha: 0.5, beta: 0.5 };
        let relevance = linear(half, &x, &w, None, &r, true).unwrap();
        assert_eq!(relevance.inputs.dense().to_vec(), [5.0, 5.0]);
        assert_eq!(relevance.weights.unwrap().dense().to_vec(), [5.0, 5.0]);
        // With a bias of 2 in Z, the positive contributions are 6 and 2, of which 6 is propagated;
        // a bias of −3 is three quarters of the negative contributions.
        let with_bias = LinearRule { bias_in_z: true, ..half.into() };
        let relevance = linear(with_bias, &x, &w, Some(&[2.0]), &r, false).unwrap();
        assert_eq!(relevance.inputs.dense().to_vec(), [3.75, 5.0]);
        let relevance = linear(with_bias, &x, &w, Some(&[-3.0]), &r, false).unwrap();
        assert_eq!(relevance.inputs.dense().to_vec(), [5.0, 1.25]);
        assert_eq!(
            linear(half, &x, &w, Some(&[2.0]), &r, false).unwrap().inputs.dense().to_vec(),
            [5.0, 5.0]
        );
        // LRP-0: 6/5 and −1/5 of the relevance, and half of that with a bias of 5 in z.
        let lrp_0 = LinearRule { shares: Shares::Lrp0, bias_in_z: true };
        let relevance = linear(lrp_0, &x, &w, None, &r, true).unwrap();
        assert_eq!(relevance.inputs.dense().to_vec(), [12.0, -2.0]);
        assert_eq!(relevance.weights.unwrap().dense().to_vec(), [12.0, -2.0]);
        let relevance = linear(lrp_0, &x, &w, Some(&[5.0]), &r, true).unwrap();
        assert_eq!(relevance.inputs.dense().to_vec(), [6.0, -1.0]);
        assert_eq!(relevance.weights.unwrap().dense().to_vec(), [6.0, -1.0]);
        // A sum of 3 and 1 with relevance 8 gives 6 and 2.
        let (x, y) = (Host::from_vec(1, 1, vec![3.0]), Host::from_vec(1, 1, vec![1.0]));
        let (of_x, of_y) = sum(&x, &y, &Host::from_vec(1, 1, vec![8.0]));
        assert_eq!((of_x.dense()[0], of_y.dense()[0]), (6.0, 2.0));
        // b / (z + b) of the relevance: 1/5 of 10.
        assert_eq!(
            bias(&Host::from_vec(1, 1, vec![5.0]), &[1.0], &Host::from_vec(1, 1, vec![10.0])),
            [2.0]
        );
    }
}
