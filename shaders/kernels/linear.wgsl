// Linear layer on matrices x (R, IN), weight (OUT, IN), y (R, OUT), with R = samples · ROWS. No barriers, no shared memory:
// each invocation keeps an 8 × 8 square of results as four 4 × 4 blocks (a·: its first four rows, ·b: its last four columns).
// A block holds four rows of its matrix as columns, so `transpose(w) * x` is x · wᵀ for four rows of each.

// y = x · weightᵀ + bias
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let row = tile / OUT_TILES * 8u;
  let column = tile % OUT_TILES * 8u;
  let rows = run.samples * ROWS;
  if (row >= rows) { return; }
  let xa = x_rows(row, rows - 1u);
  let xb = x_rows(row + 4u, rows - 1u);
  let wa = weight_rows(column, OUT - 1u);
  let wb = weight_rows(column + 4u, OUT - 1u);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  for (var k = 0u; k < IN; k += 4u) {
    let x0 = x_block(xa, k);
    let x1 = x_block(xb, k);
    let w0 = transpose(weight_block(wa, k));
    let w1 = transpose(weight_block(wb, k));
    aa += w0 * x0; ab += w1 * x0; ba += w0 * x1; bb += w1 * x1;
  }
  let bias0 = bias_quad(column);
  let bias1 = bias_quad(column + 4u);
  y_put_block(row, rows, column, aa + bias0);
  y_put_block(row, rows, column + 4u, ab + bias1);
  y_put_block(row + 4u, rows, column, ba + bias0);
  y_put_block(row + 4u, rows, column + 4u, bb + bias1);
}

fn bias_quad(c: u32) -> mat4x4f {
  let bias = vec4f(bias_at(c), bias_at(c + 1u), bias_at(c + 2u), bias_at(c + 3u));
  return mat4x4f(bias, bias, bias, bias);
}

// dx (R, IN) = dy (R, OUT) · weight
@compute @workgroup_size(WORKGROUP)
fn input_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let row = tile / IN_TILES * 8u;
  let column = tile % IN_TILES * 8u;
  let rows = run.samples * ROWS;
  if (row >= rows) { return; }
  let da = dy_rows(row, rows - 1u);
  let db = dy_rows(row + 4u, rows - 1u);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  for (var k = 0u; k < OUT; k += 4u) {
    let w = weight_rows(k, OUT - 1u);
    let w0 = weight_block(w, column);
    let w1 = weight_block(w, column + 4u);
    let d0 = dy_block(da, k);
    let d1 = dy_block(db, k);
    aa += w0 * d0; ab += w1 * d0; ba += w0 * d1; bb += w1 * d1;
  }
  dx_put_block(row, rows, column, aa);
  dx_put_block(row, rows, column + 4u, ab);
  dx_put_block(row + 4u, rows, column, ba);
  dx_put_block(row + 4u, rows, column + 4u, bb);
}

// dweight (OUT, IN) += dyᵀ (OUT, R) · x (R, IN)
@compute @workgroup_size(WORKGROUP)
fn weight_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let tile = thread_of(group, lane);
  let row = tile / IN_TILES * 8u;
  let column = tile % IN_TILES * 8u;
  if (row >= OUT) { return; }
  let rows = run.samples * ROWS;
  let whole = rows / 4u * 4u;
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  for (var k = 0u; k < whole; k += 4u) {
    let xk = x_rows(k, rows - 1u);
    let dk = dy_rows(k, rows - 1u);
    let x0 = x_block(xk, column);
    let x1 = x_block(xk, column + 4u);
    let d0 = transpose(dy_block(dk, row));
    let d1 = transpose(dy_block(dk, row + 4u));
    aa += x0 * d0; ab += x1 * d0; ba += x0 * d1; bb += x1 * d1;
  }
  for (var k = whole; k < rows; k++) {
    let x0 = x_quad(k * x_stride, column);
    let x1 = x_quad(k * x_stride, column + 4u);
    let d0 = dy_quad(k * dy_stride, row);
    let d1 = dy_quad(k * dy_stride, row + 4u);
    aa += outer(x0, d0); ab += outer(x1, d0); ba += outer(x0, d1); bb += outer(x1, d1);
  }
  dweight_add_block(row, OUT, column, aa);
  dweight_add_block(row, OUT, column + 4u, ab);
  dweight_add_block(row + 4u, OUT, column, ba);
  dweight_add_block(row + 4u, OUT, column + 4u, bb);
}

fn outer(column: vec4f, row: vec4f) -> mat4x4f {
  return mat4x4f(column * row.x, column * row.y, column * row.z, column * row.w);
}

// dbias (OUT,) += Σ_R dy; four outputs per invocation
@compute @workgroup_size(WORKGROUP)
fn bias_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let column = thread_of(group, lane) * 4u;
  if (column >= OUT) { return; }
  var sum = vec4f();
  for (var k = 0u; k < run.samples * ROWS; k++) { sum += dy_quad(k * dy_stride, column); }
  dbias_add(column, sum.x);
  dbias_add(column + 1u, sum.y);
  dbias_add(column + 2u, sum.z);
  dbias_add(column + 3u, sum.w);
}
