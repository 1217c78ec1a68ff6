// Copies between matrices of either format, and rows of a table. One block for each row of the
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

// The nearest bf16 of each of `count` numbers that lie end to end; 1024 for each block.
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
