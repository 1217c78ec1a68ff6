// Scaled dot-product attention over packed sequences of different lengths, in bf16 on tensor cores;
// attention.cu is the f32 version.
//
//   S = Q Kᵀ / √width,  P = softmax(S) over the visible keys,  O = (P ⊙ M) V,
//
// with the dropout mask M. qkv [tokens, (heads + 2 · key_heads) · width] has queries, keys and
// values side by side; O is [tokens, heads · width]; log_sums [tokens, heads] has log Σ e^S of each
// row in f32, from which the backward pass recomputes P:
//
//   dV = (P ⊙ M)ᵀ dO,  dS = P ⊙ (M ⊙ dO Vᵀ − along),  dQ = dS K / √width,  dK = dSᵀ Q / √width,
//
// with along = ⟨O, dO⟩ of each row. Sums and the softmax are in f32; P and dS are rounded to bf16
// when used as a factor of a product.
//
// A block of four warps owns TILE rows (of queries or of keys) and iterates over the rows of the
// other side in steps. Two buffers alternate: while a step is computed, the next one is loaded from
// memory. Each warp owns 16 rows of the tile and, if the tile has fewer than 64 rows, only a part
// of the columns of its sums. Rows of other sequences are never loaded: a tile has zeros beyond the
// end of its sequence and beyond the width.
//
// Fragments. A product of a warp is D[16, 8] += A[16, 16] B[16, 8]. With g = lane / 4 and t = lane
// % 4, a lane holds
//
//   D:  (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1);
//   A:  pairs of columns 2t and 2t + 1 at (g, 0), (g + 8, 0), (g, 8), (g + 8, 8);
//   B:  pairs of rows 2t and 2t + 1 at column g, from row 0 and from row 8.
//
// Two adjacent D, rounded, therefore form an A without moving data: P and dS never leave the
// registers, except for dQ of a short sequence (see `attention_backward_keys`).

// Rows per step; the largest number for which two buffers fit in 99 KB.
constexpr int FORWARD_STEP = WIDTH <= 128 ? 64 : 32;
constexpr int BACKWARD_STEP = WIDTH <= 64 ? 64 : WIDTH <= 128 ? 32 : 16;
// Rows of a step that the backward pass processes at a time, limited by registers.
constexpr int CHUNK = BACKWARD_STEP < 32 ? BACKWARD_STEP : 32;
// Whether the block's own rows stay in registers.
constexpr bool HELD = WIDTH <= 64;
constexpr int SLOPES_PITCH = BACKWARD_STEP + 8;

// `fetch` for transposed 8 × 8 matrices.
__device__ __forceinline__ void fetch_transposed(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

// Waits until all copies of the block have arrived and all its warps have reached this point.
__device__ __forceinline__ void arrive() {
    wait();
    __syncthreads();
}

__device__ __forceinline__ void multiply(
    float (&sums)[4], const u32 (&left)[4], u32 upper, u32 lower) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(upper), "r"(lower));
}

// Rounds both to bf16, the first in the lower half.
__device__ __forceinline__ u32 pair(float first, float second) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

// ---- Tiles ----

// Offset in bytes from the start of a 16 × 16 matrix to the row that this lane addresses in
// `fetch`, with its four parts in the order (0, 0), (8, 0), (0, 8), (8, 8): the order of A, or of
// two B side by side whose rows are those of the tile, transposed.
__device__ __forceinline__ u32 down(int pitch) {
    return 2 * ((lane() & 15) * pitch + (lane() >> 4) * 8);
}

// The same in the order (0, 0), (0, 8), (8, 0), (8, 8): the order of two B side by side whose
// columns are rows of the tile, or of A transposed.
__device__ __forceinline__ u32 across(int pitch) {
    return 2 * (((lane() & 7) + (lane() >> 4) * 8) * pitch + ((lane() >> 3) & 1) * 8);
}

// Writes factors · sums, rounded, to a tile; the 16 rows and the columns start at `tile`.
template <int COLUMNS>
__device__ __forceinline__ void put(
    bf16* tile, const float (&sums)[COLUMNS / 8][4], float upper, float lower) {
    bf16* to = tile + (lane() >> 2) * PITCH + (lane() & 3) * 2;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; ++n) {
        *(u32*)(to + 8 * n) = pair(upper * sums[n][0], upper * sums[n][1]);
        *(u32*)(to + 8 * n + 8 * PITCH) = pair(lower * sums[n][2], lower * sums[n][3]);
    }
}

// The 16 rows of a tile that a warp multiplies from the left: in registers if there are enough,
// otherwise fetched each time.
struct Left {
    u32 parts[HELD ? WIDTH / 16 : 1][4];
    u32 address;

    __device__ __forceinline__ Left(const bf16* rows) {
        address = shared_address(rows) + down(PITCH);
        if (HELD) {
#pragma unroll
            for (int k = 0; k < WIDTH / 16; ++k) fetch(parts[HELD ? k : 0], address + 32 * k);
        }
    }

    __device__ __forceinline__ void get(u32 (&to)[4], int k) const {
        if (HELD) {
#pragma unroll
            for (int i = 0; i < 4; ++i) to[i] = parts[HELD ? k : 0][i];
        } else {
            fetch(to, address + 32 * k);
        }
    }
};

// sums_ij = ⟨left_i, right_j⟩ for COUNT rows of a tile, with `across` added to `right`.
template <int COUNT>
__device__ __forceinline__ void inner(float (&sums)[COUNT / 8][4], const Left& left, u32 right) {
#pragma unroll
    for (int n = 0; n < COUNT / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < WIDTH / 16; ++k) {
        u32 l[4];
        left.get(l, k);
#pragma unroll
        for (int n = 0; n < COUNT / 16; ++n) {
            u32 r[4];
            fetch(r, right + 2 * (16 * n * PITCH + 16 * k));
            multiply(sums[2 * n], l, r[0], r[1]);
            multiply(sums[2 * n + 1], l, r[2], r[3]);
        }
    }
}

// sums_ic += Σ_k left_ik right_kc over COUNT rows of a tile, with `down` added to `right`.
template <int COUNT, int COLUMNS>
__device__ __forceinline__ void mix(
    float (&sums)[COLUMNS / 8][4], const u32 (&left)[COUNT / 16][4], u32 right) {
#pragma unroll
    for (int k = 0; k < COUNT / 16; ++k)
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; ++n) {
            u32 r[4];
            fetch_transposed(r, right + 2 * (16 * k * PITCH + 16 * n));
            multiply(sums[2 * n], left[k], r[0], r[1]);
            multiply(sums[2 * n + 1], left[k], r[2], r[3]);
        }
}

// Sums as the left factor of the next product.
template <int COUNT>
__device__ __forceinline__ void round_off(
    u32 (&to)[COUNT / 16][4], const float (&sums)[COUNT / 8][4]) {
#pragma unroll
    for (int k = 0; k < COUNT / 16; ++k) {
        to[k][0] = pair(sums[2 * k][0], sums[2 * k][1]);
        to[k][1] = pair(sums[2 * k][2], sums[2 * k][3]);
        to[k][2] = pair(sums[2 * k + 1][0], sums[2 * k + 1][1]);
        to[k][3] = pair(sums[2 * k + 1][2], sums[2 * k + 1][3]);
    }
}

// ---- Forward ----

// Turns products of queries and keys into P ⊙ M without the division by the total, and rescales the
// earlier sums. `factor` is log2(e) / √width; it is positive, so the largest product is the largest
// score.
__device__ __forceinline__ void exponentials(
    float (&s)[FORWARD_STEP / 8][4], Softmax& softmax, float (&mixed)[OWN / 8][4],
    float factor) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float most = softmax.largest[half];
#pragma unroll
        for (int n = 0; n < FORWARD_STEP / 8; ++n)
            most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        float correction = power_of_two((softmax.largest[half] - most) * factor);
        float base = most * factor, sum = 0.0f;
#pragma unroll
        for (int n = 0; n < FORWARD_STEP / 8; ++n)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                s[n][i] = power_of_two(fmaf(s[n][i], factor, -base));
                sum += s[n][i];
            }
        softmax.largest[half] = most;
        softmax.total[half] = fmaf(softmax.total[half], correction, sum);
#pragma unroll
        for (int n = 0; n < OWN / 8; ++n) {
            mixed[n][2 * half] *= correction;
            mixed[n][2 * half + 1] *= correction;
        }
    }
}

// Block (p, h): the queries of piece p in head h, with a running softmax over the keys. The last
// pieces come first, because in a causal sequence they have the most work.
extern "C" __global__ void __launch_bounds__(THREADS, WIDTH <= 64 ? 4 : 2)
    attention_forward(PARAMETERS, bf16* output, float* log_sums) {
    constexpr int STEP = FORWARD_STEP;
    Attention a = ATTENTION;
    bf16* query = (bf16*)memory;
    bf16* buffers = query + TILE * PITCH;
    Piece piece = pieces[gridDim.x - 1 - blockIdx.x];
    size head = blockIdx.y;
    int length = piece.length, first = piece.first, columns = a.width;
    bool whole = aligned(a.qkv, a.stride, a.width);
    const bf16* rows = a.qkv + (size)piece.start * a.stride;
    const bf16* keys_from = rows + key_column(a, head);
    auto load_step = [&](int start) {
        bf16* key = buffers + (start / STEP & 1) * (2 * STEP * PITCH);
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
    arrive();
    Left left(query + 16 * group * PITCH);
    int keys = a.causal && first + TILE < length ? first + TILE : length;
    for (int start = 0; start < keys; start += STEP) {
        if (start + STEP < keys) load_step(start + STEP);
        bf16* key = buffers + (start / STEP & 1) * (2 * STEP * PITCH);
        if (top < length && !(a.causal && start > top + 15)) {
            float s[STEP / 8][4];
            inner<STEP>(s, left, shared_address(key) + across(PITCH));
            if (start + STEP > length || (a.causal && start + STEP - 1 > top))
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
            u32 p[STEP / 16][4];
            round_off<STEP>(p, s);
            mix<STEP, OWN>(mixed, p,
                           shared_address(key + STEP * PITCH + part * OWN) + down(PITCH));
        }
        arrive();
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
    put<OWN>(query + 16 * group * PITCH + part * OWN, mixed, 1.0f / softmax.total[0],
             1.0f / softmax.total[1]);
    __syncthreads();
    size across_heads = a.heads * a.width;
    store<TILE>(output + (size)piece.start * across_heads + head * a.width, across_heads, first,
                length, columns, query, aligned(output, across_heads, a.width));
}

// ---- Backward ----

// along [tokens, heads]: ⟨O, dO⟩ of each head of each token, which equals Σ_j P_j dP_j of its row.
// Block: a token; WIDTH / 8 threads share a head.
extern "C" __global__ void attention_along(
    const bf16* output, size output_stride, const bf16* gradient, size gradient_stride,
    size heads, size width, float* along) {
    constexpr int SHARERS = WIDTH / 8;
    size token = blockIdx.x;
    size column = threadIdx.x % SHARERS * 8;
    bool whole = aligned(output, output_stride, width) &&
                  aligned(gradient, gradient_stride, width);
    size together = blockDim.x / SHARERS;
    for (size base = 0; base < heads; base += together) {
        size head = base + threadIdx.x / SHARERS;
        float sum = 0.0f;
        if (head < heads && column < width) {
            const bf16* o = output + token * output_stride + head * width + column;
            const bf16* g = gradient + token * gradient_stride + head * width + column;
            if (whole) {
                Moved left = *(const Moved*)o, right = *(const Moved*)g;
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    u32 l = left.parts[i], r = right.parts[i];
                    sum = fmaf(__uint_as_float(l << 16), __uint_as_float(r << 16), sum);
                    sum = fmaf(__uint_as_float(l & 0xffff0000u),
                               __uint_as_float(r & 0xffff0000u), sum);
                }
            } else {
                for (int j = 0; j < 8 && column + j < width; ++j)
                    sum = fmaf(wide(o[j]), wide(g[j]), sum);
            }
        }
        for (int offset = SHARERS / 2; offset > 0; offset >>= 1)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (head < heads && column == 0) along[token * heads + head] = sum;
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
    const Attention& a, bf16* result, const Piece& piece, size column, int first,
    const bf16* tile) {
    size columns = (a.heads + 2 * a.key_heads) * a.width;
    store<ROWS>(result + (size)piece.start * columns + column, columns, first, piece.length,
                a.width, tile, aligned(result, columns, a.width));
}

// dQ = dS K / √width. Block (p, h): the queries of piece p in head h. `attention_backward_keys`
// handles sequences of one tile.
extern "C" __global__ void __launch_bounds__(THREADS, WIDTH <= 64 ? 3 : 2)
    attention_backward_queries(
        PARAMETERS, const float* log_sums, const float* along, const bf16* output_gradient,
        size gradient_stride, bf16* result) {
    constexpr int STEP = BACKWARD_STEP;
    Piece piece = pieces[gridDim.x - 1 - blockIdx.x];
    if (piece.length <= TILE) return;
    Attention a = ATTENTION;
    bf16* query = (bf16*)memory;
    bf16* gradient = query + TILE * PITCH;
    bf16* buffers = gradient + TILE * PITCH;
    size head = blockIdx.y;
    int length = piece.length, first = piece.first, columns = a.width;
    bool whole = aligned(a.qkv, a.stride, a.width);
    const bf16* rows = a.qkv + (size)piece.start * a.stride;
    const bf16* keys_from = rows + key_column(a, head);
    auto load_step = [&](int start) {
        bf16* key = buffers + (start / STEP & 1) * (2 * STEP * PITCH);
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
    arrive();
    Left left(query + 16 * group * PITCH), above(gradient + 16 * group * PITCH);
    int keys = a.causal && first + TILE < length ? first + TILE : length;
    for (int start = 0; start < keys; start += STEP) {
        if (start + STEP < keys) load_step(start + STEP);
        bf16* key = buffers + (start / STEP & 1) * (2 * STEP * PITCH);
        // The rows of this warp attend to keys before `end`.
        int end = top >= length ? 0 : a.causal && top + 16 < length ? top + 16 : length;
#pragma unroll 1
        for (int c = 0; c < STEP && start + c < end; c += CHUNK) {
            float s[CHUNK / 8][4], ds[CHUNK / 8][4];
            bf16* chunk = key + c * PITCH;
            inner<CHUNK>(s, left, shared_address(chunk) + across(PITCH));
            inner<CHUNK>(ds, above, shared_address(chunk + STEP * PITCH) + across(PITCH));
            int key_at = start + c + column;
            if (start + c + CHUNK > length || (a.causal && start + c + CHUNK - 1 > top))
                hide<CHUNK>(s, a, key_at, row, length);
            if (a.kept == 0.0f) {
#pragma unroll
                for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        slope(s[n][i], ds[n][i], factor, base[i >> 1], sum[i >> 1]);
            } else {
                u64 fork = fork_of(a, piece, head);
#pragma unroll
                for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        slope_dropped(s[n][i], ds[n][i], factor, base[i >> 1], sum[i >> 1],
                                      dropped(a, fork, row + (i >> 1) * 8,
                                              key_at + 8 * n + (i & 1), length));
            }
            u32 slopes[CHUNK / 16][4];
            round_off<CHUNK>(slopes, ds);
            mix<CHUNK, OWN>(sums, slopes, shared_address(chunk + part * OWN) + down(PITCH));
        }
        arrive();
    }
    put<OWN>(query + 16 * group * PITCH + part * OWN, sums, a.scale, a.scale);
    __syncthreads();
    store_gradient<TILE>(a, result, piece, head * a.width, first, query);
}

// The queries of a step, with their gradients, log-sums and `along`.
struct Step {
    bf16 query[BACKWARD_STEP * PITCH], gradient[BACKWARD_STEP * PITCH];
    float log_sums[BACKWARD_STEP], along[BACKWARD_STEP];
};

// Values of two adjacent queries.
struct __align__(8) Two {
    float of[2];
};

// Shared memory of `attention_backward_keys`. The second step is unused if there is only one.
struct Keys {
    bf16 key[TILE * PITCH], value[TILE * PITCH];
    // dSᵀ of a step.
    bf16 slopes[TILE * SLOPES_PITCH];
    Step steps[2];
};

// dSᵀ of a warp's 16 keys, visible to all warps.
__device__ __forceinline__ void show(bf16* to, const u32 (&slopes)[CHUNK / 16][4]) {
    bf16* at = to + (lane() >> 2) * SLOPES_PITCH + (lane() & 3) * 2;
#pragma unroll
    for (int k = 0; k < CHUNK / 16; ++k) {
        *(u32*)(at + 16 * k) = slopes[k][0];
        *(u32*)(at + 16 * k + 8 * SLOPES_PITCH) = slopes[k][1];
        *(u32*)(at + 16 * k + 8) = slopes[k][2];
        *(u32*)(at + 16 * k + 8 * SLOPES_PITCH + 8) = slopes[k][3];
    }
}

// Writes to `to` dQ of a step whose keys are all in this block: a warp has 16 queries and some
// columns.
__device__ __forceinline__ void query_gradient(bf16* to, const Keys& keys, float scale) {
    constexpr int STRIPES = BACKWARD_STEP / 16, COLUMNS = WIDTH * STRIPES / WARPS;
    int stripe = warp() % STRIPES, part = warp() / STRIPES;
    u32 left = shared_address(keys.slopes + 16 * stripe) + across(SLOPES_PITCH);
    u32 right = shared_address(keys.key + part * COLUMNS) + down(PITCH);
    float sums[COLUMNS / 8][4] = {};
#pragma unroll
    for (int k = 0; k < TILE / 16; ++k) {
        u32 l[1][4];
        fetch_transposed(l[0], left + 2 * 16 * k * SLOPES_PITCH);
        mix<16, COLUMNS>(sums, l, right + 2 * 16 * k * PITCH);
    }
    put<COLUMNS>(to + 16 * stripe * PITCH + part * COLUMNS, sums, scale, scale);
}

// dK = dSᵀ Q / √width and dV = (P ⊙ M)ᵀ dO, summed over the query heads that share a key head.
// Block (p, h): the keys of piece p in key head h. Everything is transposed here: keys are the
// rows, so Pᵀ and dSᵀ can be used as left factors directly.
//
// All keys of a sequence of one tile are in this block, which therefore also computes dQ: this
// saves computing P and dS a second time.
extern "C" __global__ void __launch_bounds__(THREADS, WIDTH <= 64 ? 3 : 2)
    attention_backward_keys(
        PARAMETERS, const float* log_sums, const float* along, const bf16* output_gradient,
        size gradient_stride, bf16* result) {
    constexpr int STEP = BACKWARD_STEP;
    Attention a = ATTENTION;
    Keys& keys = *(Keys*)memory;
    Piece piece = pieces[blockIdx.x];
    int share = (u32)a.heads / (u32)a.key_heads, head = blockIdx.y * share;
    int length = piece.length, first = piece.first, columns = a.width;
    bool alone = length <= TILE;
    bool whole = aligned(a.qkv, a.stride, a.width);
    bool gradient_whole = aligned(output_gradient, gradient_stride, a.width);
    const bf16* rows = a.qkv + (size)piece.start * a.stride;
    const bf16* gradients = output_gradient + (size)piece.start * gradient_stride;
    size keys_at = (a.heads + blockIdx.y) * a.width, values_at = keys_at + a.key_heads * a.width;
    auto load_step = [&](Step& step, int head, int start) {
        load<STEP>(step.query, rows + head * a.width, a.stride, start, length, columns, whole);
        load<STEP>(step.gradient, gradients + head * a.width, gradient_stride, start, length,
                   columns, gradient_whole);
        int i = threadIdx.x % STEP, by = start + i;
        size at = ((size)piece.start + (by < length ? by : 0)) * a.heads + head;
        if (threadIdx.x < STEP)
            copy_one(shared_address(step.log_sums + i), log_sums + at, by < length);
        else if (threadIdx.x < 2 * STEP)
            copy_one(shared_address(step.along + i), along + at, by < length);
    };
    // Steps start at a multiple of their size; steps that causality hides are skipped.
    int begin = a.causal ? first : 0, end = head + share;
    load<TILE>(keys.key, rows + keys_at, a.stride, first, length, columns, whole);
    load<TILE>(keys.value, rows + values_at, a.stride, first, length, columns, whole);
    load_step(keys.steps[0], head, begin);
    int group = warp() % GROUPS, part = warp() / GROUPS;
    int top = first + 16 * group, row = top + (lane() >> 2), column = 2 * (lane() & 3);
    float factor = a.scale * LOG2_E;
    float of_keys[OWN / 8][4] = {}, of_values[OWN / 8][4] = {};
    arrive();
    Left left(keys.key + 16 * group * PITCH), above(keys.value + 16 * group * PITCH);
    int start = begin;
    for (int n = 0; head < end; n ^= 1) {
        Step& step = keys.steps[n];
        bool last = start + STEP >= length;
        int next_start = last ? begin : start + STEP, next_head = last ? head + 1 : head;
        if (next_head < end) load_step(keys.steps[n ^ 1], next_head, next_start);
#pragma unroll 1
        for (int c = 0; c < STEP; c += CHUNK) {
            bf16* slopes_to = keys.slopes + 16 * group * SLOPES_PITCH + c;
            u32 slopes[CHUNK / 16][4] = {};
            // Nothing to do if everything is hidden or beyond the end.
            if (top >= length || start + c >= length || (a.causal && start + c + CHUNK <= top)) {
                if (alone && part == 0) show(slopes_to, slopes);
                continue;
            }
            float p[CHUNK / 8][4], ds[CHUNK / 8][4];
            bf16* query = step.query + c * PITCH;
            bf16* gradient = step.gradient + c * PITCH;
            inner<CHUNK>(p, left, shared_address(query) + across(PITCH));
            inner<CHUNK>(ds, above, shared_address(gradient) + across(PITCH));
            int query_at = start + c + column;
            if (start + c + CHUNK > length || top + 16 > length ||
                (a.causal && top + 15 > start + c))
                hide_transposed<CHUNK>(p, a, query_at, row, length);
            const Two* bases = (const Two*)(step.log_sums + c + column);
            const Two* sums = (const Two*)(step.along + c + column);
            if (a.kept == 0.0f) {
#pragma unroll
                for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        slope(p[n][i], ds[n][i], factor, bases[4 * n].of[i & 1] * LOG2_E,
                              sums[4 * n].of[i & 1]);
            } else {
                u64 fork = fork_of(a, piece, head);
#pragma unroll
                for (int n = 0; n < CHUNK / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        slope_dropped(p[n][i], ds[n][i], factor,
                                      bases[4 * n].of[i & 1] * LOG2_E, sums[4 * n].of[i & 1],
                                      dropped(a, fork, query_at + 8 * n + (i & 1),
                                              row + (i >> 1) * 8, length));
            }
            u32 probabilities[CHUNK / 16][4];
            round_off<CHUNK>(probabilities, p);
            round_off<CHUNK>(slopes, ds);
            if (alone && part == 0) show(slopes_to, slopes);
            mix<CHUNK, OWN>(of_values, probabilities,
                            shared_address(gradient + part * OWN) + down(PITCH));
            mix<CHUNK, OWN>(of_keys, slopes, shared_address(query + part * OWN) + down(PITCH));
        }
        if (alone) {
            // No warp needs the queries any more, so their space is reused for their gradient.
            __syncthreads();
            query_gradient(step.query, keys, a.scale);
            __syncthreads();
            store_gradient<STEP>(a, result, piece, head * a.width, start, step.query);
        }
        start = next_start;
        head = next_head;
        arrive();
    }
    put<OWN>(keys.key + 16 * group * PITCH + part * OWN, of_keys, a.scale, a.scale);
    put<OWN>(keys.value + 16 * group * PITCH + part * OWN, of_values, 1.0f, 1.0f);
    __syncthreads();
    store_gradient<TILE>(a, result, piece, keys_at, first, keys.key);
    store_gradient<TILE>(a, result, piece, values_at, first, keys.value);
}
