//! One connection to the database, with the tables of one task and prepared statements.

use super::{Lost, failed};
use crate::error::{Error, Result};
use crate::hex::{Hash, hex};
use postgres::{Client, Statement, Transaction};
use undertone_postgres::{Address, make_durable};

const SCHEMA: &str = "
CREATE TABLE about (key text PRIMARY KEY, value text NOT NULL);
CREATE TABLE owners (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    token bytea NOT NULL UNIQUE,
    since bigint NOT NULL,
    revoked bigint,
    most bigint NOT NULL
);
CREATE TABLE releases (
    epoch integer NOT NULL,
    owner bigint NOT NULL REFERENCES owners (id),
    record bytea NOT NULL,
    label integer NOT NULL,
    numbers bytea NOT NULL,
    PRIMARY KEY (epoch, owner, record)
);
CREATE TABLE counts (
    owner bigint NOT NULL,
    epoch integer NOT NULL,
    label integer NOT NULL,
    hour bigint NOT NULL,
    releases bigint NOT NULL,
    PRIMARY KEY (owner, epoch, label, hour)
);
-- Owner 0 stands for all of them.
CREATE TABLE totals (
    owner bigint NOT NULL,
    epoch integer NOT NULL,
    releases bigint NOT NULL,
    PRIMARY KEY (owner, epoch)
);
";

/// Version of the table layout.
const FORMAT: &str = "1";

/// Held by a writing transaction of any process until its end: data read inside it cannot change
/// before it writes, and no two transactions wait for each other's rows.
pub const WRITING: &str = "SELECT pg_advisory_xact_lock(7599935310)";

/// Selects an owner's columns, in the order that `owner` of the parent module expects.
pub const OWNER: &str = "SELECT id, name, since, revoked IS NOT NULL, most,
    (SELECT coalesce(sum(releases), 0)::bigint FROM totals WHERE owner = id) FROM owners";

/// A connection.
pub struct Session {
    pub client: Client,
    pub statements: Statements,
}

/// The statements executed for every frame.
pub struct Statements {
    pub writing: Statement,
    pub owner_of: Statement,
    /// Adds new releases and returns their labels.
    pub add: Statement,
    /// Counts the identical releases that are already stored.
    pub same: Statement,
    pub count: Statement,
    /// Adds to the totals of an owner and of all owners, and returns both.
    pub total: Statement,
}

impl Session {
    /// Connects, creating the tables if necessary. Rejects a store of another task, and a server
    /// that acknowledges data before it is on disk.
    pub fn open(address: &Address, task: &Hash) -> Result<Self> {
        let mut client = address.connect()?;
        make_durable(&mut client, 15)?;
        let mut transaction = client.transaction().map_err(failed)?;
        check_task(&mut transaction, task)?;
        transaction.commit().map_err(failed)?;
        let statements = Statements::prepare(&mut client).map_err(failed)?;
        Ok(Self { client, statements })
    }
}

fn check_task(transaction: &mut Transaction, task: &Hash) -> Result<()> {
    let task = hex(task);
    transaction.execute(WRITING, &[]).map_err(failed)?;
    let ask = "SELECT to_regclass('about') IS NOT NULL";
    let made: bool = transaction.query_one(ask, &[]).map_err(failed)?.get(0);
    // Not IF NOT EXISTS: a role without permission to create tables can use existing ones.
    if !made {
        transaction.batch_execute(SCHEMA).map_err(failed)?;
        for (key, value) in [("task", task.as_str()), ("format", FORMAT)] {
            let add = "INSERT INTO about (key, value) VALUES ($1, $2)";
            transaction.execute(add, &[&key, &value]).map_err(failed)?;
        }
    }
    for (key, value) in [("task", task.as_str()), ("format", FORMAT)] {
        let ask = "SELECT value FROM about WHERE key = $1";
        let stored = transaction.query_opt(ask, &[&key]).map_err(failed)?;
        let stored: String = stored.map_or_else(String::new, |row| row.get(0));
        if stored != value {
            return Err(Error::mistake(format!(
                "the database is the store of another {key} ({stored}); choose another one with \
                 --store"
            )));
        }
    }
    Ok(())
}

impl Statements {
    fn prepare(client: &mut Client) -> Lost<Self> {
        Ok(Self {
            writing: client.prepare(WRITING)?,
            owner_of: client.prepare(&format!("{OWNER} WHERE token = $1 AND revoked IS NULL"))?,
            add: client.prepare(
                "INSERT INTO releases (epoch, owner, record, label, numbers)
                SELECT $1, $2, record, label, numbers FROM
                    unnest($3::bytea[], $4::integer[], $5::bytea[]) AS sent (record, label, numbers)
                ON CONFLICT DO NOTHING RETURNING label",
            )?,
            same: client.prepare(
                "SELECT count(*) FROM releases JOIN
                    unnest($3::bytea[], $4::integer[], $5::bytea[]) AS sent (record, label, numbers)
                USING (record, label, numbers) WHERE epoch = $1 AND owner = $2",
            )?,
            count: client.prepare(
                "INSERT INTO counts (owner, epoch, label, hour, releases)
                SELECT $1, $2, label, $3, count(*) FROM unnest($4::integer[]) AS new (label)
                GROUP BY label
                ON CONFLICT (owner, epoch, label, hour)
                    DO UPDATE SET releases = counts.releases + excluded.releases",
            )?,
            total: client.prepare(
                "WITH own AS (
                    INSERT INTO totals (owner, epoch, releases) VALUES ($1, $2, $3)
                    ON CONFLICT (owner, epoch)
                        DO UPDATE SET releases = totals.releases + excluded.releases
                    RETURNING releases
                ), everybody AS (
                    INSERT INTO totals (owner, epoch, releases) VALUES (0, $2, $3)
                    ON CONFLICT (owner, epoch)
                        DO UPDATE SET releases = totals.releases + excluded.releases
                    RETURNING releases
                ) SELECT own.releases, everybody.releases FROM own, everybody",
            )?,
        })
    }
}
