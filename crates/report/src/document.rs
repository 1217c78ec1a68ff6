//! What a report says, before anybody decides how it looks. All texts are plain: whoever writes
//! them into a format escapes them.

use crate::chart::Chart;

/// A whole report.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its heading.
    pub title: String,
    /// A line below it.
    pub subtitle: String,
    /// In order.
    pub sections: Vec<Section>,
}

/// A part with a heading.
#[derive(Clone, Debug)]
pub struct Section {
    /// 2 for a part of the report, 3 for a part of a part.
    pub level: u8,
    /// Its heading.
    pub title: String,
    /// In order.
    pub blocks: Vec<Block>,
}

/// Whether something is guaranteed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Guaranteed,
    /// Nothing is.
    Nothing,
}

/// A piece of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// Some sentences.
    Paragraph(String),
    /// The sentence that matters most, and what it means.
    Statement {
        /// Whether it promises anything.
        standing: Standing,
        /// The sentence.
        sentence: String,
        /// In other words.
        meaning: Vec<String>,
    },
    /// Something to bear in mind.
    Note(String),
    /// Names and values.
    Facts(Vec<(String, String)>),
    /// Sentences that stand side by side.
    List(Vec<String>),
    /// Numbers.
    Table(Table),
    /// A drawing with its numbers.
    Chart(Box<Chart>),
    /// Text as it is, under a name; long, so it is folded where that can be done.
    Verbatim {
        /// What it is.
        name: String,
        /// The text.
        text: String,
    },
}

/// Rows and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// As many cells each as there are names.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// From names and rows.
    pub fn new(title: impl Into<String>, head: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self { title: title.into(), head: head.iter().map(ToString::to_string).collect(), rows }
    }

    /// Whether a column holds numbers, which are set to the right: every cell begins with one, or
    /// says that there is none.
    pub(crate) fn is_numeric(&self, column: usize) -> bool {
        let number = |cell: &str| {
            cell == "–" || cell.starts_with(|c: char| c.is_ascii_digit() || "−-+<".contains(c))
        };
        !self.rows.is_empty() && self.rows.iter().all(|row| number(&row[column]))
    }
}

impl Section {
    pub(crate) fn new(level: u8, title: impl Into<String>) -> Self {
        Self { level, title: title.into(), blocks: Vec::new() }
    }

    pub(crate) fn with(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    pub(crate) fn paragraph(self, text: impl Into<String>) -> Self {
        self.with(Block::Paragraph(text.into()))
    }

    pub(crate) fn note(self, text: impl Into<String>) -> Self {
        self.with(Block::Note(text.into()))
    }

    pub(crate) fn chart(self, chart: Chart) -> Self {
        self.with(Block::Chart(Box::new(chart)))
    }
}
