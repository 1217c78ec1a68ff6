//! Which instructions the kernels use: the widest level that the processor has, or a lower one if
//! the environment variable `UNDERTONE_CPU` says so.
//!
//! | level | instructions | GEMM |
//! |---|---|---|
//! | `amx` | AMX tiles of bfloat16, and AVX-512 | AMX tiles, three bfloat16 parts of each `f32` |
//! | `avx512` | AVX-512 F, BW, CD, DQ and VL | micro-kernels of 16 lanes |
//! | `avx2` | AVX2 and FMA | micro-kernels of 8 lanes |
//! | `portable` | those that the target always has | plain loops |
//!
//! The variable is a cap: it takes instructions away, and never asks for some that the processor
//! lacks. It is read once, so a process has one level from its first kernel to its last. Every
//! choice of instructions asks this module: pulp's dispatch ([`arch`]), the `gemm` crates'
//! micro-kernels ([`super::gemm`]), and the kernels written with intrinsics or assembly, which take
//! a token ([`Avx512`], [`Amx`]) that only this module makes.
//!
//! What stays outside: the standard library and other crates detect features for themselves
//! (hashes, copies of memory, the C library's `fmaf`), and on targets other than x86-64 there is
//! one level, `portable`, that uses whatever the target has (NEON on ARM).

use pulp::Arch;
use std::sync::OnceLock;

/// The environment variable that caps the level.
const VARIABLE: &str = "UNDERTONE_CPU";

/// A set of instructions; each level includes those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuLevel {
    /// What every processor of the target has.
    Portable,
    /// AVX2 and FMA: vectors of eight numbers.
    Avx2,
    /// AVX-512: vectors of sixteen numbers.
    Avx512,
    /// AMX tiles beside AVX-512.
    Amx,
}

/// A value of `UNDERTONE_CPU` that names no level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("UNDERTONE_CPU is {0:?}; it can be amx, avx512, avx2 or portable")]
pub struct UnknownCpuLevel(String);

impl CpuLevel {
    const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Amx];

    /// The level of this process, or why `UNDERTONE_CPU` cannot be used.
    pub fn from_environment() -> Result<Self, UnknownCpuLevel> {
        found().as_ref().map(|found| found.level).map_err(Clone::clone)
    }

    /// The level of this process.
    ///
    /// # Panics
    /// If `UNDERTONE_CPU` names no level: a program asks [`Self::from_environment`] first.
    pub fn current() -> Self {
        usable().level
    }

    /// Its name in `UNDERTONE_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        }
    }

    /// The highest level that a value of the variable allows; none and an empty one allow all.
    fn cap(value: Option<&str>) -> Result<Self, UnknownCpuLevel> {
        match value {
            None | Some("") => Ok(Self::Amx),
            Some(value) => Self::ALL
                .into_iter()
                .find(|level| level.name() == value)
                .ok_or_else(|| UnknownCpuLevel(value.to_owned())),
        }
    }
}

/// The instruction set of this level for loops that pulp compiles several times.
#[inline]
pub fn arch() -> Arch {
    usable().arch
}

/// Proof that the processor has AVX-512 (F, BW, CD, DQ and VL) and that the cap allows it.
#[derive(Clone, Copy, Debug)]
#[cfg(target_arch = "x86_64")]
pub struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// None below the level `avx512`.
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
    /// None below the level `amx`.
    #[inline]
    pub fn get() -> Option<Self> {
        (CpuLevel::current() == CpuLevel::Amx).then_some(Self(()))
    }

    /// Where there are tiles there is AVX-512.
    #[inline]
    pub fn avx512(self) -> Avx512 {
        Avx512(())
    }
}

/// There are kernels for AMX tiles on Linux only: elsewhere nothing proves it.
#[derive(Clone, Copy, Debug)]
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub enum Amx {}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
impl Amx {
    /// None.
    pub fn get() -> Option<Self> {
        None
    }
}

struct Found {
    level: CpuLevel,
    arch: Arch,
}

#[inline]
fn found() -> &'static Result<Found, UnknownCpuLevel> {
    static FOUND: OnceLock<Result<Found, UnknownCpuLevel>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let value = std::env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned());
        CpuLevel::cap(value.as_deref()).map(detect)
    })
}

#[inline]
fn usable() -> &'static Found {
    match found() {
        Ok(found) => found,
        Err(unknown) => panic!("{unknown}"),
    }
}

/// The lower of the cap and of what the processor has.
#[cfg(target_arch = "x86_64")]
fn detect(cap: CpuLevel) -> Found {
    use pulp::x86::{V3, V4};
    let allowed = |level| cap >= level;
    if let Some(v4) = V4::try_new().filter(|_| allowed(CpuLevel::Avx512)) {
        let tiles = allowed(CpuLevel::Amx) && tiles::detected();
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

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tiles {
    use std::arch::asm;

    /// Whether the processor has AMX tiles for bfloat16 and the system lets us use them.
    pub fn detected() -> bool {
        let leaf = std::arch::x86_64::__cpuid_count(7, 0);
        // EDX: bit 22 bfloat16 products, bit 24 tiles.
        leaf.edx & (1 << 22) != 0 && leaf.edx & (1 << 24) != 0 && ask()
    }

    /// Asks the system for the tile registers, which a process has to do once.
    #[allow(unsafe_code)]
    fn ask() -> bool {
        let answer: i64;
        // SAFETY: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) reads and writes no memory of ours.
        unsafe {
            asm!("syscall", inlateout("rax") 158_i64 => answer, in("rdi") 0x1023, in("rsi") 18,
                 out("rcx") _, out("r11") _, options(nostack));
        }
        answer == 0
    }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
mod tiles {
    pub fn detected() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_a_level_or_is_refused() {
        for level in CpuLevel::ALL {
            assert_eq!(CpuLevel::cap(Some(level.name())), Ok(level));
        }
        assert_eq!(CpuLevel::cap(None), Ok(CpuLevel::Amx));
        assert_eq!(CpuLevel::cap(Some("")), Ok(CpuLevel::Amx));
        for wrong in ["AVX2", "avx-512", "sse", " amx"] {
            let error = CpuLevel::cap(Some(wrong)).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("portable"), "{error}");
        }
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
}
