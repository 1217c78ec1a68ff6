// Shared by the tensor-core versions of attention in bf16 and TF32: the shape of a block, the
// parameters, asynchronous copies, the mask and dropout. `Number` is the type of queries, keys,
// values and outputs.

using Number = ATTENTION_NUMBER;

constexpr int WIDTH = HEAD_WIDTH;
constexpr int TILE = HEAD_TILE;
constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
// Number of warps along the rows of a tile, and of result columns that each owns.
constexpr int GROUPS = TILE / 16;
constexpr int OWN = WIDTH * GROUPS / WARPS;

constexpr float LOG2_E = 1.4426950408889634f;

struct Attention {
    const Number* qkv;
    size stride;
    size heads, key_heads, width;
    size causal;
    float scale;
    // Dropout of the probabilities; kept = 0 disables it.
    u64 seed;
    float rate, kept;
};

// One tile of rows: start and length of its sequence, and the first row of the tile.
struct Piece {
    u32 start, length, first, unused;
};

#define PARAMETERS                                                                             \
    const Number *qkv, size stride, size heads, size key_heads, size width, size causal,       \
        float scale, u64 seed, float rate, float kept, const Piece *pieces
#define ATTENTION                                                                              \
    Attention{qkv, stride, heads, key_heads, width, causal, scale, seed, rate, kept}

__device__ __forceinline__ size key_column(const Attention& a, size head) {
    // 32-bit divisions are much faster.
    return (a.heads + (u32)head / ((u32)a.heads / (u32)a.key_heads)) * a.width;
}

// Values per 16 bytes, the size that one instruction moves.
constexpr int MOVED = 16 / sizeof(Number);

struct __align__(16) Moved {
    u32 parts[4];
};

// Rows in shared memory are padded by 16 bytes, so that eight rows lie in different banks.
constexpr int PITCH = WIDTH + MOVED;

// Whether all rows of all heads can be moved 16 bytes at a time.
__device__ __forceinline__ bool aligned(const void* matrix, size stride, size width) {
    return ((u64)matrix & 15) == 0 && stride % MOVED == 0 && width % MOVED == 0;
}

// ---- Instructions ----

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

// Starts a copy of 16 bytes, or fills with zeros.
__device__ __forceinline__ void copy_sixteen(u32 to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}

// The same for a single f32.
__device__ __forceinline__ void copy_one(u32 to, const void* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(inside ? 4 : 0)
                 : "memory");
}

// Waits until all copies started by this thread have arrived.
__device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Fetches four matrices of eight rows of 16 bytes; lanes 8 i … 8 i + 7 address the rows of matrix
// i. A lane gets the 4 bytes at (lane / 4, lane % 4) of each: two bf16 values or one f32.
__device__ __forceinline__ void fetch(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

__device__ __forceinline__ float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

__device__ __forceinline__ int lane() {
    return threadIdx.x & 31;
}

__device__ __forceinline__ int warp() {
    return threadIdx.x >> 5;
}

// ---- Tiles ----

// Rows first … first + ROWS of a sequence's part of a matrix, with zeros beyond its length and
// width. The copying thread sees them after `wait`. `whole`: 16 bytes at a time (`aligned`).
template <int ROWS>
__device__ __forceinline__ void load(
    Number* tile, const Number* from, size stride, int first, int length, int width, bool whole) {
    constexpr int PARTS = WIDTH / MOVED, APART = THREADS / PARTS;
    int row = threadIdx.x / PARTS, column = threadIdx.x % PARTS * MOVED;
    const Number* at = from + (first + row) * stride + column;
    Number* to = tile + row * PITCH + column;
    if (whole) {
        u32 address = shared_address(to);
#pragma unroll
        for (int i = 0; i < ROWS; i += APART) {
            bool inside = first + row + i < length && column < width;
            copy_sixteen(address + (int)sizeof(Number) * i * PITCH, inside ? at : from, inside);
            at += APART * stride;
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < ROWS; i += APART) {
        int count = first + row + i < length ? width - column : 0;
#pragma unroll
        for (int j = 0; j < MOVED; ++j)
            to[i * PITCH + j] = j < count ? at[i * stride + j] : Number{0};
    }
}

// Copies a tile to memory.
template <int ROWS>
__device__ __forceinline__ void store(
    Number* to, size stride, int first, int length, int width, const Number* tile, bool whole) {
    constexpr int PARTS = WIDTH / MOVED, APART = THREADS / PARTS;
    int row = threadIdx.x / PARTS, column = threadIdx.x % PARTS * MOVED;
    Number* at = to + (first + row) * stride + column;
    const Number* from = tile + row * PITCH + column;
    if (whole) {
#pragma unroll 4
        for (int i = 0; i < ROWS; i += APART)
            if (first + row + i < length && column < width)
                *(Moved*)(at + i * stride) = *(const Moved*)(from + i * PITCH);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < ROWS; i += APART) {
        int count = first + row + i < length ? width - column : 0;
#pragma unroll
        for (int j = 0; j < MOVED; ++j)
            if (j < count) at[i * stride + j] = from[i * PITCH + j];
    }
}

// ---- Mask and dropout ----

// The seed of a head's mask. It is recomputed for each step, which is cheaper than a register.
__device__ __forceinline__ u64 fork_of(const Attention& a, const Piece& piece, size head) {
    return dropout_fork(a.seed, (u64)piece.start * (u64)a.heads + (u64)head);
}

__device__ __forceinline__ float dropped(const Attention& a, u64 seed, int query, int key,
                                         int length) {
    return dropout_factor(seed, a.rate, a.kept, (u32)query * (u32)length + (u32)key);
}

// Sets the scores of invisible keys to −∞. The lane's first element is that of `key` and `query`.
template <int COUNT>
__device__ __forceinline__ void hide(
    float (&s)[COUNT / 8][4], const Attention& a, int key, int query, int length) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int by = query + 8 * half;
        int end = a.causal && by < length ? by + 1 : length;
#pragma unroll
        for (int n = 0; n < COUNT / 8; ++n) {
            if (key + 8 * n >= end) s[n][2 * half] = -INFINITE;
            if (key + 8 * n + 1 >= end) s[n][2 * half + 1] = -INFINITE;
        }
    }
}

// The same with keys as the rows. Here queries beyond the end are hidden too, because sums run over
// queries.
template <int COUNT>
__device__ __forceinline__ void hide_transposed(
    float (&s)[COUNT / 8][4], const Attention& a, int query, int key, int length) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int by = key + 8 * half;
        int begin = by >= length ? length : a.causal ? by : 0;
#pragma unroll
        for (int n = 0; n < COUNT / 8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                int at = query + 8 * n + i;
                if (at < begin || at >= length) s[n][2 * half + i] = -INFINITE;
            }
    }
}

extern __shared__ __align__(16) unsigned char memory[];

// The running softmax of a row: the largest S · √width, and this lane's part of the sum. Index 0 is
// row g of the warp, index 1 row g + 8.
struct Softmax {
    float largest[2], total[2];
};
