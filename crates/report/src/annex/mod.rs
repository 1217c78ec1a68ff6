//! Annexes of a report for reviewers: what a run, its ledger, audits and budget show about the
//! points that a guideline raises, and what the organization must show itself.
//!
//! Each point has one of four standings. "Holds" is only said of what the ledger or the program
//! ensures; what depends on people, contracts or machines is always "you must show". Sources are
//! named with those sections only that are cited with certainty; points are in our words, and
//! nothing is legal advice.

mod ai_act;
mod dpia;
mod edpb;
mod nist;

use crate::document::{Block, Section, Table};
use crate::error::Result;
use crate::folder::Run;
use crate::words;
use undertone_accounting::{Guarantee, Unit, rounded_up};
use undertone_register::{Account, Booking, Register};

/// A guideline or law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annex {
    /// NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees.
    Nist800226,
    /// EDPB Opinion 28/2024 on AI models.
    Edpb282024,
    /// Regulation (EU) 2024/1689, Annex XI.
    EuAiAct,
    /// A data protection impact assessment, GDPR Article 35.
    GdprDpia,
}

/// What is known about a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Holds,
    Fails,
    DoesNotApply,
    YouMustShow,
}

impl Standing {
    fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "does not hold",
            Self::DoesNotApply => "does not apply",
            Self::YouMustShow => "you must show",
        }
    }

    fn holds_if(condition: bool) -> Self {
        if condition { Self::Holds } else { Self::Fails }
    }
}

/// A point of a guideline.
struct Point {
    what: &'static str,
    standing: Standing,
    why: String,
}

fn point(what: &'static str, standing: Standing, why: impl Into<String>) -> Point {
    Point { what, standing, why: why.into() }
}

fn points(title: &str, all: Vec<Point>) -> Block {
    let rows = all
        .into_iter()
        .map(|point| vec![point.what.to_owned(), point.standing.words().to_owned(), point.why])
        .collect();
    Block::Table(Table::new(title, &["point", "standing", "evidence, or what is missing"], rows))
}

fn facts(all: Vec<(&str, String)>) -> Block {
    Block::Facts(all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// What the annexes are filled from.
struct Evidence<'a> {
    run: &'a Run,
    /// The guarantee, if there is one.
    guarantee: Option<&'a Guarantee>,
    /// The budget that paid for the run, if its register is at hand.
    budget: Option<(Account, Booking)>,
    /// Whether the report is for others, and leaves out attacks.
    public: bool,
}

const YOU: &str = "for you to fill in";

impl Evidence<'_> {
    fn epsilon(&self) -> String {
        match self.guarantee {
            Some(guarantee) => {
                let epsilon = rounded_up(guarantee.epsilon.upper);
                format!("ε ≤ {epsilon} at δ = {}", words::small(guarantee.delta))
            }
            None => "no guarantee".to_owned(),
        }
    }

    fn unit(&self) -> Unit {
        match self.run.summary.plan.data.author {
            Some(_) => Unit::User,
            None => Unit::Example,
        }
    }

    /// The total of all registered runs on the data set.
    fn total(&self) -> Result<Option<String>> {
        let Some((account, _)) = &self.budget else { return Ok(None) };
        let total = account.epsilon_of(&account.committed())?.upper;
        Ok(Some(format!(
            "ε ≤ {}, of a cap of {}, for all registered runs on {}",
            rounded_up(total),
            account.cap,
            account.set.name
        )))
    }

    /// What attacks found, in one sentence.
    fn attacks(&self) -> String {
        let audit = &self.run.audit;
        if self.public {
            return "attack results depend on the private data and are left out of this public \
                    report"
                .to_owned();
        }
        let mut results = Vec::new();
        if let Some(best) =
            audit.membership.iter().max_by(|a, b| a.auc.estimate.total_cmp(&b.auc.estimate))
        {
            results.push(format!(
                "membership inference: AUC {:.3} for the best attack ({}), where 0.5 is guessing",
                best.auc.estimate, best.attack
            ));
        }
        if let Some(one_run) = &audit.one_run {
            results.push(format!(
                "canaries: ε is at least {:.3} with {:.0} % confidence",
                one_run.found.epsilon_lower,
                100.0 * one_run.found.confidence
            ));
        }
        let others = [
            ("planted secrets", !audit.exposure.is_empty()),
            ("secrets of the texts", !audit.found_exposure.is_empty()),
            ("generated private entities", !audit.extraction.is_empty()),
            ("masked private entities", !audit.reconstruction.is_empty()),
        ];
        let tried: Vec<&str> =
            others.iter().filter(|(_, has)| *has).map(|(what, _)| *what).collect();
        if !tried.is_empty() {
            results.push(format!("also tried, see above: {}", tried.join(", ")));
        }
        match results.is_empty() {
            true => "no attack was run".to_owned(),
            false => results.join("; "),
        }
    }
}

/// The sections of some annexes about a run.
pub fn sections(run: &Run, annexes: &[Annex], public: bool, level: u8) -> Result<Vec<Section>> {
    let guarantee = run.guarantee().filter(|_| run.no_guarantee().is_none());
    let evidence = Evidence { run, guarantee, budget: budget(run), public };
    let mut all = Vec::new();
    for annex in annexes {
        all.push(match annex {
            Annex::Nist800226 => nist::section(&evidence, level)?,
            Annex::Edpb282024 => edpb::section(&evidence, level)?,
            Annex::EuAiAct => ai_act::section(&evidence, level),
            Annex::GdprDpia => dpia::section(&evidence, level)?,
        });
    }
    if !annexes.is_empty() {
        all.push(checklist(&evidence, level));
    }
    Ok(all)
}

/// The budget that the run names, if its register is at hand, whole, and has the reservation.
fn budget(run: &Run) -> Option<(Account, Booking)> {
    let named = run.summary.resolved.registered.as_ref()?;
    let state = Register::open(&named.file).ok()?.state().ok()?;
    let (account, booking) = state.booking(&named.reservation)?;
    let same = state.id == named.register && booking.hash == named.hash;
    same.then(|| (account.clone(), booking.clone()))
}

/// What a reviewer can verify without trusting whoever trained.
fn checklist(evidence: &Evidence, level: u8) -> Section {
    let run = evidence.run;
    let mut all = vec![
        "Compute ε again from the ledger, without the data: undertone budget ledger RUN."
            .to_owned(),
        "Ask for a certificate (undertone budget certify), and check it with the independent \
         checker, which shares no code with the program."
            .to_owned(),
        "Check that weights, card, ledger and this report belong together: undertone verify RUN \
         --key KEY."
            .to_owned(),
        "Read the assumptions of the guarantee, and ask who checked each of them.".to_owned(),
        "Repeat an attack with the seed that audit.json has, with whoever holds the data."
            .to_owned(),
    ];
    match &run.summary.resolved.registered {
        Some(named) => all.push(format!(
            "Check the register: undertone register verify FILE --run RUN. The run's line there \
             has the hash {}.",
            named.hash
        )),
        None => all.push(
            "The run names no register: ask for a list of every other use of the data.".to_owned(),
        ),
    }
    if let Some(hash) = &run.summary.ledger_hash {
        all.push(format!("Note the hash of the ledger for the next review: {hash}."));
    }
    Section::new(level, "Reviewer's checklist").with(Block::List(all))
}
