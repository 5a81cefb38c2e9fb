// bin/compile.mjs: what runs is always what the sources say, in a small repository of its own.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, rm, symlink, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const run = promisify(execFile)
const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url))
const folder = await mkdtemp(join(tmpdir(), 'starling-'))
after(() => rm(folder, { recursive: true }))

async function write(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), text)
  }
}

const start = (...args: string[]) =>
  run(process.execPath, [join(folder, 'bin/typescript.mjs'), join(folder, 'app/main.ts'), ...args])

await cp(join(REPOSITORY, 'bin'), join(folder, 'bin'), { recursive: true })
await cp(join(REPOSITORY, 'package-lock.json'), join(folder, 'package-lock.json'))
await symlink(join(REPOSITORY, 'node_modules'), join(folder, 'node_modules'))
await write({
  'package.json': '{ "type": "module", "workspaces": ["lib", "app"] }',
  'lib/package.json': '{ "exports": { ".": "./src/index.ts" } }',
  'lib/src/index.ts': 'export const said: string = "one"',
  'app/beside.txt': 'beside',
  'app/main.ts': `import { readFileSync } from 'node:fs'
import { said } from '@starling-grid/lib'
interface Unseen { readonly it: string }
const text: Unseen = { it: readFileSync(new URL('beside.txt', import.meta.url), 'utf8') }
if (process.argv[2] === 'fail') throw new Error('on line five')
console.log(said, text.it, process.argv.slice(2).join())`,
})

test('a file runs with its packages, arguments and the files beside it, under parallel compilation', async () => {
  const outputs = await Promise.all([start('a', 'b'), start('a', 'b'), start('a', 'b')])
  assert.deepEqual(
    outputs.map(({ stdout }) => stdout),
    Array.from({ length: 3 }, () => 'one beside a,b\n'),
  )
})

test('a source that changed is compiled again, also when it is older than before', async () => {
  await write({ 'lib/src/index.ts': 'export const said: string = "two"' })
  assert.equal((await start()).stdout, 'two beside \n')
  await write({ 'lib/src/index.ts': 'export const said: string = "three"' })
  await utimes(join(folder, 'lib/src/index.ts'), 1, 1)
  assert.equal((await start()).stdout, 'three beside \n')
})

test('an error names the line of the source', async () => {
  await assert.rejects(start('fail'), (error: { stderr?: string }) => /app\/main\.ts:5:/.test(error.stderr ?? ''))
})

test('a file that is no TypeScript is named, and nothing runs', async () => {
  await write({ 'app/broken.ts': 'const = 1' })
  await assert.rejects(start(), (error: { stderr?: string }) => /app\/broken\.ts/.test(error.stderr ?? ''))
  await rm(join(folder, 'app/broken.ts'))
})

test('packages that are gathered into one file each are what Node finds in them', async () => {
  await write({
    'app/main.ts': `import { createRequire } from 'node:module'
import fastify, { errorCodes } from 'fastify'
import { WebSocketServer } from 'ws'
import pg from 'pg'
const require = createRequire(import.meta.url)
const app: { inject(path: string): Promise<{ body: string }> } = fastify().get('/', () => 'answered') as never
const isOwn: boolean = fastify !== require('fastify')
const { body } = await app.inject('/')
console.log(body, isOwn, typeof WebSocketServer, typeof pg.Pool, typeof errorCodes)`,
  })
  assert.equal((await start()).stdout, 'answered true function function object\n')
})

test('modules of a package share files, each is loaded once on every way, and a change of one is seen', async () => {
  await write({
    'two/package.json': '{ "exports": { ".": "./src/index.ts", "./part": "./src/part.ts" } }',
    'two/src/index.ts': `export { count, next } from './count.ts'
export { part } from './part.ts'
export const later = (): Promise<{ later: string }> => import('./later.ts')`,
    'two/src/part.ts': `import { next } from './count.ts'
import { deep } from './deep.ts'
export const part = (): string => deep + next()`,
    'two/src/count.ts': 'export let count = 0\nexport const next = (): number => ++count',
    'two/src/deep.ts': "export const deep = 'deep '",
    'two/src/later.ts': "import { count } from './count.ts'\nexport const later = `later ${count}`",
    'package.json': '{ "type": "module", "workspaces": ["lib", "two", "app"] }',
    'app/main.ts': `import { count, later, next } from '@starling-grid/two'
import { part } from '@starling-grid/two/part'
import { count as same } from '../two/src/count.ts'
next()
console.log(part(), count, same, (await later()).later)`,
  })
  assert.equal((await start()).stdout, 'deep 2 2 2 later 2\n')
  await write({ 'two/src/deep.ts': "export const deep = 'deeper '" })
  assert.equal((await start()).stdout, 'deeper 2 2 2 later 2\n')
  await write({ 'two/src/later.ts': "import { deep } from './deep.ts'\nexport const later = `later ${deep}`" })
  assert.equal((await start()).stdout, 'deeper 2 2 2 later deeper \n')
})

test('an error in a file that modules share names the line of its source', async () => {
  await write({
    'two/src/deep.ts': "\nexport const deep = ''\nexport const fail = (): never => {\n  throw new Error('deep')\n}",
    'two/src/part.ts': "import { fail } from './deep.ts'\nexport const part = (): void => fail()",
    'app/main.ts': "import { part } from '@starling-grid/two/part'\npart()",
  })
  await assert.rejects(start(), (error: { stderr?: string }) => /two\/src\/deep\.ts:4:/.test(error.stderr ?? ''))
})
