// Norms and inner products of the gradients G_u = Σ_{t ∈ unit u} e_t ⊗ a_t of privacy units,
// without ever storing G (ghost clipping, book-keeping).
//
// A norm that is too small would let an example exceed its bound, so rounding errors must be small
// and known. Every inner product here is summed in f32 in runs of RUN = 16 values, and the runs are
// summed in f64. With u = 2⁻²⁴, a run of n fused multiply-adds has an error of at most n u Σ|x y|,
// so each result has an error of less than c = 16 u (1 + 10⁻⁶) < 10⁻⁶ of Σ|x y|. unit_norms/mod.rs
// derives the bound on norms.
//
// Each block only reads rows of its own unit: a NaN in one unit cannot reach another.

#define SIDE 64
#define RUN 16

// sums_ij += ⟨row i of left, row j of right⟩ over all columns, for a tile of SIDE × SIDE rows,
// which start at `left_row` and `right_row` and end before `left_end` and `right_end`. Thread (ty,
// tx) has the elements (ty + 16 i, tx + 16 j).
__device__ void add_inner(
    double (&sums)[4][4], const Part& left, size left_row, size left_end, const Part& right,
    size right_row, size right_end, float (*l)[SIDE + 1], float (*r)[SIDE + 1]) {
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    for (size column = 0; column < left.columns; column += RUN) {
        __syncthreads();
        for (int n = threadIdx.x; n < SIDE * RUN; n += 256) {
            int i = n / RUN, k = n % RUN;
            bool inside = column + k < left.columns;
            l[k][i] = inside && left_row + i < left_end
                          ? wide(left.data[(left_row + i) * left.stride + column + k])
                          : 0.0f;
            r[k][i] = inside && right_row + i < right_end
                          ? wide(right.data[(right_row + i) * right.stride + column + k])
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
            for (int j = 0; j < 4; ++j) sums[i][j] += (double)run[i][j];
    }
}

// Gram matrices: partial[2 task] = times · Σ_{t,s} X_ts Y_ts over a tile of rows t of one side and
// s of the other, with Y_ts = Σ_k ⟨e_{k,t}, f_{k,s}⟩ and X_ts according to `Pairs`: ⟨a_t, b_s⟩ for
// products, [index of t = index of s] for tables. For norms, b = a and f = e, a tile off the
// diagonal counts twice, and partial[2 task + 1] = Σ_t √(X_tt Y_tt) over the tile's part of the
// diagonal. layers: e_1, f_1, e_2, f_2, …
__device__ __forceinline__ void gram(
    const Pairs& pairs, const Part* layers, size count, const Task* tasks, double* partial) {
    __shared__ float l[RUN][SIDE + 1], r[RUN][SIDE + 1];
    __shared__ double space[32];
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    Task task = tasks[blockIdx.x];
    size left = (size)task.start + task.first, right = (size)task.other_start + task.second;
    double x[4][4] = {}, y[4][4] = {};
    if (pairs.inputs)
        add_inner(x, pairs.inputs[0], left, task.end, pairs.inputs[1], right, task.other_end, l,
                  r);
    for (size k = 0; k < count; ++k)
        add_inner(y, layers[2 * k], left, task.end, layers[2 * k + 1], right, task.other_end, l,
                  r);
    double sum = 0.0, diagonal = 0.0, lost_x, lost_y;
    lost(pairs, layers, count, &lost_x, &lost_y);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            size t = left + ty + 16 * i, s = right + tx + 16 * j;
            double pair = x[i][j];
            if (pairs.indices && t < task.end && s < task.other_end) {
                u32 index = pairs.indices[t];
                pair = pairs.others ? (index == pairs.others[s] ? 1.0 : 0.0)
                                    : wide(pairs.factor.data[s * pairs.factor.stride + index]);
            }
            sum += pair * y[i][j];
            if (t == s && t < task.end)
                diagonal += sqrt((pair + lost_x) * (y[i][j] + lost_y));
        }
    sum = block_sum(sum, space);
    diagonal = block_sum(diagonal, space);
    if (threadIdx.x == 0) {
        partial[2 * blockIdx.x] = (double)task.times * sum;
        partial[2 * blockIdx.x + 1] = diagonal;
    }
}

extern "C" __global__ void __launch_bounds__(256) unit_gram(
    const Part* inputs, const Part* layers, size count, const Task* tasks, double* partial) {
    gram(Pairs{inputs, 0, 0, Part{}}, layers, count, tasks, partial);
}

extern "C" __global__ void __launch_bounds__(256) unit_table(
    const u32* indices, const u32* others, const Part* layers, size count, const Task* tasks,
    double* partial) {
    gram(Pairs{0, indices, others, Part{}}, layers, count, tasks, partial);
}

extern "C" __global__ void __launch_bounds__(256) unit_table_product(
    const u32* indices, const Part* factor, const Part* layers, size count, const Task* tasks,
    double* partial) {
    gram(Pairs{0, indices, 0, *factor}, layers, count, tasks, partial);
}

// g_ij = Σ_t e_ti a_tj over rows `start` … before `end`, for a tile of columns `first` … of e and
// `second` … of a. Thread (ty, tx) has the elements (ty + 16 i, tx + 16 j).
__device__ __forceinline__ void form_tile(
    double (&g)[4][4], const Part& a, const Part& e, size start, size end, size first,
    size second) {
    __shared__ float l[RUN][SIDE + 1], r[RUN][SIDE + 1];
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    for (size row = start; row < end; row += RUN) {
        __syncthreads();
        for (int n = threadIdx.x; n < SIDE * RUN; n += 256) {
            int k = n / SIDE, i = n % SIDE;
            bool inside = row + k < end;
            l[k][i] = inside && first + i < e.columns
                          ? wide(e.data[(row + k) * e.stride + first + i])
                          : 0.0f;
            r[k][i] = inside && second + i < a.columns
                          ? wide(a.data[(row + k) * a.stride + second + i])
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
}

// Formed gradients: partial[2 task] = Σ_ij G_ij² over a tile of G, whose rows are columns of e and
// whose columns are those of a. For a unit with more rows than the width of G this takes less work.
extern "C" __global__ void __launch_bounds__(256) unit_formed(
    const Part* inputs, const Part* layers, const Task* tasks, double* partial) {
    __shared__ double space[32];
    Task task = tasks[blockIdx.x];
    double g[4][4] = {};
    form_tile(g, inputs[0], layers[2 * task.times], task.start, task.end, task.first, task.second);
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum += g[i][j] * g[i][j];
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) {
        partial[2 * blockIdx.x] = sum;
        partial[2 * blockIdx.x + 1] = 0.0;
    }
}

// Kept gradients: row u of the output is Σ_t l_t ⊗ r_t over the rows of unit u, one value for each
// pair of columns. Block: one of the `tiles` tiles of a unit, `across` of which lie side by side.
extern "C" __global__ void __launch_bounds__(256) unit_gradients(
    const real* left, size left_stride, size left_columns, const real* right, size right_stride,
    size right_columns, const u32* ranges, u32 tiles, u32 across, float* gradients) {
    u32 unit = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    size first = tile / across * SIDE, second = tile % across * SIDE;
    Part l = {left, left_stride, left_columns}, r = {right, right_stride, right_columns};
    double g[4][4] = {};
    form_tile(g, r, l, ranges[2 * unit], ranges[2 * unit + 1], first, second);
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    float* to = gradients + unit * left_columns * right_columns;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            size row = first + ty + 16 * i, column = second + tx + 16 * j;
            if (row < left_columns && column < right_columns)
                to[row * right_columns + column] = (float)g[i][j];
        }
}
