// Which network an address is of, and whether only a local one reaches it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isLocal, networkOf } from '../src/net/network.ts'

test('the network of an address is its /24 or /48, however the address is written', () => {
  assert.equal(networkOf('203.0.113.7'), networkOf('203.0.113.250'))
  assert.equal(networkOf('::ffff:203.0.113.7'), networkOf('203.0.113.8'))
  assert.notEqual(networkOf('203.0.113.7'), networkOf('203.0.114.7'))
  assert.equal(networkOf('2001:db8:1::1'), networkOf('2001:0db8:0001:ffff::2'))
  assert.notEqual(networkOf('2001:db8:1::1'), networkOf('2001:db8:2::1'))
})

test('private, loopback, link-local, shared, multicast, reserved and invalid addresses are local', () => {
  for (const address of [
    '10.0.0.1',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '127.0.0.1',
    '169.254.169.254',
    '100.64.0.1',
    '0.0.0.0',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    'fe80::1',
    'fe80::1%eth0',
    'fd00::2',
    'fc00::',
    'ff02::1',
    '::ffff:192.168.0.1',
    '::127.0.0.1',
    '64:ff9b::10.0.0.1',
    'a1b2.local',
    'example.org',
    '',
  ])
    assert.equal(isLocal(address), true, address)
  for (const address of [
    '203.0.113.7',
    '8.8.8.8',
    '172.15.0.1',
    '172.32.0.1',
    '100.63.0.1',
    '192.169.0.1',
    '2001:db8::1',
    '2a00:1450::1',
    '::ffff:8.8.8.8',
  ])
    assert.equal(isLocal(address), false, address)
})
