// Numbers on the command line, refused in words.
import { InvalidArgumentError } from 'commander'

/** A parser for commander: a whole number from `least` on. */
export function wholeNumber(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (!Number.isInteger(value) || value < least)
      throw new InvalidArgumentError(`expected a whole number from ${least} on`)
    return value
  }
}

/** A parser for commander: whole numbers separated by commas. */
export function wholeNumbers(text: string): number[] {
  return text.split(',').map(wholeNumber(1))
}
