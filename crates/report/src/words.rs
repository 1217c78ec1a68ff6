//! Formatting of numbers and names. Privacy bounds are rounded up, toward more privacy loss.

use undertone_accounting::{Adjacency, Bounds, Mode, Threat, Unit, rounded_up};

/// A count with thousands separators: 67349 as 67,349.
pub fn count(number: impl TryInto<u64>) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun, in the plural unless the count is 1.
pub fn times(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A share in \[0, 1\] as a percentage with one decimal, rounded up.
pub fn percent_up(share: f64) -> String {
    format!("{:.1} %", (share * 1e3 - 1e-9).ceil() / 10.0)
}

/// A share in \[0, 1\] as a percentage with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The certified interval of ε, rounded outward.
pub fn interval(bounds: &Bounds) -> String {
    format!("{:.4} to {}", (bounds.lower * 1e4).floor() / 1e4, rounded_up(bounds.upper))
}

/// δ or another small number, in scientific notation.
pub fn small(number: f64) -> String {
    if number == 1.0 {
        return "1".to_owned();
    }
    format!("{number:e}")
}

/// A number with at most three decimals, for axis labels.
pub fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// δ with three significant digits, rounded up.
pub fn small_up(number: f64) -> String {
    format!("{:.2e}", number * (1.0 + 5e-3))
}

/// e^ε, rounded up.
pub fn factor(epsilon: f64) -> String {
    let factor = epsilon.exp() * (1.0 + 1e-12);
    if factor < 100.0 {
        format!("{:.2}", (factor * 100.0).ceil() / 100.0)
    } else if factor < 1e9 {
        count(factor.ceil() as u64)
    } else {
        format!("{:.1e}", factor * 1.05)
    }
}

/// A number with about four significant digits; "–" if it is not finite.
pub fn number(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    match number.abs() {
        size if !size.is_finite() => "–".to_owned(),
        size if !(1e-4..1e7).contains(&size) => format!("{number:.3e}"),
        size if size >= 1000.0 => format!("{number:.0}"),
        size if size >= 100.0 => format!("{number:.1}"),
        size if size >= 10.0 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

/// A duration in seconds, minutes or hours.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// The privacy unit, with its meaning.
pub fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Example => "example: one training example",
        Unit::User => "user: all examples of one person",
    }
}

/// One privacy unit, in plain words.
pub fn one(unit: Unit) -> &'static str {
    match unit {
        Unit::Example => "one example",
        Unit::User => "all examples of one person",
    }
}

/// Privacy units in the plural, in plain words.
pub fn several(unit: Unit) -> &'static str {
    match unit {
        Unit::Example => "examples",
        Unit::User => "people",
    }
}

/// The adjacency relation, with its meaning.
pub fn adjacency(adjacency: Adjacency) -> &'static str {
    match adjacency {
        Adjacency::AddRemove => "add-remove: with the unit, or without it",
        Adjacency::ReplaceOne => "replace-one: with the unit, or with any other in its place",
    }
}

/// The threat model: what the adversary sees.
pub fn threat(threat: Threat) -> &'static str {
    match threat {
        Threat::Central => {
            "central: a trusted curator trains; the adversary sees every update and the final \
             weights"
        }
        Threat::Local => {
            "local DP: the provider is the adversary; it sees every perturbed embedding as it \
             arrives, and knows whose it is"
        }
    }
}

/// The ledger's mode: whether ε is proved for the algorithm that ran.
pub fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Proved => "proved: ε is a theorem about what ran",
        Mode::Paper => {
            "paper: a published algorithm as published; its releases are not all in the ledger"
        }
        Mode::Seeded => "seeded: anybody who knows the seed can subtract the noise",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_rounded_up() {
        assert_eq!(percent_up(0.12301), "12.4 %");
        assert_eq!(percent_up(0.123), "12.3 %");
        assert_eq!(factor(1.0), "2.72");
        assert_eq!(factor(8.0), "2,981");
        assert!(small_up(1.2341e-5).parse::<f64>().unwrap() >= 1.2341e-5);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(
            (times(1, "step"), times(1200, "step")),
            ("1 step".into(), "1,200 steps".into())
        );
        assert_eq!(
            (number(0.83214), number(123.456), number(3e-5)),
            ("0.8321".into(), "123.5".into(), "3.000e-5".into())
        );
        assert_eq!((number(f64::NAN), number(0.0)), ("–".into(), "0".into()));
        assert_eq!(duration(200.0), "3.3 min");
    }
}
