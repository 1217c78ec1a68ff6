//! Examples that show which kind of string was found, without revealing it.

use super::Kind;

/// Maximum number of characters of an example.
const LONGEST: usize = 40;

/// A string with its letters and digits hidden: of names, e-mail and postal addresses, the first
/// letter of each word is left; of numbers, the last two digits; of web addresses, the scheme; of
/// secrets, the first three characters of at least twelve.
pub fn mask(text: &str, kind: Kind) -> String {
    let hidden = |c: char| if c.is_alphanumeric() { '•' } else { c };
    let short: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let characters: Vec<char> = short.chars().collect();
    let shown = |i: usize| match kind {
        Kind::Person | Kind::Email | Kind::Address => {
            let begins = i == 0 || !characters[i - 1].is_alphanumeric();
            begins && characters[i].is_alphabetic()
        }
        Kind::Phone | Kind::Iban | Kind::Card => i + 2 >= characters.len(),
        Kind::BirthDate | Kind::NationalId => false,
        Kind::Url => short.find("://").is_some_and(|end| i < end),
        Kind::Secret => i < 3 && characters.len() >= 12,
    };
    let of = |(i, c): (usize, &char)| if shown(i) { *c } else { hidden(*c) };
    let mut masked: String = characters.iter().enumerate().take(LONGEST).map(of).collect();
    if characters.len() > LONGEST {
        masked.push('…');
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_hides_nearly_everything() {
        for (text, kind, masked) in [
            ("Mara Ostrow", Kind::Person, "M••• O•••••"),
            ("m.ostrow7@example.org", Kind::Email, "m.o••••••@e••••••.o••"),
            ("+1 (713) 853-7000", Kind::Phone, "+• (•••) •••-••00"),
            ("4111 1111 1111 1111", Kind::Card, "•••• •••• •••• ••11"),
            ("1 Smith\nStreet", Kind::Address, "• S•••• S•••••"),
            ("https://example.org/a?b=c", Kind::Url, "https://•••••••.•••/•?•=•"),
            ("12.03.1980", Kind::BirthDate, "••.••.••••"),
            ("hunter2", Kind::Secret, "•••••••"),
            ("abcdefghijklmn", Kind::Secret, "abc•••••••••••"),
        ] {
            assert_eq!(mask(text, kind), masked);
        }
        assert_eq!(mask(&"x".repeat(90), Kind::Secret).chars().count(), LONGEST + 1);
    }
}
