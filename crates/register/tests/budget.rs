//! What the register allows and refuses.

use crate::*;
use undertone_accounting::{Accountant, epsilon};
use undertone_register::{Error, Result, end_of_day};

fn refused<T: std::fmt::Debug>(result: Result<T>, about: &str) {
    let error = result.unwrap_err();
    let sentence = error.to_string();
    assert!(matches!(error, Error::Refused(_)), "{sentence}");
    assert!(sentence.contains(about) && !sentence.contains('\n'), "{sentence}, not {about}");
}

/// ε of all runs is the ε of their events together: less than the sum, more than the largest.
#[test]
fn runs_are_composed_by_their_events() {
    let folder = tempfile::tempdir().unwrap();
    let register = register(folder.path(), 10.0);
    for noise in [2.0, 3.0] {
        let wanted = reservation(cost(noise, 4));
        register.reserve(&wanted).unwrap();
        register.settle(&settlement(&wanted.id, cost(noise, 4), 4)).unwrap();
    }
    let state = register.state().unwrap();
    let account = state.find("letters").unwrap();
    let upper = account.epsilon_of(&account.spent()).unwrap().upper;
    // Two Gaussian mechanisms are one with μ² the sum of theirs.
    let mu: f64 = (4.0_f64 / 4.0 + 4.0 / 9.0).sqrt();
    let truth = epsilon(&cost(1.0 / mu, 1).releases, DELTA, Accountant::Auto).unwrap().epsilon;
    assert!((upper - truth.upper).abs() < 1e-6, "{upper}, not {truth:?}");
    let alone = |noise| epsilon(&cost(noise, 4).releases, DELTA, Accountant::Auto).unwrap();
    assert!(upper < alone(2.0).epsilon.upper + alone(3.0).epsilon.upper - 0.5);
}

#[test]
fn what_would_exceed_the_cap_is_refused_with_what_would_fit() {
    let folder = tempfile::tempdir().unwrap();
    let register = register(folder.path(), 4.0);
    let first = reservation(cost(2.0, 1));
    register.reserve(&first).unwrap();
    let too_much = reservation(cost(1.0, 1));
    let sentence = register.reserve(&too_much).unwrap_err().to_string();
    assert!(sentence.contains("over its cap of ε = 4"), "{sentence}");
    // A reservation counts although nothing is released yet.
    assert!(sentence.contains("is spent or reserved"), "{sentence}");
    let fits: f64 = sentence
        .split("privacy.epsilon = ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{sentence}"));
    // It does fit, and hardly more does.
    let with = |target: f64| {
        let noise = undertone_accounting::calibrate::noise_multiplier(
            target,
            DELTA,
            1.0,
            1,
            Accountant::Auto,
        );
        reservation(cost(noise.unwrap().noise, 1))
    };
    refused(register.reserve(&with(fits * 1.01)), "over its cap");
    register.reserve(&with(fits)).unwrap();
    // Once the first reservation is released, its cost fits again.
    register.release(&first.id, "the file was missing").unwrap();
    register.reserve(&reservation(cost(2.0, 1))).unwrap();
}

#[test]
fn nothing_fits_into_a_budget_that_is_spent() {
    let folder = tempfile::tempdir().unwrap();
    let register = register(folder.path(), 1.0);
    let enough =
        undertone_accounting::calibrate::noise_multiplier(1.0, DELTA, 1.0, 1, Accountant::Auto);
    register.reserve(&reservation(cost(enough.unwrap().noise, 1))).unwrap();
    refused(register.reserve(&reservation(cost(1.0, 3))), "no run of these steps fits");
    let many = [cost(100.0, 1), cost(100.0, 1)];
    refused(register.check(&name("1"), &many), "the 2 runs would bring letters@1 to ε = 1.0");
}

#[test]
fn guarantees_of_another_kind_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let register = register(folder.path(), 8.0);
    let users = Cost { unit: Unit::User, ..cost(5.0, 1) };
    refused(register.reserve(&reservation(users)), "protects users");
    let local = Cost { threat: Threat::Local, ..cost(5.0, 1) };
    refused(register.reserve(&reservation(local)), "threat model");
    let mut replacing = cost(5.0, 1);
    replacing.releases.adjacency = Adjacency::ReplaceOne;
    refused(register.reserve(&reservation(replacing)), "adjacency");
    let likelier = Cost { delta: 1e-5, ..cost(5.0, 1) };
    refused(register.reserve(&reservation(likelier)), "δ is 1e-5");
    register.reserve(&reservation(Cost { delta: 1e-7, ..cost(5.0, 1) })).unwrap();
}

#[test]
fn a_version_of_the_same_people_shares_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let register = register(folder.path(), 8.0);
    refused(register.add(data_set("1", 8.0)), "has a budget already");
    refused(register.add(data_set("2", 8.0)), "--other-people");
    register.add(DataSet { other_people: true, ..data_set("2", 1.0) }).unwrap();
    let state = register.state().unwrap();
    refused(state.find("letters").map(|_| ()), "letters@1, letters@2");
    refused(state.find("cards").map(|_| ()), "no data set cards");
    assert_eq!(state.find("letters@2").unwrap().cap.epsilon, 1.0);
    let mut odd = data_set("3", 1.0);
    odd.name.name = "a@b".to_owned();
    refused(register.add(odd), "letters, digits");
}

#[test]
fn a_cap_cannot_be_lowered_below_what_is_spent() {
    let folder = tempfile::tempdir().unwrap();
    let register = register(folder.path(), 8.0);
    register.reserve(&reservation(cost(1.0, 1))).unwrap();
    let lower = Cap { epsilon: 2.0, delta: DELTA };
    refused(register.set_cap(&name("1"), lower, "the board"), "is below the ε = ");
    let enough = Cap { epsilon: 5.5, delta: DELTA };
    register.set_cap(&name("1"), enough, "the board").unwrap();
    assert_eq!(register.state().unwrap().find("letters").unwrap().cap, enough);
    refused(register.set_cap(&name("1"), Cap { epsilon: 0.0, ..enough }, "the board"), "above 0");
    refused(register.set_cap(&name("1"), Cap { delta: 0.0, ..enough }, "the board"), "δ");
}

#[test]
fn a_closed_or_expired_budget_admits_nobody_and_still_settles() {
    let folder = tempfile::tempdir().unwrap();
    let register = register(folder.path(), 8.0);
    let before = reservation(cost(5.0, 2));
    register.reserve(&before).unwrap();
    register.close(&name("1"), "the study has ended").unwrap();
    refused(register.reserve(&reservation(cost(5.0, 1))), "is closed (the study has ended)");
    register.settle(&settlement(&before.id, cost(5.0, 2), 2)).unwrap();
    let expires = end_of_day("2001-01-01");
    let old = DataSet { expires, other_people: true, ..data_set("2", 8.0) };
    register.add(old).unwrap();
    let late = Reservation { dataset: name("2"), ..reservation(cost(5.0, 1)) };
    refused(register.reserve(&late), "expired on 2001-01-01");
}

#[test]
fn a_clock_that_was_set_back_loses_no_settlement() {
    let folder = tempfile::tempdir().unwrap();
    let later = register(folder.path(), 8.0);
    let wanted = reservation(cost(5.0, 2));
    later.reserve(&wanted).unwrap();
    let path = folder.path().join("register.jsonl");
    let set_back = Register::open(&path).unwrap().with_clock(|| 1_000_000_000);
    refused(set_back.reserve(&reservation(cost(5.0, 1))), "the clock says 2001-09-09 01:46 UTC");
    set_back.settle(&settlement(&wanted.id, cost(5.0, 2), 2)).unwrap();
    let Status::Settled(at, _) = status(&later, &wanted.id) else { panic!("not settled") };
    assert!(at > 1_700_000_000, "times do not fall: {at}");
}

/// Spent, reserved and released budget over time, and the extrapolated pace.
#[test]
fn the_course_of_a_budget_is_that_of_its_entries() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("register.jsonl");
    drop(register(folder.path(), 4.0));
    const DAY: u64 = 86_400;
    let start = Register::open(&path).unwrap().state().unwrap().latest;
    let wanted: Vec<_> = (0..4).map(|_| reservation(cost(6.0, 1))).collect();
    let register = Register::open(&path).unwrap();
    wanted.iter().for_each(|planned| drop(register.reserve(planned).unwrap()));
    register.settle(&settlement(&wanted[0].id, cost(6.0, 1), 1)).unwrap();
    register.release(&wanted[1].id, "nothing was read").unwrap();
    let state = register.state().unwrap();
    let account = state.find("letters").unwrap();
    let course = account.course(start + 10 * DAY).unwrap();
    let last = course[course.len() - 1];
    assert_eq!((course[0].spent, course[0].committed), (0.0, 0.0));
    assert_eq!(last.at, start + 10 * DAY);
    assert!(last.spent > 0.0 && last.committed > last.spent, "{course:?}");
    let committed = account.epsilon_of(&account.committed()).unwrap().upper;
    assert_eq!(last.committed, committed);
    assert_eq!(account.exhausted_at(start).unwrap(), None, "too early to say");
    // Three releases in ten days; the cap is reached by n of them.
    let end = account.exhausted_at(start + 10 * DAY).unwrap().unwrap();
    let releases = 3.0 * (end - start) as f64 / (10.0 * DAY as f64);
    let at = |n: f64| account.epsilon_of(&cost(6.0 / n.sqrt(), 1).releases).unwrap().upper;
    assert!(at(releases * 0.95) < 4.0 && at(releases * 1.15 + 1.0) > 4.0, "{releases}");
    // One more release of that ε fits, and hardly a larger one.
    let room = account.room().unwrap().unwrap();
    assert!(room > 4.0 - committed && room < 4.0, "{room}, {committed}");
}

/// What a run has spent counts once, whatever is repeated, and even if its reservation was
/// released.
#[test]
fn a_settlement_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let register = register(folder.path(), 8.0);
    let wanted = reservation(cost(5.0, 9));
    let hash = register.reserve(&wanted).unwrap();
    assert_eq!(register.reserve(&wanted).unwrap(), hash, "a resumed run");
    let done = settlement(&wanted.id, cost(5.0, 4), 4);
    register.settle(&done).unwrap();
    register.settle(&done).unwrap();
    let lines = register.state().unwrap().lines;
    assert_eq!(lines, 4);
    refused(register.settle(&settlement(&wanted.id, cost(5.0, 3), 3)), "settled already");
    refused(register.reserve(&wanted), "made before");
    refused(register.release(&wanted.id, "no"), "cannot be given back");
    register.settle(&settlement(&wanted.id, cost(5.0, 9), 9)).unwrap();
    let released = reservation(cost(5.0, 1));
    register.reserve(&released).unwrap();
    register.release(&released.id, "it was thought not to have begun").unwrap();
    register.settle(&settlement(&released.id, cost(5.0, 1), 1)).unwrap();
    let state = register.state().unwrap();
    assert_eq!(state.find("letters").unwrap().spent().releases(), 10);
    refused(register.settle(&settlement("0", cost(5.0, 1), 1)), "no reservation");
    let other = settlement(&released.id, Cost { unit: Unit::User, ..cost(5.0, 2) }, 2);
    refused(register.settle(&other), "another unit");
}
