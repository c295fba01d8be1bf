import type { Socket } from 'node:net'

export type LineReader = {
  readonly bytesMax: number
  readonly onLine: (line: string) => void
  /** The peer sent more than one line may hold, so it is not the expected program. */
  readonly onTooLong: () => void
}

/** Reads a socket line by line. Discards text after the last line break when the socket closes. */
export function readLines(socket: Socket, { bytesMax, onLine, onTooLong }: LineReader): void {
  let rest: Buffer[] = []
  let restBytes = 0
  socket.on('data', (chunk: Buffer) => {
    let start = 0
    for (let end = chunk.indexOf(0x0a); end !== -1; end = chunk.indexOf(0x0a, start)) {
      rest.push(chunk.subarray(start, end))
      const line = Buffer.concat(rest).toString()
      rest = []
      restBytes = 0
      start = end + 1
      if (line.length > bytesMax) return onTooLong()
      onLine(line)
    }
    rest.push(chunk.subarray(start))
    restBytes += chunk.length - start
    if (restBytes > bytesMax) onTooLong()
  })
}
