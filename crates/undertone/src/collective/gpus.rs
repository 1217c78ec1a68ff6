//! Sums that stay on the GPUs: when ranks are connected by NCCL, and when they are not.
//!
//! The ranks compare their configurations before they use NCCL: it waits forever for a rank that
//! does not join, and rejects two ranks on one GPU. All ranks reach the same decision, which is
//! reported. Control messages, counts and the secret stay with the other backend.

use super::{Collective, Error, Ranks, Result};
use crate::tensor::{Device, Matrix, Nccl};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use undertone_run::NcclUse;

/// The configuration that a rank offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Offer {
    wanted: NcclUse,
    /// A unique identifier of its GPU; `None` if it computes on the CPU.
    gpu: Option<[u8; 16]>,
    /// Its NCCL version, or the reason why it has none.
    nccl: std::result::Result<String, String>,
}

/// How the ranks exchange their sums.
#[derive(Clone, Debug, PartialEq)]
enum Decision {
    /// The sums stay on the GPUs.
    Nccl,
    /// The sums go through the hosts, as expected, so there is nothing to report.
    Host,
    /// The sums go through the hosts, for this reason.
    HostBecause(String),
    /// NCCL was requested but cannot be used, for this reason.
    Refused(String),
}

/// The joint decision of all ranks, based on their offers.
fn decide(offers: &[Offer]) -> Decision {
    let any = |wanted| offers.iter().any(|offer| offer.wanted == wanted);
    let asked_for = any(NcclUse::On);
    if any(NcclUse::Off) {
        return match asked_for {
            true => Decision::Refused("the ranks have different values of it".to_owned()),
            false => Decision::Host,
        };
    }
    let on_cpu = offers.iter().position(|offer| offer.gpu.is_none());
    if !asked_for && (offers.len() == 1 || on_cpu.is_some()) {
        return Decision::Host;
    }
    let problem = on_cpu
        .map(|rank| format!("rank {rank} computes on the CPU"))
        .or_else(|| shared_gpu(offers))
        .or_else(|| unlike_libraries(offers));
    match problem {
        None => Decision::Nccl,
        Some(problem) if asked_for => Decision::Refused(problem),
        Some(problem) => Decision::HostBecause(problem),
    }
}

/// The first two ranks that share a GPU, which NCCL rejects.
fn shared_gpu(offers: &[Offer]) -> Option<String> {
    offers.iter().enumerate().find_map(|(rank, offer)| {
        let first = offers[..rank].iter().position(|other| other.gpu == offer.gpu)?;
        Some(format!("ranks {first} and {rank} share a GPU"))
    })
}

/// The first rank without NCCL, or with a different version from rank 0.
fn unlike_libraries(offers: &[Offer]) -> Option<String> {
    let mut first = None;
    for (rank, offer) in offers.iter().enumerate() {
        match (&offer.nccl, first) {
            (Err(why), _) if offers.len() == 1 => return Some(why.clone()),
            (Err(why), _) => return Some(format!("on rank {rank} {why}")),
            (Ok(version), None) => first = Some(version),
            (Ok(version), Some(first)) if version != first => {
                return Some(format!("rank 0 has NCCL {first}, and rank {rank} {version}"));
            }
            _ => {}
        }
    }
    None
}

/// The ranks' GPUs, connected by NCCL.
#[derive(Debug)]
pub struct Gpus {
    nccl: Nccl,
    /// Knows which ranks have ended.
    control: Arc<dyn Collective>,
}

impl Ranks {
    /// The same ranks, with their GPUs connected by NCCL if this is possible and requested. Also
    /// returns how sums are reduced, if there is something to report.
    pub fn with_gpus(mut self, wanted: NcclUse, device: &Device) -> Result<(Self, Option<String>)> {
        let gpu = match device {
            Device::Cpu => None,
            Device::Cuda(gpu) => Some(gpu.uuid().map_err(of_device)?),
        };
        let asks = gpu.is_some() && (wanted == NcclUse::On || !self.are_one());
        let nccl = match asks && wanted != NcclUse::Off {
            true => Nccl::version().map_err(|error| error.to_string()),
            false => Err(String::new()),
        };
        let damaged = |_| Error::out_of_step();
        let own = serde_json::to_vec(&Offer { wanted, gpu, nccl }).map_err(damaged)?;
        let offers: Result<Vec<Offer>> = (self.all_gather(&own)?.iter())
            .map(|bytes| serde_json::from_slice(bytes).map_err(damaged))
            .collect();
        match (decide(&offers?), device) {
            (Decision::Nccl, Device::Cuda(gpu)) => {
                let made = if self.is_first() { Nccl::unique_id() } else { Ok([0; 128]) };
                let id = self.broadcast(made.map_err(could_not_begin)?.to_vec())?;
                let id = id.as_slice().try_into().map_err(|_| Error::out_of_step())?;
                let control = self.control();
                let place = (self.rank(), self.size());
                let begun = Nccl::begin(*gpu, id, place, &|| control.check().is_err());
                let nccl = begun.map_err(|error| {
                    control.check().err().unwrap_or_else(|| could_not_begin(error))
                })?;
                let version = Nccl::version().map_err(of_device)?;
                self.set_gpus(Gpus { nccl, control });
                Ok((self, Some(format!("sums stay on the GPUs: NCCL {version} carries them"))))
            }
            (Decision::HostBecause(reason), _) => {
                Ok((self, Some(format!("sums go through the host: {reason}"))))
            }
            (Decision::Refused(reason), _) => Err(Error::Refused(format!(
                "compute.nccl is \"on\", but NCCL cannot be used: {reason}"
            ))),
            (Decision::Host | Decision::Nccl, _) => Ok((self, None)),
        }
    }
}

fn of_device(error: crate::tensor::Error) -> Error {
    Error::System(error.to_string())
}

fn could_not_begin(error: crate::tensor::Error) -> Error {
    Error::System(format!("{error}; set compute.nccl to \"off\" to send sums through the host"))
}

impl Gpus {
    /// Replaces each rank's matrices by their sums over all ranks, added in rank order:
    /// bit-identical to sums through the host.
    pub fn all_reduce(&self, matrices: &[Matrix]) -> Result<Vec<Matrix>> {
        let matrices = matrices.iter().map(on_gpu).collect::<Result<Vec<_>>>()?;
        let sums = self.naming_lost_rank(self.nccl.all_reduce(&matrices, &|| self.has_ended()))?;
        Ok(sums.into_iter().map(Matrix::Cuda).collect())
    }

    /// This rank's share of the rows of a matrix, the same number as for every other rank, summed
    /// over all ranks in rank order.
    pub fn reduce_scatter(&self, matrix: &Matrix) -> Result<Matrix> {
        let matrix = on_gpu(matrix)?;
        let sum = self.naming_lost_rank(self.nccl.reduce_scatter(&matrix, &|| self.has_ended()))?;
        Ok(Matrix::Cuda(sum))
    }

    /// The rows of all ranks, in rank order.
    pub fn all_gather(&self, own: &Matrix) -> Result<Matrix> {
        let own = on_gpu(own)?;
        Ok(Matrix::Cuda(self.naming_lost_rank(self.nccl.all_gather(&own, &|| self.has_ended()))?))
    }

    /// The matrix of rank 0; on other ranks, `own` only provides the shape.
    pub fn broadcast(&self, own: &Matrix) -> Result<Matrix> {
        let own = on_gpu(own)?;
        Ok(Matrix::Cuda(self.naming_lost_rank(self.nccl.broadcast(&own, &|| self.has_ended()))?))
    }

    fn has_ended(&self) -> bool {
        self.control.check().is_err()
    }

    /// Replaces an NCCL error by the name of the rank that has ended, if there is one.
    fn naming_lost_rank<T>(&self, result: crate::tensor::Result<T>) -> Result<T> {
        result.map_err(|error| self.control.check().err().unwrap_or_else(|| of_device(error)))
    }
}

fn on_gpu(matrix: &Matrix) -> Result<crate::tensor::CudaMatrix> {
    match matrix {
        Matrix::Cuda(matrix) => Ok(matrix.clone()),
        Matrix::Host(_) => Err(Error::System("a sum is not on the GPU".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(wanted: NcclUse, gpu: Option<u8>, nccl: std::result::Result<&str, &str>) -> Offer {
        let gpu = gpu.map(|number| [number; 16]);
        Offer { wanted, gpu, nccl: nccl.map(str::to_owned).map_err(str::to_owned) }
    }

    #[test]
    fn all_ranks_decide_by_one_rule_that_is_told() {
        use NcclUse::{Auto, Off, On};
        let new = Ok("2.30.7");
        let on = |gpus: &[Option<u8>], wanted| -> Decision {
            decide(&gpus.iter().map(|&gpu| offer(wanted, gpu, new)).collect::<Vec<_>>())
        };
        let because = |reason: &str| Decision::HostBecause(reason.to_owned());
        let refused = |reason: &str| Decision::Refused(reason.to_owned());
        assert_eq!(on(&[Some(1), Some(2), Some(3)], Auto), Decision::Nccl);
        assert_eq!(on(&[Some(1), Some(2)], Off), Decision::Host);
        // A single process has nothing to exchange, but can request NCCL.
        assert_eq!((on(&[Some(1)], Auto), on(&[Some(1)], On)), (Decision::Host, Decision::Nccl));
        let shared = "ranks 1 and 2 share a GPU";
        assert_eq!(on(&[Some(1), Some(2), Some(2)], Auto), because(shared));
        assert_eq!(on(&[Some(1), Some(2), Some(2)], On), refused(shared));
        assert_eq!(on(&[Some(1), None], Auto), Decision::Host);
        assert_eq!(on(&[Some(1), None], On), refused("rank 1 computes on the CPU"));
        assert_eq!(on(&[None], On), refused("rank 0 computes on the CPU"));
        let missing = [offer(Auto, Some(1), new), offer(Auto, Some(2), Err("NCCL was not found"))];
        assert_eq!(decide(&missing), because("on rank 1 NCCL was not found"));
        let older = [offer(Auto, Some(1), new), offer(Auto, Some(2), Ok("2.27.3"))];
        assert_eq!(decide(&older), because("rank 0 has NCCL 2.30.7, and rank 1 2.27.3"));
        let unlike = [offer(On, Some(1), new), offer(Off, Some(2), Err(""))];
        assert_eq!(decide(&unlike), refused("the ranks have different values of it"));
    }

    #[test]
    fn a_process_on_the_cpu_has_no_nccl() {
        let (ranks, note) = Ranks::alone().with_gpus(NcclUse::Auto, &Device::Cpu).unwrap();
        assert!(ranks.gpus().is_none() && note.is_none());
        let error = Ranks::alone().with_gpus(NcclUse::On, &Device::Cpu).unwrap_err();
        assert!(!error.is_of_system());
        assert!(error.to_string().contains("rank 0 computes on the CPU"), "{error}");
    }
}
