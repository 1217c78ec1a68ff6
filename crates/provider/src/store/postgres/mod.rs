//! The store in PostgreSQL: several provider processes over one database.
//!
//! Everything that decides a request is in the database (tokens, revocations, limits, totals) and
//! is read inside the writing transaction, so all processes agree. A lost connection is reopened
//! when it is next needed.

mod session;

use super::{Contribution, Counts, Owner, Store, Stored, now};
use crate::error::{Error, Result};
use crate::hex::Hash;
use postgres::{Row, Transaction};
use session::{OWNER, Session, Statements, WRITING};
use undertone_postgres::{Address, message_of};

/// A result of the database.
type Lost<T> = std::result::Result<T, postgres::Error>;

/// A store in a database.
pub struct Postgres {
    address: Address,
    task: Hash,
    session: Option<Session>,
}

fn failed(error: postgres::Error) -> Error {
    Error::failed(format!("the store failed: PostgreSQL: {}", message_of(&error)))
}

/// Whether the connection can no longer be used: any error other than a server response, and the
/// response that the server is shutting down or starting.
fn is_lost(error: &postgres::Error) -> bool {
    error.code().is_none_or(|code| code.code().starts_with("57P"))
}

impl Postgres {
    /// Opens a database, creating its tables if necessary. Rejects a store of another task.
    pub fn open(address: &Address, task: &Hash) -> Result<Self> {
        let session = Session::open(address, task)?;
        Ok(Self { address: address.clone(), task: *task, session: Some(session) })
    }

    /// Queries the database. If the connection turns out to be lost, retries once on a new one:
    /// every operation here may run twice and still count once.
    fn ask<T>(&mut self, mut ask: impl FnMut(&mut Session) -> Lost<T>) -> Result<T> {
        if let Some(session) = &mut self.session {
            match ask(session) {
                Err(e) if is_lost(&e) => self.session = None,
                other => return other.map_err(failed),
            }
        }
        let mut session = Session::open(&self.address, &self.task)?;
        let answer = ask(&mut session);
        if !matches!(&answer, Err(e) if is_lost(e)) {
            self.session = Some(session);
        }
        answer.map_err(failed)
    }

    /// A connection that responds.
    fn session(&mut self) -> Result<&mut Session> {
        self.ask(|session| session.client.simple_query("").map(drop))?;
        self.session.as_mut().ok_or_else(|| Error::failed("the store failed: no connection"))
    }
}

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

impl Store for Postgres {
    fn add_owner(&mut self, name: &str, token: &Hash, limit: u64) -> Result<()> {
        let add = "INSERT INTO owners (name, token, since, most) VALUES ($1, $2, $3, $4)
            ON CONFLICT DO NOTHING";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (token, since) = (token.as_slice(), now() as i64);
        // Not retried: the second time, the name would be in use.
        let client = &mut self.session()?.client;
        match client.execute(add, &[&name, &token, &since, &limit]).map_err(failed)? {
            1 => Ok(()),
            _ => Err(super::name_in_use(name)),
        }
    }

    fn owners(&mut self) -> Result<Vec<Owner>> {
        let ask = format!("{OWNER} ORDER BY id");
        let rows = self.ask(|session| session.client.query(&ask, &[]))?;
        Ok(rows.iter().map(owner).collect())
    }

    fn revoke(&mut self, name: &str) -> Result<bool> {
        let change = "UPDATE owners SET revoked = coalesce(revoked, $2) WHERE name = $1";
        let at = now() as i64;
        self.ask(|session| {
            // Wait for transactions in progress; none can add releases after this returns.
            let mut transaction = session.client.transaction()?;
            transaction.execute(WRITING, &[])?;
            let changed = transaction.execute(change, &[&name, &at])?;
            transaction.commit()?;
            Ok(changed == 1)
        })
    }

    fn forget(&mut self, name: &str) -> Result<Option<u64>> {
        let revoke = "UPDATE owners SET revoked = coalesce(revoked, $2) WHERE name = $1
            RETURNING id";
        let at = now() as i64;
        self.ask(|session| {
            let mut transaction = session.client.transaction()?;
            // Millions of rows may exceed the usual statement timeout.
            transaction.batch_execute("SET LOCAL statement_timeout = 0")?;
            transaction.execute(WRITING, &[])?;
            let owner = transaction.query_opt(revoke, &[&name, &at])?;
            let Some(owner) = owner.map(|row| row.get::<_, i64>(0)) else { return Ok(None) };
            let deleted =
                transaction.execute("DELETE FROM releases WHERE owner = $1", &[&owner])?;
            transaction.execute("DELETE FROM counts WHERE owner = $1", &[&owner])?;
            transaction.execute(
                "UPDATE totals SET releases = totals.releases - own.releases FROM totals AS own
                    WHERE totals.owner = 0 AND own.owner = $1 AND own.epoch = totals.epoch",
                &[&owner],
            )?;
            transaction.execute("DELETE FROM totals WHERE owner = $1", &[&owner])?;
            transaction.commit()?;
            Ok(Some(deleted))
        })
    }

    fn owner_of(&mut self, token: &Hash) -> Result<Option<Owner>> {
        let token = token.as_slice();
        let row = self.ask(|Session { client, statements }| {
            client.query_opt(&statements.owner_of, &[&token])
        })?;
        Ok(row.as_ref().map(owner))
    }

    fn store(&mut self, contributions: &[Contribution], most: u64) -> Result<Vec<Stored>> {
        self.ask(|Session { client, statements }| {
            let mut transaction = client.transaction()?;
            transaction.execute(&statements.writing, &[])?;
            let mut done = Vec::with_capacity(contributions.len());
            for contribution in contributions {
                let mut savepoint = transaction.transaction()?;
                let stored = store_one(&mut savepoint, statements, contribution, most)?;
                match stored {
                    Stored::Yes { .. } => savepoint.commit()?,
                    _ => savepoint.rollback()?,
                }
                done.push(stored);
            }
            transaction.commit()?;
            Ok(done)
        })
    }

    fn counts(&mut self) -> Result<Counts> {
        let active = "SELECT count(*) FROM owners WHERE revoked IS NULL";
        let by_label = "SELECT epoch, label, sum(releases)::bigint FROM counts
            GROUP BY epoch, label ORDER BY 1, 2";
        let by_hour = "SELECT hour, sum(releases)::bigint FROM counts WHERE epoch = 0
            GROUP BY hour ORDER BY 1";
        self.ask(|session| {
            let number = |row: &Row, at: usize| row.get::<_, i64>(at) as u64;
            let mut one_state = session
                .client
                .build_transaction()
                .isolation_level(postgres::IsolationLevel::RepeatableRead)
                .read_only(true)
                .start()?;
            let owners = number(&one_state.query_one(active, &[])?, 0);
            let label = |row: &Row| {
                let (epoch, label): (i32, i32) = (row.get(0), row.get(1));
                (epoch as u32, label as u32, number(row, 2))
            };
            let releases = one_state.query(by_label, &[])?.iter().map(label).collect();
            let hour = |row: &Row| (number(row, 0), number(row, 1));
            let by_hour = one_state.query(by_hour, &[])?.iter().map(hour).collect();
            Ok(Counts { owners, releases, by_hour })
        })
    }

    fn read(
        &mut self,
        epoch: u32,
        chunk: usize,
        each: &mut dyn FnMut(Vec<f32>, Vec<u32>) -> Result<()>,
    ) -> Result<()> {
        // A portal reads a consistent snapshot, whatever is added in the meantime. Releases come in
        // no particular order: sorting 10⁹ of them would only change how sums are rounded.
        let mut transaction = self.session()?.client.transaction().map_err(failed)?;
        let ask = "SELECT label, numbers FROM releases WHERE epoch = $1";
        let portal = transaction.bind(ask, &[&(epoch as i32)]).map_err(failed)?;
        let most = i32::try_from(chunk).unwrap_or(i32::MAX);
        loop {
            let rows = transaction.query_portal(&portal, most).map_err(failed)?;
            if rows.is_empty() {
                return Ok(());
            }
            let labels = rows.iter().map(|row| row.get::<_, i32>(0) as u32).collect();
            let mut numbers = Vec::new();
            for row in &rows {
                let four = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
                numbers.extend(row.get::<_, &[u8]>(1).chunks_exact(4).map(four));
            }
            each(numbers, labels)?;
        }
    }
}

/// Stores one contribution inside a transaction, which must be rolled back unless the result is
/// [`Stored::Yes`].
fn store_one(
    within: &mut Transaction,
    statements: &Statements,
    sent: &Contribution,
    most: u64,
) -> Lost<Stored> {
    let row = within.query_opt(&statements.owner_of, &[&sent.token.as_slice()])?;
    let Some(owner) = row.as_ref().map(owner) else { return Ok(Stored::NotAllowed) };
    let epoch = sent.epoch as i32;
    let ids: Vec<&[u8]> = sent.releases.iter().map(|release| release.id.as_slice()).collect();
    let labels: Vec<i32> = sent.releases.iter().map(|release| release.label as i32).collect();
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let blobs: Vec<Vec<u8>> = sent.releases.iter().map(|r| bytes(&r.numbers)).collect();
    let rows = within.query(&statements.add, &[&epoch, &owner.id, &ids, &labels, &blobs])?;
    let new: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    if new.len() < sent.releases.len() {
        let row =
            within.query_one(&statements.same, &[&epoch, &owner.id, &ids, &labels, &blobs])?;
        if row.get::<_, i64>(0) as usize != sent.releases.len() {
            return Ok(Stored::Conflict);
        }
    }
    let count = new.len() as i64;
    if count == 0 {
        return Ok(Stored::Yes { owner, new: 0 });
    }
    let hour = (now() / 3600) as i64;
    within.execute(&statements.count, &[&owner.id, &epoch, &hour, &new])?;
    let row = within.query_one(&statements.total, &[&owner.id, &epoch, &count])?;
    let (own, all) = (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64);
    if own > owner.limit || all > most {
        return Ok(Stored::Full);
    }
    Ok(Stored::Yes { owner, new: count as u64 })
}
