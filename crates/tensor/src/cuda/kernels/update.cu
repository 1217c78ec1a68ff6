// The release of a step and the optimizer's update, in one pass over memory.
//
//   g = round((sum + s z) / grid) · grid / divisor        z: Gaussian noise, a function of
//   AdamW, corrected Adam or SGD with g                      (key, step, coordinate) alone
//
// The values are bit-identical to those of the CPU (noise/chacha.rs, noise/normal.rs,
// noise/draw.rs, step/optimizer.rs): the same operations in the same order, each rounded to
// nearest. Fused multiply-adds are used exactly where the CPU uses them, so this file is compiled
// with --fmad=false.
//
// One thread computes one block of ChaCha20: sixteen words, eight pairs of normal variates. Column
// l of round r (256 coordinates) has block 16 r + l; its pair i belongs to the coordinates 256 r +
// 32 i + l (cosine) and 256 r + 32 i + 16 + l (sine).

#define LANES 16
#define ROUND 256
#define TAIL (1u << 16)
#define TAILS (1ull << 63)

struct Key {
    u32 words[8];
};

__device__ __forceinline__ u32 rotated(u32 x, int shift) {
    return __funnelshift_l(x, x, shift);
}

#define QUARTER(a, b, c, d)                 \
    a += b; d = rotated(d ^ a, 16);         \
    c += d; b = rotated(b ^ c, 12);         \
    a += b; d = rotated(d ^ a, 8);          \
    c += d; b = rotated(b ^ c, 7);

// Block number `counter` of stream `stream`.
__device__ __forceinline__ void chacha20(const Key &key, u64 stream, u64 counter, u32 (&s)[16]) {
    const u32 start[16] = {
        0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u,
        key.words[0], key.words[1], key.words[2], key.words[3],
        key.words[4], key.words[5], key.words[6], key.words[7],
        (u32)counter, (u32)(counter >> 32), (u32)stream, (u32)(stream >> 32),
    };
#pragma unroll
    for (int i = 0; i < 16; ++i) s[i] = start[i];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        QUARTER(s[0], s[4], s[8], s[12])
        QUARTER(s[1], s[5], s[9], s[13])
        QUARTER(s[2], s[6], s[10], s[14])
        QUARTER(s[3], s[7], s[11], s[15])
        QUARTER(s[0], s[5], s[10], s[15])
        QUARTER(s[1], s[6], s[11], s[12])
        QUARTER(s[2], s[7], s[8], s[13])
        QUARTER(s[3], s[4], s[9], s[14])
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) s[i] += start[i];
}

// ln u for u = (256 · one + last + ½)/2⁴⁰.
__device__ __forceinline__ float ln_of_uniform(u32 one, u32 last) {
    const bool upper = (one >> 31) == 1;
    const u32 n = upper ? ~one : one;
    const float rest = upper ? 255.5f - (float)last : (float)last + 0.5f;
    const float x = __fmaf_rn((float)n, 1.0f / 4294967296.0f, rest * (1.0f / 1099511627776.0f));
    const u32 shifted = __float_as_uint(x) - 0x3f3504f3u;
    const float m = __uint_as_float((shifted & 0x007fffffu) + 0x3f3504f3u);
    const bool far = x > 0.2928932f;
    float above, below, k;
    if (!upper) {
        above = m - 1.0f;
        below = m + 1.0f;
        k = (float)((int)shifted >> 23);
    } else if (!far) {
        above = -x;
        below = 2.0f - x;
        k = 0.0f;
    } else {
        above = __fmaf_rn(2.0f, -x, 1.0f);
        below = __fmaf_rn(2.0f, -x, 3.0f);
        k = -1.0f;
    }
    const float s = __fdiv_rn(above, below);
    const float z = s * s;
    float series = __fmaf_rn(z, 1.0f / 9.0f, 1.0f / 7.0f);
    series = __fmaf_rn(series, z, 0.2f);
    series = __fmaf_rn(series, z, 1.0f / 3.0f) * z;
    return __fmaf_rn(k, 0.69314718055994530942f, 2.0f * __fmaf_rn(s, series, s));
}

// Sine and cosine of 2π · angle/2³².
__device__ __forceinline__ void sine_and_cosine(u32 angle, float &sine, float &cosine) {
    const u32 quarter = (angle + (1u << 29)) >> 30;
    const int rest = (int)(angle - (quarter << 30));
    const float x = (float)rest * (2.0f * 3.14159274101257324219f / 4294967296.0f);
    const float z = x * x;
    float s = __fmaf_rn(z, 1.0f / 362880.0f, -1.0f / 5040.0f);
    s = __fmaf_rn(s, z, 1.0f / 120.0f);
    s = __fmaf_rn(s, z, -1.0f / 6.0f);
    const float odd = __fmaf_rn(x * z, s, x);
    float c = __fmaf_rn(z, 1.0f / 40320.0f, -1.0f / 720.0f);
    c = __fmaf_rn(c, z, 1.0f / 24.0f);
    c = __fmaf_rn(c, z, -0.5f);
    const float even = __fmaf_rn(z, c, 1.0f);
    const float a = (quarter & 1) == 0 ? odd : even;
    const float b = (quarter & 1) == 0 ? even : odd;
    sine = (quarter & 2) == 0 ? a : -a;
    cosine = ((quarter + 1) & 2) == 0 ? b : -b;
}

// ln u in f64, using operations that every machine rounds identically.
__device__ double natural_log(double u) {
    const u64 shifted = (u64)__double_as_longlong(u) - 0x3fe6a09e667f3bcdull;
    const u64 bits = (shifted & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull;
    const double m = __longlong_as_double((long long)bits);
    const double k = (double)((long long)shifted >> 52);
    const double s = __ddiv_rn(m - 1.0, m + 1.0);
    const double z = s * s;
    double series = 1.0 / 23.0;
    series = __fma_rn(series, z, 1.0 / 21.0);
    series = __fma_rn(series, z, 1.0 / 19.0);
    series = __fma_rn(series, z, 1.0 / 17.0);
    series = __fma_rn(series, z, 1.0 / 15.0);
    series = __fma_rn(series, z, 1.0 / 13.0);
    series = __fma_rn(series, z, 1.0 / 11.0);
    series = __fma_rn(series, z, 1.0 / 9.0);
    series = __fma_rn(series, z, 1.0 / 7.0);
    series = __fma_rn(series, z, 1.0 / 5.0);
    series = __fma_rn(series, z, 1.0 / 3.0);
    return __fma_rn(k, 0.69314718055994530942, 2.0 * __fma_rn(s * z, series, s));
}

// Two normal variates with this radius, at the angle given by a word.
__device__ __forceinline__ void normal_pair(float radius, u32 other, float &cosine, float &sine) {
    float s, c;
    sine_and_cosine(other & 0xffffff00u, s, c);
    cosine = radius * c;
    sine = radius * s;
}

// The radius in the tail, with 64 more bits.
__device__ __forceinline__ float tail_radius(u32 one, u32 other, u32 high, u32 low) {
    const u64 bits = (u64)high << 32 | (u64)low;
    const double whole = (double)one * 256.0 + (double)(other & 0xff);
    const double part = ((double)bits + 0.5) / 18446744073709551616.0;
    const double u = (whole + part) / 1099511627776.0;
    return (float)__dsqrt_rn(-2.0 * natural_log(u));
}

// Sixteen normal variates from a block of the key stream, variate n at to[16 n].
__device__ __forceinline__ void normals(const Key &key, u64 step, u64 block, float *to) {
    u32 words[16];
    chacha20(key, step, block, words);
    u32 tails = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const u32 one = words[2 * i], other = words[2 * i + 1];
        if (one < TAIL) tails |= 1u << i;
        const float radius = __fsqrt_rn(-2.0f * ln_of_uniform(one, other & 0xff));
        normal_pair(radius, other, to[LANES * 2 * i], to[LANES * (2 * i + 1)]);
    }
    if (tails == 0) return;
    u32 more[16];
    chacha20(key, step, TAILS + block, more);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if ((tails >> i & 1) == 0) continue;
        const u32 one = words[2 * i], other = words[2 * i + 1];
        const float radius = tail_radius(one, other, more[2 * i], more[2 * i + 1]);
        normal_pair(radius, other, to[LANES * 2 * i], to[LANES * (2 * i + 1)]);
    }
}

__device__ __forceinline__ float grid_of(float std) {
    const float power = __uint_as_float(__float_as_uint(std) & 0x7f800000u);
    return fmaxf(power / 256.0f, 1.17549435082228750797e-38f);
}

// The parameters of a step that are equal for all parameter tensors.
struct Step {
    Key key;
    u64 number;
    // 1 / divisor.
    float factor;
    // Whether noise is added.
    bool noisy;
    int kind;
    float momentum, beta1, beta2, epsilon, learning_rate;
    // Learning rate divided by the first moment's bias correction; inverse of the second's.
    float step_size, second_correction;
};

// A parameter tensor with `count` values. Twelve words of eight bytes.
struct Parameter {
    // Input: the sum of clipped gradients; output: the released gradient.
    float *sum;
    // The std of each coordinate, or null.
    const float *stds;
    float *value, *first, *second;
    // The new value rounded to bf16, or null.
    bf16 *rounded;
    u64 count;
    // The first coordinate, a multiple of 256.
    u64 first_coordinate;
    // The first block of threads that updates it.
    u64 first_block;
    // The std of all coordinates, if `stds` is null, and 1 − learning rate · decay.
    float std, keep;
    // Std of the noise in the gradient, if it is the same for all coordinates.
    float gradient_std;
    u32 unused[3];
};

enum Kind { SGD = 0, ADAMW = 1, CORRECTED = 2 };

#define CORRECTION_FLOOR 0.25f

__device__ __forceinline__ float released(
    float sum, float z, const Step &step, const Parameter &p, u64 at) {
    if (!step.noisy) return sum * step.factor;
    if (p.stds == nullptr) {
        if (p.std == 0.0f) return sum * step.factor;
        const float grid = grid_of(p.std);
        const float scale = __fdiv_rn(p.std, grid), inverse = __fdiv_rn(1.0f, grid);
        return rintf(__fmaf_rn(z, scale, sum * inverse)) * (grid * step.factor);
    }
    const float std = p.stds[at];
    if (std == 0.0f) return step.factor * sum;
    const float grid = grid_of(std);
    const float inverse = __uint_as_float(0x7f000000u - __float_as_uint(grid));
    return step.factor * (rintf(__fmaf_rn(z, std * inverse, sum * inverse)) * grid);
}

// Returns the new w; updates m and v in place.
__device__ __forceinline__ float moved(
    const Step &o, float keep, float g, float std, float w, float &m, float &v) {
    if (o.kind == SGD) {
        m = __fmaf_rn(o.momentum, m, g);
        return __fmaf_rn(-o.learning_rate, m, keep * w);
    }
    const float variance = std * std;
    m = __fmaf_rn(o.beta1, m, (1.0f - o.beta1) * g);
    v = __fmaf_rn(o.beta2, v, (1.0f - o.beta2) * __fmaf_rn(g, g, -variance));
    const float floor = variance * CORRECTION_FLOOR * CORRECTION_FLOOR;
    const float square = fmaxf(v * o.second_correction, floor);
    return keep * w - __fdiv_rn(o.step_size * m, __fsqrt_rn(square) + o.epsilon);
}

// Up to four adjacent values.
__device__ __forceinline__ void load_four(
    float (&to)[4], const float *from, u64 at, u64 count, bool whole) {
    if (whole && at + 4 <= count) {
        const float4 four = *(const float4 *)(from + at);
        to[0] = four.x;
        to[1] = four.y;
        to[2] = four.z;
        to[3] = four.w;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) to[k] = at + k < count ? from[at + k] : 0.0f;
}

__device__ __forceinline__ void store_four(
    const float (&four)[4], float *to, u64 at, u64 count, bool whole) {
    if (whole && at + 4 <= count) {
        *(float4 *)(to + at) = make_float4(four[0], four[1], four[2], four[3]);
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
        if (at + k < count) to[at + k] = four[k];
}

// Four coordinates of a parameter.
struct Four {
    float sum[4], value[4], first[4], second[4];

    __device__ __forceinline__ void load(const Parameter &p, u64 at, bool whole) {
        load_four(sum, p.sum, at, p.count, whole);
        load_four(value, p.value, at, p.count, whole);
        load_four(first, p.first, at, p.count, whole);
        load_four(second, p.second, at, p.count, whole);
    }

    __device__ __forceinline__ void update(
        const Step &step, const Parameter &p, const float (&z)[4], u64 at, bool whole) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (at + k >= p.count) continue;
            const float g = released(sum[k], z[k], step, p, at + k);
            float noise_std = 0.0f;
            if (step.kind == CORRECTED)
                noise_std = p.stds == nullptr ? p.gradient_std : step.factor * p.stds[at + k];
            value[k] = moved(step, p.keep, g, noise_std, value[k], first[k], second[k]);
            sum[k] = g;
            if (p.rounded) p.rounded[at + k] = nearest_bf16(value[k]);
        }
        store_four(sum, p.sum, at, p.count, whole);
        store_four(value, p.value, at, p.count, whole);
        store_four(first, p.first, at, p.count, whole);
        if (step.kind != SGD) store_four(second, p.second, at, p.count, whole);
    }
};

#define WARPS 4
// Coordinates per warp: two rounds.
#define OF_WARP (2 * ROUND)

// All parameters of a step. Every thread computes the noise of one block of sixteen coordinates and
// writes it to shared memory, so that memory is read and written in groups of four adjacent values.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 7) release_and_update(
    const Parameter *parameters, u64 count, u64 key0, u64 key1, u64 key2, u64 key3, u64 number,
    float factor, bool noisy, u64 kind, float momentum, float beta1, float beta2, float epsilon,
    float learning_rate, float step_size, float second_correction) {
    Step step = {{}, number, factor, noisy, (int)kind, momentum, beta1, beta2, epsilon,
                 learning_rate, step_size, second_correction};
    const u64 keys[4] = {key0, key1, key2, key3};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        step.key.words[2 * i] = (u32)keys[i];
        step.key.words[2 * i + 1] = (u32)(keys[i] >> 32);
    }
    // The last parameter whose first block is not after this one.
    u64 low = 0, high = count;
    while (high - low > 1) {
        const u64 middle = (low + high) / 2;
        if (parameters[middle].first_block <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    const Parameter p = parameters[low];
    const u64 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 start = ((u64)(blockIdx.x - p.first_block) * WARPS + warp) * OF_WARP;
    if (start >= p.count) return;
    const u64 addresses = (u64)p.sum | (u64)p.value | (u64)p.first | (u64)p.second;
    const bool whole = addresses % 16 == 0;
    // Load the first of them while noise is computed.
    Four four;
    four.load(p, start + 4 * lane, whole);
    // The second round starts 16 values later, so that both lie in different banks.
    //
    __shared__ __align__(16) float noise[WARPS][OF_WARP + LANES];
    float *z = noise[warp];
    if (step.noisy) {
        const u64 half = lane / LANES, column = lane % LANES;
        const u64 round = (p.first_coordinate + start) / ROUND + half;
        normals(step.key, step.number, round * LANES + column, z + half * (ROUND + LANES) + column);
        __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < OF_WARP / 128; ++j) {
        const u64 place = 128 * j + 4 * lane, at = start + place;
        if (j > 0) four.load(p, at, whole);
        float of[4] = {};
        if (step.noisy) {
            const float4 drawn = *(const float4 *)(z + place + (j >= 2 ? LANES : 0));
            of[0] = drawn.x;
            of[1] = drawn.y;
            of[2] = drawn.z;
            of[3] = drawn.w;
        }
        if (at < p.count) four.update(step, p, of, at, whole);
    }
}
