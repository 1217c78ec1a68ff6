// Sums over the rows of privacy units, and the bounds of norms that are made of them. Norms are
// kept in f64, one number for each unit.

// row_norms[t] = ‖a_t‖ · √(Σ_k ‖e_{k,t}‖²), in f64 throughout: the square of an f32 is exact there.
// Without inputs ‖a_t‖ counts as 1. Block: a row; `side` 0 takes a and each e, 1 takes b and each
// f.
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

// norms[p · apart + t] = ‖row t of part p‖², in f64. Block (t, p): eight rows, a warp each.
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
            // Sixteen bytes of squares in f32, whose error is far below that of what they bound.
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
    if (lane == 0) norms[blockIdx.y * apart + row] = sum;
}

// sums[u] += Σ_p times_p (√(max(S_p, 0) + slack_p M_p²) + rounding_p M_p)² over products p; a NaN
// stays one. S_p are the partial sums of the tasks of unit u, by Gram matrices or of formed
// gradients, and M_p = Σ_t √(‖a_t‖² Σ_k ‖e_{k,t}‖²) comes with the former, and for the latter from
// squared norms. firsts[p (units + 1) + u] is the first task of a unit. Block: a unit; each of
// eight warps takes every eighth product.
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

// Rows [units, columns] that are the gradients of a vector parameter; six words of eight bytes.
struct Vector {
    const float* rows;
    size stride, columns;
    // A weight for each column, or null.
    const float* weights;
    double times;
    size unused;
};

// sums[u] += Σ_p times_p Σ_j w_pj x_puj² over all vector parameters p; without weights w = 1.
// Block: a unit.
extern "C" __global__ void unit_squares(const Vector* vectors, size count, double* sums) {
    __shared__ double space[32];
    size unit = blockIdx.x;
    double sum = 0.0;
    for (size p = 0; p < count; ++p) {
        Vector vector = vectors[p];
        const float* x = vector.rows + unit * vector.stride;
        double of_vector = 0.0;
#pragma unroll 4
        for (size j = threadIdx.x; j < vector.columns; j += blockDim.x) {
            double value = x[j];
            of_vector += (vector.weights ? (double)vector.weights[j] : 1.0) * value * value;
        }
        sum += vector.times * of_vector;
    }
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) sums[unit] += sum;
}

// Rows [units, columns] and where their sum goes; five words of eight bytes.
struct Summed {
    const float* rows;
    size stride, columns;
    float* sum;
    // The first of the blocks that add it up, each 32 columns.
    size first_block;
};

// sum_pj = Σ_u factor_u x_puj for all vector parameters p; a unit with the factor 0 does not count,
// whatever it holds. Block: 32 columns, 16 threads each.
extern "C" __global__ void __launch_bounds__(512) unit_vector_sums(
    const Summed* vectors, size count, const float* factors, size units) {
    __shared__ float space[16][33];
    // The last parameter whose blocks begin no later than this one.
    size low = 0, high = count;
    while (high - low > 1) {
        size middle = (low + high) / 2;
        if (vectors[middle].first_block <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    Summed vector = vectors[low];
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

// Four neighbouring numbers of a row.
struct __align__(4 * sizeof(real)) Four {
    real x[4];
};

// sums[u] = Σ_{t ∈ unit u} e_t, or of a_t ⊙ e_t where a is given: [units, columns], added up in
// f64. Block (u, c): 128 columns of a unit, four for each of 32 threads; eight rows at a time.
extern "C" __global__ void __launch_bounds__(256) unit_row_sums(
    const real* a, size a_stride, const real* e, size e_stride, const u32* ranges, float* sums,
    size columns) {
    __shared__ double space[8][132];
    size unit = blockIdx.x, j = (size)blockIdx.y * 128 + threadIdx.x * 4;
    u32 start = ranges[2 * unit], end = ranges[2 * unit + 1];
    const real *of_e = e + j, *of_a = a ? a + j : a;
    const u64 mask = sizeof(Four) - 1;
    bool whole = columns % 4 == 0 && (e_stride | a_stride) % 4 == 0 && ((u64)e & mask) == 0 &&
                 ((u64)a & mask) == 0;
    double total[4] = {};
    if (whole && j < columns) {
#pragma unroll 8
        for (size t = (size)start + threadIdx.y; t < end; t += 8) {
            Four x = *(const Four*)(of_e + t * e_stride), y = x;
            if (a) y = *(const Four*)(of_a + t * a_stride);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                float value = wide(x.x[k]);
                total[k] += (double)(a ? __fmul_rn(wide(y.x[k]), value) : value);
            }
        }
    } else if (!whole) {
        for (size t = (size)start + threadIdx.y; t < end; t += 8)
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (j + k < columns) {
                    float value = wide(of_e[t * e_stride + k]);
                    total[k] +=
                        (double)(a ? __fmul_rn(wide(of_a[t * a_stride + k]), value) : value);
                }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) space[threadIdx.y][threadIdx.x * 4 + k] = total[k];
    __syncthreads();
    int column = threadIdx.y * 32 + threadIdx.x;
    size to = (size)blockIdx.y * 128 + column;
    if (column >= 128 || to >= columns) return;
    double sum = 0.0;
    for (int i = 0; i < 8; ++i) sum += space[i][column];
    sums[unit * columns + to] = (float)sum;
}
