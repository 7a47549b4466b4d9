// Y[row, n] = sum_k X[row, k] W[k, n] over the rows of a round's members, through tiles in workgroup memory: the
// product of cards.
//
// A workgroup of TX x TY invocations makes 8 TY rows x 8 TX columns, an invocation 8 rows x 2 vec4 of them. Tiles are 8
// deep, two of each operand: while one is used the next one is on its way, fetched without a branch, because compilers
// wait for a value at the end of the branch that fetches it. k ascends, as in product.wgsl. members, x
// (vec4; ROWS x INNER a member), w (vec4; INNER x COLUMNS), y (vec4; ROWS x COLUMNS a member). Sums in f32. The host
// emits TX and TY, 64 to 256 invocations, and x_at and w_at: four numbers, of f32 or of halves.
//
// With ACTIVATED = 1 (0 or 1) a workgroup makes the rows of TILE_MEMBERS whole members, TILE_USED of its rows, and the
// layer's activation is done on them before they are written: as by activate.wgsl, with the arrays of layer.wgsl.
//@use members

const INNER4: u32 = INNER / 4u;
const COLUMNS4: u32 = COLUMNS / 4u;
const DEPTH: u32 = 8u;
const THREADS: u32 = TX * TY;
const TILE_ROWS: u32 = 8u * TY;
const TILE_COLUMNS4: u32 = 2u * TX;
// vec4 of a tile that one invocation fetches: one or two
const X_LOADS: u32 = TILE_ROWS * 2u / THREADS;
const W_LOADS: u32 = TILE_COLUMNS4 * DEPTH / THREADS;

// the last tile's first k
const LAST: u32 = (INNER - 1u) / DEPTH * DEPTH;

// (two tiles, k / 4, row): a whole vec4 has one writer, since writing a component may write the others, too
var<workgroup> x_tile: array<vec4<f32>, DEPTH / 2u * TILE_ROWS>;
// (two tiles, k, column / 4)
var<workgroup> w_tile: array<vec4<f32>, 2u * DEPTH * TILE_COLUMNS4>;

fn x_start(row: u32) -> u32 {
    return x_base(row / ROWS, 0u) + (row % ROWS) * INNER4;
}

// Four k of a row, zeros beyond the last.
fn fetch_x(start: u32, k4: u32) -> vec4<f32> {
    return select(vec4<f32>(), x_at(start + min(k4, INNER4 - 1u)), k4 < INNER4);
}

// Beyond the last k, where x is zero, any finite weights do: those of the last one.
fn fetch_w(k: u32, column: u32) -> vec4<f32> {
    return w_at(min(k, INNER - 1u) * COLUMNS4 + column);
}

// Puts the four k of one row into a tile.
fn put_x(tile: u32, place: u32, value: vec4<f32>) {
    x_tile[(2u * tile + place % 2u) * TILE_ROWS + place / 2u] = value;
}

//@for a 0 ACTIVATED
// Whether a row of the tile is one of DEPTH members from `first` on.
fn is_inside(row: u32, first: u32) -> bool {
    return row < TILE_USED && row / ROWS - first < DEPTH;
}

fn activate_place(place: u32, column: u32) {
    if column < COLUMNS4 {
        let x = w_tile[place];
        let a = layer(x.x, 4u * column);
        let b = layer(x.y, 4u * column + 1u);
        let c = layer(x.z, 4u * column + 2u);
        let d = layer(x.w, 4u * column + 3u);
        w_tile[place] = vec4<f32>(a.x, b.x, c.x, d.x);
        w_tile[place + DEPTH * TILE_COLUMNS4] = vec4<f32>(a.y, b.y, c.y, d.y);
    }
}

//@end
@compute @workgroup_size(TX, TY)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) lane: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let rows = member_count() * ROWS;
    let last = max(rows, 1u) - 1u;
    let first_row = group.x * TILE_USED;
    let first_column = group.y * TILE_COLUMNS4;
    // what this invocation fetches: rows and columns beyond the last are clamped to it, and their results not written
    //@for l 0 2
    let x_place_$l = index + $lu * THREADS;
    let x_start_$l = x_start(min(first_row + x_place_$l / 2u, last));
    let w_place_$l = index + $lu * THREADS;
    let w_column_$l = min(first_column + w_place_$l % TILE_COLUMNS4, COLUMNS4 - 1u);
    let w_k_$l = w_place_$l / TILE_COLUMNS4;
    var x_next_$l = vec4<f32>();
    var w_next_$l = vec4<f32>();
    //@end
    //@for r 0 8
    var y_$r_0 = vec4<f32>();
    var y_$r_1 = vec4<f32>();
    //@end
    var tile = 0u;
    //@for l 0 2
    if $lu < X_LOADS {
        put_x(tile, x_place_$l, fetch_x(x_start_$l, x_place_$l % 2u));
    }
    if $lu < W_LOADS {
        w_tile[w_place_$l] = fetch_w(w_k_$l, w_column_$l);
    }
    //@end
    workgroupBarrier();
    for (var k = 0u; k <= LAST; k += DEPTH) {
        // behind the last tile it is fetched once more, and not used
        let next = min(k + DEPTH, LAST);
        //@for l 0 2
        if $lu < X_LOADS {
            x_next_$l = fetch_x(x_start_$l, next / 4u + x_place_$l % 2u);
        }
        if $lu < W_LOADS {
            w_next_$l = fetch_w(next + w_k_$l, w_column_$l);
        }
        //@end
        //@for h 0 2
        let x_at_$h = (2u * tile + $hu) * TILE_ROWS + 8u * lane.y;
        let w_at_$h = (tile * DEPTH + 4u * $hu) * TILE_COLUMNS4 + lane.x;
        //@for r 0 8
        let x_$h_$r = x_tile[x_at_$h + $ru];
        //@end
        //@for c 0 4
        let w_$h_$c_0 = w_tile[w_at_$h + $cu * TILE_COLUMNS4];
        let w_$h_$c_1 = w_tile[w_at_$h + $cu * TILE_COLUMNS4 + TX];
        //@for r 0 8
        y_$r_0 += x_$h_$r[$c] * w_$h_$c_0;
        y_$r_1 += x_$h_$r[$c] * w_$h_$c_1;
        //@end
        //@end
        //@end
        tile = 1u - tile;
        //@for l 0 2
        if $lu < X_LOADS {
            put_x(tile, x_place_$l, x_next_$l);
        }
        if $lu < W_LOADS {
            w_tile[tile * DEPTH * TILE_COLUMNS4 + w_place_$l] = w_next_$l;
        }
        //@end
        workgroupBarrier();
    }
    //@for a 0 ACTIVATED
    // the values of DEPTH members at a time pass through w_tile, and come back with their slopes behind them
    for (var first = 0u; first < TILE_MEMBERS; first += DEPTH) {
        //@for r 0 8
        if is_inside(8u * lane.y + $ru, first) && (8u * lane.y + $ru) % ROWS == 0u {
            let place = ((8u * lane.y + $ru) / ROWS - first) * TILE_COLUMNS4 + lane.x;
            w_tile[place] = y_$r_0;
            w_tile[place + TX] = y_$r_1;
        }
        //@end
        workgroupBarrier();
        for (var i = index; i < DEPTH * TILE_COLUMNS4; i += THREADS) {
            activate_place(i, first_column + i % TILE_COLUMNS4);
        }
        workgroupBarrier();
        //@for r 0 8
        if is_inside(8u * lane.y + $ru, first) {
            let place = ((8u * lane.y + $ru) / ROWS - first) * TILE_COLUMNS4 + lane.x;
            let slope = place + DEPTH * TILE_COLUMNS4;
            let is_value = (8u * lane.y + $ru) % ROWS == 0u;
            y_$r_0 = select(y_$r_0 * w_tile[slope], w_tile[place], is_value);
            y_$r_1 = select(y_$r_1 * w_tile[slope + TX], w_tile[place + TX], is_value);
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
            y[start] = y_$r_0;
        }
        if first_column + lane.x + TX < COLUMNS4 {
            y[start + TX] = y_$r_1;
        }
    }
    //@end
}
