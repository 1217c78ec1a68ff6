//! A register of budgets in a database: one table of lines, and one row with the number of lines
//! and the last hash.
//!
//! Both change in one transaction, under a lock that every writer takes first. A line is therefore
//! either there for everybody, on disk and counted, or not at all, and no other process adds a line
//! between the text that was decided on and the new line. If the connection is lost while a
//! transaction is being committed, nobody knows whether the line is there. The command fails then;
//! a reservation that was made all the same counts until it is given back.

use crate::address::Address;
use crate::error::{Error, Result};
use crate::make_durable;
use postgres::{Client, Transaction};
use undertone_register::{Error as RegisterError, Store, last_hash};

const SCHEMA: &str = "
CREATE TABLE undertone_register (number bigint PRIMARY KEY, line text NOT NULL);
CREATE TABLE undertone_register_head (lines bigint NOT NULL, hash text NOT NULL);
";

/// Held by a writing transaction until its end.
const WRITING: &str = "SELECT pg_advisory_xact_lock(7599935311)";

/// The time limit of a statement in seconds: as long as writers wait for each other.
const PATIENCE: u32 = 120;

/// A register in a database. Every operation opens its own connection: there are few of them.
#[derive(Debug)]
struct Database {
    address: Address,
    /// The address as given, which contains no password.
    url: String,
}

/// Makes `Register::open` and `Register::create` accept the address of a database.
pub fn provide() {
    undertone_register::provide_database(open);
}

/// Opens the register at an address, or creates it with its first line.
fn open(url: &str, first: Option<&str>) -> undertone_register::Result<Box<dyn Store>> {
    let address = Address::parse(url).map_err(as_register)?;
    if address.has_password() {
        return Err(RegisterError::refused(
            "the address of a register is written to run folders; leave the password out, and set \
             PGPASSWORD",
        ));
    }
    let database = Database { address, url: url.to_owned() };
    match first {
        Some(first) => database.create(first),
        None => database.check_exists(),
    }
    .map_err(as_register)?;
    Ok(Box::new(database))
}

fn as_register(error: Error) -> RegisterError {
    match error {
        Error::Mistake(sentence) => RegisterError::refused(sentence),
        Error::Failed(why) => RegisterError::Io {
            what: "the register could not be used".to_owned(),
            source: std::io::Error::other(why),
        },
    }
}

impl Database {
    fn connect(&self) -> Result<Client> {
        let mut client = self.address.connect()?;
        make_durable(&mut client, PATIENCE)?;
        Ok(client)
    }

    fn create(&self, first: &str) -> Result<()> {
        let mut client = self.connect()?;
        let mut transaction = client.transaction()?;
        transaction.execute(WRITING, &[])?;
        if exists(&mut transaction)? {
            return Err(Error::mistake(format!(
                "{} exists already; a register is never overwritten",
                self.url
            )));
        }
        transaction.batch_execute(SCHEMA)?;
        transaction
            .execute("INSERT INTO undertone_register_head (lines, hash) VALUES (0, '')", &[])?;
        add(&mut transaction, 0, first)?;
        Ok(transaction.commit()?)
    }

    fn check_exists(&self) -> Result<()> {
        let mut client = self.connect()?;
        let mut transaction = client.transaction()?;
        match exists(&mut transaction)? {
            true => Ok(()),
            false => Err(Error::mistake(format!(
                "there is no register in {url}; make one with: undertone register init '{url}'",
                url = self.url
            ))),
        }
    }

    /// The lines, checked against the row that counts them.
    fn lines(&self, transaction: &mut Transaction) -> Result<String> {
        let damaged = |problem: String| {
            Error::mistake(format!(
                "register {} {problem}; restore its two tables from one backup",
                self.url
            ))
        };
        let head = transaction.query("SELECT lines, hash FROM undertone_register_head", &[])?;
        let [head] = head.as_slice() else {
            return Err(damaged("cannot be checked, because its head is missing".to_owned()));
        };
        let (lines, hash): (i64, String) = (head.get(0), head.get(1));
        let ask = "SELECT line FROM undertone_register ORDER BY number";
        let found = transaction.query(ask, &[])?;
        let text: String = found.iter().map(|row| row.get::<_, &str>(0)).collect();
        if found.len() as i64 != lines {
            let left = found.len();
            return Err(damaged(format!("has {left} lines, but {lines} were written")));
        }
        if last_hash(&text) != hash {
            return Err(damaged("was replaced by another one".to_owned()));
        }
        Ok(text)
    }
}

fn exists(transaction: &mut Transaction) -> Result<bool> {
    let ask = "SELECT to_regclass('undertone_register') IS NOT NULL";
    Ok(transaction.query_one(ask, &[])?.get(0))
}

/// Adds a line after this many.
fn add(transaction: &mut Transaction, lines: i64, line: &str) -> Result<()> {
    let number = lines + 1;
    let insert = "INSERT INTO undertone_register (number, line) VALUES ($1, $2)";
    transaction.execute(insert, &[&number, &line])?;
    let update = "UPDATE undertone_register_head SET lines = $1, hash = $2";
    transaction.execute(update, &[&number, &last_hash(line)])?;
    Ok(())
}

impl Store for Database {
    fn read(&self) -> undertone_register::Result<String> {
        let read = || -> Result<String> {
            let mut client = self.connect()?;
            let mut one_state = client
                .build_transaction()
                .isolation_level(postgres::IsolationLevel::RepeatableRead)
                .read_only(true)
                .start()?;
            self.lines(&mut one_state)
        };
        read().map_err(as_register)
    }

    fn append(
        &self,
        decide: &mut dyn FnMut(&str) -> undertone_register::Result<Option<String>>,
    ) -> undertone_register::Result<()> {
        let mut client = self.connect().map_err(as_register)?;
        let failed = |error: postgres::Error| as_register(error.into());
        let mut transaction = client.transaction().map_err(failed)?;
        transaction.execute(WRITING, &[]).map_err(failed)?;
        let text = self.lines(&mut transaction).map_err(as_register)?;
        let Some(line) = decide(&text)? else { return Ok(()) };
        add(&mut transaction, text.lines().count() as i64, &line).map_err(as_register)?;
        transaction.commit().map_err(failed)
    }

    fn place(&self) -> String {
        self.url.clone()
    }
}
