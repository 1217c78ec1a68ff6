// Statistics of released gradients, summed over rows and over columns:
//
//   sensitivity √max(g² − s², 0) · |ω|   or   square g² − s²
//
// of g, ω [rows, columns] in f32 and s = std · factor, where the std is the product of that of the
// row and that of the column, one per coordinate, or one for all.

struct Stds {
    const float *rows, *columns, *each;
    float same, factor;
};

__device__ __forceinline__ float statistic(
    bool sensitivity, float g, float w, const Stds& stds, size row, size column, size columns) {
    float std = stds.rows   ? stds.rows[row] * stds.columns[column]
                : stds.each ? stds.each[row * columns + column]
                            : stds.same;
    float s = std * stds.factor, square = fmaf(g, g, -(s * s));
    return sensitivity ? sqrtf(fmaxf(square, 0.0f)) * fabsf(w) : square;
}

// sums[i], one block per row.
extern "C" __global__ void sums_of_rows(
    bool sensitivity, const float* g, size g_stride, const float* w, size w_stride,
    const float* row_stds, const float* column_stds, const float* each, float same, float factor,
    size rows, size columns, float* sums, float* partial) {
    __shared__ float space[32];
    Stds stds = {row_stds, column_stds, each, same, factor};
    size i = blockIdx.x;
    float sum = 0.0f;
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        sum += statistic(sensitivity, g[i * g_stride + j], w[i * w_stride + j], stds, i, j,
                         columns);
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) sums[i] = sum;
}

// partial[r][j]: sums of the columns over 512 rows at a time. Block (c, r) of 32 × 8 threads:
// columns 32 c …
extern "C" __global__ void sums_of_columns(
    bool sensitivity, const float* g, size g_stride, const float* w, size w_stride,
    const float* row_stds, const float* column_stds, const float* each, float same, float factor,
    size rows, size columns, float* sums, float* partial) {
    __shared__ float space[8][33];
    Stds stds = {row_stds, column_stds, each, same, factor};
    size j = (size)blockIdx.x * 32 + threadIdx.x;
    size first = (size)blockIdx.y * 512, end = first + 512 < rows ? first + 512 : rows;
    float sum = 0.0f;
    if (j < columns)
        for (size i = first + threadIdx.y; i < end; i += 8)
            sum += statistic(sensitivity, g[i * g_stride + j], w[i * w_stride + j], stds, i, j,
                             columns);
    space[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && j < columns) {
        float total = 0.0f;
        for (int i = 0; i < 8; ++i) total += space[i][threadIdx.x];
        partial[(size)blockIdx.y * columns + j] = total;
    }
}

// stds_ij = rows_i · columns_j, one block per row.
extern "C" __global__ void product_of_stds(
    const float* rows, const float* columns, float* stds, size width) {
    size i = blockIdx.x;
    float row = rows[i];
    for (size j = threadIdx.x; j < width; j += blockDim.x)
        stds[i * width + j] = __fmul_rn(row, columns[j]);
}
