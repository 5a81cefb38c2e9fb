// Attention over long sequences without keeping T × T probabilities. Each invocation owns one query (or one key) and
// meets the others four at a time, with the running maximum of an online softmax. Source: Dao, "FlashAttention-2"
// (2023). qkv (samples, T, 3 · HEADS, D), y (samples, T, HEADS, D), log_sums (samples, HEADS, T) = ln Σ exp(scores).
// QUADS groups of four numbers in a row of D. Neighbouring invocations share a head, so that they load the same rows.

const PARTS = 3u * HEADS;
const LOWEST = -3.4e38f;

struct Place { sample: u32, head: u32, t: u32, inside: bool }

fn place_of(i: u32) -> Place {
  let head = i / T;
  return Place(head / HEADS, head % HEADS, i % T, head < run.samples * HEADS);
}

fn part_start(at: Place, part: u32, t: u32) -> u32 {
  return ((at.sample * T + t) * PARTS + part * HEADS + at.head) * qkv_stride;
}
fn part_row(at: Place, part: u32, t: u32) -> u32 { return (at.sample * T + t) * PARTS + part * HEADS + at.head; }
fn mixed_row(at: Place, t: u32) -> u32 { return (at.sample * T + t) * HEADS + at.head; }
fn pair_at(at: Place, t: u32) -> u32 { return (at.sample * HEADS + at.head) * T + t; }
fn four_from(t: u32) -> vec4u { return vec4u(t) + vec4u(0u, 1u, 2u, 3u); }
// Starts of the rows of four tokens, none past the last.
fn part_starts(at: Place, part: u32, t: u32) -> vec4u {
  return min(four_from(t), vec4u(T - 1u)) * (PARTS * qkv_stride) + part_start(at, part, 0u);
}

// y = softmax(q · kᵀ · SCALE) · v
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane));
  if (!at.inside) { return; }
  var q: array<vec4f, QUADS>;
  var mixed: array<vec4f, QUADS>;
  let own = part_start(at, 0u, at.t);
  for (var d = 0u; d < QUADS; d++) { q[d] = qkv_quad(own, d * 4u) * SCALE; }
  let last = select(T - 1u, at.t, CAUSAL == 1u);
  var top = LOWEST;
  var total = 0.0;
  for (var k = 0u; k <= last; k += 4u) {
    let keys = part_starts(at, 1u, k);
    var s = vec4f();
    for (var d = 0u; d < QUADS; d++) { s += q[d] * qkv_block(keys, d * 4u); }
    s = select(vec4f(LOWEST), s, four_from(k) <= vec4u(last));
    let higher = max(top, max(max(s.x, s.y), max(s.z, s.w)));
    let shrink = exp(top - higher);
    let p = exp(s - higher);
    top = higher;
    total = total * shrink + p.x + p.y + p.z + p.w;
    let values = part_starts(at, 2u, k);
    for (var d = 0u; d < QUADS; d++) { mixed[d] = mixed[d] * shrink + qkv_block(values, d * 4u) * p; }
  }
  let row = mixed_row(at, at.t);
  for (var d = 0u; d < QUADS; d++) { y_put(row, d * 4u, mixed[d] / total); }
  log_sums[pair_at(at, at.t)] = top + log(total);
}

// dots = Σ dy · y of each query, which is Σ p · ∂/∂p
@compute @workgroup_size(WORKGROUP)
fn dot_outputs(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane));
  if (!at.inside) { return; }
  let row = mixed_row(at, at.t);
  var sum = 0.0;
  for (var d = 0u; d < QUADS; d++) { sum += dot(y_quad(row * y_stride, d * 4u), dy_quad(row * dy_stride, d * 4u)); }
  dots[pair_at(at, at.t)] = sum;
}

// dq of one query, over the keys
@compute @workgroup_size(WORKGROUP)
fn query_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane));
  if (!at.inside) { return; }
  var q: array<vec4f, QUADS>;
  var upstream: array<vec4f, QUADS>;
  var gradient: array<vec4f, QUADS>;
  let own = part_start(at, 0u, at.t);
  let row = mixed_row(at, at.t) * dy_stride;
  for (var d = 0u; d < QUADS; d++) { q[d] = qkv_quad(own, d * 4u) * SCALE; upstream[d] = dy_quad(row, d * 4u); }
  let last = select(T - 1u, at.t, CAUSAL == 1u);
  let log_sum = log_sums[pair_at(at, at.t)];
  let mean = dots[pair_at(at, at.t)];
  for (var k = 0u; k <= last; k += 4u) {
    let keys = part_starts(at, 1u, k);
    let values = part_starts(at, 2u, k);
    var s = vec4f();
    var dp = vec4f();
    for (var d = 0u; d < QUADS; d++) {
      s += q[d] * qkv_block(keys, d * 4u);
      dp += upstream[d] * qkv_block(values, d * 4u);
    }
    let p = select(vec4f(), exp(s - log_sum), four_from(k) <= vec4u(last));
    let ds = p * (dp - mean) * SCALE;
    for (var d = 0u; d < QUADS; d++) { gradient[d] += qkv_block(keys, d * 4u) * ds; }
  }
  for (var d = 0u; d < QUADS; d++) { dqkv_put(part_row(at, 0u, at.t), d * 4u, gradient[d]); }
}

// dk and dv of one key, over the queries that see it
@compute @workgroup_size(WORKGROUP)
fn key_value_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane));
  if (!at.inside) { return; }
  var key: array<vec4f, QUADS>;
  var value: array<vec4f, QUADS>;
  var key_sum: array<vec4f, QUADS>;
  var value_sum: array<vec4f, QUADS>;
  let own_key = part_start(at, 1u, at.t);
  let own_value = part_start(at, 2u, at.t);
  for (var d = 0u; d < QUADS; d++) {
    key[d] = qkv_quad(own_key, d * 4u) * SCALE;
    value[d] = qkv_quad(own_value, d * 4u);
  }
  let pairs = pair_at(at, 0u);
  for (var t = select(0u, at.t / 4u * 4u, CAUSAL == 1u); t < T; t += 4u) {
    let queries = part_starts(at, 0u, t);
    let tokens = min(four_from(t), vec4u(T - 1u));
    let rows = (tokens * HEADS + mixed_row(at, 0u)) * dy_stride;
    var s = vec4f();
    var dp = vec4f();
    for (var d = 0u; d < QUADS; d++) {
      s += key[d] * qkv_block(queries, d * 4u);
      dp += value[d] * dy_block(rows, d * 4u);
    }
    let at_rows = tokens + pairs;
    let log_sum = vec4f(log_sums[at_rows.x], log_sums[at_rows.y], log_sums[at_rows.z], log_sums[at_rows.w]);
    let mean = vec4f(dots[at_rows.x], dots[at_rows.y], dots[at_rows.z], dots[at_rows.w]);
    let seen = (four_from(t) < vec4u(T)) & ((vec4u(CAUSAL) == vec4u(0u)) | (four_from(t) >= vec4u(at.t)));
    let p = select(vec4f(), exp(s - log_sum), seen);
    let ds = p * (dp - mean) * SCALE;
    for (var d = 0u; d < QUADS; d++) {
      value_sum[d] += dy_block(rows, d * 4u) * p;
      key_sum[d] += qkv_block(queries, d * 4u) * ds;
    }
  }
  for (var d = 0u; d < QUADS; d++) {
    dqkv_put(part_row(at, 1u, at.t), d * 4u, key_sum[d]);
    dqkv_put(part_row(at, 2u, at.t), d * 4u, value_sum[d]);
  }
}
