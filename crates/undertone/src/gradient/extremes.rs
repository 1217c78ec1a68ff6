//! Tests that no unit adds more to the clipped sum than the ledger assumes, whatever values its
//! factors hold: magnitudes from 10⁻⁴⁵ to 3·10³⁸, mixed, and with NaN and infinity among them.

use super::{
    Bounds, Clip, ClippedSum, Clipping, ClippingGroups, GhostClipping, KeepGradients, UnitRows,
    Weights,
};
use crate::data::{Batch, Example};
use crate::model::{Factor, Origin, Parameter, ParameterId, Parameters, Receiver};
use crate::tensor::{CpuLevel, Device, Matrix};
use std::sync::Arc;

/// Pseudo-random numbers of any magnitude.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    fn within(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * (self.below(1 << 30) as f64 / (1_u64 << 30) as f64)
    }

    /// A matrix whose values have similar magnitudes, with one sign or both, or unrelated
    /// magnitudes; sometimes with one non-finite value.
    fn matrix(&mut self, rows: usize, columns: usize) -> Vec<f32> {
        const CENTERS: [f64; 11] =
            [-44.0, -38.0, -30.0, -23.0, -20.0, -8.0, 0.0, 8.0, 17.0, 25.0, 37.0];
        let center = CENTERS[self.below(11) as usize];
        let spread = [0.0, 0.5, 8.0, 80.0][self.below(4) as usize];
        let both_signs = self.below(2) == 0;
        let mut number = || {
            let exponent = center + spread * self.within(-0.5, 0.5);
            let size = 10_f64.powf(exponent.clamp(-44.8, 38.5)) as f32;
            if both_signs && self.below(2) == 0 { -size } else { size }
        };
        let mut numbers: Vec<f32> = (0..rows * columns).map(|_| number()).collect();
        if self.below(20) == 0 {
            let at = self.below(numbers.len() as u64) as usize;
            numbers[at] = [f32::NAN, f32::INFINITY, -f32::INFINITY][self.below(3) as usize];
        }
        numbers
    }
}

const MATRIX: ParameterId = ParameterId(0);
const TABLE: ParameterId = ParameterId(1);
const BIAS: ParameterId = ParameterId(2);
const SCALE: ParameterId = ParameterId(3);

/// A linear layer with `inputs` and `outputs`, a tied embedding table of ten rows, a bias and a
/// norm's weight.
fn parameters(inputs: usize, outputs: usize) -> Parameters {
    let mut parameters = Parameters::default();
    for (name, rows, columns) in [
        ("layer.weight", outputs, inputs),
        ("table.weight", 10, inputs),
        ("layer.bias", 1, outputs),
        ("norm.weight", 1, inputs),
    ] {
        parameters.push(Parameter {
            name: name.to_owned(),
            shape: vec![rows, columns],
            value: Matrix::zeros(rows, columns),
            trainable: true,
            origin: Origin::Adapter,
        });
    }
    parameters
}

/// The factors that a unit with `tokens` tokens sends through the backward pass; the table and the
/// bias appear twice.
fn factors(draw: &mut Draw, tokens: usize, inputs: usize, outputs: usize) -> Vec<Factor> {
    let mut matrix =
        |columns: usize| Matrix::from_vec(tokens, columns, draw.matrix(tokens, columns));
    let (a, e) = (matrix(inputs), matrix(outputs));
    let indices: Vec<u32> = (0..tokens as u32).map(|t| t * t % 10).collect();
    vec![
        Factor::Product {
            parameter: TABLE,
            input: matrix(inputs),
            output_gradient: matrix(10),
            inputs_first: false,
            tokens: None,
        },
        Factor::Sum { parameter: BIAS, output_gradient: e.clone(), tokens: None },
        Factor::Product {
            parameter: MATRIX,
            input: a.clone(),
            output_gradient: e,
            inputs_first: false,
            tokens: None,
        },
        Factor::Scale { parameter: SCALE, input: a, output_gradient: matrix(inputs), tokens: None },
        Factor::Rows { parameter: TABLE, indices, output_gradient: matrix(inputs), tokens: None },
        Factor::Sum { parameter: BIAS, output_gradient: matrix(outputs), tokens: None },
    ]
}

/// Clipping groups, their bounds, and the group and weight of each parameter's coordinates.
struct Way {
    name: &'static str,
    groups: ClippingGroups,
    bounds: Bounds,
    of: Vec<Vec<(usize, f64)>>,
}

fn ways(parameters: &Parameters, clip: f64) -> Vec<Way> {
    let mask = |id: ParameterId| -> Vec<f32> {
        (0..parameters.get(id).len()).map(|i| if i % 3 == 0 { 1.0 } else { 0.0 }).collect()
    };
    let weight = |i: usize| 0.01 + (i * 7 % 11) as f32 * 0.3;
    let factored = |id: ParameterId| {
        let value = parameters.value(id);
        let numbers = |count: usize| (0..count).map(weight).collect();
        Weights::Factored { rows: numbers(value.rows()), columns: numbers(value.columns()) }
    };
    let elements = |id: ParameterId| {
        let (count, columns) = (parameters.get(id).len(), parameters.value(id).columns());
        let values: Vec<f32> = (0..count).map(weight).collect();
        let largest = values.iter().copied().fold(0.0, f32::max);
        Weights::Elements { values: Arc::new(values.into()), scale: 0.7, largest, columns }
    };
    let (flat, per_layer) = (Clip::Flat(clip), Clip::PerLayer(clip));
    let weighted = |name, weights: &dyn Fn(ParameterId) -> Weights| Way {
        name,
        groups: flat.groups(parameters).weighted(|id| Some(weights(id))),
        bounds: flat.bounds(1),
        of: (0..4)
            .map(|i| {
                let mut written = vec![0.0; parameters.get(ParameterId(i)).len()];
                weights(ParameterId(i)).write(0, &mut written);
                written.into_iter().map(|w| (0, f64::from(w))).collect()
            })
            .collect(),
    };
    let plain = |name, clip: &Clip, groups: [usize; 4]| Way {
        name,
        groups: clip.groups(parameters),
        bounds: clip.bounds(clip.groups(parameters).count()),
        of: (0..4).map(|i| vec![(groups[i], 1.0); parameters.get(ParameterId(i)).len()]).collect(),
    };
    vec![
        plain("flat", &flat, [0; 4]),
        plain("per layer", &per_layer, [0, 1, 0, 2]),
        plain("automatic", &Clip::Automatic, [0; 4]),
        weighted("factored weights", &factored),
        weighted("element weights", &elements),
        Way {
            name: "two groups",
            groups: ClippingGroups::split(parameters, mask),
            bounds: flat.bounds_of(vec![clip, 0.3 * clip]),
            of: (0..4)
                .map(|i| {
                    let mask = mask(ParameterId(i));
                    mask.into_iter().map(|m| (usize::from(m == 0.0), 1.0)).collect()
                })
                .collect(),
        },
    ]
}

/// Clips one unit, with kept gradients and by book-keeping.
fn check(what: &str, way: &Way, parameters: &Parameters, factors: &[Factor], device: &Device) {
    for keep in [KeepGradients::All, KeepGradients::Vectors] {
        let what = format!("{what}, {keep:?} kept");
        check_kept(&what, way, parameters, factors, device, keep);
    }
}

/// Clips one unit and checks the exact norm of its contribution to each group.
fn check_kept(
    what: &str,
    way: &Way,
    parameters: &Parameters,
    factors: &[Factor],
    device: &Device,
    keep: KeepGradients,
) {
    let tokens = factors[0].rows();
    let batch = Batch::pack(&[Example { tokens: vec![1; tokens], ..Example::default() }]);
    let mut clipping = GhostClipping::new(UnitRows::of(&batch), &way.groups).keeping(keep);
    for factor in factors {
        clipping.receive(on_device(factor, device)).unwrap();
    }
    let mut sum = ClippedSum::new(parameters);
    clipping.clip_and_sum(&way.bounds, &mut sum).unwrap();
    let mut squared = vec![0.0; way.bounds.thresholds().len()];
    for (id, _) in parameters.iter() {
        let Some(added) = sum.get(id) else { continue };
        for (x, (group, weight)) in added.to_vec().unwrap().into_iter().zip(&way.of[id.index()]) {
            squared[*group] += weight * f64::from(x).powi(2);
        }
    }
    for (squared, bound) in squared.iter().zip(way.bounds.thresholds()) {
        let norm = squared.sqrt();
        assert!(norm <= *bound, "{what}, {}, {device:?}: {norm} is above {bound}", way.name);
    }
}

fn on_device(factor: &Factor, device: &Device) -> Factor {
    let mut factor = factor.clone();
    match &mut factor {
        Factor::Product { input, output_gradient, .. }
        | Factor::Scale { input, output_gradient, .. } => {
            *input = input.to_device(device).unwrap();
            *output_gradient = output_gradient.to_device(device).unwrap();
        }
        Factor::Sum { output_gradient, .. } | Factor::Rows { output_gradient, .. } => {
            *output_gradient = output_gradient.to_device(device).unwrap();
        }
    }
    factor
}

/// Calls a function on each device, and on the CPU at every supported instruction set level.
fn on_each_device(body: impl Fn(&Device) + Sync) {
    CpuLevel::each(|_| body(&Device::Cpu));
    if std::env::var("UNDERTONE_TEST_DEVICE").as_deref() == Ok("cuda") {
        body(&Device::cuda(0).unwrap());
    }
}

/// Shapes that cover every way of computing a norm: Gram matrices in registers, Gram matrices in
/// memory, and formed gradients.
const SHAPES: [[usize; 3]; 5] =
    [[1, 40, 30], [5, 60, 70], [14, 200, 90], [40, 20, 9], [30, 130, 90]];

#[test]
fn no_unit_adds_more_than_its_bound_at_any_magnitude() {
    on_each_device(|device| {
        let mut draw = Draw(7);
        for trial in 0..60 {
            let [tokens, inputs, outputs] = SHAPES[trial % SHAPES.len()];
            let parameters = parameters(inputs, outputs);
            let factors = factors(&mut draw, tokens, inputs, outputs);
            let clip = [1e-10, 1e-3, 1.0, 1e10][draw.below(4) as usize];
            for way in ways(&parameters, clip) {
                check(&format!("trial {trial}"), &way, &parameters, &factors, device);
            }
        }
    });
}

/// Inputs whose squares underflow to 0 in f32, and output gradients whose squares barely fit: the
/// norm of the gradient is hundreds of times the bound, and all Gram matrices of the inputs are
/// zero.
#[test]
fn squares_that_underflow_do_not_hide_a_gradient() {
    on_each_device(|device| {
        for (tokens, inputs, outputs) in [(64, 512, 512), (10, 600, 400), (600, 64, 32)] {
            let parameters = parameters(inputs, outputs);
            let same = |columns: usize, x: f64| {
                Matrix::from_vec(tokens, columns, vec![x as f32; tokens * columns])
            };
            let factors = [Factor::Product {
                parameter: MATRIX,
                input: same(inputs, 2.6e-23),
                output_gradient: same(outputs, (2.5e38 / outputs as f64).sqrt()),
                inputs_first: false,
                tokens: None,
            }];
            for way in ways(&parameters, 1e-3) {
                check(&format!("{tokens} tokens"), &way, &parameters, &factors, device);
            }
        }
    });
}

/// Two uses of a bias that cancel, each with a square so large that all other norms are lost in
/// rounding next to it.
#[test]
fn uses_that_cancel_do_not_hide_other_gradients() {
    on_each_device(|device| {
        let parameters = parameters(8, 8);
        let bias = |x: f32| Factor::Sum {
            parameter: BIAS,
            output_gradient: Matrix::from_vec(1, 8, vec![x; 8]),
            tokens: None,
        };
        let ones = || Matrix::from_vec(1, 8, vec![1.0; 8]);
        let factors = [
            bias(1e15),
            Factor::Scale {
                parameter: SCALE,
                input: ones(),
                output_gradient: ones(),
                tokens: None,
            },
            bias(-1e15),
        ];
        for way in ways(&parameters, 1.0) {
            check("uses that cancel", &way, &parameters, &factors, device);
        }
    });
}
