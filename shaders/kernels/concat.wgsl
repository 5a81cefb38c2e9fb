// One of several inputs, SIZE elements per sample, at OFFSET in their joint TOTAL. x (B, SIZE) ⇄ part of y (B, TOTAL)

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * SIZE) { return; }
  y[i / SIZE * TOTAL + OFFSET + i % SIZE] = x[i];
}

@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * SIZE) { return; }
  dx[i] = dy[i / SIZE * TOTAL + OFFSET + i % SIZE];
}
