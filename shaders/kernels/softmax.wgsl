// Softmax over the last dimension, R = samples · ROWS rows of COLUMNS elements.

// More negative than any finite difference that matters: its exponential is 0.
const NOTHING = -3.0e38;

// x (R, COLUMNS) → y (R, COLUMNS)
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  let start = row * x_stride;
  var tops = vec4f(NOTHING);
  let c_end = turns(COLUMNS);
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
    tops = max(tops, select(vec4f(NOTHING), x_quad(start, c), inside(c)));
  }
  let tops_of_row = max_of_row(lane, tops);
  let top = max(max(tops_of_row.x, tops_of_row.y), max(tops_of_row.z, tops_of_row.w));
  var sums = vec4f();
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
    sums += select(vec4f(), exp(x_quad(start, c) - top), inside(c));
  }
  let share = 1.0 / dot(sum_of_row(lane, sums), vec4f(1.0));
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) { y_put(row, c, exp(x_quad(start, c) - top) * share); }
}

// y, dy (R, COLUMNS) → dx = y · (dy − Σ y · dy)
@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  var own = 0.0;
  let c_end = turns(COLUMNS);
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
    own += dot(y_quad(row * y_stride, c), dy_quad(row * dy_stride, c));
  }
  let mean = sum_of_row(lane, vec4f(own, 0.0, 0.0, 0.0)).x;
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
    dx_put(row, c, y_quad(row * y_stride, c) * (dy_quad(row * dy_stride, c) - mean));
  }
}

fn inside(c: u32) -> vec4<bool> { return vec4u(c, c + 1u, c + 2u, c + 3u) < vec4u(COLUMNS); }
