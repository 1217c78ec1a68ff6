//! General matrix product (GEMM) with the kernels of the `gemm` crates, at the instruction-set
//! level that [`super::level`] detected.
//!
//! `gemm::gemm` detects features by itself and cannot be capped. Its generic driver and its
//! micro-kernels are public, so they are combined here, once for each level.

use super::level::CpuLevel;
use gemm_common::Parallelism;
use gemm_common::gemm::gemm_basic_generic;
use gemm_common::simd::{self, MixedSimd};

/// A matrix given by its first element and its row and column strides.
#[derive(Clone, Copy)]
pub struct Strided<P> {
    pub first: P,
    pub row_stride: isize,
    pub column_stride: isize,
}

impl<P> Strided<P> {
    fn transposed(self) -> Self {
        Self { row_stride: self.column_stride, column_stride: self.row_stride, first: self.first }
    }
}

/// `out = keep · out + scale · left · right`, with `keep` 0 or 1; sizes m × k and k × n.
#[derive(Clone, Copy)]
pub struct Gemm {
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub out: Strided<*mut f32>,
    pub keep: bool,
    pub scale: f32,
    pub left: Strided<*const f32>,
    pub right: Strided<*const f32>,
    /// Number of threads.
    pub threads: usize,
}

impl Gemm {
    /// Computes the product.
    ///
    /// # Safety
    /// Every element reachable by sizes and strides must be valid, and in `out` also valid for
    /// writes; no two elements of `out` may alias.
    #[allow(unsafe_code)]
    pub unsafe fn run(self) {
        // The micro-kernels write columns; a row-major output is computed as the transposed
        // product.
        let product = if self.out.column_stride < self.out.row_stride {
            Self {
                m: self.n,
                n: self.m,
                out: self.out.transposed(),
                left: self.right.transposed(),
                right: self.left.transposed(),
                ..self
            }
        } else {
            self
        };
        // SAFETY: the caller guarantees valid elements, and the level guarantees that the
        // instructions exist.
        unsafe {
            match CpuLevel::current() {
                #[cfg(target_arch = "x86_64")]
                CpuLevel::Amx | CpuLevel::Avx512 => avx512(product),
                #[cfg(target_arch = "x86_64")]
                CpuLevel::Avx2 => avx2(product),
                _ => portable(product),
            }
        }
    }
}

/// The driver with the micro-kernels of one instruction set, with `$lanes` values per register.
macro_rules! instance {
    ($name:ident, $kernels:ident, $simd:ident, $lanes:literal) => {
        #[inline(never)]
        #[allow(unsafe_code)]
        unsafe fn $name(product: Gemm) {
            use gemm_f32::microkernel::$kernels::f32::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};
            let Gemm { m, k, n, out, keep, scale, left, right, threads } = product;
            let simd = <simd::$simd as MixedSimd<f32, f32, f32, f32>>::try_new();
            let threads = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
            // SAFETY: guaranteed by the caller.
            unsafe {
                gemm_basic_generic::<_, f32, $lanes, { MR_DIV_N * $lanes }, NR, MR_DIV_N, H_M, H_N>(
                    simd.expect("the level was detected"),
                    m,
                    n,
                    k,
                    out.first,
                    out.column_stride,
                    out.row_stride,
                    keep,
                    left.first,
                    left.column_stride,
                    left.row_stride,
                    right.first,
                    right.column_stride,
                    right.row_stride,
                    1.0,
                    scale,
                    false,
                    false,
                    false,
                    |a, b, c| a * b + c,
                    &UKR,
                    &H_UKR,
                    false,
                    threads,
                );
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
instance!(avx512, avx512f, V4, 16);
#[cfg(target_arch = "x86_64")]
instance!(avx2, fma, V3, 8);
#[cfg(target_arch = "aarch64")]
instance!(portable, neon, Scalar, 4);
#[cfg(not(target_arch = "aarch64"))]
instance!(portable, scalar, Scalar, 1);
