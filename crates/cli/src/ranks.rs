//! Ranks of a distributed job, from flags or from the environment variables of torchrun, mpirun and
//! Slurm.

use crate::failure::{Failure, Outcome};
use crate::output;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use undertone::collective::tcp::{Rendezvous, Tcp};
use undertone::collective::{self, Ranks};
use undertone::train;

/// Flags of a distributed job.
#[derive(Args)]
#[command(next_help_heading = "Several processes")]
pub struct RankArguments {
    /// Shared folder through which the processes of a distributed job find each other
    #[arg(long, value_name = "DIR")]
    rendezvous: Option<PathBuf>,
    /// Rank of this process, counting from 0 [default: as set by torchrun, mpirun or srun]
    #[arg(long, value_name = "R", requires = "rendezvous")]
    rank: Option<usize>,
    /// Number of processes [default: as set by torchrun, mpirun or srun]
    #[arg(long, value_name = "N", requires = "rendezvous")]
    ranks: Option<usize>,
    /// Address at which other machines can reach this one [default: detected]
    #[arg(long, value_name = "HOST", requires = "rendezvous")]
    address: Option<String>,
    /// Seconds to wait for the other processes to join
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "rendezvous")]
    join_timeout: u64,
}

/// Rank of this process and number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub rank: usize,
    pub ranks: usize,
}

/// Launchers, with their environment variables for the rank and the number of ranks.
const LAUNCHERS: [(&str, &str, &str); 4] = [
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpirun", "PMI_RANK", "PMI_SIZE"),
    // Not SLURM_NTASKS, which is also set in a batch script, a single process.
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// The launcher of this process and its rank, from the environment.
fn launched(variable: &dyn Fn(&str) -> Option<String>) -> Option<(&'static str, Place)> {
    LAUNCHERS.iter().find_map(|(launcher, rank, ranks)| {
        let number = |name: &str| variable(name)?.trim().parse().ok();
        Some((*launcher, Place { rank: number(rank)?, ranks: number(ranks)? }))
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl RankArguments {
    /// Rank of this process; `None` without other processes.
    pub fn place(&self) -> Outcome<Option<Place>> {
        self.place_by(&variable)
    }

    fn place_by(&self, variable: &dyn Fn(&str) -> Option<String>) -> Outcome<Option<Place>> {
        let launched = launched(variable);
        if self.rendezvous.is_none() {
            // Otherwise, each process would do all the work on its own.
            let several = launched.filter(|(_, place)| place.ranks > 1);
            if let Some((launcher, Place { rank, ranks })) = several {
                if launcher == "mpirun" && cfg!(feature = "mpi") {
                    return Ok(Some(Place { rank, ranks }));
                }
                return Err(Failure::arguments(format!(
                    "{launcher} started this process as rank {rank} of {ranks}: pass a folder that \
                     all ranks can see with --rendezvous, or start a single process"
                )));
            }
            return Ok(None);
        }
        let launched = launched.map(|(_, place)| place);
        let place = match (self.rank, self.ranks, launched) {
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
                "rank {} of {} does not exist: ranks are numbered from 0",
                place.rank, place.ranks
            )));
        }
        Ok(Some(place))
    }

    /// Runs a task together with the other ranks. Only rank 0 prints; if one rank fails, all do.
    pub fn together(&self, task: impl FnOnce(&Ranks) -> Outcome) -> Outcome {
        let place = self.place()?;
        self.leave_speaking_to_rank_0(place);
        let ranks = self.join(place)?;
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let done = ranks.check_same(&command(words), "was started with other arguments");
        let done = done.map_err(Failure::from).and_then(|()| task(&ranks));
        match &done {
            // A violation may be known to rank 0 only.
            Ok(()) | Err(Failure::Violation(_)) => ranks.leave(),
            Err(Failure::Ranks(error) | Failure::Train(train::Error::Ranks(error))) => {
                ranks.abort(error);
            }
            Err(other) if other.is_of_system() => {
                ranks.abort(&collective::Error::System(other.to_string()));
            }
            Err(other) => ranks.abort(&collective::Error::Refused(other.to_string())),
        }
        done
    }

    /// Fails if there are several processes, for tasks that cannot be distributed.
    pub fn refuse(&self, why: &str) -> Outcome {
        match self.place()?.filter(|place| place.ranks > 1) {
            Some(_) => Err(Failure::arguments(why)),
            None => Ok(()),
        }
    }

    /// Silences all ranks but 0.
    pub fn leave_speaking_to_rank_0(&self, place: Option<Place>) {
        if place.is_some_and(|place| place.rank > 0) {
            output::hush();
        }
    }

    /// Waits for the other processes.
    pub fn join(&self, place: Option<Place>) -> Outcome<Ranks> {
        let Some(Place { rank, ranks }) = place else { return Ok(Ranks::alone()) };
        let Some(folder) = &self.rendezvous else { return by_mpi() };
        // torchrun sets the address of rank 0.
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

/// The command line without the arguments that differ between ranks.
fn command(arguments: impl Iterator<Item = String>) -> Vec<u8> {
    const OWN: [&str; 2] = ["--rank", "--address"];
    let mut asked = vec![env!("CARGO_PKG_VERSION").to_owned()];
    let mut arguments = arguments.skip(1);
    while let Some(argument) = arguments.next() {
        let is_own =
            |name: &str| argument.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        if OWN.contains(&argument.as_str()) {
            arguments.next();
        } else if !OWN.into_iter().any(is_own) {
            asked.push(argument);
        }
    }
    asked.join("\0").into_bytes()
}

/// Ranks started by mpirun.
fn by_mpi() -> Outcome<Ranks> {
    #[cfg(feature = "mpi")]
    return Ok(Ranks::of(undertone::collective::mpi::Mpi::join()?));
    #[cfg(not(feature = "mpi"))]
    Err(Failure::arguments("this build has no MPI support; pass a folder with --rendezvous"))
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
            // Flags take precedence, and no process runs alone by mistake.
            let place = arguments(Some(0), Some(2)).place_by(&set(variables)).unwrap();
            assert_eq!(place, Some(Place { rank: 0, ranks: 2 }));
            if cfg!(feature = "mpi") {
                continue;
            }
            let alone = RankArguments { rendezvous: None, ..arguments(None, None) };
            let message = alone.place_by(&set(variables)).unwrap_err().to_string();
            assert!(message.contains("--rendezvous"), "{message}");
        }
        // A Slurm batch script is a single process, and so is a step with one task.
        let alone = RankArguments { rendezvous: None, ..arguments(None, None) };
        let script = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert_eq!(alone.place_by(&set(&script)).unwrap(), None);
        let step = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(alone.place_by(&set(&step)).unwrap(), None);
    }

    #[test]
    fn a_command_is_compared_without_what_is_a_rank_s_own() {
        let of = |line: &str| command(line.split(' ').map(str::to_owned));
        let first = of("undertone eval --data a --rank 0 --ranks 2 --rendezvous job");
        let other =
            "/bin/undertone eval --data a --rank=1 --ranks 2 --address here --rendezvous job";
        assert_eq!(first, of(other));
        assert_ne!(first, of(&other.replace("--data a", "--data b")));
    }

    #[test]
    fn half_a_place_is_none() {
        for (rank, ranks) in [(Some(0), None), (None, Some(2)), (None, None), (Some(2), Some(2))] {
            assert!(arguments(rank, ranks).place_by(&|_| None).is_err(), "{rank:?} {ranks:?}");
        }
    }
}
