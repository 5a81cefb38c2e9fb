// Layer norm and RMS norm over the last dimension, R = samples · ROWS rows of COLUMNS elements.
// x̂ = (x − mean) · inverse and y = x̂ · weight + bias; RMS norm has neither mean nor bias.
// One row per invocation; sums over rows in two stages, in a fixed order.

// x (R, COLUMNS), weight, bias (COLUMNS,) → y (R, COLUMNS), mean, inverse (R,)
@compute @workgroup_size(WORKGROUP)
fn layernorm(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  let start = row * x_stride;
  let shift = x_quad(start, 0u).x; // differences from a value of the row do not cancel
  var sums = vec4f();
  var squares = vec4f();
  let c_end = turns(COLUMNS);
  for (var c = 0u; c < c_end; c += 4u) {
    let d = select(vec4f(), x_quad(start, c) - shift, inside(c));
    sums += d;
    squares += d * d;
  }
  let off = total(sums) / f32(COLUMNS);
  let middle = shift + off;
  let scale = inverseSqrt(max(total(squares) / f32(COLUMNS) - off * off, 0.0) + EPS);
  mean[row] = middle;
  inverse[row] = scale;
  for (var c = 0u; c < c_end; c += 4u) {
    let offset = vec4f(bias_at(c), bias_at(c + 1u), bias_at(c + 2u), bias_at(c + 3u));
    y_put(row, c, (x_quad(start, c) - middle) * scale * weight_quad(0u, c) + offset);
  }
}

// x (R, COLUMNS), weight (COLUMNS,) → y (R, COLUMNS), inverse (R,)
@compute @workgroup_size(WORKGROUP)
fn rmsnorm(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  let start = row * x_stride;
  var squares = vec4f();
  let c_end = turns(COLUMNS);
  for (var c = 0u; c < c_end; c += 4u) { squares += x_quad(start, c) * x_quad(start, c); }
  let scale = inverseSqrt(total(squares) / f32(COLUMNS) + EPS);
  inverse[row] = scale;
  for (var c = 0u; c < c_end; c += 4u) { y_put(row, c, x_quad(start, c) * scale * weight_quad(0u, c)); }
}

// With g = dy · weight: dx = inverse · (g − average of g − x̂ · average of g·x̂); the first average is the mean's
// doing.
@compute @workgroup_size(WORKGROUP)
fn input_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  var sums = vec4f();
  var products = vec4f();
  let c_end = turns(COLUMNS);
  for (var c = 0u; c < c_end; c += 4u) {
    let g = dy_quad(row * dy_stride, c) * weight_quad(0u, c);
    sums += g;
    products += g * normalized(row, c);
  }
  let average = f32(CENTERED) * total(sums) / f32(COLUMNS);
  let slope = total(products) / f32(COLUMNS);
  for (var c = 0u; c < c_end; c += 4u) {
    let g = dy_quad(row * dy_stride, c) * weight_quad(0u, c);
    dx_put(row, c, inverse[row] * (g - average - normalized(row, c) * slope));
  }
}

// partials (SPLITS, QUADS, 2): Σ dy · x̂ and Σ dy of four columns, over every SPLITS-th row
@compute @workgroup_size(WORKGROUP)
fn partial_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= SPLITS * QUADS) { return; }
  let c = i % QUADS * 4u;
  var weights = vec4f();
  var biases = vec4f();
  for (var row = i / QUADS; row < run.samples * ROWS; row += SPLITS) {
    let d = dy_quad(row * dy_stride, c);
    weights += d * normalized(row, c);
    biases += d;
  }
  partials[2u * i] = weights;
  partials[2u * i + 1u] = biases;
}

// dweight, dbias (COLUMNS,) += the sums of partials; four columns per invocation
@compute @workgroup_size(WORKGROUP)
fn sum_partials(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let quad = thread_of(group, lane);
  if (quad >= QUADS) { return; }
  var weights = vec4f();
  var biases = vec4f();
  let split_end = turns(SPLITS);
  for (var split = 0u; split < split_end; split++) {
    weights += partials[2u * (split * QUADS + quad)];
    biases += partials[2u * (split * QUADS + quad) + 1u];
  }
  let c = quad * 4u;
  dweight_add(0u, c, weights);
  dbias_add(c, biases.x);
  dbias_add(c + 1u, biases.y);
  dbias_add(c + 2u, biases.z);
  dbias_add(c + 3u, biases.w);
}

fn normalized(row: u32, c: u32) -> vec4f { return (x_quad(row * x_stride, c) - mean_at(row)) * inverse[row]; }
fn inside(c: u32) -> vec4<bool> { return vec4u(c, c + 1u, c + 2u, c + 3u) < vec4u(COLUMNS); }
fn total(v: vec4f) -> f32 { return dot(v, vec4f(1.0)); }
