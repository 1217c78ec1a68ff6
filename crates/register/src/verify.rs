//! Checks a whole register.

use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::register::Register;
use crate::state::State;

/// What a check found.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Number of lines.
    pub lines: u64,
    /// Hash of the last line. Noting it elsewhere allows detecting a rewrite of the whole register.
    pub hash: String,
    /// Everything that the register holds.
    pub state: State,
}

impl Register {
    /// Checks every line: that its hash is correct, that it follows the previous line, that its
    /// entry is valid after the entries before it, and that no reservation exceeds the cap. `noted`
    /// are hashes that were noted elsewhere; lines with these hashes must be in the register.
    pub fn verify(&self, noted: &[String]) -> Result<Verified> {
        let (place, lines) = (self.place(), self.lines()?);
        let state = State::of(&lines, &place)?;
        for (index, line) in lines.iter().enumerate() {
            let Entry::Reserve(reservation) = &line.entry else { continue };
            let before = State::of(&lines[..index], &place)?;
            let account = before.find(&reservation.dataset.to_string())?;
            let mut all = account.committed();
            let planned = reservation.cost.releases.parts();
            planned.iter().for_each(|part| all.push(part.event, part.count));
            if account.epsilon_of(&all)?.upper > account.cap.epsilon * (1.0 + 1e-6) {
                return Err(Error::refused(format!(
                    "register {place}: line {} reserves more than the cap of {} allowed, which \
                     this program would not have written",
                    index + 1,
                    reservation.dataset
                )));
            }
        }
        if let Some(missing) = noted.iter().find(|hash| !lines.iter().any(|l| l.hash == **hash)) {
            return Err(Error::refused(format!(
                "register {place} has no line with the hash {missing}: the register was rewritten, \
                 or the hash is of another one"
            )));
        }
        Ok(Verified { lines: state.lines, hash: state.hash.clone(), state })
    }
}
