// Keys and values of earlier tokens, and attention of new tokens to them.
//
// Each sequence keeps rows [keys, values] of 2 · kept values, kept = key_heads · width, in separate
// memory, to which rows[sequence] points. A new token has a place (sequence, position): it is row
// `position` of its sequence, and attends to all rows up to itself or, with a window, to the last
// `window` of them.

struct Place {
    u32 sequence, position;
};

// Copies the keys and values of new tokens, the last 2 · kept columns of qkv, to their places.
// Block: a token.
extern "C" __global__ void cache_append(
    const real* qkv, size stride, size skipped, size columns, const Place* places,
    const u64* rows) {
    size token = blockIdx.x;
    Place place = places[token];
    real* to = (real*)rows[place.sequence] + (size)place.position * columns;
    const real* from = qkv + token * stride + skipped;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) to[j] = from[j];
}

// output [tokens, heads · width]. Block (t, h): token t in head h. Each of four warps processes
// every fourth key with its own running softmax; then the four are merged. Lane l of a warp has the
// features l, l + 32, …; the width is at most 256.
extern "C" __global__ void cache_attend(
    const real* qkv, size stride, size heads, size key_heads, size width, float scale,
    size window, float cap, const Place* places, const u64* rows, real* output) {
    __shared__ float all_largest[4], all_total[4], all_mixed[4][256];
    size token = blockIdx.x, head = blockIdx.y;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    Place place = places[token];
    size kept = key_heads * width;
    const real* keys = (const real*)rows[place.sequence] + head / (heads / key_heads) * width;
    const real* q = qkv + token * stride + head * width;
    float query[8], mixed[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        query[i] = lane + 32 * i < width ? wide(q[lane + 32 * i]) : 0.0f;
        mixed[i] = 0.0f;
    }
    float largest = -INFINITE, total = 0.0f;
    size first = window && place.position >= window ? place.position + 1 - window : 0;
    for (size n = first + warp; n <= place.position; n += 4) {
        const real* key = keys + n * 2 * kept;
        const real* value = key + kept;
        float s = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (lane + 32 * i < width) s = fmaf(query[i], wide(key[lane + 32 * i]), s);
        for (int offset = 16; offset > 0; offset >>= 1)
            s += __shfl_xor_sync(0xffffffffu, s, offset);
        s *= scale;
        if (cap != 0.0f) s = cap * tanhf(s / cap);
        float most = fmaxf(largest, s);
        float correction = most == largest ? 1.0f : expf(largest - most);
        float p = expf(s - most);
        largest = most;
        total = total * correction + p;
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (lane + 32 * i < width)
                mixed[i] = fmaf(p, wide(value[lane + 32 * i]), mixed[i] * correction);
    }
    if (lane == 0) {
        all_largest[warp] = largest;
        all_total[warp] = total;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) all_mixed[warp][lane + 32 * i] = mixed[i];
    __syncthreads();
    float most = -INFINITE;
    for (int w = 0; w < 4; ++w) most = fmaxf(most, all_largest[w]);
    float sum = 0.0f, factors[4];
    for (int w = 0; w < 4; ++w) {
        factors[w] = all_largest[w] == most ? 1.0f : expf(all_largest[w] - most);
        sum += all_total[w] * factors[w];
    }
    for (size j = threadIdx.x; j < width; j += blockDim.x) {
        float m = 0.0f;
        for (int w = 0; w < 4; ++w) m += all_mixed[w][j] * factors[w];
        narrow(m / sum, output[token * heads * width + head * width + j]);
    }
}
