// Elementwise gelu as GPT-2 approximates it, four elements per invocation.
// y = x · (1 + tanh u) / 2 with u = √(2/π) · (x + 0.044715 x³); (1 + tanh u) / 2 = 1 / (1 + e⁻²ᵘ) keeps small results
// exact. The last invocation may cover elements past the samples; they are inside the buffer and never read.

const TWICE_ROOT = 1.5957691; // 2 √(2/π)
const CUBIC = 0.044715;
// Here 2u is 74: e⁷⁴ is finite in f32, and further out the share is 0 or 1 to within 1e-32.
const FARTHEST = 9.4;

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  y[i] = x[i] * share_of(clamp(x[i], vec4f(-FARTHEST), vec4f(FARTHEST)));
}

@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  let near = clamp(x[i], vec4f(-FARTHEST), vec4f(FARTHEST));
  let share = share_of(near);
  let slope = TWICE_ROOT * (1.0 + 3.0 * CUBIC * near * near);
  dx[i] = dy[i] * (share + x[i] * share * (1.0 - share) * slope);
}

fn share_of(v: vec4f) -> vec4f {
  return 1.0 / (1.0 + exp(-TWICE_ROOT * (v + CUBIC * v * v * v)));
}
