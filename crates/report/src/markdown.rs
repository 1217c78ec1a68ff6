//! A report as Markdown, with tables instead of charts.

use crate::MARK;
use crate::document::{Block, Document, Section, Standing, Table};
use undertone_run::{escape_markdown as escape, printable};

impl Document {
    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n", escape(&self.title), escape(&self.subtitle));
        self.sections.iter().for_each(|section| write_section(&mut text, section));
        text.push_str(&format!("\n{MARK}\n"));
        text
    }
}

fn write_section(text: &mut String, section: &Section) {
    let marks = "#".repeat(section.level.into());
    text.push_str(&format!("\n{marks} {}\n", escape(&section.title)));
    for block in &section.blocks {
        text.push('\n');
        write_block(text, block);
    }
}

fn write_block(text: &mut String, block: &Block) {
    match block {
        Block::Paragraph(sentences) => text.push_str(&format!("{}\n", escape(sentences))),
        Block::Statement { standing, sentence, meaning } => {
            let word = match standing {
                Standing::Guaranteed => "Guaranteed",
                Standing::NoGuarantee => "No guarantee",
            };
            text.push_str(&format!("> **{word}.** {}\n", escape(sentence)));
            meaning.iter().for_each(|more| text.push_str(&format!(">\n> {}\n", escape(more))));
        }
        Block::Note(note) => text.push_str(&format!("> Note: {}\n", escape(note))),
        Block::Facts(facts) => {
            let rows =
                facts.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect();
            write_table(text, &Table { title: String::new(), head: vec![String::new(); 2], rows });
        }
        Block::List(items) => {
            items.iter().for_each(|item| text.push_str(&format!("- {}\n", escape(item))))
        }
        Block::Table(table) => {
            text.push_str(&format!("**{}**\n\n", escape(&table.title)));
            write_table(text, table);
        }
        Block::Chart(chart) => {
            let (title, description) = (escape(&chart.title), escape(&chart.description));
            text.push_str(&format!("**{title}.** {description}\n\n"));
            write_table(text, &chart.table);
        }
        Block::Verbatim { name, text: verbatim } => {
            let verbatim = printable(verbatim);
            let longest = verbatim.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest.max(2) + 1);
            text.push_str(&format!(
                "**{}**\n\n{fence}\n{}\n{fence}\n",
                escape(name),
                verbatim.trim_end()
            ));
        }
    }
}

fn write_table(text: &mut String, table: &Table) {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text.push_str(&line(table.head.iter().map(|cell| escape(cell)).collect()));
    let align = |column: usize| if table.is_numeric(column) { "--:" } else { "---" }.to_owned();
    text.push_str(&line((0..table.head.len()).map(align).collect()));
    for row in &table.rows {
        text.push_str(&line(row.iter().map(|cell| escape(cell)).collect()));
    }
}
