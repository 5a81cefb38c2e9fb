// One of queries, keys and values at its place among the packed heads of attention, and turned by its position where
// TURNS is 1. One pair of elements, c and c + HALF of a head, per invocation.
// x (R, OWN, 2·HALF), angles (T, 2·HALF): cosines of a position, then its sines
//   ⇄ part PART of qkv (R, 3, HEADS, 2·HALF)
// with R = samples · LENGTH. Each of the OWN heads serves HEADS / OWN heads of attention.

const HEAD = 2u * HALF;
const SHARERS = HEADS / OWN;

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * LENGTH * HEADS * HALF) { return; }
  put(i, row_of(i) % LENGTH);
}

// The same of single tokens, each at its place.
@compute @workgroup_size(WORKGROUP)
fn forward_placed(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * HEADS * HALF) { return; }
  put(i, u32(places[row_of(i)]));
}

fn row_of(i: u32) -> u32 { return i / (HALF * HEADS); }

fn put(i: u32, position: u32) {
  let c = i % HALF;
  let head = i / HALF % HEADS;
  let r = row_of(i);
  let source = (r * OWN + head / SHARERS) * HEAD + c;
  let pair = turned(vec2f(x[source], x[source + HALF]), position, c, 1.0);
  let to = packed_at(r, head, c);
  qkv[to] = pair.x;
  qkv[to + HALF] = pair.y;
}

@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * LENGTH * OWN * HALF) { return; }
  let c = i % HALF;
  let head = i / HALF % OWN;
  let r = i / (HALF * OWN);
  var sum = vec2f();
  for (var sharer = 0u; sharer < SHARERS; sharer++) {
    let source = packed_at(r, head * SHARERS + sharer, c);
    sum += vec2f(dqkv[source], dqkv[source + HALF]);
  }
  let pair = turned(sum, r % LENGTH, c, -1.0);
  let to = (r * OWN + head) * HEAD + c;
  dx[to] = pair.x;
  dx[to + HALF] = pair.y;
}

fn packed_at(r: u32, head: u32, c: u32) -> u32 { return ((r * 3u + PART) * HEADS + head) * HEAD + c; }

// Forward by the angle of its position, backward by the opposite one.
fn turned(pair: vec2f, position: u32, c: u32, sense: f32) -> vec2f {
  if (TURNS == 0u) { return pair; }
  let at = position * HEAD + c;
  let cosine = angles[at];
  let sine = sense * angles[at + HALF];
  return vec2f(pair.x * cosine - pair.y * sine, pair.y * cosine + pair.x * sine);
}
