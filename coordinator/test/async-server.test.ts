// The parameter server of real runs: in threads, failing in the middle, asked for single rows.
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { gradientForm, readGradient, readParameters, writeRowNumbers } from '@starling-grid/model'
import { hashChunks, pathTo, readHashList, ROUTES, ROWS_HEADER } from '@starling-grid/protocol'
import { ParameterServer } from '../src/parameter-server/parameter-server.ts'
import { OWNER, QUICK, recordsOf, runOf, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

const BLOCKS = 36

async function assertEachBlockOnce(url: string, id: string): Promise<void> {
  const records = await recordsOf(url, id)
  const blocks = records.flatMap((record) => record.blocks)
  assert.deepEqual([blocks.length, new Set(blocks).size], [BLOCKS, BLOCKS])
}

test('a parameter server that fails costs the work since its checkpoint, and the run goes on to its end', async () => {
  const close = ParameterServer.prototype.close
  let calls = 0
  const failing = mock.method(
    ParameterServer.prototype,
    'close',
    function (this: ParameterServer, ...asked: Parameters<typeof close>) {
      if (++calls === 4) throw new Error('a thread ended')
      return close.apply(this, asked)
    },
  )
  try {
    const { url } = await startCoordinator()
    const { id } = await submit(url, smallJob({ mode: 'async', stop: { epochs: 1 } }))
    const fakes = [volunteer(url), volunteer(url)]
    await Promise.all(fakes.map((fake) => fake.heard('finished')))
    await assertEachBlockOnce(url, id)
    const run = await runOf(url, id)
    assert.deepEqual([run.phase, run.checkpoint?.v], ['finished', run.version.v])
    assert.ok(calls > 9, 'the versions after the last checkpoint were made again')
  } finally {
    failing.mock.restore()
  }
})

test('a model large enough for threads trains in async mode, half of the members a version', async () => {
  const model = {
    name: 'wide',
    input: [1, 28, 28],
    layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 1400 }],
  }
  const { url } = await startCoordinator()
  const { status, id } = await submit(
    url,
    smallJob({
      mode: 'async',
      stop: { epochs: 1 },
      model,
      async: { update: 'proportion', proportion: 2, delayCompensation: 0.04 },
    }),
  )
  assert.equal(status, 201)
  const fakes = [volunteer(url), volunteer(url)]
  await Promise.all(fakes.map((fake) => fake.heard('finished')))
  await assertEachBlockOnce(url, id)
  const run = await runOf(url, id)
  assert.equal(run.checkpoint?.v, run.version.v)
  assert.ok(run.version.v < 18, 'fewer versions than pushes')
})

test('a job with an outer optimizer whose versions the parameter server makes from the first is exported', async () => {
  const { url } = await startCoordinator({ timing: { ...QUICK, abortsBeforeFallback: 0 } })
  const { id } = await submit(
    url,
    smallJob({ mode: 'auto', stop: { epochs: 1 }, local: { innerSteps: 4 }, volunteers: { min: 1 } }),
  )
  await volunteer(url).heard('finished')
  const exported = await fetch(`${url}${pathTo(ROUTES.export, { id })}`, { headers: OWNER })
  assert.deepEqual([exported.status, (await exported.arrayBuffer()).byteLength > 0], [200, true])
})

test('settings of async mode that contradict each other are refused with the job', async () => {
  const { url } = await startCoordinator()
  const { status, code, detail } = await submit(
    url,
    smallJob({ mode: 'async', async: { update: 'all', whenStale: 'drop' } }),
  )
  assert.deepEqual([status, code], [422, 'job-invalid'])
  assert.match(detail ?? '', /members wait for each other/)
})

test('rows of a recent version come alone, to members only, when their numbers are in order', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ mode: 'async', stop: { epochs: 50 }, volunteers: { min: 1 } }))
  const member = volunteer(url, { stepMs: 50 })
  const { session } = await member.heard('welcome')
  const { version } = await until(url, 'the first versions', (run) => run.mode === 'async' && run.version.v > 1)
  const { layout } = member.form
  const wanted = new Map([['fc.weight', [1, 7]]])
  const parts = [{ name: 'fc.weight', rows: 2 }]
  const ask = (body: Uint8Array, { headers = {}, of = version.id as string } = {}): Promise<Response> =>
    fetch(`${url}${pathTo(ROUTES.rows, { id, versionId: of })}`, {
      method: 'POST',
      body: body as BodyInit,
      headers: {
        authorization: `Bearer ${session}`,
        'content-type': 'application/octet-stream',
        [ROWS_HEADER]: JSON.stringify(parts),
        ...headers,
      },
    })
  const answer = await ask(writeRowNumbers(layout, wanted))
  assert.equal(answer.status, 200)
  const rows = new Float32Array(layout.total)
  readGradient(new Uint8Array(await answer.arrayBuffer()), gradientForm(layout, parts), rows)
  const whole = readParameters(
    new Uint8Array(
      await (
        await fetch(`${url}${pathTo(ROUTES.version, { id, versionId: version.id })}?part=parameters`, {
          headers: { authorization: `Bearer ${session}` },
        })
      ).arrayBuffer(),
    ),
    layout,
  )
  const { offset } = layout.entries.find(({ name }) => name === 'fc.weight') ?? assert.fail()
  const expected = whole.map((value, i) =>
    i >= offset && i < offset + 7840 && ![1, 7].includes(Math.floor((i - offset) / 784)) ? 0 : value,
  )
  assert.deepEqual(rows, expected)

  const numbers = writeRowNumbers(layout, wanted)
  const refusals = await Promise.all([
    ask(numbers, { headers: { authorization: 'Bearer of-no-member-at-all' } }),
    ask(writeRowNumbers(layout, new Map([['fc.weight', [7, 1]]]))),
    ask(writeRowNumbers(layout, new Map([['fc.weight', [1, 10]]]))),
    ask(numbers, { headers: { [ROWS_HEADER]: '[{"name":"fc.bias","rows":2}]' } }),
    ask(numbers, { headers: { [ROWS_HEADER]: '[]' } }),
    ask(new Uint8Array(12)),
    ask(numbers, { of: '0'.repeat(64) }),
  ])
  assert.deepEqual(
    refusals.map(({ status }) => status),
    [401, 422, 422, 422, 400, 413, 404],
  )
})

test('the hashes of a version are those of its chunks, whichever way it is asked for', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ mode: 'async', stop: { epochs: 50 }, volunteers: { min: 1 } }))
  const member = volunteer(url, { stepMs: 50 })
  await member.heard('welcome')
  const { version } = await until(url, 'the first versions', (run) => run.mode === 'async' && run.version.v > 1)
  const path = `${pathTo(ROUTES.version, { id, versionId: version.id })}?part=parameters`
  const bytesOf = async (query: string): Promise<Uint8Array> =>
    new Uint8Array(await (await member.request(path + query)).arrayBuffer())
  for (const as of ['', '&as=f16']) {
    const whole = await bytesOf(as) // a member asks for one at a time
    const list = await bytesOf(`${as}&hashes=1`)
    assert.deepEqual(readHashList(list, whole.byteLength), { total: whole.byteLength, hashes: await hashChunks(whole) })
  }
  const unknown = `${pathTo(ROUTES.version, { id, versionId: '0'.repeat(64) })}?part=parameters&hashes=1`
  assert.equal((await member.request(unknown)).status, 404)
})
