// What computes on this machine: options of the commands that lend it.
import { EXECUTOR_CHOICES, EXECUTOR_TEXT, type ExecutorWish } from '@starling-grid/client-node/executor-choice'
import { findSeats, type GpuSeat } from '@starling-grid/client-node/gpu-seats'
import { type GpuWish, gpuWishIn } from '@starling-grid/client-node/gpu-wish'
import { type Command, Option } from 'commander'
import { wholeNumber } from './arguments.ts'
import { bytesIn } from './byte-size.ts'

export interface ComputeFlags {
  readonly adapter?: string
  readonly gpus?: GpuWish
  readonly executor: ExecutorWish
  readonly threads?: number
  readonly as?: 'gpu'
}

const THREADS_TEXT = 'threads that compute on the processor (default: one for each core)'
const GPUS_TEXT =
  'several GPUs of this machine, which compute as one member: all, how many, or parts of their names, such as ' +
  '"4090,a770"; their sums are added in the memory of this machine'

export function addComputeOptions(command: Command): Command {
  return command
    .option('--adapter <text>', "part of the wanted adapter's name")
    .addOption(new Option('--gpus <which>', GPUS_TEXT).argParser(gpuWishIn).conflicts('adapter'))
    .addOption(new Option('--executor <kind>', EXECUTOR_TEXT).choices(EXECUTOR_CHOICES).default('auto'))
    .addOption(new Option('--threads <n>', THREADS_TEXT).argParser(wholeNumber(1)))
    .addOption(
      new Option('--as <kind>', 'plan for a software adapter as for a GPU: for tests').choices(['gpu']).hideHelp(),
    )
}

/** As bytes, or with a unit behind it. */
export function sizeOption(flags: string, text: string, bytes: number): Option {
  return new Option(flags, text).default(bytes, `${bytes / 1e9}GB`).argParser(bytesIn)
}

/** What `--gpus` means here; undefined where it is not given. @throws GridError 'no-adapter' */
export async function seatsOf({ gpus }: ComputeFlags): Promise<readonly GpuSeat[] | undefined> {
  return gpus && findSeats(gpus)
}

export function seatNames(seats: readonly GpuSeat[]): string {
  return seats.map(({ adapter }) => `${adapter.name}${adapter.software ? ' (software)' : ''}`).join(' and ')
}
