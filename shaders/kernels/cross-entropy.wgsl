// Softmax cross-entropy, one row of CLASSES logits per invocation, with R = samples · ROWS rows.
// x (R, CLASSES), labels (R,) → loss (R,), correct (R,) 1 or 0, dx (R, CLASSES) = softmax(x) − one-hot.

@compute @workgroup_size(WORKGROUP)
fn loss_and_gradient(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = thread_of(group, lane);
  if (row >= run.samples * ROWS) { return; }
  let first = row * CLASSES;
  var best = 0u;
  var top = x[first];
  for (var i = 1u; i < CLASSES; i++) {
    if (x[first + i] > top) { best = i; top = x[first + i]; }
  }
  var sum = 0.0;
  for (var i = 0u; i < CLASSES; i++) { sum += exp(x[first + i] - top); }
  let label = u32(labels[row]);
  loss[row] = log(sum) + top - x[first + label];
  correct[row] = select(0.0, 1.0, best == label);
  for (var i = 0u; i < CLASSES; i++) {
    dx[first + i] = exp(x[first + i] - top) / sum - select(0.0, 1.0, i == label);
  }
}
