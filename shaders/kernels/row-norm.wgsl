// Layer norm and RMS norm over the last dimension, R = samples · ROWS rows of COLUMNS elements.
// x̂ = (x − mean) · inverse and y = x̂ · weight + bias; RMS norm has neither mean nor bias.
// Sums over a row: own-rows.wgsl, shared-rows.wgsl. Sums over rows are made in two stages, in a fixed order.

// x (R, COLUMNS), weight, bias (COLUMNS,) → y (R, COLUMNS), mean, inverse (R,)
@compute @workgroup_size(WORKGROUP)
fn layernorm(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  let start = row * x_stride;
  let shift = x_quad(start, 0u).x; // differences from a value of the row do not cancel
  var sums = vec4f();
  var squares = vec4f();
  let c_end = turns(COLUMNS);
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
    let d = select(vec4f(), x_quad(start, c) - shift, inside(c));
    sums += d;
    squares += d * d;
  }
  let averages = sum_of_row(lane, vec4f(total(sums), total(squares), 0.0, 0.0)) / f32(COLUMNS);
  let middle = shift + averages.x;
  let scale = inverseSqrt(max(averages.y - averages.x * averages.x, 0.0) + EPS);
  if (sharer(lane) == 0u) {
    mean[row] = middle;
    inverse[row] = scale;
  }
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
    let offset = vec4f(bias_at(c), bias_at(c + 1u), bias_at(c + 2u), bias_at(c + 3u));
    y_put(row, c, (x_quad(start, c) - middle) * scale * weight_quad(0u, c) + offset);
  }
}

// x (R, COLUMNS), weight (COLUMNS,) → y (R, COLUMNS), inverse (R,)
@compute @workgroup_size(WORKGROUP)
fn rmsnorm(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  let start = row * x_stride;
  var squares = vec4f();
  let c_end = turns(COLUMNS);
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
    squares += x_quad(start, c) * x_quad(start, c);
  }
  let scale = inverseSqrt(sum_of_row(lane, vec4f(total(squares), 0.0, 0.0, 0.0)).x / f32(COLUMNS) + EPS);
  if (sharer(lane) == 0u) { inverse[row] = scale; }
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
    y_put(row, c, x_quad(start, c) * scale * weight_quad(0u, c));
  }
}

// With g = dy · weight: dx = inverse · (g − average of g − x̂ · average of g·x̂); the first average is the mean's
// doing.
@compute @workgroup_size(WORKGROUP)
fn input_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  var sums = vec4f();
  var products = vec4f();
  let c_end = turns(COLUMNS);
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
    let g = dy_quad(row * dy_stride, c) * weight_quad(0u, c);
    sums += g;
    products += g * normalized(row, c);
  }
  let whole = sum_of_row(lane, vec4f(total(sums), total(products), 0.0, 0.0));
  let average = f32(CENTERED) * whole.x / f32(COLUMNS);
  let slope = whole.y / f32(COLUMNS);
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) {
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

// dweight, dbias (COLUMNS,) += the sums of partials; four columns per row of sums
@compute @workgroup_size(WORKGROUP)
fn sum_partials(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let quad = row_of(group, lane);
  if (quad >= QUADS) { return; }
  var weights = vec4f();
  var biases = vec4f();
  let split_end = turns(SPLITS);
  for (var split = sharer(lane); split < split_end; split += SHARERS) {
    weights += partials[2u * (split * QUADS + quad)];
    biases += partials[2u * (split * QUADS + quad) + 1u];
  }
  weights = sum_of_row(lane, weights);
  biases = sum_of_row(lane, biases);
  if (sharer(lane) > 0u) { return; }
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
