// Sums over the rows of privacy units, and the bounds on norms computed from them. Norms are in
// f64, one value per unit.

// row_norms[t] = ‖a_t‖ · √(Σ_k ‖e_{k,t}‖²), in f64 throughout: the square of an f32 is exact there.
// Both include what underflow removes from the inner products that they bound. Without inputs ‖a_t‖
// counts as 1. Block: a row; `side` 0 uses a and each e, 1 uses b and each f.
extern "C" __global__ void unit_row_norms(
    const Part* inputs, const Part* layers, size count, size side, double* row_norms) {
    __shared__ double space[32];
    size row = blockIdx.x;
    double of_input = 0.0, of_layers = 0.0, lost_input = 0.0, lost_layers = 0.0;
    if (inputs) {
        Part part = inputs[side];
        lost_input = LOST_TO_UNDERFLOW * (double)part.columns;
        const real* x = part.data + row * part.stride;
        for (size j = threadIdx.x; j < part.columns; j += blockDim.x)
            of_input += (double)wide(x[j]) * (double)wide(x[j]);
    }
    for (size k = 0; k < count; ++k) {
        Part part = layers[2 * k + side];
        lost_layers += LOST_TO_UNDERFLOW * (double)part.columns;
        const real* x = part.data + row * part.stride;
        for (size j = threadIdx.x; j < part.columns; j += blockDim.x)
            of_layers += (double)wide(x[j]) * (double)wide(x[j]);
    }
    of_input = inputs ? block_sum(of_input, space) + lost_input : 1.0;
    of_layers = block_sum(of_layers, space) + lost_layers;
    if (threadIdx.x == 0) row_norms[row] = sqrt(of_input) * sqrt(of_layers);
}

// Σ over the tasks and rows of a unit: S of its partial sums, and M of the norms of its rows, which
// are part of the partial sums or given as `row_norms`. Block: a unit.
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

// sums[u] += times · (√(max(S, 0) + slack · M²) + rounding · M)²; NaN stays NaN. Nothing is added
// for units without tasks: their norms are 0, or computed by other tasks.
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

// sums[u] += times · (S + slack · M M′), for inner products.
extern "C" __global__ void unit_inner_bounds(
    const double* partial, const u32* firsts, const double* row_norms, const u32* ranges,
    const double* other_norms, const u32* other_ranges, double slack, double times,
    double* sums) {
    double sum, most, other_sum, other_most;
    unit_totals(partial, firsts, row_norms, ranges, &sum, &most);
    unit_totals(partial, firsts, other_norms, other_ranges, &other_sum, &other_most);
    if (threadIdx.x == 0) sums[blockIdx.x] += times * (sum + slack * most * other_most);
}

// norms[p · apart + t] = ‖row t of part p‖², plus what underflow removes from it, in f64. Block (t,
// p): eight rows, one warp each.
extern "C" __global__ void unit_squared_norms(
    const Part* parts, size rows, size apart, double* norms) {
    size row = (size)blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= rows) return;
    Part part = parts[blockIdx.y];
    int lane = threadIdx.x & 31;
    const real* x = part.data + row * part.stride;
    double sum = 0.0;
    if (part.columns % PACK == 0 && aligned(x)) {
#pragma unroll 4
        for (size n = lane; n < part.columns / PACK; n += 32) {
            Pack pack = ((const Pack*)x)[n];
            // Sixteen bytes of squares in f32, whose error is far below that of the quantity they
            // bound.
            float squares = 0.0f;
#pragma unroll
            for (int k = 0; k < PACK; ++k) {
                float x = wide(pack.x[k]);
                squares = fmaf(x, x, squares);
            }
            sum += (double)squares;
        }
    } else {
        for (size j = lane; j < part.columns; j += 32)
            sum += (double)wide(x[j]) * (double)wide(x[j]);
    }
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0)
        norms[blockIdx.y * apart + row] = sum + LOST_TO_UNDERFLOW * (double)part.columns;
}

// sums[u] += Σ_p times_p (√(max(S_p, 0) + slack_p M_p²) + rounding_p M_p)² over products p; NaN
// stays NaN. S_p are the partial sums of the tasks of unit u, by Gram matrices or from formed
// gradients, and M_p = Σ_t √(‖a_t‖² Σ_k ‖e_{k,t}‖²), which Gram matrices provide and which is
// computed from squared norms for formed gradients. firsts[p (units + 1) + u] is the first task of
// a unit. Block: a unit; each of eight warps processes every eighth product.
extern "C" __global__ void __launch_bounds__(256) unit_bounds_all(
    const Product* products, size count, size units, const double* gram,
    const u32* gram_firsts, const double* formed, const u32* formed_firsts,
    const u32* ranges, const double* norms, const u32* norm_of, size rows, double* sums) {
    __shared__ double space[32];
    size unit = blockIdx.x;
    int lane = threadIdx.x & 31;
    double total = 0.0;
    for (size p = threadIdx.x >> 5; p < count; p += 8) {
        Product product = products[p];
        size at = p * (units + 1) + unit;
        double sum = 0.0, most = 0.0;
        for (u32 i = gram_firsts[at] + lane; i < gram_firsts[at + 1]; i += 32) {
            sum += gram[2 * (size)i];
            most += gram[2 * (size)i + 1];
        }
        u32 first = formed_firsts[at], end = formed_firsts[at + 1];
        for (u32 i = first + lane; i < end; i += 32) sum += formed[2 * (size)i];
        if (first < end) {
            const u32* range = ranges + 2 * (p * units + unit);
            const u32* of = norm_of + product.first_norm;
            for (size t = range[0] + lane; t < range[1]; t += 32) {
                double of_layers = 0.0;
                for (size k = 1; k <= product.count; ++k) of_layers += norms[of[k] * rows + t];
                most += sqrt(norms[of[0] * rows + t] * of_layers);
            }
        }
        for (int offset = 16; offset > 0; offset >>= 1) {
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
            most += __shfl_xor_sync(0xffffffffu, most, offset);
        }
        if (sum < 0.0) sum = 0.0;
        double norm = sqrt(sum + product.slack * most * most) + product.rounding * most;
        if (lane == 0) total += product.times * norm * norm;
    }
    total = block_sum(total, space);
    if (threadIdx.x == 0) sums[unit] += total;
}

// A table's gradient with a weight per coordinate: partial[2 (unit · blocks + block)] = Σ_r Σ_j
// w_rj (Σ_{t : index of t = r} e_tj)², over the rows r used by the unit. Block (c, u): 256 columns
// of a unit, one per thread.
extern "C" __global__ void __launch_bounds__(256) unit_table_weighted(
    const u32* indices, const real* e, size e_stride, size columns, const float* weights,
    const u32* ranges, double* partial) {
    __shared__ double space[32];
    size unit = blockIdx.y, j = (size)blockIdx.x * 256 + threadIdx.x;
    u32 start = ranges[2 * unit], end = ranges[2 * unit + 1];
    double sum = 0.0;
    for (u32 t = start; t < end; ++t) {
        u32 index = indices[t];
        bool known = false;
        for (u32 s = start; s < t; ++s) known = known || indices[s] == index;
        if (known || j >= columns) continue;
        double row = 0.0;
        for (u32 s = t; s < end; ++s)
            if (indices[s] == index) row += (double)wide(e[(size)s * e_stride + j]);
        sum += (double)weights[(size)index * columns + j] * row * row;
    }
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) {
        size at = 2 * (unit * gridDim.x + blockIdx.x);
        partial[at] = sum;
        partial[at + 1] = 0.0;
    }
}

// Kept gradients of one parameter, [units, columns]; eight words of eight bytes.
struct KeptGradient {
    const float* rows;
    size stride, columns;
    // One weight per column, or null. With `of_rows`, coordinate (i, j) of a parameter with `width`
    // columns has the weight of_rows[i] · weights[j].
    const float *weights, *of_rows;
    size width;
    double times;
    size unused;
};

// partial[p · units + u] = times_p Σ_j w_pj x_puj² for each parameter p and unit u; without weights
// w = 1. Block (u, p).
extern "C" __global__ void __launch_bounds__(256) unit_squares(
    const KeptGradient* all, double* partial) {
    __shared__ double space[32];
    KeptGradient kept = all[blockIdx.y];
    size unit = blockIdx.x;
    const float* x = kept.rows + unit * kept.stride;
    double sum = 0.0;
    if (!kept.weights) {
#pragma unroll 8
        for (size j = threadIdx.x; j < kept.columns; j += 256) {
            double value = x[j];
            sum += value * value;
        }
    } else if (!kept.of_rows) {
#pragma unroll 4
        for (size j = threadIdx.x; j < kept.columns; j += 256) {
            double value = x[j];
            sum += (double)kept.weights[j] * (value * value);
        }
    } else {
        u32 width = (u32)kept.width;
        for (size j = threadIdx.x; j < kept.columns; j += 256) {
            double value = x[j];
            u32 row = (u32)j / width, column = (u32)j - row * width;
            double weight = (double)kept.of_rows[row] * (double)kept.weights[column];
            sum += weight * (value * value);
        }
    }
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) partial[(size)blockIdx.y * gridDim.x + unit] = kept.times * sum;
}

// sums[u] += Σ_p partial[p · units + u]. Block: a unit.
extern "C" __global__ void __launch_bounds__(256) unit_add_squares(
    const double* partial, size count, double* sums) {
    __shared__ double space[32];
    size unit = blockIdx.x;
    double sum = 0.0;
    for (size p = threadIdx.x; p < count; p += 256) sum += partial[p * gridDim.x + unit];
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) sums[unit] += sum;
}

// Rows [units, columns] and the target of their sum; five words of eight bytes.
struct Summed {
    const float* rows;
    size stride, columns;
    float* sum;
    // The first block that sums it.
    size first_block;
};

// The last parameter whose first block is not after this one.
__device__ __forceinline__ Summed summed_here(const Summed* vectors, size count) {
    size low = 0, high = count;
    while (high - low > 1) {
        size middle = (low + high) / 2;
        if (vectors[middle].first_block <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return vectors[low];
}

// sum_pj = Σ_u factor_u x_puj for all vector parameters p; a unit with factor 0 is ignored,
// whatever it contains. Block: 32 columns, 16 threads each.
extern "C" __global__ void __launch_bounds__(512) unit_vector_sums(
    const Summed* vectors, size count, const float* factors, size units) {
    __shared__ float space[16][33];
    Summed vector = summed_here(vectors, count);
    size j = ((size)blockIdx.x - vector.first_block) * 32 + threadIdx.x;
    float sum = 0.0f;
    if (j < vector.columns) {
#pragma unroll 4
        for (size unit = threadIdx.y; unit < units; unit += 16) {
            float factor = factors[unit], x = vector.rows[unit * vector.stride + j];
            sum += factor == 0.0f ? 0.0f : factor * x;
        }
    }
    space[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && j < vector.columns) {
        float total = 0.0f;
        for (int i = 0; i < 16; ++i) total += space[i][threadIdx.x];
        vector.sum[j] = total;
    }
}

// The same for parameters with many coordinates. Block: 1024 columns, four per thread.
extern "C" __global__ void __launch_bounds__(256) unit_wide_sums(
    const Summed* vectors, size count, const float* factors, size units) {
    Summed vector = summed_here(vectors, count);
    size j = ((size)blockIdx.x - vector.first_block) * 1024 + 4 * threadIdx.x;
    if (j >= vector.columns) return;
    const float* from = vector.rows + j;
    float sums[4] = {};
    bool whole = ((u64)vector.rows & 15) == 0 && vector.stride % 4 == 0;
    if (whole && j + 4 <= vector.columns) {
#pragma unroll 8
        for (size unit = 0; unit < units; ++unit) {
            float factor = factors[unit];
            float4 x = *(const float4*)(from + unit * vector.stride);
            sums[0] += factor == 0.0f ? 0.0f : factor * x.x;
            sums[1] += factor == 0.0f ? 0.0f : factor * x.y;
            sums[2] += factor == 0.0f ? 0.0f : factor * x.z;
            sums[3] += factor == 0.0f ? 0.0f : factor * x.w;
        }
    } else {
        for (size unit = 0; unit < units; ++unit) {
            float factor = factors[unit];
            for (int k = 0; k < 4; ++k) {
                float x = j + k < vector.columns ? from[unit * vector.stride + k] : 0.0f;
                sums[k] += factor == 0.0f ? 0.0f : factor * x;
            }
        }
    }
    for (int k = 0; k < 4; ++k)
        if (j + k < vector.columns) vector.sum[j + k] = sums[k];
}

// Sums of the rows [tokens, columns] of each unit: of e, of a ⊙ e, or both. Eight words of eight
// bytes.
struct RowSum {
    const real* a;
    size a_stride;
    const real* e;
    size e_stride, columns;
    // Row u belongs to unit u; null if it is not needed.
    float *of_rows, *of_products;
    size sum_stride;
};

#define SUM_COLUMNS 128
#define SUM_PACKS (SUM_COLUMNS / PACK)
#define SUM_ROWS (256 / SUM_PACKS)

// Values j … of a row, padded with zeros past its end.
__device__ __forceinline__ void load_pack(
    float (&to)[PACK], const real* row, size j, size columns) {
#pragma unroll
    for (int k = 0; k < PACK; ++k) to[k] = j + k < columns ? wide(row[j + k]) : 0.0f;
}

// The sums over the threads of a column, in shared memory, written by one thread per column.
__device__ __forceinline__ void write_sums(
    float (*space)[SUM_COLUMNS + 4], const float (&sums)[PACK], float* to, size j, size columns) {
    int row = threadIdx.x / SUM_PACKS, pack = threadIdx.x % SUM_PACKS;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < PACK; ++k) space[row][pack * PACK + k] = sums[k];
    __syncthreads();
    if (threadIdx.x >= SUM_COLUMNS || j + threadIdx.x >= columns) return;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SUM_ROWS; ++i) sum += space[i][threadIdx.x];
    to[j + threadIdx.x] = sum;
}

// One block of `unit_row_sums`.
template <bool products>
__device__ __forceinline__ void sum_rows(
    const RowSum& task, size unit, u32 start, u32 end, float (*space)[SUM_COLUMNS + 4]) {
    size first = (size)blockIdx.y * SUM_COLUMNS;
    size j = first + threadIdx.x % SUM_PACKS * PACK;
    bool e_whole = aligned(task.e) && task.e_stride % PACK == 0;
    bool a_whole = aligned(task.a) && task.a_stride % PACK == 0;
    float of_rows[PACK] = {}, of_products[PACK] = {};
    size t = start + threadIdx.x / SUM_PACKS;
    if (e_whole && (a_whole || !products) && j + PACK <= task.columns) {
        // Four rows are loaded at once.
        const real *from_e = task.e + t * task.e_stride + j, *from_a = from_e;
        if (products) from_a = task.a + t * task.a_stride + j;
#pragma unroll 4
        for (; t < end; t += SUM_ROWS) {
            Pack e = *(const Pack*)from_e, a;
            if (products) a = *(const Pack*)from_a;
#pragma unroll
            for (int k = 0; k < PACK; ++k) {
                float number = wide(e.x[k]);
                of_rows[k] += number;
                if (products) of_products[k] += __fmul_rn(wide(a.x[k]), number);
            }
            from_e += SUM_ROWS * task.e_stride;
            if (products) from_a += SUM_ROWS * task.a_stride;
        }
    }
    for (; t < end; t += SUM_ROWS) {
        float e[PACK];
        load_pack(e, task.e + t * task.e_stride, j, task.columns);
        if (products) {
            float a[PACK];
            load_pack(a, task.a + t * task.a_stride, j, task.columns);
#pragma unroll
            for (int k = 0; k < PACK; ++k) of_products[k] += __fmul_rn(a[k], e[k]);
        }
#pragma unroll
        for (int k = 0; k < PACK; ++k) of_rows[k] += e[k];
    }
    size row = unit * task.sum_stride;
    if (task.of_rows) write_sums(space, of_rows, task.of_rows + row, first, task.columns);
    if (products) write_sums(space, of_products, task.of_products + row, first, task.columns);
}

// The row sums of many matrices. Exactly these values are added to the clipped sum, so their norms
// need not account for their rounding. Block (u + units · m, c): 128 columns of a unit of matrix m;
// each thread has a pack of 16 bytes of every SUM_ROWS-th row.
extern "C" __global__ void __launch_bounds__(256, 4) unit_row_sums(
    const RowSum* all, u32 units, const u32* ranges) {
    __shared__ float space[SUM_ROWS][SUM_COLUMNS + 4];
    u32 unit = blockIdx.x % units;
    u32 start = ranges[2 * unit], end = ranges[2 * unit + 1];
    RowSum task = all[blockIdx.x / units];
    if ((size)blockIdx.y * SUM_COLUMNS >= task.columns) return;
    if (task.of_products)
        sum_rows<true>(task, unit, start, end, space);
    else
        sum_rows<false>(task, unit, start, end, space);
}
