// Operations on whole rows of `real`; sums are in f32. One block per row of the result unless
// stated otherwise.

// c = a + b.
extern "C" __global__ void add(
    const real* a, size a_stride, const real* b, size b_stride, real* c, size columns) {
    size row = blockIdx.x;
    map_rows(a + row * a_stride, b + row * b_stride, c + row * columns, columns,
             [](float x, float y) { return x + y; });
}

// average += weight · (x − average), rounded as on the CPU: without fused multiply-add.
extern "C" __global__ void lerp_rows(
    const real* x, size x_stride, float weight, float* average, size columns) {
    size row = blockIdx.x;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float* y = average + row * columns + j;
        *y = __fadd_rn(*y, __fmul_rn(weight, __fsub_rn(wide(x[row * x_stride + j]), *y)));
    }
}

// y_i = factor_i · x_i; a factor of 0 gives zeros, whatever the row contains.
extern "C" __global__ void scale_rows(
    const real* x, size x_stride, const float* factors, real* y, size columns) {
    size row = blockIdx.x;
    float factor = factors[row];
    map_row(x + row * x_stride, y + row * columns, columns,
            [&](float value, size) { return factor == 0.0f ? 0.0f : value * factor; });
}

// y_ij = factor_j · x_ij, in f32 whatever the format of x, because norms under weights are computed
// from it.
extern "C" __global__ void scale_columns(
    const real* x, size x_stride, const float* factors, float* y, size columns) {
    size row = blockIdx.x;
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        y[row * columns + j] = wide(x[row * x_stride + j]) * factors[j];
}

// y_ij = w_{row of i, j} · x_ij, where row i of x has the weights of row indices[i], or of row i; a
// weight of 0 gives zero, whatever x is.
extern "C" __global__ void weigh_rows(
    const real* x, size x_stride, const u32* indices, const float* weights, real* y,
    size columns) {
    size row = blockIdx.x;
    const float* of_row = weights + (indices ? (size)indices[row] : row) * columns;
    map_row(x + row * x_stride, y + row * columns, columns,
            [&](float value, size j) { return of_row[j] == 0.0f ? 0.0f : value * of_row[j]; });
}

// onto_{targets[k]} += Σ_{starts[k] ≤ n < starts[k + 1]} x_{order[n]}, one block for each target k
// and 256 columns. The rows of x are sorted by target, so that one thread adds up a value in the
// order of the rows.
template <typename T>
__device__ __forceinline__ void add_rows(
    const T* x, size x_stride, const u32* order, const u32* starts, size target, float* onto,
    size columns) {
    size j = (size)blockIdx.y * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    u32 first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    onto += target * columns + j;
    float sum = *onto;
#pragma unroll 8
    for (u32 n = first; n < end; ++n) sum += wide(x[(size)(order ? order[n] : n) * x_stride + j]);
    *onto = sum;
}

extern "C" __global__ void scatter(
    const real* x, size x_stride, const u32* order, const u32* starts, const u32* targets,
    float* onto, size columns) {
    add_rows(x, x_stride, order, starts, targets[blockIdx.x], onto, columns);
}

// The same for f32 sums that are already in the order of their targets.
extern "C" __global__ void scatter_sums(
    const float* x, size x_stride, const u32* starts, const u32* targets, float* onto,
    size columns) {
    add_rows(x, x_stride, (const u32*)0, starts, targets[blockIdx.x], onto, columns);
}

// Sums of columns over 512 rows at a time: block (c, r) of 32 × 8 threads writes partial[r][32 c
// …]. With b, the sums are those of a ⊙ b. With factors, each row is multiplied by its factor, and
// a row with factor 0 is ignored, whatever it contains.
extern "C" __global__ void column_sums(
    const real* a, size a_stride, const real* b, size b_stride, const float* factors, size rows,
    size columns, float* partial) {
    __shared__ float space[8][33];
    size j = (size)blockIdx.x * 32 + threadIdx.x;
    size first = (size)blockIdx.y * 512, end = first + 512 < rows ? first + 512 : rows;
    float sum = 0.0f;
    if (j < columns)
        for (size i = first + threadIdx.y; i < end; i += 8) {
            float factor = factors ? factors[i] : 1.0f;
            if (factor == 0.0f) continue;
            float x = wide(a[i * a_stride + j]) * factor;
            sum = b ? fmaf(x, wide(b[i * b_stride + j]), sum) : sum + x;
        }
    space[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && j < columns) {
        float total = 0.0f;
        for (int i = 0; i < 8; ++i) total += space[i][threadIdx.x];
        partial[(size)blockIdx.y * columns + j] = total;
    }
}

// sums_j = Σ_r partial_rj; one thread per column.
extern "C" __global__ void add_partials(
    const float* partial, size parts, size columns, float* sums) {
    size j = (size)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    float sum = 0.0f;
    for (size r = 0; r < parts; ++r) sum += partial[r * columns + j];
    sums[j] = sum;
}

// y = x ⊙ mask; the value at (i, j) has the position i · columns + j, modulo 2³².
extern "C" __global__ void drop_out(
    const real* x, size x_stride, u64 seed, float rate, float kept, real* y, size columns) {
    size row = blockIdx.x;
    map_row(x + row * x_stride, y + row * columns, columns, [&](float value, size j) {
        u32 position = (u32)(row * columns) + (u32)j;
        return value * dropout_factor(seed, rate, kept, position);
    });
}
