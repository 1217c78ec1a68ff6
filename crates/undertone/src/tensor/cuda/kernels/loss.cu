// Softmax and cross-entropy; one block for each row of logits [rows, classes].
//
//   loss_i = log Σ_j e^(z_ij − m_i) + m_i − z_{i, target_i},  m_i = max_j z_ij
//   d(Σ weight_i loss_i)/dz_ij = weight_i · (softmax(z_i)_j − [j = target_i])

// Sets m and Σ e^(z − m), which is added up in double precision.
__device__ __forceinline__ void exponentials(
    const float* z, size classes, float* largest, double* total) {
    __shared__ float space[32];
    __shared__ double wide[32];
    float most = -INFINITE;
    for (size j = threadIdx.x; j < classes; j += blockDim.x) most = fmaxf(most, z[j]);
    most = block_max(most, space);
    double sum = 0.0;
    for (size j = threadIdx.x; j < classes; j += blockDim.x) sum += expf(z[j] - most);
    *largest = most;
    *total = block_sum(sum, wide);
}

// `gradient` [rows, classes] may be null.
extern "C" __global__ void cross_entropy(
    const float* logits, size stride, const u32* targets, const float* weights, float* losses,
    float* gradient, size classes) {
    size row = blockIdx.x;
    logits += row * stride;
    float largest;
    double total;
    exponentials(logits, classes, &largest, &total);
    size target = targets[row];
    if (threadIdx.x == 0) losses[row] = (float)log(total) + largest - logits[target];
    if (!gradient) return;
    gradient += row * classes;
    float weight = weights[row], factor = weight / (float)total;
    for (size j = threadIdx.x; j < classes; j += blockDim.x) {
        float share = expf(logits[j] - largest) * factor;
        gradient[j] = j == target ? share - weight : share;
    }
}

extern "C" __global__ void softmax(const float* logits, size stride, float* y, size classes) {
    size row = blockIdx.x;
    logits += row * stride;
    float largest;
    double total;
    exponentials(logits, classes, &largest, &total);
    for (size j = threadIdx.x; j < classes; j += blockDim.x)
        y[row * classes + j] = expf(logits[j] - largest) / (float)total;
}
