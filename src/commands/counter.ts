/** Shows a running count on one line of the terminal, for work on many rows. */
export type CountLine = {
  show(count: bigint): void
  /** Clears the line. */
  end(): void
}

type Terminal = { readonly isTTY?: boolean; write(text: string): unknown }

const redrawMs = 100

/** Writes to standard error, and only to a terminal: a pipe gets results and nothing else. */
export function createCounter(
  words: string,
  stream: Terminal = process.stderr,
  now: () => number = () => performance.now(),
): CountLine {
  let drawnAtMs = Number.NEGATIVE_INFINITY
  return {
    show(count) {
      if (stream.isTTY !== true || now() - drawnAtMs < redrawMs) return
      drawnAtMs = now()
      stream.write(`\r\x1b[2K  ${count.toLocaleString('en')} ${words}`)
    },
    end() {
      if (drawnAtMs !== Number.NEGATIVE_INFINITY) stream.write('\r\x1b[2K')
    },
  }
}
