//! The processes (ranks) that train together: from flags, or from the variables that torchrun,
//! mpirun and Slurm set for each process that they start.

use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use undertone::collective::Ranks;
use undertone::collective::tcp::{Rendezvous, Tcp};

/// Several processes that train together
#[derive(Args)]
#[command(next_help_heading = "Several processes")]
pub struct RankArguments {
    /// Train with other processes, which find each other by this folder; all must see it
    #[arg(long, value_name = "DIR")]
    rendezvous: Option<PathBuf>,
    /// Index of this process, from 0 [default: as torchrun, mpirun or Slurm says]
    #[arg(long, value_name = "R", requires = "rendezvous")]
    rank: Option<usize>,
    /// Number of processes [default: as torchrun, mpirun or Slurm says]
    #[arg(long, value_name = "N", requires = "rendezvous")]
    ranks: Option<usize>,
    /// Address by which other machines reach this one [default: found]
    #[arg(long, value_name = "HOST", requires = "rendezvous")]
    address: Option<String>,
    /// How many seconds to wait for the other processes
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "rendezvous")]
    join_timeout: u64,
}

/// This process among those that train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub rank: usize,
    pub ranks: usize,
}

/// Who starts processes, and the variables in which it tells each its rank and their number.
const LAUNCHERS: [(&str, &str, &str); 4] = [
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpirun", "PMI_RANK", "PMI_SIZE"),
    // Not SLURM_NTASKS: a batch script has it too, and is one process.
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// What a launcher says to this process.
fn told(variable: &dyn Fn(&str) -> Option<String>) -> Option<(&'static str, Place)> {
    LAUNCHERS.iter().find_map(|(launcher, rank, ranks)| {
        let number = |name: &str| variable(name)?.trim().parse().ok();
        Some((*launcher, Place { rank: number(rank)?, ranks: number(ranks)? }))
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl RankArguments {
    /// The place of this process; none if it trains alone.
    pub fn place(&self) -> Outcome<Option<Place>> {
        self.place_by(&variable)
    }

    fn place_by(&self, variable: &dyn Fn(&str) -> Option<String>) -> Outcome<Option<Place>> {
        let told = told(variable);
        if self.rendezvous.is_none() {
            // Each of them would train on its own.
            let told = told.filter(|(_, place)| place.ranks > 1);
            if let Some((launcher, Place { rank, ranks })) = told {
                if launcher == "mpirun" && cfg!(feature = "mpi") {
                    return Ok(Some(Place { rank, ranks }));
                }
                return Err(Failure::arguments(format!(
                    "{launcher} has started this process as rank {rank} of {ranks}: name a folder \
                     that all of them see with --rendezvous, or start one process"
                )));
            }
            return Ok(None);
        }
        let told = told.map(|(_, place)| place);
        let place = match (self.rank, self.ranks, told) {
            (Some(rank), Some(ranks), _) => Place { rank, ranks },
            (None, None, Some(place)) => place,
            _ => {
                return Err(Failure::arguments(
                    "--rendezvous needs both --rank and --ranks, or neither under torchrun, \
                     mpirun or srun",
                ));
            }
        };
        if place.rank >= place.ranks {
            return Err(Failure::arguments(format!(
                "rank {} of {} is none: ranks are counted from 0",
                place.rank, place.ranks
            )));
        }
        Ok(Some(place))
    }

    /// Waits for the other processes.
    pub fn join(&self, place: Option<Place>) -> Outcome<Ranks> {
        let Some(Place { rank, ranks }) = place else { return Ok(Ranks::alone()) };
        let Some(folder) = &self.rendezvous else { return by_mpi() };
        // torchrun says where rank 0 is.
        let master = || variable("MASTER_ADDR").filter(|_| rank == 0);
        let rendezvous = Rendezvous {
            folder: folder.clone(),
            rank,
            ranks,
            address: self.address.clone().or_else(master),
            patience: Duration::from_secs(self.join_timeout),
        };
        Ok(Ranks::of(Tcp::join(&rendezvous)?))
    }
}

/// The ranks that mpirun has started.
fn by_mpi() -> Outcome<Ranks> {
    #[cfg(feature = "mpi")]
    return Ok(Ranks::of(undertone::collective::mpi::Mpi::join()?));
    #[cfg(not(feature = "mpi"))]
    Err(Failure::arguments("this build has no MPI; name a folder with --rendezvous"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(rank: Option<usize>, ranks: Option<usize>) -> RankArguments {
        let rendezvous = Some(PathBuf::from("job"));
        RankArguments { rendezvous, rank, ranks, address: None, join_timeout: 1 }
    }

    fn set<'a>(all: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| all.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn launchers_say_who_this_process_is() {
        let all = [
            [("RANK", "1"), ("WORLD_SIZE", "4")],
            [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")],
            [("PMI_RANK", "1"), ("PMI_SIZE", "4")],
            [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")],
        ];
        for variables in &all {
            let place = arguments(None, None).place_by(&set(variables)).unwrap();
            assert_eq!(place, Some(Place { rank: 1, ranks: 4 }));
            // Flags come first, and nobody trains alone by mistake.
            let place = arguments(Some(0), Some(2)).place_by(&set(variables)).unwrap();
            assert_eq!(place, Some(Place { rank: 0, ranks: 2 }));
            if cfg!(feature = "mpi") {
                continue;
            }
            let alone = RankArguments { rendezvous: None, ..arguments(None, None) };
            let told = alone.place_by(&set(variables)).unwrap_err().to_string();
            assert!(told.contains("--rendezvous"), "{told}");
        }
        // A batch script of Slurm is one process, and so is a step of one task.
        let alone = RankArguments { rendezvous: None, ..arguments(None, None) };
        let script = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert_eq!(alone.place_by(&set(&script)).unwrap(), None);
        let step = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(alone.place_by(&set(&step)).unwrap(), None);
    }

    #[test]
    fn half_a_place_is_none() {
        for (rank, ranks) in [(Some(0), None), (None, Some(2)), (None, None), (Some(2), Some(2))] {
            assert!(arguments(rank, ranks).place_by(&|_| None).is_err(), "{rank:?} {ranks:?}");
        }
    }
}
