// Matrix products of the linear layer on software adapters with subgroups (see subgroup-product.wgsl), in all three
// directions by one entry point. As in linear-shared.wgsl, result (M, N) = left (M, k) · right (k, N); either is the
// joint operand:
//   JOINT_IS_RIGHT = 0   joint = left, own = right: the invocations lie along the columns of the result
//   JOINT_IS_RIGHT = 1   joint = right, own = left: … along its rows, and blocks are transposed before they are written
// JOINT_ROWS_K, OWN_ROWS_K: the rows of that matrix run along k. Sizes that follow the number of samples are given per
// sample, > 0.

@compute @workgroup_size(WORKGROUP)
fn product(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = group_of(group);
  let split = tile / (OWN_TILES * JOINT_TILES);
  let row = tile / OWN_TILES % JOINT_TILES * JOINT_ROWS;
  let own_first = tile % OWN_TILES * (LANES * OWN_COLUMNS);
  let rows = select(JOINT, run.samples * SAMPLE_JOINT, SAMPLE_JOINT > 0u);
  let columns = select(OWN, run.samples * SAMPLE_OWN, SAMPLE_OWN > 0u);
  let end = min((split + 1u) * K_PER_SPLIT, select(turns(K), run.samples * SAMPLE_K, SAMPLE_K > 0u));
  if (row >= rows || own_first >= columns || split >= SPLITS) { return; }
  let column = own_first + lane * OWN_COLUMNS;
  var sums = Sums();
  for (var k = split * K_PER_SPLIT; k < end; k += 4u) {
    let quads = quads_of(lane, row, rows, k, end);
    let own0 = own_columns(column, columns, k, end);
    var own1 = mat4x4f();
    if (WIDE_OWN) { own1 = own_columns(column + 4u, columns, k, end); }
    add_products(&sums, quads, own0, own1);
  }
  let place = Place(split, row, rows, column, columns);
  write(place, 0u, 0u, sums.a0);
  if (BLOCKS > 1u) { write(place, 4u, 0u, sums.a1); }
  if (BLOCKS > 2u) { write(place, 8u, 0u, sums.a2); write(place, 12u, 0u, sums.a3); }
  if (WIDE_OWN) {
    write(place, 0u, 4u, sums.b0);
    if (BLOCKS > 1u) { write(place, 4u, 4u, sums.b1); }
    if (BLOCKS > 2u) { write(place, 8u, 4u, sums.b2); write(place, 12u, 4u, sums.b3); }
  }
}

fn quads_of(lane: u32, row: u32, rows: u32, k: u32, end: u32) -> Quads {
  var q: Quads;
  q.q0 = quad_of(0u, lane, row, rows, k, end);
  if (JOINT_QUADS > 1u) { q.q1 = quad_of(1u, lane, row, rows, k, end); }
  if (JOINT_QUADS > 2u) { q.q2 = quad_of(2u, lane, row, rows, k, end); q.q3 = quad_of(3u, lane, row, rows, k, end); }
  return q;
}

// An invocation's quad of a joint row; or, along k, of four joint rows. Steps past the end count nothing.
fn quad_of(i: u32, lane: u32, row: u32, rows: u32, k: u32, end: u32) -> vec4f {
  if (JOINT_ROWS_K == 0u) { return joint_quad(min(row + i * LANES + lane, rows - 1u) * joint_stride, k); }
  let step = k + lane % 4u;
  let column = min(row + i * LANES + lane / 4u * 4u, LAST_QUAD_JOINT);
  return select(vec4f(), joint_quad(min(step, end - 1u) * joint_stride, column), step < end);
}

fn own_columns(column: u32, columns: u32, k: u32, end: u32) -> mat4x4f {
  if (OWN_ROWS_K == 0u) { return transpose(own_block(own_rows(column, columns - 1u), k)); }
  return own_block(own_rows(k, end - 1u), min(column, LAST_QUAD_OWN));
}

struct Place { split: u32, row: u32, rows: u32, column: u32, columns: u32 }

fn write(at: Place, row: u32, column: u32, block: mat4x4f) {
  if (JOINT_IS_RIGHT == 1u) {
    write_block(at.split, at.column + column, at.columns, at.row + row, transpose(block));
    return;
  }
  write_block(at.split, at.row + row, at.rows, at.column + column, block);
}

fn write_block(split: u32, m: u32, end: u32, n: u32, block: mat4x4f) {
  if (ADDS == 1u) { result_add_block(m, end, n, block); return; }
  let bias = vec4f(bias_at(n), bias_at(n + 1u), bias_at(n + 2u), bias_at(n + 3u));
  result_put_block(split * M + m, split * M + end, n, block + mat4x4f(bias, bias, bias, bias));
}
