//! Certified differential-privacy accounting.
//!
//! Every ε is an interval `lower ≤ true ε ≤ upper`; truncation, discretization and rounding errors
//! are all on the safe side. The proofs are beside the code: [`pld`] (numerical composition of
//! privacy-loss distributions), [`gaussian`] (closed form), [`rdp`] (an upper bound), [`selection`]
//! (the best of a random number of runs), [`exponential`] (choices with probability ∝ e^score) and
//! [`gdp`] (an approximation, labeled as such).
//!
//! ```
//! use undertone_accounting::{Accountant, Composition, epsilon};
//!
//! // 14,063 steps of DP-SGD on MNIST with an expected batch size of 256.
//! let released = Composition::dp_sgd(1.1, 256.0 / 60_000.0, 14_063);
//! let answer = epsilon(&released, 1e-5, Accountant::Auto)?;
//! assert!(answer.epsilon.contains(2.38169));
//! assert!(answer.epsilon.gap() < 0.0025);
//! # Ok::<(), undertone_accounting::Error>(())
//! ```

#![warn(missing_docs)]

mod accountant;
mod bounds;
pub mod calibrate;
pub mod certificate;
mod curve;
mod error;
mod event;
pub mod exponential;
pub mod gaussian;
pub mod gdp;
mod guarantee;
pub mod ledger;
mod normal;
mod planned;
pub mod pld;
pub mod rdp;
pub mod schedule;
pub mod selection;
mod sum;
pub mod threshold;

pub use accountant::{Accountant, Answer, delta, epsilon, epsilon_to};
pub use bounds::Bounds;
pub use curve::{CurvePoint, TradeOffPoint, curve, trade_off};
pub use error::{Error, Result, SystemError};
pub use event::{Adjacency, Composition, Event, Part, limits};
pub use guarantee::{Guarantee, Mode, Threat, Unit, rounded_up};
pub use normal::{upper_quantile as normal_quantile, upper_tail as normal_tail};
pub use planned::PlannedSpending;
