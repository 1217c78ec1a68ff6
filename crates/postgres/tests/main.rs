//! A register in PostgreSQL keeps the promises of one in a file. Skipped if PostgreSQL is not
//! installed.

#[path = "../../../tests/postgres/mod.rs"]
mod postgres;

use postgres::{Database, PASSWORD};
use std::path::Path;
use undertone_accounting::{Adjacency, Composition, Event, Threat, Unit};
use undertone_register::{
    Cap, Cost, DataSet, Name, Register, Reservation, Settlement, Status, new_id,
};

const DELTA: f64 = 1e-6;

fn name() -> Name {
    Name { name: "letters".to_owned(), version: "1".to_owned() }
}

fn data_set(epsilon: f64) -> DataSet {
    DataSet {
        name: name(),
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

fn cost(noise_multiplier: f64) -> Cost {
    let event = Event::Gaussian { noise_multiplier, sensitivity: 1.0 };
    let releases = Composition::new(Adjacency::AddRemove).with(event, 1);
    Cost { unit: Unit::Example, threat: Threat::Central, delta: DELTA, releases }
}

fn reservation(cost: Cost) -> Reservation {
    let (id, run) = (new_id().unwrap(), "runs/first".to_owned());
    Reservation { id, dataset: name(), run, verb: "train".to_owned(), cost }
}

/// A register with one data set, in a database of its own.
fn register(database: &Database, epsilon: f64) -> (String, Register) {
    undertone_postgres::provide();
    let url = database.make("budgets");
    let register = Register::create(Path::new(&url)).unwrap();
    register.add(data_set(epsilon)).unwrap();
    (url, register)
}

#[test]
fn a_reservation_is_settled_and_outlives_the_server() {
    let Some(mut database) = Database::start() else { return };
    let (url, register) = register(&database, 8.0);
    let reserved = reservation(cost(2.0));
    register.reserve(&reserved).unwrap();
    database.kill();
    assert!(register.state().is_err());
    database.run();
    let settlement = Settlement {
        reservation: reserved.id.clone(),
        cost: cost(3.0),
        entries: 1,
        ledger: "hash".to_owned(),
        cut_short: false,
    };
    register.settle(&settlement).unwrap();
    let state = Register::open(Path::new(&url)).unwrap().state().unwrap();
    let (_, booking) = state.booking(&reserved.id).unwrap();
    assert!(matches!(booking.status, Status::Settled(..)));
    assert_eq!(register.place(), url);
    // A second register cannot take its place.
    let again = Register::create(Path::new(&url)).unwrap_err().to_string();
    assert!(again.contains("exists already"), "{again}");
}

/// Processes that reserve at the same time never exceed the cap, and every reservation that was
/// acknowledged is there.
#[test]
fn concurrent_reservations_stay_below_the_cap() {
    let Some(database) = Database::start() else { return };
    let (url, register) = register(&database, 8.0);
    let reserve = || {
        let own = Register::open(Path::new(&url)).unwrap();
        let mut granted = Vec::new();
        for _ in 0..10 {
            let wanted = reservation(cost(4.0));
            match own.reserve(&wanted) {
                Ok(_) => granted.push(wanted.id),
                Err(refused) => assert!(refused.to_string().contains('ε'), "{refused}"),
            }
        }
        granted
    };
    let granted: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(reserve)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let state = register.state().unwrap();
    let account = state.find("letters").unwrap();
    assert!(granted.iter().all(|id| state.booking(id).is_some()));
    let spent = |count: usize| {
        let event = Event::Gaussian { noise_multiplier: 4.0, sensitivity: 1.0 };
        let all = Composition::new(Adjacency::AddRemove).with(event, count as u64);
        account.epsilon_of(&all).unwrap().upper
    };
    assert!(spent(granted.len()) <= 8.0 && spent(granted.len() + 1) > 8.0, "{}", granted.len());
    assert_eq!(account.epsilon_of(&account.committed()).unwrap().upper, spent(granted.len()));
}

#[test]
fn edits_are_detected_and_nothing_is_written() {
    let Some(database) = Database::start() else { return };
    for (number, (edit, about)) in [
        ("DELETE FROM undertone_register WHERE number = 2", "1 lines"),
        (
            "UPDATE undertone_register SET line = replace(line, 'board', 'staff')",
            "line 2 was changed",
        ),
        ("DELETE FROM undertone_register_head", "head"),
        ("UPDATE undertone_register_head SET hash = 'another'", "another"),
    ]
    .into_iter()
    .enumerate()
    {
        undertone_postgres::provide();
        let name = format!("budgets_{number}");
        let url = database.make(&name);
        let register = Register::create(Path::new(&url)).unwrap();
        register.add(data_set(8.0)).unwrap();
        database.sql(&name, edit);
        let count = "SELECT count(*) FROM undertone_register";
        let before = database.sql(&name, count);
        for refused in [
            register.state().err().map(|e| e.to_string()),
            register.reserve(&reservation(cost(4.0))).err().map(|e| e.to_string()),
        ] {
            let refused = refused.unwrap_or_default();
            assert!(refused.contains(about), "{edit}: {refused}");
        }
        assert_eq!(database.sql(&name, count), before, "{edit}");
    }
}

#[test]
fn addresses_that_cannot_be_used_are_refused() {
    undertone_postgres::provide();
    let problem = |url: &str| Register::open(Path::new(url)).unwrap_err().to_string();
    assert!(problem("postgres://ada:secret@localhost/x").contains("PGPASSWORD"));
    assert!(!problem("postgres://ada:secret@localhost/x").contains("secret@"));
    assert!(problem("postgres://ada@db.example/x").contains("sslmode=require"));
    let Some(database) = Database::start() else { return };
    let url = database.make("empty");
    assert!(problem(&url).contains("undertone register init"), "{}", problem(&url));
    // By TCP, a password is needed.
    assert!(problem(&database.by_port("empty")).contains("PostgreSQL"));
    assert!(!PASSWORD.is_empty());
}
