// Elementwise silu, four elements per invocation. y = x · s with s = 1 / (1 + e⁻ˣ); dy/dx = s · (1 + x · (1 − s)).
// The last invocation may cover elements past the samples; they are inside the buffer and never read.

// e⁸⁰ is finite in f32; below −80 the result is 0 to within 1e-32.
const LOWEST = 80.0;

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  y[i] = x[i] * share_of(x[i]);
}

@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  let share = share_of(x[i]);
  dx[i] = dy[i] * share * (1.0 + x[i] * (1.0 - share));
}

fn share_of(v: vec4f) -> vec4f {
  return 1.0 / (1.0 + exp(-max(v, vec4f(-LOWEST))));
}
