// The likely tokens of each row of logits [rows, columns]; one block per row.

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
