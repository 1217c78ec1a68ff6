//! From texts to releases that are paid for and stored.

use super::budget::{Bound, Budget};
use super::fetch::Pinned;
use super::home::Home;
use super::purpose::Purpose;
use crate::error::{Error, Result};
use crate::frame::{NO_LABEL, RecordId, Release};
use crate::hex::{Hash, keyed_hash};
use crate::task::Task;
use std::collections::HashSet;
use std::path::Path;
use undertone::data::{Example, Target, Tokeniser};
use undertone::method::local::RandomisedLabels;
use undertone::method::local::split::OwnerHalf;
use undertone::noise::Secret;
use undertone::tensor::Device;
use undertone_run::ReleaseKind;

/// Texts that are computed and stored at a time.
const TOGETHER: usize = 4096;

/// pre(·) of a task.
#[derive(Debug)]
pub struct Pre {
    half: OwnerHalf,
    pub tokeniser: Tokeniser,
}

impl Pre {
    /// Loads the verified folder; refuses one that is not what the task says.
    pub fn load(folder: &Path, task: &Task, device: &Device) -> Result<Self> {
        let half = OwnerHalf::load(folder, device)?;
        if *half.config() != task.sanitiser || half.width() != task.width {
            return Err(Error::mistake(
                "the sanitiser of pre(·) is not the one that the task names; nothing was sent",
            ));
        }
        let tokeniser = half.tokeniser(folder, task.max_tokens)?;
        Ok(Self { half, tokeniser })
    }
}

/// A text's tokens as the bytes that its id and noise are functions of.
fn content(example: &Example) -> Vec<u8> {
    let words = |ids: &[u32]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = (example.tokens.len() as u64).to_le_bytes().to_vec();
    bytes.extend(words(&example.tokens));
    bytes.extend(words(&example.segments));
    bytes
}

/// The id of a text under a task: always the same to its owner, and random to others.
pub fn record_id(secret: &[u8; 32], task: &Hash, purpose: Purpose, text: &Example) -> RecordId {
    let hash = keyed_hash(secret, &[b"record", task, purpose.name().as_bytes(), &content(text)]);
    std::array::from_fn(|i| hash[i])
}

/// What a text's noise is drawn from.
fn noise_secret(secret: &[u8; 32], task: &Hash, purpose: Purpose, text: &Example) -> Secret {
    let parts: [&[u8]; 4] = [b"noise", task, purpose.name().as_bytes(), &content(text)];
    Secret::from_bytes(keyed_hash(secret, &parts))
}

/// How many texts there are, and how many of them are released for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Texts {
    /// Different texts.
    pub all: u64,
    pub new: u64,
}

/// Different texts that were not released before, in the order of their ids.
pub fn not_released<'a>(
    home: &Home,
    hash: &Hash,
    purpose: Purpose,
    texts: &'a [Example],
) -> Result<(Texts, Vec<(RecordId, &'a Example)>)> {
    let known = home.book.released(hash, purpose)?;
    let mut seen = HashSet::new();
    let mut new = Vec::new();
    for text in texts {
        let id = record_id(&home.secret, hash, purpose, text);
        // Of a text that stands twice in a file the first counts, with its label.
        if seen.insert(id) && !known.contains(&id) {
            new.push((id, text));
        }
    }
    // Whoever sees the frames does not see the order of the file.
    new.sort_by_key(|(id, _)| *id);
    Ok((Texts { all: seen.len() as u64, new: new.len() as u64 }, new))
}

/// Records the releases of new texts in the ledger, makes them, and stores them.
pub fn release(
    home: &mut Home,
    pinned: &Pinned,
    purpose: Purpose,
    pre: &Pre,
    new: &[(RecordId, &Example)],
    bound: &Bound,
) -> Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let Pinned { task, hash, .. } = pinned;
    Budget::new(home, task, hash, purpose).pay(bound)?;
    for texts in new.chunks(TOGETHER) {
        let made = make(&home.secret, pinned, purpose, pre, texts)?;
        home.book.keep(hash, purpose, &made, task.slots as usize)?;
    }
    Ok(())
}

fn make(
    secret: &[u8; 32],
    pinned: &Pinned,
    purpose: Purpose,
    pre: &Pre,
    texts: &[(RecordId, &Example)],
) -> Result<Vec<Vec<Release>>> {
    let Pinned { task, hash, .. } = pinned;
    let examples: Vec<Example> = texts.iter().map(|(_, text)| (*text).clone()).collect();
    let secrets: Vec<Secret> =
        examples.iter().map(|text| noise_secret(secret, hash, purpose, text)).collect();
    let noise = task.query_noise();
    let found = match purpose {
        Purpose::Contribution => {
            let (kind, noise) = (task.releases.release, &task.releases.noise_multipliers);
            pre.half.release(&examples, &secrets, kind, noise)?
        }
        Purpose::Query => pre.half.release(&examples, &secrets, ReleaseKind::Once, &[noise])?,
    };
    let classes = task.labels.len() as u32;
    let mut made = Vec::with_capacity(texts.len());
    for ((numbers, (id, text)), secret) in found.into_iter().zip(texts).zip(&secrets) {
        let label = match (purpose, &text.target) {
            (Purpose::Query, _) => NO_LABEL,
            (Purpose::Contribution, Target::Class(class)) => match task.label_epsilon {
                Some(epsilon) => RandomisedLabels::new(secret, epsilon, classes).answer(0, *class),
                None => *class,
            },
            (Purpose::Contribution, _) => {
                return Err(Error::mistake("a text has no label; name its column by --label"));
            }
        };
        let of_epoch = |numbers: Vec<f32>| Release { id: *id, label, numbers };
        made.push(numbers.into_iter().map(of_epoch).collect());
    }
    Ok(made)
}
