//! A report as one HTML file: no scripts, nothing fetched, light and dark, on paper and on a phone.

use crate::chart::{Chart, Mark};
use crate::document::{Block, Document, Section, Standing, Table};
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// A text that means nothing to a browser.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // What HTML has no way to write.
            c if c.is_control() && !matches!(c, '\n' | '\t') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

impl Document {
    /// The report as one HTML file.
    pub fn html(&self) -> String {
        let mut page = Page { text: String::new(), numbers: 0 };
        page.document(self);
        page.text
    }
}

struct Page {
    text: String,
    /// Headings so far, for their names in links.
    numbers: usize,
}

impl Page {
    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn document(&mut self, document: &Document) {
        let title = escape(&document.title);
        self.line("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
        self.line("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
        // Nothing is fetched and nothing runs, even if a text should slip through.
        self.line(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; img-src data:\">",
        );
        self.line("<link rel=\"icon\" href=\"data:,\">");
        self.line(format!(
            "<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<header>"
        ));
        self.line(format!("<p class=\"eyebrow\">Privacy report</p>\n<h1>{title}</h1>"));
        self.line(format!("<p class=\"subtitle\">{}</p>", escape(&document.subtitle)));
        self.contents(document);
        self.line("</header>");
        let mut sections = document.sections.iter().peekable();
        while let Some(section) = sections.next() {
            self.line("<section>");
            self.section(section);
            while let Some(part) = sections.next_if(|next| next.level > section.level) {
                self.line("<section>");
                self.section(part);
                self.line("</section>");
            }
            self.line("</section>");
        }
        self.line(format!(
            "<footer><p>Made by undertone {} from the files of the run folders. The same files \
             give the same report.</p></footer>",
            env!("CARGO_PKG_VERSION")
        ));
        self.line("</main>\n</body>\n</html>");
    }

    /// Links to the parts of the report, whose names are given by their order.
    fn contents(&mut self, document: &Document) {
        self.line("<nav aria-label=\"Contents\"><ul>");
        for (i, section) in
            document.sections.iter().enumerate().filter(|(_, section)| section.level == 2)
        {
            self.line(format!(
                "<li><a href=\"#part-{}\">{}</a></li>",
                i + 1,
                escape(&section.title)
            ));
        }
        self.line("</ul></nav>");
    }

    fn section(&mut self, section: &Section) {
        self.numbers += 1;
        let level = section.level;
        self.line(format!(
            "<h{level} id=\"part-{}\">{}</h{level}>",
            self.numbers,
            escape(&section.title)
        ));
        for block in &section.blocks {
            self.block(block);
        }
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Paragraph(text) => self.line(format!("<p>{}</p>", escape(text))),
            Block::Statement { standing, sentence, meaning } => {
                let (class, word) = match standing {
                    Standing::Guaranteed => ("statement", "Guaranteed"),
                    Standing::Nothing => ("statement nothing", "No guarantee"),
                };
                self.line(format!("<div class=\"{class}\">\n<p class=\"standing\">{word}</p>"));
                self.line(format!("<p class=\"sentence\">{}</p>", escape(sentence)));
                meaning.iter().for_each(|text| {
                    self.line(format!("<p class=\"meaning\">{}</p>", escape(text)))
                });
                self.line("</div>");
            }
            Block::Note(text) => {
                self.line(format!("<p class=\"note\"><strong>Note.</strong> {}</p>", escape(text)))
            }
            Block::Facts(facts) => {
                self.line("<dl>");
                for (name, value) in facts {
                    self.line(format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value)));
                }
                self.line("</dl>");
            }
            Block::List(items) => {
                self.line("<ul class=\"plain\">");
                items.iter().for_each(|item| self.line(format!("<li>{}</li>", escape(item))));
                self.line("</ul>");
            }
            Block::Table(table) => self.table(table),
            Block::Chart(chart) => self.chart(chart),
            Block::Verbatim { name, text } => {
                self.line(format!("<p class=\"verbatim\">{}</p>", escape(name)));
                self.line(format!(
                    "<pre tabindex=\"0\" aria-label=\"{}\">{}</pre>",
                    escape(name),
                    escape(text)
                ));
            }
        }
    }

    /// A wide table is moved by its own bar, which the keyboard reaches.
    fn table(&mut self, table: &Table) {
        let title = escape(&table.title);
        self.line(format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\n<table>"
        ));
        self.line(format!("<caption>{title}</caption>"));
        let class = |column: usize| if table.is_numeric(column) { " class=\"number\"" } else { "" };
        let mut head = String::new();
        for (i, name) in table.head.iter().enumerate() {
            let _ = write!(head, "<th scope=\"col\"{}>{}</th>", class(i), escape(name));
        }
        self.line(format!("<thead><tr>{head}</tr></thead>\n<tbody>"));
        for row in &table.rows {
            let cells: String = row
                .iter()
                .enumerate()
                .map(|(i, cell)| format!("<td{}>{}</td>", class(i), escape(cell)))
                .collect();
            self.line(format!("<tr>{cells}</tr>"));
        }
        self.line("</tbody>\n</table>\n</div>");
    }

    fn chart(&mut self, chart: &Chart) {
        self.line("<figure>");
        self.line(format!(
            "<figcaption><strong>{}</strong><span>{}</span></figcaption>",
            escape(&chart.title),
            escape(&chart.says)
        ));
        self.legend(chart);
        // Made by us, with its texts escaped.
        self.line(format!(
            "<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>",
            chart.wide, chart.narrow
        ));
        self.line("<details><summary>The numbers</summary>");
        self.table(&chart.table);
        self.line("</details>\n</figure>");
    }

    fn legend(&mut self, chart: &Chart) {
        // One line alone is what the title says.
        if matches!(chart.legend.as_slice(), [(_, mark, _)] if *mark != Mark::Squares) {
            return;
        }
        self.line("<ul class=\"legend\">");
        for (ink, mark, name) in &chart.legend {
            let class = match mark {
                Mark::Line | Mark::Beads => "line",
                Mark::Thin => "thin",
                Mark::Dashed => "dashed",
                Mark::Discs => "discs",
                Mark::Rings => "rings",
                Mark::Squares => "squares",
            };
            self.line(format!(
                "<li><span class=\"key {class}\" style=\"--mark:var({})\" \
                 aria-hidden=\"true\"></span>{}</li>",
                ink.variable(),
                escape(name)
            ));
        }
        self.line("</ul>");
    }
}
