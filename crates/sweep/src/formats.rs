//! The table as text, Markdown, LaTeX and CSV.

use crate::table::{Cell, LEVEL, Row, Table};

/// A cell's numbers: `mean ± error`, a star if it beats the baseline, a dagger if runs failed, and
/// the published figure in brackets.
fn numbers(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else { return String::new() };
    let digits = cell.decimals;
    let ours = match (cell.mean, cell.standard_error) {
        (Some(mean), Some(error)) => format!("{mean:.digits$} ± {error:.digits$}"),
        (Some(mean), None) => format!("{mean:.digits$}"),
        (None, _) => "failed".to_owned(),
    };
    let star = if cell.p_value.is_some_and(|p| p < LEVEL) { "*" } else { "" };
    let (finished, all) = cell.finished();
    let dagger = if finished > 0 && finished < all { "†" } else { "" };
    format!("{ours}{star}{dagger}")
}

fn published(cell: Option<&Cell>) -> String {
    // A figure may have many digits.
    let shown = |figure: f64| format!(" ({})", (figure * 1e4).round() / 1e4);
    cell.and_then(|cell| cell.published).map_or(String::new(), shown)
}

fn is_best(cell: Option<&Cell>) -> bool {
    cell.is_some_and(|cell| cell.best)
}

/// Labels and cells, with a formatter per cell.
fn grid(table: &Table, show: impl Fn(Option<&Cell>) -> String) -> Vec<Vec<String>> {
    let line = |row: &Row| {
        std::iter::once(row.label.clone())
            .chain(row.cells.iter().map(|cell| show(cell.as_ref())))
            .collect()
    };
    table.rows.iter().map(line).collect()
}

/// Plain text: aligned columns, with a bullet before the best cell of each column.
pub fn text(table: &Table) -> String {
    let show = |cell: Option<&Cell>| {
        format!("{}{}{}", if is_best(cell) { "• " } else { "" }, numbers(cell), published(cell))
    };
    let mut lines =
        vec![std::iter::once(String::new()).chain(table.columns.iter().cloned()).collect()];
    lines.extend(grid(table, show));
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|c| lines.iter().map(|line: &Vec<String>| line[c].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).skip(1).map(|(cell, w)| format!("  {cell:>w$}"));
        let width = widths[0];
        let whole = format!("  {:width$}{}", line[0], cells.collect::<String>());
        out.push_str(&format!("{}\n", whole.trim_end()));
        if i == 0 {
            let rule: String = widths.iter().map(|w| format!("  {}", "─".repeat(*w))).collect();
            out.push_str(&format!("{rule}\n"));
        }
    }
    out.push('\n');
    if table.rows.iter().flat_map(|row| &row.cells).any(|cell| is_best(cell.as_ref())) {
        out.push_str("• The best of its column.\n");
    }
    table.notes.iter().for_each(|note| out.push_str(&format!("{note}\n")));
    table.failures.iter().for_each(|(run, why)| out.push_str(&format!("Failed: {run}: {why}\n")));
    out
}

/// Markdown: the best cell of each column is bold.
pub fn markdown(table: &Table) -> String {
    let bold = |cell: Option<&Cell>| if is_best(cell) { "**" } else { "" };
    // A bare asterisk would be markup.
    let show = |cell: Option<&Cell>| {
        format!("{0}{1}{0}{2}", bold(cell), numbers(cell).replace('*', "\\*"), published(cell))
    };
    let line = |cells: Vec<String>| {
        let escaped: Vec<String> =
            cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        format!("| {} |\n", escaped.join(" | "))
    };
    let mut out =
        line(std::iter::once(String::new()).chain(table.columns.iter().cloned()).collect());
    out.push_str(&format!("|---|{}\n", "--:|".repeat(table.columns.len())));
    grid(table, show).into_iter().for_each(|cells| out.push_str(&line(cells)));
    let said = table.notes.iter().cloned();
    let failed = table.failures.iter().map(|(run, why)| format!("Failed: {run}: {why}"));
    for note in said.chain(failed) {
        out.push_str(&format!("\n{}\n", note.replace('*', "\\*")));
    }
    out
}

/// LaTeX, without any package.
pub fn latex(table: &Table) -> String {
    let show = |cell: Option<&Cell>| {
        let numbers = escape(&numbers(cell));
        let numbers = if is_best(cell) { format!("\\textbf{{{numbers}}}") } else { numbers };
        format!("{numbers}{}", escape(&published(cell)))
    };
    let mut out = format!(
        "\\begin{{table}}\n\\centering\n\\begin{{tabular}}{{l{}}}\n\\hline\n",
        "r".repeat(table.columns.len())
    );
    let heads: String =
        table.columns.iter().map(|column| format!(" & {}", escape(column))).collect();
    out.push_str(&format!("{heads} \\\\\n\\hline\n"));
    for cells in grid(table, show) {
        out.push_str(&format!("{} & {} \\\\\n", escape(&cells[0]), cells[1..].join(" & ")));
    }
    let notes: Vec<String> = table.notes.iter().map(|note| escape(note)).collect();
    out.push_str(&format!(
        "\\hline\n\\end{{tabular}}\n\\caption{{{}}}\n\\end{{table}}\n",
        notes.join(" ")
    ));
    for (run, why) in &table.failures {
        out.push_str(&format!(
            "% Failed: {}: {}\n",
            run.replace('\n', " "),
            why.replace('\n', " ")
        ));
    }
    out
}

/// Escapes text for LaTeX.
pub fn escape(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => format!("\\{c}"),
            '\\' => "\\textbackslash{}".into(),
            '~' => "\\textasciitilde{}".into(),
            '^' => "\\textasciicircum{}".into(),
            '<' => "$<$".into(),
            '>' => "$>$".into(),
            '|' => "$|$".into(),
            'ε' => "$\\varepsilon$".into(),
            'δ' => "$\\delta$".into(),
            'σ' => "$\\sigma$".into(),
            'α' => "$\\alpha$".into(),
            'β' => "$\\beta$".into(),
            '±' => "$\\pm$".into(),
            '×' => "$\\times$".into(),
            '→' => "$\\to$".into(),
            '−' => "$-$".into(),
            '†' => "\\dag{}".into(),
            '\n' => " ".into(),
            _ => c.to_string(),
        })
        .collect()
}

/// CSV: one line per cell, with every number in full.
pub fn csv(table: &Table) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let mut out =
        "row,column,metric,mean,standard_error,best,p_value,published,values\n".to_owned();
    for row in &table.rows {
        for (column, cell) in table.columns.iter().zip(&row.cells) {
            let Some(cell) = cell else { continue };
            let values: Vec<String> = cell.values.iter().map(|value| number(*value)).collect();
            let fields = [
                row.label.clone(),
                column.clone(),
                table.metric.clone(),
                number(cell.mean),
                number(cell.standard_error),
                cell.best.to_string(),
                number(cell.p_value),
                number(cell.published),
                values.join(" "),
            ];
            out.push_str(&format!("{}\n", fields.map(|field| quoted(&field)).join(",")));
        }
    }
    out
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let cell = |mean: f64, best: bool| {
            Some(Cell {
                values: vec![Some(mean), None],
                mean: Some(mean),
                standard_error: Some(0.25),
                best,
                p_value: best.then_some(0.01),
                published: best.then_some(92.1),
                decimals: 2,
            })
        };
        let row = |label: &str, cells| Row {
            label: label.into(),
            reference: false,
            baseline: None,
            cells,
        };
        Table {
            metric: "accuracy, %".into(),
            higher_is_better: true,
            baseline: Some("DP_SGD & more".into()),
            columns: vec!["ε = 8".into(), "a|b, \"c\"".into()],
            rows: vec![
                row("DP_SGD & more", vec![cell(90.0, false), None]),
                row("ours", vec![cell(91.5, true), cell(3.0, false)]),
            ],
            notes: vec!["* 100% sure.".into()],
            failures: vec![("ours, seed 2".into(), "no memory".into())],
        }
    }

    #[test]
    fn every_format_says_the_same() {
        let text = text(&table());
        assert!(
            text.contains("• 91.50 ± 0.25*† (92.1)")
                && text.contains("Failed: ours, seed 2: no memory"),
            "{text}"
        );
        let widths: Vec<usize> = text.lines().take(2).map(|line| line.chars().count()).collect();
        assert_eq!(widths[0], widths[1], "{text}");
        let markdown = markdown(&table());
        assert!(
            markdown.contains("| ours | **91.50 ± 0.25\\*†** (92.1) | 3.00 ± 0.25† |"),
            "{markdown}"
        );
        assert!(markdown.contains("a\\|b") && markdown.contains("\\* 100% sure."), "{markdown}");
        let latex = latex(&table());
        assert!(latex.contains("DP\\_SGD \\& more & 90.00 $\\pm$ 0.25\\dag{} &  \\\\"), "{latex}");
        assert!(
            latex.contains("\\textbf{91.50 $\\pm$ 0.25*\\dag{}} (92.1)")
                && latex.contains("100\\% sure"),
            "{latex}"
        );
        let csv = csv(&table());
        assert!(
            csv.contains("ours,\"a|b, \"\"c\"\"\",\"accuracy, %\",3,0.25,false,,,3 \n"),
            "{csv}"
        );
        assert_eq!(csv.lines().count(), 4, "a cell that is not there has no line");
    }

    #[test]
    fn latex_shows_every_character() {
        assert_eq!(
            escape("a_b^c\\d~{1}"),
            "a\\_b\\textasciicircum{}c\\textbackslash{}d\\textasciitilde{}\\{1\\}"
        );
        assert_eq!(escape("p < 0.05 ± ε"), "p $<$ 0.05 $\\pm$ $\\varepsilon$");
    }
}
