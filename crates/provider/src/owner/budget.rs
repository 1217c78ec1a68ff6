//! The owner's ledgers, and the bound on their composition.

use super::home::{Home, make_private};
use super::purpose::Purpose;
use crate::error::{Error, Result};
use crate::hex::{Hash, hex, keyed_hash};
use crate::task::Task;
use std::path::{Path, PathBuf};
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::{
    Accountant, Adjacency, Composition, Event, Guarantee, Mode, Part, Threat, Unit, epsilon,
    rounded_up,
};

/// The owner's total budget: the maximum ε, at this δ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub epsilon: f64,
    pub delta: f64,
}

impl Bound {
    /// Rejects an invalid budget.
    pub fn check(&self) -> Result<()> {
        if !(self.epsilon.is_finite() && self.epsilon > 0.0) {
            return Err(Error::mistake("--epsilon-at-most must be above 0"));
        }
        if !(self.delta > 0.0 && self.delta < 0.5) {
            return Err(Error::mistake("--delta must lie between 0 and 0.5"));
        }
        Ok(())
    }
}

/// The unit of an owner's ledgers. In version 0.1 it was the text, identified by its tokens.
const ROWS: &str = "a row belongs to one person; rows with the same text belong to different \
                    people, and a row whose text was changed is a new row";

/// The ledger of a task and a purpose.
#[derive(Debug)]
pub struct Budget<'a> {
    home: &'a Home,
    task: &'a Task,
    hash: &'a Hash,
    purpose: Purpose,
}

impl<'a> Budget<'a> {
    pub fn new(home: &'a Home, task: &'a Task, hash: &'a Hash, purpose: Purpose) -> Self {
        Self { home, task, hash, purpose }
    }

    fn path(&self) -> PathBuf {
        ledger_path(&self.home.task(self.hash), self.purpose)
    }

    fn terms(&self) -> Terms {
        let of = [self.purpose.name().as_bytes(), self.hash.as_slice()];
        let id = keyed_hash(&self.home.secret, &[b"ledger", of[0], of[1]]);
        let mut assumptions = vec![
            ROWS.to_owned(),
            "the number of rows is public".to_owned(),
            "secret.key of the owner's folder stays secret".to_owned(),
            "the noise, drawn in f32 and rounded to a grid, is treated as Gaussian, which it is up \
             to a relative error of about 2e-7"
                .to_owned(),
        ];
        if self.task.label_epsilon.is_none() && self.purpose == Purpose::Contribution {
            assumptions.push("the labels are public".to_owned());
        }
        // A torn line counts as one event of each kind.
        let mut announced: Vec<Part> = Vec::new();
        for event in self.events() {
            if !announced.iter().any(|part| part.event == event) {
                announced.push(Part { event, count: 1 });
            }
        }
        Terms {
            id: hex(&id[..16]),
            run: None,
            unit: Unit::Example,
            adjacency: Adjacency::ReplaceOne,
            threat: Threat::Local,
            mode: Mode::Proved,
            assumptions,
            announced,
        }
    }

    fn events(&self) -> Vec<Event> {
        self.purpose.events(self.task)
    }

    /// ε of everything in the owner's folder, including events of this purpose that are not
    /// recorded yet.
    pub fn after_paying(&self, delta: f64) -> Result<f64> {
        let mut all = Composition::new(Adjacency::ReplaceOne);
        let mut paid = 0;
        for path in ledgers(self.home)? {
            let ledger = Ledger::read(&path)?;
            if path == self.path() {
                self.check_terms(&ledger)?;
                paid = ledger.entries();
            }
            if ledger.terms().adjacency != Adjacency::ReplaceOne {
                return Err(Error::mistake(format!(
                    "{} is not the ledger of an owner",
                    path.display()
                )));
            }
            ledger.spent().parts().iter().for_each(|part| all.push(part.event, part.count));
        }
        let owed = self.events().into_iter().skip(paid as usize);
        owed.for_each(|event| all.push(event, 1));
        if all.parts().is_empty() {
            return Ok(0.0);
        }
        Ok(epsilon(&all, delta, Accountant::Auto)?.epsilon.upper)
    }

    /// Refuses a task that would exceed the owner's bound. Writes nothing.
    pub fn check(&self, bound: &Bound) -> Result<f64> {
        let total = self.after_paying(bound.delta)?;
        if total <= bound.epsilon {
            return Ok(total);
        }
        let others = match ledgers(self.home)?.iter().any(|path| *path != self.path()) {
            true => ", with what the owner's folder has spent before",
            false => "",
        };
        Err(Error::mistake(format!(
            "this {} would cost ε = {} at δ = {:e}{others}: more than --epsilon-at-most {}, so \
             nothing was sent",
            self.purpose.name(),
            rounded_up(total),
            bound.delta,
            bound.epsilon
        )))
    }

    /// Records the events of one row before any release. Events already recorded, by this call or
    /// an interrupted one, are not recorded again.
    pub fn pay(&self, bound: &Bound) -> Result<()> {
        self.check(bound)?;
        make_private(&self.home.task(self.hash))?;
        let mut ledger = Ledger::open_or_create(self.path(), self.terms())?;
        self.check_terms(&ledger)?;
        for (index, event) in self.events().into_iter().enumerate() {
            if ledger.entries() <= index as u64 {
                ledger.append(event, 1)?;
            }
        }
        Ok(())
    }

    /// Rejects a ledger created with another secret, or by a version with different ids: its rows
    /// would get fresh noise that the ledger does not cover.
    fn check_terms(&self, ledger: &Ledger) -> Result<()> {
        let (kept, terms) = (ledger.terms(), self.terms());
        if *kept == terms {
            return Ok(());
        }
        if kept.id == terms.id && !kept.assumptions.iter().any(|text| text == ROWS) {
            return Err(Error::mistake(format!(
                "{} was created by an earlier version with other release ids: the same rows would \
                 get fresh noise that no ledger entry covers. Nothing more is released under this \
                 task; ask the provider for a new one. What was spent stays counted",
                self.path().display()
            )));
        }
        Err(Error::mistake(format!(
            "{} was created with another secret.key or another task; restore the files of one \
             folder",
            self.path().display()
        )))
    }

    /// The guarantee of everything in the owner's folder.
    pub fn guarantee(&self, delta: f64) -> Result<Option<Guarantee>> {
        let ledgers = ledgers(self.home)?;
        let ledgers: Vec<Ledger> =
            ledgers.iter().map(Ledger::read).collect::<std::result::Result<_, _>>()?;
        if ledgers.is_empty() {
            return Ok(None);
        }
        let all: Vec<&Ledger> = ledgers.iter().collect();
        Ok(Some(Ledger::together(&all, delta)?))
    }
}

fn ledger_path(folder: &Path, purpose: Purpose) -> PathBuf {
    folder.join(format!("{}.jsonl", purpose.name()))
}

/// All ledgers in the folder.
fn ledgers(home: &Home) -> Result<Vec<PathBuf>> {
    let tasks = home.tasks();
    let mut paths = Vec::new();
    for entry in tasks.read_dir().map_err(Error::io(&tasks))? {
        let folder = entry.map_err(Error::io(&tasks))?.path();
        for purpose in [Purpose::Contribution, Purpose::Query] {
            let path = ledger_path(&folder, purpose);
            // If the head file has entries but the ledger is missing, the ledger was removed, and
            // reading it fails.
            if path.exists() || was_begun(&path) {
                paths.push(path);
            }
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether the head file states that the ledger had entries.
fn was_begun(path: &Path) -> bool {
    #[derive(serde::Deserialize)]
    struct Head {
        entries: u64,
    }
    let text = std::fs::read_to_string(path.with_extension("jsonl.head"));
    let head = text.ok().and_then(|text| serde_json::from_str::<Head>(&text).ok());
    head.is_some_and(|head| head.entries > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An earlier version derived ids from tokens, so the same rows would be released again under
    /// its ledger. Its releases still count, beside those of other tasks.
    #[test]
    fn a_ledger_of_an_earlier_version_takes_no_more_releases() {
        let folder = tempfile::tempdir().unwrap();
        let mut home = Home::open(&folder.path().join("owner")).unwrap();
        let (task, bound) = (crate::task::tests::task(), Bound { epsilon: 50.0, delta: 1e-5 });
        let purpose = Purpose::Contribution;
        let old = Budget::new(&home, &task, &[1; 32], purpose);
        let mut terms = old.terms();
        terms.assumptions[0] = "a text stands for one person; a text that was changed is another \
                                text"
            .to_owned();
        make_private(&home.task(&[1; 32])).unwrap();
        let mut ledger = Ledger::open_or_create(old.path(), terms).unwrap();
        old.events().into_iter().for_each(|event| ledger.append(event, 1).unwrap());
        drop(ledger);
        for refused in [old.check(&bound).map(drop), old.pay(&bound)] {
            let said = refused.unwrap_err().to_string();
            assert!(said.contains("earlier version"), "{said}");
        }
        let other = Budget::new(&home, &task, &[2; 32], purpose);
        let both = other.check(&bound).unwrap();
        assert!(both > task.epsilon_at(1e-5).unwrap() + 1.0, "{both}");
        other.pay(&bound).unwrap();
        // With another secret, the ledger does not match.
        home.secret = [8; 32];
        let said = Budget::new(&home, &task, &[2; 32], purpose).check(&bound).unwrap_err();
        assert!(said.to_string().contains("secret.key"), "{said}");
    }
}
