// Softmax and cross-entropy; one block per row of logits [rows, classes].
//
//   loss_i = log Σ_j e^(z_ij − m_i) + m_i − z_{i, target_i},  m_i = max_j z_ij
//   d(Σ weight_i loss_i)/dz_ij = weight_i · (softmax(z_i)_j − [j = target_i])

// Computes m and Σ e^(z − m), which is summed in double precision.
__device__ __forceinline__ void exponentials(
    const real* z, size classes, float* largest, double* total) {
    __shared__ float space[32];
    __shared__ double doubles[32];
    float most = -INFINITE;
    for (size j = threadIdx.x; j < classes; j += blockDim.x) most = fmaxf(most, wide(z[j]));
    most = block_max(most, space);
    double sum = 0.0;
    for (size j = threadIdx.x; j < classes; j += blockDim.x) sum += expf(wide(z[j]) - most);
    *largest = most;
    *total = block_sum(sum, doubles);
}

// `gradient` [rows, classes] may be null.
extern "C" __global__ void cross_entropy(
    const real* logits, size stride, const u32* targets, const float* weights, float* losses,
    real* gradient, size gradient_stride, size classes) {
    size row = blockIdx.x;
    logits += row * stride;
    float largest;
    double total;
    exponentials(logits, classes, &largest, &total);
    size target = targets[row];
    if (threadIdx.x == 0) losses[row] = (float)log(total) + largest - wide(logits[target]);
    if (!gradient) return;
    gradient += row * gradient_stride;
    float weight = weights[row], factor = weight / (float)total;
    for (size j = threadIdx.x; j < classes; j += blockDim.x) {
        float share = expf(wide(logits[j]) - largest) * factor;
        narrow(j == target ? share - weight : share, gradient[j]);
    }
}

extern "C" __global__ void softmax(const real* logits, size stride, real* y, size classes) {
    size row = blockIdx.x;
    logits += row * stride;
    float largest;
    double total;
    exponentials(logits, classes, &largest, &total);
    for (size j = threadIdx.x; j < classes; j += blockDim.x)
        narrow(expf(wide(logits[j]) - largest) / (float)total, y[row * classes + j]);
}
