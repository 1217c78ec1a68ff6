//! Content of a report, independent of its format. All texts are unescaped: each format escapes
//! them.

use crate::chart::Chart;

/// A whole report.
#[derive(Clone, Debug)]
pub struct Document {
    pub title: String,
    /// Line below the title.
    pub subtitle: String,
    pub sections: Vec<Section>,
}

/// A section with a heading.
#[derive(Clone, Debug)]
pub struct Section {
    /// Heading level: 2 for sections, 3 for subsections.
    pub level: u8,
    pub title: String,
    pub blocks: Vec<Block>,
}

/// Whether the run has a differential privacy guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Guaranteed,
    NoGuarantee,
}

/// Part of a section.
#[derive(Clone, Debug)]
pub enum Block {
    Paragraph(String),
    /// The privacy guarantee, or a statement that there is none, with its meaning in plain words.
    Statement {
        standing: Standing,
        sentence: String,
        /// Explanations of the sentence.
        meaning: Vec<String>,
    },
    Note(String),
    /// Names and values.
    Facts(Vec<(String, String)>),
    List(Vec<String>),
    Table(Table),
    Chart(Box<Chart>),
    /// Preformatted text, such as a file, under a name.
    Verbatim {
        name: String,
        text: String,
    },
}

/// A table of text cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Caption.
    pub title: String,
    /// Column names.
    pub head: Vec<String>,
    /// Rows, with one cell per column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: impl Into<String>, head: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self { title: title.into(), head: head.iter().map(ToString::to_string).collect(), rows }
    }

    /// Whether a column is numeric, and so right-aligned: every cell begins with a number or is
    /// "–".
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

    pub(crate) fn with_all(mut self, blocks: impl IntoIterator<Item = Block>) -> Self {
        self.blocks.extend(blocks);
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
