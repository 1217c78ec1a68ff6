//! `undertone query`: private inference.

use super::budget::{Bound, Budget};
use super::fetch::{Pinned, Provider, fetch_pre};
use super::home::Home;
use super::purpose::Purpose;
use super::release::{Pre, not_released, record_id, release};
use super::send::send;
use crate::error::{Error, Result};
use crate::frame::{Frame, RecordId, Release};
use crate::hex::{hex, unhex};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;
use undertone::data::{Dataset, Example, Format, Options, Task as DataTask};
use undertone::tensor::Device;
use undertone_accounting::Guarantee;

/// Arguments of [`query`].
#[derive(Clone, Debug)]
pub struct Query {
    pub provider: Provider,
    /// The owner's folder.
    pub home: PathBuf,
    /// Texts, each of one column.
    pub texts: Vec<String>,
    /// A file of texts, and its columns.
    pub data: Option<(PathBuf, Option<Format>, Vec<String>)>,
    pub bound: Bound,
}

/// What the provider says of a text.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub label: String,
    /// By label, in the order of the task.
    pub probabilities: Vec<f64>,
}

/// The answers, and what they have cost.
#[derive(Clone, Debug, Serialize)]
pub struct Answered {
    pub answers: Vec<Answer>,
    /// Names of the labels.
    pub labels: Vec<String>,
    /// Texts that were released for the first time.
    pub new: u64,
    /// The guarantee of everything that the owner's folder holds.
    pub guarantee: Option<Guarantee>,
}

/// Releases texts and asks for predictions. A text that was asked before sends the same release,
/// and costs nothing.
pub fn query(asked: &Query, device: &Device) -> Result<Answered> {
    asked.bound.check()?;
    let mut home = Home::open(&asked.home)?;
    let mut client = asked.provider.client(&home)?;
    let begun = Instant::now();
    let mut pinned = asked.provider.pinned(&home, &mut client)?;
    let purpose = Purpose::Query;
    Budget::new(&home, &pinned.task, &pinned.hash, purpose).check(&asked.bound)?;
    let folder = fetch_pre(&home, &mut pinned, &mut client)?;
    let Pinned { task, hash, .. } = &pinned;
    // Opened again when the releases are made: how long that took does not show.
    client.close();
    let pre = Pre::load(&folder, task, device)?;
    let texts = read(asked, &pinned, &pre)?;
    let (counted, new) = not_released(&home, hash, purpose, &texts)?;
    release(&mut home, &pinned, purpose, &pre, &new, &asked.bound)?;
    pinned.wait_for_a_round_time(begun);
    let ids: Vec<RecordId> =
        texts.iter().map(|text| record_id(&home.secret, hash, purpose, text)).collect();
    let mut different = ids.clone();
    different.sort_unstable();
    different.dedup();
    let mut said = HashMap::new();
    for ids in different.chunks(task.slots as usize) {
        let releases = ids.iter().filter_map(|id| home.book.release(hash, purpose, id).transpose());
        let releases = releases.collect::<Result<Vec<Release>>>()?;
        let frame = Frame { kind: purpose.kind(), epoch: 0, releases }.encode(task, hash);
        let response = send(&mut client, "/v1/predict", &frame)?;
        match response.status {
            200 => said.extend(answers(&response.body, task.labels.len())?),
            400..=499 => {
                return Err(Error::mistake(format!(
                    "the provider refuses: {}",
                    response.problem()
                )));
            }
            _ => return Err(Error::failed(format!("the provider fails: {}", response.problem()))),
        }
    }
    let answer = |id: &RecordId| {
        said.get(id)
            .cloned()
            .ok_or_else(|| Error::failed(format!("the provider has not answered for {}", hex(id))))
    };
    Ok(Answered {
        answers: ids.iter().map(answer).collect::<Result<_>>()?,
        labels: task.labels.clone(),
        new: counted.new,
        guarantee: Budget::new(&home, task, hash, purpose).guarantee(asked.bound.delta)?,
    })
}

fn answers(body: &[u8], classes: usize) -> Result<HashMap<RecordId, Answer>> {
    #[derive(Deserialize)]
    struct Said {
        id: String,
        label: String,
        probabilities: Vec<f64>,
    }
    #[derive(Deserialize)]
    struct All {
        predictions: Vec<Said>,
    }
    let wrong = || Error::failed("the provider's predictions cannot be read");
    let all: All = serde_json::from_slice(body).map_err(|_| wrong())?;
    let each = all.predictions.into_iter().map(|Said { id, label, probabilities }| {
        let id = unhex::<16>(&id).ok_or_else(wrong)?;
        if probabilities.len() != classes {
            return Err(wrong());
        }
        Ok((id, Answer { label, probabilities }))
    });
    each.collect()
}

fn read(asked: &Query, pinned: &Pinned, pre: &Pre) -> Result<Vec<Example>> {
    let task = &pinned.task;
    let columns = |given: usize| match given == task.texts {
        true => Ok(()),
        false => Err(Error::mistake(format!("the task's texts have {} columns", task.texts))),
    };
    if let Some((file, format, text)) = &asked.data {
        columns(text.len())?;
        let columns = DataTask::Classification { text: text.clone(), label: None };
        columns.check()?;
        let options = Options { format: *format, progress: true, ..Options::default() };
        return Ok(Dataset::load(file, &columns, &pre.tokeniser, None, &options)?.examples);
    }
    columns(1)?;
    let of = |text: &String| -> Result<Example> {
        let tokens = pre.tokeniser.text(text)?;
        if tokens.ids.is_empty() {
            return Err(Error::mistake("a text has no tokens"));
        }
        Ok(Example { tokens: tokens.ids, segments: tokens.segments, ..Example::default() })
    };
    asked.texts.iter().map(of).collect()
}
