// Sums over the rows of privacy units, and the bounds of norms that are made of them. Norms are kept
// in f64, one number for each unit.

// A matrix as arrays of them lie in memory.
struct Part {
    const real* data;
    size stride, columns;
};

// row_norms[t] = ‖a_t‖ · √(Σ_k ‖e_{k,t}‖²), in f64 throughout: the square of an f32 is exact there.
// Without inputs ‖a_t‖ counts as 1. Block: a row; `side` 0 takes a and each e, 1 takes b and each f.
extern "C" __global__ void unit_row_norms(
    const Part* inputs, const Part* layers, size count, size side, double* row_norms) {
    __shared__ double space[32];
    size row = blockIdx.x;
    double of_input = 0.0, of_layers = 0.0;
    if (inputs) {
        Part part = inputs[side];
        const real* x = part.data + row * part.stride;
        for (size j = threadIdx.x; j < part.columns; j += blockDim.x)
            of_input += (double)wide(x[j]) * (double)wide(x[j]);
    }
    for (size k = 0; k < count; ++k) {
        Part part = layers[2 * k + side];
        const real* x = part.data + row * part.stride;
        for (size j = threadIdx.x; j < part.columns; j += blockDim.x)
            of_layers += (double)wide(x[j]) * (double)wide(x[j]);
    }
    of_input = inputs ? block_sum(of_input, space) : 1.0;
    of_layers = block_sum(of_layers, space);
    if (threadIdx.x == 0) row_norms[row] = sqrt(of_input) * sqrt(of_layers);
}

// Σ over the tasks and rows of a unit: S of its partial sums, and M of the norms of its rows, which
// are part of the partial sums or, where they are given, `row_norms`. Block: a unit.
__device__ __forceinline__ void unit_totals(
    const double* partial, const u32* firsts, const double* row_norms, const u32* ranges,
    double* sum, double* most) {
    __shared__ double space[32];
    size unit = blockIdx.x;
    double s = 0.0, m = 0.0;
    for (size i = (size)firsts[unit] + threadIdx.x; i < firsts[unit + 1]; i += blockDim.x) {
        s += partial[2 * i];
        if (!row_norms) m += partial[2 * i + 1];
    }
    if (row_norms)
        for (size t = (size)ranges[2 * unit] + threadIdx.x; t < ranges[2 * unit + 1];
             t += blockDim.x)
            m += row_norms[t];
    *sum = block_sum(s, space);
    *most = block_sum(m, space);
}

// sums[u] += times · (√(max(S, 0) + slack · M²) + rounding · M)²; a NaN stays one. Nothing is added
// for units without tasks: their norms are 0, or made of other tasks.
extern "C" __global__ void unit_bounds(
    const double* partial, const u32* firsts, const double* row_norms, const u32* ranges,
    double slack, double rounding, double times, double* sums) {
    double sum, most;
    unit_totals(partial, firsts, row_norms, ranges, &sum, &most);
    size unit = blockIdx.x;
    if (threadIdx.x != 0 || firsts[unit] == firsts[unit + 1]) return;
    if (sum < 0.0) sum = 0.0;
    double norm = sqrt(sum + slack * most * most) + rounding * most;
    sums[unit] += times * norm * norm;
}

// sums[u] += times · (S + slack · M M′), of inner products.
extern "C" __global__ void unit_inner_bounds(
    const double* partial, const u32* firsts, const double* row_norms, const u32* ranges,
    const double* other_norms, const u32* other_ranges, double slack, double times,
    double* sums) {
    double sum, most, other_sum, other_most;
    unit_totals(partial, firsts, row_norms, ranges, &sum, &most);
    unit_totals(partial, firsts, other_norms, other_ranges, &other_sum, &other_most);
    if (threadIdx.x == 0) sums[blockIdx.x] += times * (sum + slack * most * other_most);
}

// sums[u] += times · Σ_j w_j x_uj², of rows that are gradients of units; without weights w = 1.
// Block: a unit.
extern "C" __global__ void unit_squares(
    const real* x, size stride, const float* weights, double times, double* sums, size columns) {
    __shared__ double space[32];
    size unit = blockIdx.x;
    double sum = 0.0;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        double value = wide(x[unit * stride + j]);
        sum += (weights ? (double)weights[j] : 1.0) * value * value;
    }
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) sums[unit] += times * sum;
}

// sums[u] = Σ_{t ∈ unit u} e_t, or of a_t ⊙ e_t where a is given: [units, columns], added up in
// f64. Block (u, c): 128 columns of a unit.
extern "C" __global__ void unit_row_sums(
    const real* a, size a_stride, const real* e, size e_stride, const u32* ranges, float* sums,
    size columns) {
    size unit = blockIdx.x, j = (size)blockIdx.y * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    double sum = 0.0;
    u32 end = ranges[2 * unit + 1];
#pragma unroll 8
    for (size t = ranges[2 * unit]; t < end; ++t) {
        float x = wide(e[t * e_stride + j]);
        sum += a ? (double)__fmul_rn(wide(a[t * a_stride + j]), x) : (double)x;
    }
    sums[unit * columns + j] = (float)sum;
}
