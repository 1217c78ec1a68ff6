// LayerNorm and RMSNorm fused with the residual sum; one warp per row, or one block per wide row:
// threads (32, rows per block) or (threads, 1).
//
//   LayerNorm: x̂ = (x − mean) · r,  r = 1 / √(var + ε),      y = γ ⊙ x̂ + β
//   RMSNorm:   x̂ = x · r,           r = 1 / √(mean(x²) + ε), y = γ ⊙ x̂
//
// x, residual, y, x̂ [rows, columns] of `real`; γ, β [1, columns] and r [rows, 1] in f32. γ is the
// weight plus an offset: 1 if the parameter is the difference of γ from 1 (Gemma), otherwise 0.
// `residual` and `bias` may be null. A row of ordinary width stays in registers; a wider one is
// read again.

__device__ __forceinline__ float sum_of(const real* x, const real* residual, size j) {
    return residual ? wide(x[j]) + wide(residual[j]) : wide(x[j]);
}

__device__ __forceinline__ float scaled(
    float hat, const float* weight, float offset, const float* bias, size j) {
    float scale = weight[j] + offset;
    return bias ? fmaf(hat, scale, bias[j]) : hat * scale;
}

// The weights of pack n of a row.
__device__ __forceinline__ void load_weights(float (&to)[PACK], const float* weights, size n) {
    if (aligned(weights)) {
#pragma unroll
        for (int k = 0; k < PACK; k += 4) {
            float4 four = *(const float4*)(weights + n * PACK + k);
            to[k] = four.x;
            to[k + 1] = four.y;
            to[k + 2] = four.z;
            to[k + 3] = four.w;
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < PACK; ++k) to[k] = weights[n * PACK + k];
}

// Σ over the threads of a row.
__device__ __forceinline__ float row_sum(float value, float* space) {
    if (blockDim.x > 32) return block_sum(value, space);
    for (int offset = 16; offset > 0; offset >>= 1)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

extern "C" __global__ void norm_forward(
    size layer, const real* x, size x_stride, const real* residual, size residual_stride,
    const float* weight, float offset, const float* bias, float epsilon, real* y, real* hat, float* inverse,
    size rows, size columns) {
    __shared__ float space[32];
    size row = (size)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * x_stride;
    y += row * columns;
    hat += row * columns;
    if (residual) residual += row * residual_stride;
    float sum = 0.0f, squares = 0.0f;
    if (holds(columns) && aligned(x) && aligned(residual) && aligned(y) && aligned(hat)) {
        float held[HELD][PACK];
        each_pack(columns, [&](int i, size n) {
            Pack p = ((const Pack*)x)[n];
            Pack q = residual ? ((const Pack*)residual)[n] : p;
#pragma unroll
            for (int k = 0; k < PACK; ++k) {
                held[i][k] = residual ? wide(p.x[k]) + wide(q.x[k]) : wide(p.x[k]);
                sum += held[i][k];
            }
        });
        float mean = layer ? row_sum(sum, space) / (float)columns : 0.0f;
        each_pack(columns, [&](int i, size) {
#pragma unroll
            for (int k = 0; k < PACK; ++k) {
                held[i][k] -= mean;
                squares += held[i][k] * held[i][k];
            }
        });
        float r = 1.0f / sqrtf(row_sum(squares, space) / (float)columns + epsilon);
        each_pack(columns, [&](int i, size n) {
            Pack p, q;
            float w[PACK], b[PACK] = {};
            load_weights(w, weight, n);
            if (bias) load_weights(b, bias, n);
#pragma unroll
            for (int k = 0; k < PACK; ++k) {
                float value = held[i][k] * r;
                narrow(value, p.x[k]);
                float scale = w[k] + offset;
                narrow(bias ? fmaf(value, scale, b[k]) : value * scale, q.x[k]);
            }
            ((Pack*)hat)[n] = p;
            ((Pack*)y)[n] = q;
        });
        if (threadIdx.x == 0) inverse[row] = r;
        return;
    }
    for (size j = threadIdx.x; j < columns; j += blockDim.x) sum += sum_of(x, residual, j);
    float mean = layer ? row_sum(sum, space) / (float)columns : 0.0f;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float centered = sum_of(x, residual, j) - mean;
        squares += centered * centered;
    }
    float r = 1.0f / sqrtf(row_sum(squares, space) / (float)columns + epsilon);
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float value = (sum_of(x, residual, j) - mean) * r;
        narrow(value, hat[j]);
        narrow(scaled(value, weight, offset, bias, j), y[j]);
    }
    if (threadIdx.x == 0) inverse[row] = r;
}

// With g = γ ⊙ dy: dx = r · (g − mean(g) − x̂ · mean(g ⊙ x̂)), where RMSNorm lacks mean(g).
extern "C" __global__ void norm_backward(
    size layer, const real* hat, size hat_stride, const float* inverse, size inverse_stride,
    const float* weight, float offset, const real* dy, size dy_stride, real* dx, size rows,
    size columns) {
    __shared__ float space[32];
    size row = (size)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    hat += row * hat_stride;
    dy += row * dy_stride;
    dx += row * columns;
    float r = inverse[row * inverse_stride];
    float sum = 0.0f, along = 0.0f;
    if (holds(columns) && aligned(hat) && aligned(dy) && aligned(dx)) {
        float gs[HELD][PACK], hats[HELD][PACK];
        each_pack(columns, [&](int i, size n) {
            Pack p = ((const Pack*)dy)[n], q = ((const Pack*)hat)[n];
            float w[PACK];
            load_weights(w, weight, n);
#pragma unroll
            for (int k = 0; k < PACK; ++k) {
                gs[i][k] = wide(p.x[k]) * (w[k] + offset);
                hats[i][k] = wide(q.x[k]);
                sum += gs[i][k];
                along += gs[i][k] * hats[i][k];
            }
        });
        float mean = layer ? row_sum(sum, space) / (float)columns : 0.0f;
        along = row_sum(along, space) / (float)columns;
        each_pack(columns, [&](int i, size n) {
            Pack p;
#pragma unroll
            for (int k = 0; k < PACK; ++k)
                narrow(r * (gs[i][k] - mean - hats[i][k] * along), p.x[k]);
            ((Pack*)dx)[n] = p;
        });
        return;
    }
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float g = wide(dy[j]) * (weight[j] + offset);
        sum += g;
        along += g * wide(hat[j]);
    }
    float mean = layer ? row_sum(sum, space) / (float)columns : 0.0f;
    along = row_sum(along, space) / (float)columns;
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        narrow(r * (wide(dy[j]) * (weight[j] + offset) - mean - wide(hat[j]) * along), dx[j]);
}
