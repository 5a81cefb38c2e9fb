// Activations on four elements, and their derivatives read off their output `y`: what their own kernels and the
// epilogues of products and gradients compute.

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
