//! Figures about synthetic rows, by who may see them: the public ones are in
//! `synthetic/evaluation.json`, the others in `private/evaluation.json`.

use crate::folder::RunPaths;
use crate::{Error, Result, read_settings, write_json};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Who may see a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// Everybody: it was computed from synthetic and public data.
    Public,
    /// Those who may see the private data.
    Private,
}

impl Audience {
    /// The audience of a figure that was computed from both.
    pub fn and(self, other: Self) -> Self {
        self.max(other)
    }
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// The data that it describes, in words.
    pub of: String,
    /// Who may see it.
    pub seen_by: Audience,
}

impl Figure {
    /// A figure for an audience.
    pub fn new(name: &str, value: f64, of: &str, seen_by: Audience) -> Self {
        Self { name: name.to_owned(), value, of: of.to_owned(), seen_by }
    }
}

/// The figures about the synthetic rows of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// The figures, of all audiences.
    pub figures: Vec<Figure>,
    /// What public figures assume, such as that the test file is public.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<String>,
}

impl Evaluation {
    /// Writes public figures beside the synthetic rows, and private ones under `private/`.
    pub fn write(&self, run: &RunPaths) -> Result<()> {
        let of = |audience: Audience, assumptions: Vec<String>| Self {
            figures: (self.figures.iter())
                .filter(|figure| figure.seen_by == audience)
                .cloned()
                .collect(),
            assumptions,
        };
        let private = run.private();
        std::fs::create_dir_all(&private).map_err(Error::io(&private))?;
        write_json(&run.private_evaluation(), &of(Audience::Private, Vec::new()))?;
        let public = of(Audience::Public, self.assumptions.clone());
        write_json(&run.synthetic().evaluation(), &public)
    }

    /// Reads all figures of a run; none if its rows were not evaluated.
    pub fn read(run: &RunPaths) -> Result<Self> {
        let read = |path: &Path, audience: Audience| -> Result<Self> {
            if !path.exists() {
                return Ok(Self::default());
            }
            let text = read_settings(path).map_err(Error::io(path))?;
            let damaged = |e| Error::folder(path, format!("is not a list of figures: {e}"));
            let file: Self = serde_json::from_str(&text).map_err(damaged)?;
            match file.figures.iter().all(|figure| figure.seen_by == audience) {
                true => Ok(file),
                false => {
                    Err(Error::folder(path, "has figures of another audience; evaluate again"))
                }
            }
        };
        let mut all = read(&run.synthetic().evaluation(), Audience::Public)?;
        all.figures.extend(read(&run.private_evaluation(), Audience::Private)?.figures);
        Ok(all)
    }
}
