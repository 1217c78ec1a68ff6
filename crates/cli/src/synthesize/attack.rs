//! The attack of somebody who has nothing but the synthetic rows: a model is trained on them, and a
//! training row is expected to have a lower loss, relative to the pretrained model, than a row that
//! was not trained on.

use super::evaluation::Evaluated;
use super::scratch;
use crate::audit::run_folder::{AuditedRun, losses};
use crate::failure::{Failure, Outcome};
use crate::source::{key_of_model, quoted, quoted_path, resolve};
use crate::use_model::Loaded;
use std::path::{Path, PathBuf};
use undertone::audit::membership::{by_reference, judge};
use undertone::data::Example;
use undertone::model::TaskHead;
use undertone::synthesize::evaluate::{Audience, Figure};
use undertone_run::{RunPaths, WrittenRun};

/// Most rows of each file that are attacked.
const ROWS: usize = 2000;

/// Folder of the attacker's run, removed afterward.
pub fn folder(run: &RunPaths) -> PathBuf {
    run.private().join("attack")
}

/// The area under the attack's ROC curve: 0.5 for guessing.
pub fn by_text(of: &Evaluated, test: &Path) -> Outcome<Figure> {
    let (data, model) = (&of.subject.data, &of.subject.model);
    let synthetic = of.run.synthetic().data(of.facts.data_format);
    let changes = vec![
        format!("model.{}={}", key_of_model(model), quoted(model)),
        "data.task=completion".to_owned(),
        format!("data.prompt={}", quoted(&data.prompt)),
        format!("data.completion={}", quoted(&data.completion)),
        format!("data.max_tokens={}", data.max_tokens),
        format!("data.train={}", quoted_path(&synthetic)),
        "privacy.method=none".to_owned(),
    ];
    let attacker = resolve(&WrittenRun::parse("", &changes)?, None, of.device)?.plan;
    let folder = folder(of.run);
    scratch::within(&folder, || {
        scratch::train(attacker, &folder, of.device, of.stop)?;
        let run = AuditedRun::open(&folder)?;
        // The examples that steps may sample. Private prediction has no plan: it uses all rows.
        let members = match of.run.is_finished() {
            true => AuditedRun::open(of.run.folder())?.members(None)?,
            false => run.members(Some(&data.train))?,
        };
        let members = members.for_evaluation().into_owned();
        let others = run.non_members(Some(test))?;
        let others = others.map(|(others, _)| others.for_evaluation().into_owned());
        let others = others.unwrap_or_default();
        if members.is_empty() || others.is_empty() {
            return Err(Failure::arguments(
                "--attack needs training rows and test rows with texts",
            ));
        }
        let head = Some(TaskHead::CausalLanguageModel);
        let trained = Loaded::of_run(&folder, of.device, head)?.model;
        let pretrained = Loaded::open(model, None, of.device, head)?.model;
        let scores = |examples: &[Example]| -> Outcome<Vec<f64>> {
            let step = examples.len().div_ceil(ROWS).max(1);
            let some: Vec<Example> = examples.iter().step_by(step).cloned().collect();
            let of_model = |model| losses(run.ranks(), model, &some, None);
            Ok(by_reference(&of_model(&trained)?, &of_model(&pretrained)?))
        };
        let found = judge("text", &scores(&members)?, &scores(&others)?, 0.95, 1);
        let name = "membership inference from synthetic rows, AUC";
        Ok(Figure::new(name, found.auc.estimate, "training and test rows", Audience::Private))
    })
}
