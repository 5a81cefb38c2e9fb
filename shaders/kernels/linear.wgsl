// Linear layer on matrices x (R, IN), weight (OUT, IN), y (R, OUT), with R = samples · ROWS. No barriers, no shared
// memory: each invocation keeps TILE_ROWS × TILE_COLUMNS results, 8 or 4 each way, as 4 × 4 blocks. a·: its first four
// rows. b·: the next four if it is TALL. ·a: its first four columns. ·b: the next four if it is WIDE. A block holds
// four rows of its matrix as columns, so `transpose(w) * x` is x · wᵀ for four rows of each.

const TALL = TILE_ROWS == 8u;
const WIDE = TILE_COLUMNS == 8u;

// y = x · weightᵀ + bias
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let row = tile / OUT_TILES * TILE_ROWS;
  let column = tile % OUT_TILES * TILE_COLUMNS;
  let rows = run.samples * ROWS;
  if (row >= rows) { return; }
  let xa = x_rows(row, rows - 1u);
  let xb = x_rows(row + 4u, rows - 1u);
  let wa = weight_rows(column, OUT - 1u);
  let wb = weight_rows(column + 4u, OUT - 1u);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  let k_end = turns(IN);
  for (var k = 0u; k < k_end; k += 4u) {
    let x0 = x_block(xa, k);
    let w0 = transpose(weight_block(wa, k));
    var w1 = mat4x4f();
    aa += w0 * x0;
    if (WIDE) { w1 = transpose(weight_block(wb, k)); ab += w1 * x0; }
    if (TALL) {
      let x1 = x_block(xb, k);
      ba += w0 * x1;
      if (WIDE) { bb += w1 * x1; }
    }
  }
  let bias0 = bias_quad(column);
  let bias1 = bias_quad(column + 4u);
  y_put_block(row, rows, column, aa + bias0);
  if (WIDE) { y_put_block(row, rows, column + 4u, ab + bias1); }
  if (TALL) { y_put_block(row + 4u, rows, column, ba + bias0); }
  if (TALL && WIDE) { y_put_block(row + 4u, rows, column + 4u, bb + bias1); }
}

fn bias_quad(c: u32) -> mat4x4f {
  let bias = vec4f(bias_at(c), bias_at(c + 1u), bias_at(c + 2u), bias_at(c + 3u));
  return mat4x4f(bias, bias, bias, bias);
}

// dx (R, IN) = dy (R, OUT) · weight
@compute @workgroup_size(WORKGROUP)
fn input_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let row = tile / IN_TILES * TILE_ROWS;
  let column = tile % IN_TILES * TILE_COLUMNS;
  let rows = run.samples * ROWS;
  if (row >= rows) { return; }
  let da = dy_rows(row, rows - 1u);
  let db = dy_rows(row + 4u, rows - 1u);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  let k_end = turns(OUT);
  for (var k = 0u; k < k_end; k += 4u) {
    let w = weight_rows(k, OUT - 1u);
    let w0 = weight_block(w, column);
    var w1 = mat4x4f();
    let d0 = dy_block(da, k);
    aa += w0 * d0;
    if (WIDE) { w1 = weight_block(w, column + 4u); ab += w1 * d0; }
    if (TALL) {
      let d1 = dy_block(db, k);
      ba += w0 * d1;
      if (WIDE) { bb += w1 * d1; }
    }
  }
  dx_put_block(row, rows, column, aa);
  if (WIDE) { dx_put_block(row, rows, column + 4u, ab); }
  if (TALL) { dx_put_block(row + 4u, rows, column, ba); }
  if (TALL && WIDE) { dx_put_block(row + 4u, rows, column + 4u, bb); }
}

// dweight (OUT, IN) += dyᵀ (OUT, R) · x (R, IN); with several splits each writes its part of the sum over R below the
// last one's
@compute @workgroup_size(WORKGROUP)
fn weight_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let split = tile / (IN_TILES * OUT_TILES);
  let row = tile / IN_TILES % OUT_TILES * TILE_ROWS;
  let column = tile % IN_TILES * TILE_COLUMNS;
  if (split >= SPLITS) { return; }
  let first = min(split * ROWS_PER_SPLIT, run.samples * ROWS);
  let end = min(first + ROWS_PER_SPLIT, run.samples * ROWS);
  let whole = first + (end - first) / 4u * 4u;
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  for (var k = first; k < whole; k += 4u) {
    let xk = x_rows(k, end - 1u);
    let dk = dy_rows(k, end - 1u);
    let x0 = x_block(xk, column);
    var x1 = mat4x4f();
    let d0 = transpose(dy_block(dk, row));
    aa += x0 * d0;
    if (WIDE) { x1 = x_block(xk, column + 4u); ab += x1 * d0; }
    if (TALL) {
      let d1 = transpose(dy_block(dk, row + 4u));
      ba += x0 * d1;
      if (WIDE) { bb += x1 * d1; }
    }
  }
  for (var k = whole; k < end; k++) {
    let x0 = x_quad(k * x_stride, column);
    let x1 = x_quad(k * x_stride, column + 4u);
    let d0 = dy_quad(k * dy_stride, row);
    let d1 = dy_quad(k * dy_stride, row + 4u);
    aa += outer(x0, d0); ab += outer(x1, d0); ba += outer(x0, d1); bb += outer(x1, d1);
  }
  put_gradient(split, row, column, aa);
  if (WIDE) { put_gradient(split, row, column + 4u, ab); }
  if (TALL) { put_gradient(split, row + 4u, column, ba); }
  if (TALL && WIDE) { put_gradient(split, row + 4u, column + 4u, bb); }
}

fn outer(column: vec4f, row: vec4f) -> mat4x4f {
  return mat4x4f(column * row.x, column * row.y, column * row.z, column * row.w);
}

fn put_gradient(split: u32, row: u32, column: u32, block: mat4x4f) {
  if (SPLITS == 1u) { dweight_add_block(row, OUT, column, block); return; }
  dweight_put_block(split * OUT + row, (split + 1u) * OUT, column, block);
}

// dweight (OUT, IN) += Σ over splits of parts (SPLITS · OUT, IN), always in the same order; four elements per
// row of sums
@compute @workgroup_size(WORKGROUP)
fn sum_parts(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = row_of(group, lane);
  let row = i / IN_QUADS;
  let column = i % IN_QUADS * 4u;
  if (row >= OUT) { return; }
  var sum = vec4f();
  let split_end = turns(SPLITS);
  for (var split = sharer(lane); split < split_end; split += SHARERS) {
    sum += parts_quad((split * OUT + row) * parts_stride, column);
  }
  sum = sum_of_row(lane, sum);
  if (sharer(lane) == 0u) { dweight_add(row, column, sum); }
}

// result (R, 4 · QUADS) = Σ over splits of parts (SPLITS · ALL_ROWS, 4 · QUADS) + bias, and its epilogue
@compute @workgroup_size(WORKGROUP)
fn finish_parts(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let row = i / QUADS;
  let column = i % QUADS * 4u;
  if (row >= run.samples * ROWS) { return; }
  var sum = vec4f(bias_at(column), bias_at(column + 1u), bias_at(column + 2u), bias_at(column + 3u));
  for (var split = 0u; split < SPLITS; split++) { sum += parts_quad((split * ALL_ROWS + row) * parts_stride, column); }
  result_put(row, column, sum);
}

// dbias (OUT,) += Σ_R dy; four outputs per row of sums
@compute @workgroup_size(WORKGROUP)
fn bias_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let column = row_of(group, lane) * 4u;
  if (column >= OUT) { return; }
  var sum = vec4f();
  for (var k = sharer(lane); k < run.samples * ROWS; k += SHARERS) { sum += dy_quad(k * dy_stride, column); }
  sum = sum_of_row(lane, sum);
  if (sharer(lane) > 0u) { return; }
  dbias_add(column, sum.x);
  dbias_add(column + 1u, sum.y);
  dbias_add(column + 2u, sum.z);
  dbias_add(column + 3u, sum.w);
}
