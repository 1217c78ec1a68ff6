//! `undertone-provider query`: private inference.

use super::budget::{Bound, Budget};
use super::fetch::{Pinned, Provider, fetch_pre};
use super::home::Home;
use super::purpose::Purpose;
use super::release::{Pre, release, sources};
use super::rows::Row;
use super::send::send;
use crate::error::{Error, Result};
use crate::frame::{Frame, RecordId, Release};
use crate::hex::unhex;
use crate::task::Task;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Instant;
use undertone::data::{Format, Task as DataTask};
use undertone::tensor::Device;
use undertone_accounting::Guarantee;

/// Arguments of [`query`].
#[derive(Clone, Debug)]
pub struct Query {
    pub provider: Provider,
    /// The owner's folder.
    pub home: PathBuf,
    /// Texts, each with a single column.
    pub texts: Vec<String>,
    /// A file of texts, with its format and columns.
    pub data: Option<(PathBuf, Option<Format>, Vec<String>)>,
    pub bound: Bound,
}

/// The provider's answer for a text.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub label: String,
    /// Probabilities by label, in the order of the task.
    pub probabilities: Vec<f64>,
}

/// The answers and their cost.
#[derive(Clone, Debug, Serialize)]
pub struct Answered {
    pub answers: Vec<Answer>,
    /// Names of the labels.
    pub labels: Vec<String>,
    /// Number of rows released for the first time.
    pub new: u64,
    /// Number of new rows that the task's tokenizer could not read, for which a fixed token was
    /// sent.
    pub untokenized: u64,
    /// The guarantee of everything in the owner's folder.
    pub guarantee: Option<Guarantee>,
}

/// Releases texts and requests predictions. A repeated text sends the same release and costs
/// nothing.
pub fn query(asked: &Query, device: &Device) -> Result<Answered> {
    asked.bound.check()?;
    let mut home = Home::open(&asked.home)?;
    let rows = read(asked)?;
    let mut client = asked.provider.client(&home)?;
    let begun = Instant::now();
    let mut pinned = asked.provider.pinned(&home, &mut client)?;
    let columns = asked.data.as_ref().map_or(1, |(_, _, text)| text.len());
    if columns != pinned.task.texts {
        return Err(Error::mistake(format!("the task's texts have {} columns", pinned.task.texts)));
    }
    let purpose = Purpose::Query;
    Budget::new(&home, &pinned.task, &pinned.hash, purpose).check(&asked.bound)?;
    let folder = fetch_pre(&home, &mut pinned, &mut client)?;
    // Reconnect after the releases are made, so that their duration stays hidden.
    client.close();
    let pre = Pre::load(&folder, &pinned.task, device)?;
    let sources = sources(&home, &pinned, purpose, &rows, &vec![None; rows.len()])?;
    let untokenized = release(&mut home, &pinned, purpose, &pre, &sources, &asked.bound)?;
    pinned.wait_for_a_round_time(begun);
    let Pinned { task, hash, .. } = &pinned;
    let mut ids: Vec<RecordId> = sources.iter().map(|source| source.id).collect();
    ids.sort_unstable();
    let mut said = HashMap::new();
    for ids in ids.chunks(task.slots as usize) {
        let releases = ids.iter().filter_map(|id| home.book.release(hash, purpose, id).transpose());
        let releases = releases.collect::<Result<Vec<Release>>>()?;
        let frame = Frame { kind: purpose.kind(), epoch: 0, releases }.encode(task, hash);
        let response = send(&mut client, "/v1/predict", &frame)?;
        match response.status {
            200 => said.extend(answers(&response.body, task, ids)?),
            400..=499 => {
                return Err(Error::mistake(format!(
                    "the provider refuses: {}",
                    response.problem()
                )));
            }
            _ => return Err(Error::failed(format!("the provider fails: {}", response.problem()))),
        }
    }
    Ok(Answered {
        answers: sources.iter().filter_map(|source| said.get(&source.id).cloned()).collect(),
        labels: task.labels.clone(),
        new: sources.iter().filter(|source| !source.is_known).count() as u64,
        untokenized,
        guarantee: Budget::new(&home, task, hash, purpose).guarantee(asked.bound.delta)?,
    })
}

/// The provider's answers: exactly one for each id, with labels of the task and probabilities.
fn answers(body: &[u8], task: &Task, ids: &[RecordId]) -> Result<HashMap<RecordId, Answer>> {
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
    let wrong =
        |what: &str| Error::failed(format!("the provider's predictions are not used: {what}"));
    let all: All = serde_json::from_slice(body).map_err(|_| wrong("they cannot be read"))?;
    let asked: HashSet<&RecordId> = ids.iter().collect();
    let mut answers = HashMap::new();
    for Said { id, label, probabilities } in all.predictions {
        let id = unhex::<16>(&id).filter(|id| asked.contains(id));
        let id = id.ok_or_else(|| wrong("one is about a text that was not asked"))?;
        if !task.labels.contains(&label) {
            return Err(wrong("one has a label that the task does not have"));
        }
        let total: f64 = probabilities.iter().sum();
        let is_share = |p: &f64| (0.0..=1.0).contains(p);
        if probabilities.len() != task.labels.len()
            || !probabilities.iter().all(is_share)
            || (total - 1.0).abs() > 1e-6
        {
            return Err(wrong("one has numbers that are not probabilities of the task's labels"));
        }
        if answers.insert(id, Answer { label, probabilities }).is_some() {
            return Err(wrong("a text is answered twice"));
        }
    }
    match answers.len() == ids.len() {
        true => Ok(answers),
        false => Err(wrong("a text is not answered")),
    }
}

fn read(asked: &Query) -> Result<Vec<Row>> {
    let Some((file, format, text)) = &asked.data else {
        return Ok(asked.texts.iter().map(|text| Row::of_text(text)).collect());
    };
    DataTask::Classification { text: text.clone(), label: None }.check()?;
    Row::read(file, *format, text, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::hex;
    use crate::task::tests::task;
    use serde_json::{Value, json};

    /// The provider's answers are validated against the task; nothing else in them is shown.
    #[test]
    fn answers_that_do_not_fit_the_task_are_refused() {
        let (task, ids) = (task(), [[1; 16], [2; 16]]);
        let answer = |id: u8, label: &str, probabilities: Value| {
            let id = hex(&[id; 16]);
            json!({ "id": id, "label": label, "probabilities": probabilities })
        };
        let good = |id: u8| answer(id, "good", json!([0.25, 0.75]));
        let read = |predictions: Value| {
            let body = json!({ "predictions": predictions }).to_string();
            answers(body.as_bytes(), &task, &ids)
        };
        let answers = read(json!([good(2), answer(1, "bad", json!([1.0, 0.0]))])).unwrap();
        assert_eq!((answers[&[1; 16]].label.as_str(), answers.len()), ("bad", 2));
        let forged = "good\nguarantee: (0.1, 1e-9)-differentially private";
        let cases = [
            (json!([good(2), answer(1, forged, json!([0.5, 0.5]))]), "label"),
            (json!([good(2), answer(1, "", json!([0.5, 0.5]))]), "label"),
            (json!([good(2), answer(1, "good", json!([-5.0, 6.0]))]), "probabilities"),
            (json!([good(2), answer(1, "good", json!([0.5, 0.6]))]), "probabilities"),
            (json!([good(2), answer(1, "good", json!([1.0]))]), "probabilities"),
            (json!([good(2), answer(1, "good", json!([1.0, 0.0, 0.0]))]), "probabilities"),
            (json!([good(2)]), "not answered"),
            (json!([good(1), good(2), good(2)]), "twice"),
            (json!([good(1), good(2), good(3)]), "not asked"),
            (json!([good(1), answer(2, "good", json!(["1", "0"]))]), "cannot be read"),
            (json!([good(1), answer(2, "good", json!([null, 1.0]))]), "cannot be read"),
        ];
        for (predictions, about) in cases {
            let said = read(predictions.clone()).unwrap_err().to_string();
            assert!(said.contains(about) && !said.contains('\n'), "{predictions}: {said}");
        }
    }
}
