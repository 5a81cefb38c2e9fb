// A mutant: one line of production code that is broken on purpose, and the tests that must notice it.

export interface Mutant {
  /** part of the system, as results are grouped */
  readonly area: string
  /** what does not hold any more, in a few words */
  readonly breaks: string
  /** from the root of the repository */
  readonly file: string
  /** occurs exactly once in the file */
  readonly from: string
  readonly to: string
  /** parts of the paths of test files, as `npm test` takes them; one of these files must fail */
  readonly tests: readonly string[]
}

/** Mutants of one file, which the same tests notice. */
export function mutantsOf(
  area: string,
  file: string,
  tests: readonly string[],
  broken: readonly (readonly [breaks: string, from: string, to: string])[],
): Mutant[] {
  return broken.map(([breaks, from, to]) => ({ area, breaks, file, from, to, tests }))
}

/**
 * The file with this line broken. @throws Error when the text that the mutant replaces is gone, or is there several
 * times
 */
export function mutate({ file, breaks, from, to }: Mutant, source: string): string {
  const pattern = spacedFreely(from)
  const times = [...source.matchAll(pattern)].length
  if (times !== 1)
    throw new Error(
      `the mutant "${breaks}" expects its text once in ${file}, got it ${times} times; name a line that is there: ` +
        `${JSON.stringify(from)}`,
    )
  return source.replace(pattern, () => to)
}

/** The formatter may break the line that a mutant names, and then adds a comma before the bracket that closes. */
function spacedFreely(text: string): RegExp {
  const tokens = text.trim().match(/\w+|[^\w\s]/g) ?? []
  const parts = tokens.map((token) => (/[)\]}]/.test(token) ? `,?\\s*\\${token}` : token.replace(/[^\w\s]/, '\\$&')))
  return new RegExp(parts.join('\\s*'), 'g')
}
