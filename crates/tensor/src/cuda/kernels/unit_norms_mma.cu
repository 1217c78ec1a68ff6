// Norms of the gradients G_u = Σ_{t ∈ unit u} e_t ⊗ a_t of privacy units by tensor cores, without
// ever storing G (ghost clipping, book-keeping). The kernels correspond to those of unit_norms.cu.
//
// Inner products are of bf16 values, whose products are exact in f32. An f32 value x is split into
// h = bf16(x) and l = bf16(x − h), and ⟨x, y⟩ is approximated by ⟨h, h′⟩ + ⟨h, l′⟩ + ⟨l, h′⟩.
// unit_norms/mod.rs bounds the error of this and of tensor-core sums: tensor cores sum at most
// DEPTH columns, and these sums are added in f32.
//
// Each block has eight warps and only reads rows of its own unit: a NaN in one unit cannot reach
// another. A result of mma.m16n8k16 has 16 × 8 values: with g = lane div 4 and t = lane mod 4, a
// thread has (g, 2t), (g, 2t + 1), (g + 8, 2t) and (g + 8, 2t + 1) of it.

#define SIDE 64
// Number of halves of a value: h alone, or h and l.
#define HALVES ((int)sizeof(real) / 2)
#define DEPTH (128 / HALVES)
// Length of a tile's row in shared memory, padded by eight so that rows lie in different banks.
#define TILE_ROW (DEPTH + 8)
#define SIDE_ROW (SIDE + 8)

typedef float Tile[4][4];

__device__ __forceinline__ void multiply_add(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same, starting from zero.
__device__ __forceinline__ void multiply(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

// Four 8 × 8 matrices, transposed; each lane gives the address of one row.
__device__ __forceinline__ void load_transposed(u32 (&to)[4], const bf16* row) {
    u32 address = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

__device__ __forceinline__ void split(float x, bf16* halves, int apart) {
    halves[0] = nearest_bf16(x);
    // For an infinity this is NaN: the norm is not finite either way.
    halves[apart] = nearest_bf16(x - wide(halves[0]));
}

__device__ __forceinline__ void put(const Pack& pack, bf16* to, int apart) {
    if (HALVES == 1) {
        *(Pack*)to = pack;
        return;
    }
#pragma unroll
    for (int k = 0; k < PACK; ++k) split(wide(pack.x[k]), to + k, apart);
}

// Rows `row` … before `end` and columns `column` … of a matrix, WIDTH of them, with zeros beyond:
// packs that the thread holds until they are written to shared memory.
template <int ROWS, int WIDTH>
struct Held {
    static const int COUNT = ROWS * WIDTH / PACK / 256;
    Pack packs[COUNT];

    __device__ __forceinline__ void load(const Part& part, size row, size end, size column) {
        bool whole = ((u64)part.data & 15) == 0 && part.stride % PACK == 0;
#pragma unroll
        for (int n = 0; n < COUNT; ++n) {
            int at = n * 256 + threadIdx.x;
            size i = row + at / (WIDTH / PACK), j = column + at % (WIDTH / PACK) * PACK;
            const real* from = part.data + i * part.stride + j;
            if (i < end && whole && j + PACK <= part.columns) {
                packs[n] = *(const Pack*)from;
            } else {
#pragma unroll
                for (int k = 0; k < PACK; ++k) {
                    real zero;
                    narrow(0.0f, zero);
                    packs[n].x[k] = i < end && j + k < part.columns ? from[k] : zero;
                }
            }
        }
    }

    __device__ __forceinline__ void store(bf16* tile, int tile_row, int apart) {
#pragma unroll
        for (int n = 0; n < COUNT; ++n) {
            int at = n * 256 + threadIdx.x;
            int i = at / (WIDTH / PACK), j = at % (WIDTH / PACK) * PACK;
            put(packs[n], tile + i * tile_row + j, apart);
        }
    }
};

#define GRAM_TILE (SIDE * TILE_ROW)
// Number of tiles that a block of the Gram kernel has room for: of the columns in use, and of those
// being loaded.
#define GRAM_TILES 4

// Copies 16 bytes to shared memory without waiting; `bytes` of them are read and the rest is 0.
__device__ __forceinline__ void copy_later(u32 address, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(bytes));
}

__device__ __forceinline__ void end_group() {
    asm volatile("cp.async.commit_group;");
}

// Waits until at most `groups` of the started copies are still in progress.
template <int groups>
__device__ __forceinline__ void wait_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups));
}

// Number of packs of a tile that a thread copies, and the distance between their rows.
#define COPIES (SIDE * DEPTH / PACK / 256)
#define ROWS_APART (256 * PACK / DEPTH)

// One side of the tiles of a matrix: the rows of a task, DEPTH columns at a time, with zeros
// beyond.
struct Side {
    const real* from;
    size stride;
    int columns;
    // Whether 16 bytes can be copied at once.
    bool whole;

    // The first row is `row`; bit n of `rows` states whether the thread's n-th copy has a row.
    __device__ __forceinline__ void enter(const Part& part, size row) {
        const int width = DEPTH / PACK;
        stride = part.stride;
        columns = (int)part.columns - (int)threadIdx.x % width * PACK;
        from = part.data + (row + threadIdx.x / width) * stride + threadIdx.x % width * PACK;
        whole = ((u64)part.data & 15) == 0 && stride % PACK == 0;
    }

    __device__ __forceinline__ void begin(real* tile, u32 rows, int column) const {
        const int width = DEPTH / PACK;
        real* to = tile + threadIdx.x / width * TILE_ROW + threadIdx.x % width * PACK;
        u32 address = (u32)__cvta_generic_to_shared(to);
        const real* now = from + column;
        int left = columns - column, count = left <= 0 ? 0 : left < PACK ? left : PACK;
#pragma unroll
        for (int n = 0; n < COPIES; ++n) {
            int inside = rows >> n & 1 ? count : 0;
            if (whole) {
                // For zero bytes, any address within the matrix will do.
                copy_later(address, inside ? now : from, inside * (int)sizeof(real));
            } else {
#pragma unroll
                for (int k = 0; k < PACK; ++k) {
                    if (k < inside)
                        to[k] = now[k];
                    else
                        narrow(0.0f, to[k]);
                }
            }
            to += ROWS_APART * TILE_ROW;
            address += ROWS_APART * TILE_ROW * (int)sizeof(real);
            now += ROWS_APART * stride;
        }
    }
};

// For the rows starting at `row`, a mask of those copied by this thread that come before `end`.
__device__ __forceinline__ u32 rows_before(size row, size end) {
    u32 rows = 0;
#pragma unroll
    for (int n = 0; n < COPIES; ++n)
        if (row + threadIdx.x / (DEPTH / PACK) + n * ROWS_APART < end) rows |= 1u << n;
    return rows;
}

// Two adjacent values of a tile as an operand of a product, in halves.
__device__ __forceinline__ void pair_of(const bf16* from, u32 (&halves)[1]) {
    halves[0] = *(const u32*)from;
}

__device__ __forceinline__ u32 nearest_pair(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// For an infinity the lower half is NaN: the norm is not finite either way.
__device__ __forceinline__ void pair_of(const float* from, u32 (&halves)[2]) {
    float2 x = *(const float2*)from;
    halves[0] = nearest_pair(x.x, x.y);
    halves[1] = nearest_pair(x.x - __uint_as_float(halves[0] << 16),
                             x.y - __uint_as_float(halves[0] & 0xffff0000u));
}

// In a tile of SIDE × SIDE values of a Gram matrix, warp w has the quadrant w mod 4 and every
// second group of sixteen columns, starting with w div 4: 2 × 4 results.
typedef float Quadrant[2][4][4];

__device__ __forceinline__ int quadrant_row() {
    return 32 * ((threadIdx.x >> 6) & 1);
}

__device__ __forceinline__ int quadrant_column() {
    return 32 * ((threadIdx.x >> 5) & 1);
}

// Row and column, within the tile, of a thread's value i of result (m, n).
__device__ __forceinline__ int row_of(int m, int i) {
    return quadrant_row() + 16 * m + ((threadIdx.x & 31) >> 2) + (i >> 1) * 8;
}

__device__ __forceinline__ int column_of(int n, int i) {
    return quadrant_column() + 8 * n + (threadIdx.x & 3) * 2 + (i & 1);
}

// The location of a tile: addresses in shared memory have 32 bits.
__device__ __forceinline__ u32 address_of(const bf16* tile) {
    return (u32)__cvta_generic_to_shared(tile);
}

__device__ __forceinline__ const float* address_of(const float* tile) {
    return tile;
}

// Four 8 × 8 matrices; each lane gives the address of one row.
__device__ __forceinline__ void load_four(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

// Rows `row` … + 16 and columns k … + 16 of a tile as the left operand, in halves.
__device__ __forceinline__ void left_operand(u32 (&a)[1][4], u32 tile, int row, int k) {
    int lane = threadIdx.x & 31;
    load_four(a[0], tile + 2 * ((row + (lane & 15)) * TILE_ROW + k + (lane >> 4) * 8));
}

__device__ __forceinline__ void left_operand(u32 (&a)[2][4], const float* tile, int row, int k) {
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    const float* from = tile + (row + g) * TILE_ROW + k + 2 * t;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        u32 halves[2];
        pair_of(from + (i & 1) * 8 * TILE_ROW + (i >> 1) * 8, halves);
        a[0][i] = halves[0];
        a[1][i] = halves[1];
    }
}

// Rows `row` … + 16 and columns k … + 16 as two right operands: values 0 and 1, and 2 and 3.
__device__ __forceinline__ void right_operands(u32 (&b)[1][4], u32 tile, int row, int k) {
    int lane = threadIdx.x & 31;
    int of_row = (lane & 7) + (lane >> 4) * 8, of_column = ((lane >> 3) & 1) * 8;
    load_four(b[0], tile + 2 * ((row + of_row) * TILE_ROW + k + of_column));
}

__device__ __forceinline__ void right_operands(u32 (&b)[2][4], const float* tile, int row, int k) {
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    const float* from = tile + (row + g) * TILE_ROW + k + 2 * t;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        u32 halves[2];
        pair_of(from + (i >> 1) * 8 * TILE_ROW + (i & 1) * 8, halves);
        b[0][i] = halves[0];
        b[1][i] = halves[1];
    }
}

// total_ij += ⟨row i of left, row j of right⟩ over the warp's share of the columns of two tiles.
template <typename Address>
__device__ __forceinline__ void add_inner(Quadrant& total, Address left, Address right) {
    Quadrant sums;
#pragma unroll
    for (int step = 0; step < DEPTH / 32; ++step) {
        int k = 32 * step + 16 * (threadIdx.x >> 7);
        u32 a[2][HALVES][4];
        left_operand(a[0], left, quadrant_row(), k);
        left_operand(a[1], left, quadrant_row() + 16, k);
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
            u32 b[HALVES][4];
            right_operands(b, right, quadrant_column() + 8 * n, k);
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int h = 0; h < HALVES; ++h)
#pragma unroll
                    for (int i = 0; i < HALVES - h; ++i) {
                        if (step + h + i == 0) {
                            multiply(sums[m][n], a[m][i], b[h][0], b[h][1]);
                            multiply(sums[m][n + 1], a[m][i], b[h][2], b[h][3]);
                        } else {
                            multiply_add(sums[m][n], a[m][i], b[h][0], b[h][1]);
                            multiply_add(sums[m][n + 1], a[m][i], b[h][2], b[h][3]);
                        }
                    }
        }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) total[m][n][i] += sums[m][n][i];
}

extern __shared__ __align__(16) unsigned char tiles[];

// Length of a row of a whole f32 tile in shared memory, padded by eight so that rows lie in
// different banks.
#define SUM_ROW (SIDE + 8)

// Calls f(two adjacent values, their position in a whole f32 tile) for the values of the thread.
template <typename F>
__device__ __forceinline__ void each_pair(Quadrant& quadrant, F f) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n)
#pragma unroll
            for (int i = 0; i < 4; i += 2)
                f(quadrant[m][n][i], quadrant[m][n][i + 1],
                  row_of(m, i) * SUM_ROW + column_of(n, i));
}

// The sum of what both warps of each quadrant have, in shared memory; the quadrant is reset.
__device__ __forceinline__ void join(Quadrant& quadrant, float* whole) {
    bool second = threadIdx.x >= 128;
    if (!second)
        each_pair(quadrant, [&](float& one, float& other, int at) {
            *(float2*)(whole + at) = make_float2(one, other);
            one = other = 0.0f;
        });
    __syncthreads();
    if (second)
        each_pair(quadrant, [&](float& one, float& other, int at) {
            float2 earlier = *(float2*)(whole + at);
            *(float2*)(whole + at) = make_float2(earlier.x + one, earlier.y + other);
            one = other = 0.0f;
        });
    __syncthreads();
}

// Gram matrices: partial[2 task] = times · Σ_{t,s} X_ts Y_ts over a tile of rows t of one side and
// s of the other, with Y_ts = Σ_k ⟨e_{k,t}, f_{k,s}⟩ and X_ts according to `Pairs`: ⟨a_t, b_s⟩ for
// products, [index of t = index of s] for tables. For norms, b = a and f = e, a tile off the
// diagonal counts twice, and partial[2 task + 1] = Σ_t √(X_tt Y_tt) over the tile's part of the
// diagonal. layers: e_1, f_1, e_2, f_2, …
template <bool same>
__device__ __forceinline__ void gram_tile(
    const Pairs& pairs, const Part* layers, size count, const Task& task, double* partial) {
    __shared__ double space[32];
    const int sides = same ? 1 : 2, stages = GRAM_TILES / sides;
    real* room = (real*)tiles;
    size left = (size)task.start + task.first, right = (size)task.other_start + task.second;
    u32 rows[2] = {rows_before(left, task.end), rows_before(right, task.other_end)};
    // Tiles of the inputs, which are matrix 0, and of the layers after them.
    int of_inputs = 0, of_all;
    if (pairs.inputs) of_inputs = (int)((pairs.inputs->columns + DEPTH - 1) / DEPTH);
    of_all = of_inputs;
    for (size k = 0; k < count; ++k)
        of_all += (int)((layers[2 * k].columns + DEPTH - 1) / DEPTH);
    // The matrix whose tiles are being loaded.
    Side sides_of[2];
    int column = 0, columns = 0, matrix = pairs.inputs ? 0 : 1;
    auto begin = [&](int stage) {
        while (column >= columns && matrix <= count) {
            const Part* parts = matrix == 0 ? pairs.inputs : layers + 2 * (matrix - 1);
            sides_of[0].enter(parts[0], left);
            if (!same) sides_of[1].enter(parts[1], right);
            columns = (int)parts[0].columns;
            column = 0;
            ++matrix;
        }
        if (column < columns) {
            real* tile = room + stage * sides * GRAM_TILE;
            sides_of[0].begin(tile, rows[0], column);
            if (!same) sides_of[1].begin(tile + GRAM_TILE, rows[1], column);
            column += DEPTH;
        }
        end_group();
    };
#pragma unroll
    for (int stage = 0; stage < stages - 1; ++stage) begin(stage);
    // Y is stored at the end, when the tiles are no longer used.
    float *x = (float*)(room + GRAM_TILES * GRAM_TILE), *y = (float*)room;
    Quadrant sums = {};
    // The quadrant below the diagonal equals the one above it.
    bool idle = same && quadrant_row() > quadrant_column();
    for (int at = 0, stage = 0; at < of_all; ++at, stage = (stage + 1) % stages) {
        wait_groups<stages - 2>();
        __syncthreads();
        begin((stage + stages - 1) % stages);
        const real* tile = room + stage * sides * GRAM_TILE;
        if (!idle)
            add_inner(sums, address_of(tile), address_of(same ? tile : tile + GRAM_TILE));
        if (at + 1 == of_inputs) join(sums, x);
    }
    __syncthreads();
    join(sums, y);
    double sum = 0.0, diagonal = 0.0, lost_x, lost_y;
    lost(pairs, layers, count, &lost_x, &lost_y);
    for (int n = threadIdx.x; n < SIDE * SIDE; n += 256) {
        int row = n / SIDE, column = n % SIDE, at = row * SUM_ROW + column;
        bool twin = same && row >= 32 && column < 32;
        if (twin) continue;
        size t = left + row, s = right + column;
        double pair = 0.0;
        if (pairs.inputs) pair = x[at];
        if (pairs.indices && t < task.end && s < task.other_end) {
            u32 index = pairs.indices[t];
            pair = pairs.others ? (index == pairs.others[s] ? 1.0 : 0.0)
                                : wide(pairs.factor.data[s * pairs.factor.stride + index]);
        }
        double product = pair * (double)y[at];
        sum += same && row < 32 && column >= 32 ? 2.0 * product : product;
        if (t == s && t < task.end)
            diagonal += sqrt((pair + lost_x) * ((double)y[at] + lost_y));
    }
    sum = block_sum(sum, space);
    diagonal = block_sum(diagonal, space);
    if (threadIdx.x == 0) {
        partial[2 * blockIdx.x] = (double)task.times * sum;
        partial[2 * blockIdx.x + 1] = diagonal;
    }
}

__device__ __forceinline__ void gram(
    const Pairs& pairs, const Part* layers, size count, const Task* tasks, double* partial) {
    Task task = tasks[blockIdx.x];
    bool same = (size)task.start + task.first == (size)task.other_start + task.second;
    if (pairs.inputs) same = same && pairs.inputs[0].data == pairs.inputs[1].data;
    // X_ts = X_st only if both sides have the same indices.
    if (pairs.indices) same = same && pairs.indices == pairs.others;
    for (size k = 0; k < count; ++k) same = same && layers[2 * k].data == layers[2 * k + 1].data;
    if (same)
        gram_tile<true>(pairs, layers, count, task, partial);
    else
        gram_tile<false>(pairs, layers, count, task, partial);
}

// The Gram tiles of many products.
extern "C" __global__ void __launch_bounds__(256, 2) unit_gram_all(
    const Product* products, const Part* parts, const Task* tasks, double* partial) {
    Product product = products[tasks[blockIdx.x].product];
    const u32* indices = product.indices;
    const Part* inputs = indices ? (const Part*)0 : parts + product.first;
    gram(Pairs{inputs, indices, indices, Part{}}, parts + product.first + 2, product.count, tasks,
         partial);
}

extern "C" __global__ void __launch_bounds__(256, 2) unit_gram(
    const Part* inputs, const Part* layers, size count, const Task* tasks, double* partial) {
    gram(Pairs{inputs, 0, 0, Part{}}, layers, count, tasks, partial);
}

extern "C" __global__ void __launch_bounds__(256, 2) unit_table(
    const u32* indices, const u32* others, const Part* layers, size count, const Task* tasks,
    double* partial) {
    gram(Pairs{0, indices, others, Part{}}, layers, count, tasks, partial);
}

extern "C" __global__ void __launch_bounds__(256, 2) unit_table_product(
    const u32* indices, const Part* factor, const Part* layers, size count, const Task* tasks,
    double* partial) {
    gram(Pairs{0, indices, 0, *factor}, layers, count, tasks, partial);
}

#define FORMED_ROWS 64
#define FORMED_TILE (FORMED_ROWS * SIDE_ROW)

// A tile of a formed gradient G = Σ_t e_t ⊗ a_t over rows `start` … before `end`: its rows are
// columns `first` … of e, and its columns are columns `second` … of a. Warp w has rows 16 (w mod 4)
// … and columns 32 (w div 4) … of the tile.
__device__ __forceinline__ void form_tile(
    Tile& total, const Part& a, const Part& e, size start, size end, size first, size second) {
    bf16 *l = (bf16*)tiles, *r = l + HALVES * FORMED_TILE;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    // Of the four matrices of a load, this lane addresses a row of this one.
    int matrix = lane >> 3, row = lane & 7;
    const bf16* e_at =
        l + ((matrix >> 1) * 8 + row) * SIDE_ROW + 16 * (warp & 3) + (matrix & 1) * 8;
    const bf16* a_at =
        r + ((matrix & 1) * 8 + row) * SIDE_ROW + 32 * (warp >> 2) + (matrix >> 1) * 8;
    Held<FORMED_ROWS, SIDE> of_e, of_a;
    of_e.load(e, start, end, first);
    of_a.load(a, start, end, second);
    for (size token = start; token < end; token += FORMED_ROWS) {
        __syncthreads();
        of_e.store(l, SIDE_ROW, FORMED_TILE);
        of_a.store(r, SIDE_ROW, FORMED_TILE);
        __syncthreads();
        if (token + FORMED_ROWS < end) {
            of_e.load(e, token + FORMED_ROWS, end, first);
            of_a.load(a, token + FORMED_ROWS, end, second);
        }
        Tile sums = {};
#pragma unroll
        for (int k = 0; k < FORMED_ROWS; k += 16) {
            u32 left[HALVES][4];
#pragma unroll
            for (int h = 0; h < HALVES; ++h)
                load_transposed(left[h], e_at + h * FORMED_TILE + k * SIDE_ROW);
#pragma unroll
            for (int n = 0; n < 4; n += 2)
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    u32 b[4];
                    load_transposed(b, a_at + h * FORMED_TILE + k * SIDE_ROW + 8 * n);
#pragma unroll
                    for (int i = 0; i < HALVES - h; ++i) {
                        multiply_add(sums[n], left[i], b[0], b[1]);
                        multiply_add(sums[n + 1], left[i], b[2], b[3]);
                    }
                }
        }
#pragma unroll
        for (int n = 0; n < 4; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) total[n][i] += sums[n][i];
    }
}

// Formed gradients: partial[2 task] = Σ_ij G_ij² over a tile of G. For a unit with more rows than
// the width of G this takes less work. Covers many products; `times` of a task is its layer.
extern "C" __global__ void __launch_bounds__(256, 2) unit_formed_all(
    const Product* products, const Part* parts, const Task* tasks, double* partial) {
    __shared__ double space[32];
    Task task = tasks[blockIdx.x];
    const Part* sides = parts + products[task.product].first;
    Tile total = {};
    form_tile(total, sides[0], sides[2 + 2 * task.times], task.start, task.end, task.first,
              task.second);
    double sum = 0.0;
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += (double)total[n][i] * (double)total[n][i];
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) {
        partial[2 * blockIdx.x] = sum;
        partial[2 * blockIdx.x + 1] = 0.0;
    }
}

// Formed gradients with one or two weights per coordinate, stored in the order of the coordinates:
// partial[2 (unit · tiles + tile) + n] = Σ_ij w_nij G_ij². Block (tile, unit), with `across` tiles
// side by side.
extern "C" __global__ void __launch_bounds__(256, 2) unit_formed_weighted(
    const Part* inputs, const Part* layers, const float* weights, const float* others,
    const u32* ranges, size across, double* partial) {
    __shared__ double space[32];
    size unit = blockIdx.y;
    Part a = inputs[0], e = layers[0];
    size first = blockIdx.x / across * SIDE, second = blockIdx.x % across * SIDE;
    Tile total = {};
    form_tile(total, a, e, ranges[2 * unit], ranges[2 * unit + 1], first, second);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    size row = first + 16 * (warp & 3) + (lane >> 2);
    size column = second + 32 * (warp >> 2) + (lane & 3) * 2;
    double sums[2] = {};
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            size at_row = row + (i >> 1) * 8, at_column = column + 8 * n + (i & 1);
            if (at_row >= e.columns || at_column >= a.columns) continue;
            double square = (double)total[n][i] * (double)total[n][i];
            size at = at_row * a.columns + at_column;
            // A coordinate with weight 0 adds nothing, unless it is not finite.
            sums[0] += (double)weights[at] * square;
            if (others) sums[1] += (double)others[at] * square;
        }
    size at = 2 * (unit * gridDim.x + blockIdx.x);
    for (int n = 0; n < 2; ++n) {
        double sum = block_sum(sums[n], space);
        if (threadIdx.x == 0) partial[at + n] = sum;
    }
}

// Pipeline stages for the tiles of both sides of a kept gradient: one in use and two being loaded.
#define KEPT_STAGES 3

// Rows `token` … before `end` and columns `column` … of a bf16 matrix as a tile, with zeros beyond,
// without waiting. A thread has 16 bytes of each of two rows.
__device__ __forceinline__ void copy_tile(
    bf16* tile, const Part& part, size token, size end, size column) {
    int row = threadIdx.x >> 3, first = (threadIdx.x & 7) * PACK;
    int left = (int)(part.columns - column) - first;
    int count = left <= 0 ? 0 : left < PACK ? left : PACK;
    bool whole = ((u64)part.data & 15) == 0 && part.stride % PACK == 0;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        size t = token + row + 32 * n;
        const real* from = part.data + t * part.stride + column + first;
        bf16* to = tile + (row + 32 * n) * SIDE_ROW + first;
        int inside = t < end ? count : 0;
        if (whole) {
            // For zero bytes, any address within the matrix will do.
            copy_later(address_of(to), inside ? from : part.data, inside * (int)sizeof(real));
        } else {
#pragma unroll
            for (int k = 0; k < PACK; ++k) narrow(k < inside ? wide(from[k]) : 0.0f, to[k]);
        }
    }
}

// Like `form_tile`, for bf16 values, and without an error bound on the sums: a kept gradient is
// used as it is. The tiles of the next tokens are loaded while the current ones are multiplied.
__device__ __forceinline__ void form_kept_tile(
    Tile& total, const Part& a, const Part& e, size start, size end, size first, size second) {
    bf16* room = (bf16*)tiles;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    // Of the four matrices of a load, this lane addresses a row of this one.
    int matrix = lane >> 3, row = lane & 7;
    int e_at = ((matrix >> 1) * 8 + row) * SIDE_ROW + 16 * (warp & 3) + (matrix & 1) * 8;
    int a_at = ((matrix & 1) * 8 + row) * SIDE_ROW + 32 * (warp >> 2) + (matrix >> 1) * 8;
    // For a narrow gradient, most warps have no column: they only copy.
    int rows = (int)(e.columns - first) - 16 * (warp & 3);
    int columns = rows <= 0 ? 0 : (int)(a.columns - second) - 32 * (warp >> 2);
#pragma unroll
    for (int stage = 0; stage < KEPT_STAGES - 1; ++stage) {
        size token = start + stage * FORMED_ROWS;
        bf16* l = room + 2 * stage * FORMED_TILE;
        if (token < end) {
            copy_tile(l, e, token, end, first);
            copy_tile(l + FORMED_TILE, a, token, end, second);
        }
        end_group();
    }
    int stage = 0, next = KEPT_STAGES - 1;
    for (size token = start; token < end; token += FORMED_ROWS) {
        wait_groups<KEPT_STAGES - 2>();
        __syncthreads();
        size later = token + (KEPT_STAGES - 1) * FORMED_ROWS;
        if (later < end) {
            bf16* l = room + 2 * next * FORMED_TILE;
            copy_tile(l, e, later, end, first);
            copy_tile(l + FORMED_TILE, a, later, end, second);
        }
        end_group();
        const bf16 *l = room + 2 * stage * FORMED_TILE, *r = l + FORMED_TILE;
        stage = stage + 1 == KEPT_STAGES ? 0 : stage + 1;
        next = next + 1 == KEPT_STAGES ? 0 : next + 1;
        if (columns <= 0) continue;
#pragma unroll
        for (int k = 0; k < FORMED_ROWS; k += 16) {
            u32 left[4];
            load_transposed(left, l + e_at + k * SIDE_ROW);
#pragma unroll
            for (int n = 0; n < 4; n += 2) {
                if (8 * n >= columns) continue;
                u32 b[4];
                load_transposed(b, r + a_at + k * SIDE_ROW + 8 * n);
                multiply_add(total[n], left, b[0], b[1]);
                multiply_add(total[n + 1], left, b[2], b[3]);
            }
        }
    }
}

// Kept gradients: row u of the output is Σ_t l_t ⊗ r_t over the rows of unit u, one value for each
// pair of columns. Block: one of the `tiles` tiles of a unit, `across` of which lie side by side.
extern "C" __global__ void __launch_bounds__(256, 2) unit_gradients(
    const real* left, size left_stride, size left_columns, const real* right, size right_stride,
    size right_columns, const u32* ranges, u32 tiles, u32 across, float* gradients) {
    u32 unit = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    size first = tile / across * SIDE, second = tile % across * SIDE;
    Part l = {left, left_stride, left_columns}, r = {right, right_stride, right_columns};
    Tile total = {};
    u32 start = ranges[2 * unit], end = ranges[2 * unit + 1];
    if (HALVES == 1)
        form_kept_tile(total, r, l, start, end, first, second);
    else
        form_tile(total, r, l, start, end, first, second);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    size row = first + 16 * (warp & 3) + (lane >> 2);
    size column = second + 32 * (warp >> 2) + (lane & 3) * 2;
    float* to = gradients + unit * left_columns * right_columns;
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            size at_row = row + (i >> 1) * 8, at_column = column + 8 * n;
            if (at_row >= left_columns) continue;
            float* at = to + at_row * right_columns + at_column;
            if (right_columns % 2 == 0 && at_column + 2 <= right_columns) {
                *(float2*)at = make_float2(total[n][i], total[n][i + 1]);
            } else {
                if (at_column < right_columns) at[0] = total[n][i];
                if (at_column + 1 < right_columns) at[1] = total[n][i + 1];
            }
        }
}
