// Machines of a rack that compute as one member.
export { executorOpener, type ExecutorOptions, type ExecutorOpener } from '../executors.ts'
export { lendMachine, type LentMachine, type LentMachineOptions } from './lent-machine.ts'
export { LENT_PORT, type MachineAddress, machinesIn, nameOf, rackKeyIn } from './machine-address.ts'
