// Embedding: ids (R,), weight (VOCAB, CHANNELS) of the ids from FIRST on, y (R, CHANNELS), with R = samples · TOKENS
// rows and QUADS groups of four channels. Ids outside belong to another piece of the table. Its gradient adds the rows
// of equal ids without float atomics. `chain` links the tokens with the same id. One invocation for each four channels
// walks a chain in the order of its tokens.

// y = weight[ids]
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let row = i / QUADS;
  let column = i % QUADS * 4u;
  if (row >= run.samples * TOKENS) { return; }
  let id = u32(ids[row]) - FIRST;
  if (id >= VOCAB) { return; }
  y_put(row, column, weight_quad(id * weight_stride, column));
}

// links[i] = 2 · (1 + next token with the same id, or 0 at the last one) + 1 where no token before i has the same id.
// Four ids at a time; the searches stop at the first equal one, so that frequent tokens cost little.
@compute @workgroup_size(WORKGROUP)
fn chain(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = row_of(group, lane);
  let count = run.samples * TOKENS;
  if (i >= count) { return; }
  let id = quads[i / 4u][i % 4u];
  let own = i / 4u;
  var next = 0u;
  for (var q = own + sharer(lane); q * 4u < count && next == 0u; q += SHARERS) {
    let at = vec4u(q * 4u) + vec4u(0u, 1u, 2u, 3u);
    let equal = (quads[q] == vec4u(id)) & (at > vec4u(i)) & (at < vec4u(count));
    if (any(equal)) { next = 1u + min_where(at, equal); }
  }
  var first = 1u;
  for (var q = sharer(lane); q <= own && first == 1u; q += SHARERS) {
    let at = vec4u(q * 4u) + vec4u(0u, 1u, 2u, 3u);
    if (any((quads[q] == vec4u(id)) & (at < vec4u(i)))) { first = 0u; }
  }
  // the nearest that any of them found, and whether any found one before
  let found = max_of_row(lane, vec4f(select(-f32(next), NONE, next == 0u), 1.0 - f32(first), 0.0, 0.0));
  let nearest = select(u32(-found.x), 0u, found.x == NONE);
  if (sharer(lane) == 0u) { links[i] = i32(2u * nearest + select(1u, 0u, found.y > 0.0)); }
}

// below the negative of any token
const NONE = -3e38f;

fn min_where(at: vec4u, chosen: vec4<bool>) -> u32 {
  let v = select(vec4u(0xffffffffu), at, chosen);
  return min(min(v.x, v.y), min(v.z, v.w));
}

// dweight[id] += Σ dy over the tokens with this id
@compute @workgroup_size(WORKGROUP)
fn parameter_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  var row = i / QUADS;
  let column = i % QUADS * 4u;
  if (row >= run.samples * TOKENS) { return; }
  var link = u32(links[row]);
  if (link % 2u == 0u) { return; }
  let id = u32(ids[row]) - FIRST;
  if (id >= VOCAB) { return; }
  var sum = dy_quad(row * dy_stride, column);
  while (link / 2u > 0u) {
    row = link / 2u - 1u;
    sum += dy_quad(row * dy_stride, column);
    link = u32(links[row]);
  }
  dweight_add(id, column, sum);
}
