//! Packing: the short texts of one privacy unit are concatenated into sequences.
//!
//! Texts of different units never share a sequence: a gradient that depends on two units could not
//! be clipped for either.

use super::example::{Example, Target};

/// Concatenates the texts of each unit, in file order, into sequences of at most `most` tokens.
/// Only examples in which every token except the first is predicted can be packed.
pub(crate) fn pack(examples: Vec<Example>, units: usize, most: usize) -> Vec<Example> {
    // For each unit, the sequence that still has room.
    let mut last: Vec<Option<usize>> = vec![None; units];
    let mut packed: Vec<Example> = Vec::new();
    for example in examples {
        let joins = matches!(example.target, Target::Next { from: 1 });
        let open = last.get_mut(example.unit as usize);
        match open {
            Some(open) if joins => match open.map(|at| &mut packed[at]) {
                Some(sequence) if sequence.tokens.len() + example.tokens.len() <= most => {
                    sequence.tokens.extend(example.tokens);
                }
                _ => {
                    *open = Some(packed.len());
                    packed.push(example);
                }
            },
            _ => packed.push(example),
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unit: u32, tokens: &[u32]) -> Example {
        let target = Target::Next { from: 1 };
        Example { tokens: tokens.to_vec(), target, unit, ..Example::default() }
    }

    #[test]
    fn texts_of_one_unit_are_joined_and_of_two_units_never() {
        let texts = vec![
            text(0, &[1, 2]),
            text(1, &[3, 4]),
            text(0, &[5, 6]),
            text(0, &[7, 8]),
            text(1, &[9]),
        ];
        let packed = pack(texts.clone(), 2, 5);
        let expected = [text(0, &[1, 2, 5, 6]), text(1, &[3, 4, 9]), text(0, &[7, 8])];
        assert_eq!(packed, expected);
        // The property stated in this module: a unit is unaffected by the texts of other units.
        let alone: Vec<Example> =
            texts.iter().filter(|example| example.unit == 0).cloned().collect();
        let of_first: Vec<Example> =
            packed.into_iter().filter(|example| example.unit == 0).collect();
        assert_eq!(pack(alone, 2, 5), of_first);
    }

    #[test]
    fn what_is_not_predicted_as_a_whole_stays_alone() {
        let prompt = Example { target: Target::Next { from: 2 }, ..text(0, &[1, 2, 3]) };
        let texts = vec![text(0, &[4]), prompt.clone(), text(0, &[5])];
        assert_eq!(pack(texts, 1, 9), [text(0, &[4, 5]), prompt]);
    }
}
