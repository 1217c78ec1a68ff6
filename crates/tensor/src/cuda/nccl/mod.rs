//! Sums over the GPUs of several ranks, communicated by NCCL.
//!
//! NCCL moves the data, and our own kernels sum it in the order of the ranks: NCCL's own reductions
//! sum in an order that depends on the machines' interconnect, which may differ on another node. A
//! step that is repeated after a crash adds the same noise to its sum again, so a sum that is
//! rounded differently would be a second release. Summed in the order of the ranks, the result is
//! bit-identical to that of sums communicated through the hosts.
//!
//! ```text
//! pack      each rank's matrices end to end, cut into one part for each rank
//! exchange  part r of every rank goes to rank r                       (ncclSend, ncclRecv)
//! add       rank r adds up its parts: that of rank 0, of rank 1, …
//! gather    every rank gets all sums                                  (ncclAllGather)
//! ```
//!
//! A rank sends 2 (N − 1)/N times the size of its data. Everything runs on the stream of the
//! training step; the host waits for it, and meanwhile checks whether another rank has exited.

mod functions;

use super::device::{CudaDevice, failed};
use super::format::NumberFormat;
use super::matrix::CudaMatrix;
use crate::error::{Error, Result};
use cudarc::driver::sys::{CUresult, cuStreamQuery};
use functions::{Config, FLOAT32, Functions, IN_PROGRESS, SUCCESS, Status, Stream, UniqueId};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// Values per row of a packed matrix.
const WIDTH: usize = 1024;
/// Alignment of each matrix within the packed one, in values (256 bytes), as in an allocation of
/// its own.
const ALIGNMENT: usize = 64;
/// Interval between two polls of the stream.
const NAP: Duration = Duration::from_micros(20);

/// Returns whether another rank is known to have exited.
pub type HasEnded<'a> = &'a dyn Fn() -> bool;

/// This process's member of an NCCL communicator.
pub struct Nccl {
    functions: &'static Functions,
    device: CudaDevice,
    /// Null once the communicator has been aborted.
    communicator: AtomicPtr<c_void>,
    rank: usize,
    ranks: usize,
}

impl std::fmt::Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "rank {} of {} by NCCL {}", self.rank, self.ranks, self.functions.version())
    }
}

impl Nccl {
    /// The version of the library; an error is one sentence that says how to get it.
    pub fn version() -> Result<String> {
        Ok(Functions::find()?.version())
    }

    /// The identifier with which all ranks start: rank 0 creates it and sends it to the others.
    pub fn unique_id() -> Result<[u8; 128]> {
        let functions = Functions::find()?;
        let mut id = UniqueId([0; 128]);
        // SAFETY: the pointer points to an identifier that outlives the call.
        match unsafe { (functions.unique_id)(&mut id) } {
            SUCCESS => Ok(id.0),
            status => Err(said(functions, "an id", status)),
        }
    }

    /// Connects the GPUs of all ranks. Each rank must have a different GPU.
    pub fn begin(
        device: CudaDevice,
        id: [u8; 128],
        (rank, ranks): (usize, usize),
        has_ended: HasEnded,
    ) -> Result<Self> {
        let functions = Functions::find()?;
        let number = |size: usize| c_int::try_from(size).unwrap_or(c_int::MAX);
        // Makes the GPU's context current in this thread.
        device.gpu.stream()?;
        let (mut communicator, mut config) = (std::ptr::null_mut(), Config::not_blocking());
        // SAFETY: the pointers point to values that outlive the call, which copies the
        // configuration; the GPU is open.
        let status = unsafe {
            (functions.begin)(
                &mut communicator,
                number(ranks),
                UniqueId(id),
                number(rank),
                &mut config,
            )
        };
        if communicator.is_null() {
            return Err(said(functions, "beginning", status));
        }
        let communicator = AtomicPtr::new(communicator);
        let nccl = Self { functions, device, communicator, rank, ranks };
        nccl.settle("beginning", status, has_ended)?;
        Ok(nccl)
    }

    /// All-reduce: replaces each rank's matrices by their sums over all ranks, added in the order
    /// of the ranks. All ranks must have matrices of the same shapes.
    pub fn all_reduce(
        &self,
        matrices: &[CudaMatrix],
        has_ended: HasEnded,
    ) -> Result<Vec<CudaMatrix>> {
        let (packed, starts) = self.pack(matrices)?;
        let sum = self.add_parts(&packed, has_ended)?;
        // Overwrites the packed data, which has been sent and is no longer needed.
        self.gather_into(&sum, &packed, has_ended)?;
        self.finish(has_ended)?;
        let part = |(matrix, &start): (&CudaMatrix, &usize)| {
            let [rows, columns] = [matrix.rows(), matrix.columns()];
            packed.part(start, rows, columns).with_precision(matrix.precision())
        };
        Ok(matrices.iter().zip(&starts).map(part).collect())
    }

    /// Reduce-scatter: this rank's part of the sum of a matrix over all ranks, added in the order
    /// of the ranks. The rows are divided evenly among the ranks.
    pub fn reduce_scatter(&self, matrix: &CudaMatrix, has_ended: HasEnded) -> Result<CudaMatrix> {
        let whole = matrix.in_format(NumberFormat::F32)?.dense()?;
        if !whole.rows().is_multiple_of(self.ranks) {
            let problem = format!("{} rows for {} ranks", whole.rows(), self.ranks);
            return Err(Error::Layout { operation: "reduce-scatter", problem });
        }
        let sum = self.add_parts(&whole, has_ended)?;
        self.finish(has_ended)?;
        Ok(sum)
    }

    /// All-gather: the rows of all ranks, those of rank 0 first. All ranks must have the same
    /// number of rows.
    pub fn all_gather(&self, own: &CudaMatrix, has_ended: HasEnded) -> Result<CudaMatrix> {
        let own = own.in_format(NumberFormat::F32)?.dense()?;
        let all = own.like_f32(self.ranks * own.rows(), own.columns())?;
        self.gather_into(&own, &all, has_ended)?;
        self.finish(has_ended)?;
        Ok(all)
    }

    /// Broadcast: the matrix of rank 0; on other ranks, `own` only gives its shape.
    pub fn broadcast(&self, own: &CudaMatrix, has_ended: HasEnded) -> Result<CudaMatrix> {
        let own = own.in_format(NumberFormat::F32)?.dense()?;
        let received = own.like_f32(own.rows(), own.columns())?;
        if !own.is_empty() {
            let (from, to) = (pointer(&own), pointer(&received).cast_mut());
            let count = own.rows() * own.columns();
            let stream = self.stream()?;
            // SAFETY: both have this many values, and the target is new.
            let status = unsafe {
                let call = self.functions.broadcast;
                call(from, to, count, FLOAT32, 0, self.communicator()?, stream)
            };
            self.settle("broadcast", status, has_ended)?;
        }
        self.finish(has_ended)?;
        Ok(received)
    }

    /// Packs the matrices end to end into rows, the same number of rows for each rank, with zeros
    /// as padding; also returns the start of each matrix.
    fn pack(&self, matrices: &[CudaMatrix]) -> Result<(CudaMatrix, Vec<usize>)> {
        let mut next = 0;
        let mut starts = Vec::with_capacity(matrices.len());
        for matrix in matrices {
            starts.push(next);
            next += (matrix.rows() * matrix.columns()).next_multiple_of(ALIGNMENT);
        }
        let rows = next.div_ceil(WIDTH).next_multiple_of(self.ranks);
        let packed = CudaMatrix::zeros(self.device, NumberFormat::F32, rows, WIDTH)?;
        for (matrix, &start) in matrices.iter().zip(&starts) {
            let matrix = matrix.in_format(NumberFormat::F32)?;
            let target = packed.part(start, matrix.rows(), matrix.columns());
            // SAFETY: the packed matrix is new, and no two parts of it overlap.
            unsafe { target.update(&matrix, false)? };
        }
        Ok((packed, starts))
    }

    /// The sum over all ranks of this rank's part of a dense matrix.
    fn add_parts(&self, whole: &CudaMatrix, has_ended: HasEnded) -> Result<CudaMatrix> {
        let received = whole.like_f32(whole.rows(), whole.columns())?;
        let each = whole.rows() / self.ranks;
        let part = |of: &CudaMatrix, rank: usize| of.row_range(rank * each..(rank + 1) * each);
        if !whole.is_empty() {
            let (count, stream) = (each * whole.columns(), self.stream()?);
            let communicator = self.communicator()?;
            let number = |rank: usize| c_int::try_from(rank).unwrap_or(c_int::MAX);
            // SAFETY: a part has this many values in both matrices; the received ones are new, and
            // nothing reads them before the stream reaches that point.
            let status = unsafe {
                let Functions { group_start, group_end, send, receive, .. } = *self.functions;
                let mut status = group_start();
                for rank in 0..self.ranks {
                    let (from, to) = (part(whole, rank), part(&received, rank));
                    for asked in [
                        send(pointer(&from), count, FLOAT32, number(rank), communicator, stream),
                        receive(
                            pointer(&to).cast_mut(),
                            count,
                            FLOAT32,
                            number(rank),
                            communicator,
                            stream,
                        ),
                    ] {
                        status = worse(status, asked);
                    }
                }
                worse(status, group_end())
            };
            self.settle("exchange", status, has_ended)?;
        }
        // SAFETY: the received data is not shared.
        unsafe { sum_in_order(&received, self.ranks) }
    }

    /// Writes the rows of all ranks, end to end, into a dense matrix.
    fn gather_into(&self, own: &CudaMatrix, all: &CudaMatrix, has_ended: HasEnded) -> Result<()> {
        assert_eq!(self.ranks * own.rows(), all.rows(), "rows of all ranks");
        if own.is_empty() {
            return Ok(());
        }
        let (from, to, count) = (pointer(own), pointer(all).cast_mut(), own.rows() * own.columns());
        let stream = self.stream()?;
        // SAFETY: the target has this many values for each rank, and nothing reads it before the
        // stream reaches that point.
        let status = unsafe {
            (self.functions.all_gather)(from, to, count, FLOAT32, self.communicator()?, stream)
        };
        self.settle("gathering", status, has_ended)
    }

    fn stream(&self) -> Result<Stream> {
        Ok(self.device.gpu.stream()?.cu_stream().cast())
    }

    fn communicator(&self) -> Result<*mut c_void> {
        let communicator = self.communicator.load(Ordering::SeqCst);
        match communicator.is_null() {
            true => Err(Error::Device("the NCCL communicator was aborted".into())),
            false => Ok(communicator),
        }
    }

    /// Waits until a nonblocking call has been enqueued on the stream.
    fn settle(&self, what: &str, status: Status, has_ended: HasEnded) -> Result<()> {
        let mut status = status;
        while status == IN_PROGRESS {
            if has_ended() {
                return Err(self.give_up());
            }
            std::thread::sleep(NAP);
            status = self.state()?;
        }
        if status == SUCCESS {
            return Ok(());
        }
        self.give_up();
        Err(said(self.functions, what, status))
    }

    /// Waits until all work on the stream is done. A sum that could not be finished because a rank
    /// has exited is an error and is never used.
    fn finish(&self, has_ended: HasEnded) -> Result<()> {
        let stream = self.device.gpu.stream()?.cu_stream();
        loop {
            // SAFETY: the stream stays open as long as the GPU, which is never closed.
            let done = match unsafe { cuStreamQuery(stream) } {
                CUresult::CUDA_SUCCESS => true,
                CUresult::CUDA_ERROR_NOT_READY => false,
                error => {
                    self.give_up();
                    let error = cudarc::driver::result::DriverError(error);
                    return Err(failed("waiting for the sums of other ranks", error));
                }
            };
            self.settle("waiting", self.state()?, has_ended)?;
            if done {
                return Ok(());
            }
            if has_ended() {
                return Err(self.give_up());
            }
            std::thread::sleep(NAP);
        }
    }

    /// The current status of the communicator.
    fn state(&self) -> Result<Status> {
        let mut state = SUCCESS;
        // SAFETY: the communicator is open, and the pointer points to an integer that outlives the
        // call.
        match unsafe { (self.functions.state)(self.communicator()?, &mut state) } {
            SUCCESS => Ok(state),
            status => Err(said(self.functions, "its state", status)),
        }
    }

    /// Aborts everything that waits for other ranks, on the GPU too.
    fn give_up(&self) -> Error {
        let communicator = self.communicator.swap(std::ptr::null_mut(), Ordering::SeqCst);
        if !communicator.is_null() {
            // SAFETY: the communicator is open and no longer used.
            unsafe { (self.functions.abort)(communicator) };
        }
        Error::Device("another rank has exited".into())
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        let communicator = self.communicator.swap(std::ptr::null_mut(), Ordering::SeqCst);
        if !communicator.is_null() && self.device.gpu.stream().is_ok() {
            // SAFETY: the communicator is open and no longer used.
            unsafe { (self.functions.end)(communicator) };
        }
    }
}

/// The sum of `count` parts with the same number of rows: the first, plus the second, plus the
/// third, and so on. It replaces the first part.
///
/// # Safety
/// The data of `parts` must not be shared.
unsafe fn sum_in_order(parts: &CudaMatrix, count: usize) -> Result<CudaMatrix> {
    let each = parts.rows() / count;
    let sum = parts.row_range(0..each);
    for part in 1..count {
        // SAFETY: guaranteed by the caller; parts do not overlap.
        unsafe { sum.update(&parts.row_range(part * each..(part + 1) * each), true)? };
    }
    Ok(sum)
}

/// The address of a matrix's first value.
fn pointer(matrix: &CudaMatrix) -> *const c_void {
    matrix.pointer() as *const c_void
}

/// Combines the status of two calls.
fn worse(first: Status, second: Status) -> Status {
    match (first, second) {
        (SUCCESS, second) => second,
        (IN_PROGRESS, SUCCESS) => IN_PROGRESS,
        (IN_PROGRESS, second) => second,
        (failure, _) => failure,
    }
}

fn said(functions: &Functions, what: &str, status: Status) -> Error {
    Error::Device(
        format!("NCCL {}: {what}: {}", functions.version(), functions.words(status)).into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;

    /// Bit-identical to sums through the host, for values whose sums are rounded.
    #[test]
    fn parts_are_added_in_the_order_of_the_ranks() {
        if std::env::var("UNDERTONE_TEST_DEVICE").as_deref() != Ok("cuda") {
            return;
        }
        let device = CudaDevice::open(0).unwrap();
        let value = |i: usize| ((i * 104_729) % 1009) as f32 / 997.0 - 0.5;
        for (ranks, rows) in [(2, 1), (4, 3), (7, 5)] {
            let numbers: Vec<f32> = (0..ranks * rows * WIDTH).map(value).collect();
            let host = Host::from_vec(ranks * rows, WIDTH, numbers.clone());
            let parts = CudaMatrix::from_host(device, &host).unwrap();
            // SAFETY: the matrix was created here.
            let sum = unsafe { sum_in_order(&parts, ranks) }.unwrap().to_host().unwrap();
            let expected: Vec<f32> = (0..rows * WIDTH)
                .map(|i| {
                    let of = |rank: usize| numbers[rank * rows * WIDTH + i];
                    (1..ranks).fold(of(0), |sum, rank| sum + of(rank))
                })
                .collect();
            assert!(sum.dense()[..] == expected[..], "{ranks} ranks");
        }
    }

    #[test]
    fn the_first_failure_of_several_calls_is_told() {
        assert_eq!(worse(SUCCESS, SUCCESS), SUCCESS);
        assert_eq!((worse(SUCCESS, IN_PROGRESS), worse(IN_PROGRESS, SUCCESS)), (7, 7));
        assert_eq!((worse(IN_PROGRESS, 3), worse(3, IN_PROGRESS), worse(3, 5)), (3, 3, 3));
    }
}
