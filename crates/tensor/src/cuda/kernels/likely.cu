// Sampling a token from each row of logits [rows, columns], and the likely tokens of each row; one
// block per row.

// Of each row, the largest logit m, Σ exp((z − m) / temperature), and the tokens with z ≥ m − below:
// their number and, if it is at most `most`, the k-th token and its logit at k · rows + row. Which
// token is the k-th varies from run to run; the set does not.
extern "C" __global__ void likely(
    const real* logits, size stride, size columns, float temperature, float below, size most,
    size rows, float* largest, double* totals, u32* counts, u32* tokens, float* values) {
    __shared__ float space[32];
    __shared__ double doubles[32];
    __shared__ u32 count;
    size row = blockIdx.x;
    logits += row * stride;
    if (threadIdx.x == 0) count = 0;
    float m = -INFINITE;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) m = fmaxf(m, wide(logits[j]));
    m = block_max(m, space);
    float least = m - below;
    double sum = 0.0;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float z = wide(logits[j]);
        // Also for a temperature of 0.
        sum += z == m ? 1.0f : expf((z - m) / temperature);
        if (z >= least) {
            size k = atomicAdd(&count, 1u);
            if (k < most) {
                tokens[k * rows + row] = (u32)j;
                values[k * rows + row] = z;
            }
        }
    }
    double total = block_sum(sum, doubles);
    if (threadIdx.x == 0) {
        largest[row] = m;
        totals[row] = total;
        counts[row] = count;
    }
}

// exp((z − m) / temperature), of a token that may be beyond the end of the row.
__device__ __forceinline__ float weight(
    const real* logits, size j, size end, float m, float temperature) {
    return j < end ? expf((wide(logits[j]) - m) / temperature) : 0.0f;
}

// The first token of each row at which the sum of exp((z − m) / temperature), in the order of the
// tokens, exceeds the share uniforms[row] of the total. Each row is divided into 256 parts: their
// sums determine the part, in which one warp finds the token.
extern "C" __global__ void sample(
    const real* logits, size stride, size columns, float temperature, const double* uniforms,
    u32* tokens) {
    constexpr int PARTS = 256;
    __shared__ float space[32];
    __shared__ double sums[PARTS];
    __shared__ double left;
    __shared__ int part;
    size row = blockIdx.x;
    logits += row * stride;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    float m = -INFINITE;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) m = fmaxf(m, wide(logits[j]));
    m = block_max(m, space);
    size length = (columns + PARTS * 32 - 1) / (PARTS * 32) * 32;
    for (int p = warp; p < PARTS; p += warps) {
        size begin = p * length, end = min(columns, begin + length);
        double sum = 0.0;
        for (size j = begin + lane; j < end; j += 32) sum += weight(logits, j, end, m, temperature);
        for (int offset = 16; offset > 0; offset >>= 1)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (lane == 0) sums[p] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (int p = 0; p < PARTS; ++p) total += sums[p];
        left = uniforms[row] * total;
        // Rounding may leave a share at the end: then, the last part with any weight.
        part = 0;
        double before = 0.0, reached = 0.0;
        for (int p = 0; p < PARTS; ++p) {
            if (sums[p] > 0.0) {
                part = p;
                before = reached;
            }
            reached += sums[p];
            if (reached > left) break;
        }
        left -= before;
    }
    __syncthreads();
    if (warp > 0) return;
    size begin = part * length, end = min(columns, begin + length);
    double before = 0.0;
    size chosen = begin;
    for (size j = begin + lane; j - lane < end; j += 32) {
        float w = weight(logits, j, end, m, temperature);
        double sum = w;
        for (int offset = 1; offset < 32; offset <<= 1) {
            double below = __shfl_up_sync(0xffffffffu, sum, offset);
            if (lane >= offset) sum += below;
        }
        u32 possible = __ballot_sync(0xffffffffu, w > 0.0f);
        u32 reached = __ballot_sync(0xffffffffu, w > 0.0f && before + sum > left);
        if (reached) {
            chosen = j - lane + __ffs(reached) - 1;
            break;
        }
        if (possible) chosen = j - lane + 31 - __clz(possible);
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (lane == 0) tokens[row] = (u32)chosen;
}
