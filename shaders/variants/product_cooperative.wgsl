// Y[row, n] = sum_k X[row, k] W[k, n] over the rows of a round's members, halves with sums in f32: the product of cards
// that multiply small matrices as one operation (tensor cores, by their name in Vulkan cooperative matrices).
//
// A workgroup is one subgroup of SUBGROUP invocations and makes 4 x 4 matrices of SIZE x SIZE (8 or 16, as the adapter
// has them); k ascends by matrices, inside one the order is the card's own. A member's rows lie behind those of the one
// before it, without a gap, so that a matrix may hold rows of two. members, x (f16; ROWS x INNER per member), w (f16;
// INNER x COLUMNS), y (f32; ROWS x COLUMNS a member); INNER and COLUMNS are multiples of 16. Both x and y have room for
// 16 rows behind the last member. The product is multiplied by FACTOR. Rows of y are Y_STRIDE apart: COLUMNS, or with
// ADDED = 1 a member's block, to whose first row it is added. The host emits MatrixA, MatrixB and MatrixC.
enable f16;
enable wgpu_cooperative_matrix;
//@use members

const LAST_COLUMN: u32 = COLUMNS - SIZE;

@compute @workgroup_size(SUBGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    // the first row of the last matrix that has a row of the product
    let last_row = (max(member_count() * ROWS, 1u) - 1u) / SIZE * SIZE;
    let row = group.x * 4u * SIZE;
    let column = group.y * 4u * SIZE;
    //@for i 0 4
    // matrices beyond the last are computed like it, and not written
    let x_$i = min(row + $iu * SIZE, last_row) * INNER;
    let w_$i = min(column + $iu * SIZE, LAST_COLUMN);
    //@for n 0 4
    var y_$i_$n = MatrixC();
    //@end
    //@end
    for (var k = 0u; k < INNER; k += SIZE) {
        //@for i 0 4
        let a_$i = coopLoadT<MatrixA>(&x[x_$i + k], INNER);
        let b_$i = coopLoadT<MatrixB>(&w[k * COLUMNS + w_$i], COLUMNS);
        //@end
        //@for i 0 4
        //@for n 0 4
        y_$i_$n = coopMultiplyAdd(a_$i, b_$n, y_$i_$n);
        //@end
        //@end
    }
    //@for i 0 4
    let y_row_$i = min(row + $iu * SIZE, last_row) * Y_STRIDE;
    //@for n 0 4
    y_$i_$n = FACTOR * y_$i_$n;
    // matrices of y are read where control flow is uniform, as WGSL asks of all but stores
    //@for a 0 ADDED
    y_$i_$n = coopLoadT<MatrixC>(&y[y_row_$i + min(column + $nu * SIZE, LAST_COLUMN)], Y_STRIDE) + y_$i_$n;
    //@end
    //@end
    //@end
    //@for i 0 4
    //@for n 0 4
    if row + $iu * SIZE <= last_row && column + $nu * SIZE <= LAST_COLUMN {
        coopStoreT(y_$i_$n, &y[(row + $iu * SIZE) * Y_STRIDE + column + $nu * SIZE], Y_STRIDE);
    }
    //@end
    //@end
}
