//! Tokens of mteval-v13a.

/// The tokens of a text. Four passes separate characters by spaces: ASCII symbols other than
/// `' , - .`; a period or comma after a non-digit; a period or comma before a non-digit; and a
/// hyphen after a digit.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let text = text.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    let mut text = text;
    for (entity, character) in [("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")] {
        text = text.replace(entity, character);
    }
    let mut apart = vec![' '];
    for character in text.chars().chain([' ']) {
        match character.is_ascii_punctuation() && !"',-.".contains(character) {
            true => apart.extend([' ', character, ' ']),
            false => apart.push(character),
        }
    }
    let is_stop = |c: char| c == '.' || c == ',';
    let apart =
        in_pairs(&apart, |a, b| (!a.is_ascii_digit() && is_stop(b)).then_some([a, ' ', b, ' ']));
    let apart =
        in_pairs(&apart, |a, b| (is_stop(a) && !b.is_ascii_digit()).then_some([' ', a, ' ', b]));
    let apart =
        in_pairs(&apart, |a, b| (a.is_ascii_digit() && b == '-').then_some([a, ' ', b, ' ']));
    let apart: String = apart.into_iter().collect();
    apart.split_whitespace().map(str::to_owned).collect()
}

/// The tokens of a text in lowercase.
pub(super) fn lowercase_tokens(text: &str) -> Vec<String> {
    tokens(text).into_iter().map(|token| token.to_lowercase()).collect()
}

/// Replaces non-overlapping pairs of adjacent characters, from left to right.
fn in_pairs(text: &[char], replace: impl Fn(char, char) -> Option<[char; 4]>) -> Vec<char> {
    let (mut replaced, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        let pair = text.get(at + 1).and_then(|&next| replace(text[at], next));
        match pair {
            Some(pair) => replaced.extend(pair),
            None => replaced.push(text[at]),
        }
        at += if pair.is_some() { 2 } else { 1 };
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_tokens_and_numbers_stay_whole() {
        let actual = tokens("It's 3.5 miles (5,600 m): 1-2, e.g. A/B &amp; \"C\".");
        let expected = [
            "It's", "3.5", "miles", "(", "5,600", "m", ")", ":", "1", "-", "2", ",", "e", ".", "g",
            ".", "A", "/", "B", "&", "\"", "C", "\"", ".",
        ];
        assert_eq!(actual, expected);
    }
}
