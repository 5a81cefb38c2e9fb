// Attention over long sequences on GPUs: as flash-attention.wgsl, by tiles. A workgroup owns TILE_M rows of one head
// (queries, or keys where these get gradients) and meets the rows of the other side TILE_N at a time. Each product is
// made in slabs of SLAB steps through workgroup memory; an invocation keeps 4 × 4 results of it, `sum[i]` being row i.
// TILE_N is at least D, so that products over numbers of a row and products over tokens have tiles of one size.
// Sources: Dao, "FlashAttention-2" (2023); the slabs are those of tile-product.wgsl.
// qkv (samples, T, 3 · HEADS, D), y (samples, T, HEADS, D), log_sums, dots (samples, HEADS, T)

const TILE_M = 4u * ROW_LANES;
const TILE_N = 4u * COLUMN_LANES;
const PARTS = 3u * HEADS;
const QUERIES = 0u;
const KEYS = 1u;
const VALUES = 2u;
// blocks of 4 × 4 numbers in a slab
const BLOCKS_M = TILE_M * SLAB / 16u;
const BLOCKS_N = TILE_N * SLAB / 16u;
// Its exponential is 0, and its differences are finite.
const LOWEST = -1e30f;

// One quad of padding keeps rows apart in the memory's banks. Nested, so that the step folds into the address.
var<workgroup> tile_m: array<array<vec4f, ROW_LANES + 1u>, SLAB>;
var<workgroup> tile_n: array<array<vec4f, COLUMN_LANES + 1u>, SLAB>;
// what each invocation knows of its four rows
var<workgroup> of_rows: array<array<vec4f, ROW_LANES>, COLUMN_LANES>;

// `first`: the first row of the workgroup's tile. Uniform in it, as barriers ask for.
struct Place { sample: u32, head: u32, first: u32 }
// Which four rows and which four columns of its tile an invocation has.
struct Own { r: u32, c: u32 }

fn own_of(lane: u32) -> Own { return Own(lane / COLUMN_LANES, lane % COLUMN_LANES); }

// `longest_last`: the last rows of causal attention have most to do, so that they begin first.
fn place_of(group: vec3u, longest_last: bool) -> Place {
  let tile = group_of(group);
  let head = tile / ROW_TILES;
  let row_tile = select(tile % ROW_TILES, ROW_TILES - 1u - tile % ROW_TILES, longest_last);
  return Place(head / HEADS, head % HEADS, row_tile * TILE_M);
}

fn part_row(at: Place, part: u32, t: u32) -> u32 { return (at.sample * T + t) * PARTS + part * HEADS + at.head; }
fn mixed_row(at: Place, t: u32) -> u32 { return (at.sample * T + t) * HEADS + at.head; }
fn pair_at(at: Place, t: u32) -> u32 { return (at.sample * HEADS + at.head) * T + t; }
fn four_from(t: u32) -> vec4u { return vec4u(t) + vec4u(0u, 1u, 2u, 3u); }
// Four tokens, none past the last.
fn tokens_from(t: u32) -> vec4u { return min(four_from(t), vec4u(T - 1u)); }

fn part_block(at: Place, part: u32, t: u32, d: u32) -> mat4x4f {
  if (d >= D) { return mat4x4f(); }
  return transpose(qkv_block((tokens_from(t) * PARTS + part_row(at, part, 0u)) * qkv_stride, d));
}

fn upstream_block(at: Place, t: u32, d: u32) -> mat4x4f {
  if (d >= D) { return mat4x4f(); }
  return transpose(dy_block((tokens_from(t) * HEADS + mixed_row(at, 0u)) * dy_stride, d));
}

// Columns of `block` are four rows of a tile, one column per step.
fn put_m(row: u32, step: u32, block: mat4x4f) {
  for (var j = 0u; j < 4u; j++) { tile_m[step + j][row / 4u] = block[j]; }
}

fn put_n(row: u32, step: u32, block: mat4x4f) {
  for (var j = 0u; j < 4u; j++) { tile_n[step + j][row / 4u] = block[j]; }
}

// AT_ONCE steps are unrolled. Where that is not the whole slab, the compiler must not see how many turns there are, or
// it unrolls them all, and what it loads ahead does not fit into few registers.
fn add_step_products(before: mat4x4f, own: Own) -> mat4x4f {
  var sum = before;
  let end = select(turns(SLAB), SLAB, AT_ONCE == SLAB);
  for (var first = 0u; first < end; first += AT_ONCE) {
    for (var i = 0u; i < AT_ONCE; i++) { sum = add_outer(sum, tile_m[first + i][own.r], tile_n[first + i][own.c]); }
  }
  return sum;
}

// Row and step of a block of a slab; neighbours go along the numbers of a row, as they lie in memory.
fn place_in_slab(i: u32) -> vec2u { return vec2u(i / (SLAB / 4u), i % (SLAB / 4u)) * 4u; }

// Rows of one part from m by rows of another from n.
fn products(at: Place, part_m: u32, m: u32, part_n: u32, n: u32, lane: u32) -> mat4x4f {
  let own = own_of(lane);
  var sum = mat4x4f();
  for (var d = 0u; d < D; d += SLAB) {
    for (var i = lane; i < BLOCKS_M + BLOCKS_N; i += WORKGROUP) {
      if (i < BLOCKS_M) {
        let place = place_in_slab(i);
        put_m(place.x, place.y, part_block(at, part_m, m + place.x, d + place.y));
      } else {
        let place = place_in_slab(i - BLOCKS_M);
        put_n(place.x, place.y, part_block(at, part_n, n + place.x, d + place.y));
      }
    }
    workgroupBarrier();
    sum = add_step_products(sum, own);
    workgroupBarrier();
  }
  return sum;
}

// Of rows of dy, or of values.
fn upstream_or_value(at: Place, is_upstream: bool, t: u32, d: u32) -> mat4x4f {
  if (is_upstream) { return upstream_block(at, t, d); }
  return part_block(at, VALUES, t, d);
}

// Rows of dy by values, which are ∂/∂p. The rows of the workgroup's tile are those of dy, or those of the values.
fn upstream_products(at: Place, owns_upstream: bool, m: u32, n: u32, lane: u32) -> mat4x4f {
  let own = own_of(lane);
  var sum = mat4x4f();
  for (var d = 0u; d < D; d += SLAB) {
    for (var i = lane; i < BLOCKS_M + BLOCKS_N; i += WORKGROUP) {
      if (i < BLOCKS_M) {
        let place = place_in_slab(i);
        put_m(place.x, place.y, upstream_or_value(at, owns_upstream, m + place.x, d + place.y));
      } else {
        let place = place_in_slab(i - BLOCKS_M);
        put_n(place.x, place.y, upstream_or_value(at, !owns_upstream, n + place.x, d + place.y));
      }
    }
    workgroupBarrier();
    sum = add_step_products(sum, own);
    workgroupBarrier();
  }
  return sum;
}

// Puts the columns of `weights` that belong to the slab's tokens into workgroup memory: a step for each.
fn put_weights(own: Own, slab: u32, weights: mat4x4f) {
  let column = own.c * 4u;
  if (column / SLAB * SLAB == slab) { put_m(own.r * 4u, column - slab, transpose(weights)); }
}

// before + weights (rows, tokens from t) by the rows of a part at these tokens; no weight past `end` is other than 0.
fn add_weighted(before: mat4x4f, at: Place, weights: mat4x4f, part: u32, t: u32, end: u32, lane: u32) -> mat4x4f {
  let own = own_of(lane);
  var sum = before;
  for (var slab = 0u; slab < TILE_N && t + slab < end; slab += SLAB) {
    put_weights(own, slab, weights);
    for (var i = lane; i < SLAB * COLUMN_LANES; i += WORKGROUP) {
      let row = part_row(at, part, min(t + slab + i / COLUMN_LANES, T - 1u)) * qkv_stride;
      tile_n[i / COLUMN_LANES][i % COLUMN_LANES] = qkv_quad(row, min(i % COLUMN_LANES * 4u, LAST_QUAD));
    }
    workgroupBarrier();
    sum = add_step_products(sum, own);
    workgroupBarrier();
  }
  return sum;
}

// As add_weighted, by the rows of dy.
fn add_weighted_upstream(before: mat4x4f, at: Place, weights: mat4x4f, t: u32, lane: u32) -> mat4x4f {
  let own = own_of(lane);
  var sum = before;
  for (var slab = 0u; slab < TILE_N && t + slab < T; slab += SLAB) {
    put_weights(own, slab, weights);
    for (var i = lane; i < SLAB * COLUMN_LANES; i += WORKGROUP) {
      let row = mixed_row(at, min(t + slab + i / COLUMN_LANES, T - 1u)) * dy_stride;
      tile_n[i / COLUMN_LANES][i % COLUMN_LANES] = dy_quad(row, min(i % COLUMN_LANES * 4u, LAST_QUAD));
    }
    workgroupBarrier();
    sum = add_step_products(sum, own);
    workgroupBarrier();
  }
  return sum;
}

// The end of the keys that the tile's queries see.
fn keys_end(at: Place) -> u32 { return select(T, min(T, at.first + TILE_M), CAUSAL == 1u); }

// Which of four keys from k a query sees.
fn seen_keys(k: u32, query: u32) -> vec4<bool> {
  return four_from(k) < vec4u(select(T, min(T, query + 1u), CAUSAL == 1u));
}

// y = softmax(q · kᵀ · SCALE) · v
@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(group, CAUSAL == 1u);
  if (at.sample >= run.samples) { return; }
  let own = own_of(lane);
  let query = at.first + own.r * 4u;
  let end = keys_end(at);
  var mixed = mat4x4f();
  var top = vec4f(LOWEST);
  var total = vec4f();
  for (var k = 0u; k < end; k += TILE_N) {
    var s = products(at, QUERIES, at.first, KEYS, k, lane);
    for (var i = 0u; i < 4u; i++) {
      s[i] = select(vec4f(LOWEST), s[i] * SCALE, seen_keys(k + own.c * 4u, query + i));
    }
    let higher = max(top, greatest_of_rows(own, s));
    let shrink = exp(top - higher);
    top = higher;
    total *= shrink;
    for (var i = 0u; i < 4u; i++) {
      s[i] = exp(s[i] - higher[i]);
      total[i] += dot(s[i], vec4f(1.0));
      mixed[i] *= shrink[i];
    }
    mixed = add_weighted(mixed, at, s, VALUES, k, end, lane);
  }
  of_rows[own.c][own.r] = total;
  workgroupBarrier();
  var whole = vec4f();
  for (var c = 0u; c < COLUMN_LANES; c++) { whole += of_rows[c][own.r]; }
  for (var i = 0u; i < 4u; i++) {
    if (query + i < T) {
      y_put(mixed_row(at, query + i), own.c * 4u, mixed[i] / whole[i]);
      if (own.c == 0u) { log_sums[pair_at(at, query + i)] = top[i] + log(whole[i]); }
    }
  }
}

// The barriers of the products that follow keep this apart from the next time.
fn greatest_of_rows(own: Own, s: mat4x4f) -> vec4f {
  let columns = transpose(s);
  of_rows[own.c][own.r] = max(max(columns[0], columns[1]), max(columns[2], columns[3]));
  workgroupBarrier();
  var greatest = vec4f(LOWEST);
  for (var c = 0u; c < COLUMN_LANES; c++) { greatest = max(greatest, of_rows[c][own.r]); }
  return greatest;
}

// log_sums and dots of four tokens
fn log_sums_from(at: Place, t: u32) -> vec4f {
  let pairs = tokens_from(t) + pair_at(at, 0u);
  return vec4f(log_sums[pairs.x], log_sums[pairs.y], log_sums[pairs.z], log_sums[pairs.w]);
}

fn dots_from(at: Place, t: u32) -> vec4f {
  let pairs = tokens_from(t) + pair_at(at, 0u);
  return vec4f(dots[pairs.x], dots[pairs.y], dots[pairs.z], dots[pairs.w]);
}

// dq of the tile's queries, over the keys
@compute @workgroup_size(WORKGROUP)
fn query_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(group, CAUSAL == 1u);
  if (at.sample >= run.samples) { return; }
  let own = own_of(lane);
  let query = at.first + own.r * 4u;
  let log_sum = log_sums_from(at, query);
  let mean = dots_from(at, query);
  let end = keys_end(at);
  var gradient = mat4x4f();
  for (var k = 0u; k < end; k += TILE_N) {
    var s = products(at, QUERIES, at.first, KEYS, k, lane);
    let dp = upstream_products(at, true, at.first, k, lane);
    for (var i = 0u; i < 4u; i++) {
      let p = select(vec4f(), exp(s[i] * SCALE - log_sum[i]), seen_keys(k + own.c * 4u, query + i));
      s[i] = p * (dp[i] - mean[i]) * SCALE;
    }
    gradient = add_weighted(gradient, at, s, KEYS, k, end, lane);
  }
  for (var i = 0u; i < 4u; i++) {
    if (query + i < T) { dqkv_put(part_row(at, QUERIES, query + i), own.c * 4u, gradient[i]); }
  }
}

// dk and dv of the tile's keys, over the queries that see them
@compute @workgroup_size(WORKGROUP)
fn key_value_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(group, false);
  if (at.sample >= run.samples) { return; }
  let own = own_of(lane);
  let key = at.first + own.r * 4u;
  var key_sum = mat4x4f();
  var value_sum = mat4x4f();
  for (var t = select(0u, at.first / TILE_N * TILE_N, CAUSAL == 1u); t < T; t += TILE_N) {
    let query = t + own.c * 4u;
    let log_sum = log_sums_from(at, query);
    var p = products(at, KEYS, at.first, QUERIES, t, lane);
    for (var i = 0u; i < 4u; i++) {
      p[i] = select(vec4f(), exp(p[i] * SCALE - log_sum), seeing_queries(query, key + i));
    }
    value_sum = add_weighted_upstream(value_sum, at, p, t, lane);
    let mean = dots_from(at, query);
    let dp = upstream_products(at, false, at.first, t, lane);
    for (var i = 0u; i < 4u; i++) { p[i] *= (dp[i] - mean) * SCALE; }
    key_sum = add_weighted(key_sum, at, p, QUERIES, t, T, lane);
  }
  for (var i = 0u; i < 4u; i++) {
    if (key + i < T) {
      dqkv_put(part_row(at, KEYS, key + i), own.c * 4u, key_sum[i]);
      dqkv_put(part_row(at, VALUES, key + i), own.c * 4u, value_sum[i]);
    }
  }
}

// Which of four queries from t see a key.
fn seeing_queries(t: u32, key: u32) -> vec4<bool> {
  return (four_from(t) < vec4u(T)) & ((vec4u(CAUSAL) == vec4u(0u)) | (four_from(t) >= vec4u(key)));
}
