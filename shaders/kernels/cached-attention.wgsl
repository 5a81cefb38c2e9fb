// Attention of single tokens to a text that is there already. qkv (R, 3, HEADS, SIZE), places (R,), cache (CONTEXT, 2,
// HEADS, SIZE) of keys and values → y (R, HEADS, SIZE). R = samples; a token sees all places up to its own.

const CHANNELS = HEADS * SIZE;

// One element of keys and values per invocation.
@compute @workgroup_size(WORKGROUP)
fn store(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * 2u * CHANNELS) { return; }
  let r = i / (2u * CHANNELS);
  let c = i % (2u * CHANNELS);
  cache[u32(places[r]) * 2u * CHANNELS + c] = qkv[(r * 3u + 1u) * CHANNELS + c];
}

// One score per invocation: scores (R, HEADS, CONTEXT).
@compute @workgroup_size(WORKGROUP)
fn score(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * HEADS * CONTEXT) { return; }
  let key = i % CONTEXT;
  let head = i / CONTEXT % HEADS;
  let r = i / (CONTEXT * HEADS);
  if (key > u32(places[r])) { return; }
  let q = r * 3u * CHANNELS + head * SIZE;
  let k = key * 2u * CHANNELS + head * SIZE;
  var sum = 0.0;
  for (var c = 0u; c < SIZE; c++) { sum += qkv[q + c] * cache[k + c]; }
  scores[i] = sum * SCALE;
}

// One element of y per invocation.
@compute @workgroup_size(WORKGROUP)
fn mix(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS) { return; }
  let head = i % CHANNELS / SIZE;
  let r = i / CHANNELS;
  let first = (r * HEADS + head) * CONTEXT;
  let last = first + u32(places[r]);
  var most = scores[first];
  for (var s = first; s <= last; s++) { most = max(most, scores[s]); }
  var total = 0.0;
  var sum = 0.0;
  for (var s = first; s <= last; s++) {
    let share = exp(scores[s] - most);
    total += share;
    sum += share * cache[((s - first) * 2u + 1u) * CHANNELS + i % CHANNELS];
  }
  y[i] = sum / total;
}
