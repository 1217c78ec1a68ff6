//! A program's commands and options as a page of the book, generated from their clap definitions.

use clap::{Arg, Command};
use std::collections::BTreeMap;

/// An option shared by at least this many commands is described once.
const COMMON: usize = 4;

/// One section for the options shared by many commands, and then one section per command.
pub fn reference(mut program: Command) -> String {
    program.build();
    let mut all = Vec::new();
    walk(&program, &mut all);
    let mut uses: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (command, _) in &all {
        for arg in options(command) {
            *uses.entry(row(arg)).or_default() += 1;
        }
    }
    let is_common = |row: &(String, String)| uses[row] >= COMMON;
    let common = uses.keys().filter(|row| is_common(row));
    let mut page = String::new();
    page += &format!("## Options of several {} commands\n\n", program.get_name());
    page += &table(common.cloned());
    for (command, name) in &all {
        let about = command.get_long_about().or(command.get_about());
        let about = about.map(|about| paragraphs(&about.to_string())).unwrap_or_default();
        let usage = (*command).clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").split_whitespace();
        let usage = usage.collect::<Vec<_>>().join(" ");
        page += &format!("## {name}\n\n{about}\n\n`{usage}`\n\n");
        let (shared, own): (Vec<_>, Vec<_>) = options(command).map(row).partition(is_common);
        if !own.is_empty() {
            page += &table(own.into_iter());
        }
        if !shared.is_empty() {
            let names = shared.iter().map(|(name, _)| {
                format!("`{}`", name.trim_matches('`').split(' ').next().unwrap())
            });
            page += &format!("Also {}.\n\n", names.collect::<Vec<_>>().join(", "));
        }
    }
    page
}

/// The executable commands, with their full names.
fn walk<'a>(command: &'a Command, all: &mut Vec<(&'a Command, String)>) {
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        if inner.has_subcommands() {
            walk(inner, all);
        } else {
            all.push((inner, inner.get_bin_name().unwrap().to_owned()));
        }
    }
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    args.filter(|arg| !["help", "json", "version"].contains(&arg.get_id().as_str()))
}

/// The notation of an option, and its description.
fn row(arg: &Arg) -> (String, String) {
    let help = arg.get_long_help().or(arg.get_help());
    let mut meaning = help.map(|help| paragraphs(&help.to_string())).unwrap_or_default();
    let list = |values: Vec<String>| {
        values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
    };
    let takes_value = arg.get_action().takes_values();
    let possible: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if takes_value && !possible.is_empty() && !arg.is_hide_possible_values_set() {
        meaning += &format!(" ({})", list(possible));
    }
    let default: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into()).collect();
    if takes_value && !default.is_empty() && !arg.is_hide_default_value_set() {
        meaning += &format!(" [default: {}]", list(default));
    }
    if arg.is_required_set() {
        meaning += " (required)";
    }
    (format!("`{}`", arg.to_string().replace('|', "\\|")), meaning.replace('|', "\\|"))
}

fn table(rows: impl Iterator<Item = (String, String)>) -> String {
    let rows = rows.map(|(name, meaning)| format!("| {name} | {meaning} |\n"));
    format!("| option | meaning |\n|---|---|\n{}\n", rows.collect::<String>())
}

/// A text with one line per paragraph, as a single table cell.
fn paragraphs(text: &str) -> String {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = text.split("\n\n").map(one_line).filter(|paragraph| !paragraph.is_empty());
    let joined = all.reduce(|before, next| match before.ends_with(['.', ':', ';', '?', '!']) {
        true => format!("{before} {next}"),
        // The first paragraph of help has no full stop.
        false => format!("{before}. {next}"),
    });
    joined.unwrap_or_default()
}
