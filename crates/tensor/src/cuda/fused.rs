//! Matrix products by cuBLASLt fused with an addition: of a bias, or of another matrix.
//!
//! D = scale · A · B + C, or D = scale · A · B + bias: one pass over D instead of two. If cuBLASLt
//! has no kernel for a product, the caller adds in a separate pass.
//!
//! A batch-invariant product computes each row of the output identically, bit for bit, regardless
//! of the number of other rows. cuBLASLt would choose different kernels for few and for many rows,
//! which sum in different orders; here the kernel is the one that it chooses for [`INVARIANT_ROWS`]
//! rows, and the inner dimension is not split among blocks. A block of such a kernel computes a
//! tile of the output from its own rows and columns alone, so that the values of a row depend only
//! on that row. `precision.rs` of the tests compares the bits.

use super::device::Gpu;
use super::format::NumberFormat;
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use crate::Precision;
use crate::error::{Error, Result};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cudaDataType_t,
};
use std::collections::HashMap;

/// The addend of a product.
pub enum Addend<'a> {
    Nothing,
    /// The same row for every row.
    Row(&'a CudaMatrix),
    /// A matrix of the output's shape.
    Matrix(&'a CudaMatrix),
}

/// output = scale · left · right + addend, for matrices in cuBLAS's column-major view.
pub struct Fused<'a> {
    pub output: &'a CudaMatrix,
    pub scale: f32,
    /// The factors, both in the same format, and whether each is transposed.
    pub left: (&'a CudaMatrix, bool),
    pub right: (&'a CudaMatrix, bool),
    pub addend: Addend<'a>,
    pub precision: Precision,
    pub batch_invariant: bool,
}

/// Everything that determines which kernel computes a product.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    sizes: [u64; 3],
    transposed: [bool; 2],
    strides: [i64; 4],
    formats: [NumberFormat; 2],
    /// Alignment of the addresses, in bytes.
    alignments: [u32; 4],
    precision: Precision,
    bias: bool,
    batch_invariant: bool,
}

impl Key {
    /// The layouts of both factors, the addend and the output, which has `rows` rows.
    fn layouts(&self, rows: u64) -> Result<[sys::cublasLtMatrixLayout_t; 4]> {
        let [m, _, k] = self.sizes;
        let n = rows;
        let [input, output] = self.formats.map(data_type);
        let turned =
            |rows, columns, turn: bool| if turn { (columns, rows) } else { (rows, columns) };
        let (a, b) = (turned(m, k, self.transposed[0]), turned(k, n, self.transposed[1]));
        let shapes = [(input, a), (input, b), (output, (m, n)), (output, (m, n))];
        let mut layouts = [std::ptr::null_mut(); 4];
        for ((layout, (kind, (rows, columns))), stride) in
            layouts.iter_mut().zip(shapes).zip(self.strides)
        {
            *layout = result::create_matrix_layout(kind, rows, columns, stride).map_err(failed)?;
        }
        Ok(layouts)
    }
}

/// A cuBLASLt kernel with its call parameters.
struct Kernel {
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 4],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// cuBLASLt on one GPU, with the kernels chosen so far.
pub struct FusedProducts {
    handle: sys::cublasLtHandle_t,
    /// `None` if cuBLASLt has no kernel.
    kernels: HashMap<Key, Option<Kernel>>,
    workspace: Option<Buffer>,
}

// SAFETY: a handle may be used from any thread, by one thread at a time.
unsafe impl Send for FusedProducts {}

/// Workspace for kernels in bytes, as NVIDIA recommends for Hopper.
const WORKSPACE: usize = 32 << 20;

/// The number of rows for which the kernel of every batch-invariant product is chosen: that of a
/// typical micro-batch (16 texts of 512 tokens).
const INVARIANT_ROWS: u64 = 8192;

/// Maximum number of cached kernels: batches of different lengths need different ones.
const KERNELS: usize = 4096;

fn failed(error: CublasError) -> Error {
    Error::Device(format!("matrix product: {error}").into())
}

fn data_type(format: NumberFormat) -> cudaDataType_t {
    match format {
        NumberFormat::F32 => cudaDataType_t::CUDA_R_32F,
        NumberFormat::Bf16 => cudaDataType_t::CUDA_R_16BF,
        // NF4 is never a factor: cuBLAS rejects it.
        NumberFormat::Nf4 => cudaDataType_t::CUDA_R_4I,
    }
}

impl FusedProducts {
    /// The GPU's context must be current in the calling thread.
    pub fn new() -> Result<Self> {
        let handle = result::create_handle().map_err(failed)?;
        Ok(Self { handle, kernels: HashMap::new(), workspace: None })
    }

    /// Computes the product, and returns whether there is a kernel for it.
    ///
    /// # Safety
    /// The shapes must be compatible, and the output's data must not be shared.
    pub unsafe fn multiply(&mut self, gpu: &'static Gpu, fused: &Fused) -> Result<bool> {
        let (left, right) = (fused.left.0, fused.right.0);
        // C is not read when a bias is added; D is passed in its place.
        let (c, beta, bias) = match fused.addend {
            Addend::Nothing => (fused.output, 0.0_f32, 0),
            Addend::Row(row) => (fused.output, 0.0, row.pointer()),
            Addend::Matrix(matrix) => (matrix, 1.0, 0),
        };
        let inner = if fused.left.1 { left.rows() } else { left.columns() };
        let matrices = [right, left, c, fused.output];
        let key = Key {
            sizes: [fused.output.columns(), fused.output.rows(), inner].map(|n| n as u64),
            transposed: [fused.right.1, fused.left.1],
            strides: matrices.map(|matrix| matrix.stride() as i64),
            formats: [left.format(), fused.output.format()],
            alignments: matrices.map(|matrix| alignment(matrix.pointer())),
            precision: fused.precision,
            bias: bias != 0,
            batch_invariant: fused.batch_invariant,
        };
        if self.kernels.len() >= KERNELS {
            self.forget();
        }
        if !self.kernels.contains_key(&key) {
            let kernel = self.choose(&key)?;
            self.kernels.insert(key.clone(), kernel);
        }
        let Some(Some(kernel)) = self.kernels.get(&key) else { return Ok(false) };
        let workspace = match &self.workspace {
            Some(workspace) => workspace.pointer(),
            None => self.workspace.insert(gpu.allocate(WORKSPACE)?).pointer(),
        };
        let stream = gpu.stream()?.cu_stream();
        let [of_right, of_left, of_c, of_output] = kernel.layouts;
        // SAFETY: description and layouts live as long as the kernel; the caller guarantees
        // compatible shapes, so cuBLASLt stays within the matrices; the scale factors are read
        // before the call returns, and earlier work on the stream has finished with the workspace.
        unsafe {
            if bias != 0 {
                set(kernel.description, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
            }
            result::matmul(
                self.handle,
                kernel.description,
                std::ptr::from_ref(&fused.scale).cast(),
                std::ptr::from_ref(&beta).cast(),
                right.pointer() as *const _,
                of_right,
                left.pointer() as *const _,
                of_left,
                c.pointer() as *const _,
                of_c,
                fused.output.pointer() as *mut _,
                of_output,
                &kernel.algorithm,
                workspace as *mut _,
                WORKSPACE,
                stream.cast(),
            )
            .map_err(failed)?;
        }
        Ok(true)
    }

    /// The kernel that cuBLASLt considers fastest for this number of rows or, in a batch-invariant
    /// product, for a fixed number of rows.
    fn choose(&self, key: &Key) -> Result<Option<Kernel>> {
        let compute = match key.precision {
            Precision::F32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_PEDANTIC,
            Precision::Tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            Precision::Bf16 => cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let description =
            result::create_matmul_desc(compute, cudaDataType_t::CUDA_R_32F).map_err(failed)?;
        let layouts = key.layouts(key.sizes[1])?;
        let operation = |transposed: bool| -> i32 { i32::from(transposed) };
        let preference = result::create_matmul_pref().map_err(failed)?;
        // SAFETY: description, layouts and preference have just been created, and every attribute
        // is set to a value of its type.
        let choice = unsafe {
            set(
                description,
                Attribute::CUBLASLT_MATMUL_DESC_TRANSA,
                &operation(key.transposed[0]),
            )?;
            set(
                description,
                Attribute::CUBLASLT_MATMUL_DESC_TRANSB,
                &operation(key.transposed[1]),
            )?;
            if key.bias {
                let epilogue = cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
                set(description, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            }
            let prefer = |attribute, value: &dyn AsBytes| {
                let (start, bytes) = value.bytes();
                result::set_matmul_pref_attribute(preference, attribute, start, bytes)
                    .map_err(failed)
            };
            prefer(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE)?;
            // Partial sums of a product that is split among blocks stay in f32.
            let scheme = match key.batch_invariant {
                true => sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_NONE,
                false => sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
            };
            let mask = scheme as u32;
            prefer(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask)?;
            let [a, b, c, d] = key.alignments;
            prefer(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a)?;
            prefer(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b)?;
            prefer(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c)?;
            prefer(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d)?;
            let of_choice =
                if key.batch_invariant { key.layouts(INVARIANT_ROWS)? } else { layouts };
            let [a, b, c, d] = of_choice;
            let choice =
                result::get_matmul_algo_heuristic(self.handle, description, a, b, c, d, preference);
            let _ = result::destroy_matmul_pref(preference);
            if key.batch_invariant {
                of_choice.into_iter().for_each(|layout| {
                    let _ = result::destroy_matrix_layout(layout);
                });
            }
            choice
        };
        let kernel = |algorithm| Kernel { description, layouts, algorithm };
        match choice {
            Ok(choice) => Ok(Some(kernel(choice.algo))),
            Err(_) => {
                destroy(description, layouts);
                Ok(None)
            }
        }
    }

    fn forget(&mut self) {
        for kernel in self.kernels.drain().filter_map(|(_, kernel)| kernel) {
            destroy(kernel.description, kernel.layouts);
        }
    }
}

fn destroy(description: sys::cublasLtMatmulDesc_t, layouts: [sys::cublasLtMatrixLayout_t; 4]) {
    // SAFETY: they were created and are no longer used: a call reads them before it returns.
    unsafe {
        for layout in layouts {
            let _ = result::destroy_matrix_layout(layout);
        }
        let _ = result::destroy_matmul_desc(description);
    }
}

/// A value as cuBLASLt takes it: an address and a size in bytes.
trait AsBytes {
    fn bytes(&self) -> (*const std::ffi::c_void, usize);
}

impl<T: Copy> AsBytes for T {
    fn bytes(&self) -> (*const std::ffi::c_void, usize) {
        (std::ptr::from_ref(self).cast(), size_of::<T>())
    }
}

/// Sets an attribute of a product.
///
/// # Safety
/// The description must not be destroyed, and the value must have the attribute's type.
unsafe fn set(
    description: sys::cublasLtMatmulDesc_t,
    attribute: Attribute,
    value: &dyn AsBytes,
) -> Result<()> {
    let (start, bytes) = value.bytes();
    // SAFETY: guaranteed by the caller.
    unsafe { result::set_matmul_desc_attribute(description, attribute, start, bytes) }
        .map_err(failed)
}

/// The alignment of an address, up to 256 bytes.
fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}
