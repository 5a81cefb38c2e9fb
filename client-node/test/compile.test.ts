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
