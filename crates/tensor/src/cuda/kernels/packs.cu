// Rows of `real`, float or bf16, read and written in packs of 16 bytes if their addresses allow it.
// `real` is defined at compile time: `Source` in source.rs.

#define PACK (16 / (int)sizeof(real))

struct __align__(16) Pack {
    real x[PACK];
};

__device__ __forceinline__ bool aligned(const void* pointer) {
    return ((u64)pointer & 15) == 0;
}

// y_j = f(x_j, j) for the columns j of one row, divided among the threads of the block.
template <typename F>
__device__ __forceinline__ void map_row(const real* x, real* y, size columns, F f) {
    if (columns % PACK == 0 && aligned(x) && aligned(y)) {
        for (size n = threadIdx.x; n < columns / PACK; n += blockDim.x) {
            Pack p = ((const Pack*)x)[n];
#pragma unroll
            for (int k = 0; k < PACK; ++k) narrow(f(wide(p.x[k]), n * PACK + k), p.x[k]);
            ((Pack*)y)[n] = p;
        }
        return;
    }
    for (size j = threadIdx.x; j < columns; j += blockDim.x) narrow(f(wide(x[j]), j), y[j]);
}

// y_j = f(a_j, b_j).
template <typename F>
__device__ __forceinline__ void map_rows(
    const real* a, const real* b, real* y, size columns, F f) {
    if (columns % PACK == 0 && aligned(a) && aligned(b) && aligned(y)) {
        for (size n = threadIdx.x; n < columns / PACK; n += blockDim.x) {
            Pack p = ((const Pack*)a)[n], q = ((const Pack*)b)[n];
#pragma unroll
            for (int k = 0; k < PACK; ++k) narrow(f(wide(p.x[k]), wide(q.x[k])), p.x[k]);
            ((Pack*)y)[n] = p;
        }
        return;
    }
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        narrow(f(wide(a[j]), wide(b[j])), y[j]);
}

// The values of one row that a thread holds: packs n, n + threads, …, at most HELD of them.
#define HELD 4

__device__ __forceinline__ bool holds(size columns) {
    return columns % PACK == 0 && columns <= (size)HELD * PACK * blockDim.x;
}

// Calls f(held, n) for each pack n of the row that belongs to this thread, where held counts them
// from 0.
template <typename F>
__device__ __forceinline__ void each_pack(size columns, F f) {
#pragma unroll
    for (int held = 0; held < HELD; ++held) {
        size n = (size)held * blockDim.x + threadIdx.x;
        if (n < columns / PACK) f(held, n);
    }
}
