//! Predictions on perturbed queries by the latest model.

use super::app::App;
use super::contribute::{json_response, read_frame};
use super::problem::Problem;
use crate::error::{Error, Result};
use crate::frame::Kind;
use crate::task::{Task, TaskFolder};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use undertone::method::local::split::ProviderHalf;
use undertone::tensor::Device;

/// The current model: `current.json` in the folder of the task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Current {
    /// Folder of the model.
    pub model: PathBuf,
    /// Number of releases it was trained on.
    pub releases: u64,
    /// Number of owners of these releases.
    pub owners: u64,
    /// Accuracy on a public file, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Seconds since 1970.
    pub at: u64,
}

/// Makes a model the current one.
pub fn write_current(folder: &TaskFolder, current: &Current) -> Result<()> {
    Ok(undertone_run::write_json(&folder.current(), current)?)
}

/// The current model, loaded on first use and whenever it is replaced.
pub struct Predictor {
    path: PathBuf,
    loaded: Mutex<Option<Loaded>>,
}

struct Loaded {
    at: SystemTime,
    half: ProviderHalf,
}

impl Predictor {
    pub fn new(folder: &TaskFolder) -> Self {
        Self { path: folder.current(), loaded: Mutex::new(None) }
    }

    /// The current model, if one has been trained.
    pub fn current(&self) -> Option<Current> {
        read_current(&self.path).ok()
    }

    /// Logits of releases; `None` if no model has been trained.
    fn logits(&self, task: &Task, numbers: Vec<f32>) -> Result<Option<Vec<Vec<f32>>>> {
        let Ok(at) = std::fs::metadata(&self.path).and_then(|metadata| metadata.modified()) else {
            return Ok(None);
        };
        let mut loaded = match self.loaded.lock() {
            Ok(loaded) => loaded,
            Err(poisoned) => poisoned.into_inner(),
        };
        if loaded.as_ref().is_none_or(|loaded| loaded.at != at) {
            let model = read_current(&self.path)?.model;
            let (releases, epsilon) = (task.releases.clone(), task.label_epsilon);
            let half = ProviderHalf::load(&model, releases, epsilon, &Device::Cpu)?;
            if half.width() != task.width {
                return Err(Error::mistake("the current model belongs to another task"));
            }
            tracing::info!("a new model answers from now on");
            *loaded = Some(Loaded { at, half });
        }
        loaded.as_ref().map(|loaded| Ok(loaded.half.logits(numbers)?)).transpose()
    }
}

fn read_current(path: &Path) -> Result<Current> {
    let text = undertone_run::read_settings(path).map_err(Error::io(path))?;
    serde_json::from_str(&text)
        .map_err(|e| Error::mistake(format!("{} is damaged: {e}", path.display())))
}

/// `POST /v1/predict`
pub async fn predict(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> std::result::Result<Response<Body>, Problem> {
    app.owner(&headers).await?;
    let (frame, _) = read_frame(&app, &headers, body, Kind::Query).await?;
    let ids: Vec<String> =
        frame.releases.iter().map(|release| crate::hex::hex(&release.id)).collect();
    let numbers: Vec<f32> =
        frame.releases.into_iter().flat_map(|release| release.numbers).collect();
    let of = app.clone();
    let asked =
        tokio::task::spawn_blocking(move || of.predictor.logits(&of.folder.task, numbers)).await;
    let logits = match asked {
        Ok(Ok(Some(logits))) => logits,
        Ok(Ok(None)) => {
            let detail = "the provider has not trained a model yet";
            return Err(Problem::new(StatusCode::NOT_FOUND, "no-model", detail));
        }
        Ok(Err(e)) => {
            let why = e.to_string();
            tracing::error!(why = %undertone_run::printable_line(&why), "no prediction");
            return Err(Problem::busy("the provider's model cannot be used now"));
        }
        Err(_) => return Err(Problem::busy("the provider's model cannot be used now")),
    };
    app.measured.predicted(logits.len() as u64);
    let labels = &app.folder.task.labels;
    let said = |(id, logits): (String, Vec<f32>)| {
        let probabilities = probabilities(&logits);
        let best = undertone::evaluate::likeliest(&logits);
        json!({ "id": id, "label": labels.get(best), "probabilities": probabilities })
    };
    let predictions: Vec<_> = ids.into_iter().zip(logits).map(said).collect();
    Ok(json_response(&json!({ "predictions": predictions })))
}

fn probabilities(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|l| f64::from(l - largest).exp()).collect();
    let total: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / total).collect()
}
