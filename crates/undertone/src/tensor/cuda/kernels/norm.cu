// LayerNorm and RMSNorm with the residual sum fused in; one block for each row.
//
//   LayerNorm: x̂ = (x − mean) · r,  r = 1 / √(var + ε),      y = γ ⊙ x̂ + β
//   RMSNorm:   x̂ = x · r,           r = 1 / √(mean(x²) + ε), y = γ ⊙ x̂
//
// x, residual, y, x̂ [rows, columns]; γ, β [1, columns]; r [rows, 1]. `residual` and `bias` may be
// null.

extern "C" __global__ void norm_forward(
    size layer, const float* x, size x_stride, const float* residual, size residual_stride,
    const float* weight, const float* bias, float epsilon, float* y, float* hat, float* inverse,
    size columns) {
    __shared__ float space[32];
    size row = blockIdx.x;
    x += row * x_stride;
    y += row * columns;
    hat += row * columns;
    if (residual) residual += row * residual_stride;
    float sum = 0.0f;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float value = residual ? x[j] + residual[j] : x[j];
        hat[j] = value;
        sum += value;
    }
    float mean = layer ? block_sum(sum, space) / (float)columns : 0.0f;
    float squares = 0.0f;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float centred = hat[j] - mean;
        squares += centred * centred;
    }
    float r = 1.0f / sqrtf(block_sum(squares, space) / (float)columns + epsilon);
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float value = (hat[j] - mean) * r;
        hat[j] = value;
        y[j] = bias ? fmaf(value, weight[j], bias[j]) : value * weight[j];
    }
    if (threadIdx.x == 0) inverse[row] = r;
}

// With g = γ ⊙ dy: dx = r · (g − mean(g) − x̂ · mean(g ⊙ x̂)), where RMSNorm lacks mean(g).
extern "C" __global__ void norm_backward(
    size layer, const float* hat, size hat_stride, const float* inverse, size inverse_stride,
    const float* weight, const float* dy, size dy_stride, float* dx, size columns) {
    __shared__ float space[32];
    size row = blockIdx.x;
    hat += row * hat_stride;
    dy += row * dy_stride;
    dx += row * columns;
    float sum = 0.0f, along = 0.0f;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float g = dy[j] * weight[j];
        sum += g;
        along += g * hat[j];
    }
    float mean = layer ? block_sum(sum, space) / (float)columns : 0.0f;
    along = block_sum(along, space) / (float)columns;
    float r = inverse[row * inverse_stride];
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        dx[j] = r * (dy[j] * weight[j] - mean - hat[j] * along);
}
