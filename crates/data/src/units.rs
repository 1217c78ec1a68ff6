//! The privacy unit of each row of a file.

use super::error::{Error, Result};
use super::example::Example;
use super::hold_out::Part;
use super::options::PrivacyUnit;
use super::read::Row;
use super::tally::Tally;
use std::collections::HashMap;
use std::path::Path;

/// The privacy units seen so far.
pub(crate) struct Units {
    /// Author column and maximum number of examples per author; `None` makes every row a unit.
    authors: Option<(String, usize)>,
    /// Unit id of each author, in order of first appearance.
    numbers: HashMap<String, u32>,
    /// Number of examples of each author.
    examples: Vec<usize>,
    count: usize,
    part: Part,
    /// Number of a row's values that are texts; they come first.
    texts: usize,
    tally: Tally,
}

impl Units {
    /// The units of `part` of a file whose rows begin with `texts` text values.
    pub fn new(unit: &PrivacyUnit, part: Part, texts: usize) -> Units {
        let authors = match unit {
            PrivacyUnit::Row => None,
            PrivacyUnit::Author { column, at_most } => Some((column.clone(), *at_most)),
        };
        let (numbers, examples, tally) = (HashMap::new(), Vec::new(), Tally::default());
        Units { authors, numbers, examples, count: 0, part, texts, tally }
    }

    /// The unit of a row, whose author value is removed; `None` if the unit is not in the part
    /// being read, or the author already has the maximum number of examples.
    pub fn of(&mut self, file: &Path, row: &mut Row) -> Result<Option<u32>> {
        let next = u32::try_from(self.count)
            .map_err(|_| Error::invalid("the number of privacy units", self.count, "below 2³²"))?;
        let Some((column, at_most)) = &self.authors else {
            if !self.part.has(row.values.iter().take(self.texts).map(String::as_str)) {
                self.tally.in_other_part += 1;
                return Ok(None);
            }
            self.count += 1;
            self.note_text(row);
            return Ok(Some(next));
        };
        let at_most = *at_most;
        let author = row.values.pop().unwrap_or_default();
        if author.is_empty() {
            return Err(Error::MissingValue {
                file: file.into(),
                line: row.line,
                column: column.clone(),
            });
        }
        if !self.part.has([author.as_str()]) {
            self.tally.in_other_part += 1;
            return Ok(None);
        }
        let unit = *self.numbers.entry(author).or_insert(next);
        if unit == next {
            self.count += 1;
            self.examples.push(0);
        }
        if self.examples[unit as usize] >= at_most {
            self.tally.beyond_most_per_author += 1;
            return Ok(None);
        }
        self.note_text(row);
        Ok(Some(unit))
    }

    fn note_text(&mut self, row: &Row) {
        let blank = row.values.iter().take(self.texts).all(|text| text.trim().is_empty());
        self.tally.without_text += u64::from(blank);
    }

    /// Rows that were excluded so far, or look like a mistake.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Number of units seen so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Counts one example of a unit that is not kept.
    pub fn count_example(&mut self, unit: u32) {
        if self.authors.is_some() {
            self.examples[unit as usize] += 1;
        }
    }

    /// Appends a row's examples, up to the maximum of its unit; returns the number appended.
    pub fn admit(&mut self, unit: u32, of_row: Vec<Example>, examples: &mut Vec<Example>) -> usize {
        let mut room = of_row.len();
        if let Some((_, at_most)) = self.authors {
            let had = &mut self.examples[unit as usize];
            room = room.min(at_most - *had);
            *had += room;
            self.tally.beyond_most_per_author += u64::from(room == 0);
        }
        examples.extend(of_row.into_iter().take(room).map(|example| Example { unit, ..example }));
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold_out::HoldOut;

    fn row(author: &str) -> Row {
        Row { line: 5, values: vec!["text".to_owned(), author.to_owned()] }
    }

    fn of_authors(at_most: usize, part: Part) -> Units {
        Units::new(&PrivacyUnit::Author { column: "by".into(), at_most }, part, 1)
    }

    #[test]
    fn every_row_is_a_unit_of_its_own() {
        let mut units = Units::new(&PrivacyUnit::Row, Part::All, 1);
        let of = |units: &mut Units| units.of(Path::new("a"), &mut row("ann"));
        assert_eq!((of(&mut units), of(&mut units), units.count()), (Ok(Some(0)), Ok(Some(1)), 2));
    }

    #[test]
    fn an_author_is_one_unit_until_it_has_enough() {
        let mut units = of_authors(3, Part::All);
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

    /// The statement in `hold_out.rs`: adding a unit leaves every other unit on its side.
    #[test]
    fn who_is_held_out_does_not_depend_on_others() {
        let held_out = |authors: &[String]| -> Vec<String> {
            let mut units = of_authors(8, Part::Only(HoldOut(0.3)));
            let is_read =
                |author: &&String| units.of(Path::new("a"), &mut row(author)).unwrap().is_some();
            authors.iter().filter(is_read).cloned().collect()
        };
        let authors: Vec<String> = (0..50).map(|i| format!("author {i}")).collect();
        let all = held_out(&authors);
        assert!((5..30).contains(&all.len()), "{}", all.len());
        for removed in &authors {
            let others: Vec<String> = authors.iter().filter(|a| *a != removed).cloned().collect();
            let expected: Vec<String> = all.iter().filter(|a| *a != removed).cloned().collect();
            assert_eq!(held_out(&others), expected);
        }
        // The rest is the other part, numbered without gaps.
        let mut units = of_authors(8, Part::Without(HoldOut(0.3)));
        let numbers: Vec<u32> = (authors.iter())
            .filter_map(|author| units.of(Path::new("a"), &mut row(author)).unwrap())
            .collect();
        assert_eq!(numbers, (0..(50 - all.len()) as u32).collect::<Vec<_>>());
        assert_eq!(units.tally().in_other_part as usize, all.len());
    }

    #[test]
    fn equal_texts_are_on_one_side_whatever_their_labels_are() {
        let mut units = Units::new(&PrivacyUnit::Row, Part::Only(HoldOut(0.5)), 1);
        for i in 0..20 {
            let mut of = |label: &str| {
                let values = vec![format!("text {i}"), label.to_owned()];
                units.of(Path::new("a"), &mut Row { line: 2, values }).unwrap().is_some()
            };
            assert_eq!(of("good"), of("bad"));
        }
    }

    #[test]
    fn rows_that_are_dropped_and_rows_without_text_are_counted() {
        let mut units = of_authors(1, Part::All);
        for text in ["a", "", "b"] {
            let mut row = Row { line: 2, values: vec![text.to_owned(), "ann".to_owned()] };
            if let Some(unit) = units.of(Path::new("a"), &mut row).unwrap() {
                units.admit(unit, vec![Example::default()], &mut Vec::new());
            }
        }
        let mut blank = Row { line: 2, values: vec![" ".to_owned(), "bob".to_owned()] };
        units.of(Path::new("a"), &mut blank).unwrap();
        assert_eq!(
            units.tally(),
            Tally { beyond_most_per_author: 2, without_text: 1, in_other_part: 0 }
        );
    }
}
