// Activation functions f and their derivatives, element by element; one block for each row.
//
// kind: 0 GELU x · Φ(x), 1 GELU by tanh, 2 SiLU x / (1 + e⁻ˣ), 3 ReLU, 4 tanh; the order of
// `Activation`.

// Φ(x) by erfc, which keeps its relative precision for large negative x.
__device__ __forceinline__ float distribution(float x) {
    return 0.5f * erfcf(-0.70710678118654752f * x);
}

__device__ __forceinline__ float gelu_inner(float x) {
    return 0.7978845608028654f * (x + 0.044715f * x * x * x);
}

__device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

__device__ __forceinline__ float value_of(size kind, float x) {
    switch (kind) {
        case 0: return x * distribution(x);
        case 1: return 0.5f * x * (1.0f + tanhf(gelu_inner(x)));
        case 2: return x * sigmoid(x);
        case 3: return x < 0.0f ? 0.0f : x;
        default: return tanhf(x);
    }
}

__device__ __forceinline__ float derivative_of(size kind, float x) {
    switch (kind) {
        case 0: {
            float density = 0.3989422804014327f * expf(-0.5f * x * x);
            return fmaf(x, density, distribution(x));
        }
        case 1: {
            float t = tanhf(gelu_inner(x));
            float inner = 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * x * x);
            return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
        }
        case 2: {
            float s = sigmoid(x);
            return s * (1.0f + x * (1.0f - s));
        }
        case 3: return x > 0.0f ? 1.0f : 0.0f;
        default: {
            float t = tanhf(x);
            return 1.0f - t * t;
        }
    }
}

// y = f(x), all [rows, columns].
extern "C" __global__ void activate(
    size kind, const float* x, size x_stride, float* y, size columns) {
    size row = blockIdx.x;
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        y[row * columns + j] = value_of(kind, x[row * x_stride + j]);
}

// dx = f′(x) ⊙ dy.
extern "C" __global__ void activate_backward(
    size kind, const float* x, size x_stride, const float* dy, size dy_stride, float* dx,
    size columns) {
    size row = blockIdx.x;
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        dx[row * columns + j] =
            derivative_of(kind, x[row * x_stride + j]) * dy[row * dy_stride + j];
}

// y = f(gate) ⊙ up.
extern "C" __global__ void gate(
    size kind, const float* gate, size gate_stride, const float* up, size up_stride, float* y,
    size columns) {
    size row = blockIdx.x;
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        y[row * columns + j] =
            value_of(kind, gate[row * gate_stride + j]) * up[row * up_stride + j];
}

// dgate = f′(gate) ⊙ up ⊙ dy and dup = f(gate) ⊙ dy.
extern "C" __global__ void gate_backward(
    size kind, const float* gate, size gate_stride, const float* up, size up_stride,
    const float* dy, size dy_stride, float* dgate, float* dup, size columns) {
    size row = blockIdx.x;
    for (size j = threadIdx.x; j < columns; j += blockDim.x) {
        float g = gate[row * gate_stride + j], d = dy[row * dy_stride + j];
        dgate[row * columns + j] = derivative_of(kind, g) * up[row * up_stride + j] * d;
        dup[row * columns + j] = value_of(kind, g) * d;
    }
}
