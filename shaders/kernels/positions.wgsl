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

// dweight += Σ_samples dy
@compute @workgroup_size(WORKGROUP)
fn parameter_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let column = thread_of(group, lane) * 4u;
  if (column >= SIZE) { return; }
  var sum = vec4f();
  for (var row = 0u; row < run.samples; row++) { sum += dy_quad(row * dy_stride, column); }
  dweight_add(0u, column, sum);
}
