// y (1,) = Σ x², for clipping by the global norm: each invocation sums every THREADS-th quad, then one sums the sums.
// The order is fixed, so that the same vector gives the same norm.

@compute @workgroup_size(WORKGROUP)
fn sum_parts(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let thread = thread_of(group, lane);
  if (thread >= THREADS) { return; }
  var sum = 0.0;
  for (var i = thread; i * 4u < LENGTH; i += THREADS) {
    let index = i * 4u + vec4u(0u, 1u, 2u, 3u);
    let value = select(vec4f(), x[i], index < vec4u(LENGTH));
    sum += dot(value, value);
  }
  parts[thread] = sum;
}

@compute @workgroup_size(WORKGROUP)
fn sum_all(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  if (thread_of(group, lane) > 0u) { return; }
  var sum = 0.0;
  for (var i = 0u; i < THREADS; i++) { sum += parts[i]; }
  y[0] = sum;
}
