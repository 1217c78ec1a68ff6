// Shared by the kernels for privacy units.

// 2⁻¹⁰⁰: added to the squared norm of a row for each of its columns, to account for underflow (see
// `underflow` in tensor/unit_norms.rs).
#define LOST_TO_UNDERFLOW 7.888609052210118e-31

struct Task {
    // Rows of one unit, and of the other side, which are equal for norms.
    u32 start, end, other_start, other_end;
    // The first row (or column) and the first column of this tile; its multiplicity, or the layer
    // of a formed gradient; and its product.
    u32 first, second, times, product;
};

// A matrix as stored in arrays of matrices.
struct Part {
    const real* data;
    size stride, columns;
};

// The source of the values X_ts of a pair of rows.
struct Pairs {
    // ⟨a_t, b_s⟩; null if there are indices.
    const Part* inputs;
    // For an embedding table: the index of row t.
    const u32* indices;
    // The index of row s, or null, in which case X_ts = factor_s[index of t].
    const u32* others;
    Part factor;
};

// The underflow terms of the squared norms of rows of both sides of a product: of a, or nothing for
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
    // For an embedding table, which has no a: the index of each row.
    const u32* indices;
    double slack, rounding, times;
    // The location of the squared norms of the rows of a, e_1, e_2, …: norm_of[first_norm …].
    size first_norm, unused;
};
