// Run as a short process of its own: all adapters that Dawn sees under this environment, also those that it offers
// under no preference. Equal ones are listed as often as they are there. Plain JavaScript, as probe-adapter.mjs.
import { create } from 'webgpu'

/** No adapter has it: Dawn's refusal then lists those that there are. */
const NO_NAME = '\u0001'
const LISTED = /backend: '([^']*)', name: '(.*)'$/gm

/** Dawn stops when one is collected, whatever it is asked. */
const kept = []

const adapters = await Promise.all(listed(await refusal()).map(described))
console.log(JSON.stringify(adapters.filter((adapter) => adapter !== undefined)))
// They keep the process alive.
process.exit(0)

function dawn(...flags) {
  const gpu = create(flags)
  kept.push(gpu)
  return gpu
}

async function refusal() {
  try {
    await dawn(`adapter=${NO_NAME}`).requestAdapter()
    return ''
  } catch (error) {
    return String(error.message)
  }
}

function listed(text) {
  return [...text.matchAll(LISTED)].map(([, backend, name]) => ({ backend, name }))
}

/** Undefined: it is listed, and yet not to be had. */
async function described({ backend, name }) {
  try {
    const { info } = await dawn(`backend=${backend}`, `adapter=${name}`).requestAdapter()
    const { vendor, device, description, isFallbackAdapter: software } = info
    return { backend, name, device, driver: description, vendor, software }
  } catch {
    return undefined
  }
}
