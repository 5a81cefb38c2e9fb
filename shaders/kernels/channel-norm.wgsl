// Batch norm and group norm of images: B · CHANNELS planes of PLANE elements, x̂ = (x − mean) · inverse, y = x̂ ·
// weight + bias. A statistic covers one channel in all samples of the run (WHOLE_BATCH = 1), or GROUP_CHANNELS
// neighbouring channels of one sample. Sums are taken over PIECES pieces of each plane first and then over the pieces,
// in a fixed order.

// x → pieces (planes, PIECES, 2): the mean of a piece, and Σ of squared differences from it
@compute @workgroup_size(WORKGROUP)
fn measure(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = row_of(group, lane);
  if (i >= run.samples * CHANNELS * PIECES) { return; }
  let start = i / PIECES * x_stride;
  let first = i % PIECES * PIECE;
  let shift = x_quad(start, first).x; // differences from a value of the piece do not cancel
  var sums = vec4f();
  var squares = vec4f();
  for (var c = first + 4u * sharer(lane); c < end_of_piece(first); c += 4u * SHARERS) {
    let d = select(vec4f(), x_quad(start, c) - shift, inside(c));
    sums += d;
    squares += d * d;
  }
  let whole = sum_of_row(lane, vec4f(total(sums), total(squares), 0.0, 0.0));
  if (sharer(lane) > 0u) { return; }
  let off = whole.x / f32(end_of_piece(first) - first);
  pieces[2u * i] = shift + off;
  pieces[2u * i + 1u] = max(whole.y - off * whole.x, 0.0);
}

// pieces → mean, inverse (statistics,). Source of the sum of squares of parts: Chan et al., 1979.
@compute @workgroup_size(WORKGROUP)
fn combine(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let statistic = row_of(group, lane);
  if (statistic >= statistics()) { return; }
  let elements = f32(planes() * PLANE);
  var middle = 0.0;
  for (var i = sharer(lane); i < planes() * PIECES; i += SHARERS) {
    middle += elements_of(i % PIECES) * pieces[2u * piece_of(statistic, i)];
  }
  middle = sum_of_row(lane, vec4f(middle, 0.0, 0.0, 0.0)).x / elements;
  var squares = 0.0;
  for (var i = sharer(lane); i < planes() * PIECES; i += SHARERS) {
    let piece = 2u * piece_of(statistic, i);
    let off = pieces[piece] - middle;
    squares += pieces[piece + 1u] + elements_of(i % PIECES) * off * off;
  }
  squares = sum_of_row(lane, vec4f(squares, 0.0, 0.0, 0.0)).x;
  if (sharer(lane) > 0u) { return; }
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
  let i = row_of(group, lane);
  if (i >= run.samples * CHANNELS * PIECES) { return; }
  let plane = i / PIECES;
  let first = i % PIECES * PIECE;
  var sums = vec4f();
  var products = vec4f();
  for (var c = first + 4u * sharer(lane); c < end_of_piece(first); c += 4u * SHARERS) {
    let d = select(vec4f(), dy_quad(plane * dy_stride, c), inside(c));
    sums += d;
    products += d * normalized(plane, c);
  }
  let whole = sum_of_row(lane, vec4f(total(sums), total(products), 0.0, 0.0));
  if (sharer(lane) > 0u) { return; }
  pieces[2u * i] = whole.x;
  pieces[2u * i + 1u] = whole.y;
}

// pieces → dweight, dbias (CHANNELS,) += Σ dy · x̂ and Σ dy
@compute @workgroup_size(WORKGROUP)
fn parameter_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let channel = row_of(group, lane);
  if (channel >= CHANNELS) { return; }
  var own = vec2f();
  for (var i = sharer(lane); i < run.samples * PIECES; i += SHARERS) {
    own += sums_of((i / PIECES * CHANNELS + channel) * PIECES + i % PIECES);
  }
  let sum = sum_of_row(lane, vec4f(own, 0.0, 0.0));
  if (sharer(lane) > 0u) { return; }
  dbias[channel] += sum.x;
  dweight[channel] += sum.y;
}

// pieces, weight → averages (statistics, 2) of weight · dy and weight · dy · x̂
@compute @workgroup_size(WORKGROUP)
fn combine_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let statistic = row_of(group, lane);
  if (statistic >= statistics()) { return; }
  var own = vec2f();
  for (var i = sharer(lane); i < planes() * PIECES; i += SHARERS) {
    let piece = piece_of(statistic, i);
    own += weight[piece / PIECES % CHANNELS] * sums_of(piece);
  }
  let sum = sum_of_row(lane, vec4f(own, 0.0, 0.0)) / f32(planes() * PLANE);
  if (sharer(lane) > 0u) { return; }
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
fn sums_of(piece: u32) -> vec2f { return vec2f(pieces[2u * piece], pieces[2u * piece + 1u]); }
// The i-th piece of a statistic.
fn piece_of(statistic: u32, i: u32) -> u32 { return plane_of(statistic, i / PIECES) * PIECES + i % PIECES; }

fn normalized(plane: u32, c: u32) -> vec4f {
  let statistic = statistic_of(plane);
  return (x_quad(plane * x_stride, c) - mean[statistic]) * inverse[statistic];
}
fn inside(c: u32) -> vec4<bool> { return vec4u(c, c + 1u, c + 2u, c + 3u) < vec4u(PLANE); }
fn total(v: vec4f) -> f32 { return dot(v, vec4f(1.0)); }
