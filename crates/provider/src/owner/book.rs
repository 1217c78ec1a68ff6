//! `owner.db`: the pinned task of each address, the releases made, and their receipts.

use super::purpose::Purpose;
use super::rows::{Known, Source};
use crate::error::{Error, Result};
use crate::frame::{Frame, RecordId, Release};
use crate::hex::Hash;
use crate::receipt::Receipt;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::path::Path;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS pins (
    url TEXT PRIMARY KEY,
    task BLOB NOT NULL,
    fingerprint BLOB
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS frames (
    id INTEGER PRIMARY KEY,
    task BLOB NOT NULL,
    purpose TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    receipt TEXT
);
CREATE INDEX IF NOT EXISTS frames_of_task ON frames (task, purpose, receipt IS NULL);
CREATE TABLE IF NOT EXISTS releases (
    task BLOB NOT NULL,
    purpose TEXT NOT NULL,
    record BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    label INTEGER NOT NULL,
    numbers BLOB NOT NULL,
    frame INTEGER NOT NULL REFERENCES frames (id),
    PRIMARY KEY (task, purpose, record, epoch)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS releases_of_frame ON releases (frame);
CREATE TABLE IF NOT EXISTS sources (
    task BLOB NOT NULL,
    purpose TEXT NOT NULL,
    record BLOB NOT NULL,
    text BLOB NOT NULL,
    occurrence INTEGER NOT NULL,
    label BLOB NOT NULL,
    PRIMARY KEY (task, purpose, record)
) WITHOUT ROWID;
";

/// The task and certificate pinned on first use of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub task: Hash,
    /// SHA-256 of the certificate, if it is pinned.
    pub fingerprint: Option<Hash>,
}

/// The owner's database.
#[derive(Debug)]
pub struct Book {
    connection: Connection,
}

fn blob(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    let four = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    bytes.chunks_exact(4).map(four).collect()
}

fn release(row: &rusqlite::Row) -> rusqlite::Result<Release> {
    let id: [u8; 16] = row.get(0)?;
    let bytes: Vec<u8> = row.get(2)?;
    Ok(Release { id, label: row.get(1)?, numbers: numbers(&bytes) })
}

impl Book {
    pub fn open(path: &Path) -> Result<Self> {
        let wrong =
            |e: rusqlite::Error| Error::mistake(format!("{} cannot be used: {e}", path.display()));
        let connection = Connection::open(path).map_err(wrong)?;
        connection.pragma_update(None, "journal_mode", "wal").map_err(wrong)?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection })
    }

    /// The task and certificate pinned on first use of an address.
    pub fn pin(&self, url: &str) -> Result<Option<Pin>> {
        let ask = "SELECT task, fingerprint FROM pins WHERE url = ?1";
        let pinned = self
            .connection
            .query_row(ask, [url], |row| Ok(Pin { task: row.get(0)?, fingerprint: row.get(1)? }));
        Ok(pinned.optional()?)
    }

    /// Pins the task of an address, and its certificate.
    pub fn set_pin(&self, url: &str, pin: &Pin) -> Result<()> {
        let add = "INSERT INTO pins (url, task, fingerprint) VALUES (?1, ?2, ?3)
            ON CONFLICT DO UPDATE SET fingerprint = excluded.fingerprint";
        let fingerprint = pin.fingerprint.as_ref().map(Hash::as_slice);
        self.connection.execute(add, params![url, pin.task.as_slice(), fingerprint])?;
        Ok(())
    }

    /// The sources of the releases under a task, as keyed hashes.
    pub fn known(&self, task: &Hash, purpose: Purpose) -> Result<Known> {
        let mut ask = self.connection.prepare(
            "SELECT text, occurrence, label FROM sources WHERE task = ?1 AND purpose = ?2",
        )?;
        let mut rows = ask.query(params![task.as_slice(), purpose.name()])?;
        let mut known = Known::new();
        while let Some(row) = rows.next()? {
            let number = row.get::<_, i64>(1)? as u64;
            known.entry(row.get(0)?).or_default().push((number, row.get(2)?));
        }
        Ok(known)
    }

    /// Stores the releases of all epochs in frames of at most `slots`. When this returns, all of
    /// them are on disk. Earlier releases of a row are kept unchanged.
    pub fn keep(
        &mut self,
        task: &Hash,
        purpose: Purpose,
        sources: &[&Source],
        releases: &[Vec<Release>],
        slots: usize,
    ) -> Result<()> {
        let epochs = releases.iter().map(Vec::len).min().unwrap_or(0);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (of_task, of_purpose) = (task.as_slice(), purpose.name());
        let mut add_source = transaction.prepare(
            "INSERT INTO sources (task, purpose, record, text, occurrence, label)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        for Source { id, text, occurrence, label, .. } in sources {
            let number = *occurrence as i64;
            add_source.execute(params![of_task, of_purpose, id, text, number, label])?;
        }
        drop(add_source);
        for rows in releases.chunks(slots) {
            for epoch in 0..epochs {
                transaction.execute(
                    "INSERT INTO frames (task, purpose, epoch) VALUES (?1, ?2, ?3)",
                    params![of_task, of_purpose, epoch],
                )?;
                let frame = transaction.last_insert_rowid();
                let mut add = transaction.prepare_cached(
                    "INSERT INTO releases (task, purpose, record, epoch, label, numbers, frame)
                        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?;
                for Release { id, label, numbers } in rows.iter().map(|row| &row[epoch]) {
                    let numbers = blob(numbers);
                    add.execute(params![of_task, of_purpose, id, epoch, label, numbers, frame])?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    /// The unacknowledged frames, and the number of acknowledged ones.
    pub fn frames(&self, task: &Hash, purpose: Purpose) -> Result<(Vec<i64>, u64)> {
        let of = params![task.as_slice(), purpose.name()];
        let mut ask = self.connection.prepare(
            "SELECT id FROM frames WHERE task = ?1 AND purpose = ?2 AND receipt IS NULL
                ORDER BY id",
        )?;
        let waiting = ask.query_map(of, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let done: i64 = self.connection.query_row(
            "SELECT count(*) FROM frames
                WHERE task = ?1 AND purpose = ?2 AND receipt IS NOT NULL",
            of,
            |row| row.get(0),
        )?;
        Ok((waiting, done as u64))
    }

    /// A stored frame.
    pub fn frame(&self, number: i64, purpose: Purpose) -> Result<Frame> {
        let ask = "SELECT epoch FROM frames WHERE id = ?1";
        let epoch: u32 = self.connection.query_row(ask, [number], |row| row.get(0))?;
        let mut ask = self.connection.prepare_cached(
            "SELECT record, label, numbers FROM releases WHERE frame = ?1 ORDER BY record",
        )?;
        let releases =
            ask.query_map([number], release)?.collect::<rusqlite::Result<Vec<Release>>>()?;
        Ok(Frame { kind: purpose.kind(), epoch, releases })
    }

    /// The stored release of a row, in its first epoch.
    pub fn release(&self, task: &Hash, purpose: Purpose, id: &RecordId) -> Result<Option<Release>> {
        let mut ask = self.connection.prepare_cached(
            "SELECT record, label, numbers FROM releases
                WHERE task = ?1 AND purpose = ?2 AND record = ?3 AND epoch = 0",
        )?;
        let answer = ask
            .query_row(params![task.as_slice(), purpose.name(), id.as_slice()], release)
            .optional()?;
        Ok(answer)
    }

    /// Stores the receipt of a frame.
    pub fn acknowledge(&self, number: i64, receipt: &Receipt) -> Result<()> {
        let text = serde_json::to_string(receipt).map_err(|e| Error::failed(e.to_string()))?;
        let change = "UPDATE frames SET receipt = ?2 WHERE id = ?1";
        self.connection.execute(change, params![number, text])?;
        Ok(())
    }
}
