// What an index of free blocks counts as they come and go, against a look at all of them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type BlockId, blockIndex, random32, trainingBlock, unitOrder } from '@starling-grid/protocol'
import { FreeBlocks } from '../src/run/queue/free-blocks.ts'

const [EPOCH, BLOCKS, UNIT, SEED] = [3, 230, 20, 5]
const order = unitOrder(SEED, EPOCH, BLOCKS, UNIT)
const inOrder = [...order].map((index) => trainingBlock(EPOCH, index))
const unitOf = (block: BlockId): number => Math.floor(blockIndex(block) / UNIT)

/** An epoch of which blocks are taken and given back, and how often the index looked at one. */
class Story {
  readonly taken = new Set<BlockId>()
  readonly free: FreeBlocks
  readonly #freed: BlockId[] = []
  looks = 0

  constructor(unit = UNIT) {
    this.free = new FreeBlocks({ epoch: EPOCH, order, unit })
    this.refresh()
  }

  refresh(isRemembered = true): void {
    const isFree = (place: number): boolean => {
      this.looks++
      return !this.taken.has(trainingBlock(EPOCH, order[place] ?? 0))
    }
    this.free.refresh(isRemembered ? this.#freed.splice(0) : undefined, { isFree, notFree: this.taken.size })
  }

  giveBack(block: BlockId): void {
    if (this.taken.delete(block)) this.#freed.push(block)
  }

  get left(): BlockId[] {
    return inOrder.filter((block) => !this.taken.has(block))
  }
}

test('the first free blocks, and those of each unit, are what a look at all of them finds', () => {
  for (const unit of [UNIT, 1]) {
    const [story, words] = [new Story(unit), random32(unit)]
    for (let step = 0; step < 2000; step++) {
      const max = 1 + (words() % 30)
      const given = words() % 2 === 0 ? story.free.first(max) : story.free.take(story.free.units[words() % 4] ?? 0, max)
      for (const block of given) if (words() % 3 > 0) story.taken.add(block)
      for (const block of [...story.taken].slice(0, words() % 25)) story.giveBack(block)
      story.refresh(words() % 50 > 0)
      assert.deepEqual(story.free.first(25), story.left.slice(0, 25))
      assert.equal(story.free.total, story.left.length)
      if (unit === UNIT)
        for (const one of new Set(inOrder.map(unitOf)))
          assert.equal(story.free.freeIn(one), story.left.filter((block) => unitOf(block) === one).length)
    }
  }
})

test('what is taken of a unit lies in it, in the order of the epoch, and is free again where it was not used', () => {
  const { free } = new Story()
  const [unit = -1] = [...free.units].slice(4)
  const [some, rest] = [free.take(unit, 12), free.take(unit, 12)]
  assert.deepEqual(
    [...some, ...rest],
    inOrder.filter((block) => unitOf(block) === unit),
  )
  assert.deepEqual([free.freeIn(unit), free.take(unit, 1)], [0, []])
  const [block = inOrder[0] as BlockId] = some
  assert.equal(free.takeOne(block), false)
  free.refresh([], { isFree: () => true, notFree: 0 })
  assert.equal(free.takeOne(block), true)
})

test('a block that was taken without a word is noticed at the next look', () => {
  const story = new Story()
  story.taken.add(inOrder[100] as BlockId)
  story.refresh()
  assert.deepEqual(story.free.first(BLOCKS), story.left)
})

test('blocks that did not change are not looked at again', () => {
  const story = new Story()
  for (const block of story.free.first(50)) story.taken.add(block)
  story.refresh()
  story.looks = 0
  for (const block of story.free.first(10)) story.taken.add(block)
  story.giveBack(inOrder[0] as BlockId)
  story.refresh()
  assert.equal(story.looks, 11)
})
