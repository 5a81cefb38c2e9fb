// Functions of four numbers at once, to about two units in the last place. Polynomials and their ranges are those of
// the Cephes library (S. Moshier), except where a line says otherwise.
import type { FunctionWriter } from './function.ts'
import { v128, type V128 } from './values.ts'

const { constant, add, sub, mul, div } = v128

/** Horner's rule, highest power first. */
function polynomial(x: V128, coefficients: readonly number[]): V128 {
  return coefficients
    .map((coefficient) => constant(coefficient))
    .reduce((sum, coefficient) => add(mul(sum, x), coefficient))
}

const EXP = [1.98756915e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1]
/** ln 2 in two parts, of which the first has few bits */
const LN2 = [0.693359375, -2.1219444e-4] as const
/** below it e^x is 0, above it infinite */
const EXP_RANGE = [-104, 89] as const
const BIAS = 127
const MANTISSA_BITS = 23

/** e^x, also where it is a subnormal number. */
export function exp(f: FunctionWriter, of: V128): V128 {
  const x = f.variable(v128.min(v128.max(of, constant(EXP_RANGE[0])), constant(EXP_RANGE[1])))
  const power = f.variable(v128.nearest(mul(x, constant(Math.LOG2E))))
  const rest = f.variable(sub(sub(x, mul(power, constant(LN2[0]))), mul(power, constant(LN2[1]))))
  const value = add(add(mul(mul(rest, rest), polynomial(rest, EXP)), rest), constant(1))
  const whole = f.variable(v128.toInt(power))
  const half = f.variable(v128.intShiftRightSigned(whole, 1))
  return mul(mul(value, powerOfTwo(half)), powerOfTwo(v128.intSub(whole, half)))
}

function powerOfTwo(exponent: V128): V128 {
  return v128.intShiftLeft(v128.intAdd(exponent, v128.intConstant(BIAS)), MANTISSA_BITS)
}

const LOG = [
  7.0376836292e-2, -1.151461031e-1, 1.167699874e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
  2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
]

/** ln x of normal positive numbers; NaN of NaN. */
export function log(f: FunctionWriter, of: V128): V128 {
  const x = f.variable(of)
  // x = m · 2^e with √½ ≤ m < √2
  const shifted = f.variable(v128.intSub(x, v128.intConstant(bitsOf(Math.SQRT1_2))))
  const exponent = f.variable(v128.fromInt(v128.intShiftRightSigned(shifted, MANTISSA_BITS)))
  const mantissa = v128.intAdd(v128.and(shifted, v128.intConstant(0x007f_ffff)), v128.intConstant(bitsOf(Math.SQRT1_2)))
  const m = f.variable(sub(mantissa, constant(1)))
  const square = f.variable(mul(m, m))
  const tail = add(mul(mul(mul(polynomial(m, LOG), m), square), constant(1)), mul(exponent, constant(LN2[1])))
  const value = add(add(sub(tail, mul(square, constant(0.5))), m), mul(exponent, constant(LN2[0])))
  return v128.choose(v128.equal(x, x), value, x)
}

function bitsOf(value: number): number {
  return new Int32Array(Float32Array.of(value).buffer)[0] ?? 0
}

/** ln(1 + x) of 0 ≤ x ≤ 1, exact in its relative error too. Source: W. Kahan's correction. */
export function log1p(f: FunctionWriter, of: V128): V128 {
  const x = f.variable(of)
  const sum = f.variable(add(x, constant(1)))
  const gained = f.variable(sub(sum, constant(1)))
  const corrected = f.variable(mul(log(f, sum), div(x, gained)))
  return v128.choose(v128.equal(gained, constant(0)), x, corrected)
}

export function sigmoid(f: FunctionWriter, x: V128): V128 {
  return div(constant(1), add(constant(1), exp(f, v128.neg(x))))
}

const TANH = [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1]
/** up to here the polynomial, which keeps the relative error small */
const TANH_NEAR = 0.625

export function tanh(f: FunctionWriter, of: V128): V128 {
  const x = f.variable(of)
  const size = f.variable(v128.abs(x))
  const square = f.variable(mul(x, x))
  const near = f.variable(add(mul(mul(polynomial(square, TANH), square), x), x))
  const far = f.variable(sub(constant(1), div(constant(2), add(exp(f, add(size, size)), constant(1)))))
  const sign = v128.and(x, v128.constant(-0))
  return v128.choose(v128.greater(size, constant(TANH_NEAR)), v128.or(far, sign), near)
}

/**
 * erfc of z ≥ 0. Source: Press et al., Numerical Recipes, 2nd edition (1992), section 6.2, erfcc: relative error below
 * 1.2e-7 everywhere.
 */
const ERFCC = [
  0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
  -1.26551223,
]

/** Φ(x), the normal distribution function. */
export function normalDistribution(f: FunctionWriter, of: V128): V128 {
  const x = f.variable(of)
  const z = f.variable(mul(v128.abs(x), constant(Math.SQRT1_2)))
  const t = f.variable(div(constant(1), add(constant(1), mul(z, constant(0.5)))))
  const tail = f.variable(mul(mul(t, exp(f, sub(polynomial(t, ERFCC), mul(z, z)))), constant(0.5)))
  return v128.choose(v128.greater(x, constant(0)), sub(constant(1), tail), tail)
}

/** e^(−x²/2)/√2π, the density of the normal distribution. */
export function normalDensity(f: FunctionWriter, x: V128): V128 {
  return mul(exp(f, mul(mul(x, x), constant(-0.5))), constant(1 / Math.sqrt(2 * Math.PI)))
}
