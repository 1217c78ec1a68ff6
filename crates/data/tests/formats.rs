//! Input formats: several files, compressed files, dataset folders, conversations, templates,
//! packed texts.

use crate::fixture;
use crate::parquet_files;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use undertone_data::{
    Dataset, Error, Options, PrivacyUnit, Target, Task, Tokenizer, examples_by_line,
};

struct Given {
    folder: TempDir,
}

/// A tokenizer with a chat template, as in a model folder.
const CHAT: &str = "{% for m in messages %}{{ '<1> ' if m.role == 'user' else '<2> ' }}\
     {{ m.content }}{% if m.role == 'assistant' %}{{ ' ' + eos_token }}{% endif %}{{ ' ' }}\
     {% endfor %}{% if add_generation_prompt %}{{ '<2> ' }}{% endif %}";

impl Given {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fixture::write(folder.path(), &fixture::gpt());
        let config = serde_json::json!({ "chat_template": CHAT, "eos_token": "<|endoftext|>" });
        let given = Self { folder };
        given.file("tokenizer_config.json", config.to_string().as_bytes());
        given
    }

    fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, contents).unwrap();
        file
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn load(&self, file: &Path, task: &Task, max_tokens: usize) -> Result<Dataset, Error> {
        self.load_with(file, task, max_tokens, &Options::default())
    }

    fn load_with(
        &self,
        file: &Path,
        task: &Task,
        max_tokens: usize,
        options: &Options,
    ) -> Result<Dataset, Error> {
        let tokenizer = Tokenizer::load(self.folder.path())?.with_max_tokens(max_tokens)?;
        Dataset::load(file, task, &tokenizer, None, options)
    }
}

fn language() -> Task {
    Task::LanguageModeling { text: "text".into() }
}

fn chat() -> Task {
    Task::Chat { messages: "messages".into() }
}

fn tokens(data: &Dataset) -> Vec<Vec<u32>> {
    data.examples.iter().map(|example| example.tokens.clone()).collect()
}

#[test]
fn several_files_are_read_as_one() {
    let given = Given::new();
    given.file("rows/b.tsv", b"text\tby\nc\tann\n");
    given.file("rows/a.tsv", b"text\tby\na\tann\nb\tbob\n");
    let pattern = given.at("rows/*.tsv");
    let data = given.load(&pattern, &language(), 6).unwrap();
    assert_eq!(tokens(&data), [[5, 0], [6, 0], [7, 0]]);
    assert_eq!(data.units, 3);
    // An author who occurs in two files is one unit.
    let unit = PrivacyUnit::Author { column: "by".into(), at_most: 8 };
    let options = Options { unit, ..Options::default() };
    let of_authors = given.load_with(&pattern, &language(), 6, &options).unwrap();
    assert_eq!(of_authors.examples.iter().map(|e| e.unit).collect::<Vec<_>>(), [0, 1, 0]);
    // No two rows share a line number.
    let tokenizer = Tokenizer::load(given.folder.path()).unwrap();
    let lines = examples_by_line(&pattern, &language(), &tokenizer, &Options::default()).unwrap();
    assert_eq!(lines.into_iter().collect::<Vec<_>>(), [(2, 1), (3, 1), (5, 1)]);
    // An error names its file; a file without rows is an error, too.
    given.file("rows/c.tsv", b"other\nd\n");
    let error = given.load(&pattern, &language(), 6).unwrap_err().to_string();
    assert!(error.contains("c.tsv has no column \"text\""), "{error}");
    given.file("rows/c.tsv", b"text\nd\te\n");
    let error = given.load(&pattern, &language(), 6).unwrap_err().to_string();
    assert!(error.contains("c.tsv:2:"), "{error}");
    let error = given.load(&given.at("rows/*.csv"), &language(), 6).unwrap_err();
    assert!(matches!(error, Error::NoFiles { .. }), "{error}");
}

#[test]
fn zstandard_is_read_and_bombs_are_not() {
    let given = Given::new();
    let rows = b"{\"text\": \"a b\"}\n{\"text\": \"c\"}\n";
    let compressed = zstd::encode_all(&rows[..], 3).unwrap();
    let file = given.file("rows.jsonl.zst", &compressed);
    let data = given.load(&file, &language(), 6).unwrap();
    assert_eq!(tokens(&data), [vec![5, 6, 0], vec![7, 0]]);
    // Two frames form one file, and the first bytes decide, not the name.
    let both = [compressed.clone(), compressed.clone()].concat();
    let data = given.load(&given.file("rows.jsonl", &both), &language(), 6).unwrap();
    assert_eq!(data.examples.len(), 4);
    let cut = given.file("cut.jsonl.zst", &compressed[..compressed.len() - 4]);
    let error = given.load(&cut, &language(), 6).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
    let bomb = zstd::encode_all(std::io::Read::take(std::io::repeat(b'\n'), 1 << 29), 3).unwrap();
    let error = given.load(&given.file("bomb.txt.zst", &bomb), &language(), 6).unwrap_err();
    assert!(error.to_string().contains("times its size"), "{error}");
}

#[test]
fn a_dataset_folder_is_its_parquet_shards() {
    let given = Given::new();
    for (name, texts) in
        [("train-00001-of-00002", ["c", "d"]), ("train-00000-of-00002", ["a", "b"])]
    {
        let bytes = parquet_files::written(&texts, &[1, 2], &[true, false]);
        given.file(&format!("set/data/{name}.parquet"), &bytes);
    }
    given.file("set/data/test-00000-of-00001.parquet", b"not read");
    let data = given.load(&given.at("set"), &language(), 6).unwrap();
    assert_eq!(tokens(&data), [[5, 0], [6, 0], [7, 0], [8, 0]]);
}

#[test]
fn the_assistants_turns_are_predicted_and_nothing_else() {
    let given = Given::new();
    let turns = r#"[{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"}, {"role": "assistant", "content": "e f"}]"#;
    let line = format!("{{\"messages\": {}}}\n", turns.replace('\n', " "));
    let file = given.file("chat.jsonl", line.as_bytes());
    let data = given.load(&file, &chat(), 20).unwrap();
    let example = &data.examples[0];
    assert_eq!(example.tokens, [1, 5, 6, 2, 7, 0, 1, 8, 2, 9, 10, 0]);
    assert_eq!(example.target, Target::Spans(vec![4..6, 9..12]));
    // A conversation that is too long loses its end, or its beginning if nothing else could be
    // predicted.
    let cut = given.load(&file, &chat(), 10).unwrap();
    assert_eq!(cut.examples[0].target, Target::Spans(vec![4..6, 9..10]));
    let short = given.load(&file, &chat(), 4).unwrap();
    assert_eq!(short.examples[0].tokens, [5, 6, 2, 7]);
    let last = std::iter::once(3..4).collect();
    assert_eq!(short.examples[0].target, Target::Spans(last));
    // As text in a column, and as a list of groups in Parquet.
    let cell = given
        .file("chat.csv", format!("messages\n\"{}\"\n", turns.replace('"', "\"\"")).as_bytes());
    assert_eq!(given.load(&cell, &chat(), 20).unwrap().examples, data.examples);
    let parquet = given.file("chat.parquet", &parquet_files::conversations());
    let stored = given.load(&parquet, &chat(), 20).unwrap();
    assert_eq!(tokens(&stored), [vec![1, 5, 2, 6, 0], vec![1, 7, 2, 8, 0]]);
}

#[test]
fn conversations_that_cannot_be_laid_out_are_told_by_file_and_line() {
    let given = Given::new();
    let rows = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
    let file = given.file("chat.jsonl", rows.as_bytes());
    let error = given.load(&file, &chat(), 20).unwrap_err().to_string();
    assert!(error.contains("chat.jsonl:1: no assistant turn"), "{error}");
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    given.file("chat_template.jinja", endless.as_bytes());
    let error = given.load(&file, &chat(), 20).unwrap_err().to_string();
    assert!(error.contains("does not terminate"), "{error}");
    given.file("chat_template.jinja", b"{% for %}");
    let error = given.load(&file, &chat(), 20).unwrap_err().to_string();
    assert!(error.contains("chat_template.jinja: the chat template is unusable"), "{error}");
    std::fs::remove_file(given.at("chat_template.jinja")).unwrap();
    given.file("tokenizer_config.json", b"{}");
    let error = given.load(&file, &chat(), 20).unwrap_err().to_string();
    assert!(error.contains("there is none"), "{error}");
}

#[test]
fn templates_are_filled_with_columns() {
    let given = Given::new();
    let file = given.file("rows.tsv", b"q\ta\nb c\td\n");
    let task = Task::Completion { prompt: "a {q} z".into(), completion: "{a} e".into() };
    let data = given.load(&file, &task, 20).unwrap();
    assert_eq!(data.examples[0].tokens, [5, 6, 7, 30, 8, 9, 0]);
    assert_eq!(data.examples[0].target, Target::Next { from: 4 });
    let unknown = Task::Completion { prompt: "{question}".into(), completion: "a".into() };
    assert!(matches!(given.load(&file, &unknown, 20), Err(Error::MissingColumn { .. })));
}

#[test]
fn short_texts_of_an_author_share_a_sequence() {
    let given = Given::new();
    let file = given.file("rows.tsv", b"text\tby\na\tann\nb\tbob\nc d\tann\ne\tann\nf\tbob\n");
    let unit = PrivacyUnit::Author { column: "by".into(), at_most: 8 };
    let options = Options { unit, pack: true, ..Options::default() };
    let data = given.load_with(&file, &language(), 6, &options).unwrap();
    assert_eq!(tokens(&data), [vec![5, 0, 7, 8, 0], vec![6, 0, 10, 0], vec![9, 0]]);
    assert_eq!(data.examples.iter().map(|e| e.unit).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!((data.units, data.most_per_unit), (2, 8));
}
