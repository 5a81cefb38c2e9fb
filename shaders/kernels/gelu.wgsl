// Elementwise gelu, four elements per invocation. y = x · Φ(x), the normal distribution function; dy/dx = Φ(x) + x ·
// φ(x). The last invocation may cover elements past the samples; they are inside the buffer and never read.

const SQRT_HALF = 0.70710678;
const NORMAL_PEAK = 0.39894228; // φ(0) = 1/√(2π)
// Φ(−14) and φ(14) are below what f32 holds; further out x² would overflow.
const FARTHEST = 14.0;

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  y[i] = x[i] * distribution(x[i]);
}

@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  let near = min(abs(x[i]), vec4f(FARTHEST));
  dx[i] = dy[i] * (distribution(x[i]) + x[i] * NORMAL_PEAK * exp(-0.5 * near * near));
}

// Φ(v) = erfc(−v/√2) / 2, with erfc of a positive number to a relative error of 1.2e-7 before rounding.
// Source: Press et al., Numerical Recipes, 2nd edition (1992), section 6.2, erfcc.
fn distribution(v: vec4f) -> vec4f {
  let z = min(abs(v), vec4f(FARTHEST)) * SQRT_HALF;
  let t = 1.0 / (1.0 + 0.5 * z);
  var p = vec4f(0.17087277);
  p = p * t - 0.82215223;
  p = p * t + 1.48851587;
  p = p * t - 1.13520398;
  p = p * t + 0.27886807;
  p = p * t - 0.18628806;
  p = p * t + 0.09678418;
  p = p * t + 0.37409196;
  p = p * t + 1.00002368;
  p = p * t - 1.26551223;
  let tail = 0.5 * t * exp(p - z * z);
  return select(tail, 1.0 - tail, v > vec4f());
}
