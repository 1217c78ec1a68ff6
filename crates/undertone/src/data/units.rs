//! Which privacy unit each row of a file belongs to.

use super::error::{Error, Result};
use super::example::Example;
use super::options::Unit;
use super::read::Row;
use std::collections::HashMap;
use std::path::Path;

/// The privacy units met so far.
pub(crate) struct Units {
    /// The column of the authors and the most examples of each; without it every row is a unit.
    authors: Option<(String, usize)>,
    /// For each author its number, in the order of first appearance.
    numbers: HashMap<String, u32>,
    /// For each author how many examples it has.
    examples: Vec<usize>,
    count: usize,
}

impl Units {
    pub fn new(unit: &Unit) -> Units {
        let authors = match unit {
            Unit::Row => None,
            Unit::Author { column, at_most } => Some((column.clone(), *at_most)),
        };
        Units { authors, numbers: HashMap::new(), examples: Vec::new(), count: 0 }
    }

    /// The unit of a row, from which the author's name is taken off; none if its author has enough
    /// examples.
    pub fn of(&mut self, file: &Path, row: &mut Row) -> Result<Option<u32>> {
        let next = u32::try_from(self.count)
            .map_err(|_| Error::invalid("the number of privacy units", self.count, "below 2³²"))?;
        let Some((column, at_most)) = &self.authors else {
            self.count += 1;
            return Ok(Some(next));
        };
        let author = row.values.pop().unwrap_or_default();
        if author.is_empty() {
            return Err(Error::MissingValue {
                file: file.into(),
                line: row.line,
                column: column.clone(),
            });
        }
        let unit = *self.numbers.entry(author).or_insert(next);
        if unit == next {
            self.count += 1;
            self.examples.push(0);
        }
        Ok((self.examples[unit as usize] < *at_most).then_some(unit))
    }

    /// How many units have been met.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a row's examples to the others, as far as its unit may have more.
    pub fn admit(&mut self, unit: u32, of_row: Vec<Example>, examples: &mut Vec<Example>) {
        let mut room = of_row.len();
        if let Some((_, at_most)) = self.authors {
            let had = &mut self.examples[unit as usize];
            room = room.min(at_most - *had);
            *had += room;
        }
        examples.extend(of_row.into_iter().take(room).map(|example| Example { unit, ..example }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(author: &str) -> Row {
        Row { line: 5, values: vec!["text".to_owned(), author.to_owned()] }
    }

    #[test]
    fn every_row_is_a_unit_of_its_own() {
        let mut units = Units::new(&Unit::Row);
        let of = |units: &mut Units| units.of(Path::new("a"), &mut row("ann"));
        assert_eq!((of(&mut units), of(&mut units), units.count()), (Ok(Some(0)), Ok(Some(1)), 2));
    }

    #[test]
    fn an_author_is_one_unit_until_it_has_enough() {
        let mut units = Units::new(&Unit::Author { column: "by".into(), at_most: 3 });
        let mut examples = Vec::new();
        for (author, unit) in [("ann", Some(0)), ("bob", Some(1)), ("ann", Some(0)), ("ann", None)]
        {
            let mut row = row(author);
            assert_eq!(units.of(Path::new("a"), &mut row), Ok(unit));
            assert_eq!(row.values, ["text"]);
            if let Some(unit) = unit {
                units.admit(unit, vec![Example::default(); 2], &mut examples);
            }
        }
        assert_eq!(
            examples.iter().map(|example| example.unit).collect::<Vec<_>>(),
            [0, 0, 1, 1, 0]
        );
        assert!(matches!(
            units.of(Path::new("a"), &mut row("")),
            Err(Error::MissingValue { line: 5, .. })
        ));
        assert_eq!(units.count(), 2);
    }
}
