// Encodings of a gradient in eight and sixteen bits, one invocation a block of 256. The bytes equal those of the
// encoders in `volunteer/src/codec`. All that rounds is done on bits, in whole numbers. f32 division and pack2x16float
// may round in any way, and a product and a difference may be fused. Of floats there are one sum and one difference,
// which WGSL rounds correctly, but may take what is below 2⁻¹²⁶ for zero. table, for each block: its first float, its
// floats, the words of its codes and of its scale, and the first block of its chunk. In that first block also the
// number of blocks of the chunk. x, residual, next (floats,) as bits; words: what is read back.

const SIZE = 0x7fffffffu;
const INFINITE = 0x7f800000u;
const HIDDEN = 0x800000u;
// A block whose largest number is below 2⁻⁹⁵ is sent as zeros: its scale, and what is beside it, would be too near to
// 2⁻¹²⁶.
const LEAST_INT8 = 32u << 23u;

// What the block adds up to, in `next` until it is encoded. Returns the largest magnitude, as bits.
fn sum_block(start: u32, count: u32) -> u32 {
  var largest = 0u;
  for (var i = start; i < start + count; i++) {
    let own = bitcast<u32>(x[i]);
    let added = bitcast<u32>(bitcast<f32>(own) + bitcast<f32>(residual[i]));
    let sum = select(added, own, (own & SIZE) >= INFINITE);
    next[i] = bitcast<i32>(sum);
    largest = max(largest, sum & SIZE);
  }
  return largest;
}

fn lose(i: u32, sum: u32, seen: u32) {
  next[i] = bitcast<i32>(bitcast<f32>(sum) - bitcast<f32>((sum & ~SIZE) | seen));
}

// value ÷ 2^shift, to nearest, ties to even.
fn rounded(value: u32, shift: u32) -> u32 {
  if (shift == 0u) { return value; }
  let kept = value >> shift;
  let rest = value & ((1u << shift) - 1u);
  let half = 1u << (shift - 1u);
  return kept + select(0u, 1u, rest > half || (rest == half && (kept & 1u) == 1u));
}

fn significand(size: u32) -> u32 { return (size & 0x7fffffu) | HIDDEN; }

// ---- eight bits

@compute @workgroup_size(WORKGROUP)
fn encode_int8(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let b = thread_of(group, lane);
  if (b >= run.samples) { return; }
  let block = table[2u * b];
  let scale = scale_of(sum_block(block.x, block.y));
  words[block.w] = bitcast<i32>(scale);
  for (var i = 0u; i < block.y; i += 4u) {
    var word = 0u;
    for (var k = i; k < min(i + 4u, block.y); k++) { word |= int8_code(block.x + k, scale) << (8u * (k - i)); }
    words[block.z + i / 4u] = bitcast<i32>(word);
  }
}

// largest ÷ 127, to nearest. 127 is odd: there are no ties.
fn scale_of(largest: u32) -> u32 {
  if (largest >= INFINITE) { return 0x7fc00000u; }
  if (largest < LEAST_INT8) { return 0u; }
  let wide = significand(largest) << 7u;
  let isAbove = wide >= 127u << 24u;
  let quotient = (select(wide, wide >> 1u, isAbove) + 63u) / 127u;
  return (((largest >> 23u) - select(8u, 7u, isAbove)) << 23u) + quotient;
}

fn int8_code(i: u32, scale: u32) -> u32 {
  if (scale == 0u || scale >= INFINITE) { return 0u; }
  let sum = bitcast<u32>(next[i]);
  let magnitude = nearest(sum & SIZE, scale);
  lose(i, sum, times(magnitude, scale));
  return select(magnitude, (~magnitude + 1u) & 0xffu, sum > SIZE);
}

// size ÷ scale, to nearest, ties away from zero. The quotient of floats may be off by one, which products of whole
// numbers show. None is above 2³², since the largest size is 127 scales. Dividing whole numbers instead takes
// SwiftShader far longer.
fn nearest(size: u32, scale: u32) -> u32 {
  let divisor = significand(scale);
  let above = size >> 23u;
  let below = scale >> 23u;
  if (above < below) { return select(0u, 1u, above + 1u == below && significand(size) >= divisor); }
  let twice = significand(size) << (above - below + 1u);
  let guess = min(u32(bitcast<f32>(size) / bitcast<f32>(scale) + 0.5), 127u);
  let isLow = guess < 127u && twice >= (2u * guess + 1u) * divisor;
  let isHigh = guess > 0u && twice < (2u * guess - 1u) * divisor;
  return guess + select(0u, 1u, isLow) - select(0u, 1u, isHigh);
}

// code · scale, rounded once.
fn times(code: u32, scale: u32) -> u32 {
  if (code == 0u) { return 0u; }
  let product = code * significand(scale);
  let beyond = 8u - countLeadingZeros(product);
  return (((scale >> 23u) + beyond - 1u) << 23u) + rounded(product, beyond);
}

// ---- sixteen bits

@compute @workgroup_size(WORKGROUP)
fn sum_f16(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let b = thread_of(group, lane);
  if (b >= run.samples) { return; }
  let block = table[2u * b];
  parts[b] = bitcast<i32>(sum_block(block.x, block.y));
}

// The power of two of a chunk: its largest number comes to lie below 2¹⁵.
@compute @workgroup_size(WORKGROUP)
fn powers_f16(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let b = thread_of(group, lane);
  if (b >= run.samples) { return; }
  let count = table[2u * b + 1u].y;
  if (count == 0u) { return; }
  var largest = 0u;
  for (var i = b; i < b + count; i++) { largest = max(largest, bitcast<u32>(parts[i])); }
  let isPlain = largest == 0u || largest >= INFINITE;
  let exponent = select(max(largest >> 23u, 15u) - 14u, 127u, isPlain);
  words[table[2u * b].w] = bitcast<i32>(exponent << 23u);
}

@compute @workgroup_size(WORKGROUP)
fn encode_f16(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let b = thread_of(group, lane);
  if (b >= run.samples) { return; }
  let block = table[2u * b];
  let power = bitcast<u32>(words[block.w]) >> 23u;
  for (var i = 0u; i < block.y; i += 2u) {
    var word = f16_code(block.x + i, power);
    if (i + 1u < block.y) { word |= f16_code(block.x + i + 1u, power) << 16u; }
    words[block.z + i / 2u] = bitcast<i32>(word);
  }
}

fn f16_code(i: u32, power: u32) -> u32 {
  let sum = bitcast<u32>(next[i]);
  let half = half_of(sum & SIZE, power);
  lose(i, sum, float_of(half, power));
  return half | ((sum >> 16u) & 0x8000u);
}

// size ÷ 2^(power − 127) as a half, to nearest, ties to even; what is below 2⁻¹²⁶ becomes zero.
fn half_of(size: u32, power: u32) -> u32 {
  if (size >= INFINITE) { return select(0x7c00u, 0x7e00u, size > INFINITE); }
  let exponent = i32(size >> 23u) - i32(power) + 127;
  if (size < HIDDEN || exponent < 102) { return 0u; }
  if (exponent < 113) { return rounded(significand(size), u32(126 - exponent)); }
  if (exponent > 142) { return 0x7c00u; }
  return min(rounded((u32(exponent) << 23u) | (size & 0x7fffffu), 13u) - (112u << 10u), 0x7c00u);
}

// half · 2^(power − 127), exact where it is 2⁻¹²⁶ or more, else zero.
fn float_of(half: u32, power: u32) -> u32 {
  if (half == 0u) { return 0u; }
  let top = 31u - countLeadingZeros(half & 0x3ffu);
  let isNormal = half >= 0x400u;
  let exponent = i32(select(103u + top, (half >> 10u) + 112u, isNormal)) + i32(power) - 127;
  let fraction = select((half & 0x3ffu) << ((23u - top) & 31u), (half & 0x3ffu) << 13u, isNormal) & 0x7fffffu;
  return select(0u, (u32(exponent) << 23u) | fraction, exponent > 0);
}
