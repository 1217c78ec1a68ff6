// Operations on whole rows. One block for each row of the result unless it is said otherwise.

// to = from, or to += from: [rows, columns], both with strides.
extern "C" __global__ void copy(
    const float* from, size from_stride, float* to, size to_stride, size columns, size add) {
    size row = blockIdx.x;
    from += row * from_stride;
    to += row * to_stride;
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        to[j] = add ? to[j] + from[j] : from[j];
}

// c = a + b.
extern "C" __global__ void add(
    const float* a, size a_stride, const float* b, size b_stride, float* c, size columns) {
    size row = blockIdx.x;
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        c[row * columns + j] = a[row * a_stride + j] + b[row * b_stride + j];
}

// y_i = factor_i · x_i; a factor of 0 leaves zeros whatever the row holds.
extern "C" __global__ void scale_rows(
    const float* x, size x_stride, const float* factors, float* y, size columns) {
    size row = blockIdx.x;
    float factor = factors[row];
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        y[row * columns + j] = factor == 0.0f ? 0.0f : x[row * x_stride + j] * factor;
}

// y_ij = factor_j · x_ij.
extern "C" __global__ void scale_columns(
    const float* x, size x_stride, const float* factors, float* y, size columns) {
    size row = blockIdx.x;
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        y[row * columns + j] = x[row * x_stride + j] * factors[j];
}

// Row i of the result is row indices[i] of the table.
extern "C" __global__ void gather(
    const float* table, size table_stride, const u32* indices, float* y, size columns) {
    size row = blockIdx.x;
    table += (size)indices[row] * table_stride;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) y[row * columns + j] = table[j];
}

// onto_{targets[k]} += Σ_{starts[k] ≤ n < starts[k + 1]} x_{order[n]}, one block for each target k
// and 256 columns: rows of x are sorted by their target, so that one thread adds up a number in
// the order of the rows.
extern "C" __global__ void scatter(
    const float* x, size x_stride, const u32* order, const u32* starts, const u32* targets,
    float* onto, size columns) {
    size j = (size)blockIdx.y * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    u32 first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    onto += (size)targets[blockIdx.x] * columns + j;
    float sum = *onto;
#pragma unroll 8
    for (u32 n = first; n < end; ++n) sum += x[(size)order[n] * x_stride + j];
    *onto = sum;
}

// Sums of columns of 512 rows at a time: block (c, r) of 32 × 8 threads writes partial[r][32 c …].
// With b the sums are those of a ⊙ b.
extern "C" __global__ void column_sums(
    const float* a, size a_stride, const float* b, size b_stride, size rows, size columns,
    float* partial) {
    __shared__ float space[8][33];
    size j = (size)blockIdx.x * 32 + threadIdx.x;
    size first = (size)blockIdx.y * 512, end = first + 512 < rows ? first + 512 : rows;
    float sum = 0.0f;
    if (j < columns)
        for (size i = first + threadIdx.y; i < end; i += 8)
            sum = b ? fmaf(a[i * a_stride + j], b[i * b_stride + j], sum)
                    : sum + a[i * a_stride + j];
    space[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && j < columns) {
        float total = 0.0f;
        for (int i = 0; i < 8; ++i) total += space[i][threadIdx.x];
        partial[(size)blockIdx.y * columns + j] = total;
    }
}

// sums_j = Σ_r partial_rj; one thread for each column.
extern "C" __global__ void add_partials(
    const float* partial, size parts, size columns, float* sums) {
    size j = (size)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    float sum = 0.0f;
    for (size r = 0; r < parts; ++r) sum += partial[r * columns + j];
    sums[j] = sum;
}

// y = x ⊙ mask; the number at (i, j) has the position i · columns + j, modulo 2³².
extern "C" __global__ void drop_out(
    const float* x, size x_stride, u64 seed, float rate, float kept, float* y, size columns) {
    size row = blockIdx.x;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        u32 position = (u32)(row * columns) + (u32)j;
        y[row * columns + j] =
            x[row * x_stride + j] * dropout_factor(seed, rate, kept, position);
    }
}
