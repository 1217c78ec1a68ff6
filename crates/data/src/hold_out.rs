//! `data.hold_out`: units of the training file that are set aside as non-members for audits.
//!
//! # Statement
//!
//! Whether a unit is held out is a function of that unit alone: of its author's name, or of its
//! row's text. Let H be the set of held-out units and T(D) = D \ H the units that a run trains on.
//! If D′ is D with one unit added or removed, then T(D′) is T(D) with that unit added or removed,
//! or T(D′) = T(D). Therefore a mechanism that is (ε, δ)-differentially private under adding or
//! removing a unit of its input is also (ε, δ)-differentially private on D ↦ T(D), with the same ε
//! and δ.
//!
//! A rule by position in the file, or one that sets aside exactly n units, would break this: a new
//! unit would move others in or out. For this reason the setting is a fraction, never a number.
//!
//! The statement does not hold for *replacing* a unit: the new unit may fall on the other side.
//! Local methods, which use that adjacency, reject the key.
//!
//! The hash uses a fixed public key. An audit identifies the same units long after the run's secret
//! is gone, and every run with the same fraction on the same file holds out the same units. Equal
//! texts fall on the same side, so no non-member is a copy of a member.

use sha2::{Digest, Sha256};

/// Domain separation of this use of the hash.
const KEY: &[u8] = b"undertone data.hold_out 1";

/// Fraction of units that is held out, in (0, ½].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoldOut(pub f64);

impl HoldOut {
    /// Whether the unit with this name or these texts is held out.
    pub(crate) fn takes<'a>(self, unit: impl IntoIterator<Item = &'a str>) -> bool {
        let mut hash = Sha256::new();
        hash.update(KEY);
        for part in unit {
            // Each part is preceded by its length, so that distinct lists of texts hash distinct
            // inputs.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let digest = hash.finalize();
        let first = digest.iter().take(8).fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
        // 53 bits, which an `f64` represents exactly.
        ((first >> 11) as f64) < self.0 * (1_u64 << 53) as f64
    }
}

/// Which units of a file are read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Part {
    /// Every unit.
    #[default]
    All,
    /// The units that a run trains on.
    Without(HoldOut),
    /// The units that a run holds out.
    Only(HoldOut),
}

impl Part {
    /// Whether the unit with this name or these texts belongs to the part.
    pub(crate) fn has<'a>(self, unit: impl IntoIterator<Item = &'a str>) -> bool {
        match self {
            Part::All => true,
            Part::Without(hold_out) => !hold_out.takes(unit),
            Part::Only(hold_out) => hold_out.takes(unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_the_share_is_held_out_and_more_of_a_larger_one() {
        let names: Vec<String> = (0..20_000).map(|i| format!("person {i}")).collect();
        let taken = |share: f64| -> Vec<&String> {
            names.iter().filter(|name| HoldOut(share).takes([name.as_str()])).collect()
        };
        for share in [0.01_f64, 0.1, 0.5] {
            // Four standard deviations of a binomial count.
            let (mean, std) = (2e4 * share, (2e4 * share * (1.0 - share)).sqrt());
            let count = taken(share).len() as f64;
            assert!((count - mean).abs() < 4.0 * std, "{share}: {count}");
        }
        let larger = taken(0.2);
        assert!(taken(0.1).iter().all(|name| larger.contains(name)));
    }

    #[test]
    fn the_choice_never_changes() {
        // The key fixes this result: audits of finished runs depend on it.
        let taken: Vec<u32> =
            (0..40).filter(|i| HoldOut(0.2).takes([i.to_string().as_str()])).collect();
        assert_eq!(taken, [1, 8, 10, 17, 22, 24, 25, 30, 32]);
    }

    #[test]
    fn a_text_is_in_one_part_and_pairs_are_not_joined() {
        let hold_out = HoldOut(0.5);
        for i in 0..100 {
            let text = format!("text {i}");
            let texts = || [text.as_str(), "second"];
            assert_ne!(Part::Without(hold_out).has(texts()), Part::Only(hold_out).has(texts()));
            assert!(Part::All.has(texts()));
        }
        let differ = (0..100).any(|i| {
            let first = format!("{i}");
            let joined = format!("{i}b");
            hold_out.takes([first.as_str(), "bc"]) != hold_out.takes([joined.as_str(), "c"])
        });
        assert!(differ, "the border between two texts counts");
    }
}
