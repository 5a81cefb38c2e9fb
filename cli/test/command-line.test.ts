import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))

function starling(args: readonly string[], nodeOptions: readonly string[] = []) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...nodeOptions, STARLING, ...args], {
    encoding: 'utf8',
  })
  return { status, stdout, stderr }
}

test('--help is one table of all commands', () => {
  const { status, stdout } = starling(['--help'])
  assert.equal(status, 0)
  for (const command of [
    'start',
    'demo',
    'doctor',
    'volunteer',
    'golden',
    'explain',
    'parity',
    'chaos',
    'bench',
    'test',
  ])
    assert.match(stdout, new RegExp(`^  ${command} `, 'm'))
})

test('--version is the version alone, so that scripts can read it', () => {
  for (const option of ['--version', '-V']) {
    const { status, stdout } = starling([option])
    assert.equal(status, 0)
    assert.match(stdout, /^\d+\.\d+\.\d+\n$/)
  }
})

test('a command that does not exist is wrong use, and so is none', () => {
  for (const args of [['strat'], ['toString'], []]) {
    const { status, stdout, stderr } = starling(args)
    assert.equal(status, 2)
    assert.equal(stdout, '')
    assert.match(stderr, /Usage: starling COMMAND/)
  }
})

test('an old Node is told which one is needed and which one it is', () => {
  const pretend =
    "data:text/javascript,Object.defineProperty(process, 'versions', { value: { ...process.versions, node: " +
    "'18.20.8' } })"
  const { status, stderr } = starling(['start'], ['--import', pretend])
  assert.equal(status, 1)
  assert.match(stderr, /needs Node 20\.19 or later, and this is Node 18\.20\.8/)
  assert.doesNotMatch(stderr, /Error|at /)
})
