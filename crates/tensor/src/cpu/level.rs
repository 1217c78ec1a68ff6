//! The instruction set that the kernels use: the highest level that the processor supports, or a
//! lower one set by the environment variable `UNDERTONE_CPU`.
//!
//! | level | instructions | GEMM |
//! |---|---|---|
//! | `amx` | AMX tiles of bfloat16, and AVX-512 | AMX tiles, three bfloat16 parts of each `f32` |
//! | `avx512` | AVX-512 F, BW, CD, DQ and VL | blocks of 14 × 32 in registers |
//! | `avx2` | AVX2 and FMA | blocks of 6 × 16 in registers |
//! | `portable` | the target's baseline | the `gemm` crate |
//!
//! The variable only removes instructions; a level that the processor lacks is refused. It is read
//! once, so a process uses one level throughout; only [`CpuLevel::run`] computes at a lower one, on
//! its own threads. Every choice of instructions goes through this module: pulp's dispatch
//! ([`arch`]), the `gemm` crates' micro-kernels ([`super::gemm`]), and the kernels written with
//! intrinsics or assembly, which take a token ([`Avx2`], [`Avx512`], [`Amx`]) that only this module
//! creates.
//!
//! Not covered: the standard library and other crates detect features themselves (hashes, memory
//! copies, the C library's `fmaf`), and targets other than x86-64 have only the level `portable`,
//! which uses whatever the target offers (NEON on ARM).

use pulp::Arch;
use std::cell::Cell;
use std::sync::OnceLock;

/// The environment variable that caps the level.
const VARIABLE: &str = "UNDERTONE_CPU";

/// CPU instruction set; each level includes the ones below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum CpuLevel {
    /// Instructions that every CPU of the target supports
    Portable,
    /// AVX2 and FMA: vectors of 8 f32 values
    Avx2,
    /// AVX-512: vectors of 16 f32 values
    Avx512,
    /// AVX-512 and AMX tiles
    Amx,
}

/// A level that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuLevelError {
    /// `UNDERTONE_CPU` is not the name of a level.
    #[error("UNDERTONE_CPU is {0:?}, but must be amx, avx512, avx2 or portable")]
    Unknown(String),
    /// `UNDERTONE_CPU` names instructions that the processor lacks.
    #[error("UNDERTONE_CPU is {asked}, but this processor supports at most {found}",
        asked = .asked.name(), found = .found.name())]
    Lacking {
        /// The level named by the variable.
        asked: CpuLevel,
        /// The highest level that the processor supports.
        found: CpuLevel,
    },
    /// A level above that of this process.
    #[error("{asked} is above {found}, the highest level available in this process",
        asked = .asked.name(), found = .found.name())]
    AboveCap {
        /// The requested level.
        asked: CpuLevel,
        /// The level of this process.
        found: CpuLevel,
    },
    /// The threads of [`CpuLevel::run`] did not start.
    #[error("threads cannot be started: {0}")]
    Threads(String),
}

impl CpuLevel {
    const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Amx];

    /// The highest level that the processor supports, regardless of the cap.
    pub fn detected() -> Self {
        static DETECTED: OnceLock<CpuLevel> = OnceLock::new();
        *DETECTED.get_or_init(|| detect(Self::Amx).level)
    }

    /// The level of this process, or the reason why `UNDERTONE_CPU` cannot be used.
    pub fn from_environment() -> Result<Self, CpuLevelError> {
        found().as_ref().map(|processor| processor.level).map_err(Clone::clone)
    }

    /// The level of this thread: that of the process, or that of the enclosing [`Self::run`].
    ///
    /// # Panics
    /// If `UNDERTONE_CPU` does not name a level that the processor supports; a program calls
    /// [`Self::from_environment`] first.
    #[inline]
    pub fn current() -> Self {
        usable().level
    }

    /// The levels available in this process, lowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let highest = usable().level;
        Self::ALL.into_iter().filter(move |&level| level <= highest && detect(level).level == level)
    }

    /// Runs `body` at this level, on the same number of threads as now, but on separate ones. The
    /// level of everything else is unchanged.
    pub fn run<R: Send>(self, body: impl FnOnce() -> R + Send) -> Result<R, CpuLevelError> {
        let (detected, highest) = (detect(self), usable().level);
        if detected.level != self || self > highest {
            return Err(CpuLevelError::AboveCap { asked: self, found: highest });
        }
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(rayon::current_num_threads())
            .start_handler(move |_| OF_THREAD.set(Some(detected)))
            .build()
            .map_err(|error| CpuLevelError::Threads(error.to_string()))?;
        Ok(threads.install(body))
    }

    /// Calls a function at every level of [`Self::available`], for tests of kernels.
    ///
    /// # Panics
    /// If threads cannot be started.
    pub fn each(body: impl Fn(Self) + Sync) {
        for level in Self::available() {
            level.run(|| body(level)).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// The name in `UNDERTONE_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// The level that a value of the variable requests on a processor that supports `highest`. An
    /// unset or empty variable requests `highest`.
    fn asked(value: Option<&str>, highest: Self) -> Result<Self, CpuLevelError> {
        let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(highest) };
        let asked = Self::ALL
            .into_iter()
            .find(|level| level.name() == value)
            .ok_or_else(|| CpuLevelError::Unknown(value.to_owned()))?;
        if asked > highest {
            return Err(CpuLevelError::Lacking { asked, found: highest });
        }
        Ok(asked)
    }
}

/// The instruction set of this level for loops that pulp compiles several times.
#[inline]
pub fn arch() -> Arch {
    usable().arch
}

/// Proof that the processor has AVX2 and FMA and that the cap allows it.
#[derive(Clone, Copy, Debug)]
#[cfg(target_arch = "x86_64")]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// Returns `None` below the level `avx2`.
    #[inline]
    pub fn get() -> Option<Self> {
        (CpuLevel::current() >= CpuLevel::Avx2).then_some(Self(()))
    }
}

/// Proof that the processor has AVX-512 (F, BW, CD, DQ and VL) and that the cap allows it.
#[derive(Clone, Copy, Debug)]
#[cfg(target_arch = "x86_64")]
pub struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// Returns `None` below the level `avx512`.
    #[inline]
    pub fn get() -> Option<Self> {
        (CpuLevel::current() >= CpuLevel::Avx512).then_some(Self(()))
    }
}

/// Proof that the processor has AMX tiles for bfloat16, that the system lets this process use them
/// and that the cap allows it.
#[derive(Clone, Copy, Debug)]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub struct Amx(());

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Amx {
    /// Returns `None` below the level `amx`.
    #[inline]
    pub fn get() -> Option<Self> {
        (CpuLevel::current() == CpuLevel::Amx).then_some(Self(()))
    }

    /// A processor with AMX tiles also has AVX-512.
    #[inline]
    pub fn avx512(self) -> Avx512 {
        Avx512(())
    }
}

#[derive(Clone, Copy)]
struct Found {
    level: CpuLevel,
    arch: Arch,
}

thread_local! {
    /// The level of a thread of [`CpuLevel::run`], if any.
    static OF_THREAD: Cell<Option<Found>> = const { Cell::new(None) };
}

/// The level of a thread, which its helpers adopt.
#[derive(Clone, Copy)]
pub struct LevelOfThread(Option<Found>);

impl LevelOfThread {
    pub fn get() -> Self {
        Self(OF_THREAD.get())
    }

    pub fn set(self) {
        OF_THREAD.set(self.0);
    }
}

fn found() -> &'static Result<Found, CpuLevelError> {
    static FOUND: OnceLock<Result<Found, CpuLevelError>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let value = std::env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned());
        CpuLevel::asked(value.as_deref(), CpuLevel::detected()).map(detect)
    })
}

#[inline]
fn usable() -> Found {
    match (OF_THREAD.get(), found()) {
        (Some(level), _) => level,
        (None, Ok(level)) => *level,
        (None, Err(error)) => panic!("{error}"),
    }
}

/// The lower of the cap and the processor's highest level.
#[cfg(target_arch = "x86_64")]
fn detect(cap: CpuLevel) -> Found {
    use pulp::x86::{V3, V4};
    let allowed = |level| cap >= level;
    if let Some(v4) = V4::try_new().filter(|_| allowed(CpuLevel::Avx512)) {
        let tiles = allowed(CpuLevel::Amx) && super::x86::detect::amx_tiles();
        let level = if tiles { CpuLevel::Amx } else { CpuLevel::Avx512 };
        return Found { level, arch: Arch::V4(v4) };
    }
    match V3::try_new().filter(|_| allowed(CpuLevel::Avx2)) {
        Some(v3) => Found { level: CpuLevel::Avx2, arch: Arch::V3(v3) },
        None => Found { level: CpuLevel::Portable, arch: Arch::Scalar },
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect(_: CpuLevel) -> Found {
    Found { level: CpuLevel::Portable, arch: Arch::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    #[test]
    fn the_variable_names_a_level_or_is_refused() {
        for level in CpuLevel::ALL {
            assert_eq!(CpuLevel::asked(Some(level.name()), CpuLevel::Amx), Ok(level));
        }
        assert_eq!(CpuLevel::asked(None, CpuLevel::Avx2), Ok(CpuLevel::Avx2));
        assert_eq!(CpuLevel::asked(Some(""), CpuLevel::Avx512), Ok(CpuLevel::Avx512));
        for wrong in ["AVX2", "avx-512", "sse", " amx"] {
            let error = CpuLevel::asked(Some(wrong), CpuLevel::Amx).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("portable"), "{error}");
        }
        let error = CpuLevel::asked(Some("amx"), CpuLevel::Avx2).unwrap_err().to_string();
        assert_eq!(error, "UNDERTONE_CPU is amx, but this processor supports at most avx2");
    }

    #[test]
    fn no_level_is_above_its_cap() {
        for cap in CpuLevel::ALL {
            assert!(detect(cap).level <= cap);
        }
        assert_eq!(detect(CpuLevel::Portable).level, CpuLevel::Portable);
        let levels = CpuLevel::ALL.map(|cap| detect(cap).level);
        assert!(levels.is_sorted(), "a higher cap never takes instructions away: {levels:?}");
    }

    #[test]
    fn a_run_at_a_level_has_it_on_all_of_its_threads_and_nowhere_else() {
        let before = CpuLevel::current();
        CpuLevel::each(|level| {
            let levels: Vec<CpuLevel> =
                (0..64).into_par_iter().with_max_len(1).map(|_| CpuLevel::current()).collect();
            assert!(levels.into_iter().all(|current| current == level));
        });
        assert_eq!(CpuLevel::current(), before);
        assert_eq!(CpuLevel::available().last(), Some(before));
        if before < CpuLevel::Amx {
            let error = CpuLevel::Amx.run(|| ()).unwrap_err();
            assert!(matches!(error, CpuLevelError::AboveCap { .. }), "{error}");
        }
    }
}
