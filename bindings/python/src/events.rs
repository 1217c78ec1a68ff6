//! Training events as Python dicts.

use crate::values::to_python;
use pyo3::prelude::*;
use serde_json::{Value, json};
use undertone::train::TrainingEvent;
use undertone_cli::before_training::{self, LoadedRun};

/// An event for callbacks. `Loaded` also carries the notes that the command line prints.
pub fn value(event: &TrainingEvent) -> Value {
    match event {
        &TrainingEvent::Loaded { plan, resolved, data, labels_were_found, parameters, planned } => {
            let run = LoadedRun { plan, resolved, data, labels_were_found, parameters, planned };
            let notes = before_training::notes(&run, None);
            json!({ "event": "loaded", "units": resolved.units, "notes": notes })
        }
        TrainingEvent::Warning { message } => json!({ "event": "warning", "message": message }),
        TrainingEvent::Sums { message } => json!({ "event": "note", "message": message }),
        TrainingEvent::Relevance { done, examples } => {
            preparation("relevance", *done as u64, *examples as u64)
        }
        TrainingEvent::PublicGradients { done, examples } => {
            preparation("public gradients", *done as u64, *examples as u64)
        }
        TrainingEvent::Adaptation { done, steps } => preparation("adaptation", *done, *steps),
        TrainingEvent::Ready { resolved, examples, parameters, done, steps, .. } => json!({
            "event": "begin",
            "step": done,
            "steps": steps,
            "examples": examples,
            "noise_multipliers": resolved.noise_multipliers,
            "trainable_parameters": parameters.trainable,
            "parameters": parameters.total,
        }),
        TrainingEvent::Step { record, throughput, epsilon, gpu_memory_bytes } => {
            let mut value = serde_json::to_value(record).unwrap_or_default();
            if let Value::Object(fields) = &mut value {
                fields.insert("event".into(), json!("step"));
                fields.insert("epsilon".into(), json!(epsilon.map(|spent| spent.epsilon)));
                fields.insert("gpu_memory_bytes".into(), json!(gpu_memory_bytes));
                fields.insert("examples_per_second".into(), json!(throughput.examples_per_second));
            }
            value
        }
    }
}

fn preparation(what: &str, done: u64, total: u64) -> Value {
    json!({ "event": "preparation", "what": what, "done": done, "total": total })
}

/// Calls a callback with an event.
pub fn call(py: Python, callback: &Py<PyAny>, event: &Value) -> PyResult<()> {
    callback.call1(py, (to_python(py, event)?,)).map(|_| ())
}
