// Y[row, n] = sum_k X[row, k] W[k, n] over the rows of a round's members, through tiles in workgroup memory: the
// product of cards.
//
// A workgroup of TX x TY invocations makes 8 TY rows x 8 TX columns, an invocation 8 rows x 2 vec4 of them. Tiles are 8
// deep, two of each operand: while one is used the next one is on its way, fetched without a branch, because compilers
// wait for a value at the end of the branch that fetches it. k ascends, as in product.wgsl. members, x
// (vec4; ROWS x INNER a member), w (vec4; INNER x COLUMNS), y (vec4; ROWS x COLUMNS a member). Sums in f32. The host
// emits TX and TY, 64 to 256 invocations, of which each fetches X_LOADS and W_LOADS vec4 of a tile, and x_at, w_at and
// y_sum, as for product.wgsl.
//
// With ACTIVATED = 1 (0 or 1) a workgroup makes the rows of TILE_MEMBERS whole members, TILE_USED of its rows, and the
// layer's activation is done on them before they are written: as by activate.wgsl, with its arrays and its layer.
//@use members

const INNER4: u32 = INNER / 4u;
const COLUMNS4: u32 = COLUMNS / 4u;
const DEPTH: u32 = 8u;
const TILE_COLUMNS4: u32 = 2u * TX;
// How many of its 8 rows, and how many k, the invocations fetch at once
const X_ROWS: u32 = TX / 2u;
const W_DEPTH: u32 = TY / 2u;

// the last tile's first k, and whether it has all of its k
const LAST: u32 = (INNER - 1u) / DEPTH * DEPTH;
const IS_WHOLE: bool = INNER % DEPTH == 0u;

// Tiles have a dimension for each part of an index that is a constant somewhere, because such a part needs no check of
// bounds: an invocation reads and writes them at a few places and constant distances from these.
//
// (two tiles, k / 4, row / 8, load, row of the load): a whole vec4 has one writer, since writing a component may write
// the others, too
var<workgroup> x_tile: array<array<array<array<array<vec4<f32>, X_ROWS>, X_LOADS>, TY>, 2>, 2>;
// (two tiles, load, k of the load and half of the columns, column / 4 of the half)
var<workgroup> w_tile: array<array<array<array<vec4<f32>, TX>, TY>, W_LOADS>, 2>;

fn x_start(row: u32) -> u32 {
    return x_base(row / ROWS, 0u) + (row % ROWS) * INNER4;
}

// Four k of a row, `ahead` of those at `start`, which are the row's k4-th; zeros beyond the last.
fn fetch_x(start: u32, k4: u32, ahead: u32) -> vec4<f32> {
    let is_inside = IS_WHOLE | (k4 + ahead < INNER4);
    return select(vec4<f32>(), x_at(start + select(INNER4 - 1u - k4, ahead, is_inside)), is_inside);
}

// The weights of four columns, `ahead` of the k-th ones at `start`. Beyond the last k, where x is zero, any finite
// weights suffice: those of the last one.
fn fetch_w(start: u32, k: u32, ahead: u32) -> vec4<f32> {
    return w_at(start + select(min(k + ahead, INNER - 1u) - k, ahead, IS_WHOLE) * COLUMNS4);
}

//@for a 0 ACTIVATED
// Whether a row of the tile is one of DEPTH members from `first` on.
fn is_inside(row: u32, first: u32) -> bool {
    return row < TILE_USED && row / ROWS - first < DEPTH;
}

// Where a member's values and slopes are in w_tile: which load, and which row of it for each half of the columns.
fn load_of(member: u32) -> u32 {
    return member / W_DEPTH;
}

fn row_of(member: u32, half: u32) -> u32 {
    return member % W_DEPTH * 2u + half;
}

// Replaces the values of four columns by their activations, and puts the slopes into the other tile.
fn activate_place(place: u32, first_column: u32) {
    let part = place % TILE_COLUMNS4;
    let column = first_column + part;
    if column < COLUMNS4 {
        let member = place / TILE_COLUMNS4;
        let load = load_of(member);
        let row = row_of(member, part / TX);
        let x = w_tile[0][load][row][part % TX];
        let a = layer(x.x, 4u * column);
        let b = layer(x.y, 4u * column + 1u);
        let c = layer(x.z, 4u * column + 2u);
        let d = layer(x.w, 4u * column + 3u);
        w_tile[0][load][row][part % TX] = vec4<f32>(a.x, b.x, c.x, d.x);
        w_tile[1][load][row][part % TX] = vec4<f32>(a.y, b.y, c.y, d.y);
    }
}

//@end
@compute @workgroup_size(TX, TY)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) lane: vec3<u32>,
) {
    let rows = member_count() * ROWS;
    let last = max(rows, 1u) - 1u;
    let first_row = group.x * TILE_USED;
    let first_column = group.y * TILE_COLUMNS4;
    // rows and columns that this invocation fetches: those beyond the last are clamped, and their results not written
    let x_k4 = lane.x % 2u;
    let x_row = lane.x / 2u;
    let w_k = lane.y / 2u;
    let w_start = w_k * COLUMNS4 + min(first_column + lane.y % 2u * TX + lane.x, COLUMNS4 - 1u);
    //@for l 0 X_LOADS
    let x_start_$l = x_start(min(first_row + x_row + $lu * X_ROWS + 8u * lane.y, last)) + x_k4;
    var x_next_$l = vec4<f32>();
    //@end
    //@for l 0 W_LOADS
    var w_next_$l = vec4<f32>();
    //@end
    //@for r 0 8
    var y_$r_0 = vec4<f32>();
    var y_$r_1 = vec4<f32>();
    //@end
    var tile = 0u;
    //@for l 0 X_LOADS
    x_tile[tile][x_k4][lane.y][$l][x_row] = fetch_x(x_start_$l, x_k4, 0u);
    //@end
    //@for l 0 W_LOADS
    w_tile[tile][$l][lane.y][lane.x] = fetch_w(w_start + $lu * W_DEPTH * COLUMNS4, w_k + $lu * W_DEPTH, 0u);
    //@end
    workgroupBarrier();
    for (var k = 0u; k <= LAST; k += DEPTH) {
        // after the last tile it is fetched once more, and not used
        let next = min(k + DEPTH, LAST);
        //@for l 0 X_LOADS
        x_next_$l = fetch_x(x_start_$l, x_k4, next / 4u);
        //@end
        //@for l 0 W_LOADS
        w_next_$l = fetch_w(w_start + $lu * W_DEPTH * COLUMNS4, w_k + $lu * W_DEPTH, next);
        //@end
        //@for h 0 2
        //@for r 0 8
        let x_$h_$r = x_tile[tile][$h][lane.y][$ru / X_ROWS][$ru % X_ROWS];
        //@end
        //@for c 0 4
        let w_$h_$c_0 = w_tile[tile][(4u * $hu + $cu) / W_DEPTH][(4u * $hu + $cu) % W_DEPTH * 2u][lane.x];
        let w_$h_$c_1 = w_tile[tile][(4u * $hu + $cu) / W_DEPTH][(4u * $hu + $cu) % W_DEPTH * 2u + 1u][lane.x];
        //@for r 0 8
        y_$r_0 += x_$h_$r[$c] * w_$h_$c_0;
        y_$r_1 += x_$h_$r[$c] * w_$h_$c_1;
        //@end
        //@end
        //@end
        tile = 1u - tile;
        //@for l 0 X_LOADS
        x_tile[tile][x_k4][lane.y][$l][x_row] = x_next_$l;
        //@end
        //@for l 0 W_LOADS
        w_tile[tile][$l][lane.y][lane.x] = w_next_$l;
        //@end
        workgroupBarrier();
    }
    //@for a 0 ACTIVATED
    // the values of DEPTH members at a time pass through w_tile, and come back with their slopes behind them
    for (var first = 0u; first < TILE_MEMBERS; first += DEPTH) {
        //@for r 0 8
        if is_inside(8u * lane.y + $ru, first) && (8u * lane.y + $ru) % ROWS == 0u {
            let member = (8u * lane.y + $ru) / ROWS - first;
            w_tile[0][load_of(member)][row_of(member, 0u)][lane.x] = y_$r_0;
            w_tile[0][load_of(member)][row_of(member, 1u)][lane.x] = y_$r_1;
        }
        //@end
        workgroupBarrier();
        for (var i = lane.y * TX + lane.x; i < DEPTH * TILE_COLUMNS4; i += TX * TY) {
            activate_place(i, first_column);
        }
        workgroupBarrier();
        //@for r 0 8
        if is_inside(8u * lane.y + $ru, first) {
            let member = (8u * lane.y + $ru) / ROWS - first;
            let is_value = (8u * lane.y + $ru) % ROWS == 0u;
            let load = load_of(member);
            let row_0 = row_of(member, 0u);
            let row_1 = row_of(member, 1u);
            y_$r_0 = select(y_$r_0 * w_tile[1][load][row_0][lane.x], w_tile[0][load][row_0][lane.x], is_value);
            y_$r_1 = select(y_$r_1 * w_tile[1][load][row_1][lane.x], w_tile[0][load][row_1][lane.x], is_value);
        }
        //@end
        workgroupBarrier();
    }
    //@end
    //@for r 0 8
    let row_$r = first_row + 8u * lane.y + $ru;
    if row_$r < rows && 8u * lane.y + $ru < TILE_USED {
        let start = y_base(row_$r / ROWS, 0u) + (row_$r % ROWS) * COLUMNS4 + first_column + lane.x;
        if first_column + lane.x < COLUMNS4 {
            y[start] = y_sum(start, y_$r_0);
        }
        if first_column + lane.x + TX < COLUMNS4 {
            y[start + TX] = y_sum(start + TX, y_$r_1);
        }
    }
    //@end
}
