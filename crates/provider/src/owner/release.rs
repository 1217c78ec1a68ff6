//! Turns rows into releases that are recorded and stored.
//!
//! No text can make this fail. Problems with the task are detected before any text is read
//! ([`Pre::load`]). A text that the provider's tokenizer cannot read, or for which pre(·) computes
//! a non-finite value, still gives one release: of a fixed token, or of a row of zeros. Otherwise,
//! a provider could make `contribute` fail for certain texts and see which owners have one.

use super::budget::{Bound, Budget};
use super::fetch::Pinned;
use super::home::Home;
use super::purpose::Purpose;
use super::rows::{Key, Row, Source};
use crate::error::{Error, Result};
use crate::frame::{NO_LABEL, Release};
use crate::task::Task;
use std::path::Path;
use undertone::data::{Example, Labels, Tokenizer};
use undertone::method::local::RandomizedLabels;
use undertone::method::local::split::OwnerHalf;
use undertone::noise::Secret;
use undertone::tensor::Device;
use undertone_run::ReleaseKind;

/// Number of rows computed and stored at a time.
const TOGETHER: usize = 4096;

/// pre(·) of a task.
#[derive(Debug)]
pub struct Pre {
    half: OwnerHalf,
    tokenizer: Tokenizer,
}

impl Pre {
    /// Loads the verified folder, runs it on the longest possible text, and rejects it if it does
    /// not match the task.
    pub fn load(folder: &Path, task: &Task, device: &Device) -> Result<Self> {
        let half = OwnerHalf::load(folder, device)?;
        if *half.config() != task.sanitizer || half.width() != task.width {
            return Err(Error::mistake(
                "the sanitizer of pre(·) is not the one that the task names; nothing was sent",
            ));
        }
        let tokenizer = half.tokenizer(folder, task.max_tokens)?;
        half.rehearse(tokenizer.max_tokens())?;
        Ok(Self { half, tokenizer })
    }

    /// The tokens of a row, or `None` if it cannot be tokenized.
    fn tokens(&self, row: &Row) -> Option<Example> {
        let tokens = match row.texts.as_slice() {
            [first, second] => self.tokenizer.pair(first, second),
            texts => self.tokenizer.text(texts.first().map_or("", String::as_str)),
        };
        let tokens = tokens.ok()?;
        let example =
            Example { tokens: tokens.ids, segments: tokens.segments, ..Example::default() };
        self.half.reads(&example).then_some(example)
    }

    /// The bounded rows of a text, before noise.
    #[cfg(test)]
    pub fn bounded(&self, row: &Row) -> Result<Vec<f32>> {
        let example = self.tokens(row).unwrap_or_else(OwnerHalf::placeholder);
        Ok(self.half.bounded(&example)?.dense().to_vec())
    }
}

/// The classes of the rows' labels; rejects a label that is not in the task.
pub fn classes(task: &Task, file: &Path, rows: &[Row]) -> Result<Vec<Option<u32>>> {
    let labels = Labels::given(task.labels.clone())?;
    let class = |row: &Row| {
        let label = row.label.as_ref();
        label.map(|label| Ok(labels.require(label, file, row.line)?)).transpose()
    };
    rows.iter().map(class).collect()
}

/// Rows with their ids, in the order of the file.
pub fn sources<'a>(
    home: &Home,
    pinned: &Pinned,
    purpose: Purpose,
    rows: &'a [Row],
    classes: &[Option<u32>],
) -> Result<Vec<Source<'a>>> {
    let known = home.book.known(&pinned.hash, purpose)?;
    let key = Key { secret: &home.secret, task: &pinned.hash, purpose };
    Ok(key.sources(rows, classes, &known))
}

/// Records the releases of new rows in the ledger, makes them and stores them. Returns the number
/// of rows that could not be tokenized, which only the owner may see.
pub fn release(
    home: &mut Home,
    pinned: &Pinned,
    purpose: Purpose,
    pre: &Pre,
    sources: &[Source],
    bound: &Bound,
) -> Result<u64> {
    let mut new: Vec<&Source> = sources.iter().filter(|source| !source.is_known).collect();
    if new.is_empty() {
        return Ok(0);
    }
    // Frames must not reveal the order of the rows in the file.
    new.sort_by_key(|source| source.id);
    let Pinned { task, hash, .. } = pinned;
    Budget::new(home, task, hash, purpose).pay(bound)?;
    let mut untokenized = 0;
    for sources in new.chunks(TOGETHER) {
        let key = Key { secret: &home.secret, task: hash, purpose };
        let (made, placeholders) = make(key, task, pre, sources)?;
        untokenized += placeholders;
        home.book.keep(hash, purpose, sources, &made, task.slots as usize)?;
    }
    Ok(untokenized)
}

/// The releases of some rows in every epoch, and the number of rows that could not be tokenized.
fn make(key: Key, task: &Task, pre: &Pre, sources: &[&Source]) -> Result<(Vec<Vec<Release>>, u64)> {
    let tokens: Vec<Option<Example>> =
        sources.iter().map(|source| pre.tokens(source.row)).collect();
    let untokenized = tokens.iter().filter(|example| example.is_none()).count() as u64;
    let examples: Vec<Example> =
        tokens.into_iter().map(|example| example.unwrap_or_else(OwnerHalf::placeholder)).collect();
    let secrets: Vec<Secret> =
        sources.iter().map(|source| Secret::from_bytes(key.noise(source))).collect();
    let (kind, noise) = match key.purpose {
        Purpose::Contribution => (task.releases.release, task.releases.noise_multipliers.clone()),
        Purpose::Query => (ReleaseKind::Once, vec![task.query_noise()]),
    };
    let numbers = pre.half.release(&examples, &secrets, kind, &noise)?;
    let mut made = Vec::with_capacity(sources.len());
    for ((numbers, source), secret) in numbers.into_iter().zip(sources).zip(&secrets) {
        let label = label(key.purpose, task, source, secret)?;
        let of_epoch = |numbers: Vec<f32>| Release { id: source.id, label, numbers };
        made.push(numbers.into_iter().map(of_epoch).collect());
    }
    Ok((made, untokenized))
}

/// The label to send: after randomized response, unless labels are public.
fn label(purpose: Purpose, task: &Task, source: &Source, secret: &Secret) -> Result<u32> {
    let classes = task.labels.len() as u32;
    match (purpose, source.class, task.label_epsilon) {
        (Purpose::Query, ..) => Ok(NO_LABEL),
        (Purpose::Contribution, Some(class), Some(epsilon)) => {
            Ok(RandomizedLabels::new(secret, epsilon, classes).answer(0, class))
        }
        (Purpose::Contribution, Some(class), None) => Ok(class),
        (Purpose::Contribution, None, _) => {
            Err(Error::mistake("a text has no label; pass the label column with --label"))
        }
    }
}
