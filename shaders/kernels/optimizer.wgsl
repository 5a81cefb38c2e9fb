// Training whose parameters stay on the device: what a step does with the gradient that was summed there. The flat
// vectors are cut into chunks. chunks: its first quad, its elements, what it is, and the share of a statistic as
// bits. scalars: see the SCALAR_ constants; what the optimizer's spec and the step make of them is the host's. Elements
// between parameters stay as they are.

// what a chunk is, as CHUNK in optimizer-passes.ts
const UNDECAYED = 1u;
const STATISTIC = 2u;

const SCALAR_MEAN = 0u;
const SCALAR_STATISTIC = 1u;
// sgd
const SCALAR_RATE = 2u;
const SCALAR_DECAY = 3u;
const SCALAR_MOMENTUM = 4u;
const SCALAR_NESTEROV = 5u;
// adam
const SCALAR_BETA1 = 4u;
const SCALAR_REST1 = 5u;
const SCALAR_BETA2 = 6u;
const SCALAR_REST2 = 7u;
const SCALAR_ROOT = 8u;
const SCALAR_EPSILON = 9u;
const SCALAR_SHRINK = 10u;

const SIZE_BITS = 0x7fffffffu;
const INFINITE_BITS = 0x7f800000u;

var<workgroup> lane_sums: array<f32, WORKGROUP>;
var<workgroup> odd_lanes: atomic<u32>;

fn inside(chunk: vec4u, quad: u32) -> vec4<bool> {
  return vec4u(4u * quad) + vec4u(0u, 1u, 2u, 3u) < vec4u(chunk.y);
}

// partials (chunks,): Σ squares of trained elements; −1 where one is not finite. That is seen on bits: compilers may
// take every float for a finite one.
@compute @workgroup_size(WORKGROUP)
fn squares(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let index = group_of(group);
  if (index >= run.samples) { return; }
  let chunk = chunks[index];
  var sum = 0.0;
  var odd = false;
  for (var i = 0u; i < QUADS; i++) {
    let quad = i * WORKGROUP + lane;
    if (4u * quad >= chunk.y) { break; }
    let g = select(vec4f(), gradient[chunk.x + quad], inside(chunk, quad));
    odd = odd || any((bitcast<vec4u>(g) & vec4u(SIZE_BITS)) >= vec4u(INFINITE_BITS));
    sum += dot(g, g);
  }
  lane_sums[lane] = sum;
  if (odd) { atomicStore(&odd_lanes, 1u); }
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { lane_sums[lane] += lane_sums[lane + half]; }
  }
  if (lane > 0u) { return; }
  let total = select(lane_sums[0], 0.0, chunk.z == STATISTIC);
  partials[index] = select(total, -1.0, atomicLoad(&odd_lanes) != 0u);
}

// step: statistic ← statistic + momentum · (measured − statistic)
fn followed(chunk: vec4u, at: u32) -> vec4f {
  let old = parameters[at];
  return old + bitcast<f32>(chunk.w) * (scalars[SCALAR_STATISTIC] * gradient[at] - old);
}

fn decay_of(chunk: vec4u) -> f32 { return select(scalars[SCALAR_DECAY], 0.0, chunk.z == UNDECAYED); }

// What one invocation of a step has: a quad of a chunk, which QUADS workgroups share.
struct Place { chunk: vec4u, quad: u32, at: u32, is_inside: bool }

fn place_of(group: vec3u, lane: u32) -> Place {
  let index = group_of(group);
  let quad = (index % QUADS) * WORKGROUP + lane;
  let is_known = index / QUADS < run.samples;
  let chunk = chunks[select(0u, index / QUADS, is_known)];
  return Place(chunk, quad, chunk.x + quad, is_known && 4u * quad < chunk.y);
}

// The mean gradient as the rule sees it.
fn decayed_mean(place: Place) -> vec4f {
  return scalars[SCALAR_MEAN] * gradient[place.at] + decay_of(place.chunk) * parameters[place.at];
}

fn set_parameters(place: Place, stepped: vec4f) {
  let value = select(stepped, followed(place.chunk, place.at), place.chunk.z == STATISTIC);
  parameters[place.at] = select(parameters[place.at], value, inside(place.chunk, place.quad));
}

// p ← p − rate · (mean + decay · p)
@compute @workgroup_size(WORKGROUP)
fn sgd(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let place = place_of(group, lane);
  if (!place.is_inside) { return; }
  set_parameters(place, parameters[place.at] - scalars[SCALAR_RATE] * decayed_mean(place));
}

// v ← momentum · v + g;  p ← p − rate · (nesterov ? g + momentum · v : v)
@compute @workgroup_size(WORKGROUP)
fn sgd_momentum(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let place = place_of(group, lane);
  if (!place.is_inside) { return; }
  let momentum = scalars[SCALAR_MOMENTUM];
  let g = decayed_mean(place);
  let v = momentum * velocity[place.at] + g;
  velocity[place.at] = v;
  let direction = select(v, g + momentum * v, scalars[SCALAR_NESTEROV] != 0.0);
  set_parameters(place, parameters[place.at] - scalars[SCALAR_RATE] * direction);
}

// m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  p ← shrink · p − rate · m / (√v / root + ε). The rate holds 1/(1−β₁ᵗ), root
// is √(1−β₂ᵗ). AdamW shrinks; Adam adds decay · p to g.
@compute @workgroup_size(WORKGROUP)
fn adam(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let place = place_of(group, lane);
  if (!place.is_inside) { return; }
  let g = decayed_mean(place);
  let m = scalars[SCALAR_BETA1] * exp_avg[place.at] + scalars[SCALAR_REST1] * g;
  let v = scalars[SCALAR_BETA2] * exp_avg_sq[place.at] + scalars[SCALAR_REST2] * g * g;
  exp_avg[place.at] = m;
  exp_avg_sq[place.at] = v;
  let shrink = select(scalars[SCALAR_SHRINK], 1.0, place.chunk.z == UNDECAYED);
  let moved = scalars[SCALAR_RATE] * m / (sqrt(v) / scalars[SCALAR_ROOT] + scalars[SCALAR_EPSILON]);
  set_parameters(place, shrink * parameters[place.at] - moved);
}
