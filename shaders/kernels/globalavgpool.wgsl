// The mean of each channel. x (B · CHANNELS, PLANE) → y (B · CHANNELS,)

// A row of sums is one plane.
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let plane = row_of(group, lane);
  if (plane >= run.samples * CHANNELS) { return; }
  var sums = vec4f();
  for (var c = 4u * sharer(lane); c < PLANE; c += 4u * SHARERS) { sums += x_quad(plane * x_stride, c); }
  let whole = sum_of_row(lane, sums);
  if (sharer(lane) == 0u) { y[plane] = dot(whole, vec4f(1.0)) / f32(PLANE); }
}

// Four elements of a plane per invocation.
@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * QUADS) { return; }
  dx_put(i / QUADS, i % QUADS * 4u, vec4f(dy[i / QUADS] / f32(PLANE)));
}
