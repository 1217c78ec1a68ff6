//! From a file to the examples of a training step.

use std::path::{Path, PathBuf};
use tempfile::TempDir;
use undertone_data::{
    Batch, Dataset, Error, Example, Labels, LongTexts, Options, PoissonSampler, PrivacyUnit,
    Target, Task, Tokenizer, micro_batches, stream,
};

use crate::fixture;

struct Given {
    folder: TempDir,
    tokenizer: Tokenizer,
}

fn given(tokenizer: serde_json::Value) -> Given {
    let folder = tempfile::tempdir().unwrap();
    fixture::write(folder.path(), &tokenizer);
    let tokenizer = Tokenizer::load(folder.path()).unwrap().with_max_tokens(6).unwrap();
    Given { folder, tokenizer }
}

impl Given {
    fn file(&self, name: &str, contents: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::write(&file, contents).unwrap();
        file
    }

    fn load(&self, file: &Path, task: &Task, options: &Options) -> Result<Dataset, Error> {
        Dataset::load(file, task, &self.tokenizer, None, options)
    }
}

fn sentiment() -> Task {
    Task::Classification { text: vec!["text".into()], label: Some("label".into()) }
}

fn language() -> Task {
    Task::LanguageModeling { text: "text".into() }
}

#[test]
fn a_classification_is_loaded() {
    let given = given(fixture::bert());
    let file = given.file("a.tsv", "text\tlabel\na b\tyes\nc\tno\n");
    let data =
        given.load(&file, &sentiment(), &Options { progress: true, ..Options::default() }).unwrap();
    assert_eq!(data.labels.as_ref().unwrap().names(), ["no", "yes"]);
    assert_eq!((data.units, data.most_per_unit), (2, 1));
    let example = |tokens: &[u32], class, unit| Example {
        tokens: tokens.to_vec(),
        segments: vec![],
        target: Target::Class(class),
        unit,
    };
    assert_eq!(data.examples, [example(&[1, 5, 6, 2], 1, 0), example(&[1, 7, 2], 0, 1)]);
}

#[test]
fn pairs_have_segments() {
    let given = given(fixture::bert());
    let file = given.file("a.csv", "q,s,label\na,b c,0\n");
    let task =
        Task::Classification { text: vec!["q".into(), "s".into()], label: Some("label".into()) };
    let data = given.load(&file, &task, &Options::default()).unwrap();
    assert_eq!(data.examples[0].tokens, [1, 5, 2, 6, 7, 2]);
    assert_eq!(data.examples[0].segments, [0, 0, 0, 1, 1, 1]);
}

#[test]
fn given_labels_hold_and_a_stranger_says_where() {
    let given = given(fixture::bert());
    let file = given.file("a.tsv", "text\tlabel\na\t1\nb\tpositive\nc\tneutral\n");
    let labels = Labels::given(vec!["negative".into(), "positive".into()]).unwrap();
    let error =
        Dataset::load(&file, &sentiment(), &given.tokenizer, Some(labels), &Options::default())
            .unwrap_err();
    assert!(
        matches!(error, Error::UnknownLabel { line: 4, ref label, .. } if label == "neutral"),
        "{error}"
    );
}

#[test]
fn a_file_without_labels_can_be_streamed() {
    let given = given(fixture::bert());
    let rows: String = (0..10_000).map(|i| format!("{i}\ta b\n")).collect();
    let file = given.file("a.tsv", &format!("index\ttext\n{rows}"));
    let (task, options) = (sentiment(), Options::default());
    let chunks: Vec<Vec<Example>> = stream(&file, &task, &given.tokenizer, None, &options)
        .unwrap()
        .map(|chunk| chunk.unwrap())
        .collect();
    assert!(chunks.len() > 1);
    let all = chunks.concat();
    assert_eq!(all.len(), 10_000);
    assert!(
        all.iter().zip(0..).all(|(example, i)| example.unit == i && example.target == Target::None)
    );
}

#[test]
fn a_stream_ends_with_its_first_error() {
    let given = given(fixture::bert());
    let rows: String = (0..9_000).map(|_| "a\tyes\n").collect();
    let file = given.file("a.tsv", &format!("text\tlabel\n{rows}torn\n"));
    let labels = Labels::given(vec!["yes".into()]).unwrap();
    let (task, options) = (sentiment(), Options::default());
    let mut chunks = stream(&file, &task, &given.tokenizer, Some(&labels), &options).unwrap();
    let error = chunks.find_map(|chunk| chunk.err()).unwrap();
    assert!(matches!(error, Error::TornRow { line: 9_002, .. }), "{error}");
    assert!(chunks.next().is_none());
}

#[test]
fn an_authors_rows_are_one_unit_and_bounded() {
    let given = given(fixture::bert());
    let rows = "a\t0\tann\nb\t1\tbob\nc\t0\tann\nd\t1\tann\ne\t1\tcat\n";
    let file = given.file("a.tsv", &format!("text\tlabel\tauthor\n{rows}"));
    let unit = PrivacyUnit::Author { column: "author".into(), at_most: 2 };
    let data = given.load(&file, &sentiment(), &Options { unit, ..Options::default() }).unwrap();
    assert_eq!((data.units, data.most_per_unit), (3, 2));
    let units: Vec<u32> = data.examples.iter().map(|example| example.unit).collect();
    assert_eq!(units, [0, 1, 0, 2]);
    assert_eq!(data.members().of_unit(0), [0, 2]);
    assert_eq!(data.examples[2].tokens, [1, 7, 2]);
}

#[test]
fn an_anonymous_row_is_refused() {
    let given = given(fixture::bert());
    let file = given.file("a.tsv", "text\tlabel\tauthor\na\t0\tann\nb\t1\t\n");
    let unit = PrivacyUnit::Author { column: "author".into(), at_most: 2 };
    let error =
        given.load(&file, &sentiment(), &Options { unit, ..Options::default() }).unwrap_err();
    assert!(
        matches!(error, Error::MissingValue { line: 3, ref column, .. } if column == "author"),
        "{error}"
    );
}

#[test]
fn pieces_of_a_text_are_one_unit() {
    let given = given(fixture::gpt());
    let file = given.file("a.txt", "a b\na b c d e f g h i\n");
    let long_texts = LongTexts::Split { at_most: 5 };
    let data =
        given.load(&file, &language(), &Options { long_texts, ..Options::default() }).unwrap();
    assert_eq!((data.units, data.most_per_unit), (2, 5));
    let shapes: Vec<(u32, usize)> =
        data.examples.iter().map(|e| (e.unit, e.tokens.len())).collect();
    assert_eq!(shapes, [(0, 3), (1, 6), (1, 5)]);
    let cut = given.load(&file, &language(), &Options::default()).unwrap();
    assert_eq!((cut.examples.len(), cut.most_per_unit), (2, 1));
}

#[test]
fn an_authors_pieces_are_bounded_too() {
    let given = given(fixture::gpt());
    let line = |author: &str| {
        format!("{{\"text\": \"a b c d e f g h i\", \"from\": {{\"name\": \"{author}\"}}}}\n")
    };
    let file = given.file("a.jsonl", &[line("ann"), line("ann"), line("bob")].concat());
    let options = Options {
        unit: PrivacyUnit::Author { column: "from.name".into(), at_most: 3 },
        long_texts: LongTexts::Split { at_most: 5 },
        ..Options::default()
    };
    let data = given.load(&file, &language(), &options).unwrap();
    assert_eq!(data.examples.iter().map(|e| e.unit).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
}

#[test]
fn completions_are_loaded() {
    let given = given(fixture::gpt());
    let file = given.file("a.csv", "mr,ref\na b,c\n,d\n");
    let task = Task::Completion { prompt: "mr".into(), completion: "ref".into() };
    let data = given.load(&file, &task, &Options::default()).unwrap();
    assert_eq!(
        (&data.examples[0].tokens, &data.examples[0].target),
        (&vec![5, 6, 7, 0], &Target::Next { from: 2 })
    );
    assert_eq!(
        (&data.examples[1].tokens, &data.examples[1].target),
        (&vec![0, 8, 0], &Target::Next { from: 1 })
    );
}

#[test]
fn a_text_without_tokens_says_where() {
    let mut tokenizer = fixture::gpt();
    tokenizer["added_tokens"] = serde_json::json!([]);
    tokenizer["model"]["vocab"].as_object_mut().unwrap().remove("<|endoftext|>");
    let given = given(tokenizer);
    let file = given.file("a.jsonl", "{\"text\": \"a b\"}\n\n{\"text\": \"\"}\n");
    let error = given.load(&file, &language(), &Options::default()).unwrap_err();
    assert!(matches!(error, Error::NoTokens { line: 3, .. }), "{error}");
}

#[test]
fn settings_that_allow_nothing_are_refused() {
    let given = given(fixture::gpt());
    let file = given.file("a.txt", "a\n");
    let none = Options { long_texts: LongTexts::Split { at_most: 0 }, ..Options::default() };
    assert!(matches!(given.load(&file, &language(), &none), Err(Error::Invalid { .. })));
    let nobody = PrivacyUnit::Author { column: "text".into(), at_most: 0 };
    let options = Options { unit: nobody, ..Options::default() };
    assert!(matches!(given.load(&file, &language(), &options), Err(Error::Invalid { .. })));
}

/// Sampled one by one, an author still has no more examples than the maximum.
#[test]
fn single_examples_are_those_within_the_maximum_of_their_authors() {
    let given = given(fixture::bert());
    let rows: String = (0..40).map(|i| format!("a b c\t{}\tauthor {}\n", i % 2, i % 8)).collect();
    let file = given.file("a.tsv", &format!("text\tlabel\tauthor\n{rows}"));
    let unit = PrivacyUnit::Author { column: "author".into(), at_most: 3 };
    let of_authors =
        given.load(&file, &sentiment(), &Options { unit, ..Options::default() }).unwrap();
    let single = of_authors.clone().into_single_examples().unwrap();
    assert_eq!((of_authors.units, single.units, single.most_per_unit), (8, 24, 1));
    let members = single.members();
    assert!((0..24).all(|unit| members.of_unit(unit) == [unit]));
    let tokens = |data: &Dataset| -> Vec<Vec<u32>> {
        data.examples.iter().map(|example| example.tokens.clone()).collect()
    };
    assert_eq!(tokens(&single), tokens(&of_authors));
}

/// End to end: file, dataset, sampler, micro-batches, packed tokens.
#[test]
fn a_step_holds_all_examples_of_the_drawn_authors() {
    let given = given(fixture::bert());
    let rows: String = (0..40).map(|i| format!("a b c\t{}\tauthor {}\n", i % 2, i % 8)).collect();
    let file = given.file("a.tsv", &format!("text\tlabel\tauthor\n{rows}"));
    let unit = PrivacyUnit::Author { column: "author".into(), at_most: 3 };
    let data = given.load(&file, &sentiment(), &Options { unit, ..Options::default() }).unwrap();
    let (members, sampler) =
        (data.members(), PoissonSampler::new(data.units, 0.4, [7; 32]).unwrap());
    for step in 0..20 {
        let drawn = sampler.step(step);
        let examples = members.of_units(&drawn);
        assert_eq!(examples.len(), 3 * drawn.len());
        let pieces = micro_batches(&examples, &data.examples, 7, 100);
        let batches =
            pieces.iter().map(|piece| Batch::pack(piece.iter().map(|&i| &data.examples[i])));
        let sequences: usize = batches.map(|batch| batch.sequences()).sum();
        assert_eq!(sequences, examples.len());
    }
}
