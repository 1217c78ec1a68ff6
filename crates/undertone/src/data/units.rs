//! The privacy unit of each row of a file.

use super::error::{Error, Result};
use super::example::Example;
use super::options::PrivacyUnit;
use super::read::Row;
use std::collections::HashMap;
use std::path::Path;

/// The privacy units seen so far.
pub(crate) struct Units {
    /// Author column and maximum number of examples per author; `None` makes every row a unit.
    authors: Option<(String, usize)>,
    /// Unit id of each author, in the order of first appearance.
    numbers: HashMap<String, u32>,
    /// Number of examples of each author.
    examples: Vec<usize>,
    count: usize,
}

impl Units {
    pub fn new(unit: &PrivacyUnit) -> Units {
        let authors = match unit {
            PrivacyUnit::Row => None,
            PrivacyUnit::Author { column, at_most } => Some((column.clone(), *at_most)),
        };
        Units { authors, numbers: HashMap::new(), examples: Vec::new(), count: 0 }
    }

    /// The unit of a row, whose author value is removed; `None` if the author already has the
    /// maximum number of examples.
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

    /// Number of units seen so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Appends a row's examples, up to the maximum of its unit.
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
        let mut units = Units::new(&PrivacyUnit::Row);
        let of = |units: &mut Units| units.of(Path::new("a"), &mut row("ann"));
        assert_eq!((of(&mut units), of(&mut units), units.count()), (Ok(Some(0)), Ok(Some(1)), 2));
    }

    #[test]
    fn an_author_is_one_unit_until_it_has_enough() {
        let mut units = Units::new(&PrivacyUnit::Author { column: "by".into(), at_most: 3 });
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
