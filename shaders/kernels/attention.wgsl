// Attention on packed queries, keys and values, with the probabilities kept: batched matrix products in 8 × 8 register
// tiles. qkv (samples, T, 3 · HEADS, D), y (samples, T, HEADS, D), p and ds (samples, HEADS, T, T). Each row of D or T
// numbers is a row of its matrix. With CAUSAL = 1 the tiles above the diagonal are neither written nor read; those on
// it hold zeros there. Blocks as in linear.wgsl: four rows of a matrix are the columns of a mat4x4f, and `transpose(w)
// * x` is x · wᵀ.

const PARTS = 3u * HEADS;

// Which tile of which head of which sample an invocation computes.
struct Place { sample: u32, head: u32, row: u32, column: u32, inside: bool }

fn place_of(i: u32, row_tiles: u32, column_tiles: u32) -> Place {
  let tile = i % (row_tiles * column_tiles);
  let head = i / (row_tiles * column_tiles);
  return Place(
    head / HEADS,
    head % HEADS,
    tile / column_tiles * 8u,
    tile % column_tiles * 8u,
    head < run.samples * HEADS,
  );
}

// Rows of qkv (part 0: queries, 1: keys, 2: values) and of y for four tokens from t, none past the last.
fn tokens_from(t: u32) -> vec4u { return min(vec4u(t) + vec4u(0u, 1u, 2u, 3u), vec4u(T - 1u)); }
fn part_row(at: Place, part: u32, t: u32) -> u32 { return (at.sample * T + t) * PARTS + part * HEADS + at.head; }
fn part_rows(at: Place, part: u32, t: u32) -> vec4u {
  return (tokens_from(t) * PARTS + part_row(at, part, 0u)) * qkv_stride;
}
fn mixed_row(at: Place, t: u32) -> u32 { return (at.sample * T + t) * HEADS + at.head; }
fn pair_row(at: Place, t: u32) -> u32 { return (at.sample * HEADS + at.head) * T + t; }
fn above_diagonal(at: Place) -> bool { return CAUSAL == 1u && at.column > at.row + 7u; }
// Keys that the queries of a tile may see, and the first query that may see the keys of a tile.
fn keys_end(row: u32) -> u32 { return select(T, min(T, row + 8u), CAUSAL == 1u); }
fn queries_start(row: u32) -> u32 { return select(0u, row, CAUSAL == 1u); }

// p = q · kᵀ · SCALE
@compute @workgroup_size(WORKGROUP)
fn scores(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane), T_TILES, T_TILES);
  if (!at.inside || above_diagonal(at)) { return; }
  let qa = part_rows(at, 0u, at.row);
  let qb = part_rows(at, 0u, at.row + 4u);
  let ka = part_rows(at, 1u, at.column);
  let kb = part_rows(at, 1u, at.column + 4u);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  let d_end = turns(D);
  for (var d = 0u; d < d_end; d += 4u) {
    let q0 = qkv_block(qa, d);
    let q1 = qkv_block(qb, d);
    let k0 = transpose(qkv_block(ka, d));
    let k1 = transpose(qkv_block(kb, d));
    aa += k0 * q0; ab += k1 * q0; ba += k0 * q1; bb += k1 * q1;
  }
  let row = pair_row(at, at.row);
  let end = pair_row(at, T);
  p_put_block(row, end, at.column, aa * SCALE);
  p_put_block(row, end, at.column + 4u, ab * SCALE);
  p_put_block(row + 4u, end, at.column, ba * SCALE);
  p_put_block(row + 4u, end, at.column + 4u, bb * SCALE);
}

// p = softmax(p), one row per invocation
@compute @workgroup_size(WORKGROUP)
fn softmax(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * HEADS * T) { return; }
  let last = select(T - 1u, row % T, CAUSAL == 1u);
  let end = keys_end(row % T / 8u * 8u);
  let start = row * p_stride;
  var top = vec4f(LOWEST);
  for (var k = 0u; k <= last; k += 4u) { top = max(top, select(vec4f(LOWEST), p_quad(start, k), visible(k, last))); }
  let greatest = max(max(top.x, top.y), max(top.z, top.w));
  var sums = vec4f();
  for (var k = 0u; k <= last; k += 4u) {
    let value = select(vec4f(), exp(p_quad(start, k) - greatest), visible(k, last));
    sums += value;
    p_put(row, k, value);
  }
  let total = sums.x + sums.y + sums.z + sums.w;
  for (var k = 0u; k < end; k += 4u) { p_put(row, k, select(vec4f(), p_quad(start, k) / total, visible(k, last))); }
}

const LOWEST = -3.4e38f;

fn visible(k: u32, last: u32) -> vec4<bool> { return vec4u(k) + vec4u(0u, 1u, 2u, 3u) <= vec4u(last); }

// y = p · v
@compute @workgroup_size(WORKGROUP)
fn mix_values(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane), T_TILES, D_TILES);
  if (!at.inside) { return; }
  let first = pair_row(at, 0u);
  let pa = (tokens_from(at.row) + first) * p_stride;
  let pb = (tokens_from(at.row + 4u) + first) * p_stride;
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  let end = keys_end(at.row);
  for (var k = 0u; k < end; k += 4u) {
    let v = part_rows(at, 2u, k);
    let v0 = qkv_block(v, at.column);
    let v1 = qkv_block(v, at.column + 4u);
    let p0 = p_block(pa, k);
    let p1 = p_block(pb, k);
    aa += v0 * p0; ab += v1 * p0; ba += v0 * p1; bb += v1 * p1;
  }
  for (var i = 0u; i < 4u; i++) {
    let t = at.row + i;
    if (t < T) { y_put(mixed_row(at, t), at.column, aa[i]); y_put(mixed_row(at, t), at.column + 4u, ab[i]); }
    if (t + 4u < T) {
      y_put(mixed_row(at, t + 4u), at.column, ba[i]);
      y_put(mixed_row(at, t + 4u), at.column + 4u, bb[i]);
    }
  }
}

// ds = dy · vᵀ, which is ∂/∂p
@compute @workgroup_size(WORKGROUP)
fn probability_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane), T_TILES, T_TILES);
  if (!at.inside || above_diagonal(at)) { return; }
  let ya = (tokens_from(at.row) * HEADS + mixed_row(at, 0u)) * dy_stride;
  let yb = (tokens_from(at.row + 4u) * HEADS + mixed_row(at, 0u)) * dy_stride;
  let va = part_rows(at, 2u, at.column);
  let vb = part_rows(at, 2u, at.column + 4u);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  let d_end = turns(D);
  for (var d = 0u; d < d_end; d += 4u) {
    let y0 = dy_block(ya, d);
    let y1 = dy_block(yb, d);
    let v0 = transpose(qkv_block(va, d));
    let v1 = transpose(qkv_block(vb, d));
    aa += v0 * y0; ab += v1 * y0; ba += v0 * y1; bb += v1 * y1;
  }
  let row = pair_row(at, at.row);
  let end = pair_row(at, T);
  ds_put_block(row, end, at.column, aa);
  ds_put_block(row, end, at.column + 4u, ab);
  ds_put_block(row + 4u, end, at.column, ba);
  ds_put_block(row + 4u, end, at.column + 4u, bb);
}

// ds = p · (ds − Σ p · ds) · SCALE, which is ∂/∂scores, one row per invocation
@compute @workgroup_size(WORKGROUP)
fn score_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * HEADS * T) { return; }
  let end = keys_end(row % T / 8u * 8u);
  let start = row * p_stride;
  var sums = vec4f();
  for (var k = 0u; k < end; k += 4u) { sums += p_quad(start, k) * ds_quad(start, k); }
  let mean = sums.x + sums.y + sums.z + sums.w;
  for (var k = 0u; k < end; k += 4u) { ds_put(row, k, p_quad(start, k) * (ds_quad(start, k) - mean) * SCALE); }
}

// dq = ds · k
@compute @workgroup_size(WORKGROUP)
fn query_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane), T_TILES, D_TILES);
  if (!at.inside) { return; }
  let first = pair_row(at, 0u);
  let sa = (tokens_from(at.row) + first) * ds_stride;
  let sb = (tokens_from(at.row + 4u) + first) * ds_stride;
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  let end = keys_end(at.row);
  for (var k = 0u; k < end; k += 4u) {
    let rows = part_rows(at, 1u, k);
    let k0 = qkv_block(rows, at.column);
    let k1 = qkv_block(rows, at.column + 4u);
    let s0 = ds_block(sa, k);
    let s1 = ds_block(sb, k);
    aa += k0 * s0; ab += k1 * s0; ba += k0 * s1; bb += k1 * s1;
  }
  put_part(at, 0u, aa, ab, ba, bb);
}

// dk = dsᵀ · q
@compute @workgroup_size(WORKGROUP)
fn key_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane), T_TILES, D_TILES);
  if (!at.inside) { return; }
  let first = pair_row(at, 0u);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  let t_end = turns(T);
  for (var t = queries_start(at.row); t < t_end; t += 4u) {
    let queries = part_rows(at, 0u, t);
    let pairs = (tokens_from(t) + first) * ds_stride;
    let q0 = qkv_block(queries, at.column);
    let q1 = qkv_block(queries, at.column + 4u);
    let s0 = transpose(within(t, ds_block(pairs, at.row)));
    let s1 = transpose(within(t, ds_block(pairs, at.row + 4u)));
    aa += q0 * s0; ab += q1 * s0; ba += q0 * s1; bb += q1 * s1;
  }
  put_part(at, 1u, aa, ab, ba, bb);
}

// dv = pᵀ · dy
@compute @workgroup_size(WORKGROUP)
fn value_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let at = place_of(thread_of(group, lane), T_TILES, D_TILES);
  if (!at.inside) { return; }
  let first = pair_row(at, 0u);
  var aa = mat4x4f(); var ab = mat4x4f(); var ba = mat4x4f(); var bb = mat4x4f();
  let t_end = turns(T);
  for (var t = queries_start(at.row); t < t_end; t += 4u) {
    let mixed = (tokens_from(t) * HEADS + mixed_row(at, 0u)) * dy_stride;
    let pairs = (tokens_from(t) + first) * p_stride;
    let y0 = dy_block(mixed, at.column);
    let y1 = dy_block(mixed, at.column + 4u);
    let p0 = transpose(within(t, p_block(pairs, at.row)));
    let p1 = transpose(within(t, p_block(pairs, at.row + 4u)));
    aa += y0 * p0; ab += y1 * p0; ba += y0 * p1; bb += y1 * p1;
  }
  put_part(at, 2u, aa, ab, ba, bb);
}

// Four queries from t; those past the last are loaded twice and must not count.
fn within(t: u32, block: mat4x4f) -> mat4x4f {
  if (t + 3u < T) { return block; }
  return mat4x4f(
    block[0],
    select(vec4f(), block[1], t + 1u < T),
    select(vec4f(), block[2], t + 2u < T),
    select(vec4f(), block[3], t + 3u < T),
  );
}

fn put_part(at: Place, part: u32, aa: mat4x4f, ab: mat4x4f, ba: mat4x4f, bb: mat4x4f) {
  for (var i = 0u; i < 4u; i++) {
    let t = at.row + i;
    if (t < T) {
      dqkv_put(part_row(at, part, t), at.column, aa[i]);
      dqkv_put(part_row(at, part, t), at.column + 4u, ab[i]);
    }
    if (t + 4u < T) {
      dqkv_put(part_row(at, part, t + 4u), at.column, ba[i]);
      dqkv_put(part_row(at, part, t + 4u), at.column + 4u, bb[i]);
    }
  }
}
