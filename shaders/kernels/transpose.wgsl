// Rows become columns. x (B, ROWS, COLUMNS) → y (B, COLUMNS, ROWS), one element of y per invocation

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * ROWS * COLUMNS) { return; }
  let line = i / ROWS;
  let sample = line / COLUMNS;
  y[i] = x[(sample * ROWS + i % ROWS) * COLUMNS + line % COLUMNS];
}
