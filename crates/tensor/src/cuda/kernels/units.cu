// What the kernels for privacy units share.

// 2⁻¹⁰⁰: added to the squared norm of a row for each of its columns, for what underflow takes away
// (see `underflow` in tensor/unit_norms.rs).
#define LOST_TO_UNDERFLOW 7.888609052210118e-31

struct Task {
    // Rows of one unit, and of the other side: equal to them for norms.
    u32 start, end, other_start, other_end;
    // The first row (or column) and the first column of this tile; how often it counts, or of a
    // formed gradient which layer it belongs to; and its product.
    u32 first, second, times, product;
};

// A matrix as arrays of them lie in memory.
struct Part {
    const real* data;
    size stride, columns;
};

// Where the numbers X_ts of a pair of rows come from.
struct Pairs {
    // ⟨a_t, b_s⟩; null where there are indices.
    const Part* inputs;
    // Of a table of embeddings: the index of row t.
    const u32* indices;
    // The index of row s, or null, and then X_ts = factor_s[index of t].
    const u32* others;
    Part factor;
};

// What underflow adds to the squared norms of rows of both sides of a product: of a, or nothing for
// a table, and of all layers side by side.
__device__ __forceinline__ void lost(
    const Pairs& pairs, const Part* layers, size count, double* of_input, double* of_layers) {
    *of_input = pairs.inputs ? LOST_TO_UNDERFLOW * (double)pairs.inputs[0].columns : 0.0;
    *of_layers = 0.0;
    for (size k = 0; k < count; ++k)
        *of_layers += LOST_TO_UNDERFLOW * (double)layers[2 * k].columns;
}

// The layers of one input: parts[first] = a twice, then e_1 twice, e_2 twice, … Eight words.
struct Product {
    size first, count;
    // Of a table of embeddings, which has no a: the index of each row.
    const u32* indices;
    double slack, rounding, times;
    // Where the squared norms of the rows of a, e_1, e_2, … are found: norm_of[first_norm …].
    size first_norm, unused;
};
