//! Secrets ranked among all strings with different digits.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// Maximum number of digits of a secret: 10 to this power fits in 64 bits.
const MOST: usize = 18;

/// A template with a `#` for each digit, and the digits of the secret.
pub struct Digits {
    pub form: String,
    pub secret: String,
}

impl Digits {
    /// The template and the digits of a text such as a phone number; `None` if it has fewer than
    /// `least` digits or more than [`MOST`].
    pub fn of(text: &str, least: usize) -> Option<Digits> {
        let secret: String = text.chars().filter(char::is_ascii_digit).collect();
        let form = text.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        let within = (least..=MOST).contains(&secret.len()) && !text.contains('#');
        within.then_some(Digits { form, secret })
    }

    fn count(&self) -> usize {
        self.form.matches('#').count()
    }

    /// Whether there is one digit for every `#`.
    pub fn fits(&self) -> bool {
        (1..=MOST).contains(&self.count())
            && self.secret.len() == self.count()
            && self.secret.bytes().all(|b| b.is_ascii_digit())
    }

    /// log₂ of the number of ways to fill the template.
    pub fn bits(&self) -> f64 {
        self.count() as f64 * 10_f64.log2()
    }

    /// The template filled with these digits.
    pub fn filled(&self, digits: &str) -> String {
        let mut digits = digits.chars();
        self.form.chars().map(|c| if c == '#' { digits.next().unwrap_or('0') } else { c }).collect()
    }

    /// The secret's digits, followed by all others, or by `most` of them sampled at random.
    pub fn candidates(&self, most: usize, seed: u64) -> Vec<String> {
        let digits = self.count();
        let space = 10_u64.pow(digits as u32);
        let name = |i: u64| format!("{i:0digits$}");
        let mut others: BTreeSet<String> = BTreeSet::new();
        if space <= most as u64 {
            others.extend((0..space).map(name));
        } else {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            while others.len() < most {
                others.insert(name(random.next_u64() % space));
            }
        }
        others.remove(&self.secret);
        std::iter::once(self.secret.clone()).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phone_number_is_a_form_with_digits() {
        let digits = Digits::of("(713) 853-7000", 4).unwrap();
        assert_eq!(
            (digits.form.as_str(), digits.secret.as_str()),
            ("(###) ###-####", "7138537000")
        );
        assert!(digits.fits());
        assert_eq!(digits.filled(&digits.secret), "(713) 853-7000");
        let candidates = digits.candidates(100, 1);
        assert_eq!((candidates.len(), candidates[0].as_str()), (101, "7138537000"));
        assert!(Digits::of("jeff.skilling@enron.com", 4).is_none());
        assert!(Digits::of(&"1".repeat(19), 4).is_none());
        // If all candidates can be enumerated, all are present, and the secret occurs once.
        assert_eq!(Digits::of("a 12", 1).unwrap().candidates(100, 1).len(), 100);
    }
}
