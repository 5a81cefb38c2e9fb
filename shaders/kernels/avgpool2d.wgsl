// Average pooling. x (B, C, H, W) → y (B, C, OUT_HEIGHT, OUT_WIDTH); four elements of a line per invocation.
// Padded cells count as zeros: the divisor is always KERNEL².

const SHARE = 1.0 / f32(KERNEL * KERNEL);

@compute @workgroup_size(WORKGROUP)
fn forward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * OUT_HEIGHT * OUT_QUADS) { return; }
  let line = i / OUT_QUADS; // (sample · CHANNELS + channel) · OUT_HEIGHT + row of y
  let left = i % OUT_QUADS * 4u;
  let top = line % OUT_HEIGHT * STRIDE - PADDING; // wraps around above the input
  var sum = vec4f();
  for (var ky = 0u; ky < KERNEL; ky++) {
    let start = (line / OUT_HEIGHT * HEIGHT + min(top + ky, HEIGHT - 1u)) * WIDTH;
    let share = select(0.0, SHARE, top + ky < HEIGHT);
    for (var kx = 0u; kx < KERNEL; kx++) {
      let column = left * STRIDE + kx - PADDING;
      sum += share * vec4f(
        input_at(start, column),
        input_at(start, column + STRIDE),
        input_at(start, column + 2u * STRIDE),
        input_at(start, column + 3u * STRIDE),
      );
    }
  }
  y_put(line, left, sum);
}

fn input_at(start: u32, column: u32) -> f32 {
  return select(0.0, x[start + min(column, WIDTH - 1u)], column < WIDTH);
}

// Windows of 2 × 2 side by side: four of them are two quads of two rows.
@compute @workgroup_size(WORKGROUP)
fn forward_pairs(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * OUT_HEIGHT * OUT_QUADS) { return; }
  let line = i / OUT_QUADS;
  let left = i % OUT_QUADS * 4u;
  let top = (line / OUT_HEIGHT * HEIGHT + line % OUT_HEIGHT * 2u) * x_stride;
  let low = x_quad(top, 2u * left) + x_quad(top + x_stride, 2u * left);
  let high = x_quad(top, 2u * left + 4u) + x_quad(top + x_stride, 2u * left + 4u);
  y_put(line, left, SHARE * vec4f(low.x + low.y, low.z + low.w, high.x + high.y, high.z + high.w));
}

// Each input cell gathers from the windows that cover it.
@compute @workgroup_size(WORKGROUP)
fn backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = thread_of(group, lane);
  if (i >= run.samples * CHANNELS * HEIGHT * IN_QUADS) { return; }
  let line = i / IN_QUADS; // (sample · CHANNELS + channel) · HEIGHT + row of x
  let left = i % IN_QUADS * 4u;
  if (ARE_WHOLE) {
    dx_put(line, left, SHARE * whole_windows(line, left));
    return;
  }
  dx_put(line, left, SHARE * windows_sums(line, left));
}

// Windows of 1, 2 or 4 columns side by side: four columns that begin at a multiple of four lie in whole windows.
const ARE_WHOLE = KERNEL == STRIDE && PADDING == 0u && 4u % STRIDE == 0u;

// dy of the windows that cover four columns of a line of x, where they are whole: one row of windows, and no loop.
fn whole_windows(line: u32, left: u32) -> vec4f {
  let row = line % HEIGHT / STRIDE;
  let start = (line / HEIGHT * OUT_HEIGHT + min(row, OUT_HEIGHT - 1u)) * OUT_WIDTH;
  return select(vec4f(), four_columns(start, left / STRIDE), row < OUT_HEIGHT);
}

fn four_columns(start: u32, window: u32) -> vec4f {
  let first = window_at(start, window);
  if (STRIDE == 4u) { return vec4f(first); }
  let second = window_at(start, window + 1u);
  if (STRIDE == 2u) { return vec4f(first, first, second, second); }
  return vec4f(first, second, window_at(start, window + 2u), window_at(start, window + 3u));
}

// Σ dy over the windows that cover four columns of a line of x.
fn windows_sums(line: u32, left: u32) -> vec4f {
  var sum = vec4f();
  let rows = windows_over(line % HEIGHT, OUT_HEIGHT);
  for (var row = rows.x; row < rows.y; row++) {
    let start = (line / HEIGHT * OUT_HEIGHT + row) * OUT_WIDTH;
    sum += vec4f(
      windows_sum(start, left),
      windows_sum(start, left + 1u),
      windows_sum(start, left + 2u),
      windows_sum(start, left + 3u),
    );
  }
  return sum;
}

fn window_at(start: u32, window: u32) -> f32 {
  return select(0.0, dy[start + min(window, OUT_WIDTH - 1u)], window < OUT_WIDTH);
}

// … that cover one column.
fn windows_sum(start: u32, column: u32) -> f32 {
  let windows = windows_over(column, OUT_WIDTH);
  if (KERNEL <= STRIDE) { // windows do not overlap
    return select(0.0, dy[start + min(windows.x, OUT_WIDTH - 1u)], windows.x < windows.y);
  }
  var sum = 0.0;
  for (var window = windows.x; window < windows.y; window++) { sum += dy[start + window]; }
  return sum;
}

// First and end of the windows along one axis that cover a cell.
fn windows_over(cell: u32, count: u32) -> vec2u {
  let padded = cell + PADDING;
  let first = select(0u, (padded - KERNEL) / STRIDE + 1u, padded >= KERNEL);
  return vec2u(first, min(padded / STRIDE + 1u, count));
}
