// Loaded into a process before all other code: its wall clock is wrong from the start. In JavaScript only `Date` reads that clock; timers
// and `performance.now` use another one, as on a machine whose clock is set.

const TrueDate = Date
const hourMs = 3_600_000
const jumpMs = 20
const said = process.env.WRONG_CLOCK ?? '0'
let aheadMs = said === 'jumps' ? 0 : Number(said)
if (said === 'jumps') {
  const jump = () => {
    aheadMs = Math.round((Math.random() - 0.5) * 48 * hourMs)
  }
  setInterval(jump, jumpMs).unref()
}

globalThis.Date = new Proxy(TrueDate, {
  construct: (target, args, newTarget) => Reflect.construct(target, args.length === 0 ? [now()] : args, newTarget),
  apply: () => new TrueDate(now()).toString(),
  get: (target, name) => (name === 'now' ? now : Reflect.get(target, name)),
})

function now(): number {
  return TrueDate.now() + aheadMs
}
