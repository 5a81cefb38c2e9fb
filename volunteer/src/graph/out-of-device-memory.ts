// The device has no memory for what was asked: less of it may fit. Both the runner, which
// plans anew, and the executor that opens a device anew look for it.
import { GridError } from '@starling-grid/protocol'

const MEBIBYTE = 2 ** 20

export class OutOfDeviceMemory extends GridError {
  constructor(bytes: number, message: string) {
    super(
      'adapter-limit',
      `The model needs ${Math.ceil(bytes / MEBIBYTE)} MiB of device memory, and the adapter does not have it: ` +
        message,
    )
  }
}
