//! The sanitizer's files, `sanitizer.json` and `sanitizer.safetensors`.

use super::attach::{SanitizerConfig, attach, set};
use crate::folder::{Weights, save_tensors};
use crate::{Error, Model, Result};
use std::path::Path;

/// Saves a model's sanitizer into a folder, next to its weights or adapter.
pub fn save_sanitizer(model: &Model, config: &SanitizerConfig, folder: &Path) -> Result<()> {
    let own = model.parameters.iter().map(|(_, p)| p).filter(|p| p.name.starts_with("sanitizer."));
    save_tensors(&folder.join("sanitizer.safetensors"), own.map(|p| (p.name.clone(), p)))?;
    Ok(undertone_settings::write_json(&folder.join("sanitizer.json"), config)?)
}

/// Reads the configuration of a folder's sanitizer, if there is one.
pub fn read_config(folder: &Path) -> Result<Option<SanitizerConfig>> {
    let path = folder.join("sanitizer.json");
    let text = match undertone_settings::read_settings(&path) {
        Ok(text) => text,
        Err(e)
            if matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(source) => return Err(Error::Io { path, source }),
    };
    let wrong = |problem: String| Error::Config { path: path.clone(), problem };
    let config: SanitizerConfig = serde_json::from_str(&text)
        .map_err(|e| wrong(format!("is not a sanitizer configuration: {e}")))?;
    let above_zero = |x: &f32| x.is_finite() && *x > 0.0;
    let sizes = std::iter::once(&config.norm)
        .chain(&config.squash)
        .chain(config.direction.iter().flatten());
    let std_is_valid = config.noise_std.is_finite() && config.noise_std >= 0.0;
    if !(std_is_valid && sizes.into_iter().all(above_zero)) {
        return Err(wrong(
            "norm, squash and direction must be above 0, and deviation at least 0".into(),
        ));
    }
    Ok(Some(config))
}

/// Attaches a folder's sanitizer to a model, if there is one.
pub fn load_sanitizer(model: &mut Model, folder: &Path) -> Result<Option<SanitizerConfig>> {
    let Some(config) = read_config(folder)? else { return Ok(None) };
    attach(model, &config)?;
    let weights = Weights::open_file(&folder.join("sanitizer.safetensors"))?;
    let own = model.parameters.iter().filter(|(_, p)| p.name.starts_with("sanitizer."));
    let own: Vec<_> = own.map(|(id, p)| (id, p.name.clone(), p.shape.clone())).collect();
    for (id, name, shape) in own {
        let stored = weights.shape(&name).unwrap_or_default();
        if stored != shape {
            return Err(Error::Shape { name, expected: shape, found: stored.to_vec() });
        }
        set(model, id, weights.read(&name)?)?;
    }
    Ok(Some(config))
}
