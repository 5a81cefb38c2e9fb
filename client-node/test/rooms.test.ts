// What keeps the rooms apart beyond lint: imports go one way, types included, and one file writes what an aspect of a
// run remembers.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { test } from 'node:test'
import { filesUnder, PACKAGES, ROOT } from './tree-files.ts'

/** The world of simulations has circles. */
const FOLDERS = PACKAGES.filter((name) => name !== 'e2e')
const IMPORT = /^(?:import|export)\b[^'"]*?from '(\.[^']+)'/gm
const RUN = 'coordinator/src/run/'

const sources = FOLDERS.flatMap((folder) => filesUnder(`${folder}/src`)).filter((path) => /\.tsx?$/.test(path))
const textOf = new Map(sources.map((path) => [path, readFileSync(join(ROOT, path), 'utf8')]))

/** File → files of its package that it names. */
const imports: ReadonlyMap<string, readonly string[]> = new Map(
  [...textOf].map(([path, text]) => [
    path,
    [...text.matchAll(IMPORT)].map(([, name = '']) => normalize(join(dirname(path), name))),
  ]),
)

/** The files from one back to itself. */
function circleOf(start: string): readonly string[] | undefined {
  const cameFrom = new Map<string, string>()
  const open = [start]
  for (let path = open.shift(); path !== undefined; path = open.shift())
    for (const next of imports.get(path) ?? []) {
      if (next === start) return wayTo(path, cameFrom)
      if (cameFrom.has(next)) continue
      cameFrom.set(next, path)
      open.push(next)
    }
  return undefined
}

function wayTo(end: string, cameFrom: ReadonlyMap<string, string>): string[] {
  const before = cameFrom.get(end)
  return before === undefined ? [end] : [...wayTo(before, cameFrom), end]
}

test('no file depends on itself through what it imports, types included', () => {
  const circles = sources.flatMap((path) => {
    const circle = circleOf(path)
    return circle === undefined ? [] : [`${path} → ${circle.slice(1).join(' → ')} → ${path}`]
  })
  assert.deepEqual(circles, [])
})

test('one file writes what an aspect of a run remembers: the one that declares it', () => {
  const run = [...textOf].filter(([path]) => path.startsWith(RUN))
  const declares = (text: string): string[] => {
    const [, slices = ''] =
      /^declare module '[^']*state\.ts' \{\n {2}interface Slices \{\n(.*?)^ {2}\}/ms.exec(text) ?? []
    return [...slices.matchAll(/^ {4}(\w+):/gm)].map(([, name = '']) => name)
  }
  const homes = new Map(run.flatMap(([path, text]) => declares(text).map((slice) => [slice, path] as const)))
  assert.ok(homes.size > 10, `expected the slices of a run, got ${homes.size}`)
  const strangers = run.flatMap(([path, text]) =>
    [...text.matchAll(/\bown\([\w.]+, '(\w+)'\)/g)]
      .filter(([, slice = '']) => homes.get(slice) !== path)
      .map(([, slice]) => `${path} writes ${slice}`),
  )
  assert.deepEqual(strangers, [])
})
