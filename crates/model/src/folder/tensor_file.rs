//! Writes safetensors files, one tensor at a time.

use super::numbers::Numbers;
use crate::{Error, Parameter, Result};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use undertone_settings::write_atomically;

/// A tensor to be written.
pub(super) struct Written<'a> {
    pub name: String,
    pub parameter: &'a Parameter,
    pub numbers: Numbers,
}

impl Written<'_> {
    /// Size in the file, in bytes.
    pub fn bytes(&self) -> usize {
        self.parameter.len() * self.numbers.size()
    }

    fn dtype(&self) -> Dtype {
        match self.numbers {
            Numbers::F32 => Dtype::F32,
            Numbers::F16 => Dtype::F16,
            Numbers::Bf16 => Dtype::BF16,
        }
    }
}

/// Writes tensors as one file, widest types first so that each is aligned to its element size.
pub(super) fn write(path: &Path, mut tensors: Vec<Written>) -> Result<()> {
    let wrong = |problem: String| Error::Weights { path: path.to_owned(), problem };
    tensors.sort_by(|left, right| {
        right.dtype().cmp(&left.dtype()).then_with(|| left.name.cmp(&right.name))
    });
    let mut end = 0;
    let infos = tensors.iter().map(|tensor| {
        let start = end;
        end += tensor.bytes();
        let (dtype, shape) = (tensor.dtype(), tensor.parameter.shape.clone());
        (tensor.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    });
    let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let header = Metadata::new(Some(about), infos.collect())
        .map_err(|e| wrong(format!("cannot be written: {e}")))?;
    let mut header =
        serde_json::to_vec(&header).map_err(|e| wrong(format!("cannot be written: {e}")))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    // Carries failures other than I/O errors out of the writer.
    let mut failure = None;
    let written = write_atomically(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for tensor in &tensors {
            let values = tensor.parameter.value.to_vec().map_err(|e| {
                failure = Some(Error::from(e));
                std::io::Error::other("it cannot be read from its device")
            })?;
            let largest = tensor.numbers.largest();
            if let Some(value) = values.iter().find(|value| value.abs() > largest) {
                let problem = format!(
                    "tensor {} has the number {value}, which {} cannot hold",
                    tensor.name,
                    tensor.numbers.name()
                );
                failure = Some(wrong(problem.clone()));
                return Err(std::io::Error::other(problem));
            }
            tensor.numbers.write(&values, out)?;
        }
        Ok(())
    });
    match failure {
        Some(failure) => Err(failure),
        None => Ok(written?),
    }
}
