//! Record and replay: neighboring data sets with the same randomness, through the real training
//! loop. No release may move by more than its ledger entry assumes before noise is added, and
//! everything that the second run writes must be identical, byte by byte.
//!
//! The ordinary tests run a selection. `tests/replay/run` runs everything
//! (`UNDERTONE_REPLAY=thorough`), and with `UNDERTONE_TEST_DEVICE=cuda` also on a GPU, in every
//! precision.

mod bench;
mod central;
mod local;
mod power;

use bench::{Bench, Neighbors, Outcome, Row, rows};
use undertone::tensor::Device;
use undertone::tensor::Precision;

/// Whether all combinations are requested.
fn is_thorough() -> bool {
    match std::env::var("UNDERTONE_REPLAY").as_deref() {
        Ok("thorough") => true,
        Ok("") | Err(_) => false,
        Ok(other) => panic!("UNDERTONE_REPLAY is thorough, not {other}"),
    }
}

/// The selection of the ordinary tests: one in `part` of all combinations.
fn chosen<T>(all: Vec<T>, part: usize) -> Vec<T> {
    if is_thorough() {
        return all;
    }
    all.into_iter().step_by(part).collect()
}

/// A device to compute on.
struct Arithmetic {
    name: String,
    device: Device,
    /// How far above its bound a distance may be: the rounding that the ledger lists among its
    /// assumptions. Adding a unit changes how the others are packed, and therefore the order in
    /// which their gradients are added in f32.
    tolerance: f64,
}

impl Arithmetic {
    fn cpu() -> Self {
        Self { name: "cpu".to_owned(), device: Device::Cpu, tolerance: 1e-4 }
    }

    /// The CPU, and on a GPU f32, TF32 and bf16.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for device in crate::common::devices() {
            if matches!(device, Device::Cpu) {
                all.push(Self::cpu());
                continue;
            }
            for (precision, tolerance) in
                [(Precision::F32, 1e-4), (Precision::Tf32, 1e-4), (Precision::Bf16, 1e-4)]
            {
                let device = device.clone().with_precision(precision).unwrap();
                all.push(Self { name: format!("cuda {precision:?}"), device, tolerance });
            }
        }
        all
    }
}
