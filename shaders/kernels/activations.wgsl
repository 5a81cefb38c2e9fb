// Activations on four elements, and their derivatives read off their output `y`, or off their input `x` where that is
// needed: what their own kernels and the epilogues of products and gradients compute.

// NaN passes through where the adapter keeps it, so that a diverged model shows in its loss.
fn relu_of(v: vec4f) -> vec4f { return select(v, vec4f(), v < vec4f()); }

// tanh rounds to ±1 from here on; some drivers overflow inside tanh for large arguments.
const TANH_SATURATED = 16.0;

fn tanh_of(v: vec4f) -> vec4f { return tanh(clamp(v, vec4f(-TANH_SATURATED), vec4f(TANH_SATURATED))); }

// e⁸⁰ is finite in f32; below −80 the result is 0 to within 1e-34.
const SIGMOID_LOWEST = 80.0;

fn sigmoid_of(v: vec4f) -> vec4f { return 1.0 / (1.0 + exp(-max(v, vec4f(-SIGMOID_LOWEST)))); }

fn leaky_relu_of(v: vec4f) -> vec4f { return select(SLOPE * v, v, v > vec4f()); }

fn relu_back(d: vec4f, y: vec4f) -> vec4f { return select(d, vec4f(), y <= vec4f()); }

fn tanh_back(d: vec4f, y: vec4f) -> vec4f { return d * (1.0 - y * y); }

fn sigmoid_back(d: vec4f, y: vec4f) -> vec4f { return d * y * (1.0 - y); }

fn leaky_relu_back(d: vec4f, y: vec4f) -> vec4f { return select(SLOPE * d, d, y > vec4f()); }

// y = x · Φ(x), the normal distribution function; dy/dx = Φ(x) + x · φ(x).
fn gelu_of(x: vec4f) -> vec4f { return x * distribution(x); }

fn gelu_back(d: vec4f, x: vec4f) -> vec4f {
  let near = min(abs(x), vec4f(NORMAL_FARTHEST));
  return d * (distribution(x) + x * NORMAL_PEAK * exp(-0.5 * near * near));
}

const SQRT_HALF = 0.70710678;
const NORMAL_PEAK = 0.39894228; // φ(0) = 1/√(2π)
// Φ(−14) and φ(14) are below what f32 holds; further out x² would overflow.
const NORMAL_FARTHEST = 14.0;

// Φ(v) = erfc(−v/√2) / 2, with erfc of a positive number to a relative error of 1.2e-7 before rounding.
// Source: Press et al., Numerical Recipes, 2nd edition (1992), section 6.2, erfcc.
fn distribution(v: vec4f) -> vec4f {
  let z = min(abs(v), vec4f(NORMAL_FARTHEST)) * SQRT_HALF;
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

// gelu as GPT-2 approximates it: y = x · (1 + tanh u) / 2 with u = √(2/π) · (x + 0.044715 x³). (1 + tanh u) / 2 =
// 1 / (1 + e⁻²ᵘ) keeps small results exact.
fn gelu_tanh_of(x: vec4f) -> vec4f { return x * gelu_share(clamp(x, vec4f(-GELU_FARTHEST), vec4f(GELU_FARTHEST))); }

fn gelu_tanh_back(d: vec4f, x: vec4f) -> vec4f {
  let near = clamp(x, vec4f(-GELU_FARTHEST), vec4f(GELU_FARTHEST));
  let share = gelu_share(near);
  let slope = TWICE_ROOT * (1.0 + 3.0 * CUBIC * near * near);
  return d * (share + x * share * (1.0 - share) * slope);
}

const TWICE_ROOT = 1.5957691; // 2 √(2/π)
const CUBIC = 0.044715;
// Here 2u is 74: e⁷⁴ is finite in f32, and further out the share is 0 or 1 to within 1e-32.
const GELU_FARTHEST = 9.4;

fn gelu_share(v: vec4f) -> vec4f { return 1.0 / (1.0 + exp(-TWICE_ROOT * (v + CUBIC * v * v * v))); }

// y = x · s with s = 1 / (1 + e⁻ˣ); dy/dx = s · (1 + x · (1 − s)).
fn silu_of(x: vec4f) -> vec4f { return x * sigmoid_of(x); }

fn silu_back(d: vec4f, x: vec4f) -> vec4f {
  let share = sigmoid_of(x);
  return d * share * (1.0 + x * (1.0 - share));
}
