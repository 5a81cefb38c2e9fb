// A gated branch, four elements per invocation: y = a · s(a) · b with s(a) = 1 / (1 + e⁻ᵃ), silu of the gate `a` times
// `b`. ∂y/∂a = b · s · (1 + a · (1 − s)); ∂y/∂b = a · s.
// The last invocation may cover elements past the samples; they are inside the buffer and never read.

// e⁸⁰ is finite in f32; below −80 the result is 0 to within 1e-32.
const LOWEST = 80.0;

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  y[i] = a[i] * share_of(a[i]) * b[i];
}

@compute @workgroup_size(WORKGROUP)
fn gate_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  let share = share_of(a[i]);
  dx[i] = dy[i] * b[i] * share * (1.0 + a[i] * (1.0 - share));
}

@compute @workgroup_size(WORKGROUP)
fn value_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  dx[i] = dy[i] * a[i] * share_of(a[i]);
}

fn share_of(v: vec4f) -> vec4f {
  return 1.0 / (1.0 + exp(-max(v, vec4f(-LOWEST))));
}
