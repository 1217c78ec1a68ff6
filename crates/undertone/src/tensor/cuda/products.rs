//! Matrix products by cuBLAS, on row-major matrices with strides.
//!
//! cuBLAS has column-major matrices: what is row-major with stride s is, for it, the transpose with
//! leading dimension s. So C = A · B is computed as Cᵀ = Bᵀ · Aᵀ, with no number moved.

use super::device::lock;
use super::matrix::CudaMatrix;
use crate::tensor::Operand;
use crate::tensor::error::{Error, Result};
use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys::{self, cublasMath_t, cublasOperation_t};
use cudarc::driver::CudaStream;

/// How exact products are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Every product and sum in f32, whatever the environment asks cuBLAS for: no TF32.
    F32,
}

impl Precision {
    fn math_mode(self) -> cublasMath_t {
        match self {
            Self::F32 => cublasMath_t::CUBLAS_PEDANTIC_MATH,
        }
    }
}

/// cuBLAS on the stream of one GPU.
pub struct Blas {
    handle: sys::cublasHandle_t,
}

// SAFETY: a handle may be used by any thread, one at a time.
unsafe impl Send for Blas {}

fn failed(error: CublasError) -> Error {
    Error::Device(format!("matrix product: {error}").into())
}

impl Blas {
    /// With the context of the stream current in the calling thread.
    pub fn new(stream: &CudaStream) -> Result<Self> {
        let handle = result::create_handle().map_err(failed)?;
        // SAFETY: the handle was just created, and the stream lives as long as the program.
        unsafe {
            result::set_stream(handle, stream.cu_stream().cast()).map_err(failed)?;
            sys::cublasSetMathMode(handle, Precision::F32.math_mode()).result().map_err(failed)?;
        }
        Ok(Self { handle })
    }
}

/// The operation of cuBLAS, whose view of the matrix is the transpose already.
fn operation(operand: Operand<CudaMatrix>) -> cublasOperation_t {
    match operand.transposed {
        false => cublasOperation_t::CUBLAS_OP_N,
        true => cublasOperation_t::CUBLAS_OP_T,
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
/// The shapes go together, and nobody else has the numbers of the output.
pub unsafe fn multiply(
    output: &CudaMatrix,
    add: bool,
    scale: f32,
    left: Operand<CudaMatrix>,
    right: Operand<CudaMatrix>,
) -> Result<()> {
    let inner = if left.transposed { left.matrix.rows() } else { left.matrix.columns() };
    let (m, n, k) = (int(output.columns())?, int(output.rows())?, int(inner)?);
    if output.is_empty() {
        return Ok(());
    }
    if k == 0 {
        if !add {
            let zeros = CudaMatrix::zeros(output.gpu(), output.rows(), output.columns())?;
            // SAFETY: of the output by the caller.
            unsafe { output.update(&zeros, false)? };
        }
        return Ok(());
    }
    let beta: f32 = if add { 1.0 } else { 0.0 };
    let strides = [right.matrix, left.matrix, output].map(|matrix| int(matrix.stride()));
    let [of_right, of_left, of_output] = strides;
    let gpu = output.gpu();
    gpu.stream()?;
    let blas = lock(&gpu.blas);
    // SAFETY: the shapes go together by the caller, so that cuBLAS stays inside of the three
    // matrices; the factors are read before the call returns.
    unsafe {
        result::sgemm(
            blas.handle,
            operation(right),
            operation(left),
            m,
            n,
            k,
            &scale,
            right.matrix.pointer() as *const f32,
            of_right?,
            left.matrix.pointer() as *const f32,
            of_left?,
            &beta,
            output.pointer() as *mut f32,
            of_output?,
        )
    }
    .map_err(failed)
}
