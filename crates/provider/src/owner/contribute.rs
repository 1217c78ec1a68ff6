//! `undertone-provider contribute`

use super::budget::{Bound, Budget};
use super::client::{Client, Response};
use super::fetch::{Pinned, Provider, fetch_pre};
use super::home::Home;
use super::purpose::Purpose;
use super::release::{Pre, classes, release, sources};
use super::rows::Row;
use super::send::send;
use crate::error::{Error, Result};
use crate::frame::{frame_hash, frame_length};
use crate::hex::{hex, unhex};
use crate::receipt::Receipt;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;
use undertone::data::{Format, Task as DataTask};
use undertone::tensor::Device;
use undertone_accounting::Guarantee;

/// Arguments of [`contribute`].
#[derive(Clone, Debug)]
pub struct Contribute {
    pub provider: Provider,
    /// The owner's folder.
    pub home: PathBuf,
    pub data: PathBuf,
    pub format: Option<Format>,
    /// Columns of the text.
    pub text: Vec<String>,
    /// Column of the label.
    pub label: String,
    pub bound: Bound,
    /// Whether to print what would be sent without sending it.
    pub dry_run: bool,
}

/// The result of a contribution: what was sent, and its cost.
#[derive(Clone, Debug, Serialize)]
pub struct Contributed {
    /// Hash of the task.
    pub task: String,
    /// The guarantee stated by the task.
    pub promise: String,
    /// Rows of the file.
    pub rows: u64,
    /// Number of rows released for the first time.
    pub new: u64,
    /// Number of new rows that the task's tokenizer could not read. They were released as a fixed
    /// token; the provider learns neither which rows they are nor their number.
    pub untokenized: u64,
    /// Number of frames sent and acknowledged in this call.
    pub frames: u64,
    /// Length of each frame in bytes.
    pub frame_bytes: u64,
    /// Number of frames acknowledged in all calls; a receipt of each is kept.
    pub receipts: u64,
    /// ε of everything in the owner's folder, after this call.
    pub epsilon: f64,
    pub delta: f64,
    /// The corresponding guarantee; `None` before the first release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    pub dry_run: bool,
}

/// Releases the rows of a file and sends them. A repeated call resends what was not acknowledged
/// and releases new rows.
pub fn contribute(
    asked: &Contribute,
    device: &Device,
    tell: &mut dyn FnMut(&Contributed),
) -> Result<Contributed> {
    asked.bound.check()?;
    let mut home = Home::open(&asked.home)?;
    let (text, label) = (asked.text.clone(), Some(asked.label.clone()));
    DataTask::Classification { text, label }.check()?;
    let rows = Row::read(&asked.data, asked.format, &asked.text, Some(&asked.label))?;
    let mut client = asked.provider.client(&home)?;
    let begun = Instant::now();
    let mut pinned = asked.provider.pinned(&home, &mut client)?;
    if asked.text.len() != pinned.task.texts {
        return Err(Error::mistake(format!(
            "the task has {} text columns: name them with --text, separated by commas",
            pinned.task.texts
        )));
    }
    let purpose = Purpose::Contribution;
    let total = Budget::new(&home, &pinned.task, &pinned.hash, purpose).check(&asked.bound)?;
    let folder = fetch_pre(&home, &mut pinned, &mut client)?;
    client.close();
    let pre = Pre::load(&folder, &pinned.task, device)?;
    let classes = classes(&pinned.task, &asked.data, &rows)?;
    let sources = sources(&home, &pinned, purpose, &rows, &classes)?;
    let mut said = Contributed {
        task: hex(&pinned.hash),
        promise: pinned.task.promise(),
        rows: rows.len() as u64,
        new: sources.iter().filter(|source| !source.is_known).count() as u64,
        untokenized: 0,
        frames: 0,
        frame_bytes: frame_length(&pinned.task) as u64,
        receipts: home.book.frames(&pinned.hash, purpose)?.1,
        epsilon: total,
        delta: asked.bound.delta,
        guarantee: None,
        dry_run: asked.dry_run,
    };
    tell(&said);
    if asked.dry_run {
        return Ok(said);
    }
    said.untokenized = release(&mut home, &pinned, purpose, &pre, &sources, &asked.bound)?;
    pinned.wait_for_a_round_time(begun);
    said.frames = send_all(&home, &pinned, asked, &mut client)?;
    let budget = Budget::new(&home, &pinned.task, &pinned.hash, purpose);
    said.guarantee = budget.guarantee(asked.bound.delta)?;
    said.epsilon = said.guarantee.as_ref().map_or(0.0, |guarantee| guarantee.epsilon.upper);
    said.receipts = home.book.frames(&pinned.hash, purpose)?.1;
    Ok(said)
}

/// Sends all unacknowledged frames; returns their number.
fn send_all(home: &Home, pinned: &Pinned, asked: &Contribute, client: &mut Client) -> Result<u64> {
    let purpose = Purpose::Contribution;
    let (waiting, _) = home.book.frames(&pinned.hash, purpose)?;
    if waiting.is_empty() {
        return Ok(0);
    }
    let owner = asked.provider.enrol(home, client, &pinned.hash)?;
    let mut sent = 0;
    for number in &waiting {
        let frame = home.book.frame(*number, purpose)?;
        let bytes = frame.encode(&pinned.task, &pinned.hash);
        let acknowledged = send(client, "/v1/contributions", &bytes)
            .and_then(|response| receipt(pinned, &owner, &bytes, &frame, &response))
            .and_then(|receipt| home.book.acknowledge(*number, &receipt));
        match acknowledged {
            Ok(()) => sent += 1,
            Err(e) => return Err(interrupted(e, sent, waiting.len(), &asked.home)),
        }
    }
    Ok(sent)
}

fn interrupted(error: Error, sent: u64, frames: usize, home: &Path) -> Error {
    let sentence = format!(
        "{error} ({sent} of {frames} frames were acknowledged; run the same command again to send \
         the rest from {} at no further cost)",
        home.display()
    );
    match error.is_of_system() {
        true => Error::Failed(sentence),
        false => Error::Mistake(sentence),
    }
}

/// Parses and verifies the receipt of a frame.
fn receipt(
    pinned: &Pinned,
    owner: &str,
    bytes: &[u8],
    frame: &crate::frame::Frame,
    response: &Response,
) -> Result<Receipt> {
    #[derive(serde::Deserialize)]
    struct Answer {
        receipt: Receipt,
    }
    match response.status {
        200 => {}
        400..=499 | 507 => {
            return Err(Error::mistake(format!("the provider refuses: {}", response.problem())));
        }
        _ => return Err(Error::failed(format!("the provider fails: {}", response.problem()))),
    }
    let forged = || Error::mistake("the provider's receipt does not match what was sent");
    let answer: Answer = serde_json::from_slice(&response.body).map_err(|_| forged())?;
    let receipt = answer.receipt;
    let key = unhex::<32>(&pinned.task.key).ok_or_else(forged)?;
    let is_right = receipt.is_signed_by(&key)
        && receipt.task == hex(&pinned.hash)
        && receipt.owner == owner
        && receipt.epoch == frame.epoch
        && receipt.releases as usize == frame.releases.len()
        && frame_hash(bytes).is_some_and(|hash| receipt.frame == hex(&hash));
    if is_right { Ok(receipt) } else { Err(forged()) }
}
