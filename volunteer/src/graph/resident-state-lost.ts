// The device went, and with it what stayed there of a training. Another device is open; the caller begins anew.
export class ResidentStateLost extends Error {
  constructor(cause: unknown) {
    super('internal: the device took the state of inner steps along', { cause })
  }
}
