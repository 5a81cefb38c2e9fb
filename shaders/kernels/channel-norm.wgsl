// Batch norm and group norm of images: B · CHANNELS planes of PLANE elements, x̂ = (x − mean) · inverse, y = x̂ ·
// weight + bias. A statistic covers one channel in all samples of the run (WHOLE_BATCH = 1), or GROUP_CHANNELS
// neighbouring channels of one sample. Sums are taken over PIECES pieces of each plane first and then over the pieces,
// in a fixed order.

// x → pieces (planes, PIECES, 2): the mean of a piece, and Σ of squared differences from it
@compute @workgroup_size(WORKGROUP)
fn measure(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * PIECES) { return; }
  let start = i / PIECES * x_stride;
  let first = i % PIECES * PIECE;
  let shift = x_quad(start, first).x; // differences from a value of the piece do not cancel
  var sums = vec4f();
  var squares = vec4f();
  for (var c = first; c < end_of_piece(first); c += 4u) {
    let d = select(vec4f(), x_quad(start, c) - shift, inside(c));
    sums += d;
    squares += d * d;
  }
  let off = total(sums) / f32(end_of_piece(first) - first);
  pieces[2u * i] = shift + off;
  pieces[2u * i + 1u] = max(total(squares) - off * total(sums), 0.0);
}

// pieces → mean, inverse (statistics,). Source of the sum of squares of parts: Chan et al., 1979.
@compute @workgroup_size(WORKGROUP)
fn combine(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let statistic = thread_of(group, lane);
  if (statistic >= statistics()) { return; }
  let elements = f32(planes() * PLANE);
  var middle = 0.0;
  for (var k = 0u; k < planes(); k++) {
    for (var p = 0u; p < PIECES; p++) { middle += elements_of(p) * pieces[2u * (plane_of(statistic, k) * PIECES + p)]; }
  }
  middle /= elements;
  var squares = 0.0;
  for (var k = 0u; k < planes(); k++) {
    for (var p = 0u; p < PIECES; p++) {
      let piece = 2u * (plane_of(statistic, k) * PIECES + p);
      let off = pieces[piece] - middle;
      squares += pieces[piece + 1u] + elements_of(p) * off * off;
    }
  }
  mean[statistic] = middle;
  inverse[statistic] = inverseSqrt(squares / elements + EPS);
}

// x, weight, bias, mean, inverse → y; four elements of a plane per invocation
@compute @workgroup_size(WORKGROUP)
fn normalize(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * QUADS) { return; }
  let plane = i / QUADS;
  let channel = plane % CHANNELS;
  y_put(plane, i % QUADS * 4u, normalized(plane, i % QUADS * 4u) * weight[channel] + bias[channel]);
}

// As normalize, with the running mean and variance of each channel.
@compute @workgroup_size(WORKGROUP)
fn evaluate(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * QUADS) { return; }
  let plane = i / QUADS;
  let channel = plane % CHANNELS;
  let scale = inverseSqrt(variance[channel] + EPS) * weight[channel];
  y_put(plane, i % QUADS * 4u, (x_quad(plane * x_stride, i % QUADS * 4u) - mean[channel]) * scale + bias[channel]);
}

// x, dy, mean, inverse → pieces (planes, PIECES, 2): Σ dy and Σ dy · x̂ of a piece
@compute @workgroup_size(WORKGROUP)
fn measure_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * PIECES) { return; }
  let plane = i / PIECES;
  let first = i % PIECES * PIECE;
  var sums = vec4f();
  var products = vec4f();
  for (var c = first; c < end_of_piece(first); c += 4u) {
    let d = select(vec4f(), dy_quad(plane * dy_stride, c), inside(c));
    sums += d;
    products += d * normalized(plane, c);
  }
  pieces[2u * i] = total(sums);
  pieces[2u * i + 1u] = total(products);
}

// pieces → dweight, dbias (CHANNELS,) += Σ dy · x̂ and Σ dy
@compute @workgroup_size(WORKGROUP)
fn parameter_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let channel = thread_of(group, lane);
  if (channel >= CHANNELS) { return; }
  var sum = vec2f();
  for (var sample = 0u; sample < run.samples; sample++) { sum += sums_of(sample * CHANNELS + channel); }
  dbias[channel] += sum.x;
  dweight[channel] += sum.y;
}

// pieces, weight → averages (statistics, 2) of weight · dy and weight · dy · x̂
@compute @workgroup_size(WORKGROUP)
fn combine_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let statistic = thread_of(group, lane);
  if (statistic >= statistics()) { return; }
  var sum = vec2f();
  for (var k = 0u; k < planes(); k++) {
    let plane = plane_of(statistic, k);
    sum += weight[plane % CHANNELS] * sums_of(plane);
  }
  sum /= f32(planes() * PLANE);
  averages[2u * statistic] = sum.x;
  averages[2u * statistic + 1u] = sum.y;
}

// dx = inverse · (weight · dy − average of weight · dy − x̂ · average of weight · dy · x̂)
@compute @workgroup_size(WORKGROUP)
fn input_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * QUADS) { return; }
  let plane = i / QUADS;
  let c = i % QUADS * 4u;
  let statistic = statistic_of(plane);
  let g = weight[plane % CHANNELS] * dy_quad(plane * dy_stride, c);
  dx_put(
    plane,
    c,
    inverse[statistic] * (g - averages[2u * statistic] - normalized(plane, c) * averages[2u * statistic + 1u]),
  );
}

// What running statistics move towards: the mean and the unbiased variance (that of one element is 0). Once for each
// target, because the sum of a step is divided by its targets. dmean, dvariance (CHANNELS,) += samples · TARGETS ·
// measured
@compute @workgroup_size(WORKGROUP)
fn report(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let channel = thread_of(group, lane);
  if (channel >= CHANNELS) { return; }
  let elements = f32(run.samples * PLANE);
  let targets = f32(run.samples * TARGETS);
  let biased = max(1.0 / (inverse[channel] * inverse[channel]) - EPS, 0.0);
  dmean[channel] += targets * mean[channel];
  dvariance[channel] += targets * biased * elements / max(elements - 1.0, 1.0);
}

fn statistics() -> u32 { return select(run.samples * (CHANNELS / GROUP_CHANNELS), CHANNELS, WHOLE_BATCH == 1u); }
fn statistic_of(plane: u32) -> u32 { return select(plane / GROUP_CHANNELS, plane % CHANNELS, WHOLE_BATCH == 1u); }
// The planes of a statistic: how many, and which.
fn planes() -> u32 { return select(GROUP_CHANNELS, run.samples, WHOLE_BATCH == 1u); }
fn plane_of(statistic: u32, k: u32) -> u32 {
  return select(statistic * GROUP_CHANNELS + k, k * CHANNELS + statistic, WHOLE_BATCH == 1u);
}

fn end_of_piece(first: u32) -> u32 { return min(first + PIECE, PLANE); }
fn elements_of(piece: u32) -> f32 { return f32(end_of_piece(piece * PIECE) - piece * PIECE); }
fn sums_of(plane: u32) -> vec2f {
  var sum = vec2f();
  for (var p = plane * PIECES; p < (plane + 1u) * PIECES; p++) { sum += vec2f(pieces[2u * p], pieces[2u * p + 1u]); }
  return sum;
}

fn normalized(plane: u32, c: u32) -> vec4f {
  let statistic = statistic_of(plane);
  return (x_quad(plane * x_stride, c) - mean[statistic]) * inverse[statistic];
}
fn inside(c: u32) -> vec4<bool> { return vec4u(c, c + 1u, c + 2u, c + 3u) < vec4u(PLANE); }
fn total(v: vec4f) -> f32 { return dot(v, vec4f(1.0)); }
