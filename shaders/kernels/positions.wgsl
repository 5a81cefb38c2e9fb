// Learned positions: x (samples, SIZE) + the first SIZE elements of weight, where SIZE = T · channels; four per
// invocation.

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let row = i / QUADS;
  let column = i % QUADS * 4u;
  if (row >= run.samples) { return; }
  y_put(row, column, x_quad(row * x_stride, column) + weight_quad(0u, column));
}

// dweight += Σ_samples dy; four elements per row of sums
@compute @workgroup_size(WORKGROUP)
fn parameter_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let column = row_of(group, lane) * 4u;
  if (column >= SIZE) { return; }
  var sum = vec4f();
  for (var row = sharer(lane); row < run.samples; row += SHARERS) { sum += dy_quad(row * dy_stride, column); }
  sum = sum_of_row(lane, sum);
  if (sharer(lane) == 0u) { dweight_add(0u, column, sum); }
}
