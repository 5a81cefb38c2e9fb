// Draws the flock behind the ring. Decoration only: everything it shows is also text. Still when motion is unwelcome.
import type { MemberId } from '@starling-grid/protocol'
import { useEffect, useRef } from 'preact/hooks'
import { type Bird, flockOf, type CanvasPoint, rankOf } from './flight.ts'
import { type FlightPattern, HALF_HEIGHT, HALF_WIDTH, type RingNode } from './ring-layout.ts'

/** Slow enough to leave the processor to training, which may run on it. */
const FRAME_MS = 1000 / 24
/** Share of the way to its place that a bird makes in one frame: the flock bends instead of jumping. */
const EASE = 0.09

interface Scene {
  readonly nodes: readonly RingNode[]
  readonly pattern: FlightPattern
  readonly self: MemberId | null
}

export function FlockCanvas(props: Scene) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const scene = useRef<Scene>(props)
  scene.current = props
  useEffect(() => (canvas.current === null ? undefined : fly(canvas.current, () => scene.current)), [])
  return <canvas ref={canvas} class="flock" aria-hidden="true" />
}

/** Flies until the returned function is called. */
function fly(canvas: HTMLCanvasElement, scene: () => Scene): () => void {
  const still = matchMedia('(prefers-reduced-motion: reduce)')
  const flock = new Flock()
  let last = 0
  let frame = requestAnimationFrame(function draw(now) {
    frame = requestAnimationFrame(draw)
    if (now - last < (still.matches ? 1000 : FRAME_MS)) return
    last = now
    flock.move(scene(), still.matches ? null : now / 1000)
    flock.draw(canvas, scene())
  })
  return () => cancelAnimationFrame(frame)
}

class Flock {
  #birds: readonly Bird[] = []
  #key = ''
  #places: { x: number; y: number; heading: number }[] = []

  /** time: seconds, or null to stand still */
  move(scene: Scene, time: number | null): void {
    this.#gather(scene)
    this.#birds.forEach((bird, k) => {
      const target = rankOf(bird, scene.nodes, scene.pattern, time ?? 0)
      const here = this.#places[k]
      if (here === undefined || time === null)
        this.#places[k] = { ...target, heading: headingAt(bird, scene, time ?? 0) }
      else glide(here, target)
    })
    this.#places.length = this.#birds.length
  }

  draw(canvas: HTMLCanvasElement, scene: Scene): void {
    const scale = fit(canvas)
    const context = canvas.getContext('2d')
    if (context === null) return
    const style = getComputedStyle(canvas)
    const [plain, own] = [style.getPropertyValue('--bird'), style.getPropertyValue('--bird-own')]
    context.setTransform(scale, 0, 0, scale, canvas.width / 2, canvas.height / 2)
    context.clearRect(-HALF_WIDTH, -HALF_HEIGHT, 2 * HALF_WIDTH, 2 * HALF_HEIGHT)
    this.#birds.forEach((bird, k) => {
      const place = this.#places[k]
      if (place === undefined) return
      context.fillStyle = scene.nodes[bird.node]?.id === scene.self && scene.self !== null ? own : plain
      drawBird(context, place, bird)
    })
  }

  /** A new flock only when a member joined, left, or changed its share noticeably. */
  #gather(scene: Scene): void {
    const key = scene.nodes.map((node) => `${node.id}${Math.round(Math.log2(1 + node.member.samplesPerSecond))}`).join()
    if (key === this.#key && this.#birds.length > 0) return
    this.#key = key
    this.#birds = flockOf(scene.nodes)
  }
}

function glide(here: { x: number; y: number; heading: number }, target: CanvasPoint): void {
  const dx = target.x - here.x
  const dy = target.y - here.y
  here.x += EASE * dx
  here.y += EASE * dy
  if (Math.abs(dx) + Math.abs(dy) > 0.05) here.heading = Math.atan2(dy, dx)
}

function headingAt(bird: Bird, scene: Scene, time: number): number {
  const before = rankOf(bird, scene.nodes, scene.pattern, time)
  const after = rankOf(bird, scene.nodes, scene.pattern, time + 0.1)
  return Math.atan2(after.y - before.y, after.x - before.x)
}

/** Two swept wings; the size shows the distance. */
function drawBird(
  context: CanvasRenderingContext2D,
  place: { x: number; y: number; heading: number },
  bird: Bird,
): void {
  const size = 0.6 + 0.75 * bird.c * bird.c
  const cos = Math.cos(place.heading) * size
  const sin = Math.sin(place.heading) * size
  const point = (x: number, y: number): [number, number] => [place.x + x * cos - y * sin, place.y + x * sin + y * cos]
  context.beginPath()
  context.moveTo(...point(1.1, 0))
  context.lineTo(...point(-1, -1.25))
  context.lineTo(...point(-0.25, 0))
  context.lineTo(...point(-1, 1.25))
  context.fill()
}

/** Matches the canvas to the screen's pixels; returns canvas pixels per unit of the picture. */
function fit(canvas: HTMLCanvasElement): number {
  const width = Math.round(canvas.clientWidth * devicePixelRatio)
  if (canvas.width !== width) {
    canvas.width = width
    canvas.height = Math.round(canvas.clientHeight * devicePixelRatio)
  }
  return width / (2 * HALF_WIDTH)
}
