/** Shows the steps of a start as they begin. In a terminal, the current step has a running clock. */
export type Progress = {
  step(line: string): void
  /** Ends the current line, so that the next output starts on a new one. */
  end(): void
}

type Terminal = { readonly isTTY?: boolean; write(text: string): unknown }

const tickMs = 100

export function createProgress(
  stream: Terminal = process.stderr,
  now: () => number = () => performance.now(),
): Progress {
  let current: { readonly title: string; readonly startedMs: number; readonly timer: NodeJS.Timeout } | undefined
  const draw = (title: string, startedMs: number) => {
    const tenths = Math.floor((now() - startedMs) / 100)
    stream.write(`\r\x1b[2K  ${title} … ${Math.floor(tenths / 10)}.${tenths % 10} s`)
  }
  const end = () => {
    if (current === undefined) return
    clearInterval(current.timer)
    draw(current.title, current.startedMs)
    stream.write('\n')
    current = undefined
  }
  return {
    step(line) {
      if (stream.isTTY !== true) {
        stream.write(`  ${line}\n`)
        return
      }
      end()
      const title = line.replace(/\.$/, '')
      const startedMs = now()
      draw(title, startedMs)
      const timer = setInterval(() => draw(title, startedMs), tickMs)
      timer.unref()
      current = { title, startedMs, timer }
    },
    end,
  }
}
