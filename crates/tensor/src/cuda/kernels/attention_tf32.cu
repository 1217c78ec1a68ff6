// Scaled dot-product attention over packed sequences of different lengths, in f32 with TF32 on
// tensor cores; attention.cu is the f32 version, and attention_bf16.cu the bf16 version.
//
//   S = Q Kᵀ / √width,  P = softmax(S) over the visible keys,  O = (P ⊙ M) V,
//
// with the dropout mask M. qkv [tokens, (heads + 2 · key_heads) · width] has queries, keys and
// values side by side; O is [tokens, heads · width]; log_sums [tokens, heads] has log Σ e^S of each
// row, from which the backward pass recomputes P:
//
//   dV = (P ⊙ M)ᵀ dO,  dS = P ⊙ (M ⊙ dO Vᵀ − along),  dQ = dS K / √width,  dK = dSᵀ Q / √width,
//
// with along = ⟨O, dO⟩ of each row. Sums and the softmax are in f32. Every factor of a product is
// rounded to nearest TF32: values from memory as soon as they have arrived in shared memory, by the
// thread that copied them, or on their way to the registers that keep them; P and dS in registers.
//
// A block of four warps owns TILE rows (of queries or of keys) and iterates over the rows of the
// other side in steps. Two buffers alternate: while a step is computed, the next one is loaded from
// memory. Each warp owns 16 rows of the tile and, if the tile has fewer than 64 rows, only a part
// of the columns of its sums. Rows of other sequences are never loaded: a tile has zeros beyond the
// end of its sequence and beyond the width.
//
// Fragments. A product of a warp is D[16, 8] += A[16, 8] B[8, 8]. With g = lane / 4 and t = lane %
// 4, a lane holds
//
//   D:  (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1);
//   A:  (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4);
//   B:  (t, g), (t + 4, g).
//
// S and dO Vᵀ are such a D, with A and B in their memory layout. Sums over the rows of a step are
// computed transposed, as Oᵀ = Vᵀ Pᵀ and so on: 16 columns of the tile are the rows of A, and 8
// rows of P or dS the columns of B. Any row of the tile can be column t of A, as long as it
// corresponds to row t of B: here it is row 2t, and row 2t + 1 for t + 4. The upper and the lower
// half of a D, rounded, then form two B without moving data, and P and dS never leave the
// registers, except for dQ of a short sequence (see `attention_backward_keys`). Likewise, row g of
// A need not be column g of the tile: it is column 2g, and 2g + 1 for g + 8, which are fetched
// together.

// In shared memory, values that belong to a whole row are stored at the end of the row. Rows 0, 2,
// 4 and 6 lie in different banks if 32 bytes of each are fetched.
// Rows per step, limited by registers and 99 KB.
constexpr int FORWARD_STEP = WIDTH <= 128 ? 32 : 16;
constexpr int BACKWARD_STEP = WIDTH <= 64 ? 32 : 16;
// Whether the backward pass has two buffers. The forward pass always does.
constexpr bool TURNS = WIDTH <= 128;
// Blocks per multiprocessor, for which there must be registers.
constexpr int FORWARD_BLOCKS = WIDTH <= 32 ? 6 : WIDTH <= 64 ? 4 : 2;
constexpr int BACKWARD_BLOCKS = WIDTH <= 32 ? 4 : WIDTH <= 64 ? 3 : 2;
// How many of a block's own rows stay in registers, in groups of eight columns: with results of one
// kind, and for the values with results of two kinds.
constexpr int STAY = WIDTH <= 64 ? WIDTH / 8 : 0;
constexpr int STAY_VALUES = STAY / 2;
// dS of a step needs its own space only if that of the gradient is too small.
constexpr int SLOPES_PITCH = TILE + 4;
constexpr int SLOPES = TILE > WIDTH ? BACKWARD_STEP * SLOPES_PITCH : 0;

// Values that are moved together.
struct __align__(16) Four {
    float of[4];
};

struct __align__(8) Two {
    float of[2];
};

// Fetches two adjacent values.
__device__ __forceinline__ void fetch_two(u32& first, u32& second, u32 address) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(address));
}

__device__ __forceinline__ void multiply(
    float (&sums)[4], const u32 (&left)[4], u32 upper, u32 lower) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(upper), "r"(lower));
}

// The nearest TF32 value.
__device__ __forceinline__ u32 nearest(float x) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

// ---- Tiles ----

// Offset in bytes from the start of a 16 × 8 matrix to the row that this lane addresses in `fetch`,
// with its four parts in the order (0, 0), (8, 0), (0, 4), (8, 4): the order of A.
__device__ __forceinline__ u32 down() {
    return 4 * ((lane() & 15) * PITCH + (lane() >> 4) * 4);
}

// The same in the order (0, 0), (0, 4), (8, 0), (8, 4): the order of two B side by side whose
// columns are rows of the tile.
__device__ __forceinline__ u32 across(int pitch) {
    return 4 * (((lane() & 7) + (lane() >> 4) * 8) * pitch + ((lane() >> 3) & 1) * 4);
}

// Offset in bytes from the start of an 8 × 16 matrix to the part that this lane reads with
// `fetch_two`: columns 2g and 2g + 1 of row 2t, with row 2t + 1 below.
__device__ __forceinline__ u32 upright() {
    return 4 * ((lane() & 3) * 2 * PITCH + (lane() >> 2) * 2);
}

// Rounds the values loaded by this thread to TF32.
template <int ROWS>
__device__ __forceinline__ void round_tile(float* tile) {
    constexpr int PARTS = WIDTH / 4, APART = THREADS / PARTS;
    float* at = tile + threadIdx.x / PARTS * PITCH + threadIdx.x % PARTS * 4;
#pragma unroll
    for (int i = 0; i < ROWS; i += APART) {
        Four x = *(const Four*)(at + i * PITCH);
#pragma unroll
        for (int j = 0; j < 4; ++j) x.of[j] = __uint_as_float(nearest(x.of[j]));
        *(Four*)(at + i * PITCH) = x;
    }
}

// Writes the sums of `mix`, multiplied by the rows' factors, to a tile; the 16 rows and the columns
// start at `tile`. Factors are those of rows 2t, 2t + 1, 2t + 8 and 2t + 9.
template <int COLUMNS>
__device__ __forceinline__ void put(
    float* tile, const float (&sums)[COLUMNS / 8][4], const float (&factors)[4]) {
    float* to = tile + (lane() & 3) * 2 * PITCH + (lane() >> 2) * 2;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float factor = factors[2 * (n & 1) + i];
            *(Two*)(to + (8 * (n & 1) + i) * PITCH + n / 2 * 16) =
                Two{{factor * sums[n][i], factor * sums[n][i + 2]}};
        }
}

template <int COLUMNS>
__device__ __forceinline__ void put(
    float* tile, const float (&sums)[COLUMNS / 8][4], float factor) {
    float factors[4] = {factor, factor, factor, factor};
    put<COLUMNS>(tile, sums, factors);
}

// The 16 rows of a tile that a warp multiplies from the left: the first HELD · 8 columns stay in
// registers, the others are fetched each time. If all of them stay, they are rounded here, and the
// tile need not be.
template <int HELD>
struct Left {
    u32 parts[HELD ? HELD : 1][4];
    u32 address;

    __device__ __forceinline__ Left(const float* rows) {
        address = shared_address(rows) + down();
#pragma unroll
        for (int k = 0; k < HELD; ++k) {
            fetch(parts[k], address + 32 * k);
            if (HELD == WIDTH / 8) {
#pragma unroll
                for (int i = 0; i < 4; ++i) parts[k][i] = nearest(__uint_as_float(parts[k][i]));
            }
        }
    }

    __device__ __forceinline__ void get(u32 (&to)[4], int k) const {
        if (k < HELD) {
#pragma unroll
            for (int i = 0; i < 4; ++i) to[i] = parts[k < HELD ? k : 0][i];
        } else {
            fetch(to, address + 32 * k);
        }
    }
};

// sums_ij = ⟨left_i, right_j⟩ for COUNT rows of a tile, with `across` added to `right`.
template <int COUNT, int HELD>
__device__ __forceinline__ void inner(
    float (&sums)[COUNT / 8][4], const Left<HELD>& left, u32 right) {
#pragma unroll
    for (int n = 0; n < COUNT / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < WIDTH / 8; ++k) {
        u32 l[4];
        left.get(l, k);
#pragma unroll
        for (int n = 0; n < COUNT / 16; ++n) {
            u32 r[4];
            fetch(r, right + 4 * (16 * n * PITCH + 8 * k));
            multiply(sums[2 * n], l, r[0], r[1]);
            multiply(sums[2 * n + 1], l, r[2], r[3]);
        }
    }
}

// sums_ic += Σ_k left_ik right_kc over COUNT rows of a tile, with `upright` added to `right`.
// sums[2 n] and sums[2 n + 1] are columns 16 n … 16 n + 15 of rows 0 … 7 and 8 … 15, transposed.
template <int COUNT, int COLUMNS>
__device__ __forceinline__ void mix(
    float (&sums)[COLUMNS / 8][4], const u32 (&left)[COUNT / 8][4], u32 right) {
#pragma unroll
    for (int k = 0; k < COUNT / 8; ++k)
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; ++n) {
            u32 r[4];
            fetch_two(r[0], r[1], right + 4 * (8 * k * PITCH + 16 * n));
            fetch_two(r[2], r[3], right + 4 * ((8 * k + 1) * PITCH + 16 * n));
            multiply(sums[2 * n], r, left[k][0], left[k][1]);
            multiply(sums[2 * n + 1], r, left[k][2], left[k][3]);
        }
}

// Sums as a factor of the next product.
template <int COUNT>
__device__ __forceinline__ void round_off(
    u32 (&to)[COUNT / 8][4], const float (&sums)[COUNT / 8][4]) {
#pragma unroll
    for (int k = 0; k < COUNT / 8; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) to[k][i] = nearest(sums[k][i]);
}

// ---- Forward ----

// Maps values of rows g and g + 8 to those of rows 2t, 2t + 1, 2t + 8 and 2t + 9.
__device__ __forceinline__ void turn(float (&to)[4], const float (&from)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
        to[i] = __shfl_sync(0xffffffffu, from[i >> 1], (lane() & 3) * 8 + (i & 1) * 4);
}

// Turns products of queries and keys into P ⊙ M without the division by the total, and rescales the
// earlier sums. `factor` is log2(e) / √width; it is positive, so the largest product is the largest
// score.
__device__ __forceinline__ void exponentials(
    float (&s)[FORWARD_STEP / 8][4], Softmax& softmax, float (&mixed)[OWN / 8][4],
    float factor) {
    float corrections[2], turned[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float most = softmax.largest[half];
#pragma unroll
        for (int n = 0; n < FORWARD_STEP / 8; ++n)
            most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        corrections[half] = power_of_two((softmax.largest[half] - most) * factor);
        float base = most * factor, sum = 0.0f;
#pragma unroll
        for (int n = 0; n < FORWARD_STEP / 8; ++n)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                s[n][i] = power_of_two(fmaf(s[n][i], factor, -base));
                sum += s[n][i];
            }
        softmax.largest[half] = most;
        softmax.total[half] = fmaf(softmax.total[half], corrections[half], sum);
    }
    turn(turned, corrections);
#pragma unroll
    for (int n = 0; n < OWN / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) mixed[n][i] *= turned[2 * (n & 1) + (i & 1)];
}

// Block (p, h): the queries of piece p in head h, with a running softmax over the keys. The last
// pieces come first, because in a causal sequence they have the most work.
extern "C" __global__ void __launch_bounds__(THREADS, FORWARD_BLOCKS)
    attention_forward(PARAMETERS, float* output, float* log_sums) {
    constexpr int STEP = FORWARD_STEP;
    Attention a = ATTENTION;
    float* query = (float*)memory;
    float* buffers = query + TILE * PITCH;
    Piece piece = pieces[gridDim.x - 1 - blockIdx.x];
    size head = blockIdx.y;
    int length = piece.length, first = piece.first, columns = a.width;
    bool whole = aligned(a.qkv, a.stride, a.width);
    const float* rows = a.qkv + (size)piece.start * a.stride;
    const float* keys_from = rows + key_column(a, head);
    auto buffer = [&](int start) { return buffers + (start / STEP & 1) * (2 * STEP * PITCH); };
    auto load_step = [&](int start) {
        float* key = buffer(start);
        load<STEP>(key, keys_from, a.stride, start, length, columns, whole);
        load<STEP>(key + STEP * PITCH, keys_from + a.key_heads * a.width, a.stride, start,
                   length, columns, whole);
    };
    load<TILE>(query, rows + head * a.width, a.stride, first, length, columns, whole);
    load_step(0);
    int group = warp() % GROUPS, part = warp() / GROUPS;
    int top = first + 16 * group, row = top + (lane() >> 2), column = 2 * (lane() & 3);
    float factor = a.scale * LOG2_E;
    float mixed[OWN / 8][4] = {};
    Softmax softmax = {{-INFINITE, -INFINITE}, {0.0f, 0.0f}};
    wait();
    if (STAY == 0) round_tile<TILE>(query);
    // Keys and values are stored consecutively.
    round_tile<2 * STEP>(buffers);
    __syncthreads();
    Left<STAY> left(query + 16 * group * PITCH);
    int keys = a.causal && first + TILE < length ? first + TILE : length;
    for (int start = 0; start < keys; start += STEP) {
        int next = start + STEP;
        if (next < keys) load_step(next);
        float* key = buffer(start);
        if (top < length && !(a.causal && start > top + 15)) {
            float s[STEP / 8][4];
            inner<STEP>(s, left, shared_address(key) + across(PITCH));
            if (next > length || (a.causal && next - 1 > top))
                hide<STEP>(s, a, start + column, row, length);
            exponentials(s, softmax, mixed, factor);
            if (a.kept != 0.0f) {
                u64 fork = fork_of(a, piece, head);
#pragma unroll
                for (int n = 0; n < STEP / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        s[n][i] *= dropped(a, fork, row + (i >> 1) * 8,
                                           start + 8 * n + column + (i & 1), length);
            }
            u32 p[STEP / 8][4];
            round_off<STEP>(p, s);
            mix<STEP, OWN>(mixed, p,
                           shared_address(key + STEP * PITCH + part * OWN) + upright());
        }
        wait();
        if (next < keys) round_tile<2 * STEP>(buffer(next));
        __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float& total = softmax.total[half];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        int by = row + 8 * half;
        if (part == 0 && column == 0 && by < length)
            log_sums[((size)piece.start + by) * a.heads + head] =
                fmaf(softmax.largest[half], a.scale, logf(total));
    }
    float parts[2] = {1.0f / softmax.total[0], 1.0f / softmax.total[1]}, factors[4];
    turn(factors, parts);
    put<OWN>(query + 16 * group * PITCH + part * OWN, mixed, factors);
    __syncthreads();
    size across_heads = a.heads * a.width;
    store<TILE>(output + (size)piece.start * across_heads + head * a.width, across_heads, first,
                length, columns, query, aligned(output, across_heads, a.width));
}

// ---- Backward ----

// along [tokens, heads]: ⟨O, dO⟩ of each head of each token, which equals Σ_j P_j dP_j of its row.
// Block: a token; WIDTH / 8 threads share a head.
extern "C" __global__ void attention_along(
    const float* output, size output_stride, const float* gradient, size gradient_stride,
    size heads, size width, float* along) {
    constexpr int SHARERS = WIDTH / 8;
    size token = blockIdx.x;
    bool whole = aligned(output, output_stride, width) &&
                 aligned(gradient, gradient_stride, width);
    size together = blockDim.x / SHARERS;
    for (size base = 0; base < heads; base += together) {
        size head = base + threadIdx.x / SHARERS;
        float sum = 0.0f;
        if (head < heads) {
            const float* o = output + token * output_stride + head * width;
            const float* g = gradient + token * gradient_stride + head * width;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                size column = threadIdx.x % SHARERS * 4 + half * (WIDTH / 2);
                if (whole && column < width) {
                    Four left = *(const Four*)(o + column), right = *(const Four*)(g + column);
#pragma unroll
                    for (int j = 0; j < 4; ++j) sum = fmaf(left.of[j], right.of[j], sum);
                } else {
                    for (int j = 0; j < 4 && column + j < width; ++j)
                        sum = fmaf(o[column + j], g[column + j], sum);
                }
            }
        }
        for (int offset = SHARERS / 2; offset > 0; offset >>= 1)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (head < heads && threadIdx.x % SHARERS == 0) along[token * heads + head] = sum;
    }
}

// Maps an element of a tile: a product of a query and a key to P ⊙ M, and a product of a value and
// a gradient to dS. `base` is log2(e) times the log-sum of the query.
__device__ __forceinline__ void slope(
    float& product, float& gradient, float factor, float base, float along) {
    product = power_of_two(fmaf(product, factor, -base));
    gradient = product * (gradient - along);
}

__device__ __forceinline__ void slope_dropped(
    float& product, float& gradient, float factor, float base, float along, float kept) {
    product = power_of_two(fmaf(product, factor, -base));
    gradient = product * (kept * gradient - along);
    product *= kept;
}

// A tile of the gradient of queries, keys or values, starting at a column.
template <int ROWS>
__device__ __forceinline__ void store_gradient(
    const Attention& a, float* result, const Piece& piece, size column, int first,
    const float* tile) {
    size columns = (a.heads + 2 * a.key_heads) * a.width;
    store<ROWS>(result + (size)piece.start * columns + column, columns, first, piece.length,
                a.width, tile, aligned(result, columns, a.width));
}

// dQ = dS K / √width. Block (p, h): the queries of piece p in head h. `attention_backward_keys`
// handles sequences of one tile.
extern "C" __global__ void __launch_bounds__(THREADS, BACKWARD_BLOCKS)
    attention_backward_queries(
        PARAMETERS, const float* log_sums, const float* along, const float* output_gradient,
        size gradient_stride, float* result) {
    constexpr int STEP = BACKWARD_STEP;
    Piece piece = pieces[gridDim.x - 1 - blockIdx.x];
    if (piece.length <= TILE) return;
    Attention a = ATTENTION;
    float* query = (float*)memory;
    float* gradient = query + TILE * PITCH;
    float* buffers = gradient + TILE * PITCH;
    size head = blockIdx.y;
    int length = piece.length, first = piece.first, columns = a.width;
    bool whole = aligned(a.qkv, a.stride, a.width);
    const float* rows = a.qkv + (size)piece.start * a.stride;
    const float* keys_from = rows + key_column(a, head);
    auto buffer = [&](int start) {
        return buffers + (TURNS ? start / STEP & 1 : 0) * (2 * STEP * PITCH);
    };
    auto load_step = [&](int start) {
        float* key = buffer(start);
        load<STEP>(key, keys_from, a.stride, start, length, columns, whole);
        load<STEP>(key + STEP * PITCH, keys_from + a.key_heads * a.width, a.stride, start,
                   length, columns, whole);
    };
    load<TILE>(query, rows + head * a.width, a.stride, first, length, columns, whole);
    load<TILE>(gradient,
               output_gradient + (size)piece.start * gradient_stride + head * a.width,
               gradient_stride, first, length, columns,
               aligned(output_gradient, gradient_stride, a.width));
    load_step(0);
    int group = warp() % GROUPS, part = warp() / GROUPS;
    int top = first + 16 * group, row = top + (lane() >> 2), column = 2 * (lane() & 3);
    float factor = a.scale * LOG2_E;
    float base[2], sum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int by = row + 8 * half;
        size at = ((size)piece.start + by) * a.heads + head;
        base[half] = by < length ? log_sums[at] * LOG2_E : 0.0f;
        sum[half] = by < length ? along[at] : 0.0f;
    }
    float sums[OWN / 8][4] = {};
    wait();
    // Queries and their gradients are stored consecutively, and so are keys and values.
    if (STAY == 0) round_tile<2 * TILE>(query);
    round_tile<2 * STEP>(buffers);
    __syncthreads();
    Left<STAY> left(query + 16 * group * PITCH), above(gradient + 16 * group * PITCH);
    int keys = a.causal && first + TILE < length ? first + TILE : length;
    // The rows of this warp attend to keys before `end`.
    int end = top >= length ? 0 : a.causal && top + 16 < length ? top + 16 : length;
    for (int start = 0; start < keys; start += STEP) {
        int next = start + STEP;
        if (TURNS && next < keys) load_step(next);
        float* key = buffer(start);
        if (start < end) {
            float s[STEP / 8][4], ds[STEP / 8][4];
            inner<STEP>(s, left, shared_address(key) + across(PITCH));
            inner<STEP>(ds, above, shared_address(key + STEP * PITCH) + across(PITCH));
            int key_at = start + column;
            if (next > length || (a.causal && next - 1 > top))
                hide<STEP>(s, a, key_at, row, length);
            if (a.kept == 0.0f) {
#pragma unroll
                for (int n = 0; n < STEP / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        slope(s[n][i], ds[n][i], factor, base[i >> 1], sum[i >> 1]);
            } else {
                u64 fork = fork_of(a, piece, head);
#pragma unroll
                for (int n = 0; n < STEP / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        slope_dropped(s[n][i], ds[n][i], factor, base[i >> 1], sum[i >> 1],
                                      dropped(a, fork, row + (i >> 1) * 8,
                                              key_at + 8 * n + (i & 1), length));
            }
            u32 slopes[STEP / 8][4];
            round_off<STEP>(slopes, ds);
            mix<STEP, OWN>(sums, slopes, shared_address(key + part * OWN) + upright());
        }
        if (!TURNS) {
            __syncthreads();
            if (next < keys) load_step(next);
        }
        wait();
        if (next < keys) round_tile<2 * STEP>(buffer(next));
        __syncthreads();
    }
    put<OWN>(query + 16 * group * PITCH + part * OWN, sums, a.scale);
    __syncthreads();
    store_gradient<TILE>(a, result, piece, head * a.width, first, query);
}

// dS of a warp's 16 keys, visible to all warps, with queries as the rows. Of eight keys, 2t is at t
// and 2t + 1 at t + 4, where `fetch` expects them for B.
__device__ __forceinline__ void show(float* to, const u32 (&slopes)[BACKWARD_STEP / 8][4]) {
    int g = lane() >> 2;
    float* at = to + (lane() & 3) * 2 * SLOPES_PITCH + (g >> 1) + (g & 1) * 4;
#pragma unroll
    for (int k = 0; k < BACKWARD_STEP / 8; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            at[(8 * k + (i & 1)) * SLOPES_PITCH + (i >> 1) * 8] = __uint_as_float(slopes[k][i]);
}

// Writes to `to` dQ of a step whose keys are all in this block: a warp has 16 queries and some
// columns.
__device__ __forceinline__ void query_gradient(
    float* to, const float* slopes, const float* key, float scale) {
    constexpr int STRIPES = BACKWARD_STEP / 16, COLUMNS = WIDTH * STRIPES / WARPS;
    int stripe = warp() % STRIPES, part = warp() / STRIPES;
    u32 left = shared_address(slopes + 16 * stripe * SLOPES_PITCH) + across(SLOPES_PITCH);
    u32 right = shared_address(key + part * COLUMNS) + upright();
    float sums[COLUMNS / 8][4] = {};
#pragma unroll
    for (int k = 0; k < TILE / 8; ++k) {
        u32 l[1][4];
        fetch(l[0], left + 32 * k);
        mix<8, COLUMNS>(sums, l, right + 4 * 8 * k * PITCH);
    }
    put<COLUMNS>(to + 16 * stripe * PITCH + part * COLUMNS, sums, scale);
}

// dK = dSᵀ Q / √width and dV = (P ⊙ M)ᵀ dO, summed over the query heads that share a key head.
// Block (p, h): the keys of piece p in key head h. Everything is transposed here: keys are the
// rows, so Pᵀ and dSᵀ can be used as factors directly.
//
// All keys of a sequence of one tile are in this block, which therefore also computes dQ: this
// saves computing P and dS a second time.
//
// Shared memory contains keys, values, dS if it has its own space, and then the steps: queries,
// each with its log-sum at the end of its row, and gradients, each with its `along`. The second
// step is unused if there is only one.
extern "C" __global__ void __launch_bounds__(THREADS, BACKWARD_BLOCKS)
    attention_backward_keys(
        PARAMETERS, const float* log_sums, const float* along, const float* output_gradient,
        size gradient_stride, float* result) {
    constexpr int STEP = BACKWARD_STEP;
    Attention a = ATTENTION;
    float* key = (float*)memory;
    float* value = key + TILE * PITCH;
    float* steps = value + TILE * PITCH + SLOPES;
    Piece piece = pieces[blockIdx.x];
    int share = (u32)a.heads / (u32)a.key_heads, head = blockIdx.y * share;
    int length = piece.length, first = piece.first, columns = a.width;
    bool alone = length <= TILE;
    bool whole = aligned(a.qkv, a.stride, a.width);
    bool gradient_whole = aligned(output_gradient, gradient_stride, a.width);
    const float* rows = a.qkv + (size)piece.start * a.stride;
    const float* gradients = output_gradient + (size)piece.start * gradient_stride;
    size keys_at = (a.heads + blockIdx.y) * a.width, values_at = keys_at + a.key_heads * a.width;
    auto load_step = [&](float* query, int head, int start) {
        float* gradient = query + STEP * PITCH;
        load<STEP>(query, rows + head * a.width, a.stride, start, length, columns, whole);
        load<STEP>(gradient, gradients + head * a.width, gradient_stride, start, length, columns,
                   gradient_whole);
        int i = threadIdx.x % STEP, by = start + i;
        size at = ((size)piece.start + (by < length ? by : 0)) * a.heads + head;
        if (threadIdx.x < STEP)
            copy_one(shared_address(query + i * PITCH + WIDTH), log_sums + at, by < length);
        else if (threadIdx.x < 2 * STEP)
            copy_one(shared_address(gradient + i * PITCH + WIDTH), along + at, by < length);
    };
    // Steps start at a multiple of their size; steps that causality hides are skipped.
    int begin = a.causal ? first : 0, end = head + share;
    load<TILE>(key, rows + keys_at, a.stride, first, length, columns, whole);
    load<TILE>(value, rows + values_at, a.stride, first, length, columns, whole);
    load_step(steps, head, begin);
    int group = warp() % GROUPS, part = warp() / GROUPS;
    int top = first + 16 * group, row = top + (lane() >> 2), column = 2 * (lane() & 3);
    float factor = a.scale * LOG2_E;
    float of_keys[OWN / 8][4] = {}, of_values[OWN / 8][4] = {};
    wait();
    round_tile<2 * TILE>(key);
    round_tile<2 * STEP>(steps);
    __syncthreads();
    Left<0> left(key + 16 * group * PITCH);
    Left<STAY_VALUES> above(value + 16 * group * PITCH);
    int start = begin;
    for (int n = 0; head < end; n ^= 1) {
        float* query = steps + (TURNS ? n : 0) * (2 * STEP * PITCH);
        float* gradient = query + STEP * PITCH;
        float* next = steps + (TURNS ? n ^ 1 : 0) * (2 * STEP * PITCH);
        bool last = start + STEP >= length;
        int next_start = last ? begin : start + STEP, next_head = last ? head + 1 : head;
        if (TURNS && next_head < end) load_step(next, next_head, next_start);
        u32 slopes[STEP / 8][4] = {};
        // Nothing to do if everything is hidden or beyond the end.
        if (top < length && !(a.causal && start + STEP <= top)) {
            float p[STEP / 8][4], ds[STEP / 8][4];
            inner<STEP>(p, left, shared_address(query) + across(PITCH));
            inner<STEP>(ds, above, shared_address(gradient) + across(PITCH));
            int query_at = start + column;
            if (start + STEP > length || top + 16 > length || (a.causal && top + 15 > start))
                hide_transposed<STEP>(p, a, query_at, row, length);
            const float* bases = query + column * PITCH + WIDTH;
            const float* sums = gradient + column * PITCH + WIDTH;
            if (a.kept == 0.0f) {
#pragma unroll
                for (int n = 0; n < STEP / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        slope(p[n][i], ds[n][i], factor,
                              bases[(8 * n + (i & 1)) * PITCH] * LOG2_E,
                              sums[(8 * n + (i & 1)) * PITCH]);
            } else {
                u64 fork = fork_of(a, piece, head);
#pragma unroll
                for (int n = 0; n < STEP / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        slope_dropped(p[n][i], ds[n][i], factor,
                                      bases[(8 * n + (i & 1)) * PITCH] * LOG2_E,
                                      sums[(8 * n + (i & 1)) * PITCH],
                                      dropped(a, fork, query_at + 8 * n + (i & 1),
                                              row + (i >> 1) * 8, length));
            }
            u32 probabilities[STEP / 8][4];
            round_off<STEP>(probabilities, p);
            round_off<STEP>(slopes, ds);
            mix<STEP, OWN>(of_values, probabilities,
                           shared_address(gradient + part * OWN) + upright());
            mix<STEP, OWN>(of_keys, slopes, shared_address(query + part * OWN) + upright());
        }
        if (alone) {
            // No warp needs the gradients any more, so their space is reused for dS.
            float* shown = SLOPES ? value + TILE * PITCH : gradient;
            if (!SLOPES) __syncthreads();
            if (part == 0) show(shown + 16 * group, slopes);
            // Nor the queries, whose space is reused for dQ.
            __syncthreads();
            query_gradient(query, shown, key, a.scale);
            __syncthreads();
            store_gradient<STEP>(a, result, piece, head * a.width, start, query);
        }
        if (!TURNS) {
            __syncthreads();
            if (next_head < end) load_step(next, next_head, next_start);
        }
        wait();
        if (next_head < end) round_tile<2 * STEP>(next);
        __syncthreads();
        start = next_start;
        head = next_head;
    }
    put<OWN>(key + 16 * group * PITCH + part * OWN, of_keys, a.scale);
    put<OWN>(value + 16 * group * PITCH + part * OWN, of_values, 1.0f);
    __syncthreads();
    store_gradient<TILE>(a, result, piece, keys_at, first, key);
    store_gradient<TILE>(a, result, piece, values_at, first, value);
}
