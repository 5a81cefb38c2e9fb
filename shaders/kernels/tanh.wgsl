// Elementwise tanh, four elements per invocation. dy/dx = 1 − y².
// The last invocation may cover elements past the samples; they are inside the buffer and never read.

// tanh rounds to ±1 from here on; some drivers overflow inside tanh for large arguments.
const SATURATED = 16.0;

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  let value = x[i];
  y[i] = tanh(clamp(value, vec4f(-SATURATED), vec4f(SATURATED)));
}

@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  dx[i] = dy[i] * (1.0 - y[i] * y[i]);
}
