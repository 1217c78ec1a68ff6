#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod address;
mod error;
mod register;
mod tls;

pub use address::Address;
pub use error::{Error, Result, message_of};
pub use register::provide;

use postgres::Client;

/// Rejects a server that acknowledges data before it is on disk, and sets the time limit of a
/// statement, in seconds.
pub fn make_durable(client: &mut Client, seconds: u32) -> Result<()> {
    let ask = "SELECT current_setting('fsync'), current_setting('synchronous_commit')";
    let row = client.query_one(ask, &[])?;
    let (fsync, commit): (String, String) = (row.get(0), row.get(1));
    if fsync == "off" {
        return Err(Error::mistake(
            "the database runs with fsync = off: what it has acknowledged may not be on disk",
        ));
    }
    if commit == "off" {
        client.batch_execute("SET synchronous_commit = on")?;
    }
    Ok(client.batch_execute(&format!("SET statement_timeout = '{seconds}s'"))?)
}
