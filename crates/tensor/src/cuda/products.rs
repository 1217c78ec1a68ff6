//! Matrix products by cuBLAS, on row-major matrices with strides.
//!
//! cuBLAS expects column-major matrices: it sees a row-major matrix with stride s as its transpose
//! with leading dimension s. So C = A · B is computed as Cᵀ = Bᵀ · Aᵀ, without moving any data.
//!
//! The precision is that of the left factor. In f32, every product and sum is f32, regardless of
//! the environment variables of cuBLAS; in TF32, cuBLAS rounds both factors; in bf16, both are
//! rounded beforehand. Accumulation is always in f32.

use super::device::lock;
use super::format::NumberFormat;
use super::fused::{Addend, Fused};
use super::matrix::CudaMatrix;
use crate::Operand;
use crate::Precision;
use crate::error::{Error, Result};
use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys::{
    self, cublasComputeType_t, cublasGemmAlgo_t, cublasMath_t, cublasOperation_t, cudaDataType_t,
};
use cudarc::driver::CudaStream;
use std::cell::Cell;

thread_local! {
    static BATCH_INVARIANT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` with batch-invariant products: no row of a product depends on the number of other
/// rows ([`super::fused`]). The gradients of one example are then the same in any batch.
pub fn batch_invariant<R>(body: impl FnOnce() -> R) -> R {
    /// Restores the setting, even after a panic.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            BATCH_INVARIANT.set(self.0);
        }
    }
    let _before = Before(BATCH_INVARIANT.replace(true));
    body()
}

/// cuBLAS on the stream of one GPU.
pub struct Blas {
    handle: sys::cublasHandle_t,
}

// SAFETY: a handle may be used from any thread, by one thread at a time.
unsafe impl Send for Blas {}

fn failed(error: CublasError) -> Error {
    Error::Device(format!("matrix product: {error}").into())
}

impl Blas {
    /// The stream's context must be current in the calling thread.
    pub fn new(stream: &CudaStream) -> Result<Self> {
        let handle = result::create_handle().map_err(failed)?;
        // Partial sums of a product that is split among blocks stay in f32.
        let mode = cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        // SAFETY: the handle has just been created, and the stream lives until the program ends.
        unsafe {
            result::set_stream(handle, stream.cu_stream().cast()).map_err(failed)?;
            sys::cublasSetMathMode(handle, mode).result().map_err(failed)?;
        }
        Ok(Self { handle })
    }
}

/// The cuBLAS operation; cuBLAS already sees the transpose of a row-major matrix.
fn operation(transposed: bool) -> cublasOperation_t {
    match transposed {
        false => cublasOperation_t::CUBLAS_OP_N,
        true => cublasOperation_t::CUBLAS_OP_T,
    }
}

fn data_type(format: NumberFormat) -> cudaDataType_t {
    match format {
        NumberFormat::F32 => cudaDataType_t::CUDA_R_32F,
        NumberFormat::Bf16 => cudaDataType_t::CUDA_R_16BF,
        // NF4 is never a factor: cuBLAS rejects it.
        NumberFormat::Nf4 => cudaDataType_t::CUDA_R_4I,
    }
}

fn compute_type(precision: Precision) -> cublasComputeType_t {
    match precision {
        Precision::F32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_PEDANTIC,
        Precision::Tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        Precision::Bf16 => cublasComputeType_t::CUBLAS_COMPUTE_32F,
    }
}

fn int(size: usize) -> Result<i32> {
    i32::try_from(size).map_err(|_| {
        let problem = format!("a matrix product of more than {} rows or columns", i32::MAX);
        Error::Unsupported(problem)
    })
}

/// output = scale · left · right, or output += scale · left · right.
///
/// # Safety
/// The shapes must be compatible, and the output's data must not be shared.
pub unsafe fn multiply(
    output: &CudaMatrix,
    add: bool,
    scale: f32,
    left: Operand<CudaMatrix>,
    right: Operand<CudaMatrix>,
) -> Result<()> {
    if output.is_empty() {
        return Ok(());
    }
    let precision = left.matrix.precision();
    let (of_left, of_right) = (left.transposed, right.transposed);
    let left = left.matrix.as_factor()?;
    let right = right.matrix.with_precision(precision).as_factor()?;
    if output.format() == NumberFormat::Bf16 && left.format() == NumberFormat::F32 {
        // cuBLAS has no product of f32 factors with a bf16 result.
        let wide = output.like_f32(output.rows(), output.columns())?;
        let (left, right) = (
            Operand { matrix: &left, transposed: of_left },
            Operand { matrix: &right, transposed: of_right },
        );
        // SAFETY: the shapes are the same, the intermediate result is new, and the caller
        // guarantees that the output is not shared.
        return unsafe {
            multiply(&wide, false, scale, left, right)?;
            output.update(&wide, add)
        };
    }
    let inner = if of_left { left.rows() } else { left.columns() };
    let (m, n, k) = (int(output.columns())?, int(output.rows())?, int(inner)?);
    if k == 0 {
        if !add {
            let zeros = CudaMatrix::zeros(
                output.device(),
                output.format(),
                output.rows(),
                output.columns(),
            )?;
            // SAFETY: the caller guarantees that the output is not shared.
            unsafe { output.update(&zeros, false)? };
        }
        return Ok(());
    }
    // The rows of a product with a transposed left factor do not belong to examples: it sums over
    // them.
    if BATCH_INVARIANT.get() && !of_left {
        let fused = Fused {
            output,
            scale,
            left: (&left, of_left),
            right: (&right, of_right),
            addend: if add { Addend::Matrix(output) } else { Addend::Nothing },
            precision,
            batch_invariant: true,
        };
        let gpu = output.gpu();
        gpu.stream()?;
        // SAFETY: guaranteed by the caller.
        if unsafe { lock(&gpu.fused).multiply(gpu, &fused)? } {
            return Ok(());
        }
    }
    let beta: f32 = if add { 1.0 } else { 0.0 };
    let [stride_of_right, stride_of_left, stride_of_output] =
        [&right, &left, output].map(|matrix| int(matrix.stride()));
    let gpu = output.gpu();
    gpu.stream()?;
    let blas = lock(&gpu.blas);
    // SAFETY: the caller guarantees compatible shapes, so cuBLAS stays within the three matrices;
    // the scale factors are read before the call returns.
    unsafe {
        result::gemm_ex(
            blas.handle,
            operation(of_right),
            operation(of_left),
            m,
            n,
            k,
            std::ptr::from_ref(&scale).cast(),
            right.pointer() as *const _,
            data_type(right.format()),
            stride_of_right?,
            left.pointer() as *const _,
            data_type(left.format()),
            stride_of_left?,
            std::ptr::from_ref(&beta).cast(),
            output.pointer() as *mut _,
            data_type(output.format()),
            stride_of_output?,
            compute_type(precision),
            cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
        )
    }
    .map_err(failed)
}

/// output = scale · left · right + addend, in one pass if cuBLASLt has a kernel for it.
///
/// # Safety
/// The shapes must be compatible, and the output's data must not be shared.
pub unsafe fn multiply_onto(
    output: &CudaMatrix,
    addend: &Addend,
    scale: f32,
    left: Operand<CudaMatrix>,
    right: Operand<CudaMatrix>,
) -> Result<()> {
    let precision = left.matrix.precision();
    let factors = (left.matrix.as_factor()?, right.matrix.with_precision(precision).as_factor()?);
    let format = output.format();
    let converted = match addend {
        Addend::Nothing => None,
        Addend::Row(addend) | Addend::Matrix(addend) => Some(addend.in_format(format)?),
    };
    let whole = !output.is_empty() && factors.0.rows() > 0 && factors.0.columns() > 0;
    if whole && (format == NumberFormat::F32 || factors.0.format() == NumberFormat::Bf16) {
        let fused = Fused {
            output,
            scale,
            left: (&factors.0, left.transposed),
            right: (&factors.1, right.transposed),
            addend: match (addend, &converted) {
                (Addend::Row(_), Some(row)) => Addend::Row(row),
                (Addend::Matrix(_), Some(matrix)) => Addend::Matrix(matrix),
                _ => Addend::Nothing,
            },
            precision,
            batch_invariant: BATCH_INVARIANT.get() && !left.transposed,
        };
        let gpu = output.gpu();
        gpu.stream()?;
        // SAFETY: guaranteed by the caller.
        if unsafe { lock(&gpu.fused).multiply(gpu, &fused)? } {
            return Ok(());
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        match addend {
            Addend::Nothing => return multiply(output, false, scale, left, right),
            Addend::Row(row) => output.fill_rows(row)?,
            Addend::Matrix(matrix) => output.update(matrix, false)?,
        }
        multiply(output, true, scale, left, right)
    }
}
