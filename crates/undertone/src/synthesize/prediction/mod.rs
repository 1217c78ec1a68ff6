//! Private prediction: synthetic rows without training, from a public model that reads private
//! examples (after InvisibleInk, arXiv 2507.02974).
//!
//! ```text
//! settings.rs  what was asked for; the calibrated clip    groups.rs  which text each unit steers
//! choice.rs    the mechanism: one token                   write.rs   a text, token by token
//! export.rs    the files, with the data card (card.rs)
//! ```
//!
//! # What is proved
//!
//! Every unit steers one text. Which one, and with which of the unit's rows, is a keyed hash of that
//! unit's own rows ([`Groups`]), so adding or removing a unit changes what is computed for one text
//! only. The number of texts, their classes, the divisor B and the number of tokens per text are
//! fixed beforehand.
//!
//! Let ℓ₀ be the log-probabilities of the next token after the public prompt, and ℓ_u those after
//! the prompt with the example of unit u, each followed by the text so far. The next token y is
//! drawn with probability ∝ e^{s(y)/τ} among the tokens V, where
//!
//! ```text
//! s(y) = ℓ₀(y) + (1/B) Σ_u clip(ℓ_u(y) − ℓ₀(y), ±C),
//! ```
//!
//! and V is a function of ℓ₀. Adding or removing a unit changes every s(y)/τ by at most C/(Bτ) in
//! absolute value, so the range of the change is η = 2C/(Bτ): the token is a release by an
//! [exponential mechanism](undertone_accounting::exponential). A text has at most T tokens, each of
//! which may depend on the tokens before it: T releases. The other texts have the same distribution
//! with and without the unit, given any output so far. So all texts together cost T releases, which
//! are the ledger's only entry, recorded before the first private row reaches the model.
//!
//! Clipped differences are summed as integers, so a unit does not change how the others are rounded.
//! The model computes sequences together, through which a unit can change the last digits of other
//! log-probabilities; the ledger assumes that this reveals nothing, as it does for gradients. (A
//! change of 10⁻⁵ in each of them would change the range by 10⁻⁵/C.) The uniform number that draws a
//! token has 53 bits.
//!
//! An interrupted run continues only with the same rows (by a hash): otherwise a unit whose rows were
//! edited could steer a second text.
//!
//! Where a text ends and whether it is a row depend on the drawn tokens alone: post-processing.

mod card;
mod choice;
mod export;
mod groups;
mod settings;
mod write;

pub use choice::Choice;
pub use export::export;
pub use groups::Groups;
pub use settings::{Prediction, calibrate, classes_of, releases, terms, unit};
pub use write::{Writer, positions};
