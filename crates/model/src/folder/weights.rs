//! Reads safetensors files tensor by tensor: nothing is held in memory twice, and every size in the
//! header is checked against the file's length.
//!
//! Files are read rather than memory-mapped: truncating a mapped file while it is being read would
//! kill the process.

use super::index::{INDEX, Index};
use super::numbers::Numbers;
use crate::{Error, Result};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Maximum header length, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// The tensors of one or more safetensors files.
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
    /// Opens `model.safetensors` in a folder, or the shards listed in
    /// `model.safetensors.index.json`.
    pub fn open(folder: &Path) -> Result<Self> {
        let single = folder.join("model.safetensors");
        if single.is_file() {
            return Self::open_file(&single);
        }
        let index = folder.join(INDEX);
        if index.is_file() {
            return Self::open_shards(folder, &index);
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
        let mut weights = Self::none(path.parent().unwrap_or(Path::new(".")));
        weights.add_file(path.to_owned())?;
        Ok(weights)
    }

    fn none(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), files: Vec::new(), tensors: HashMap::new() }
    }

    fn open_shards(folder: &Path, index: &Path) -> Result<Self> {
        let listed = Index::read(index)?;
        let mut weights = Self::none(folder);
        for shard in listed.shards() {
            let path = folder.join(shard);
            if !path.exists() {
                return Err(Error::MissingFile {
                    path,
                    what_to_do: format!("{INDEX} lists it, so fetch it again"),
                });
            }
            weights.add_file(path)?;
        }
        for (tensor, shard) in &listed.files {
            let actual = weights.tensors.get(tensor).map(|entry| &weights.files[entry.file].0);
            if actual != Some(&folder.join(shard)) {
                return Err(Error::Config {
                    path: index.to_owned(),
                    problem: format!(
                        "says that {shard} has the tensor {tensor}, which it does not; fetch the \
                         folder again"
                    ),
                });
            }
        }
        Ok(weights)
    }

    fn add_file(&mut self, path: PathBuf) -> Result<()> {
        let wrong = |problem: String| Error::Weights { path: path.clone(), problem };
        let failed = |source| Error::Io { path: path.clone(), source };
        let mut file = undertone_settings::open_regular(&path).map_err(failed)?;
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
        let mut tensors: Vec<_> = metadata.tensors().into_iter().collect();
        // Sorted, so that the first error reported does not depend on hash order.
        tensors.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        for (name, info) in tensors {
            let (from, to) = info.data_offsets;
            let end = data_start.checked_add(to as u64);
            match end {
                Some(end) if from <= to && end <= length => last_byte = last_byte.max(end),
                _ => return Err(wrong(format!("is cut off inside tensor {name}; fetch it again"))),
            }
            let entry = Entry {
                file: index,
                dtype: info.dtype,
                shape: info.shape.clone(),
                start: data_start + from as u64,
                bytes: to - from,
            };
            if let Some(earlier) = self.tensors.get(&name) {
                let earlier = self.files[earlier.file].0.display();
                return Err(wrong(format!("has the tensor {name}, and so has {earlier}")));
            }
            self.tensors.insert(name, entry);
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

    /// Names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|entry| &entry.shape[..])
    }

    /// Data type of a tensor in the file.
    pub fn dtype(&self, name: &str) -> Option<Dtype> {
        self.tensors.get(name).map(|entry| entry.dtype)
    }

    /// Total size of all tensors in the files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.tensors.values().map(|entry| entry.bytes as u64).sum()
    }

    /// Number of files.
    pub fn shards(&self) -> usize {
        self.files.len()
    }

    /// Folder of the weights files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fails unless the tensor can be read: its type is known, and its size matches its shape.
    pub fn check(&self, name: &str) -> Result<()> {
        self.entry(name).map(drop)
    }

    /// Reads a tensor as f32. Infinity and NaN are rejected, because they would silently spread to
    /// every result.
    pub fn read(&self, name: &str) -> Result<Vec<f32>> {
        let (entry, numbers) = self.entry(name)?;
        let values =
            self.at_start(entry, |file| numbers.read(file, entry.bytes / numbers.size()))?;
        match values.iter().all(|value| value.is_finite()) {
            true => Ok(values),
            false => Err(self.not_finite(entry, name)),
        }
    }

    /// Reads a bf16 tensor without conversion, as the upper halves of f32; `None` if it has another
    /// type.
    pub fn read_bf16(&self, name: &str) -> Result<Option<Vec<u16>>> {
        let (entry, numbers) = self.entry(name)?;
        if numbers != Numbers::Bf16 {
            return Ok(None);
        }
        let bits = self.at_start(entry, |file| Numbers::read_bits(file, entry.bytes / 2))?;
        // Infinity and NaN have all exponent bits set.
        match bits.iter().all(|bits| bits & 0x7f80 != 0x7f80) {
            true => Ok(Some(bits)),
            false => Err(self.not_finite(entry, name)),
        }
    }

    fn at_start<T>(
        &self,
        entry: &Entry,
        read: impl FnOnce(&File) -> std::io::Result<T>,
    ) -> Result<T> {
        let (path, file) = &self.files[entry.file];
        let mut file: &File = file;
        file.seek(SeekFrom::Start(entry.start))
            .and_then(|_| read(file))
            .map_err(|source| Error::Io { path: path.clone(), source })
    }

    fn not_finite(&self, entry: &Entry, name: &str) -> Error {
        Error::Weights {
            path: self.files[entry.file].0.clone(),
            problem: format!(
                "tensor {name} holds a number that is not finite; save or fetch it again"
            ),
        }
    }

    fn entry(&self, name: &str) -> Result<(&Entry, Numbers)> {
        let entry = self.tensors.get(name).ok_or_else(|| Error::MissingTensor {
            name: name.to_owned(),
            path: self.folder.clone(),
        })?;
        let wrong =
            |problem: String| Error::Weights { path: self.files[entry.file].0.clone(), problem };
        let numbers = Numbers::of(entry.dtype).ok_or_else(|| {
            wrong(format!(
                "tensor {name} is of type {:?}; known are F32, F16 and BF16",
                entry.dtype
            ))
        })?;
        let bytes = (entry.shape.iter()).try_fold(numbers.size(), |n, d| n.checked_mul(*d));
        if bytes != Some(entry.bytes) {
            return Err(wrong(format!(
                "tensor {name} has {} bytes, which is not its shape {:?}",
                entry.bytes, entry.shape
            )));
        }
        Ok((entry, numbers))
    }
}
