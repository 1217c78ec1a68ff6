// Shared by all kernels and prepended to each of the other files. No header of the toolkit is
// needed.
//
// Matrices are row-major `f32`: element (i, j) of X is at X[i * X_stride + j]. Outputs are dense
// unless they have their own stride. Sizes and strides are 64-bit, so that no product of them
// overflows.
//
// Nothing here uses floating-point atomics: the shapes determine the order of every sum, so results
// are identical from run to run.

typedef long long size;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INFINITE __int_as_float(0x7f800000)

// A bf16 value as stored in memory: the upper half of an f32. Arithmetic is in f32.
struct __align__(2) bf16 {
    unsigned short bits;
};

__device__ __forceinline__ float wide(float x) {
    return x;
}

__device__ __forceinline__ float wide(bf16 x) {
    return __uint_as_float((u32)x.bits << 16);
}

// The nearest bf16, ties to even; NaN stays NaN. The error is at most 2⁻⁸ of x.
__device__ __forceinline__ bf16 nearest_bf16(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{(unsigned short)((bits >> 16) | 0x40u)};
    return bf16{(unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

__device__ __forceinline__ void narrow(float x, float& to) {
    to = x;
}

__device__ __forceinline__ void narrow(float x, bf16& to) {
    to = nearest_bf16(x);
}

// Σ over a block of 32 · n threads, n ≤ 32; all threads get the result. `space` has room for 32
// values.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* space) {
    for (int offset = 16; offset > 0; offset >>= 1)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    __syncthreads();
    if (lane == 0) space[warp] = value;
    __syncthreads();
    T total = 0;
    for (int i = 0; i < warps; ++i) total += space[i];
    return total;
}

// The largest value of a block, likewise; NaN is ignored.
__device__ __forceinline__ float block_max(float value, float* space) {
    for (int offset = 16; offset > 0; offset >>= 1)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    __syncthreads();
    if (lane == 0) space[warp] = value;
    __syncthreads();
    float largest = space[0];
    for (int i = 1; i < warps; ++i) largest = fmaxf(largest, space[i]);
    return largest;
}

// The dropout factor of the value at a position: 0 with probability `rate`, otherwise `kept` = 1 /
// (1 − rate). The hash is bit-identical to `Dropout::factor` in tensor/dropout.rs.
__device__ __forceinline__ float dropout_factor(u64 seed, float rate, float kept, u32 position) {
    u32 h = position * 0x9e3779b1u ^ (u32)seed;
    h = (h ^ (h >> 16)) * 0x85ebca6bu ^ (u32)(seed >> 32);
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    float uniform = (float)(int)(h >> 8) * (1.0f / 16777216.0f);
    return uniform < rate ? 0.0f : kept;
}

// The seed of a different mask: `Dropout::fork`.
__device__ __forceinline__ u64 dropout_fork(u64 seed, u64 salt) {
    u64 z = seed + (salt + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
