//! Attacks on the program: damaged files and command lines, file system errors, and kills at random
//! moments. Whatever happens, the program must answer or refuse in one sentence, and no release may
//! be missing from a ledger.
//!
//! `tests/attacks/run SEED COUNT [KILLS]` makes any number of attacks; each depends only on the
//! seed and its number. `UNDERTONE_ATTACKS_ONLY=NUMBER` repeats one and keeps its folder;
//! `UNDERTONE_ATTACKS_ALL=1` lists all of them.

mod bad;
mod classify;
mod commands;
mod faults;
mod flags;
mod invoke;
mod json;
mod kills;
mod mutate;
mod random;
mod runs;
mod world;

use classify::{Class, Tally, classify};
use commands::CASES;
use faults::Fault;
use invoke::{Ended, Surroundings, invoke};
use kills::{Killer, Whole};
use mutate::Damage;
use random::Random;
use runs::is_under_counted;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use world::World;

/// A number from an environment variable.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number")))
}

fn seed() -> u64 {
    setting("UNDERTONE_ATTACKS_SEED").unwrap_or(1)
}

#[test]
fn damaged_input_and_errors_of_the_system_are_answered_or_refused() {
    let world = World::shared();
    if let Some(number) = setting("UNDERTONE_ATTACKS_ONLY") {
        let mut tally = Tally::default();
        let (class, what) = attack(&world, number, true);
        println!("{class}: {what}");
        tally.add(class, what);
        return tally.assert_sound("1 attack");
    }
    let count = setting("UNDERTONE_ATTACKS_COUNT").unwrap_or(200);
    let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let (class, what) = attack(&world, number, false);
            tally.lock().unwrap().add(class, what);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4));
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    tally.into_inner().unwrap().assert_sound(&format!("{count} attacks, seed {}", seed()));
}

/// Everything that is damaged was valid before.
#[test]
fn commands_that_are_attacked_succeed_by_themselves() {
    let world = World::shared();
    for case in commands::CASES {
        let copy = world.copy(case.line);
        let ended = invoke(copy.path(), &case.arguments(), Surroundings::Ordinary);
        let class = classify(&ended, case.verb(), Surroundings::Ordinary, false);
        assert_eq!(class, Class::Answered, "{}: {}", case.line, ended.said());
    }
}

#[test]
fn killed_runs_lose_nothing_and_are_counted_in_full() {
    if setting("UNDERTONE_ATTACKS_ONLY").is_some() {
        return;
    }
    let world = World::shared();
    let kills = setting("UNDERTONE_ATTACKS_KILLS").unwrap_or(200);
    let copy = world.copy(commands::PREDICT_PRIVATE);
    let (folder, wholes) = (copy.path(), Whole::all(copy.path()));
    let half = |first: u64| {
        let mut killer = Killer::new(folder, seed(), (kills + 1 - first) as usize / 2);
        killer.run(&wholes, first, 2);
        killer.tally
    };
    let tally = std::thread::scope(|scope| {
        let second = scope.spawn(|| half(1));
        let mut tally = half(0);
        tally.extend(second.join().unwrap());
        tally
    });
    tally.assert_sound(&format!("{kills} kills, seed {}", seed()));
}

/// Makes one attack; returns its class and a description.
fn attack(world: &World, number: u64, keep: bool) -> (Class, String) {
    let mut random = Random::new(seed(), number);
    let at = random.below(CASES.len());
    let (case, copy) = (&CASES[at], world.copy(CASES[at].line));
    let (mut arguments, mut must_fail, mut fault) = (case.arguments(), false, None);
    let mut how = String::new();
    match random.below(20) {
        0..=11 if !case.reads.is_empty() => {
            let (file, kind) = *random.pick(case.reads);
            let before = fs::read(world.path().join(file)).unwrap();
            let (damage, what) = Damage::draw(&mut random, &before, world.twin(file));
            must_fail = kind.is_bad(&before, &damage);
            damage.put(&copy.path().join(file));
            how = format!("{file} {what}");
        }
        0..=16 => {
            let line = flags::damage(&mut random, case);
            (arguments, must_fail) = (line.arguments, line.is_bad);
        }
        _ => {
            let drawn = Fault::draw(&mut random, world, at);
            drawn.prepare(copy.path());
            how = drawn.to_string();
            fault = Some(drawn);
        }
    }
    let surroundings = fault.as_ref().map_or(Surroundings::Ordinary, |fault| fault.surroundings);
    let ended = invoke(copy.path(), &arguments, surroundings);
    fault.iter().for_each(|fault| fault.end(copy.path()));
    let mut class = classify(&ended, case.verb(), surroundings, must_fail);
    let mut wrong = String::new();
    if class == Class::Answered {
        let lost = fault.as_ref().is_some_and(|fault| fault.is_answer_lost(copy.path()));
        if let Some(problem) = answer_problem(copy.path(), &arguments, &ended, surroundings, lost) {
            (class, wrong) = (Class::BadSuccess, format!(" ({problem})"));
        }
    }
    if fault.is_some() && case.verb() == "train" && is_under_counted(&copy.path().join("new")) {
        class = Class::UnderCounted;
    }
    let line: Vec<String> = arguments.iter().map(|word| shown(word)).collect();
    let said: String = ended.said().chars().take(300).collect();
    let expected = if must_fail { ", which is bad" } else { "" };
    let what = format!(
        "seed {}, attack {number}: undertone {} [{how}{expected}]{wrong}: {said}",
        seed(),
        line.join(" "),
    );
    if keep {
        println!("{}", copy.keep().display());
    }
    (class, what)
}

/// The problem with an output, if any.
fn answer_problem(
    folder: &Path,
    arguments: &[OsString],
    ended: &Ended,
    surroundings: Surroundings,
    lost: bool,
) -> Option<&'static str> {
    let has = |flag: &str| arguments.iter().any(|word| word == flag);
    let model = folder.join("new/model/model.safetensors");
    let is_saved = model.symlink_metadata().is_ok_and(|data| data.is_file());
    let is_json = |text: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
    let mut lines = ended.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    if lost {
        Some("a file of the answer was not written")
    } else if is_saved && !bad::is_sound_model(&fs::read(model).unwrap()) {
        Some("weights that are not finite were saved")
    } else if surroundings == Surroundings::Ordinary
        && has("--json")
        && !["-h", "--help", "-V", "--version"].iter().any(|flag| has(flag))
        && !is_json(&ended.stdout)
        && !lines.all(is_json)
    {
        Some("the answer is not JSON")
    } else {
        None
    }
}

/// A word of a command line, shortened for display.
fn shown(word: &OsStr) -> String {
    let text = word.to_string_lossy().escape_debug().to_string();
    let start: String = text.chars().take(60).collect();
    let end = if start.len() < text.len() { "…" } else { "" };
    if start.is_empty() || start.contains([' ', '"']) {
        format!("'{start}{end}'")
    } else {
        start + end
    }
}
