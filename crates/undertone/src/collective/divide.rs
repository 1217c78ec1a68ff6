//! Work divided among ranks: each item is computed by one rank, and all ranks get all results.

use super::{Error, Ranks, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Ranks {
    /// Computes `count` items, each on one rank in the same way as in a single process, and sends
    /// all results to all ranks in order. `each` is called with the indices of this rank's items.
    ///
    /// Numbers are transferred exactly; a non-finite number must be transferred by its bits.
    pub fn divided<T, E>(
        &self,
        count: usize,
        each: impl FnMut(usize) -> std::result::Result<T, E>,
    ) -> std::result::Result<Vec<T>, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        if self.are_one() {
            return (0..count).map(each).collect();
        }
        let own: std::result::Result<Vec<T>, E> =
            (self.rank()..count).step_by(self.size()).map(each).collect();
        let bytes = serde_json::to_vec(&own?).map_err(|_| Error::out_of_step())?;
        let mut parts = Vec::with_capacity(self.size());
        for bytes in self.all_gather(&bytes)? {
            let part: Vec<T> = serde_json::from_slice(&bytes).map_err(|_| Error::out_of_step())?;
            parts.push(part.into_iter());
        }
        let taken: Result<Vec<T>> = (0..count)
            .map(|i| parts[i % self.size()].next().ok_or_else(Error::out_of_step))
            .collect();
        match parts.iter().all(|part| part.len() == 0) {
            true => Ok(taken?),
            false => Err(Error::out_of_step().into()),
        }
    }

    /// Rejects ranks whose bytes differ from those of rank 0.
    pub fn check_same(&self, own: &[u8], what: &str) -> Result<()> {
        if self.are_one() {
            return Ok(());
        }
        let all = self.all_gather(own)?;
        match all.iter().position(|part| *part != all[0]) {
            None => Ok(()),
            Some(rank) => Err(Error::Refused(format!(
                "rank {rank} {what} than rank 0: start all ranks with the same program, arguments \
                 and files"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_computes_everything_in_order() {
        let alone = Ranks::alone();
        let results: Result<Vec<usize>> = alone.divided(4, |i| Ok(10 * i));
        assert_eq!(results.unwrap(), [0, 10, 20, 30]);
        alone.check_same(b"this", "has another thing").unwrap();
    }
}
