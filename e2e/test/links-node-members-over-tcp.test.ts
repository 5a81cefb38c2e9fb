import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import type { MemberView } from '@starling-grid/protocol'
import { finishesWhole, QUICK, tinyJob } from './small-job.ts'

const STEPS = 120

function areOfBothEnds(links: ReadonlyMap<string, readonly string[]>): boolean {
  return [...links].every(([name, others]) => others.every((other) => links.get(other)?.includes(name)))
}

test('Node members link over TCP, one without TCP over WebRTC, and a killed one costs no sample', async () => {
  const grid = await Grid.start({ timing: QUICK })
  try {
    const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 4 }))
    for (const name of ['a', 'b', 'c']) grid.addVolunteer({ name, executor: 'reference' })
    grid.addVolunteer({ name: 'plain', executor: 'reference', tcp: false })
    const namesOf = (members: readonly MemberView[], ids: readonly string[]): string[] =>
      members.filter(({ id }) => ids.includes(id)).map(({ name }) => name)
    const overTcp = await grid.watch.waitFor('links of two kinds', ({ run }) => {
      const members = run?.phase === 'ring' ? run.members.filter(({ rank }) => rank !== null) : []
      const links = new Map(members.map(({ name, tcpLinks }) => [name, namesOf(members, tcpLinks)]))
      // Around a ring of four each of the three has one neighbour at least that takes TCP. Each end says so in its next
      // heartbeat.
      const isTold = ['a', 'b', 'c'].every((name) => links.get(name)?.length !== 0) && areOfBothEnds(links)
      return members.length === 4 && isTold && links
    })
    assert.deepEqual(overTcp.get('plain'), [], 'it takes no link over TCP')
    for (const [name, others] of overTcp) assert.ok(!others.includes('plain'), `${name} has one with it`)
    assert.equal(grid.watch.run?.relay.links, 0)
    grid.volunteers.find(({ name }) => name === 'b')?.kill('SIGKILL')
    await grid.watch.waitFor('a ring of the others', ({ run }) => run?.phase === 'ring' && run.memberCount === 3)
    await finishesWhole(grid, job, STEPS)
  } finally {
    await grid.stop()
  }
})
