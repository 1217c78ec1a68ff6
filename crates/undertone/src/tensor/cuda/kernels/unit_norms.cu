// Norms and inner products of the gradients G_u = Σ_{t ∈ unit u} e_t ⊗ a_t of privacy units,
// without ever writing G down (ghost clipping, book-keeping).
//
// A norm that is too small would let an example through that is larger than its bound, so rounding
// must be small and known. Every inner product here is added up in runs of RUN = 16 numbers in f32,
// and the runs in f64. With u = 2⁻²⁴, a run of n fused multiply-adds is off by at most n u Σ|x y|,
// so each result is off by less than c = 16 u (1 + 10⁻⁶) < 10⁻⁶ of Σ|x y|. What that means for norms
// stands in unit_norms.rs.
//
// Each block reads rows of its own unit only: a NaN in one unit cannot reach another.

#define SIDE 64
#define RUN 16

struct Task {
    // Rows of one unit, and of the other side: equal to them for norms.
    u32 start, end, other_start, other_end;
    // The first row (or column) and the first column of this tile, and how often it counts.
    u32 first, second, times, layer;
};

// A matrix as arrays of them lie in memory.
struct Part {
    const float* data;
    size stride, columns;
};

// wide_ij += ⟨row i of left, row j of right⟩ over all columns, for a tile of SIDE × SIDE rows,
// which begin with `left_row` and `right_row` and end before `left_end` and `right_end`. Thread
// (ty, tx) has the elements (ty + 16 i, tx + 16 j).
__device__ void add_inner(
    double (&wide)[4][4], const Part& left, size left_row, size left_end, const Part& right,
    size right_row, size right_end, float (*l)[SIDE + 1], float (*r)[SIDE + 1]) {
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    for (size column = 0; column < left.columns; column += RUN) {
        __syncthreads();
        for (int n = threadIdx.x; n < SIDE * RUN; n += 256) {
            int i = n / RUN, k = n % RUN;
            bool inside = column + k < left.columns;
            l[k][i] = inside && left_row + i < left_end
                          ? left.data[(left_row + i) * left.stride + column + k]
                          : 0.0f;
            r[k][i] = inside && right_row + i < right_end
                          ? right.data[(right_row + i) * right.stride + column + k]
                          : 0.0f;
        }
        __syncthreads();
        float run[4][4] = {};
#pragma unroll
        for (int k = 0; k < RUN; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    run[i][j] = fmaf(l[k][ty + 16 * i], r[k][tx + 16 * j], run[i][j]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) wide[i][j] += (double)run[i][j];
    }
}

// Gram matrices: partial[task] = times · Σ_{t,s} ⟨a_t, b_s⟩ Σ_k ⟨e_{k,t}, f_{k,s}⟩ over a tile of
// rows t of one side and s of the other. For norms b = a and f = e, and a tile off the diagonal
// counts twice. inputs: a, b; layers: e_1, f_1, e_2, f_2, …
extern "C" __global__ void __launch_bounds__(256) unit_gram(
    const Part* inputs, const Part* layers, size count, const Task* tasks, double* partial) {
    __shared__ float l[RUN][SIDE + 1], r[RUN][SIDE + 1];
    __shared__ double space[32];
    Task task = tasks[blockIdx.x];
    size left = (size)task.start + task.first, right = (size)task.other_start + task.second;
    double x[4][4] = {}, y[4][4] = {};
    add_inner(x, inputs[0], left, task.end, inputs[1], right, task.other_end, l, r);
    for (size k = 0; k < count; ++k)
        add_inner(y, layers[2 * k], left, task.end, layers[2 * k + 1], right, task.other_end, l,
                  r);
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum += x[i][j] * y[i][j];
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) partial[blockIdx.x] = (double)task.times * sum;
}

// Formed gradients: partial[task] = Σ_ij G_ij² over a tile of G, whose rows are columns of e and
// whose columns are those of a. For a unit with more rows than G is wide this is less work.
extern "C" __global__ void __launch_bounds__(256) unit_formed(
    const Part* inputs, const Part* layers, const Task* tasks, double* partial) {
    __shared__ float l[RUN][SIDE + 1], r[RUN][SIDE + 1];
    __shared__ double space[32];
    Task task = tasks[blockIdx.x];
    Part a = inputs[0], e = layers[2 * task.layer];
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    double g[4][4] = {};
    for (size row = task.start; row < task.end; row += RUN) {
        __syncthreads();
        for (int n = threadIdx.x; n < SIDE * RUN; n += 256) {
            int k = n / SIDE, i = n % SIDE;
            bool inside = row + k < task.end;
            l[k][i] = inside && (size)task.first + i < e.columns
                          ? e.data[(row + k) * e.stride + task.first + i]
                          : 0.0f;
            r[k][i] = inside && (size)task.second + i < a.columns
                          ? a.data[(row + k) * a.stride + task.second + i]
                          : 0.0f;
        }
        __syncthreads();
        float run[4][4] = {};
#pragma unroll
        for (int k = 0; k < RUN; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    run[i][j] = fmaf(l[k][ty + 16 * i], r[k][tx + 16 * j], run[i][j]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) g[i][j] += (double)run[i][j];
    }
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum += g[i][j] * g[i][j];
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// row_norms[t] = ‖a_t‖ · √(Σ_k ‖e_{k,t}‖²), in f64 throughout: the square of an f32 is exact there.
// Block: a row; `side` 0 takes a and each e, 1 takes b and each f.
extern "C" __global__ void unit_row_norms(
    const Part* inputs, const Part* layers, size count, size side, double* row_norms) {
    __shared__ double space[32];
    size row = blockIdx.x;
    double squares[2] = {0.0, 0.0};
    for (size k = 0; k <= count; ++k) {
        Part part = k == 0 ? inputs[side] : layers[2 * (k - 1) + side];
        const float* x = part.data + row * part.stride;
        for (size j = threadIdx.x; j < part.columns; j += blockDim.x)
            squares[k > 0] += (double)x[j] * (double)x[j];
    }
    double one = block_sum(squares[0], space), other = block_sum(squares[1], space);
    if (threadIdx.x == 0) row_norms[row] = sqrt(one) * sqrt(other);
}

// For each unit u: sums[2 u] = Σ of its partials, which are those from firsts[u] to firsts[u + 1],
// and sums[2 u + 1] = Σ of the norms of its rows. Block: a unit.
extern "C" __global__ void unit_sums(
    const double* partial, const u32* firsts, const double* row_norms, const u32* ranges,
    double* sums) {
    __shared__ double space[32];
    size unit = blockIdx.x;
    double sum = 0.0, most = 0.0;
    for (size i = (size)firsts[unit] + threadIdx.x; i < firsts[unit + 1]; i += blockDim.x)
        sum += partial[i];
    for (size t = (size)ranges[2 * unit] + threadIdx.x; t < ranges[2 * unit + 1]; t += blockDim.x)
        most += row_norms[t];
    sum = block_sum(sum, space);
    most = block_sum(most, space);
    if (threadIdx.x == 0) {
        sums[2 * unit] = sum;
        sums[2 * unit + 1] = most;
    }
}

// sums[u] = Σ_{t ∈ unit u} e_t, or of a_t ⊙ e_t where a is given: [units, columns], added up in
// f64. Block (u, c): 128 columns of a unit.
extern "C" __global__ void unit_row_sums(
    const float* a, size a_stride, const float* e, size e_stride, const u32* ranges, float* sums,
    size columns) {
    size unit = blockIdx.x, j = (size)blockIdx.y * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    double sum = 0.0;
    for (size t = ranges[2 * unit]; t < ranges[2 * unit + 1]; ++t) {
        float x = e[t * e_stride + j];
        sum += a ? (double)__fmul_rn(a[t * a_stride + j], x) : (double)x;
    }
    sums[unit * columns + j] = (float)sum;
}
