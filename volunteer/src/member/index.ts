// A member's side of the protocol as pure decisions: what simulations drive.
export { mayContributeEarly } from './assignment.ts'
export {
  type MemberGeneration,
  type MemberCore,
  type MemberEffect,
  type MemberInput,
  neighbours,
} from './member-state.ts'
export { claimOf, createMember, goOnFrom, mayServe, react } from './member.ts'
