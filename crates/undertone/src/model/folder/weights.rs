//! safetensors files, read tensor by tensor: nothing is held in memory twice, and every size in the
//! header is checked against the file's length.

use crate::model::{Error, Result};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Longest accepted header, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// The tensors of one or several safetensors files.
#[derive(Debug)]
pub struct Weights {
    folder: PathBuf,
    files: Vec<(PathBuf, File)>,
    tensors: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    start: u64,
    bytes: usize,
}

impl Weights {
    /// Opens `model.safetensors` of a folder, or the shards that `model.safetensors.index.json`
    /// lists.
    pub fn open(folder: &Path) -> Result<Self> {
        let single = folder.join("model.safetensors");
        if single.is_file() {
            return Self::open_files(folder, vec![single]);
        }
        let index = folder.join("model.safetensors.index.json");
        if index.is_file() {
            let files = files_of_index(&index)?.into_iter().map(|name| folder.join(name)).collect();
            return Self::open_files(folder, files);
        }
        for name in [
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
            "pytorch_model.pt",
            "model.pt",
            "model.bin",
        ] {
            let path = folder.join(name);
            if path.exists() {
                return Err(Error::Pickle { path });
            }
        }
        Err(Error::MissingFile {
            path: single,
            what_to_do: "give a folder with weights in the safetensors format".into(),
        })
    }

    /// Opens a single safetensors file.
    pub fn open_file(path: &Path) -> Result<Self> {
        Self::open_files(path.parent().unwrap_or(Path::new(".")), vec![path.to_owned()])
    }

    fn open_files(folder: &Path, paths: Vec<PathBuf>) -> Result<Self> {
        let mut weights =
            Self { folder: folder.to_owned(), files: Vec::new(), tensors: HashMap::new() };
        for path in paths {
            weights.add_file(path)?;
        }
        Ok(weights)
    }

    fn add_file(&mut self, path: PathBuf) -> Result<()> {
        let wrong = |problem: String| Error::Weights { path: path.clone(), problem };
        let failed = |source| Error::Io { path: path.clone(), source };
        let mut file = undertone_run::open_regular(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut prefix = [0; 8];
        file.read_exact(&mut prefix)
            .map_err(|_| wrong("is too short to be a safetensors file".into()))?;
        let header = u64::from_le_bytes(prefix);
        if header > LONGEST_HEADER || header.saturating_add(8) > length {
            return Err(wrong("is not a safetensors file, or was cut off".into()));
        }
        let mut buffer = vec![0; header as usize];
        file.read_exact(&mut buffer).map_err(failed)?;
        let metadata: Metadata = serde_json::from_slice(&buffer)
            .map_err(|e| wrong(format!("has a broken header ({e})")))?;
        let data_start = 8 + header;
        let index = self.files.len();
        let mut last_byte = data_start;
        for (name, info) in metadata.tensors() {
            let (from, to) = info.data_offsets;
            let end = data_start.checked_add(to as u64);
            match end {
                Some(end) if from <= to && end <= length => last_byte = last_byte.max(end),
                _ => return Err(wrong(format!("is cut off inside tensor {name}; fetch it again"))),
            }
            self.tensors.insert(
                name,
                Entry {
                    file: index,
                    dtype: info.dtype,
                    shape: info.shape.clone(),
                    start: data_start + from as u64,
                    bytes: to - from,
                },
            );
        }
        if last_byte != length {
            return Err(wrong(format!(
                "has {} bytes that belong to no tensor; fetch it again",
                length - last_byte
            )));
        }
        self.files.push((path, file));
        Ok(())
    }

    /// The names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor with this name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|entry| &entry.shape[..])
    }

    /// Folder of the weights files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads a tensor as f32. Infinity and NaN are errors, because they would silently spread to
    /// every result.
    pub fn read(&self, name: &str) -> Result<Vec<f32>> {
        let values = self.read_as_stored(name)?;
        if values.iter().all(|value| value.is_finite()) {
            return Ok(values);
        }
        let path = self.files[self.tensors[name].file].0.clone();
        Err(Error::Weights {
            path,
            problem: format!(
                "tensor {name} holds a number that is not finite; save or fetch it again"
            ),
        })
    }

    fn read_as_stored(&self, name: &str) -> Result<Vec<f32>> {
        let entry = self.tensors.get(name).ok_or_else(|| Error::MissingTensor {
            name: name.to_owned(),
            path: self.folder.clone(),
        })?;
        let (path, file) = &self.files[entry.file];
        let failed = |source| Error::Io { path: path.clone(), source };
        let mut file: &File = file;
        file.seek(SeekFrom::Start(entry.start)).map_err(failed)?;
        let count = entry.shape.iter().try_fold(1_usize, |n, d| n.checked_mul(*d));
        let size = match entry.dtype {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::BF16 => 2,
            other => {
                return Err(Error::Weights {
                    path: path.clone(),
                    problem: format!(
                        "tensor {name} is of type {other:?}; known are F32, F16 and BF16"
                    ),
                });
            }
        };
        let Some(count) = count.filter(|count| count.checked_mul(size) == Some(entry.bytes)) else {
            return Err(Error::Weights {
                path: path.clone(),
                problem: format!(
                    "tensor {name} has {} bytes, which is not its shape {:?}",
                    entry.bytes, entry.shape
                ),
            });
        };
        if entry.dtype == Dtype::F32 {
            let mut values = vec![0.0_f32; count];
            file.read_exact(bytemuck::cast_slice_mut(&mut values)).map_err(failed)?;
            if cfg!(target_endian = "big") {
                values.iter_mut().for_each(|v| *v = f32::from_bits(v.to_bits().swap_bytes()));
            }
            return Ok(values);
        }
        let mut bytes = vec![0; entry.bytes];
        file.read_exact(&mut bytes).map_err(failed)?;
        let pairs = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        Ok(match entry.dtype {
            Dtype::F16 => pairs.map(|bits| half::f16::from_bits(bits).to_f32()).collect(),
            _ => pairs.map(|bits| half::bf16::from_bits(bits).to_f32()).collect(),
        })
    }
}

/// The shard files that an index lists, each once; names that contain a path are errors.
pub(super) fn files_of_index(index: &Path) -> Result<Vec<String>> {
    let wrong =
        |problem: &str| Error::Config { path: index.to_owned(), problem: problem.to_owned() };
    let text = undertone_run::read_settings(index)
        .map_err(|source| Error::Io { path: index.to_owned(), source })?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| wrong(&format!("is not JSON: {e}")))?;
    let map = value["weight_map"].as_object().ok_or_else(|| wrong("has no weight_map"))?;
    let mut files: Vec<String> = Vec::new();
    for file in map.values() {
        let file = file.as_str().ok_or_else(|| wrong("weight_map must name files"))?;
        if file.contains(['/', '\\']) || file.starts_with('.') {
            return Err(wrong(&format!("names the file {file:?}, which is outside of the folder")));
        }
        if !files.iter().any(|known| known == file) {
            files.push(file.to_owned());
        }
    }
    Ok(files)
}
