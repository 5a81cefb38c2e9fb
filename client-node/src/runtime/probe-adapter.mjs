// Run as a short process of its own: which adapter does the system's Vulkan, Metal or Direct3D offer under this
// environment? Plain JavaScript, so that it needs no loader and answers in about 0.1 s. A driver that
// crashes takes only this process with it.
import { create } from 'webgpu'

const gpu = create([])
const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' })
const info = adapter?.info
console.log(JSON.stringify(info ? { name: info.description || info.device, software: info.isFallbackAdapter } : null))
// Dawn keeps the process alive while `gpu` is referenced.
process.exit(0)
