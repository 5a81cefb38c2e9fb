// y = FACTOR · x, four elements per invocation.

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i * 4u >= run.samples * SIZE) { return; }
  y[i] = FACTOR * x[i];
}
