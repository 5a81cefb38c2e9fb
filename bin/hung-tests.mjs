// Says where test files stand that hang: a file that is ended for it shows nothing of its own. Such a process is asked
// through Node's inspector, which a signal opens, also where a loop never ends. Linux only: elsewhere the list of
// processes is no folder.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { WebSocket } from 'ws'

const INSPECTED = 'http://127.0.0.1:9229/json/list'
const LOOK_MS = 60_000
/** ms in which a process that was signalled listens there */
const OPENING_MS = 1000
/** ms in which a process has answered */
const ANSWER_MS = 5000
const FRAMES = 12

/** Asks each child of this process once it is that old, ms; `tell` gets a line or more of each. */
export function askOldChildren(ageMs, tell) {
  const since = new Map()
  const look = () => {
    for (const child of childrenOf(process.pid)) {
      if (!since.has(child)) since.set(child, Date.now())
      if (Date.now() - since.get(child) < ageMs) continue
      since.set(child, Number.POSITIVE_INFINITY)
      const threads = threadsOf(child) // before a signal wakes some
      void whereItHangs(child)
        .catch((error) => `process ${child} hangs and gave no answer: ${error.message}`)
        .then((where) => tell(`${where}\n${threads.join('\n')}`))
    }
  }
  setInterval(look, Math.min(LOOK_MS, ageMs)).unref()
}

async function whereItHangs(child) {
  process.kill(child, 'SIGUSR1')
  await delay(OPENING_MS)
  const [target] = await (await fetch(INSPECTED)).json()
  if (!commandOf(child).includes(target.title)) throw new Error('another hanging process has the port')
  return `${target.title} hangs: ${await whatKeeps(target.webSocketDebuggerUrl)}`
}

/** What its event loop waits for, and the functions that it is in: a loop that never ends, or what comes next. */
async function whatKeeps(address) {
  const socket = new WebSocket(address)
  const ask = (id, method, params) => socket.send(JSON.stringify({ id, method, params }))
  const said = []
  await new Promise((resolve, reject) => {
    socket.on('open', () => {
      ask(1, 'Debugger.enable')
      ask(2, 'Runtime.evaluate', { expression: 'process.getActiveResourcesInfo().join()' })
      ask(3, 'Debugger.pause')
      setTimeout(resolve, ANSWER_MS)
    })
    socket.on('message', (data) => {
      const { id, result, method, params } = JSON.parse(String(data))
      if (id === 2) said.push(`waits for ${result.result.value}`)
      if (method === 'Debugger.paused') said.push(`runs\n${framesText(params.callFrames)}`)
    })
    socket.on('error', reject)
  })
  socket.close()
  return said.join('; ') || 'it says nothing'
}

/** A line for each: what it does natively. R computes; S waits, in a function of the kernel. */
function threadsOf(child) {
  const folder = `/proc/${child}/task`
  try {
    return readdirSync(folder).map((id) => {
      const text = (name) => readFileSync(`${folder}/${id}/${name}`, 'utf8').trim()
      const [state, ...rest] = text('stat').split(') ').at(-1).split(' ')
      const ticks = Number(rest[10]) + Number(rest[11])
      return `  thread ${text('comm')}: ${state} ${text('wchan')}, ticks of a core ${ticks}`
    })
  } catch {
    return [] // one ended meanwhile
  }
}

function framesText(frames) {
  const lines = frames.slice(0, FRAMES).map(({ functionName, url, location: { lineNumber, columnNumber } }) => {
    return `    ${functionName || '(anonymous)'} ${url}:${lineNumber + 1}:${columnNumber + 1}`
  })
  return lines.join('\n')
}

function commandOf(id) {
  return readFileSync(`/proc/${id}/cmdline`, 'utf8')
}

/** Test files. */
function childrenOf(parent) {
  if (!existsSync('/proc/self/stat')) return []
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    try {
      if (!commandOf(name).includes('.test.')) return [] // another would end
      // the name of a process may hold anything, also brackets
      const [, ppid] = readFileSync(`/proc/${name}/stat`, 'utf8').split(') ').at(-1).split(' ')
      return Number(ppid) === parent ? [Number(name)] : []
    } catch {
      return [] // it ended meanwhile
    }
  })
}
