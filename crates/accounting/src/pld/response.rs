//! Randomized responses, composed exactly: their few atoms need no grid.
//!
//! If the total loss is A + L with independent A (the responses, masses m_a at losses a) and L (all
//! other events), then conditioning on A gives δ(ε) = Σ m_a δ_L(ε − a). The responses are
//! symmetric, so this holds for both directions.

use super::pair::{Pair, Repeated};
use super::tail::Tail;

/// Maximum number of atoms that are summed individually.
const MOST_ATOMS: usize = 4096;
/// Relative rounding error of all sums and products of up to [`MOST_ATOMS`] terms.
const SLACK: f64 = 1e-11;

/// The privacy-loss distribution of a composition of randomized responses.
pub struct Responses {
    /// (loss, mass under P).
    atoms: Vec<(f64, f64)>,
}

impl Responses {
    /// Removes from `pairs` the responses that can be composed exactly.
    pub fn split_off(pairs: Vec<Repeated>) -> (Responses, Vec<Repeated>) {
        let mut atoms = vec![(0.0, 1.0)];
        let mut rest = Vec::new();
        for part in pairs {
            let grown = (part.count as usize).saturating_mul(2).saturating_add(1);
            match part.pair {
                Pair::Response { .. } if grown.saturating_mul(atoms.len()) <= MOST_ATOMS => {
                    let more = repeated_atoms(&part);
                    atoms = atoms
                        .iter()
                        .flat_map(|&(l, p)| more.iter().map(move |&(k, q)| (l + k, p * q)))
                        .filter(|&(_, mass)| mass > 0.0)
                        .collect();
                }
                _ => rest.push(part),
            }
        }
        (Responses { atoms }, rest)
    }

    /// Whether there are no responses.
    pub fn is_empty(&self) -> bool {
        self.atoms.len() == 1
    }

    /// (loss, mass under P), for planning.
    pub fn atoms(&self) -> &[(f64, f64)] {
        &self.atoms
    }

    /// A bound on δ(ε) from a bound on the curve of all other events (`None` if there are no
    /// others).
    pub fn delta(&self, rest: Option<&Tail>, epsilon: f64, side: f64) -> f64 {
        let sum: f64 = self
            .atoms
            .iter()
            .map(|&(loss, mass)| {
                let shifted = epsilon - loss;
                // Any two distributions have δ(ε) ≥ 1 − e^ε, with equality if they are equal.
                let least = (-shifted.exp_m1()).max(0.0);
                mass * rest.map_or(least, |tail| tail.delta(shifted).max(least))
            })
            .sum();
        (sum * (1.0 + side * SLACK)).clamp(0.0, 1.0)
    }
}

/// `count` equal responses: the loss is ε times (the number of true values minus the number of
/// occurrences of one particular other value).
fn repeated_atoms(part: &Repeated) -> Vec<(f64, f64)> {
    let Pair::Response { epsilon, .. } = part.pair else { return vec![(0.0, 1.0)] };
    let single = part.pair.atoms();
    let mass_at = |sign: f64| -> f64 {
        single
            .iter()
            .filter(|(l, _)| l.partial_cmp(&0.0) == sign.partial_cmp(&0.0))
            .map(|a| a.1)
            .sum()
    };
    let step = [mass_at(-1.0), mass_at(0.0), mass_at(1.0)];
    let mut masses = vec![1.0];
    for _ in 0..part.count {
        let mut next = vec![0.0; masses.len() + 2];
        for (i, m) in masses.iter().enumerate() {
            for (j, s) in step.iter().enumerate() {
                next[i + j] += m * s;
            }
        }
        masses = next;
    }
    let middle = part.count as f64;
    masses.into_iter().enumerate().map(|(i, m)| ((i as f64 - middle) * epsilon, m)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atoms_sum_to_one_and_stay_one_when_reversed() {
        let pair = Pair::Response { epsilon: 1.3, categories: 5.0 };
        let atoms = repeated_atoms(&Repeated { pair, count: 7 });
        let p: f64 = atoms.iter().map(|a| a.1).sum();
        let q: f64 = atoms.iter().map(|a| a.1 * (-a.0).exp()).sum();
        assert!((p - 1.0).abs() < 1e-14 && (q - 1.0).abs() < 1e-13, "{p} {q}");
    }

    #[test]
    fn one_response_alone_is_pure() {
        let pair = Pair::Response { epsilon: 2.0, categories: 3.0 };
        let (responses, rest) = Responses::split_off(vec![Repeated { pair, count: 1 }]);
        assert!(rest.is_empty());
        assert_eq!(responses.delta(None, 2.0, 1.0), 0.0);
        // P(truth) − e^ε P(one other | other truth) at ε = 1: (e² − e)/(e² + 2)
        let e = std::f64::consts::E;
        let expected = (e * e - e) / (e * e + 2.0);
        assert!((responses.delta(None, 1.0, 0.0) - expected).abs() < 1e-15);
    }
}
