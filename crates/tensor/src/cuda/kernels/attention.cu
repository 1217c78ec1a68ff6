// Scaled dot-product attention over packed sequences of different lengths, in tiles in shared
// memory: memory grows linearly with the number of tokens, not quadratically.
//
//   S = Q Kᵀ · scale,  P = softmax(S) over the visible keys,  O = (P ⊙ M) V,
//
// with the dropout mask M. With soft-capping, S becomes c · tanh(S / c). With a window, a query
// attends to keys less than `window` tokens away. qkv [tokens, (heads + 2 · key_heads) · width] has
// queries, keys and values side by side; O is [tokens, heads · width]; log_sums [tokens, heads] has
// log Σ e^S of each row, from which the backward pass recomputes P.
//
// Every block has 16 × 16 threads. Thread (ty, tx) owns the elements (ty + 16 i, tx + 16 j) of each
// tile. WIDTH is the width padded with zeros, TILE the number of queries or keys per tile. Rows of
// other sequences are never loaded: a tile has zeros beyond the end of its sequence.

struct Attention {
    const float* qkv;
    size stride;
    size heads, key_heads, width;
    size causal;
    float scale;
    // Dropout of the probabilities; kept = 0 disables it.
    u64 seed;
    float rate, kept;
    // 0 disables it.
    size window;
    float cap;
    // Relative-position terms: of_queries and of_keys [tokens, columns] have the term of a head and
    // bucket in column head · head_stride + bucket · bucket_stride; the bucket of query i and key j
    // is buckets[i − j + middle]. Null disables them.
    const u32* buckets;
    size middle;
    const float *of_queries, *of_keys;
    size columns, head_stride, bucket_stride;
};

// One tile of rows: start and length of its sequence, and the first row of the tile.
struct Piece {
    u32 start, length, first, unused;
};

#define PARAMETERS                                                                             \
    const float *qkv, size stride, size heads, size key_heads, size width, size causal,        \
        float scale, u64 seed, float rate, float kept, const Piece *pieces, size window,       \
        float cap, const u32 *buckets, size middle, const float *of_queries,                   \
        const float *of_keys, size relative_columns, size head_stride, size bucket_stride
#define ATTENTION                                                                              \
    Attention{qkv,   stride, heads, key_heads, width,  causal,                                 \
              scale, seed,   rate,  kept,      window, cap,                                    \
              buckets, middle, of_queries, of_keys, relative_columns, head_stride, bucket_stride}

__device__ __forceinline__ size key_column(const Attention& a, size head) {
    return (a.heads + head / (a.heads / a.key_heads)) * a.width;
}

__device__ __forceinline__ size value_column(const Attention& a, size head) {
    return key_column(a, head) + a.key_heads * a.width;
}

// Rows first … first + TILE of a sequence's part of a matrix, with zeros beyond its length and
// width.
template <int WIDTH, int TILE>
__device__ __forceinline__ void load(
    float (*tile)[WIDTH + 1], const float* from, size stride, size first, size length,
    size width) {
    for (int n = threadIdx.x; n < TILE * WIDTH; n += 256) {
        int i = n / WIDTH, j = n % WIDTH;
        tile[i][j] = first + i < length && j < width ? from[(first + i) * stride + j] : 0.0f;
    }
}

// sums_ij += ⟨left_i, right_j⟩ for the thread's elements of a tile.
template <int WIDTH, int TILE>
__device__ __forceinline__ void inner(
    float (&sums)[TILE / 16][TILE / 16], float (*left)[WIDTH + 1], float (*right)[WIDTH + 1]) {
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
#pragma unroll 8
    for (int k = 0; k < WIDTH; ++k) {
        float l[TILE / 16], r[TILE / 16];
#pragma unroll
        for (int i = 0; i < TILE / 16; ++i) {
            l[i] = left[ty + 16 * i][k];
            r[i] = right[tx + 16 * i][k];
        }
#pragma unroll
        for (int i = 0; i < TILE / 16; ++i)
#pragma unroll
            for (int j = 0; j < TILE / 16; ++j) sums[i][j] = fmaf(l[i], r[j], sums[i][j]);
    }
}

// sums_ic += Σ_k left_ik right_kc.
template <int WIDTH, int TILE>
__device__ __forceinline__ void mix(
    float (&sums)[TILE / 16][WIDTH / 16], float (*left)[TILE + 1], float (*right)[WIDTH + 1]) {
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
#pragma unroll 4
    for (int k = 0; k < TILE; ++k) {
        float l[TILE / 16];
#pragma unroll
        for (int i = 0; i < TILE / 16; ++i) l[i] = left[ty + 16 * i][k];
#pragma unroll
        for (int c = 0; c < WIDTH / 16; ++c) {
            float r = right[k][tx + 16 * c];
#pragma unroll
            for (int i = 0; i < TILE / 16; ++i) sums[i][c] = fmaf(l[i], r, sums[i][c]);
        }
    }
}

// sums_ic += Σ_k left_ki right_kc.
template <int WIDTH, int TILE>
__device__ __forceinline__ void mix_transposed(
    float (&sums)[TILE / 16][WIDTH / 16], float (*left)[TILE + 1], float (*right)[WIDTH + 1]) {
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
#pragma unroll 4
    for (int k = 0; k < TILE; ++k) {
        float l[TILE / 16];
#pragma unroll
        for (int i = 0; i < TILE / 16; ++i) l[i] = left[k][ty + 16 * i];
#pragma unroll
        for (int c = 0; c < WIDTH / 16; ++c) {
            float r = right[k][tx + 16 * c];
#pragma unroll
            for (int i = 0; i < TILE / 16; ++i) sums[i][c] = fmaf(l[i], r, sums[i][c]);
        }
    }
}

// Writes factor · sums to rows first … of a matrix.
template <int WIDTH, int TILE>
__device__ __forceinline__ void store(
    float* to, size stride, size first, size length, size width, float factor,
    float (&sums)[TILE / 16][WIDTH / 16]) {
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
#pragma unroll
    for (int i = 0; i < TILE / 16; ++i)
#pragma unroll
        for (int c = 0; c < WIDTH / 16; ++c) {
            size row = first + ty + 16 * i, column = tx + 16 * c;
            if (row < length && column < width)
                to[row * stride + column] = factor * sums[i][c];
        }
}

__device__ __forceinline__ bool visible(const Attention& a, size query, size key, size length) {
    if (a.window && (query - key >= a.window || key - query >= a.window)) return false;
    return query < length && key < length && (!a.causal || key <= query);
}

// The column of a head's term for a query and a key.
__device__ __forceinline__ size term(const Attention& a, size head, size query, size key) {
    return head * a.head_stride + (size)a.buckets[query - key + a.middle] * a.bucket_stride;
}

// The score of a dot product, for a visible pair. `start` is the first token of the sequence.
__device__ __forceinline__ float score(
    const Attention& a, size head, size start, size query, size key, float product) {
    float s = product * a.scale;
    if (a.buckets) {
        size column = term(a, head, query, key);
        s += a.of_queries[(start + query) * a.columns + column];
        if (a.of_keys) s += a.of_keys[(start + key) * a.columns + column];
    }
    return a.cap == 0.0f ? s : a.cap * tanhf(s / a.cap);
}

// The first tile whose rows attend to, or are attended by, a tile that starts at `first`.
template <int TILE>
__device__ __forceinline__ size nearest_tile(const Attention& a, size first) {
    size from = first + 1 - a.window;
    return a.window && from > 0 ? from / TILE * TILE : 0;
}

// The end of the range of such tiles.
template <int TILE>
__device__ __forceinline__ size farthest(const Attention& a, size first, size length) {
    size to = first + TILE - 1 + a.window;
    return a.window && to < length ? to : length;
}

__device__ __forceinline__ float kept_factor(
    const Attention& a, u64 seed, size query, size key, size length) {
    if (a.kept == 0.0f) return 1.0f;
    return dropout_factor(seed, a.rate, a.kept, (u32)(query * length + key));
}

extern __shared__ float memory[];

// Block (p, h): the queries of piece p in head h, with a running softmax over tiles of keys.
template <int WIDTH, int TILE>
__device__ __forceinline__ void forward(
    const Attention& a, const Piece* pieces, float* output, float* log_sums) {
    float(*query)[WIDTH + 1] = (float(*)[WIDTH + 1])memory;
    float(*key)[WIDTH + 1] = query + TILE;
    float(*value)[WIDTH + 1] = key + TILE;
    float(*scores)[TILE + 1] = (float(*)[TILE + 1])(value + TILE);
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    Piece piece = pieces[blockIdx.x];
    size head = blockIdx.y, length = piece.length, first = piece.first;
    u64 seed = dropout_fork(a.seed, (u64)piece.start * (u64)a.heads + (u64)head);
    const float* rows = a.qkv + (size)piece.start * a.stride;
    load<WIDTH, TILE>(query, rows + head * a.width, a.stride, first, length, a.width);
    float mixed[TILE / 16][WIDTH / 16] = {};
    float largest[TILE / 16], total[TILE / 16];
#pragma unroll
    for (int i = 0; i < TILE / 16; ++i) {
        largest[i] = -INFINITE;
        total[i] = 0.0f;
    }
    size seen = farthest<TILE>(a, first, length);
    size keys = a.causal && first + TILE < seen ? first + TILE : seen;
    for (size start = nearest_tile<TILE>(a, first); start < keys; start += TILE) {
        __syncthreads();
        load<WIDTH, TILE>(key, rows + key_column(a, head), a.stride, start, length, a.width);
        load<WIDTH, TILE>(value, rows + value_column(a, head), a.stride, start, length, a.width);
        __syncthreads();
        float s[TILE / 16][TILE / 16] = {};
        inner<WIDTH, TILE>(s, query, key);
#pragma unroll
        for (int i = 0; i < TILE / 16; ++i) {
            size row = first + ty + 16 * i;
            float most = largest[i];
#pragma unroll
            for (int j = 0; j < TILE / 16; ++j) {
                size column = start + tx + 16 * j;
                if (!visible(a, row, column, length)) continue;
                s[i][j] = score(a, head, piece.start, row, column, s[i][j]);
                most = fmaxf(most, s[i][j]);
            }
            for (int offset = 8; offset > 0; offset >>= 1)
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, offset));
            float correction = most == largest[i] ? 1.0f : expf(largest[i] - most);
            largest[i] = most;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < TILE / 16; ++j) {
                size column = start + tx + 16 * j;
                float p = 0.0f;
                if (visible(a, row, column, length)) {
                    p = expf(s[i][j] - most);
                    sum += p;
                    p *= kept_factor(a, seed, row, column, length);
                }
                scores[ty + 16 * i][tx + 16 * j] = p;
            }
            for (int offset = 8; offset > 0; offset >>= 1)
                sum += __shfl_xor_sync(0xffffffffu, sum, offset);
            total[i] = total[i] * correction + sum;
#pragma unroll
            for (int c = 0; c < WIDTH / 16; ++c) mixed[i][c] *= correction;
        }
        __syncthreads();
        mix<WIDTH, TILE>(mixed, scores, value);
    }
    size columns = a.heads * a.width;
#pragma unroll
    for (int i = 0; i < TILE / 16; ++i) {
        size row = first + ty + 16 * i;
        float factor = 1.0f / total[i];
#pragma unroll
        for (int c = 0; c < WIDTH / 16; ++c) mixed[i][c] *= factor;
        if (tx == 0 && row < length)
            log_sums[((size)piece.start + row) * a.heads + head] = largest[i] + logf(total[i]);
    }
    store<WIDTH, TILE>(output + (size)piece.start * columns + head * a.width, columns, first,
                       length, a.width, 1.0f, mixed);
}

// along [tokens, heads]: ⟨O, dO⟩ of each head of each token, which equals Σ_j P_j dP_j of its row.
// Block: a token; each warp processes some heads.
extern "C" __global__ void attention_along(
    const float* output, size output_stride, const float* gradient, size gradient_stride,
    size heads, size width, float* along) {
    size token = blockIdx.x;
    int lane = threadIdx.x & 31;
    for (size head = threadIdx.x >> 5; head < heads; head += blockDim.x >> 5) {
        const float* o = output + token * output_stride + head * width;
        const float* g = gradient + token * gradient_stride + head * width;
        float sum = 0.0f;
        for (size j = lane; j < width; j += 32) sum = fmaf(o[j], g[j], sum);
        for (int offset = 16; offset > 0; offset >>= 1)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (lane == 0) along[token * heads + head] = sum;
    }
}

// Shared by both backward kernels: P and dS = P ⊙ (M ⊙ dP − along) of a tile of queries and keys,
// where dP = dO Vᵀ.
template <int WIDTH, int TILE>
__device__ __forceinline__ void gradients(
    const Attention& a, const Piece& piece, size head, u64 seed, size first_query,
    size first_key, float (*query)[WIDTH + 1], float (*key)[WIDTH + 1],
    float (*value)[WIDTH + 1], float (*gradient)[WIDTH + 1], const float* log_sums,
    const float* along, float (*p)[TILE + 1], float (*ds)[TILE + 1]) {
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    size length = piece.length;
    float s[TILE / 16][TILE / 16] = {}, dp[TILE / 16][TILE / 16] = {};
    inner<WIDTH, TILE>(s, query, key);
    inner<WIDTH, TILE>(dp, gradient, value);
#pragma unroll
    for (int i = 0; i < TILE / 16; ++i) {
        size row = first_query + ty + 16 * i;
        size at = ((size)piece.start + row) * a.heads + head;
        float log_sum = row < length ? log_sums[at] : 0.0f;
        float sum = row < length ? along[at] : 0.0f;
#pragma unroll
        for (int j = 0; j < TILE / 16; ++j) {
            size column = first_key + tx + 16 * j;
            float kept = 0.0f, probability = 0.0f, slope = 0.0f;
            if (visible(a, row, column, length)) {
                kept = kept_factor(a, seed, row, column, length);
                float s_ij = score(a, head, piece.start, row, column, s[i][j]);
                probability = expf(s_ij - log_sum);
                slope = probability * (kept * dp[i][j] - sum);
                if (a.cap != 0.0f) slope *= 1.0f - s_ij / a.cap * (s_ij / a.cap);
            }
            if (p) p[ty + 16 * i][tx + 16 * j] = probability * kept;
            ds[ty + 16 * i][tx + 16 * j] = slope;
        }
    }
}

// dQ = dS K · scale. Block (p, h): the queries of piece p in head h.
template <int WIDTH, int TILE>
__device__ __forceinline__ void backward_queries(
    const Attention& a, const Piece* pieces, const float* log_sums, const float* along,
    const float* output_gradient, size gradient_stride, float* result,
    float* of_queries_gradient) {
    float(*query)[WIDTH + 1] = (float(*)[WIDTH + 1])memory;
    float(*gradient)[WIDTH + 1] = query + TILE;
    float(*key)[WIDTH + 1] = gradient + TILE;
    float(*value)[WIDTH + 1] = key + TILE;
    float(*ds)[TILE + 1] = (float(*)[TILE + 1])(value + TILE);
    Piece piece = pieces[blockIdx.x];
    size head = blockIdx.y, length = piece.length, first = piece.first;
    u64 seed = dropout_fork(a.seed, (u64)piece.start * (u64)a.heads + (u64)head);
    const float* rows = a.qkv + (size)piece.start * a.stride;
    load<WIDTH, TILE>(query, rows + head * a.width, a.stride, first, length, a.width);
    load<WIDTH, TILE>(gradient,
                      output_gradient + (size)piece.start * gradient_stride + head * a.width,
                      gradient_stride, first, length, a.width);
    float sums[TILE / 16][WIDTH / 16] = {};
    size seen = farthest<TILE>(a, first, length);
    size keys = a.causal && first + TILE < seen ? first + TILE : seen;
    for (size start = nearest_tile<TILE>(a, first); start < keys; start += TILE) {
        __syncthreads();
        load<WIDTH, TILE>(key, rows + key_column(a, head), a.stride, start, length, a.width);
        load<WIDTH, TILE>(value, rows + value_column(a, head), a.stride, start, length, a.width);
        __syncthreads();
        gradients<WIDTH, TILE>(a, piece, head, seed, first, start, query, key, value, gradient,
                               log_sums, along, (float(*)[TILE + 1])0, ds);
        __syncthreads();
        mix<WIDTH, TILE>(sums, ds, key);
        // A single thread adds up a query's terms, in the order of keys.
        size row = first + threadIdx.x;
        if (of_queries_gradient && threadIdx.x < TILE && row < length)
            for (int k = 0; k < TILE; ++k)
                if (visible(a, row, start + k, length))
                    of_queries_gradient[((size)piece.start + row) * a.columns +
                                        term(a, head, row, start + k)] += ds[threadIdx.x][k];
    }
    size columns = (a.heads + 2 * a.key_heads) * a.width;
    store<WIDTH, TILE>(result + (size)piece.start * columns + head * a.width, columns, first,
                       length, a.width, a.scale, sums);
}

// dK = dSᵀ Q · scale and dV = (P ⊙ M)ᵀ dO, summed over the heads of queries that share them.
// Block (p, h): the keys of piece p in head h of keys.
template <int WIDTH, int TILE>
__device__ __forceinline__ void backward_keys(
    const Attention& a, const Piece* pieces, const float* log_sums, const float* along,
    const float* output_gradient, size gradient_stride, float* result, float* of_keys_gradient) {
    float(*key)[WIDTH + 1] = (float(*)[WIDTH + 1])memory;
    float(*value)[WIDTH + 1] = key + TILE;
    float(*query)[WIDTH + 1] = value + TILE;
    float(*gradient)[WIDTH + 1] = query + TILE;
    float(*p)[TILE + 1] = (float(*)[TILE + 1])(gradient + TILE);
    float(*ds)[TILE + 1] = p + TILE;
    Piece piece = pieces[blockIdx.x];
    size group = a.heads / a.key_heads, kept_head = blockIdx.y;
    size length = piece.length, first = piece.first;
    const float* rows = a.qkv + (size)piece.start * a.stride;
    size keys_at = key_column(a, kept_head * group), values_at = value_column(a, kept_head * group);
    load<WIDTH, TILE>(key, rows + keys_at, a.stride, first, length, a.width);
    load<WIDTH, TILE>(value, rows + values_at, a.stride, first, length, a.width);
    float of_keys[TILE / 16][WIDTH / 16] = {}, of_values[TILE / 16][WIDTH / 16] = {};
    for (size head = kept_head * group; head < (kept_head + 1) * group; ++head) {
        u64 seed = dropout_fork(a.seed, (u64)piece.start * (u64)a.heads + (u64)head);
        const float* above =
            output_gradient + (size)piece.start * gradient_stride + head * a.width;
        size from = a.causal ? first : nearest_tile<TILE>(a, first);
        size to = farthest<TILE>(a, first, length);
        for (size start = from; start < to; start += TILE) {
            __syncthreads();
            load<WIDTH, TILE>(query, rows + head * a.width, a.stride, start, length, a.width);
            load<WIDTH, TILE>(gradient, above, gradient_stride, start, length, a.width);
            __syncthreads();
            gradients<WIDTH, TILE>(a, piece, head, seed, start, first, query, key, value,
                                   gradient, log_sums, along, p, ds);
            __syncthreads();
            mix_transposed<WIDTH, TILE>(of_values, p, gradient);
            mix_transposed<WIDTH, TILE>(of_keys, ds, query);
            // A single thread adds up a key's terms, in the order of queries.
            size column = first + threadIdx.x;
            if (of_keys_gradient && threadIdx.x < TILE && column < length)
                for (int q = 0; q < TILE; ++q)
                    if (visible(a, start + q, column, length))
                        of_keys_gradient[((size)piece.start + column) * a.columns +
                                         term(a, head, start + q, column)] += ds[q][threadIdx.x];
        }
    }
    size columns = (a.heads + 2 * a.key_heads) * a.width;
    float* to = result + (size)piece.start * columns;
    store<WIDTH, TILE>(to + keys_at, columns, first, length, a.width, a.scale, of_keys);
    store<WIDTH, TILE>(to + values_at, columns, first, length, a.width, 1.0f, of_values);
}

// HEAD_WIDTH and HEAD_TILE are defined at compile time: `Source::Attention` in source.rs.
extern "C" __global__ void __launch_bounds__(256)
    attention_forward(PARAMETERS, float* output, float* log_sums) {
    forward<HEAD_WIDTH, HEAD_TILE>(ATTENTION, pieces, output, log_sums);
}

extern "C" __global__ void __launch_bounds__(256) attention_backward_queries(
    PARAMETERS, const float* log_sums, const float* along, const float* output_gradient,
    size gradient_stride, float* result, float* of_queries_gradient, float* of_keys_gradient) {
    backward_queries<HEAD_WIDTH, HEAD_TILE>(ATTENTION, pieces, log_sums, along, output_gradient,
                                            gradient_stride, result, of_queries_gradient);
}

extern "C" __global__ void __launch_bounds__(256) attention_backward_keys(
    PARAMETERS, const float* log_sums, const float* along, const float* output_gradient,
    size gradient_stride, float* result, float* of_queries_gradient, float* of_keys_gradient) {
    backward_keys<HEAD_WIDTH, HEAD_TILE>(ATTENTION, pieces, log_sums, along, output_gradient,
                                         gradient_stride, result, of_keys_gradient);
}
