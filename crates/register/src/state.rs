//! The state of a register after all its lines.

use crate::account::{Account, Booking, Status};
use crate::chain::Line;
use crate::entry::{Entry, FORMAT, Name};
use crate::error::{Error, Result};

/// Everything that a register holds.
#[derive(Clone, Debug)]
pub struct State {
    /// The register's own id.
    pub id: String,
    /// The data sets, in the order in which they were added.
    pub accounts: Vec<Account>,
    /// Number of lines.
    pub lines: u64,
    /// Hash of the last line.
    pub hash: String,
    /// The latest time of any line, in seconds since 1970.
    pub latest: u64,
}

impl State {
    /// Replays the lines. An entry that could not have been written means damage.
    pub fn of(lines: &[Line], place: &str) -> Result<Self> {
        let damaged = |number: usize, why: &str| {
            Error::refused(format!(
                "register {place}: line {number} {why}, which this program would not have written; \
                 restore the register from a backup"
            ))
        };
        let Some((first, rest)) = lines.split_first() else {
            return Err(Error::refused(format!("{place} is empty, and not a register")));
        };
        let Entry::Begin { format, id } = &first.entry else {
            return Err(damaged(1, "does not begin a register"));
        };
        if *format > FORMAT {
            return Err(Error::refused(format!(
                "register {place} was written by a newer version of the program; update it"
            )));
        }
        let (lines, hash) = (1, first.hash.clone());
        let mut state =
            Self { id: id.clone(), accounts: Vec::new(), lines, hash, latest: first.at };
        for line in rest {
            state.take(line).map_err(|why| damaged(state.lines as usize + 1, &why))?;
        }
        Ok(state)
    }

    /// Applies one more line; the error says what is wrong with it.
    fn take(&mut self, line: &Line) -> std::result::Result<(), String> {
        match &line.entry {
            Entry::Begin { .. } => return Err("begins the register again".to_owned()),
            Entry::Add(set) => {
                if self.account(&set.name).is_some() {
                    return Err(format!("adds {} again", set.name));
                }
                self.accounts.push(Account::new(set.clone(), line.at));
            }
            Entry::Reserve(reservation) => {
                if self.booking(&reservation.id).is_some() {
                    return Err("repeats a reservation".to_owned());
                }
                reservation.cost.releases.validate().map_err(|e| format!("is invalid: {e}"))?;
                let booking = Booking {
                    reservation: reservation.clone(),
                    at: line.at,
                    hash: line.hash.clone(),
                    status: Status::Open,
                };
                self.named(&reservation.dataset)?.bookings.push(booking);
            }
            Entry::Settle(settlement) => {
                settlement.cost.releases.validate().map_err(|e| format!("is invalid: {e}"))?;
                let booking = self.booking_mut(&settlement.reservation)?;
                booking.status = Status::Settled(line.at, settlement.clone());
            }
            Entry::Release { reservation, reason } => {
                let booking = self.booking_mut(reservation)?;
                if booking.status != Status::Open {
                    return Err("releases a reservation that is not open".to_owned());
                }
                booking.status = Status::Released(line.at, reason.clone());
            }
            Entry::Cap { dataset, cap, .. } => self.named(dataset)?.cap = *cap,
            Entry::Close { dataset, reason } => {
                self.named(dataset)?.closed = Some(reason.clone());
            }
        }
        self.lines += 1;
        self.hash = line.hash.clone();
        self.latest = self.latest.max(line.at);
        Ok(())
    }

    /// The data set with this key.
    pub fn account(&self, name: &Name) -> Option<&Account> {
        self.accounts.iter().find(|account| account.set.name == *name)
    }

    /// The data set with a name as typed by a person: `name`, if it has one version, or
    /// `name@version`.
    pub fn find(&self, text: &str) -> Result<&Account> {
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let fits = |account: &&Account| {
            let own = &account.set.name;
            own.name == name && version.is_none_or(|version| own.version == version)
        };
        let matching: Vec<&Account> = self.accounts.iter().filter(fits).collect();
        let list = |accounts: &[&Account]| -> String {
            let names: Vec<String> =
                accounts.iter().map(|account| account.set.name.to_string()).collect();
            names.join(", ")
        };
        match matching.as_slice() {
            [booking] => Ok(booking),
            [] if self.accounts.is_empty() => Err(Error::refused(format!(
                "the register has no data set {text}; add it with: undertone register add"
            ))),
            [] => Err(Error::refused(format!(
                "the register has no data set {text}; it has {}",
                list(&self.accounts.iter().collect::<Vec<_>>())
            ))),
            several => Err(Error::refused(format!(
                "data set {text} has several versions; name one of {}",
                list(several)
            ))),
        }
    }

    /// A reservation and its data set, by the reservation's id.
    pub fn booking(&self, id: &str) -> Option<(&Account, &Booking)> {
        self.accounts.iter().find_map(|account| {
            let booking = account.bookings.iter().find(|booking| booking.reservation.id == id);
            Some((account, booking?))
        })
    }

    fn named(&mut self, name: &Name) -> std::result::Result<&mut Account, String> {
        let account = self.accounts.iter_mut().find(|account| account.set.name == *name);
        account.ok_or_else(|| format!("is about {name}, which was not added"))
    }

    fn booking_mut(&mut self, id: &str) -> std::result::Result<&mut Booking, String> {
        let mut all = self.accounts.iter_mut().flat_map(|account| &mut account.bookings);
        let booking = all.find(|booking| booking.reservation.id == id);
        booking.ok_or_else(|| "is about a reservation that was not made".to_owned())
    }
}
