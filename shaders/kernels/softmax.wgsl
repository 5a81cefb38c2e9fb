// Softmax over the last dimension, one row of COLUMNS elements per invocation, R = samples · ROWS rows.

// More negative than any finite difference that matters: its exponential is 0.
const NOTHING = -3.0e38;

// x (R, COLUMNS) → y (R, COLUMNS)
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  let start = row * x_stride;
  var tops = vec4f(NOTHING);
  let c_end = turns(COLUMNS);
  for (var c = 0u; c < c_end; c += 4u) { tops = max(tops, select(vec4f(NOTHING), x_quad(start, c), inside(c))); }
  let top = max(max(tops.x, tops.y), max(tops.z, tops.w));
  var sums = vec4f();
  for (var c = 0u; c < c_end; c += 4u) { sums += select(vec4f(), exp(x_quad(start, c) - top), inside(c)); }
  let share = 1.0 / dot(sums, vec4f(1.0));
  for (var c = 0u; c < c_end; c += 4u) { y_put(row, c, exp(x_quad(start, c) - top) * share); }
}

// y, dy (R, COLUMNS) → dx = y · (dy − Σ y · dy)
@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  var mean = 0.0;
  let c_end = turns(COLUMNS);
  for (var c = 0u; c < c_end; c += 4u) { mean += dot(y_quad(row * y_stride, c), dy_quad(row * dy_stride, c)); }
  for (var c = 0u; c < c_end; c += 4u) {
    dx_put(row, c, y_quad(row * y_stride, c) * (dy_quad(row * dy_stride, c) - mean));
  }
}

fn inside(c: u32) -> vec4<bool> { return vec4u(c, c + 1u, c + 2u, c + 3u) < vec4u(COLUMNS); }
