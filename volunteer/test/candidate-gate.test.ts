// Where a volunteer lets itself be sent to, whatever a coordinator or a peer says.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CandidateGate } from '@starling-grid/volunteer'
import { isInOwnNetwork, MAX_CANDIDATES, ownIceServers } from '../src/link/candidate-gate.ts'

const candidate = (address: string, port = 50_000): string => `candidate:1 1 udp 2130706431 ${address} ${port} typ host`
const PRIVATE = [
  '10.0.0.1',
  '172.16.3.4',
  '192.168.0.1',
  '127.0.0.1',
  '169.254.169.254',
  '100.64.0.1',
  '0.0.0.0',
  '::1',
  'fd00::2',
  'fe80::1',
  '::ffff:10.0.0.1',
]
const PUBLIC = ['93.184.216.34', '2606:2800:220:1::1']

test('threat 29: addresses of the own network are taken of a coordinator in that network only', () => {
  for (const address of PRIVATE) {
    assert.equal(new CandidateGate(false).takes(candidate(address)), false, address)
    assert.equal(new CandidateGate(true).takes(candidate(address)), true, address)
  }
  for (const address of PUBLIC) assert.equal(new CandidateGate(false).takes(candidate(address)), true, address)
  for (const url of [
    'http://localhost:8790',
    'http://192.168.0.7:80',
    'http://[::1]:80',
    'http://lab:80',
    'http://lab.local',
  ])
    assert.equal(isInOwnNetwork(url), true, url)
  for (const url of ['https://grid.example.org', 'http://93.184.216.34', 'http://[2606:2800:220:1::1]'])
    assert.equal(isInOwnNetwork(url), false, url)
})

test("threat 29: names, service ports and non-candidates are refused; a browser's mDNS name is taken", () => {
  for (const local of [true, false]) {
    for (const wrong of [
      candidate('printer.local'),
      candidate('evil.test'),
      candidate('93.184.216.34', 22),
      'nonsense',
      candidate('999.1.1.1'),
    ])
      assert.equal(new CandidateGate(local).takes(wrong), false, wrong)
    assert.equal(new CandidateGate(local).takes(candidate('0f0e0d0c-1111-2222-3333-444455556666.local')), true)
  }
})

test('threat 29: of one connection twenty candidates are taken, in the description and trickled, all together', () => {
  const gate = new CandidateGate(false)
  const listed = Array.from({ length: 12 }, (_, i) => `a=${candidate(`93.184.216.${i}`)}\r\n`).join('')
  const sdp = gate.withoutOthers(`v=0\r\na=${candidate('10.0.0.1')}\r\n${listed}a=end\r\n`)
  assert.equal(sdp, `v=0\r\n${listed}a=end\r\n`)
  const taken = Array.from({ length: 1000 }, (_, i) => gate.takes(candidate('93.184.217.1', 2000 + i))).filter(
    Boolean,
  ).length
  assert.equal(taken, MAX_CANDIDATES - 12)
})

test('threat 55: STUN and TURN servers are asked on the coordinator and where the owner allows it', () => {
  const servers = [
    'stun:grid.example.org:3478',
    'turns:turn.example.org:5349?transport=tcp',
    'stun:10.0.0.1',
    'stun:[::1]:3478',
    'turn:GRID.example.org',
  ].map((urls) => ({ urls }))
  const asked = (allowed: readonly string[]): readonly string[] =>
    ownIceServers(servers, 'https://grid.example.org', allowed).map(({ urls }) => urls)
  assert.deepEqual(asked([]), ['stun:grid.example.org:3478', 'turn:GRID.example.org'])
  assert.deepEqual(asked(['turn.example.org']), [
    'stun:grid.example.org:3478',
    'turns:turn.example.org:5349?transport=tcp',
    'turn:GRID.example.org',
  ])
})
