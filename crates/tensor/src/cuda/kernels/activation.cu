// Activation functions f and their derivatives, elementwise; one block per row.
//
// kind: 0 GELU x · Φ(x), 1 tanh approximation of GELU, 2 SiLU x / (1 + e⁻ˣ), 3 ReLU, 4 tanh; the
// order of `Activation`.

// eˣ and 1 / x: accurate to the last bits for f32, and to a millionth for bf16.
__device__ __forceinline__ float exponential(float x) {
    return sizeof(real) == 2 ? __expf(x) : expf(x);
}

__device__ __forceinline__ float inverse(float x) {
    return sizeof(real) == 2 ? __fdividef(1.0f, x) : 1.0f / x;
}

// Φ(x) from erfc, which keeps its relative precision for large negative x. For bf16, erfc(z) = t
// exp(−z² + a polynomial of t), t = 1 / (1 + z / 2), z ≥ 0, with a relative error of 1.2e-7
// (Chebyshev coefficients), takes a third of the work.
__device__ __forceinline__ float distribution(float x) {
    if (sizeof(real) != 2) return 0.5f * erfcf(-0.70710678118654752f * x);
    float z = 0.70710678118654752f * fabsf(x);
    float t = __fdividef(1.0f, fmaf(0.5f, z, 1.0f));
    float p = fmaf(t, 0.17087277f, -0.82215223f);
    p = fmaf(t, p, 1.48851587f);
    p = fmaf(t, p, -1.13520398f);
    p = fmaf(t, p, 0.27886807f);
    p = fmaf(t, p, -0.18628806f);
    p = fmaf(t, p, 0.09678418f);
    p = fmaf(t, p, 0.37409196f);
    p = fmaf(t, p, 1.00002368f);
    float half = 0.5f * t * __expf(fmaf(t, p, fmaf(-z, z, -1.26551223f)));
    return x < 0.0f ? half : 1.0f - half;
}

__device__ __forceinline__ float gelu_inner(float x) {
    return 0.7978845608028654f * (x + 0.044715f * x * x * x);
}

__device__ __forceinline__ float sigmoid(float x) {
    return inverse(1.0f + exponential(-x));
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
            float density = 0.3989422804014327f * exponential(-0.5f * x * x);
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

// y = f(x), both [rows, columns].
extern "C" __global__ void activate(
    size kind, const real* x, size x_stride, real* y, size columns) {
    size row = blockIdx.x;
    map_row(x + row * x_stride, y + row * columns, columns,
            [&](float value, size) { return value_of(kind, value); });
}

// dx = f′(x) ⊙ dy.
extern "C" __global__ void activate_backward(
    size kind, const real* x, size x_stride, const real* dy, size dy_stride, real* dx,
    size columns) {
    size row = blockIdx.x;
    map_rows(x + row * x_stride, dy + row * dy_stride, dx + row * columns, columns,
             [&](float value, float gradient) { return derivative_of(kind, value) * gradient; });
}

// y = c · tanh(x / c).
extern "C" __global__ void soft_cap(
    float cap, const real* x, size x_stride, real* y, size columns) {
    size row = blockIdx.x;
    map_row(x + row * x_stride, y + row * columns, columns,
            [&](float value, size) { return cap * tanhf(value / cap); });
}

// dx = (1 − (y / c)²) ⊙ dy.
extern "C" __global__ void soft_cap_backward(
    float cap, const real* y, size y_stride, const real* dy, size dy_stride, real* dx,
    size columns) {
    size row = blockIdx.x;
    map_rows(y + row * y_stride, dy + row * dy_stride, dx + row * columns, columns,
             [&](float value, float gradient) {
                 float t = value / cap;
                 return (1.0f - t * t) * gradient;
             });
}

// y = f(gate) ⊙ up.
extern "C" __global__ void gate(
    size kind, const real* gate, size gate_stride, const real* up, size up_stride, real* y,
    size columns) {
    size row = blockIdx.x;
    map_rows(gate + row * gate_stride, up + row * up_stride, y + row * columns, columns,
             [&](float g, float u) { return value_of(kind, g) * u; });
}

// dgate = f′(gate) ⊙ up ⊙ dy and dup = f(gate) ⊙ dy.
__device__ __forceinline__ void gate_gradients(
    size kind, real gate, real up, real dy, real& dgate, real& dup) {
    float g = wide(gate), d = wide(dy);
    narrow(derivative_of(kind, g) * wide(up) * d, dgate);
    narrow(value_of(kind, g) * d, dup);
}

extern "C" __global__ void gate_backward(
    size kind, const real* gate, size gate_stride, const real* up, size up_stride,
    const real* dy, size dy_stride, real* dgate, real* dup, size columns) {
    size row = blockIdx.x;
    gate += row * gate_stride;
    up += row * up_stride;
    dy += row * dy_stride;
    dgate += row * columns;
    dup += row * columns;
    bool packed = columns % PACK == 0 && aligned(gate) && aligned(up) && aligned(dy) &&
                  aligned(dgate) && aligned(dup);
    if (packed) {
        for (size n = threadIdx.x; n < columns / PACK; n += blockDim.x) {
            Pack g = ((const Pack*)gate)[n], u = ((const Pack*)up)[n], d = ((const Pack*)dy)[n];
#pragma unroll
            for (int k = 0; k < PACK; ++k)
                gate_gradients(kind, g.x[k], u.x[k], d.x[k], g.x[k], u.x[k]);
            ((Pack*)dgate)[n] = g;
            ((Pack*)dup)[n] = u;
        }
        return;
    }
    for (size j = threadIdx.x; j < columns; j += blockDim.x)
        gate_gradients(kind, gate[j], up[j], dy[j], dgate[j], dup[j]);
}
