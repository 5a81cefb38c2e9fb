// What the platform offers as chance, and as work in other threads, comes from the seed while a world runs.
import { createHash } from 'node:crypto'
import type { Dice } from './dice.ts'

/**
 * Runs `task` with Math.random and crypto.getRandomValues of `dice`. Digests take as long as `beforeDigest`: a thread's
 * time would not be virtual.
 */
export async function seeded<T>(
  dice: Dice,
  task: () => Promise<T>,
  beforeDigest: () => Promise<void> = async () => undefined,
): Promise<T> {
  const { random } = Math
  const { getRandomValues, subtle } = crypto
  const { digest } = subtle
  Math.random = () => dice.fraction()
  Object.defineProperty(crypto, 'getRandomValues', {
    configurable: true,
    value: (values: Uint8Array) => filled(values, dice),
  })
  Object.defineProperty(subtle, 'digest', {
    configurable: true,
    value: (_: string, bytes: Uint8Array) => beforeDigest().then(() => digestNow(bytes)),
  })
  try {
    return await task()
  } finally {
    Math.random = random
    Object.defineProperty(crypto, 'getRandomValues', { configurable: true, value: getRandomValues })
    Object.defineProperty(subtle, 'digest', { configurable: true, value: digest })
  }
}

function filled(values: Uint8Array, dice: Dice): Uint8Array {
  for (let i = 0; i < values.length; i++) values[i] = dice.below(256)
  return values
}

async function digestNow(bytes: Uint8Array): Promise<ArrayBuffer> {
  return new Uint8Array(createHash('sha256').update(bytes).digest()).buffer
}
