//! The run-file reference in docs/formats.md: one table per section, generated from the doc
//! comments of the types, their defaults, and the rules of which key applies to which run.
//!
//! A field's doc comment is its meaning. Its last clause names the default ("…; 256 by default.")
//! or says "required"; where the code has a fixed default, the two must agree. A key that is newer
//! than 0.2.0 ends with "Since 0.3.0."

use super::auto::AutoKey;
use super::{RunFile, applies};
use std::collections::BTreeMap;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Field, Fields, Item, ItemEnum, ItemStruct, Lit, Meta, Token, Type};
use toml::{Table, Value};

#[path = "../../../../tests/reference/mod.rs"]
mod pages;

const SOURCES: [&str; 8] = [
    include_str!("mod.rs"),
    include_str!("model.rs"),
    include_str!("data.rs"),
    include_str!("privacy.rs"),
    include_str!("local.rs"),
    include_str!("paper.rs"),
    include_str!("training.rs"),
    include_str!("synthesis.rs"),
];

/// Types with their own `Deserialize` implementation, and the values they accept.
const READ_BY_HAND: [(&str, &str); 3] = [
    ("NoiseLayer", "`\"embeddings\"`, integer, `\"output\"`, `\"pooler\"`"),
    ("MicroBatch", "integer, `\"auto\"`"),
    ("PublicFile", "path, table"),
];

/// Run files from which fixed defaults are read: for each key, the first file that has it.
fn examples() -> Vec<Table> {
    let example = |changes: &[&str]| {
        let minimal = "[model]\npath = \"m\"\n[data]\ntask = \"classification\"\ntrain = \"t\"\n\
                       text = \"text\"\n[privacy]\nmethod = \"dp-sgd\"\nepsilon = 1\ndelta = \
                       1e-5\n[training]\nepochs = 1\nbatch = 1\nlearning_rate = 1e-3\n";
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        Table::try_from(RunFile::parse_shared(minimal, &changes).unwrap()).unwrap()
    };
    vec![
        example(&[]),
        example(&["model.tuning.lora={}", "privacy.clip.adaptive={}"]),
        example(&["model.tuning.adapter={}", "training.stop_early.patience=1"]),
        example(&["data.task=completion", "synthesis.rows=1000"]),
    ]
}

fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(text) => match &text.lit {
                Lit::Str(line) => Some(line.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    // The first paragraph.
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The value of an argument of `#[serde(…)]`.
fn serde_value(attributes: &[Attribute], name: &str) -> Option<String> {
    let mut result = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let parsed = attribute.parse_nested_meta(|meta| {
            if meta.input.peek(Token![=]) {
                let value: syn::LitStr = meta.value()?.parse()?;
                if meta.path.is_ident(name) {
                    result = Some(value.value());
                }
            }
            Ok(())
        });
        parsed.expect("an attribute of serde");
    }
    result
}

/// The last word of a type's path and its generic argument, if any.
fn named(kind: &Type) -> (String, Option<&Type>) {
    let Type::Path(path) = kind else { panic!("a type with a name") };
    let last = path.path.segments.last().unwrap();
    let inner = match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => {
            arguments.args.iter().find_map(|argument| match argument {
                syn::GenericArgument::Type(inner) => Some(inner),
                _ => None,
            })
        }
        _ => None,
    };
    (last.ident.to_string(), inner)
}

/// A type without its `Option`.
fn required(kind: &Type) -> &Type {
    match kind {
        Type::Path(_) => match named(kind) {
            (name, Some(inner)) if name == "Option" => inner,
            _ => kind,
        },
        _ => kind,
    }
}

/// A variant's name in a run file.
fn renamed(variant: &str, rule: Option<&str>) -> String {
    let separator = match rule {
        Some("kebab-case") => "-",
        Some("snake_case") => "_",
        _ => "",
    };
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name += separator;
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// The meaning and the default stated by a doc comment.
fn split(doc: &str) -> Option<(String, String)> {
    let clauses = doc.match_indices("; ").map(|(start, _)| start).collect::<Vec<_>>();
    let start = *clauses.iter().rev().find(|start| {
        let clause = &doc[**start + 2..];
        clause.starts_with("required") || clause.contains("by default")
    })?;
    let rest = &doc[start + 2..];
    let end = rest.find(". ").map_or(rest.len(), |end| end + 1);
    let (clause, after) = rest.split_at(end);
    let default = clause.trim_end_matches('.').replacen("by default", "", 1);
    let default = default.replace(" ,", ",").replace("  ", " ");
    let default = default.trim_matches([' ', ',']).to_owned();
    Some((format!("{}.{after}", &doc[..start]), default))
}

/// A value as written in a run file.
fn written(value: &Value) -> String {
    match value {
        // An `f32` field has additional digits when converted to `f64`.
        Value::Float(number) => match *number as f32 {
            0.0 => "0".to_owned(),
            short if short.abs() < 1e-3 => format!("{short:e}"),
            short => format!("{short}"),
        },
        Value::Array(values) => {
            format!("[{}]", values.iter().map(written).collect::<Vec<_>>().join(", "))
        }
        Value::Table(table) => {
            let pairs = table.iter().map(|(key, value)| format!("{key} = {}", written(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

struct Reference {
    structs: BTreeMap<String, ItemStruct>,
    enums: BTreeMap<String, ItemEnum>,
    examples: Vec<Table>,
    /// Tables that already have a section.
    seen: Vec<String>,
    page: String,
    problems: Vec<String>,
}

impl Reference {
    fn new() -> Self {
        let (mut structs, mut enums) = (BTreeMap::new(), BTreeMap::new());
        for source in SOURCES {
            for item in syn::parse_file(source).unwrap().items {
                match item {
                    Item::Struct(item) => drop(structs.insert(item.ident.to_string(), item)),
                    Item::Enum(item) => drop(enums.insert(item.ident.to_string(), item)),
                    _ => {}
                }
            }
        }
        let (seen, page, problems) = (Vec::new(), String::new(), Vec::new());
        Self { structs, enums, examples: examples(), seen, page, problems }
    }

    /// The notation of a value of this type in a run file.
    fn looks(&self, kind: &Type) -> String {
        if let Type::Tuple(tuple) = kind {
            let parts: Vec<String> = tuple.elems.iter().map(|part| self.looks(part)).collect();
            return format!("[{}]", parts.join(", "));
        }
        let (name, inner) = named(kind);
        if let Some((_, looks)) = READ_BY_HAND.iter().find(|(other, _)| *other == name) {
            return (*looks).to_owned();
        }
        match name.as_str() {
            "Option" => self.looks(inner.unwrap()),
            "Vec" => format!("list of {}s", self.looks(inner.unwrap())),
            "String" => "string".into(),
            "PathBuf" => "path".into(),
            "bool" => "boolean".into(),
            "u32" | "u64" | "usize" => "integer".into(),
            "f32" | "f64" => "number".into(),
            other => match self.enums.get(other) {
                Some(item) => {
                    let values = self.values(item).into_iter().map(|(value, _)| value);
                    values.map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
                }
                None => "table".into(),
            },
        }
    }

    /// The values of an enum, each with its meaning.
    fn values(&self, item: &ItemEnum) -> Vec<(String, String)> {
        let rule = serde_value(&item.attrs, "rename_all");
        let plain = |text: String| text.replace('`', "");
        let value = |variant: &syn::Variant| {
            let name = serde_value(&variant.attrs, "rename")
                .unwrap_or_else(|| renamed(&variant.ident.to_string(), rule.as_deref()));
            let value = match &variant.fields {
                Fields::Unit => format!("\"{name}\""),
                Fields::Unnamed(fields) => {
                    let looks = match self.looks(&fields.unnamed[0].ty) {
                        looks if looks == "table" => "{ … }".to_owned(),
                        looks => plain(looks),
                    };
                    format!("{{ {name} = {looks} }}")
                }
                Fields::Named(fields) => {
                    let fields = fields.named.iter().map(|field| {
                        let looks = plain(self.looks(&field.ty));
                        format!("{} = {looks}", field.ident.as_ref().unwrap())
                    });
                    let fields = fields.collect::<Vec<_>>().join(", ");
                    format!("{{ {name} = {{ {fields} }} }}")
                }
            };
            let mut meaning = docs(&variant.attrs).trim_end_matches('.').to_owned();
            if let Fields::Named(fields) = &variant.fields {
                for field in &fields.named {
                    let doc = docs(&field.attrs);
                    let doc = doc.trim_end_matches('.');
                    meaning += &format!(". `{}`: {doc}", field.ident.as_ref().unwrap());
                }
            }
            (value, meaning)
        };
        item.variants.iter().map(value).collect()
    }

    fn default_of(&self, path: &str) -> Option<&Value> {
        self.examples.iter().find_map(|example| applies::find(example, path))
    }

    /// The default shown in the table for a key. `stated` is the default in the doc comment.
    fn default(&mut self, path: &str, stated: String) -> String {
        let default = self.default_of(path).cloned();
        if let Some(key) = AutoKey::ALL.iter().find(|key| key.path() == path) {
            return match default {
                Some(value) if !key.has_no_fixed_default() => {
                    format!("auto (`{}`)", written(&value))
                }
                _ => "auto".into(),
            };
        }
        let is_fixed = !stated.starts_with("required")
            && stated != "none"
            && !matches!(&default, Some(Value::Array(values)) if values.is_empty());
        let bare = stated.trim_matches('`');
        let Some(value) = default.filter(|_| is_fixed) else {
            let is_bare = bare.parse::<f64>().is_ok() || ["true", "false"].contains(&bare);
            let is_word = bare.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            return match bare {
                bare if is_bare => format!("`{bare}`"),
                bare if is_word && bare != stated => format!("`\"{bare}\"`"),
                _ => stated,
            };
        };
        let fixed = written(&value);
        if bare != fixed && format!("\"{bare}\"") != fixed {
            self.problems.push(format!("{path}: the doc comment says {stated}, not {fixed}"));
        }
        format!("`{fixed}`")
    }

    fn row(&mut self, section: &str, field: &Field) -> String {
        let name = serde_value(&field.attrs, "rename")
            .unwrap_or_else(|| field.ident.as_ref().unwrap().to_string());
        let path = format!("{section}.{name}");
        let doc = docs(&field.attrs);
        let Some((meaning, stated)) = split(&doc) else {
            self.problems.push(format!("{path}: the doc comment names no default: {doc}"));
            return String::new();
        };
        let default = self.default(&path, stated);
        let looks = match serde_value(&field.attrs, "deserialize_with").as_deref() {
            Some("one_or_more") => "string, list of strings".to_owned(),
            Some("clip_or_number") => format!("number, {}", self.looks(&field.ty)),
            _ => self.looks(&field.ty),
        };
        let scope = applies::scope(&path);
        format!("| `{name}` | {looks} | {default} | {scope} | {meaning} |\n")
    }

    /// The tables that a field's value can be, with their paths.
    fn tables(&self, path: &str, kind: &Type) -> Vec<(String, String)> {
        if !matches!(required(kind), Type::Path(_)) {
            return Vec::new();
        }
        let (name, _) = named(required(kind));
        if self.structs.contains_key(&name) {
            return vec![(path.to_owned(), name)];
        }
        let Some(item) = self.enums.get(&name) else { return Vec::new() };
        let rule = serde_value(&item.attrs, "rename_all");
        let inner = item.variants.iter().filter_map(|variant| match &variant.fields {
            Fields::Unnamed(fields) => {
                let variant = renamed(&variant.ident.to_string(), rule.as_deref());
                Some(self.tables(&format!("{path}.{variant}"), &fields.unnamed[0].ty))
            }
            _ => None,
        });
        inner.flatten().collect()
    }

    fn section(&mut self, path: &str, name: &str) {
        if self.seen.iter().any(|seen| seen == name) {
            return;
        }
        self.seen.push(name.to_owned());
        let item = self.structs[name].clone();
        let marks = if path.contains('.') { "####" } else { "###" };
        self.page += &format!("{marks} [{path}]\n\n");
        let scope = applies::scope(path);
        if !scope.is_empty() {
            self.page += &format!("For {scope}.\n\n");
        }
        self.page += "| key | type | default | for | meaning |\n|---|---|---|---|---|\n";
        let Fields::Named(fields) = &item.fields else { panic!("{name} has named fields") };
        let (mut inner, mut values) = (Vec::new(), String::new());
        for field in &fields.named {
            let ident = field.ident.as_ref().unwrap().to_string();
            let tables = self.tables(&format!("{path}.{ident}"), &field.ty);
            let is_section = tables.iter().any(|(at, _)| *at == format!("{path}.{ident}"));
            inner.extend(tables);
            // A section such as [privacy.anadp] has its own table, and no default.
            if is_section && docs(&field.attrs).matches("by default").count() == 0 {
                continue;
            }
            let row = self.row(path, field);
            self.page += &row;
            values += &self.list(field, &ident);
        }
        self.page += "\n";
        if !values.is_empty() {
            self.page += &format!("{values}\n");
        }
        for (path, name) in inner {
            self.section(&path, &name);
        }
    }

    /// The values of a field whose type is an enum, as a list.
    fn list(&self, field: &Field, key: &str) -> String {
        let kind = required(&field.ty);
        if !matches!(kind, Type::Path(_)) {
            return String::new();
        }
        let (name, _) = named(kind);
        let is_by_hand = READ_BY_HAND.iter().any(|(other, _)| *other == name);
        let Some(item) = self.enums.get(&name).filter(|_| !is_by_hand) else {
            return String::new();
        };
        let values = self.values(item);
        let values = values.iter().map(|(value, meaning)| format!("  - `{value}`: {meaning}.\n"));
        format!("- `{key}`\n{}", values.collect::<String>())
    }
}

#[test]
fn the_run_file_reference_is_the_doc_comments_of_the_types() {
    let mut reference = Reference::new();
    let file = reference.structs["RunFile"].clone();
    let sections: Punctuated<Field, Token![,]> = match file.fields {
        Fields::Named(fields) => fields.named,
        _ => panic!("sections"),
    };
    for field in &sections {
        let (name, _) = named(required(&field.ty));
        if reference.structs.contains_key(&name) {
            reference.section(&field.ident.as_ref().unwrap().to_string(), &name);
        }
    }
    assert!(reference.problems.is_empty(), "{}", reference.problems.join("\n"));
    pages::assert_generated("docs/formats.md", "run-file keys", &reference.page);
}
