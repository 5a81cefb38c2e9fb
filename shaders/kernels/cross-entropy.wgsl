// Softmax cross-entropy over rows of CLASSES logits, with R = samples · ROWS rows. The target's share is 1 −
// SMOOTHING, and SMOOTHING is spread evenly over all classes; rows whose label is IGNORED (where IGNORING = 1) count
// for nothing. x (R, CLASSES), labels (R,) → loss (R,), correct (R,) 1 or 0, dx (R, CLASSES) = softmax(x) − what is
// wanted. Few classes: one walk along a row, by an invocation or by a workgroup (own-rows.wgsl, shared-rows.wgsl).
// Many classes: PARTS invocations look at PART classes each, and an invocation computes four classes of a gradient. So
// adapters with thousands of lanes have work. Classes in pieces: x holds CLASSES of ALL classes, from FIRST on, and
// `state` eight numbers a row of what the pieces so far have shown.

// What is known of some classes of a row. `at` is the first of the largest, `sum` is Σ exp(x − top).
struct Seen { top: f32, sum: f32, total: f32, at: u32 }

const LOWEST = -3.4e38f;

fn look(row: u32, first: u32, end: u32, step: u32) -> Seen {
  let start = row * x_stride;
  var seen = Seen(LOWEST, 0.0, 0.0, first);
  for (var c = first; c < end; c += step) {
    let columns = vec4u(c) + vec4u(0u, 1u, 2u, 3u);
    let inside = columns < vec4u(end);
    let raw = x_quad(start, c);
    let v = select(vec4f(LOWEST), raw, inside);
    let higher = max(seen.top, max(max(v.x, v.y), max(v.z, v.w)));
    if (higher > seen.top) {
      let at = select(vec4u(CLASSES), columns, v == vec4f(higher));
      seen.at = min(min(at.x, at.y), min(at.z, at.w));
    }
    let e = select(vec4f(), exp(v - higher), inside);
    seen.sum = seen.sum * exp(seen.top - higher) + e.x + e.y + e.z + e.w;
    seen.top = higher;
    seen.total += raw.x + raw.y + raw.z + raw.w;
  }
  return seen;
}

fn counts(row: u32) -> bool { return IGNORING == 0u || u32(labels[row]) != IGNORED; }

fn write_loss(row: u32, seen: Seen) {
  let label = min(u32(labels[row]), CLASSES - 1u);
  put_loss(row, label, seen, x_quad(row * x_stride, label / 4u * 4u)[label % 4u]);
}

fn put_loss(row: u32, label: u32, seen: Seen, wanted: f32) {
  let log_sum = log(seen.sum) + seen.top;
  let value = log_sum - (1.0 - SMOOTHING) * wanted - SMOOTHING / f32(ALL) * seen.total;
  loss[row] = select(0.0, value, counts(row));
  correct[row] = select(0.0, 1.0, counts(row) && seen.at == label);
}

fn write_gradient(row: u32, c: u32, log_sum: f32) {
  let columns = vec4u(c) + vec4u(0u, 1u, 2u, 3u);
  let label = u32(labels[row]) - FIRST;
  let wanted = select(vec4f(), vec4f(1.0 - SMOOTHING), columns == vec4u(label)) + SMOOTHING / f32(ALL);
  dx_put(row, c, select(vec4f(), exp(x_quad(row * x_stride, c) - log_sum) - wanted, counts(row)));
}

@compute @workgroup_size(WORKGROUP)
fn loss_and_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  let seen = seen_by_all(lane, look(row, 4u * sharer(lane), CLASSES, 4u * SHARERS));
  if (sharer(lane) == 0u) { write_loss(row, seen); }
  let log_sum = log(seen.sum) + seen.top;
  let c_end = turns(CLASSES);
  for (var c = 4u * sharer(lane); c < c_end; c += 4u * SHARERS) { write_gradient(row, c, log_sum); }
}

// What the invocations of a row have seen together; of equal maxima the first counts. One that saw nothing has LOWEST.
fn seen_by_all(lane: u32, own: Seen) -> Seen {
  let top = max_of_row(lane, vec4f(own.top, 0.0, 0.0, 0.0)).x;
  let first = -max_of_row(lane, vec4f(-f32(select(CLASSES, own.at, own.top == top)), 0.0, 0.0, 0.0)).x;
  let sums = sum_of_row(lane, vec4f(own.sum * exp(own.top - top), own.total, 0.0, 0.0));
  return Seen(top, sums.x, sums.y, u32(first));
}

// Of equal maxima that of `a` counts, which comes first.
fn joined(a: Seen, b: Seen) -> Seen {
  let top = max(a.top, b.top);
  let sum = a.sum * exp(a.top - top) + b.sum * exp(b.top - top);
  return Seen(top, sum, a.total + b.total, select(a.at, b.at, b.top > a.top));
}

// parts (R · PARTS,) of what one invocation saw
@compute @workgroup_size(WORKGROUP)
fn look_at_part(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let row = i / PARTS;
  if (row >= run.samples * ROWS) { return; }
  let first = i % PARTS * PART;
  let seen = look(row, first, min(CLASSES, first + PART), 4u);
  parts[i] = vec4f(seen.top, seen.sum, seen.total, f32(seen.at));
}

// log_sums (R,) of whole rows
@compute @workgroup_size(WORKGROUP)
fn join_parts(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  var seen = Seen(LOWEST, 0.0, 0.0, 0u);
  for (var i = row * PARTS; i < (row + 1u) * PARTS; i++) {
    let part = parts[i];
    seen = joined(seen, Seen(part.x, part.y, part.z, u32(part.w)));
  }
  write_loss(row, seen);
  log_sums[row] = log(seen.sum) + seen.top;
}

@compute @workgroup_size(WORKGROUP)
fn gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  let row = i / QUADS;
  if (row >= run.samples * ROWS) { return; }
  write_gradient(row, i % QUADS * 4u, log_sums[row]);
}

// state (R, 8) of the pieces up to this one
@compute @workgroup_size(WORKGROUP)
fn look_at_piece(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  var seen = seen_by_all(lane, look(row, 4u * sharer(lane), CLASSES, 4u * SHARERS));
  if (sharer(lane) > 0u) { return; }
  seen.at += FIRST;
  let label = u32(labels[row]) - FIRST;
  let inside = min(label, CLASSES - 1u);
  var wanted = select(0.0, x_quad(row * x_stride, inside / 4u * 4u)[inside % 4u], label < CLASSES);
  let i = row * 8u;
  if (FIRST > 0u) {
    seen = joined(Seen(before_at(i), before_at(i + 1u), before_at(i + 2u), u32(before_at(i + 3u))), seen);
    wanted += before_at(i + 4u);
  }
  state[i] = seen.top;
  state[i + 1u] = seen.sum;
  state[i + 2u] = seen.total;
  state[i + 3u] = f32(seen.at);
  state[i + 4u] = wanted;
}

@compute @workgroup_size(WORKGROUP)
fn join_pieces(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  let i = row * 8u;
  let seen = Seen(state[i], state[i + 1u], state[i + 2u], u32(state[i + 3u]));
  put_loss(row, u32(labels[row]), seen, state[i + 4u]);
  log_sums[row] = log(seen.sum) + seen.top;
}
