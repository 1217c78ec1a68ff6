//! The store in one SQLite file in WAL mode: readers do not wait for the writer, and a commit
//! returns once it is on disk.

use super::{Contribution, Counts, Owner, Store, Stored, now};
use crate::error::{Error, Result};
use crate::frame::Release;
use crate::hex::{Hash, hex};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::path::Path;
use std::time::Duration;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS owners (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    token BLOB NOT NULL UNIQUE,
    since INTEGER NOT NULL,
    revoked INTEGER,
    most INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS releases (
    epoch INTEGER NOT NULL,
    owner INTEGER NOT NULL REFERENCES owners (id),
    record BLOB NOT NULL,
    label INTEGER NOT NULL,
    numbers BLOB NOT NULL,
    PRIMARY KEY (epoch, owner, record)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counts (
    owner INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    label INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    PRIMARY KEY (owner, epoch, label, hour)
) WITHOUT ROWID;
-- Owner 0 stands for all of them.
CREATE TABLE IF NOT EXISTS totals (
    owner INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    releases INTEGER NOT NULL,
    PRIMARY KEY (owner, epoch)
) WITHOUT ROWID;
";

/// Version of the table layout.
const FORMAT: &str = "1";

/// A connection to a store.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    /// Opens a file, creating it if necessary. Rejects a store of another task.
    pub fn open(path: &Path, task: &Hash) -> Result<Self> {
        let mut connection = Connection::open(path).map_err(|e| {
            Error::mistake(format!("{} cannot be opened as a store: {e}", path.display()))
        })?;
        connection.busy_timeout(Duration::from_secs(10))?;
        let not_a_store = |e: rusqlite::Error| match e.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => {
                Error::mistake(format!("{} is not a store: {e}", path.display()))
            }
            Some(
                rusqlite::ErrorCode::ReadOnly
                | rusqlite::ErrorCode::PermissionDenied
                | rusqlite::ErrorCode::CannotOpen,
            ) => Error::mistake(format!("{} cannot be written to: {e}", path.display())),
            _ => Error::Store(e),
        };
        connection.pragma_update(None, "journal_mode", "wal").map_err(not_a_store)?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        let task = hex(task);
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(not_a_store)?;
        transaction.execute_batch(SCHEMA)?;
        for (key, value) in [("task", task.as_str()), ("format", FORMAT)] {
            let add = "INSERT INTO about (key, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            transaction.execute(add, params![key, value])?;
            let ask = "SELECT value FROM about WHERE key = ?1";
            let stored: String = transaction.query_row(ask, [key], |row| row.get(0))?;
            if stored != value {
                return Err(Error::mistake(format!(
                    "{} is the store of another {key} ({stored}); choose another one with --store",
                    path.display()
                )));
            }
        }
        transaction.commit()?;
        Ok(Self { connection })
    }

    /// Limits the size of the file, as a full disk does.
    #[cfg(test)]
    pub fn most_pages(&self, pages: u32) {
        let set = |_: &rusqlite::Row| Ok(());
        self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], set).unwrap();
    }
}

const OWNER: &str = "SELECT id, name, since, revoked IS NOT NULL, most,
    (SELECT coalesce(sum(releases), 0) FROM totals WHERE owner = id) FROM owners";

fn owner(row: &rusqlite::Row) -> rusqlite::Result<Owner> {
    Ok(Owner {
        id: row.get(0)?,
        name: row.get(1)?,
        since: row.get::<_, i64>(2)? as u64,
        revoked: row.get(3)?,
        limit: row.get::<_, i64>(4)? as u64,
        releases: row.get::<_, i64>(5)? as u64,
    })
}

fn owner_of(connection: &Connection, token: &Hash) -> Result<Option<Owner>> {
    let ask = format!("{OWNER} WHERE token = ?1 AND revoked IS NULL");
    Ok(connection.prepare(&ask)?.query_row([token.as_slice()], owner).optional()?)
}

impl Store for Sqlite {
    fn add_owner(&mut self, name: &str, token: &Hash, limit: u64) -> Result<()> {
        let add = "INSERT INTO owners (name, token, since, most) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT DO NOTHING";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let added =
            self.connection.execute(add, params![name, token.as_slice(), now() as i64, limit])?;
        match added {
            1 => Ok(()),
            _ => Err(super::name_in_use(name)),
        }
    }

    fn owners(&mut self) -> Result<Vec<Owner>> {
        let mut ask = self.connection.prepare(&format!("{OWNER} ORDER BY id"))?;
        let rows = ask.query_map([], owner)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn revoke(&mut self, name: &str) -> Result<bool> {
        let change = "UPDATE owners SET revoked = coalesce(revoked, ?2) WHERE name = ?1";
        Ok(self.connection.execute(change, params![name, now() as i64])? == 1)
    }

    fn forget(&mut self, name: &str) -> Result<Option<u64>> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let revoke = "UPDATE owners SET revoked = coalesce(revoked, ?2) WHERE name = ?1
            RETURNING id";
        let owner: Option<i64> = transaction
            .query_row(revoke, params![name, now() as i64], |row| row.get(0))
            .optional()?;
        let Some(owner) = owner else { return Ok(None) };
        let deleted = transaction.execute("DELETE FROM releases WHERE owner = ?1", [owner])?;
        transaction.execute("DELETE FROM counts WHERE owner = ?1", [owner])?;
        transaction.execute(
            "UPDATE totals SET releases = releases - (SELECT own.releases FROM totals AS own
                WHERE own.owner = ?1 AND own.epoch = totals.epoch)
                WHERE owner = 0 AND epoch IN (SELECT epoch FROM totals WHERE owner = ?1)",
            [owner],
        )?;
        transaction.execute("DELETE FROM totals WHERE owner = ?1", [owner])?;
        transaction.commit()?;
        Ok(Some(deleted as u64))
    }

    fn owner_of(&mut self, token: &Hash) -> Result<Option<Owner>> {
        owner_of(&self.connection, token)
    }

    fn store(&mut self, contributions: &[Contribution], most: u64) -> Result<Vec<Stored>> {
        // Immediate: data read inside the transaction cannot change before it writes.
        let mut transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut done = Vec::with_capacity(contributions.len());
        for contribution in contributions {
            let savepoint = transaction.savepoint()?;
            let stored = store_one(&savepoint, contribution, most)?;
            if matches!(stored, Stored::Yes { .. }) {
                savepoint.commit()?;
            } else {
                savepoint.finish()?;
            }
            done.push(stored);
        }
        transaction.commit()?;
        Ok(done)
    }

    fn counts(&mut self) -> Result<Counts> {
        let transaction = self.connection.transaction()?;
        let owners: i64 = transaction.query_row(
            "SELECT count(*) FROM owners WHERE revoked IS NULL",
            [],
            |row| row.get(0),
        )?;
        let mut ask = transaction.prepare(
            "SELECT epoch, label, sum(releases) FROM counts GROUP BY epoch, label ORDER BY 1, 2",
        )?;
        let releases = ask
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)? as u64)))?
            .collect::<rusqlite::Result<_>>()?;
        let mut ask = transaction.prepare(
            "SELECT hour, sum(releases) FROM counts WHERE epoch = 0 GROUP BY hour ORDER BY 1",
        )?;
        let by_hour = ask
            .query_map([], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(Counts { owners: owners as u64, releases, by_hour })
    }

    fn read(
        &mut self,
        epoch: u32,
        chunk: usize,
        each: &mut dyn FnMut(Vec<f32>, Vec<u32>) -> Result<()>,
    ) -> Result<()> {
        // A single statement reads a consistent snapshot, whatever is added in the meantime. A
        // revoked owner's releases remain unless they were deleted.
        let mut ask =
            self.connection.prepare("SELECT label, numbers FROM releases WHERE epoch = ?1")?;
        let mut rows = ask.query([epoch])?;
        let (mut numbers, mut labels) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next()? {
            labels.push(row.get(0)?);
            let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            let four = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
            numbers.extend(bytes.chunks_exact(4).map(four));
            if labels.len() == chunk {
                each(std::mem::take(&mut numbers), std::mem::take(&mut labels))?;
            }
        }
        if labels.is_empty() { Ok(()) } else { each(numbers, labels) }
    }
}

/// Stores one contribution inside a transaction, which must be rolled back unless the result is
/// [`Stored::Yes`].
fn store_one(connection: &Connection, sent: &Contribution, most: u64) -> Result<Stored> {
    let Some(owner) = owner_of(connection, &sent.token)? else { return Ok(Stored::NotAllowed) };
    let mut add = connection.prepare_cached(
        "INSERT INTO releases (epoch, owner, record, label, numbers) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT DO NOTHING",
    )?;
    let mut count = connection.prepare_cached(
        "INSERT INTO counts (owner, epoch, label, hour, releases) VALUES (?1, ?2, ?3, ?4, 1)
            ON CONFLICT DO UPDATE SET releases = releases + 1",
    )?;
    let hour = (now() / 3600) as i64;
    let mut new = 0_u64;
    for release in &sent.releases {
        let Release { id, label, numbers } = release;
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let id = id.as_slice();
        if add.execute(params![sent.epoch, owner.id, id, label, bytes])? == 1 {
            new += 1;
            count.execute(params![owner.id, sent.epoch, label, hour])?;
        } else if !is_stored(connection, sent.epoch, &owner, release, &bytes)? {
            return Ok(Stored::Conflict);
        }
    }
    if new == 0 {
        return Ok(Stored::Yes { owner, new });
    }
    let mut total = connection.prepare_cached(
        "INSERT INTO totals (owner, epoch, releases) VALUES (?1, ?2, ?3)
            ON CONFLICT DO UPDATE SET releases = releases + excluded.releases RETURNING releases",
    )?;
    let mut total_of = |owner: i64| -> Result<u64> {
        let stored: i64 =
            total.query_row(params![owner, sent.epoch, new as i64], |row| row.get(0))?;
        Ok(stored as u64)
    };
    let (own, all) = (total_of(owner.id)?, total_of(0)?);
    if own > owner.limit || all > most {
        return Ok(Stored::Full);
    }
    Ok(Stored::Yes { owner, new })
}

/// Whether an identical release is stored under its id.
fn is_stored(
    connection: &Connection,
    epoch: u32,
    owner: &Owner,
    release: &Release,
    bytes: &[u8],
) -> Result<bool> {
    let mut ask = connection.prepare_cached(
        "SELECT label = ?4 AND numbers = ?5 FROM releases
            WHERE epoch = ?1 AND owner = ?2 AND record = ?3",
    )?;
    let id = release.id.as_slice();
    Ok(ask.query_row(params![epoch, owner.id, id, release.label, bytes], |row| row.get(0))?)
}
