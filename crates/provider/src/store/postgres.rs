//! The store in PostgreSQL: several provider processes over one database.

use super::{Contribution, Counts, Owner, Store, Stored, now};
use crate::error::{Error, Result};
use crate::hex::{Hash, hex};
use postgres::{Client, NoTls, Row, Transaction};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS about (key text PRIMARY KEY, value text NOT NULL);
CREATE TABLE IF NOT EXISTS owners (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    token bytea NOT NULL UNIQUE,
    since bigint NOT NULL,
    revoked bigint,
    most bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS releases (
    epoch integer NOT NULL,
    owner bigint NOT NULL REFERENCES owners (id),
    record bytea NOT NULL,
    label integer NOT NULL,
    numbers bytea NOT NULL,
    PRIMARY KEY (epoch, owner, record)
);
CREATE TABLE IF NOT EXISTS counts (
    owner bigint NOT NULL,
    epoch integer NOT NULL,
    label integer NOT NULL,
    hour bigint NOT NULL,
    releases bigint NOT NULL,
    PRIMARY KEY (owner, epoch, label, hour)
);
CREATE TABLE IF NOT EXISTS totals (
    owner bigint NOT NULL,
    epoch integer NOT NULL,
    releases bigint NOT NULL,
    PRIMARY KEY (owner, epoch)
);
";

/// The layout of the tables.
const FORMAT: &str = "1";

/// Held by the transaction that writes, so that no two wait for each other's rows.
const WRITING: &str = "SELECT pg_advisory_xact_lock(8241991)";

/// A connection to a store, which is opened again when it was lost.
pub struct Postgres {
    url: String,
    client: Client,
}

fn failed(error: postgres::Error) -> Error {
    let told = error.as_db_error().map_or_else(|| error.to_string(), |e| e.message().to_owned());
    Error::failed(format!("PostgreSQL: {told}"))
}

impl Postgres {
    /// Opens a database, and makes its tables if need be. A store of another task is refused.
    pub fn open(url: &str, task: &Hash) -> Result<Self> {
        let mut client = connect(url)?;
        let task = hex(task);
        let mut transaction = client.transaction().map_err(failed)?;
        transaction.execute(WRITING, &[]).map_err(failed)?;
        transaction.batch_execute(SCHEMA).map_err(failed)?;
        for (key, value) in [("task", task.as_str()), ("format", FORMAT)] {
            let add = "INSERT INTO about (key, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            transaction.execute(add, &[&key, &value]).map_err(failed)?;
            let ask = "SELECT value FROM about WHERE key = $1";
            let found: String = transaction.query_one(ask, &[&key]).map_err(failed)?.get(0);
            if found != value {
                return Err(Error::mistake(format!(
                    "the database is the store of another {key} ({found}); name another one by \
                     --store"
                )));
            }
        }
        transaction.commit().map_err(failed)?;
        Ok(Self { url: url.to_owned(), client })
    }

    fn client(&mut self) -> Result<&mut Client> {
        if self.client.is_closed() {
            self.client = connect(&self.url)?;
        }
        Ok(&mut self.client)
    }
}

fn connect(url: &str) -> Result<Client> {
    Client::connect(url, NoTls).map_err(failed)
}

const OWNER: &str = "SELECT id, name, since, revoked IS NOT NULL, most,
    (SELECT coalesce(sum(releases), 0)::bigint FROM totals WHERE owner = id) FROM owners";

fn owner(row: &Row) -> Owner {
    let number = |at: usize| row.get::<_, i64>(at) as u64;
    Owner {
        id: row.get(0),
        name: row.get(1),
        since: number(2),
        revoked: row.get(3),
        limit: number(4),
        releases: number(5),
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

impl Store for Postgres {
    fn add_owner(&mut self, name: &str, token: &Hash, limit: u64) -> Result<()> {
        let add = "INSERT INTO owners (name, token, since, most) VALUES ($1, $2, $3, $4)
            ON CONFLICT DO NOTHING";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let token = token.as_slice();
        let since = now() as i64;
        match self.client()?.execute(add, &[&name, &token, &since, &limit]).map_err(failed)? {
            1 => Ok(()),
            _ => Err(Error::mistake(format!(
                "there is an owner called {name} already, revoked or not; choose another name"
            ))),
        }
    }

    fn owners(&mut self) -> Result<Vec<Owner>> {
        let ask = format!("{OWNER} ORDER BY id");
        Ok(self.client()?.query(&ask, &[]).map_err(failed)?.iter().map(owner).collect())
    }

    fn revoke(&mut self, name: &str) -> Result<bool> {
        let change = "UPDATE owners SET revoked = coalesce(revoked, $2) WHERE name = $1";
        let at = now() as i64;
        Ok(self.client()?.execute(change, &[&name, &at]).map_err(failed)? == 1)
    }

    fn owner_of(&mut self, token: &Hash) -> Result<Option<Owner>> {
        let ask = format!("{OWNER} WHERE token = $1 AND revoked IS NULL");
        let token = token.as_slice();
        Ok(self.client()?.query_opt(&ask, &[&token]).map_err(failed)?.as_ref().map(owner))
    }

    fn store(&mut self, contributions: &[Contribution], most: u64) -> Result<Vec<Stored>> {
        let mut transaction = self.client()?.transaction().map_err(failed)?;
        transaction.execute(WRITING, &[]).map_err(failed)?;
        let mut done = Vec::with_capacity(contributions.len());
        for contribution in contributions {
            let mut savepoint = transaction.transaction().map_err(failed)?;
            let stored = store_one(&mut savepoint, contribution, most)?;
            match stored {
                Stored::Yes { .. } => savepoint.commit().map_err(failed)?,
                _ => savepoint.rollback().map_err(failed)?,
            }
            done.push(stored);
        }
        transaction.commit().map_err(failed)?;
        Ok(done)
    }

    fn counts(&mut self) -> Result<Counts> {
        let mut transaction = self.client()?.transaction().map_err(failed)?;
        let ask = "SELECT count(*) FROM owners WHERE revoked IS NULL";
        let owners: i64 = transaction.query_one(ask, &[]).map_err(failed)?.get(0);
        let ask = "SELECT epoch, label, sum(releases)::bigint FROM counts
            GROUP BY epoch, label ORDER BY 1, 2";
        let of = |row: &Row| {
            let (epoch, label): (i32, i32) = (row.get(0), row.get(1));
            (epoch as u32, label as u32, row.get::<_, i64>(2) as u64)
        };
        let releases = transaction.query(ask, &[]).map_err(failed)?.iter().map(of).collect();
        let ask = "SELECT hour, sum(releases)::bigint FROM counts WHERE epoch = 0
            GROUP BY hour ORDER BY 1";
        let of = |row: &Row| (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64);
        let by_hour = transaction.query(ask, &[]).map_err(failed)?.iter().map(of).collect();
        Ok(Counts { owners: owners as u64, releases, by_hour })
    }

    fn read(
        &mut self,
        epoch: u32,
        chunk: usize,
        each: &mut dyn FnMut(Vec<f32>, Vec<u32>) -> Result<()>,
    ) -> Result<()> {
        let mut transaction = self.client()?.transaction().map_err(failed)?;
        let ask = "SELECT label, numbers FROM releases WHERE epoch = $1";
        let portal = transaction.bind(ask, &[&(epoch as i32)]).map_err(failed)?;
        loop {
            let rows = transaction.query_portal(&portal, chunk as i32).map_err(failed)?;
            if rows.is_empty() {
                return Ok(());
            }
            let labels = rows.iter().map(|row| row.get::<_, i32>(0) as u32).collect();
            let all = rows.iter().flat_map(|row| numbers(row.get(1)).collect::<Vec<f32>>());
            each(all.collect(), labels)?;
        }
    }
}

/// Stores one contribution inside a transaction, which is to be rolled back unless it is stored.
fn store_one(within: &mut Transaction, sent: &Contribution, most: u64) -> Result<Stored> {
    let ask = format!("{OWNER} WHERE token = $1 AND revoked IS NULL FOR SHARE OF owners");
    let token = sent.token.as_slice();
    let found = within.query_opt(&ask, &[&token]).map_err(failed)?;
    let Some(owner) = found.as_ref().map(owner) else { return Ok(Stored::NotAllowed) };
    let epoch = sent.epoch as i32;
    let ids: Vec<&[u8]> = sent.releases.iter().map(|release| release.id.as_slice()).collect();
    let labels: Vec<i32> = sent.releases.iter().map(|release| release.label as i32).collect();
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let blobs: Vec<Vec<u8>> = sent.releases.iter().map(|r| bytes(&r.numbers)).collect();
    let add = "INSERT INTO releases (epoch, owner, record, label, numbers)
        SELECT $1, $2, record, label, numbers
            FROM unnest($3::bytea[], $4::integer[], $5::bytea[]) AS sent (record, label, numbers)
        ON CONFLICT DO NOTHING RETURNING label";
    let new: Vec<i32> = within
        .query(add, &[&epoch, &owner.id, &ids, &labels, &blobs])
        .map_err(failed)?
        .iter()
        .map(|row| row.get(0))
        .collect();
    if new.len() < sent.releases.len() {
        let ask = "SELECT count(*) FROM releases
            JOIN unnest($3::bytea[], $4::integer[], $5::bytea[]) AS sent (record, label, numbers)
            USING (record, label, numbers) WHERE epoch = $1 AND owner = $2";
        let same: i64 = within
            .query_one(ask, &[&epoch, &owner.id, &ids, &labels, &blobs])
            .map_err(failed)?
            .get(0);
        if same as usize != sent.releases.len() {
            return Ok(Stored::Conflict);
        }
    }
    let count = new.len() as i64;
    if count == 0 {
        return Ok(Stored::Yes { owner, new: 0 });
    }
    let hour = (now() / 3600) as i64;
    let add = "INSERT INTO counts (owner, epoch, label, hour, releases)
        SELECT $1, $2, label, $3, count(*) FROM unnest($4::integer[]) AS new (label) GROUP BY label
        ON CONFLICT (owner, epoch, label, hour)
            DO UPDATE SET releases = counts.releases + excluded.releases";
    within.execute(add, &[&owner.id, &epoch, &hour, &new]).map_err(failed)?;
    let mut total_of = |owner: i64| -> Result<u64> {
        let add = "INSERT INTO totals (owner, epoch, releases) VALUES ($1, $2, $3)
            ON CONFLICT (owner, epoch)
                DO UPDATE SET releases = totals.releases + excluded.releases RETURNING releases";
        let row = within.query_one(add, &[&owner, &epoch, &count]).map_err(failed)?;
        Ok(row.get::<_, i64>(0) as u64)
    };
    let (own, all) = (total_of(owner.id)?, total_of(0)?);
    if own > owner.limit || all > most {
        return Ok(Stored::Full);
    }
    Ok(Stored::Yes { owner, new: count as u64 })
}
