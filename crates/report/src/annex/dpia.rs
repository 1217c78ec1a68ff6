//! Paragraphs for a data protection impact assessment by GDPR Article 35(7).

use super::{Evidence, YOU, facts};
use crate::document::{Block, Section};
use crate::error::Result;
use crate::section::task_name;
use crate::settings::base_model;
use crate::words;

pub fn section(evidence: &Evidence, level: u8) -> Result<Section> {
    let summary = &evidence.run.summary;
    let plan = &summary.plan;
    let covers = match &evidence.budget {
        Some((account, _)) => account.set.covers.clone(),
        None => YOU.to_owned(),
    };
    let approver = match &evidence.budget {
        Some((account, _)) => format!("{}, as the register says", account.set.approver),
        None => YOU.to_owned(),
    };
    let operations = format!(
        "{} is fine-tuned on {} for {}. Each step draws a random sample, bounds the influence of \
         each privacy unit ({}), and adds noise before anything leaves the step.",
        base_model(plan),
        plan.data.train.display(),
        task_name(plan.data.task).to_lowercase(),
        words::unit(evidence.unit())
    );
    let operations = match evidence.guarantee {
        Some(_) => operations,
        None => format!(
            "{} is fine-tuned on {} for {}, without a guarantee.",
            base_model(plan),
            plan.data.train.display(),
            task_name(plan.data.task).to_lowercase()
        ),
    };
    let measures = match evidence.guarantee {
        Some(guarantee) => format!("{guarantee}. A ledger records each release before it is made."),
        None => "No differential privacy.".to_owned(),
    };
    let total = evidence.total()?;
    let total = total.unwrap_or_else(|| "no register at hand".to_owned());
    Ok(Section::new(level, "Annex: GDPR, data protection impact assessment")
        .paragraph(
            "Source: Regulation (EU) 2016/679, Article 35(7), points (a) to (d). A draft of those \
             parts that follow from the run. The controller completes and answers for it.",
        )
        .with(facts(vec![
            ("(a) Operations", operations),
            ("(a) Purposes, legitimate interest", YOU.to_owned()),
            ("People concerned", covers),
            ("(b) Necessity and proportionality", format!(
                "{YOU}; see what the model gains over the base model, and whether fewer data would do"
            )),
            ("(c) Risks to rights and freedoms", format!(
                "that the model reveals whose data were used, or what they say. Attacks: {}. Other \
                 risks: {YOU}",
                evidence.attacks()
            )),
            ("(d) Measures", measures),
            ("(d) Total of all uses", total),
            ("Approval of the budget", approver),
        ]))
        .paragraph("Remaining risks that no ε covers:")
        .with(Block::List(vec![
            "the raw data, backups and logs, which need access control;".to_owned(),
            "people with several units, whose loss is larger;".to_owned(),
            "wrong or unfair answers about people, in the data or not;".to_owned(),
            "requests for erasure: data that were used remain part of the training's past.".to_owned(),
        ])))
}
