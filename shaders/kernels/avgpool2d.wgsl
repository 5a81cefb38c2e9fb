// Average pooling. x (B, C, H, W) → y (B, C, OUT_HEIGHT, OUT_WIDTH); one element per invocation.
// Padded cells count as zeros: the divisor is always KERNEL².

const SHARE = 1.0 / f32(KERNEL * KERNEL);

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * OUT_HEIGHT * OUT_WIDTH) { return; }
  let plane = i / (OUT_HEIGHT * OUT_WIDTH) * HEIGHT;
  let top = i / OUT_WIDTH % OUT_HEIGHT * STRIDE;
  let left = i % OUT_WIDTH * STRIDE;
  let bottom = min(top + KERNEL, HEIGHT + PADDING) - PADDING;
  let right = min(left + KERNEL, WIDTH + PADDING) - PADDING;
  var sum = 0.0;
  for (var row = max(top, PADDING) - PADDING; row < bottom; row++) {
    for (var column = max(left, PADDING) - PADDING; column < right; column++) { sum += x[(plane + row) * WIDTH + column]; }
  }
  y[i] = sum * SHARE;
}

// Each input cell gathers from the windows that cover it.
@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * HEIGHT * WIDTH) { return; }
  let plane = i / (HEIGHT * WIDTH) * OUT_HEIGHT;
  let lines = windows_over(i / WIDTH % HEIGHT, OUT_HEIGHT);
  let positions = windows_over(i % WIDTH, OUT_WIDTH);
  var sum = 0.0;
  for (var line = lines.x; line < lines.y; line++) {
    for (var position = positions.x; position < positions.y; position++) { sum += dy[(plane + line) * OUT_WIDTH + position]; }
  }
  dx[i] = sum * SHARE;
}

// First and end of the windows along one axis that cover a cell.
fn windows_over(cell: u32, count: u32) -> vec2u {
  let padded = cell + PADDING;
  let first = select(0u, (padded - KERNEL) / STRIDE + 1u, padded >= KERNEL);
  return vec2u(first, min(padded / STRIDE + 1u, count));
}
