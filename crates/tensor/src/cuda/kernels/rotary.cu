// Rotary position embedding in place: rotates each pair (j, j + half) of a head's features by the
// angle position · frequency_j; direction −1 rotates back. One block per row.
//
// x [rows, ≥ columns], whose leading `columns` are heads of 2 · half features; positions [rows];
// frequencies [half]. The angle is rounded to f32 as in the reference.

extern "C" __global__ void rotate(
    real* x, size stride, size columns, const float* frequencies, size half,
    const u32* positions, float direction) {
    size row = blockIdx.x;
    x += row * stride;
    float position = (float)positions[row];
    for (size pair = threadIdx.x; pair < columns / 2; pair += blockDim.x) {
        size j = pair % half;
        real* low = x + pair / half * 2 * half + j;
        float sine, cosine;
        sincosf(position * frequencies[j], &sine, &cosine);
        sine *= direction;
        float a = wide(low[0]), b = wide(low[half]);
        narrow(a * cosine - b * sine, low[0]);
        narrow(b * cosine + a * sine, low[half]);
    }
}
