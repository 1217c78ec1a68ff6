//! The examples of each privacy unit.

use super::example::Example;

/// Index from privacy units to their examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Offset of each unit's examples in `examples`, followed by the number of examples, `[units +
    /// 1]`.
    starts: Vec<usize>,
    examples: Vec<usize>,
}

impl Members {
    /// Builds the index for at least `units` units. A unit may have no examples.
    pub fn of(examples: &[Example], units: usize) -> Members {
        let units =
            examples.iter().map(|example| example.unit as usize + 1).fold(units, usize::max);
        let mut starts = vec![0; units + 1];
        for example in examples {
            starts[example.unit as usize + 1] += 1;
        }
        for unit in 0..units {
            starts[unit + 1] += starts[unit];
        }
        let (mut next, mut sorted) = (starts.clone(), vec![0; examples.len()]);
        for (i, example) in examples.iter().enumerate() {
            let slot = &mut next[example.unit as usize];
            sorted[*slot] = i;
            *slot += 1;
        }
        Members { starts, examples: sorted }
    }

    /// Number of privacy units.
    pub fn units(&self) -> usize {
        self.starts.len() - 1
    }

    /// The examples of one unit, in file order.
    pub fn of_unit(&self, unit: usize) -> &[usize] {
        &self.examples[self.starts[unit]..self.starts[unit + 1]]
    }

    /// The examples of a sample of units.
    pub fn of_units(&self, units: &[usize]) -> Vec<usize> {
        units.iter().flat_map(|&unit| self.of_unit(unit)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_knows_its_examples() {
        let examples = [2, 0, 2, 3].map(|unit| Example { unit, ..Example::default() });
        let members = Members::of(&examples, 5);
        assert_eq!(members.units(), 5);
        assert_eq!(members.of_unit(2), [0, 2]);
        assert!(members.of_unit(1).is_empty() && members.of_unit(4).is_empty());
        assert_eq!(members.of_units(&[0, 2]), [1, 0, 2]);
        assert_eq!(Members::of(&[], 0).units(), 0);
    }
}
