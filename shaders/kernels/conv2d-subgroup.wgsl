// The products of a convolution through lines (see conv2d-lines.wgsl, whose functions these use) by subgroups (see
// subgroup-product.wgsl). What is joint: weights in forward and line_products, the gradient of the outputs in
// partial_products. The quads of all samples follow each other, so that invocations of one subgroup may be at several
// samples.

const JOINT_ROWS_K = 0u;
const OWN_QUADS = OWN_COLUMNS / 4u;

// One of an invocation's quads, counted over all samples in planes of `plane` quads. Past the last one it repeats that.
struct Cell { sample: u32, quad: u32, exists: bool }

fn cell_of(index: u32, count: u32, plane: u32) -> Cell {
  let i = min(index, count - 1u);
  return Cell(i / plane, i % plane, index < count);
}

// What a subgroup computes where its own columns are cells: rows of group g from `row` on. Its invocations' cells lie
// in planes of `plane` quads. Outside, there is nothing to do.
struct CellTile { row: u32, g: u32, first: u32, cells: u32, plane: u32, inside: bool }

fn cell_tile(group: vec3u, row_tiles: u32, plane: u32) -> CellTile {
  let tile = group_of(group);
  let first = tile % CELL_TILES * (LANES * OWN_QUADS);
  let g = tile / (CELL_TILES * row_tiles);
  let cells = run.samples * plane;
  return CellTile(tile / CELL_TILES % row_tiles * JOINT_ROWS, g, first, cells, plane, first < cells && g < GROUPS);
}

fn own_cell(t: CellTile, i: u32) -> Cell { return cell_of(t.first + i, t.cells, t.plane); }

// y = bias + Σ over taps of weight · lines
@compute @workgroup_size(WORKGROUP)
fn forward_products(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = cell_tile(group, OUT_TILES, OUT_QUADS);
  if (!tile.inside) { return; }
  let o = tile.row;
  let g = tile.g;
  let cell0 = own_cell(tile, lane);
  let cell1 = own_cell(tile, LANES + lane);
  let at0 = lines_begin(cell0, g);
  let at1 = lines_begin(cell1, g);
  let first_row = g * OUT_PADDED;
  var sums = Sums();
  let k_end = turns(TAP_QUADS);
  for (var k = 0u; k < k_end; k++) {
    let tap = taps[k];
    let quads = packed_quads(lane, first_row, o, OUT_PADDED, TAP_QUADS, k);
    let own0 = line_quads(at0 + tap);
    var own1 = mat4x4f();
    if (WIDE_OWN) { own1 = line_quads(at1 + tap); }
    add_products(&sums, quads, own0, own1);
  }
  put_cell_outputs(cell0, g, o, sums.a0, sums.a1, sums.a2, sums.a3);
  if (WIDE_OWN) { put_cell_outputs(cell1, g, o, sums.b0, sums.b1, sums.b2, sums.b3); }
}

fn lines_begin(cell: Cell, g: u32) -> vec4u {
  return vec4u((cell.sample * GROUPS + g) * CHANNELS_PER_GROUP * KERNEL * LINE_PLANE + line_quad(cell.quad));
}

// Quad k of joint rows from `row`, of `count` rows that begin at row `first` and have `stride` quads each.
fn packed_quads(lane: u32, first: u32, row: u32, count: u32, stride: u32, k: u32) -> Quads {
  var q: Quads;
  q.q0 = packed_quad(lane, first, row, count, stride, k);
  if (JOINT_QUADS > 1u) { q.q1 = packed_quad(LANES + lane, first, row, count, stride, k); }
  if (JOINT_QUADS > 2u) {
    q.q2 = packed_quad(2u * LANES + lane, first, row, count, stride, k);
    q.q3 = packed_quad(3u * LANES + lane, first, row, count, stride, k);
  }
  return q;
}

fn packed_quad(i: u32, first: u32, row: u32, count: u32, stride: u32, k: u32) -> vec4f {
  return packed[(first + min(row + i, count - 1u)) * stride + k];
}

fn put_cell_outputs(cell: Cell, g: u32, o: u32, s0: mat4x4f, s1: mat4x4f, s2: mat4x4f, s3: mat4x4f) {
  if (!cell.exists) { return; }
  let first = (cell.sample * GROUPS + g) * OUT_PER_GROUP;
  let end = first + OUT_PER_GROUP;
  let bias = g * OUT_PER_GROUP + o;
  put_outputs(first + o, end, cell.quad, s0 + bias_block(bias));
  if (BLOCKS > 1u) { put_outputs(first + o + 4u, end, cell.quad, s1 + bias_block(bias + 4u)); }
  if (BLOCKS > 2u) {
    put_outputs(first + o + 8u, end, cell.quad, s2 + bias_block(bias + 8u));
    put_outputs(first + o + 12u, end, cell.quad, s3 + bias_block(bias + 12u));
  }
}

// dlines (B · G · SEERS, HEIGHT, QUADS): the gradient of what each seer saw, summed over outputs and kernel rows
@compute @workgroup_size(WORKGROUP)
fn line_products(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = cell_tile(group, SEER_TILES, HEIGHT * QUADS);
  if (!tile.inside) { return; }
  let seer = tile.row;
  let g = tile.g;
  let cell0 = own_cell(tile, lane);
  let cell1 = own_cell(tile, LANES + lane);
  let first_row = g * SEERS_PADDED;
  // Kernel rows that some cell of the subgroup needs: all of them where it reaches into a second sample.
  let first = own_cell(tile, 0u);
  let last = own_cell(tile, LANES * OWN_QUADS - 1u);
  let needed = kernel_rows_over(first.quad / QUADS, last.quad / QUADS);
  let kernel_rows = select(vec2u(0u, KERNEL), needed, first.sample == last.sample);
  var sums = Sums();
  var ky = kernel_rows.x;
  var o = 0u;
  for (var k = kernel_rows.x * (OUT4 / 4u); k < kernel_rows.y * (OUT4 / 4u); k++) {
    let quads = packed_quads(lane, first_row, seer, SEERS_PADDED, KERNEL * OUT4 / 4u, k);
    let own0 = outputs_seen(cell0, g, o, ky);
    var own1 = mat4x4f();
    if (WIDE_OWN) { own1 = outputs_seen(cell1, g, o, ky); }
    add_products(&sums, quads, own0, own1);
    o += 4u;
    ky += select(0u, 1u, o == OUT4);
    o = select(o, 0u, o == OUT4);
  }
  put_cell_lines(cell0, g, seer, sums.a0, sums.a1, sums.a2, sums.a3);
  if (WIDE_OWN) { put_cell_lines(cell1, g, seer, sums.b0, sums.b1, sums.b2, sums.b3); }
}

// What four outputs get back at the quad of an input line, through kernel row ky.
fn outputs_seen(cell: Cell, g: u32, o: u32, ky: u32) -> mat4x4f {
  let line = output_at(cell.quad / QUADS, ky, OUT_HEIGHT);
  let first = (cell.sample * GROUPS + g) * OUT_PER_GROUP;
  let planes = output_planes(first + o, first + OUT_PER_GROUP - 1u);
  let seen = dy_quads(planes + min(line, OUT_HEIGHT - 1u) * QUADS + cell.quad % QUADS);
  return seen * select(1.0, 0.0, line == NOWHERE);
}

fn put_cell_lines(cell: Cell, g: u32, seer: u32, s0: mat4x4f, s1: mat4x4f, s2: mat4x4f, s3: mat4x4f) {
  if (!cell.exists) { return; }
  let first = (cell.sample * GROUPS + g) * SEERS;
  let end = first + SEERS;
  put_lines(first + seer, end, cell.quad, s0);
  if (BLOCKS > 1u) { put_lines(first + seer + 4u, end, cell.quad, s1); }
  if (BLOCKS > 2u) {
    put_lines(first + seer + 8u, end, cell.quad, s2);
    put_lines(first + seer + 12u, end, cell.quad, s3);
  }
}

// partials (SPLITS · O, TAPS_PADDED) = Σ over the samples of one split of dy · lines; tap TAPS belongs to the bias
@compute @workgroup_size(WORKGROUP)
fn partial_products(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = group_of(group);
  let tap = tile % TAP_TILES * (LANES * OWN_COLUMNS) + lane * OWN_COLUMNS;
  let o = tile / TAP_TILES % OUT_TILES * JOINT_ROWS;
  let g = tile / (TAP_TILES * OUT_TILES) % GROUPS;
  let split = tile / (TAP_TILES * OUT_TILES * GROUPS);
  if (split >= SPLITS) { return; }
  let taps0 = tap_lines(g, vec4u(tap, tap + 1u, tap + 2u, tap + 3u));
  let taps1 = tap_lines(g, vec4u(tap + 4u, tap + 5u, tap + 6u, tap + 7u));
  let last_sample = min((split + 1u) * SAMPLES_PER_SPLIT, run.samples);
  var sums = Sums();
  for (var sample = split * SAMPLES_PER_SPLIT; sample < last_sample; sample++) {
    let first = sample * OUT + g * OUT_PER_GROUP;
    let from0 = select(taps0 + sample * CHANNELS * KERNEL * LINE_PLANE, vec4u(ONES), taps0 == vec4u(ONES));
    let from1 = select(taps1 + sample * CHANNELS * KERNEL * LINE_PLANE, vec4u(ONES), taps1 == vec4u(ONES));
    let quad_end = turns(OUT_QUADS);
    for (var quad = 0u; quad < quad_end; quad++) {
      let quads = gradient_quads(lane, first, o, quad);
      let own0 = transpose(line_quads(from0 + line_quad(quad)));
      var own1 = mat4x4f();
      if (WIDE_OWN) { own1 = transpose(line_quads(from1 + line_quad(quad))); }
      add_products(&sums, quads, own0, own1);
    }
  }
  let row = (split * GROUPS + g) * OUT_PER_GROUP;
  let end = row + OUT_PER_GROUP;
  put_partials(row + o, end, tap, sums.a0, sums.a1, sums.a2, sums.a3);
  if (WIDE_OWN) { put_partials(row + o, end, tap + 4u, sums.b0, sums.b1, sums.b2, sums.b3); }
}

fn gradient_quads(lane: u32, first: u32, o: u32, quad: u32) -> Quads {
  var q: Quads;
  q.q0 = gradient_quad(lane, first, o, quad);
  if (JOINT_QUADS > 1u) { q.q1 = gradient_quad(LANES + lane, first, o, quad); }
  if (JOINT_QUADS > 2u) {
    q.q2 = gradient_quad(2u * LANES + lane, first, o, quad);
    q.q3 = gradient_quad(3u * LANES + lane, first, o, quad);
  }
  return q;
}

fn gradient_quad(i: u32, first: u32, o: u32, quad: u32) -> vec4f {
  return dy[(first + min(o + i, OUT_PER_GROUP - 1u)) * OUT_QUADS + quad];
}

fn put_partials(row: u32, end: u32, tap: u32, s0: mat4x4f, s1: mat4x4f, s2: mat4x4f, s3: mat4x4f) {
  partials_put_block(row, end, tap, s0);
  if (BLOCKS > 1u) { partials_put_block(row + 4u, end, tap, s1); }
  if (BLOCKS > 2u) { partials_put_block(row + 8u, end, tap, s2); partials_put_block(row + 12u, end, tap, s3); }
}
