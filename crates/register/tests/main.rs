//! The integration tests, in one program.

mod budget;
mod damage;
mod kills;

use std::path::Path;
use undertone_accounting::{Adjacency, Composition, Event, Threat, Unit};
use undertone_register::{
    Cap, Cost, DataSet, Name, Register, Reservation, Settlement, Status, new_id,
};

pub const DELTA: f64 = 1e-6;

pub fn name(version: &str) -> Name {
    Name { name: "letters".to_owned(), version: version.to_owned() }
}

pub fn data_set(version: &str, epsilon: f64) -> DataSet {
    DataSet {
        name: name(version),
        covers: "everybody who wrote to us".to_owned(),
        units: Some(1000),
        unit: Unit::Example,
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        cap: Cap { epsilon, delta: DELTA },
        approver: "the board".to_owned(),
        expires: None,
        other_people: false,
    }
}

/// A register with one data set.
pub fn register(folder: &Path, epsilon: f64) -> Register {
    let register = Register::create(&folder.join("register.jsonl")).unwrap();
    register.add(data_set("1", epsilon)).unwrap();
    register
}

/// Releases of a Gaussian mechanism.
pub fn cost(noise_multiplier: f64, count: u64) -> Cost {
    let event = Event::Gaussian { noise_multiplier, sensitivity: 1.0 };
    let releases = Composition::new(Adjacency::AddRemove).with(event, count);
    Cost { unit: Unit::Example, threat: Threat::Central, delta: DELTA, releases }
}

pub fn reservation(cost: Cost) -> Reservation {
    let (id, run) = (new_id().unwrap(), "runs/first".to_owned());
    Reservation { id, dataset: name("1"), run, verb: "train".to_owned(), cost }
}

pub fn settlement(reservation: &str, cost: Cost, entries: u64) -> Settlement {
    let (reservation, ledger) = (reservation.to_owned(), format!("hash {entries}"));
    Settlement { reservation, cost, entries, ledger, cut_short: false }
}

pub fn status(register: &Register, id: &str) -> Status {
    register.state().unwrap().booking(id).unwrap().1.status.clone()
}
