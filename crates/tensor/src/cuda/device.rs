//! One GPU: its context, its stream, its memory pool, its compiled kernels and cuBLAS.

use super::compile::{self, Capability};
use super::fused::FusedProducts;
use super::library::Library;
use super::memory::{Constants, Staging};
use super::products::Blas;
use super::source::{Kernel, Source};
use crate::Precision;
use crate::error::{Error, Result};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUmemPool_attribute, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream};
use cudarc::nvrtc::Ptx;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An NVIDIA GPU.
#[derive(Clone, Copy)]
pub struct CudaDevice {
    pub(super) gpu: &'static Gpu,
    precision: Precision,
}

impl CudaDevice {
    /// Opens the GPU with this ordinal. It is opened once and stays open.
    pub fn open(ordinal: usize) -> Result<Self> {
        static OPENED: Mutex<Vec<&'static Gpu>> = Mutex::new(Vec::new());
        let mut opened = lock(&OPENED);
        if let Some(gpu) = opened.iter().find(|gpu| gpu.ordinal == ordinal) {
            return Ok(Self::of(gpu, Precision::F32));
        }
        let gpu: &'static Gpu = Box::leak(Box::new(Gpu::new(ordinal)?));
        opened.push(gpu);
        Ok(Self::of(gpu, Precision::F32))
    }

    pub(super) fn of(gpu: &'static Gpu, precision: Precision) -> Self {
        Self { gpu, precision }
    }

    /// The same GPU with matrix products and activations in another precision.
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// The precision of matrix products and activations.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Number of GPUs that the driver reports; 0 without a driver.
    pub fn count() -> usize {
        count().unwrap_or_default()
    }

    /// Waits until all queued work is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.gpu.synchronize()
    }

    /// Total memory in bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.gpu.memory().map(|(_, all)| all as u64)
    }

    /// Memory in use, in bytes.
    pub(crate) fn memory_in_use(&self) -> Option<u64> {
        self.gpu.memory().map(|(free, all)| (all - free) as u64)
    }

    /// Peak memory in bytes that matrices of this process have used since the last call of
    /// [`Self::reset_peak`].
    pub(crate) fn peak(&self) -> Option<u64> {
        self.gpu.peak().ok()
    }

    /// Resets the peak memory counter.
    pub(crate) fn reset_peak(&self) {
        // If the reset fails, the peak counts from the start of the program.
        let _ = self.gpu.reset_peak();
    }

    /// The device ordinal, starting at 0.
    pub fn ordinal(&self) -> usize {
        self.gpu.ordinal
    }

    /// Unique identifier of the GPU across all machines.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        let uuid = self.gpu.context.uuid().map_err(|error| failed("querying a GPU", error))?;
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    /// Its model.
    pub fn model(&self) -> &str {
        &self.gpu.model
    }

    /// Model and library versions, which together determine how results are rounded.
    pub fn machine(&self) -> String {
        format!("{}, {}; {}", self.gpu.model, self.precision, super::report::versions())
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "cuda:{} ({})", self.gpu.ordinal, self.gpu.model)
    }
}

/// Everything that belongs to one GPU; lives until the program ends.
pub struct Gpu {
    ordinal: usize,
    model: String,
    pub capability: Capability,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    pub(super) blas: Mutex<Blas>,
    pub(super) fused: Mutex<FusedProducts>,
    pub(super) staging: Mutex<Staging>,
    pub(super) constants: Mutex<Constants>,
    modules: Mutex<HashMap<Source, Arc<CudaModule>>>,
    /// Loaded kernels, each with the bytes of shared memory that a block may use.
    functions: Mutex<HashMap<Kernel, (CudaFunction, u32)>>,
}

/// Locks a mutex and ignores poisoning: every value behind these locks is consistent between two
/// statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A driver error, with the operation that failed.
pub fn failed(what: &str, error: DriverError) -> Error {
    Error::Device(format!("{what}: {error}").into())
}

/// Initializes the driver and returns the number of GPUs.
pub fn count() -> Result<usize> {
    Library::Driver.load()?;
    match result::init().and_then(|()| result::device::get_count()) {
        Ok(count) => Ok(usize::try_from(count).unwrap_or_default()),
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(0),
        Err(error) => Err(Error::NoGpu(format!("the NVIDIA driver does not start: {error}"))),
    }
}

impl Gpu {
    fn new(ordinal: usize) -> Result<Self> {
        let count = count()?;
        if ordinal >= count {
            let available = match count {
                0 => "no GPU".to_owned(),
                1 => "one GPU, number 0".to_owned(),
                _ => format!("{count} GPUs, numbers 0 to {}", count - 1),
            };
            return Err(Error::NoGpu(format!(
                "there is no GPU {ordinal}: the driver finds {available}"
            )));
        }
        Library::ALL.into_iter().try_for_each(Library::load)?;
        let opened = |error| failed("opening a GPU", error);
        let context = CudaContext::new(ordinal).map_err(opened)?;
        let (model, capability) =
            (context.name().map_err(opened)?, context.compute_capability().map_err(opened)?);
        if capability < (8, 0) {
            let (major, minor) = capability;
            return Err(Error::NoGpu(format!(
                "{model} has compute capability {major}.{minor}, but at least 8.0 is required: \
                 compute on the CPU"
            )));
        }
        if !context.has_async_alloc() {
            let problem = format!("the driver of {model} has no memory pools: update it");
            return Err(Error::NoGpu(problem));
        }
        // SAFETY: there is only one stream, so its operations never overlap.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(opened)?;
        keep_freed_memory(&context).map_err(opened)?;
        let blas = Blas::new(&stream)?;
        let fused = FusedProducts::new()?;
        let staging = Staging::new()?;
        Ok(Self {
            ordinal,
            model,
            capability,
            context,
            stream,
            blas: Mutex::new(blas),
            fused: Mutex::new(fused),
            staging: Mutex::new(staging),
            constants: Mutex::default(),
            modules: Mutex::default(),
            functions: Mutex::default(),
        })
    }

    /// The stream, after making this GPU's context current in the calling thread.
    pub fn stream(&self) -> Result<&CudaStream> {
        self.context.bind_to_thread().map_err(|error| failed("using a GPU", error))?;
        Ok(&self.stream)
    }

    /// Waits until all queued work is done.
    pub fn synchronize(&self) -> Result<()> {
        self.stream()?.synchronize().map_err(|error| failed("waiting for the GPU", error))
    }

    /// Free and total memory in bytes.
    pub fn memory(&self) -> Option<(usize, usize)> {
        self.context.mem_get_info().ok()
    }

    /// Peak number of bytes allocated at the same time.
    fn peak(&self) -> std::result::Result<u64, DriverError> {
        let mut bytes = 0_u64;
        // SAFETY: the device is open, and the attribute is a 64-bit integer.
        unsafe {
            let pool = result::device::get_default_mem_pool(self.context.cu_device())?;
            result::mem_pool::get_attribute(
                pool,
                CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
                std::ptr::from_mut(&mut bytes).cast(),
            )?;
        }
        Ok(bytes)
    }

    /// Resets the peak to the currently allocated memory, which the driver does when 0 is written.
    fn reset_peak(&self) -> std::result::Result<(), DriverError> {
        let mut none = 0_u64;
        // SAFETY: the device is open, and the attribute is a 64-bit integer.
        unsafe {
            let pool = result::device::get_default_mem_pool(self.context.cu_device())?;
            result::mem_pool::set_attribute(
                pool,
                CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
                std::ptr::from_mut(&mut none).cast(),
            )
        }
    }

    /// A kernel that may use `shared` bytes of shared memory, compiled on first use.
    pub fn function(&self, kernel: Kernel, shared: u32) -> Result<CudaFunction> {
        let mut functions = lock(&self.functions);
        let known = functions.get(&kernel);
        if let Some((function, allowed)) = known
            && shared <= *allowed
        {
            return Ok(function.clone());
        }
        let loading = |error| failed(kernel.name, error);
        let function = match known {
            Some((function, _)) => function.clone(),
            None => self.module(kernel.source)?.load_function(kernel.name).map_err(loading)?,
        };
        // The default limit per block.
        let allowed = shared.max(48 * 1024);
        if shared > 48 * 1024 {
            use cudarc::driver::sys::CUfunction_attribute as Limit;
            let limit = Limit::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(limit, shared.cast_signed()).map_err(loading)?;
        }
        functions.insert(kernel, (function.clone(), allowed));
        Ok(function)
    }

    fn module(&self, source: Source) -> Result<Arc<CudaModule>> {
        let mut modules = lock(&self.modules);
        if let Some(module) = modules.get(&source) {
            return Ok(module.clone());
        }
        let image = compile::image(source, self.capability)?;
        let module = match self.context.load_module(Ptx::from_binary(image)) {
            Ok(module) => module,
            Err(_) => {
                // This driver does not load the cached image.
                compile::forget(source, self.capability);
                let image = compile::image(source, self.capability)?;
                let loaded = self.context.load_module(Ptx::from_binary(image));
                loaded.map_err(|error| failed(&source.name(), error))?
            }
        };
        modules.insert(source, module.clone());
        Ok(module)
    }
}

/// Keeps freed memory in the program's pool, for later allocations on the stream.
fn keep_freed_memory(context: &CudaContext) -> std::result::Result<(), DriverError> {
    let mut threshold = u64::MAX;
    // SAFETY: the device is open, and the attribute is a 64-bit integer.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device())?;
        result::mem_pool::set_attribute(
            pool,
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            std::ptr::from_mut(&mut threshold).cast(),
        )
    }
}

/// Describes a GPU without opening it: model, bytes of memory, compute capability.
pub fn describe(ordinal: usize) -> Result<(String, u64, Capability)> {
    let asking = |error| failed("querying a GPU", error);
    let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
    let device = result::device::get(ordinal).map_err(asking)?;
    let model = result::device::get_name(device).map_err(asking)?;
    // SAFETY: the driver reported this device.
    let (memory, major, minor) = unsafe {
        let attribute = |attribute| result::device::get_attribute(device, attribute);
        (
            result::device::total_mem(device).map_err(asking)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).map_err(asking)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).map_err(asking)?,
        )
    };
    Ok((model, memory as u64, (major, minor)))
}
