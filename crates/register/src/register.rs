//! A register: opened, read and appended to. Each entry is one transaction.

use crate::chain;
use crate::entry::{Entry, FORMAT};
use crate::error::{Error, Result};
use crate::place;
use crate::state::State;
use crate::store::Store;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum difference between the clocks of several machines, in seconds.
const CLOCK_SKEW: u64 = 600;

/// A register of budgets.
#[derive(Debug)]
pub struct Register {
    store: Box<dyn Store>,
    pub(crate) clock: fn() -> u64,
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A random id in hexadecimal, for a register or a reservation.
pub fn new_id() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::refused(format!("the operating system provides no random numbers: {e}"))
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Register {
    /// Creates a register in a file that does not exist, or in a database without one.
    pub fn create(place: &Path) -> Result<Self> {
        let begin = Entry::Begin { format: FORMAT, id: new_id()? };
        let (first, _) = chain::seal(now(), begin, "");
        Ok(Self { store: place::create(place, &first)?, clock: now })
    }

    /// Opens the register in a file, or in the database with this address.
    pub fn open(place: &Path) -> Result<Self> {
        Ok(Self { store: place::open(place)?, clock: now })
    }

    /// The same register with a different clock, for tests.
    pub fn with_clock(self, clock: fn() -> u64) -> Self {
        Self { clock, ..self }
    }

    /// The register's name in messages.
    pub fn place(&self) -> String {
        self.store.place()
    }

    /// Everything that it holds.
    pub fn state(&self) -> Result<State> {
        State::of(&self.lines()?, &self.place())
    }

    /// The lines, checked against each other.
    pub(crate) fn lines(&self) -> Result<Vec<chain::Line>> {
        chain::parse(&self.store.read()?, &self.place())
    }

    /// Appends what `decide` returns for the state and the time. Returns the hash of the last line.
    pub(crate) fn append(
        &self,
        clock: Clock,
        decide: &mut dyn FnMut(&State, u64) -> Result<Option<Entry>>,
    ) -> Result<String> {
        let (place, mut last) = (self.place(), String::new());
        self.store.append(&mut |text| {
            let state = State::of(&chain::parse(text, &place)?, &place)?;
            let at = (self.clock)();
            if clock == Clock::MustBeRight && at + CLOCK_SKEW < state.latest {
                return Err(Error::refused(format!(
                    "the clock says {}, but the last entry of register {place} is of {}: set the \
                     clock, on which expiry depends",
                    crate::day_and_time(at),
                    crate::day_and_time(state.latest)
                )));
            }
            let at = at.max(state.latest);
            last = state.hash.clone();
            let Some(entry) = decide(&state, at)? else { return Ok(None) };
            let (line, hash) = chain::seal(at, entry, &state.hash);
            last = hash;
            Ok(Some(line))
        })?;
        Ok(last)
    }
}

/// What an entry requires of the clock.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Clock {
    /// The entry depends on the time: a clock that was set back is refused.
    MustBeRight,
    /// The entry records an event that must not be lost.
    MayBeWrong,
}
