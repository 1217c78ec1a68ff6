//! Record and replay: neighboring data sets under the same randomness, through the real training
//! loop. No release before noise may move by more than its ledger entry assumes, and everything
//! that the second run writes must be the same, byte by byte.
//!
//! The ordinary tests take a selection; `tests/replay/run` takes everything
//! (`UNDERTONE_REPLAY=thorough`), with `UNDERTONE_TEST_DEVICE=cuda` on a GPU too, in every
//! precision.

mod bench;
mod central;
mod local;
mod power;

use bench::{Bench, Neighbors, Outcome, Row, rows};
use undertone::run::Precision;
use undertone::tensor::Device;

/// Whether all combinations are asked for.
fn is_thorough() -> bool {
    match std::env::var("UNDERTONE_REPLAY").as_deref() {
        Ok("thorough") => true,
        Ok("") | Err(_) => false,
        Ok(other) => panic!("UNDERTONE_REPLAY is thorough, not {other}"),
    }
}

/// The selection of the ordinary tests: every `part`-th of all combinations.
fn chosen<T>(all: Vec<T>, part: usize) -> Vec<T> {
    if is_thorough() {
        return all;
    }
    all.into_iter().step_by(part).collect()
}

/// Devices and precisions to compute with: the CPU, and on a GPU f32, TF32 and bf16.
fn arithmetic() -> Vec<(String, Device)> {
    let mut all = Vec::new();
    for device in crate::common::devices() {
        match &device {
            Device::Cpu => all.push(("cpu".to_owned(), device)),
            gpu => {
                for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
                    let gpu = gpu.clone().with_precision(precision).unwrap();
                    all.push((format!("cuda {precision:?}"), gpu));
                }
            }
        }
    }
    all
}

/// How far above its bound a distance may be: the rounding that the ledger lists among its
/// assumptions. Adding a unit changes how the others are packed, and so the order in which their
/// gradients are added up.
fn tolerance(device: &Device) -> f64 {
    match device {
        Device::Cpu => 1e-4,
        _ => 2e-2,
    }
}
