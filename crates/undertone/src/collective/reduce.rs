//! Sums over the ranks, added in rank order with every backend.

use super::{Error, Ranks, Result};

impl Ranks {
    /// The sum over all ranks of this rank's part of the values, which consist of one part of equal
    /// length per rank. Each rank sends and receives (N − 1)/N times the values.
    pub fn reduce_scatter(&self, values: &[f32]) -> Result<Vec<f32>> {
        if self.are_one() {
            return Ok(values.to_vec());
        }
        let each = values.len() / self.size();
        if each * self.size() != values.len() {
            return Err(Error::out_of_step());
        }
        let part = |rank: usize| bytemuck::cast_slice(&values[rank * each..(rank + 1) * each]);
        let parts: Vec<&[u8]> = (0..self.size()).map(part).collect();
        let mut received = self.exchange(&parts)?.into_iter();
        let mut sum = vec![0.0; each];
        write(&mut sum, &received.next().unwrap_or_default())?;
        for addends in received {
            add(&mut sum, &addends)?;
        }
        Ok(sum)
    }

    /// The concatenated values of all ranks, which must have equal lengths. Each rank sends and
    /// receives N − 1 times the values.
    pub fn all_gather_f32(&self, own: &[f32]) -> Result<Vec<f32>> {
        if self.are_one() {
            return Ok(own.to_vec());
        }
        let mut all = vec![0.0; own.len() * self.size()];
        let received = self.all_gather(bytemuck::cast_slice(own))?;
        for (rank, bytes) in received.iter().enumerate() {
            write(&mut all[rank * own.len()..(rank + 1) * own.len()], bytes)?;
        }
        Ok(all)
    }

    /// Replaces the values by their sum over all ranks.
    ///
    /// Each rank adds up one part and sends it to all ranks: it sends and receives 2 (N − 1)/N
    /// times the values, which is the minimum possible.
    pub fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        if self.are_one() {
            return Ok(());
        }
        let mut padded = values.to_vec();
        padded.resize(values.len().next_multiple_of(self.size()), 0.0);
        let sum = self.reduce_scatter(&padded)?;
        drop(padded);
        values.copy_from_slice(&self.all_gather_f32(&sum)?[..values.len()]);
        Ok(())
    }

    /// The bytes given by each rank, on rank 0; other ranks get nothing.
    pub fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut outgoing: Vec<&[u8]> = vec![&[]; self.size()];
        outgoing[0] = own;
        let received = self.exchange(&outgoing)?;
        Ok(if self.is_first() { received } else { Vec::new() })
    }
}

fn write(values: &mut [f32], bytes: &[u8]) -> Result<()> {
    each(values, bytes, |value, read| *value = read)
}

fn add(sum: &mut [f32], bytes: &[u8]) -> Result<()> {
    each(sum, bytes, |sum, addend| *sum += addend)
}

fn each(values: &mut [f32], bytes: &[u8], apply: impl Fn(&mut f32, f32)) -> Result<()> {
    if bytes.len() != 4 * values.len() {
        return Err(Error::out_of_step());
    }
    for (value, number) in values.iter_mut().zip(bytes.as_chunks().0) {
        apply(value, f32::from_ne_bytes(*number));
    }
    Ok(())
}
