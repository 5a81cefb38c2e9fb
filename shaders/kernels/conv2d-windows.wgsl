// Convolution of stride 1 through windows, by subgroups (see subgroup-product.wgsl, conv2d-subgroup.wgsl). The inputs
// of K kernel columns at four neighbouring outputs overlap, so they are loaded once, as eight floats. x is only padded
// for it. `padded` has PADDED_QUADS quads for each sample, channel and padded row, one more than y has. After the last
// sample follow quads of ones, for the bias's gradient. The gradient of x is such a convolution of dy, with each kernel
// turned around: padding KERNEL - 1 - PADDING. KERNEL is 3, 4 or 5. A window row is a channel and a kernel row: its K
// weights are padded to ROW_QUADS quads.

// x → padded
@compute @workgroup_size(WORKGROUP)
fn pad(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let count = run.samples * CHANNELS * ROWS * PADDED_QUADS;
  if (i >= count) {
    if (i < count + PADDED_QUADS) { padded[ONES + i - count] = vec4f(1.0); }
    return;
  }
  let line = i / PADDED_QUADS;
  let row = line % ROWS - PADDING; // wraps around above the input
  let column = i % PADDED_QUADS * 4u - PADDING;
  let start = (line / ROWS * HEIGHT + min(row, HEIGHT - 1u)) * WIDTH;
  let seen = vec4f(
    cell_at(start, column),
    cell_at(start, column + 1u),
    cell_at(start, column + 2u),
    cell_at(start, column + 3u),
  );
  padded[i] = select(vec4f(), seen, row < HEIGHT);
}

fn cell_at(start: u32, column: u32) -> f32 {
  return select(0.0, x[start + min(column, WIDTH - 1u)], column < WIDTH);
}

// weight → packed (G · OUT_PADDED, WINDOW_ROWS · ROW_QUADS): for each output the weights of its window rows
@compute @workgroup_size(WORKGROUP)
fn pack_windows(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= GROUPS * OUT_PADDED * WINDOW_ROWS * ROW_QUADS) { return; }
  let column = i % ROW_QUADS * 4u;
  packed[i] = vec4f(
    weight_of(i / ROW_QUADS, column),
    weight_of(i / ROW_QUADS, column + 1u),
    weight_of(i / ROW_QUADS, column + 2u),
    weight_of(i / ROW_QUADS, column + 3u),
  );
}

// i: (group · OUT_PADDED + output) · WINDOW_ROWS + window row
fn weight_of(i: u32, column: u32) -> f32 {
  let row = i % WINDOW_ROWS;
  let output = i / WINDOW_ROWS % OUT_PADDED;
  let first = i / (WINDOW_ROWS * OUT_PADDED);
  let tap = row % KERNEL * KERNEL + min(column, KERNEL - 1u);
  let taps = KERNEL * KERNEL;
  let channel = row / KERNEL;
  let o = min(output, OUT_PER_GROUP - 1u);
  var at = ((first * OUT_PER_GROUP + o) * CHANNELS_PER_GROUP + channel) * taps + tap;
  if (TURNED == 1u) { // what are outputs here are the channels of the weight, and its taps run backward
    at = ((first * CHANNELS_PER_GROUP + channel) * OUT_PER_GROUP + o) * taps + taps - 1u - tap;
  }
  return select(0.0, weight[at], column < KERNEL && output < OUT_PER_GROUP);
}

// Eight floats of a padded row, from those of an output quad's first column on.
struct Window { low: vec4f, high: vec4f }

fn window_at(at: u32) -> Window {
  return Window(padded[at], padded[at + 1u]);
}

// What kernel columns 0 … 3 see at four outputs, each a matrix column; as well what output columns 0 … 3 show to four
// kernel columns.
fn sights(w: Window) -> mat4x4f {
  return mat4x4f(w.low, vec4f(w.low.yzw, w.high.x), vec4f(w.low.zw, w.high.xy), vec4f(w.low.w, w.high.xyz));
}

// Four joint rows at four outputs: a matrix column for each row. r: the rows' weights; fifth: of kernel column 4.
fn window_product(s: mat4x4f, w: Window, r: mat4x4f, fifth: vec4f) -> mat4x4f {
  if (KERNEL == 3u) { return mat3x4f(s[0], s[1], s[2]) * mat4x3f(r[0].xyz, r[1].xyz, r[2].xyz, r[3].xyz); }
  if (KERNEL == 4u) { return s * r; }
  return s * r + mat4x4f(w.high * fifth.x, w.high * fifth.y, w.high * fifth.z, w.high * fifth.w);
}

// y = bias + Σ over window rows of weights · window
@compute @workgroup_size(WORKGROUP)
fn forward_windows(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = cell_tile(group, OUT_TILES, OUT_QUADS);
  if (!tile.inside) { return; }
  let o = tile.row;
  let g = tile.g;
  let cell0 = own_cell(tile, lane);
  let cell1 = own_cell(tile, LANES + lane);
  var at0 = window_begin(cell0, g);
  var at1 = window_begin(cell1, g);
  var sums = Sums();
  var ky = 0u;
  let row_end = turns(WINDOW_ROWS);
  for (var row = 0u; row < row_end; row++) {
    let quads = packed_quads(lane, g * OUT_PADDED, o, OUT_PADDED, WINDOW_ROWS * ROW_QUADS, row * ROW_QUADS);
    var fifths = Quads();
    if (KERNEL == 5u) {
      fifths = packed_quads(lane, g * OUT_PADDED, o, OUT_PADDED, WINDOW_ROWS * ROW_QUADS, row * ROW_QUADS + 1u);
    }
    add_windows(&sums, quads, fifths, window_at(at0), window_at(at1));
    ky = select(ky + 1u, 0u, ky == KERNEL - 1u);
    let step = select(PADDED_QUADS, (ROWS - KERNEL + 1u) * PADDED_QUADS, ky == 0u);
    at0 += step;
    at1 += step;
  }
  put_cell_outputs(cell0, g, o, sums.a0, sums.a1, sums.a2, sums.a3);
  if (WIDE_OWN) { put_cell_outputs(cell1, g, o, sums.b0, sums.b1, sums.b2, sums.b3); }
}

fn window_begin(cell: Cell, g: u32) -> u32 {
  let plane = (cell.sample * GROUPS + g) * CHANNELS_PER_GROUP;
  return (plane * ROWS + cell.quad / QUADS) * PADDED_QUADS + cell.quad % QUADS;
}

fn add_windows(s: ptr<function, Sums>, q: Quads, f: Quads, w0: Window, w1: Window) {
  let s0 = sights(w0);
  let s1 = sights(w1);
  let r0 = low(q.q0);
  let f0 = first_of(low(f.q0));
  (*s).a0 += window_product(s0, w0, r0, f0);
  if (WIDE_OWN) { (*s).b0 += window_product(s1, w1, r0, f0); }
  if (BLOCKS > 1u) {
    let r1 = next(q.q0, q.q1);
    let f1 = first_of(next(f.q0, f.q1));
    (*s).a1 += window_product(s0, w0, r1, f1);
    if (WIDE_OWN) { (*s).b1 += window_product(s1, w1, r1, f1); }
  }
  if (BLOCKS > 2u) {
    let r2 = first(q.q1, q.q2);
    let f2 = first_of(first(f.q1, f.q2));
    (*s).a2 += window_product(s0, w0, r2, f2);
    let r3 = next(q.q1, q.q3);
    let f3 = first_of(next(f.q1, f.q3));
    (*s).a3 += window_product(s0, w0, r3, f3);
    if (WIDE_OWN) { (*s).b2 += window_product(s1, w1, r2, f2); (*s).b3 += window_product(s1, w1, r3, f3); }
  }
}

fn first_of(rows: mat4x4f) -> vec4f { return vec4f(rows[0].x, rows[1].x, rows[2].x, rows[3].x); }

// partials (SPLITS · O, (WINDOW_ROWS + 1) · ROW_QUADS · 4) = Σ over the samples of one split of dy · windows. Each
// invocation has one or two window rows. Their K taps follow each other, padded to whole quads. The last row belongs to
// the bias and sees ones. Sums of four joint rows, for each tap.
struct BlockTaps { t0: vec4f, t1: vec4f, t2: vec4f, t3: vec4f, t4: vec4f }
struct TapSums { b0: BlockTaps, b1: BlockTaps, b2: BlockTaps, b3: BlockTaps }

@compute @workgroup_size(WORKGROUP)
fn partial_windows(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = group_of(group);
  let row0 = tile % ROW_TILES * (LANES * OWN_QUADS) + lane;
  let row1 = row0 + LANES;
  let o = tile / ROW_TILES % OUT_TILES * JOINT_ROWS;
  let g = tile / (ROW_TILES * OUT_TILES) % GROUPS;
  let split = tile / (ROW_TILES * OUT_TILES * GROUPS);
  if (split >= SPLITS) { return; }
  let last_sample = min((split + 1u) * SAMPLES_PER_SPLIT, run.samples);
  var sums0 = TapSums();
  var sums1 = TapSums();
  for (var sample = split * SAMPLES_PER_SPLIT; sample < last_sample; sample++) {
    let first = sample * OUT + g * OUT_PER_GROUP;
    var at0 = row_begin(sample, g, row0);
    var at1 = row_begin(sample, g, row1);
    let line_end = turns(OUT_HEIGHT);
    for (var line = 0u; line < line_end; line++) {
      let quad_end = turns(QUADS);
      for (var quad = 0u; quad < quad_end; quad++) {
        let quads = gradient_quads(lane, first, o, line * QUADS + quad);
        add_taps(&sums0, quads, window_at(select(at0 + quad, ONES, row0 >= WINDOW_ROWS)));
        if (WIDE_OWN) { add_taps(&sums1, quads, window_at(select(at1 + quad, ONES, row1 >= WINDOW_ROWS))); }
      }
      at0 += PADDED_QUADS;
      at1 += PADDED_QUADS;
    }
  }
  let target_row = (split * GROUPS + g) * OUT_PER_GROUP;
  let end = target_row + OUT_PER_GROUP;
  if (row0 <= WINDOW_ROWS) { put_taps(target_row + o, end, row0 * ROW_QUADS * 4u, sums0); }
  if (WIDE_OWN && row1 <= WINDOW_ROWS) { put_taps(target_row + o, end, row1 * ROW_QUADS * 4u, sums1); }
}

fn row_begin(sample: u32, g: u32, row: u32) -> u32 {
  return (((sample * GROUPS + g) * CHANNELS_PER_GROUP + row / KERNEL) * ROWS + row % KERNEL) * PADDED_QUADS;
}

fn add_taps(s: ptr<function, TapSums>, q: Quads, w: Window) {
  (*s).b0 = added_taps((*s).b0, low(q.q0), w);
  if (BLOCKS > 1u) { (*s).b1 = added_taps((*s).b1, next(q.q0, q.q1), w); }
  if (BLOCKS > 2u) {
    (*s).b2 = added_taps((*s).b2, first(q.q1, q.q2), w);
    (*s).b3 = added_taps((*s).b3, next(q.q1, q.q3), w);
  }
}

// r: four joint rows of dy, each a matrix column
fn added_taps(s: BlockTaps, r: mat4x4f, w: Window) -> BlockTaps {
  var sums = s;
  sums.t0 += w.low * r;
  sums.t1 += vec4f(w.low.yzw, w.high.x) * r;
  sums.t2 += vec4f(w.low.zw, w.high.xy) * r;
  if (KERNEL > 3u) { sums.t3 += vec4f(w.low.w, w.high.xyz) * r; }
  if (KERNEL > 4u) { sums.t4 += w.high * r; }
  return sums;
}

fn put_taps(row: u32, end: u32, column: u32, s: TapSums) {
  put_block_taps(row, end, column, s.b0);
  if (BLOCKS > 1u) { put_block_taps(row + 4u, end, column, s.b1); }
  if (BLOCKS > 2u) { put_block_taps(row + 8u, end, column, s.b2); put_block_taps(row + 12u, end, column, s.b3); }
}

fn put_block_taps(row: u32, end: u32, column: u32, s: BlockTaps) {
  partials_put_block(row, end, column, transpose(mat4x4f(s.t0, s.t1, s.t2, s.t3)));
  if (KERNEL > 4u) { partials_put_block(row, end, column + 4u, transpose(mat4x4f(s.t4, vec4f(), vec4f(), vec4f()))); }
}

// dweight (O, TAPS) and dbias (O,) += Σ over splits of partials, always in the same order; one quad of a window row per
// invocation
@compute @workgroup_size(WORKGROUP)
fn sum_windows(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= OUT * (WINDOW_ROWS + 1u) * ROW_QUADS) { return; }
  var sum = vec4f();
  let split_end = turns(SPLITS);
  for (var split = 0u; split < split_end; split++) {
    sum += partials[split * (OUT * (WINDOW_ROWS + 1u) * ROW_QUADS) + i];
  }
  let output = i / ((WINDOW_ROWS + 1u) * ROW_QUADS);
  let row = i / ROW_QUADS % (WINDOW_ROWS + 1u);
  let column = i % ROW_QUADS * 4u;
  if (row == WINDOW_ROWS) {
    if (column == 0u) { dbias_add(output, sum.x); }
    return;
  }
  let at = output * TAPS + row * KERNEL + column;
  add_tap(at, column, sum.x);
  add_tap(at + 1u, column + 1u, sum.y);
  add_tap(at + 2u, column + 2u, sum.z);
  add_tap(at + 3u, column + 3u, sum.w);
}

fn add_tap(at: u32, column: u32, value: f32) {
  if (column < KERNEL) { dweight[at] += value; }
}
