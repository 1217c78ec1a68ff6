// Copies between matrices of either format, and gathers rows of a table. One block per row of the
// result. The kernels' names end with the formats of source and target: f (f32) or b (bf16).

// to = from, or to += from: [rows, columns], both with strides. A stride of 0 repeats one row.
template <typename From, typename To>
__device__ __forceinline__ void copy_row(const From* from, To* to, size columns, size add) {
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        narrow(add ? wide(to[j]) + wide(from[j]) : wide(from[j]), to[j]);
}

#define COPY(name, From, To)                                                                   \
    extern "C" __global__ void copy_##name(                                                    \
        const From* from, size from_stride, To* to, size to_stride, size columns, size add) {  \
        size row = blockIdx.x;                                                                 \
        copy_row(from + row * from_stride, to + row * to_stride, columns, add);                \
    }

COPY(ff, float, float)
COPY(fb, float, bf16)
COPY(bf, bf16, float)
COPY(bb, bf16, bf16)

// Row i of the result is row indices[i] of the table.
#define GATHER(name, From, To)                                                                 \
    extern "C" __global__ void gather_##name(                                                  \
        const From* table, size table_stride, const u32* indices, To* y, size columns) {       \
        size row = blockIdx.x;                                                                 \
        copy_row(table + (size)indices[row] * table_stride, y + row * columns, columns, 0);    \
    }

GATHER(ff, float, float)
GATHER(fb, float, bf16)
GATHER(bf, bf16, float)
GATHER(bb, bf16, bf16)

// The nearest bf16 of each of `count` consecutive values; 1024 per block.
extern "C" __global__ void all_to_bf16(const float* from, bf16* to, size count) {
    size first = (size)blockIdx.x * 1024 + threadIdx.x * 4;
    if (first + 4 <= count) {
        float4 x = *(const float4*)(from + first);
        bf16 y[4] = {nearest_bf16(x.x), nearest_bf16(x.y), nearest_bf16(x.z), nearest_bf16(x.w)};
        u64 all = 0;
#pragma unroll
        for (int k = 3; k >= 0; --k) all = all << 16 | y[k].bits;
        *(u64*)(to + first) = all;
        return;
    }
    for (size j = first; j < count; ++j) to[j] = nearest_bf16(from[j]);
}

// The levels of NF4, as in tensor/compact/nf4.rs.
__device__ const float nf4_levels[16] = {
    -1.0f, -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f, -0.091050036f, 0.0f,
    0.0795803f, 0.1609302f, 0.2461123f, 0.33791524f, 0.44070983f, 0.562617f, 0.72295684f, 1.0f};

// One row of the result from NF4: values of four bits, starting at index `first`. The buffer
// contains the number of values, their codes, a scale for each 64 of them and, for each 256 scales,
// the smallest one and the step; see tensor/cuda/nf4.rs.
template <typename To>
__device__ __forceinline__ void expand_nf4(
    const unsigned char* buffer, size first, To* to, size columns) {
    size count = *(const size*)buffer;
    const unsigned char* codes = buffer + 16;
    size bytes = (count + 1) / 2, blocks = (count + 63) / 64;
    const unsigned char* scales = codes + (bytes + 15) / 16 * 16;
    const float2* groups = (const float2*)(scales + (blocks + 15) / 16 * 16);
    __shared__ float levels[16];
    if (threadIdx.x < 16) levels[threadIdx.x] = nf4_levels[threadIdx.x];
    __syncthreads();
    auto scale_of = [&](size i) {
        float2 group = groups[i / (64 * 256)];
        return group.x + (float)scales[i / 64] * group.y;
    };
    // Eight values of one block at a time if rows start at multiples of eight.
    size packs = first % 8 == 0 && (size)to % 16 == 0 ? columns / 8 : 0;
    for (size p = threadIdx.x; p < packs; p += blockDim.x) {
        size i = first + 8 * p;
        u32 eight = *(const u32*)(codes + i / 2);
        float scale = scale_of(i);
        __align__(16) To out[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) narrow(levels[eight >> (4 * k) & 15u] * scale, out[k]);
        uint4* at = (uint4*)(to + 8 * p);
#pragma unroll
        for (int k = 0; k < (int)(8 * sizeof(To) / 16); ++k) at[k] = ((const uint4*)out)[k];
    }
    for (size j = 8 * packs + threadIdx.x; j < columns; j += blockDim.x) {
        size i = first + j;
        narrow(levels[codes[i / 2] >> (4 * (i & 1)) & 15] * scale_of(i), to[j]);
    }
}

#define EXPAND(name, To)                                                                        \
    extern "C" __global__ void expand_nf4_##name(                                               \
        const unsigned char* buffer, size first, size stride, To* to, size to_stride,           \
        size columns) {                                                                         \
        size row = blockIdx.x;                                                                  \
        expand_nf4(buffer, first + row * stride, to + row * to_stride, columns);                \
    }

EXPAND(f, float)
EXPAND(b, bf16)
